// SPDX-License-Identifier: MIT
//
// Convolution of few input channels a group, depthwise among them, forward and transposed, on a GPU: each thread has
// some outputs of some pixels to itself (cuda/few_channels.h); one launch a phase (geometry.h).
#include <math.h>

#include "cuda/drive.h"
#include "cuda/few_channels.h"
#include "depthwise_classes.h"
#include "problem.h"
#include "weights.h"

namespace quern {
namespace {

constexpr int64_t most_launches = 64;
constexpr int64_t most_counted = int64_t{1} << 30;  // of anything that 32 bits hold

int64_t outputs_of(const geometry& g) { return g.k * g.groups; }

// [phase][32 outputs][tap][input channel][32]
struct few_panels {
  const geometry& g;
  int64_t panels = up(outputs_of(g), few_lanes), taps = g.taps();

  int64_t phase(int64_t before) const { return before * g.c * panels * few_lanes; }
  int64_t at(int64_t output, int64_t phase_taps, int64_t tap, int64_t c) const {
    return ((output / few_lanes * phase_taps + tap) * g.c + c) * few_lanes + output % few_lanes;
  }
  int64_t size() const { return phase(taps); }
};

int64_t classes_of(const axis& a) { return axis_class::count_of(a); }
int64_t step_of(const axis& a) { return axis_class(a, 0, classes_of(a)).step; }
int64_t of_class(const axis& a) { return up(a.out_count, classes_of(a)); }

// From the first element of an image to the last that any tap reads or would read.
double reach(const geometry& g, const int64_t* stride, const int64_t* size) {
  double sum = 0;
  for (int i = 1; i < 3; ++i)
    sum += (double(size[i]) + double(g.filter[i]) * double(g.dilation[i]) + double(g.pad[i])) *
           std::max(1.0, double(stride[2 + i]));
  return sum;
}

refusal refuse_axis(const axis& a, const kernel& row, const char* const (&field)[2]) {
  if (row.taps && a.taps != row.taps) return {QUERN_REASON_SHAPE, field[0], a.taps, row.taps};
  if (row.step && step_of(a) != row.step) return {QUERN_REASON_SHAPE, field[1], step_of(a), row.step};
  return {};
}

refusal refuse(const full_problem& p, const kernel& row) {
  static constexpr const char* h[] = {"window.filter[1]", "window.stride[1] over dilation"};
  static constexpr const char* w[] = {"window.filter[2]", "window.stride[2] over dilation"};
  const geometry& g = geometry_of(p);
  if (g.c != row.group) return {QUERN_REASON_SHAPE, "src.size[1] / groups", g.c, row.group};
  if (g.src_block != 1) return {QUERN_REASON_LAYOUT, "src.layout", p.src.layout, 0};
  if (g.dst_block != 1) return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, 0};
  if (p.epilogue.residual && g.residual_block != 1)
    return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, 0};
  if (extent(p.src) == 0 || g.k == 0) return {QUERN_REASON_SHAPE, "elements of src or dst", 0, 1};
  if (g.phases() > most_launches) return {QUERN_REASON_SHAPE, "product of window.stride", g.phases(), most_launches};
  if (const refusal r = g.refuse_phases()) return r;
  if (g.in[0] != 1 || g.out[0] != 1 || g.filter[0] != 1 || g.pad[0] != 0)
    return {QUERN_REASON_SHAPE, "src.size[2] or window along d", std::max(g.in[0], g.filter[0]), 1};
  if (row.vector > 1) {
    if (g.k != 1) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", g.k, 1};
    if (g.groups % row.vector != 0) return {QUERN_REASON_SHAPE, "groups modulo 2", g.groups % row.vector, 0};
  }
  const int64_t together = row.src_align / type_bytes(row.type);
  if (together > 1 && !in_chunks(nullptr, g.src, together, row.type))
    return {QUERN_REASON_LAYOUT,
            together == 4 ? "src.stride[1], or others modulo 4" : "src.stride[1], or others modulo 2", g.src[1], 1};
  double beside = 0;  // as far as a strip reaches that is not full
  for (int64_t f = 0; f < g.phases(); ++f) {
    const phase ph = phase_of(g, f);
    if (ph.outputs() == 0) continue;
    if (const refusal r = refuse_axis(ph.h, row, h)) return r;
    if (const refusal r = refuse_axis(ph.w, row, w)) return r;
    for (const axis* a : {&ph.h, &ph.w})
      beside = std::max(beside, double(row.nr) * double(step_of(*a)) * double(std::max<int64_t>(a->tap_step, 1)));
  }
  const double outputs = double(outputs_of(g));
  const double count = std::max({beside * std::max({1.0, double(g.src[3]), double(g.src[4])}),
                                 double(g.n) * double(g.out[1] + row.mr) * double(g.out[2] + row.nr) * outputs,
                                 double(g.taps() * g.c) * (outputs + few_lanes), reach(g, g.src, g.in),
                                 reach(g, g.dst, g.out), p.epilogue.residual ? reach(g, g.residual, g.out) : 0.0});
  if (count > double(most_counted))
    return {QUERN_REASON_SHAPE, "outputs, weights or elements of an image", int64_t(std::min(count, 1e18)),
            most_counted};
  return {};
}

// Threads for runs of so many lines, and clocks of a multiprocessor for all of them: instructions of a warp, four of
// which issue at once, where a few warps hide what each waits for; all of it takes 2.5 times as long as that
// (measured).
struct work {
  int64_t threads;
  double clocks;
};

work work_of(const geometry& g, const phase& ph, const kernel& row, int64_t lines, const machine& m) {
  const double step = double(step_of(ph.w)), runs = double(up(of_class(ph.h), lines) * classes_of(ph.h));
  const double strips = double(up(of_class(ph.w), row.nr) * classes_of(ph.w));
  const double threads = double(g.n) * runs * strips * double(up(outputs_of(g), row.vector));
  const double taps_x = double(ph.w.taps), taps_y = double(ph.h.taps);
  const double outputs = double(row.nr * row.vector), c = double(g.c), products = taps_x * taps_y * c * outputs;
  const double columns = row.step ? (row.nr - 1) * step + taps_x : row.nr * taps_x;
  const double rows = (double(lines) - 1) * double(step_of(ph.h)) + taps_y;
  // A load, its address and whether it is there.
  const double loads = row.taps   ? rows * columns * 4 * c + taps_x * taps_y * c * row.vector * 2
                       : row.step ? rows * columns * 4 * 1.6 + double(lines) * taps_x * taps_y * 2
                                  : rows * columns * 5 + taps_x * taps_y * 2;
  const double instructions = 2.5 * (double(lines) * (products + outputs * 10 + 30) + loads + 200);
  const double schedulers = 4.0 * m.gpu.multiprocessors, warps = ceil(threads / 32);
  // No scheduler has less than one warp to run, and few warps wait.
  const double rounds = std::max(warps / schedulers, 1.0), waiting = 1 + 1 / std::min(rounds, 4.0);
  return {int64_t(threads), rounds * instructions * waiting + 2000};
}

// Of a walk: lines that a thread takes, long walks where there are threads enough.
int64_t lines_of(const geometry& g, const phase& ph, const kernel& row, const machine& m) {
  if (row.mr) return row.mr;
  const int64_t all = of_class(ph.h);
  int64_t best = all;
  for (int64_t parts = 2; parts <= 16 && parts <= all; ++parts) {
    const int64_t lines = up(all, parts);
    if (work_of(g, ph, row, lines, m).clocks < work_of(g, ph, row, best, m).clocks) best = lines;
  }
  return best;
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  b.packed_bytes = uint64_t(few_panels{g}.size() * type_bytes(row.type));
  b.workers = 1;
  // Phases are of one size, or nearly so.
  for (int64_t f = 0; f < g.phases() && b.word[0] == 0; ++f)
    if (const phase ph = phase_of(g, f); ph.outputs() > 0) b.word[0] = lines_of(g, ph, row, m);
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry& g = geometry_of(p);
  double ns = 0;
  for (int64_t f = 0; f < g.phases(); ++f) {
    const phase ph = phase_of(g, f);
    if (ph.outputs() > 0) ns += 1500 + 1000 * work_of(g, ph, row, b.word[0], m).clocks / m.gpu.clock_mhz;
  }
  return {std::max(ns, 2000 + tensor_bytes(g, row.type, row.type) / (double(m.gpu.bandwidth) * 0.8e-9)),
          2 * p.products};
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const few_panels panels = {g};
  const auto as = [&](auto element) {
    using T = decltype(element);
    pack_weights(g, first, count, static_cast<const T*>(weights),
                 [&](int64_t group, int64_t k, int64_t, const phase& ph, int64_t before, int64_t tap, int64_t c, T w) {
                   T* const to = reinterpret_cast<T*>(payload) + panels.phase(before);
                   const int64_t output = group * g.k + k, all = outputs_of(g);
                   to[panels.at(output, ph.taps(), tap, c)] = w;
                   if (output != all - 1) return;
                   for (int64_t i = all; i < panels.panels * few_lanes; ++i) to[panels.at(i, ph.taps(), tap, c)] = T{};
                 });
  };
  if (j.row.type == QUERN_F32) return as(float{});
  as(uint16_t{});
}

few_axis axis_of(const axis& a, int64_t part) {
  const axis_class c(a, 0, classes_of(a));
  return {int32_t(a.out_count), int32_t(c.classes), int32_t(c.step), int32_t(c.apart),          int32_t(a.in_begin),
          int32_t(a.in_step),   int32_t(a.in_size), int32_t(a.taps), int32_t(up(c.count, part))};
}

quern_status launch(const job& j, const launching& l) {
  const geometry& g = geometry_of(j.problem);
  const kernel& row = j.row;
  const few_panels panels = {g};
  few_conv a = {};
  a.lines = int32_t(j.blocks.word[0]);
  a.outputs = int32_t(g.k), a.channels = int32_t(g.c);
  a.chunks = int32_t(outputs_of(g) / row.vector);
  a.across = g.src[1] != 1;
  a.src = l.args.src;
  a.src_image = g.src[0], a.src_group = g.src[1] * g.c, a.src_channel = g.src[1];
  int64_t before = 0;
  for (int64_t f = 0; f < g.phases(); before += phase_of(g, f).taps(), ++f) {
    const phase ph = phase_of(g, f);
    if (ph.outputs() == 0) continue;
    a.x = axis_of(ph.w, row.nr), a.y = axis_of(ph.h, a.lines);
    a.weights = l.packed + panels.phase(before) * type_bytes(row.type);
    a.out = output_of(j, g, ph, l.args, row.vector);
    const auto aligned = [&](const void* p, const int64_t* stride) {
      return row.vector == 1 || in_chunks(p, stride, row.vector, row.type);
    };
    a.out.vector =
        aligned(a.out.dst, a.out.dst_stride) && (!a.out.residual || aligned(a.out.residual, a.out.residual_stride));
    for (int i = 0; i < 2; ++i) {
      a.src_pixel[i] = int32_t(g.src[3 + i]);
      a.dst_pixel[i] = int32_t(a.out.dst_stride[3 + i]);
      a.residual_pixel[i] = int32_t(a.out.residual_stride[3 + i]);
    }
    a.threads = int32_t(g.n) * a.y.classes * a.y.parts * a.x.classes * a.x.parts * a.chunks;
    if (const quern_status s = launch_kernel(l, row, uint32_t(up(a.threads, few_threads)), &a)) return s;
  }
  return QUERN_OK;
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_few_channels, .about = "few input channels a group on a GPU: weights or outputs in registers",
                .drives = kind::few_channels, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_ISA, .pads = true, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict, .error_bound = chain_bound, .pack = pack, .launch = launch)
