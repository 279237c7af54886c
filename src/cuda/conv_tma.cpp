// SPDX-License-Identifier: MIT
//
// Convolution, forward and transposed, and matrix product as implicit GEMM on capability 9.0: the copy engine finds
// the pixels of a window itself, tensor cores multiply; one launch a phase (geometry.h).  An image that the engine
// cannot read, channels first or strided, is first copied into the workspace, channels last.
//
//   multiprocessor: tile of pixels by channels, and the next one
//     for taps r s, for 128 bytes of input channels
//       engine: pixels and weights into shared memory, stages ahead
//       row's kernel                                               sums in registers, then the epilogue
#include <math.h>

#include "cuda/drive.h"
#include "cuda/pixels_last.h"
#include "cuda/tma_f32.h"
#include "problem.h"
#include "weights.h"

namespace quern {
namespace {

constexpr int64_t most_launches = 64;
constexpr int64_t most_counted = int64_t{1} << 30;  // of anything that 32 bits hold
constexpr int64_t chunk = 32;                       // channels in 128 bytes

// The engine's limits (cuTensorMapEncodeIm2col): where windows begin and end beside the image, as far as a tap
// reaches, and the distance of windows.
constexpr int64_t most_beside = 127, most_reach = 255, most_step = 8;

struct tma_panels {
  const geometry& g;
  int64_t nr;
  int64_t chunks = up(g.c, chunk), panels = up(g.k, nr), taps = g.taps();

  int64_t block() const { return 2 * nr * chunk; }  // floats of a stage: high and low
  // The block of chunk 0 at tap 0 of this phase, whose predecessors have `before` taps together.
  int64_t phase(int64_t group, int64_t before) const { return (group * taps + before) * chunks * panels * block(); }
  int64_t panel(int64_t index, int64_t phase_taps) const { return index * phase_taps * chunks * block(); }
  int64_t size() const { return phase(g.groups, 0); }
};

refusal refuse_axis(const axis& a, const char* const (&field)[4]) {
  const int64_t first = a.in_begin, last = first + (a.out_count - 1) * a.in_step - (a.in_size - 1);
  if (first < -most_beside) return {QUERN_REASON_SHAPE, field[0], -first, most_beside};
  if (first > most_beside) return {QUERN_REASON_SHAPE, field[0], first, most_beside};
  if (last < -most_beside || last > most_beside) return {QUERN_REASON_SHAPE, field[1], last, most_beside};
  if (a.in_step > most_step) return {QUERN_REASON_SHAPE, field[2], a.in_step, most_step};
  if ((a.taps - 1) * a.tap_step > most_reach)
    return {QUERN_REASON_SHAPE, field[3], (a.taps - 1) * a.tap_step, most_reach};
  return {};
}

// Whether the engine can read src where it lies.
bool readable(const geometry& g) {
  const auto in_rows = [](int64_t size, int64_t stride) {
    return size == 1 || (stride % 4 == 0 && stride > 0 && stride < int64_t{1} << 38);
  };
  return g.src_block == 1 && g.c * g.groups % 4 == 0 && g.src[1] == 1 && in_rows(g.n, g.src[0]) &&
         in_rows(g.in[1], g.src[3]) && in_rows(g.in[2], g.src[4]);
}

// Channels of a pixel in the copy where it cannot.
int64_t padded(const geometry& g) { return up(g.c * g.groups, 4) * 4; }
int64_t copied_bytes(const geometry& g) { return g.n * g.in[1] * g.in[2] * padded(g) * int64_t{sizeof(float)}; }

refusal refuse(const full_problem& p, const kernel& row) {
  static constexpr const char* h[] = {"window.pad_begin[1]", "inputs before or behind the last window along h",
                                      "window.stride[1]", "reach of the filter along h"};
  static constexpr const char* w[] = {"window.pad_begin[2]", "inputs before or behind the last window along w",
                                      "window.stride[2]", "reach of the filter along w"};
  if (p.src.type != QUERN_F32) return {QUERN_REASON_TYPE, "src.type", p.src.type, QUERN_F32};
  if (const refusal r = refuse_short_sums(p)) return r;
  const geometry& g = geometry_of(p);
  if (g.dst_block != 1) return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, 0};
  if (p.epilogue.residual && g.residual_block != 1)
    return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, 0};
  if (extent(p.src) == 0 || g.k == 0) return {QUERN_REASON_SHAPE, "elements of src or dst", 0, 1};
  // A chunk must not reach into the next group.
  if (g.groups > 1 && g.c % chunk != 0) return {QUERN_REASON_SHAPE, "src.size[1] / groups modulo 32", g.c % chunk, 0};
  if (g.phases() > most_launches) return {QUERN_REASON_SHAPE, "product of window.stride", g.phases(), most_launches};
  if (const refusal r = g.refuse_phases()) return r;
  for (int64_t f = 0; f < g.phases(); ++f) {
    const phase ph = phase_of(g, f);
    if (ph.outputs() == 0 || ph.taps() == 0) continue;
    if (g.in[0] != 1 || ph.d.out_count != 1 || ph.d.taps != 1 || ph.d.in_begin != 0)
      return {QUERN_REASON_SHAPE, "src.size[2] or window along d", std::max(g.in[0], g.filter[0]), 1};
    if (const refusal r = refuse_axis(ph.h, h)) return r;
    if (const refusal r = refuse_axis(ph.w, w)) return r;
  }
  const double pixels = double(g.n) * double(g.out[0]) * double(g.out[1]) * double(g.out[2]);
  const double blocks = double(g.taps()) * (double(g.c) / chunk + 1);
  const double tiles = (pixels / row.mr + double(g.phases())) * double(g.groups) * (double(g.k) / row.nr + 1);
  const double count = std::max({pixels, blocks, tiles, double(g.groups) * double(std::max(g.k, g.c)),
                                 double(g.n) * double(g.in[1]) * double(g.in[2])});
  if (count > double(most_counted))
    return {QUERN_REASON_SHAPE, "pixels, taps or tiles", int64_t(std::min(count, 1e18)), most_counted};
  return {};
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine&, uint32_t) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  b.packed_bytes = uint64_t(tma_panels{g, row.nr}.size()) * sizeof(float);
  if (!readable(g)) b.workspace_bytes = uint64_t(up(copied_bytes(g), QUERN_ALIGN) * QUERN_ALIGN);
  b.workers = 1;
  return b;
}

// Clocks of a multiprocessor: for a stage, twelve instructions a group or the bytes from L2, whichever is more, and
// what waits for them (measured).
cost predict(const full_problem& p, const kernel& row, const blocking&, const machine& m) {
  const geometry& g = geometry_of(p);
  const double groups = row.mr / 64.0, bytes = 128.0 * (row.mr + 2 * row.nr);
  const double waits = groups == 3 ? 1.27 : row.nr == 64 ? 1.34 : 1.19;
  const double stage = std::max(12 * groups * row.nr / 2, bytes / 40) * waits;
  // A copy writes and reads what is hardly larger than src.
  double ns = readable(g) ? 0 : 2500 + 2 * double(copied_bytes(g)) / (double(m.gpu.bandwidth) * 0.6e-9), flops = 0;
  for (int64_t f = 0; f < g.phases(); ++f) {
    const phase ph = phase_of(g, f);
    const double tiles = double(up(g.n * ph.outputs(), row.mr) * up(g.k, row.nr) * g.groups);
    const double blocks = double(ph.taps() * up(g.c, chunk));
    const double clocks = ceil(tiles / m.gpu.multiprocessors) * (blocks * stage + 0.35 * row.mr * row.nr) + 4500;
    ns += 1200 + 1000 * clocks / m.gpu.clock_mhz;
    flops += 2 * tiles * row.mr * row.nr * blocks * chunk;
  }
  return {std::max(ns, 2000 + tensor_bytes(g) / (double(m.gpu.bandwidth) * 0.8e-9)), flops};
}

// A product leaves out 2^-22 at most and its parts are rounded by as much; each of the unit's twelve additions to a
// part of a sum truncates it by 2^-23, and parts are added in f32.
double error_bound(const full_problem& p) {
  const geometry& g = geometry_of(p);
  const double n = (3 * 4 + 12 * 2 + double(g.filter_size()) * double(up(g.c, chunk)) + 1) * 0x1p-24;
  return n < 0.5 ? n / (1 - n) : std::numeric_limits<double>::infinity();
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const tma_panels t = {g, j.row.nr};
  pack_weights(
      g, first, count, static_cast<const float*>(weights),
      [&](int64_t group, int64_t k, int64_t, const phase& ph, int64_t before, int64_t tap, int64_t c, float w) {
        float* const chunks = reinterpret_cast<float*>(payload) + t.phase(group, before) +
                              t.panel(k / t.nr, ph.taps()) + tap * t.chunks * t.block();
        const auto put = [&](int64_t row, int64_t channel, float x) {
          float* const to = chunks + channel / chunk * t.block() +
                            tma_swizzled(int32_t(row), tma_f32_column(int32_t(channel % chunk)));
          const tf32_pair two = split_tf32(x);
          *to = two.high, to[t.nr * chunk] = to_tf32(two.low);
        };
        put(k % t.nr, c, w);
        if (c != g.c - 1) return;
        for (int64_t i = g.c; i < t.chunks * chunk; ++i) put(k % t.nr, i, 0);
        if (k != g.k - 1) return;
        for (int64_t row = k % t.nr + 1; row < t.nr; ++row)
          for (int64_t i = 0; i < t.chunks * chunk; ++i) put(row, i, 0);
      });
}

tma_axis axis_of(const axis& a) {
  return {int32_t(a.in_begin), int32_t(a.in_step), int32_t(a.taps), int32_t(a.tap_step)};
}

// A box as wide and high as the first pixels of all windows: the engine turns to the next row where it ends.
quern_status map_pixels(const launching& l, const kernel& row, const geometry& g, const phase& ph, tensor_map& map) {
  const auto last = [](const axis& a) { return int(a.in_begin + (a.out_count - 1) * a.in_step - (a.in_size - 1)); };
  const uint64_t size[] = {uint64_t(g.c * g.groups), uint64_t(g.in[2]), uint64_t(g.in[1]), uint64_t(g.n)};
  const auto bytes = [](int64_t count, int64_t apart) { return uint64_t(count > 1 ? 4 * apart : 16); };
  const bool there = readable(g);
  const int64_t pixel = padded(g), line = g.in[2] * pixel, image = g.in[1] * line;
  const uint64_t stride[] = {bytes(g.in[2], there ? g.src[4] : pixel), bytes(g.in[1], there ? g.src[3] : line),
                             bytes(g.n, there ? g.src[0] : image)};
  const int lower[] = {int(ph.w.in_begin), int(ph.h.in_begin)}, upper[] = {last(ph.w), last(ph.h)};
  const uint32_t step[] = {1, uint32_t(ph.w.in_step), uint32_t(ph.h.in_step), 1};
  return encode_im2col(
      l, &map,
      {cuda_map_f32, there ? l.args.src : l.workspace, size, stride, lower, upper, chunk, uint32_t(row.mr), step});
}

quern_status copy_pixels(const launching& l, const geometry& g) {
  pixels_last c = {{int32_t(g.in[1]), int32_t(g.in[2])},
                   g.n * g.in[1] * g.in[2],
                   int32_t(g.c * g.groups),
                   int32_t(padded(g)),
                   int32_t(up(g.c * g.groups, pixels_last_tile)),
                   {},
                   g.src_block,
                   static_cast<const float*>(l.args.src),
                   reinterpret_cast<float*>(l.workspace)};
  std::copy_n(g.src, 5, c.stride);
  const int64_t blocks = up(c.pixels, pixels_last_tile) * c.channel_tiles;
  return launch_prepare(l, uint32_t(blocks), pixels_last_threads, &c);
}

quern_status launch(const job& j, const launching& l) {
  const geometry& g = geometry_of(j.problem);
  if (!readable(g))
    if (const quern_status s = copy_pixels(l, g)) return s;
  const kernel& row = j.row;
  const tma_panels t = {g, row.nr};
  tma_conv a = {};
  a.c = int32_t(g.c), a.chunks = int32_t(t.chunks);
  a.channel_tiles = int32_t(t.panels);
  a.weights_group = t.phase(1, 0) * int64_t{sizeof(float)};
  int64_t before = 0;
  for (int64_t f = 0; f < g.phases(); before += phase_of(g, f).taps(), ++f) {
    const phase ph = phase_of(g, f);
    if (ph.outputs() == 0) continue;
    a.h = axis_of(ph.h), a.w = axis_of(ph.w);
    a.blocks = int32_t(ph.taps() * t.chunks);
    a.weights = l.packed + t.phase(0, before) * int64_t{sizeof(float)};
    a.out = output_of(j, g, ph, l.args);
    a.pixel_tiles = int32_t(up(a.out.pixels, row.mr));
    a.tiles = a.pixel_tiles * a.channel_tiles * int32_t(g.groups);
    if (a.blocks > 0)
      if (const quern_status s = map_pixels(l, row, g, ph, a.src)) return s;
    const uint32_t multiprocessors = l.device.gpu.multiprocessors;
    const uint32_t blocks = std::min(uint32_t(a.tiles), multiprocessors ? multiprocessors : UINT32_MAX);
    if (const quern_status s = launch_kernel(l, row, blocks, &a)) return s;
  }
  return QUERN_OK;
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_tma, .about = "implicit GEMM on tensor cores, fed by the copy engine", .drives = kind::tma_f32,
                .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED, QUERN_GEMM}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_BATCH, .pads = true, .splits = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .error_bound = error_bound, .pack = pack,
                .launch = launch, .prepare = "pixels_last_sm90a")
