// SPDX-License-Identifier: MIT
//
// Convolution of few input channels a group, depthwise among them, forward and transposed, on a GPU: each thread has
// some outputs of some pixels to itself (cuda/few_channels.h); one launch a phase (geometry.h).
#include "cuda/few_channels.h"
#include "cuda/few_drive.h"

namespace quern {
namespace {

// Whether the row has room for a line, and the filter reaches over as much from each pixel of it.
refusal refuse_line(const geometry& g, const axis& x, const kernel& row) {
  const int64_t most = row.nr, pixels = std::max(x.out_count, x.in_size), last = most - x.in_begin;
  if (x.tap_step != 1) return g.refuse(window_dilation, 2, x.tap_step, 1);
  if (pixels > most) return {QUERN_REASON_SHAPE, "pixels of a line of src or dst", pixels, most};
  if (-x.in_begin < most - 1) return g.refuse(window_pad_begin, 2, -x.in_begin, most - 1);
  if (x.taps < last) return g.refuse(window_filter, 2, x.taps, last);
  return {};
}

refusal refuse(const full_problem& p, const kernel& row) {
  // It loads an input for each output that meets it: what more channels share, other kernels share.
  constexpr int64_t most_channels = 32;
  const int64_t channels = geometry_of(p).c;
  if (channels > most_channels) return {QUERN_REASON_SHAPE, "src.size[1] / groups", channels, most_channels};
  if (const refusal r = refuse_few(p, row); r || row.group != 1) return r;
  const geometry& g = geometry_of(p);
  if (channels != 1) return {QUERN_REASON_SHAPE, "src.size[1] / groups", channels, 1};
  if (g.src[1] != 1) return {QUERN_REASON_LAYOUT, "src.stride[1]", g.src[1], 1};
  for (int64_t f = 0; f < g.phases(); ++f)
    if (const phase ph = phase_of(g, f); ph.outputs() > 0)
      if (const refusal r = refuse_line(g, ph.w, row)) return r;
  return {};
}

// Threads, and clocks of a multiprocessor for all of them: instructions of a warp, four of which issue at once, where a
// few warps hide what each waits for; all of it takes so many times as long as that (measured).
struct work {
  int64_t threads;
  double clocks;
};

work work_of(const geometry& g, const phase& ph, const kernel& row, const machine& m) {
  const double step = double(step_of(ph.w)), nr = row.nr, lines = row.mr, c = double(g.c);
  const double runs = double(up(of_class(ph.h), row.mr) * classes_of(ph.h));
  const double strips = double(up(of_class(ph.w), row.nr) * classes_of(ph.w));
  const double panels = double(up(outputs_of(g), few_lanes));
  const double threads = double(g.n) * runs * strips * (row.group == 1 ? panels * few_lanes : double(outputs_of(g)));
  // Those that meet the image: taps beside it are skipped.
  const double taps_x = std::min(double(ph.w.taps), double(ph.w.in_size) + nr - 1);
  const double taps_y = std::min(double(ph.h.taps), double(ph.h.in_size));
  const double rows = (lines - 1) * double(step_of(ph.h)) + taps_y, taps = taps_x * taps_y * c;
  double instructions = lines * nr * 10 + 230;
  if (row.group == 1) {  // inputs of a line, and weights at each distance
    instructions += (taps_y + lines - 1) * (4 * nr + lines * (nr * nr + 4 * (2 * nr - 1)));
    return {int64_t(threads), std::max(threads / 32 / (4.0 * m.gpu.multiprocessors), 1.0) * 1.6 * instructions + 2000};
  }
  // A load, its address and whether it is there; several taps of a line share some.
  const double columns = !row.step || c > 1 ? nr * taps_x * c : (nr - 1) * step + taps_x;
  instructions += lines * taps * (nr + 2) + rows * columns * (row.step && c == 1 ? 6.4 : 5);
  // Where a scheduler has few warps, one by itself takes as long as five rounds do (depthwise of batch 1 in f16, 3x3 to
  // 13x13, within a sixth on an H200).
  const double rounds = ceil(threads / 32) / (4.0 * m.gpu.multiprocessors);
  const double values = row.type == QUERN_E4M3 ? 2 : 1;  // made of bits, several instructions each (H100)
  return {int64_t(threads), 2.5 * values * instructions * std::hypot(5, 1.25 * rounds) + 2000};
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine&, uint32_t) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  b.packed_bytes = uint64_t(few_panels{g}.size() * type_bytes(row.type));
  b.workers = 1;
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking&, const machine& m) {
  const geometry& g = geometry_of(p);
  double ns = 0;
  for (int64_t f = 0; f < g.phases(); ++f) {
    const phase ph = phase_of(g, f);
    if (ph.outputs() > 0) ns += 1500 + 1000 * work_of(g, ph, row, m).clocks / m.gpu.clock_mhz;
  }
  return {std::max(ns, 2000 + tensor_bytes(g, row.type, row.type) / (double(m.gpu.bandwidth) * 0.8e-9)),
          2 * p.products};
}

quern_status launch(const job& j, const launching& l) {
  const geometry& g = geometry_of(j.problem);
  const kernel& row = j.row;
  const few_panels panels = {g};
  few_conv a = {};
  a.lines = row.mr;
  a.outputs = divisor_of(g.k), a.images = divisor_of(g.n), a.inputs = int32_t(g.c);
  a.across = g.src[1] != 1;
  a.src = l.args.src;
  a.src_image = g.src[0], a.src_group = g.src[1] * g.c, a.src_channel = g.src[1];
  int64_t before = 0;
  for (int64_t f = 0; f < g.phases(); before += phase_of(g, f).taps(), ++f) {
    const phase ph = phase_of(g, f);
    if (ph.outputs() == 0) continue;
    a.x = few_axis_of(ph.w, row.nr), a.y = few_axis_of(ph.h, a.lines);
    a.weights = l.packed + panels.phase(before) * type_bytes(row.type);
    take_pixels(a, j, g, ph, l.args, 1);
    order_threads(a, a, g, outputs_of(g));
    // Of lines whole warps have the same weights.
    if (row.group == 1)
      a.threads = a.threads / a.channels.by * int32_t(up(a.channels.by, int64_t{few_lanes}) * few_lanes);
    if (const quern_status s = launch_kernel(l, row, uint32_t(up(a.threads, few_threads)), &a)) return s;
  }
  return QUERN_OK;
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_few_channels, .about = "few input channels a group on a GPU, any filter: outputs in registers",
                .drives = kind::few_channels, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_ISA, .pads = true, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict, .error_bound = chain_bound, .pack = pack_few, .launch = launch)
