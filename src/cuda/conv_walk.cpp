// SPDX-License-Identifier: MIT
//
// Depthwise convolution and small groups, forward and transposed, on a GPU: blocks walk down the image, with its lines
// in a ring in shared memory, weights and sums in registers (cuda/walk.h); one launch a phase (geometry.h).
#include "cuda/lines_drive.h"
#include "cuda/walk.h"

namespace quern {
namespace {

lines_work work_of(const geometry& g, const kernel& row) {
  const double taps = row.taps, products = taps * taps * row.group * row.nr * row.mr;
  const double inputs = double((row.nr - 1) * row.step + row.taps) * row.group;
  // Of the block's warps, four of which issue at once: a line of inputs, of which `step` are one of outputs.
  const double instructions = products / row.step + inputs * (row.type == QUERN_F32 ? 1 : 2) + 12 * row.nr / row.step;
  return {g.k,
          g.c * row.mr,
          outputs_of(g) / row.mr,
          walk_kernels<float>::c1_3x3::threads * 4 * row.nr,
          16 / type_bytes(row.type),
          g.src[1] != 1 && row.group == 1,
          1.45 * (instructions + 60),
          3000 + 8 * taps * taps * row.group,
          row.mr > 1 ? (row.type == QUERN_F32 ? 1000.0 : 700.0) : 1400.0 + 110 * row.group};  // measured on an H200
}

refusal refuse(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  if (g.c != row.group) return {QUERN_REASON_SHAPE, "src.size[1] / groups", g.c, row.group};
  if (row.mr > 1) {  // neighbouring channels, each of its own input
    if (g.k != 1) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", g.k, 1};
    if (g.groups % row.mr != 0) return {QUERN_REASON_SHAPE, "groups", g.groups, row.mr};
    if (g.src[1] != 1) return {QUERN_REASON_LAYOUT, "src.stride[1]", g.src[1], 1};
    if (g.dst[1] != 1) return {QUERN_REASON_LAYOUT, "dst.stride[1]", g.dst[1], 1};
  }
  if (const refusal r = refuse_few(p, row)) return r;
  return refuse_lines(g, row, work_of(g, row));
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  b.packed_bytes = uint64_t(few_panels{g}.size() * type_bytes(row.type));
  b.workers = 1;
  choose_lines(g, row, work_of(g, row), m, b.word);
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry& g = geometry_of(p);
  // Lines before a run's first output leave most products of long filters out, however long runs are: each takes 650
  // clocks less of f32 (H200).
  const double less = row.type == QUERN_F32 && row.taps > 3 ? 650.0 * (row.taps - row.step) : 0;
  const double ns = lines_ns(g, row, work_of(g, row), m, b.word) - 1000 * less / std::max(1u, m.gpu.clock_mhz);
  return {ns * double(g.phases()), 2 * p.products};
}

quern_status launch(const job& j, const launching& l) {
  const geometry& g = geometry_of(j.problem);
  const few_panels panels = {g};
  int64_t before = 0;
  for (int64_t f = 0; f < g.phases(); before += phase_of(g, f).taps(), ++f) {
    const phase ph = phase_of(g, f);
    if (ph.outputs() == 0) continue;
    lines_conv a = lines_tiling(g, j.row, work_of(g, j.row), ph, j.blocks.word, l.args.src);
    a.ahead = l.loaded.ahead;
    take_pixels(a, j, g, ph, l.args, 1);
    a.out.vector = in_chunks(a.out.dst, a.out.dst_stride, j.row.mr, j.row.type);
    a.weights = l.packed + panels.phase(before) * type_bytes(j.row.type);
    if (const quern_status s = launch_kernel(l, j.row, lines_blocks(g, a), &a, uint32_t(j.blocks.word[4]))) return s;
  }
  return QUERN_OK;
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_walk,
                .about = "depthwise and small groups on a GPU: lines in shared memory, the rest in registers",
                .drives = kind::walk, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_ISA, .pads = true, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict, .error_bound = chain_bound, .pack = pack_few, .launch = launch)
