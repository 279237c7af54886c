// SPDX-License-Identifier: MIT
//
// Convolution of s8, depthwise and of few input channels a group, on a GPU: each thread has some outputs of four
// channels to itself (cuda/quads.h).
#include "cuda/few_drive.h"
#include "cuda/quads.h"

namespace quern {
namespace {

// [32 quads of outputs][step: four channels of a tap, or four taps of a line][quad][output][4]
struct quad_panels {
  const geometry& g;
  const kernel& row;
  bool depthwise = g.c == 1;
  int64_t inputs = depthwise ? 0 : g.c / 4, run = quads_run(row.step);
  int64_t line = depthwise ? up(g.filter[2], 4) : up(g.filter[2], run) * run * inputs;
  int64_t steps = g.filter[1] * line, of_panel = steps * few_lanes * 16;

  int64_t bytes() const { return up(outputs_of(g) / 4, few_lanes) * of_panel; }
  // The four of a step.
  int64_t at(int64_t output, int64_t step) const {
    const int64_t quad = output / 4;
    return quad / few_lanes * of_panel + (step * few_lanes + quad % few_lanes) * 16 + output % 4 * 4;
  }
  int64_t place(int64_t output, int64_t tap, int64_t c) const {
    const int64_t r = tap / g.filter[2], s = tap % g.filter[2];
    return depthwise ? at(output, r * line + s / 4) + s % 4 : at(output, r * line + s * inputs + c / 4) + c % 4;
  }
};

refusal refuse(const full_problem& p, const kernel& row) {
  // It loads a pixel for each output that meets it: what more channels share, other kernels share.
  constexpr int64_t most_channels = 32;
  const geometry& g = geometry_of(p);
  if (g.c == 1) {
    if (g.k != 1) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", g.k, 1};
    if (g.groups % 4 != 0) return {QUERN_REASON_SHAPE, "src.size[1] modulo 4", g.groups % 4, 0};
  } else {
    if (g.c > most_channels) return {QUERN_REASON_SHAPE, "src.size[1] / groups", g.c, most_channels};
    if (g.c == 0 || g.c % 4 != 0) return {QUERN_REASON_SHAPE, "src.size[1] / groups modulo 4", g.c % 4, 0};
    if (g.k % 4 != 0) return {QUERN_REASON_SHAPE, "dst.size[1] / groups modulo 4", g.k % 4, 0};
  }
  if (const refusal r = refuse_few(p, row)) return r;
  if (g.src[1] != 1) return {QUERN_REASON_LAYOUT, "src.stride[1]", g.src[1], 1};
  for (const int i : {0, 3, 4})
    if (g.src[i] % 4 != 0) return {QUERN_REASON_LAYOUT, "src.stride modulo 4", g.src[i] % 4, 0};
  return refuse_many(double(quad_panels{g, row}.bytes()), "bytes of weights");
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine&, uint32_t) {
  blocking b = {};
  b.packed_bytes = uint64_t(quad_panels{geometry_of(p), row}.bytes());
  b.workers = 1;
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking&, const machine& m) {
  const geometry& g = geometry_of(p);
  const phase ph = phase_of(g, 0);
  const double lines = row.mr, columns = row.nr, taps = double(ph.w.taps);
  const double threads = double(g.n * outputs_of(g) / 4) * double(up(of_class(ph.h), row.mr) * classes_of(ph.h)) *
                         double(up(of_class(ph.w), row.nr) * classes_of(ph.w));
  // Of a line of inputs: loads with their addresses, what turns them round, and products with those lines of outputs
  // that it meets, with their weights; and what an output takes at its end.
  const double rows = (lines - 1) * double(step_of(ph.h)) + double(ph.h.taps), met = lines * double(ph.h.taps) / rows;
  const double of_line = met * (13 + 4 * columns);
  double instructions = 0;
  if (g.c == 1) {
    const double words = row.step ? columns + 3 : 4 * columns,
                 turns = 8 * ceil(words / 4) + (row.step ? 3 * columns : 0);
    instructions = ceil(taps / 4) * (7 * words + turns + of_line);
  } else {
    const double run = quads_run(row.step), words = row.step ? columns - 1 + run : columns;
    instructions = double(g.c) / 4 * ceil(taps / run) * (7 * words + run * of_line);
  }
  const double all = std::min(rows, double(ph.h.in_size)) * instructions + lines * columns * 50 + 150;
  // Where a scheduler has few warps, one by itself takes as long as three rounds do (H100, within a fifth).
  const double rounds = ceil(threads / 32) / (4.0 * m.gpu.multiprocessors);
  const double compute = 1000 * (1.7 * all * std::hypot(3.2, rounds) + 500) / std::max(1u, m.gpu.clock_mhz);
  const double memory = tensor_bytes(g, row.type, p.dst.type) / (double(m.gpu.bandwidth) * 0.8e-9);
  return {1500 + std::max(compute, memory), 2 * p.products};
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const quad_panels panels = {g, j.row};
  const auto clear = [&](int64_t output) {
    for (int64_t i = 0; i < panels.steps; ++i) memset(payload + panels.at(output, i), 0, 4);
  };
  for (int64_t i = first; i < first + count; ++i) clear(i);
  // Behind the last one the panel is read by no thread that stores.
  const int64_t all = outputs_of(g);
  if (first + count == all)
    for (int64_t i = all; i % (4 * few_lanes) != 0; ++i) clear(i);
  pack_weights(g, first, count, static_cast<const char*>(weights), [&](const weight_run<char>& w) {
    for (int64_t c = w.begin; c < w.end; ++c) payload[panels.place(w.group * g.k + w.k, w.tap, c)] = w[c];
  });
}

quern_status launch(const job& j, const launching& l) {
  const geometry& g = geometry_of(j.problem);
  const quad_panels panels = {g, j.row};
  const phase ph = phase_of(g, 0);
  quads_conv a = {};
  a.lines = j.row.mr;
  a.x = few_axis_of(ph.w, j.row.nr), a.y = few_axis_of(ph.h, a.lines);
  take_pixels(a, j, g, ph, l.args, 4);
  a.out.vector = a.out.type == QUERN_S8 && in_chunks(a.out.dst, a.out.dst_stride, 4, QUERN_S8);
  order_threads(a, a, g, outputs_of(g) / 4);
  a.outputs = divisor_of(std::max<int64_t>(1, g.k / 4)), a.inputs = int32_t(panels.inputs);
  a.line_steps = int32_t(panels.line), a.steps = int32_t(panels.steps);
  a.src = static_cast<const s8*>(l.args.src), a.src_image = g.src[0];
  a.weights = reinterpret_cast<const uint32_t*>(l.packed);
  return launch_kernel(l, j.row, uint32_t(up(a.threads, few_threads)), &a);
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_quads, .about = "s8 of few input channels a group on a GPU: four products an instruction",
                .drives = kind::quads, .op = {QUERN_CONV}, .accuracy = QUERN_ACCURACY_F32, .repeat = QUERN_REPEAT_ISA,
                .refuse = refuse, .choose_blocks = choose_blocks, .predict = predict, .error_bound = chain_bound,
                .pack = pack, .launch = launch)
