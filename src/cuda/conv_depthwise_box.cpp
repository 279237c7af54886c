// SPDX-License-Identifier: MIT
//
// Depthwise 3x3, 5x5 and 7x7 in f32 on capability 9.0: the copy engine brings boxes of pixels (cuda/depthwise_box.h).
// Memory limits 3x3, multiply-adds 7x7.  All else is conv_walk's.
//
//   block: 7 x 14 outputs of 32 channels, 8 x 14 at stride 2, 14 x 14 of longer filters
//     warp: 7 columns of two lines of these, or of seven
#include "cuda/depthwise_box.h"
#include "cuda/few_drive.h"

namespace quern {
namespace {

constexpr int64_t channels_of = depthwise_3x3::channels, columns_of = depthwise_3x3::columns;

int64_t blocks_of(const geometry& g, const kernel& row) {
  return g.n * up(g.out[1], row.mr) * up(g.out[2], row.nr) * up(g.groups, channels_of);
}

// Of a warp.
int64_t lines_of(const kernel& row) { return up(row.mr, row.threads / 32 * columns_of / row.nr); }
double instructions_of(const kernel& row) {
  const int64_t high = lines_of(row), inputs = (columns_of - 1) * row.step + row.taps;
  return double(high * (columns_of * row.taps * row.taps + 75) + ((high - 1) * row.step + row.taps) * inputs + 200);
}

// Warps that have outputs, of all blocks.
double warps_of(const geometry& g, const kernel& row) {
  const auto along = [](int64_t outputs, int64_t tile, int64_t warp) {
    return outputs / tile * up(tile, warp) + up(outputs % tile, warp);
  };
  return double(g.n * up(g.groups, channels_of) * along(g.out[1], row.mr, lines_of(row)) *
                along(g.out[2], row.nr, columns_of));
}

refusal refuse(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  if (const refusal r = refuse_all_but_depthwise(p, row)) return r;
  if (const refusal r = refuse_all_but_clamps(p)) return r;
  if (const refusal r = refuse_broken_pixels(p)) return r;
  if (g.dst[1] != 1) return {QUERN_REASON_SHAPE, "dst.stride[1]", g.dst[1], 1};
  if (const refusal r = refuse_uneven_strides(p)) return r;
  return refuse_many(double(blocks_of(g, row)) * channels_of, "tiles");
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  b.packed_bytes = uint64_t(few_panels{g}.size() * type_bytes(row.type));
  b.workers = 1;
  b.word[0] = shared_of(blocks_of(g, row), fit_together(row, m), m);
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking&, const machine& m) {
  const geometry& g = geometry_of(p);
  const double blocks = double(blocks_of(g, row)), processors = std::max(1u, m.gpu.multiprocessors);
  // Four warps issue at once, one by itself no faster than among them, and with nobody to hide it waits for its
  // instructions, the longer its code the more.  That, what a block waits for, and how long the large boxes of long
  // filters keep all others waiting, is measured on an H200.
  const double waits = row.taps > 3 ? 1.5 : 1, of_block = std::max(1.0, warps_of(g, row) / blocks / 4 * waits);
  const double issue = instructions_of(row) * std::max(row.taps / 3.0, ceil(blocks / processors) * of_block);
  const double compute = 1000 * (3000 + issue) / std::max(1u, m.gpu.clock_mhz);
  // What neighbours share comes from L2, and what boxes have beyond the image from nowhere.
  const auto along = [&](int axis, int64_t tile) {
    return double(g.in[axis] + (up(g.out[axis], tile) - 1) * std::max(row.taps - row.step, 0));
  };
  const double inputs = double(g.in[1] * g.in[2]), shared = along(1, row.mr) * along(2, row.nr) - inputs;
  const double bytes =
      tensor_bytes(g, row.type, row.type) + 0.3 * double(g.n * g.groups) * shared * type_bytes(row.type);
  const double memory = bytes / (double(m.gpu.bandwidth) * 0.86e-9);
  const double all = blocks * channels_of * row.mr * row.nr;
  return {2300 + std::max(compute, memory), 2 * all * double(g.taps())};
}

quern_status launch(const job& j, const launching& l) {
  const geometry& g = geometry_of(j.problem);
  const kernel& row = j.row;
  const phase ph = phase_of(g, 0);
  depthwise_box a = {};
  a.begin_h = int32_t(ph.h.in_begin), a.begin_w = int32_t(ph.w.in_begin);
  a.tiles_h = int32_t(up(g.out[1], row.mr)), a.tiles_w = int32_t(up(g.out[2], row.nr));
  a.chunks = int32_t(up(g.groups, channels_of));
  a.weights = reinterpret_cast<const float*>(l.packed), a.ahead = l.loaded.ahead;
  a.out = output_of(j, g, ph, l.args, 1);
  a.out.k = int32_t(g.groups);
  const int64_t size[] = {g.groups, g.in[2], g.in[1], g.n};
  const auto under = [&](int outputs) { return uint32_t((outputs - 1) * row.step + row.taps); };
  const uint32_t box[] = {uint32_t(channels_of), under(row.nr), under(row.mr), 1};
  if (const quern_status s = map_pixels(l, QUERN_F32, cuda_map_swizzle_none, l.args.src, size, g.src, box, &a.src))
    return s;
  return launch_kernel(l, row, uint32_t(blocks_of(g, row)), &a, uint32_t(j.blocks.word[0]));
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_depthwise_box, .about = "depthwise 3x3 to 7x7 on a GPU, boxes brought by the copy engine",
                .drives = kind::depthwise_box, .op = {QUERN_CONV}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_ISA, .pads = true, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict, .error_bound = chain_bound, .pack = pack_few, .launch = launch)
