// SPDX-License-Identifier: MIT
//
// Convolution, forward and transposed, and matrix product as implicit GEMM on a GPU: tiles of pixels by output
// channels, one launch a phase (geometry.h).
//
//   block = group, tile of pixels, tile of channels
//     for 64 bytes of (tap, c)
//       pixels and weights into shared memory, stages ahead
//       row's kernel                                               sums in registers, then the epilogue
#include "cuda/conv_implicit.h"

#include <math.h>

#include "cuda/drive.h"
#include "cuda/implicit.h"
#include "problem.h"
#include "weights.h"

namespace quern::implicit_driver {
namespace {

constexpr int64_t most_launches = 64;
constexpr int64_t most_counted_taps = 16;  // a bit of a word each, and 15 more before a step ends

// Elements in 16 bytes, and in a step.
int64_t chunk_of(const kernel& row) { return 16 / type_bytes(row.type); }
int64_t step_of(const kernel& row) { return 4 * chunk_of(row); }

// [group][phase][k / nr][tap and c][nr], as in weights.h; of 8 bits pairs of (tap, c) lie side by side, and begin with
// each phase.
struct panels_of {
  const geometry& g;
  const kernel& row;
  int64_t pair = type_bytes(row.type) == 1 ? 2 : 1;
  weight_panels plain = {g, row.nr, chunk_of(row) / pair};

  int64_t in_pairs(int64_t elements) const { return up(elements, pair) * pair; }
  // Elements before a phase, whose predecessors have `before` taps together, and before a panel of it.
  int64_t phase(int64_t group, int64_t before, int64_t index) const {
    const auto rows = [&](int64_t taps, int64_t phases) { return in_pairs(taps * g.c) + 2 * (pair - 1) * phases; };
    return (group * rows(plain.taps, g.phases()) + rows(before, index)) * plain.columns();
  }
  int64_t panel(int64_t index, int64_t taps) const { return index * row.nr * in_pairs(taps * g.c); }
  int64_t size() const { return phase(g.groups, 0, 0); }
};

// From the first element that any tap reads to the last, whether on the image or not.
double reach(const geometry& g) {
  double sum = 0;
  for (int i = 0; i < 3; ++i)
    sum += (double(g.in[i]) + double(g.filter[i]) * double(g.dilation[i]) + double(g.pad[i]) +
            double(g.stride[i]) * double(g.out[i])) *
           std::max(1.0, double(g.src[2 + i]));
  return sum + double(g.c * g.groups) * double(g.src[1]);
}

}  // namespace

refusal refuse(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  if (g.src_block != 1) return {QUERN_REASON_LAYOUT, "src.layout", p.src.layout, 0};
  if (g.dst_block != 1) return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, 0};
  if (p.epilogue.residual && g.residual_block != 1)
    return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, 0};
  if (g.phases() > most_launches) return {QUERN_REASON_SHAPE, "product of window.stride", g.phases(), most_launches};
  if (row.vector > 1) {
    if (g.c * g.groups > 1 && g.src[1] != 1) return {QUERN_REASON_LAYOUT, "src.stride[1]", g.src[1], 1};
    if (g.c % row.vector != 0)
      return {QUERN_REASON_SHAPE,
              row.vector == 16  ? "src.size[1] / groups modulo 16"
              : row.vector == 8 ? "src.size[1] / groups modulo 8"
                                : "src.size[1] / groups modulo 4",
              g.c % row.vector, 0};
    if (row.index == index_scheme::increments && g.c < step_of(row))
      return {QUERN_REASON_SHAPE, "src.size[1] / groups", g.c, step_of(row)};
  }
  if (row.index == index_scheme::increments) {
    for (int i = 0; i < 3; ++i)
      if (g.filter[i] > most_counted_taps) return g.refuse(window_filter, i, g.filter[i], most_counted_taps);
  }
  if (row.index == index_scheme::table && g.filter_size() > implicit_taps)
    return {QUERN_REASON_SHAPE, "product of window.filter", g.filter_size(), implicit_taps};
  if (const refusal r = refuse_many(reach(g), "elements of src")) return r;
  const double pixels = double(g.n) * double(g.out[0]) * double(g.out[1]) * double(g.out[2]);
  const double weights = double(g.taps()) * double(g.c) * double(g.groups) * double(g.k + row.nr);
  const double blocks = (pixels / row.mr + double(g.phases())) * double(g.groups) * (double(g.k) / row.nr + 1);
  return refuse_many(std::max({pixels, weights, blocks, double(g.groups) * double(g.k)}), "pixels, weights or tiles");
}

namespace {

// Tiles of all groups in a phase, of n images.
int64_t tiles(const geometry& g, const kernel& row, const phase& ph) {
  return up(g.n * ph.outputs(), row.mr) * up(g.k, row.nr) * g.groups;
}

}  // namespace

blocking choose_blocks(const full_problem& p, const kernel& row, const machine&, uint32_t) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  b.packed_bytes = uint64_t(panels_of{g, row}.size() * type_bytes(row.type));
  b.workers = 1;
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking&, const machine& m) {
  const geometry& g = geometry_of(p);
  // A multiprocessor's clocks for a tile: 16 elements of (tap, c), and what comes before and after.  On tensor cores
  // smaller tiles, of which several run at once, are no slower; each number split by itself costs more than they gain.
  const bool tensor = row.kind == kind::tensor, halves = row.type != QUERN_F32;
  const double area = double(row.mr) * row.nr;
  const double lanes = tensor ? gpu_tf32_lanes(m.gpu) * (halves ? 4.0 / double(type_bytes(row.type)) : 0.98 / 3)
                              : gpu_flops_a_ns(m.gpu) * 500 / (double(m.gpu.multiprocessors) * m.gpu.clock_mhz);
  const double single = !tensor  ? 1.65
                        : halves ? 28.0 / double(type_bytes(row.type))
                                 : 1.75;                     // elements that are loaded one by one
  const double shallow = !halves && g.groups > 1 ? 1.5 : 1;  // tiles of few elements and outputs each
  const double slower = shallow * (row.vector == 1 ? single : 1) * (row.index == index_scheme::division ? 1.05 : 1) *
                        (halves             ? area < 128 * 64    ? 1.9
                                              : area < 128 * 128 ? 1.4
                                                                 : 1.28
                         : tensor           ? area < 128 * 128 ? 1 : 1.08
                         : area < 128 * 64  ? 1.15
                         : area < 128 * 128 ? 1.07
                                            : 1);
  const double around = !halves ? (tensor ? 86 : 24) : type_bytes(row.type) == 2 ? 250 : 900;
  double ns = 0, flops = 0;
  for (int64_t f = 0; f < g.phases(); ++f) {
    const phase ph = phase_of(g, f);
    if (ph.outputs() == 0) continue;
    const double count = double(tiles(g, row, ph)), depth = double(up(ph.taps() * g.c, step_of(row)) * step_of(row));
    const double waves = ceil(count / m.gpu.multiprocessors);
    // Few warps on a multiprocessor wait for each other's loads.
    const double warps = std::min(waves * row.threads / 32, tensor ? 8.0 : 16.0);
    const double clocks = waves * area * (depth * slower / 0.78 * (1 + 2 / warps) + around) / lanes + 3000;
    ns += 2000 + 1000 * clocks / m.gpu.clock_mhz;
    flops += 2 * count * area * depth;
  }
  return {std::max(ns, 2000 + tensor_bytes(g, p.src.type, p.dst.type) / (double(m.gpu.bandwidth) * 0.8e-9)), flops};
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const panels_of t = {g, j.row};
  const auto as = [&](auto element) {
    using T = decltype(element);
    if (t.pair == 1)
      return pack_panels(t.plain, first, count, static_cast<const T*>(weights), reinterpret_cast<T*>(payload));
    pack_weights(g, first, count, static_cast<const T*>(weights), [&](const weight_run<T>& w) {
      const int64_t index = w.k / j.row.nr, column = w.k % j.row.nr, taps = w.ph.taps(), last = taps * g.c - 1;
      const int64_t width = t.plain.width(index), end = w.k == g.k - 1 ? width : column;
      T* const panel = reinterpret_cast<T*>(payload) + t.phase(w.group, w.before, w.f) + t.panel(index, taps);
      for (int64_t c = w.begin; c < w.end; ++c) {
        const int64_t row = w.tap * g.c + c;
        const auto place = [&](int64_t i, T x) {
          panel[row / 2 * 2 * width + 2 * i + row % 2] = x;
          if (row == last && row % 2 == 0) panel[row * width + 2 * i + 1] = 0;
        };
        place(column, w[c]);
        for (int64_t i = column + 1; i < end; ++i) place(i, 0);
      }
    });
  };
  switch (type_bytes(j.row.type)) {
    case 1: return as(uint8_t{});
    case 2: return as(uint16_t{});
    default: return as(float{});
  }
}

namespace {

implicit_axis axis_of(const axis& a) {
  return {int32_t(a.taps), int32_t(a.in_begin), int32_t(a.in_step), int32_t(a.in_size), int32_t(a.tap_step)};
}

}  // namespace

quern_status launch(const job& j, const launching& l) {
  const geometry& g = geometry_of(j.problem);
  const panels_of panels = {g, j.row};
  const kernel& row = j.row;
  implicit_table t = {};
  implicit_conv& a = t.problem;
  a.c = int32_t(std::max<int64_t>(g.c, 1));
  a.channel_tiles = int32_t(up(g.k, row.nr));
  std::copy_n(g.src, 5, a.src_stride);
  a.src_channel = int32_t(g.src[1]);
  a.src = l.args.src;
  const int64_t chunk = chunk_of(row);
  a.src_vector = in_chunks(a.src, g.src, chunk, row.type) && g.c % chunk == 0;
  a.weights_group = int32_t(panels.phase(1, 0, 0) / panels.pair);
  int64_t before = 0;
  for (int64_t f = 0; f < g.phases(); before += phase_of(g, f).taps(), ++f) {
    const phase ph = phase_of(g, f);
    if (ph.outputs() == 0) continue;
    const axis* axes[] = {&ph.d, &ph.h, &ph.w};
    int64_t step[3];
    for (int i = 0; i < 3; ++i) a.axis[i] = axis_of(*axes[i]), step[i] = axes[i]->tap_step * g.src[2 + i];
    a.next_tap[2] = int32_t(step[2] - g.c * g.src[1]);
    a.next_tap[1] = int32_t(step[1] - ph.w.taps * step[2]);
    a.next_tap[0] = int32_t(step[0] - ph.h.taps * step[1]);
    a.out = output_of(j, g, ph, l.args, 4);
    a.pixel_tiles = int32_t(up(a.out.pixels, row.mr));
    a.depth = int32_t(ph.taps() * g.c), a.steps = int32_t(up(a.depth, step_of(row)));
    a.weights = l.packed + panels.phase(0, before, f) * type_bytes(row.type);
    a.weights_panel = int32_t(panels.panel(1, ph.taps()) / panels.pair);
    if (row.index == index_scheme::table)
      for (int64_t i = 0; i < ph.taps(); ++i) {
        const int64_t s = i % ph.w.taps, r = i / ph.w.taps % ph.h.taps, d = i / ph.w.taps / ph.h.taps;
        t.tap[i] = {int32_t(d * step[0] + r * step[1] + s * step[2]), int32_t(d * ph.d.tap_step),
                    int32_t(r * ph.h.tap_step), int32_t(s * ph.w.tap_step)};
      }
    const uint32_t blocks = uint32_t(int64_t{a.pixel_tiles} * a.channel_tiles * g.groups);
    if (const quern_status s = launch_kernel(l, row, blocks, &t)) return s;
  }
  return QUERN_OK;
}

}  // namespace quern::implicit_driver

namespace d = quern::implicit_driver;

QUERN_ALGORITHM(conv_implicit, .about = "implicit GEMM on a GPU: any layout, window and groups",
                .drives = kind::implicit_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED, QUERN_GEMM},
                .accuracy = QUERN_ACCURACY_F32, .repeat = QUERN_REPEAT_ISA, .pads = true, .refuse = d::refuse,
                .choose_blocks = d::choose_blocks, .predict = d::predict, .error_bound = quern::chain_bound,
                .pack = d::pack, .launch = d::launch)
