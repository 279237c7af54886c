// SPDX-License-Identifier: MIT
//
// Direct convolution, forward and transposed, to a few output channels: the sums run across the vector, where the
// outputs would fill little of it.  Heads of networks: an image, a mask, a depth from many channels.
//
//   item = image, group, band of rows                          one task of the parallel_for
//     for phase                                                their pixels stay in L2
//       for some outputs, evenly cut                           all, but for more than a kernel takes
//         for box of pixels with the same taps in the band     strips.h; taps on padding are left out
//           for line of the box
//             for up to mr pixels
//               row.dot                                        reads the image where it lies
#include <cmath>

#include "driver.h"
#include "strips.h"
#include "weights.h"

namespace quern {
namespace {

enum word { bands, fetches_ahead };

constexpr int64_t lanes = 16, most_outputs = 16;
constexpr int64_t stack_taps = 64;  // lists of taps that are longer lie in the workspace

int64_t padded(int64_t channels) { return up(channels, lanes) * lanes; }

refusal refuse(const full_problem& p, const kernel&) {
  const geometry& g = geometry_of(p);
  if (g.src_block == 1 && p.src.size[1] > 1 && g.src[1] != 1)
    return {QUERN_REASON_LAYOUT, "src.stride[1]", g.src[1], 1};
  if (g.src_block != 1 && g.src_block != lanes) return {QUERN_REASON_LAYOUT, "src.layout", p.src.layout, QUERN_NHWC};
  if (g.src_block != 1 && g.groups > 1 && g.c % lanes)
    return {QUERN_REASON_SHAPE, "src.size[1] / groups", g.c, padded(g.c)};
  if (g.k > most_outputs) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", g.k, most_outputs};
  return g.refuse_phases();
}

// Packed weights: [group][phase][k][tap][c], channels filled up with zeros.
struct weight_lines {
  const geometry& g;
  int64_t channels = padded(g.c);

  int64_t phase(int64_t group, int64_t taps_before_it) const {
    return (group * g.taps() + taps_before_it) * g.k * channels;
  }
  int64_t size() const { return phase(g.groups, 0); }
};

double compute_cycles(const geometry& g, const kernel& row, const machine& on) {
  if (g.k == 0) return 0;
  const cut chunks(g.k, row.nr);
  const double outputs = double(g.k) / double(chunks.tiles), blocks = double(up(g.c, lanes));
  const double width = double(lanes) / row.vector, m = dot_rows(row.tile, int(chunks.rows(0)));
  double cycles = 0;
  // Of many phases the first along each axis stand for all.
  const int64_t phases = std::min<int64_t>(g.phases(), 8);
  for (int64_t f = 0; f < phases; ++f) {
    const phase ph = phase_of(g, f);
    const double pixels = double(ph.outputs());
    // Sixteen channels of a tap: a load for each pixel and each output of the tile, of which all meet.
    const double steps = blocks * double(ph.taps()), sums = m * outputs * width, loads = (m + outputs) * width;
    const double tile =
        pace(row, on) * std::max(sums, loads) / 2 * steps + row_cycles(m, double(ph.h.taps * ph.d.taps * g.c));
    // What is added up, goes through the epilogue and is spread.
    const double calls = pixels / double(std::clamp<int64_t>(ph.w.out_count, 1, row.mr));
    const double rest = pixels / m * (20 + 1.5 * sums) + calls * (60 + 40 * outputs) + pixels * outputs * 1.5;
    cycles += double(chunks.tiles) * (pixels / m * tile + clock_cycles(on) * rest);
  }
  return cycles * double(g.phases()) / double(phases) * double(g.n) * double(g.groups);
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  b.packed_bytes = uint64_t(weight_lines{g}.size()) * sizeof(float);
  if (g.filter_size() > stack_taps)
    b.workspace_bytes = uint64_t(up(g.filter_size() * int64_t(sizeof(gemm_tap)), QUERN_ALIGN) * QUERN_ALIGN);
  b.cycles = compute_cycles(g, row, m);
  b.workers = useful_workers(m, b.cycles, threads);
  // What several phases or chunks of outputs read is to be near.
  const int64_t rows = std::max<int64_t>(1, phase_of(g, 0).h.out_count), fixed = std::max<int64_t>(1, g.n * g.groups);
  const double row_bytes = std::max(1.0, 4.0 * double(g.c) * double(g.in[2]) * double(g.transposed ? 1 : g.stride[1]));
  int64_t most = rows;
  if (g.phases() > 1 || g.k > row.nr) most = std::clamp<int64_t>(int64_t(double(m.l2) / 2 / row_bytes), 1, rows);
  b.word[bands] = up(rows, most);
  b.word[fetches_ahead] = 4 * g.c * g.in[0] * g.in[1] * g.in[2] > int64_t(m.l2) / 2;
  if (b.workers > 1) b.word[bands] = std::min(rows, std::max(b.word[bands], up(4 * int64_t(b.workers), fixed)));
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const operand_bytes o(geometry_of(p), b.packed_bytes);
  return overlapped(row, m, b, o.cycles(m, o.image, false));
}

// Of chains of as many fused multiply-adds as a lane has, and what adds up the lanes.
double error_bound(const full_problem& p) {
  const geometry& g = geometry_of(p);
  const double n = (double(g.filter_size()) * double(up(g.c, lanes)) + 5) * 0x1p-24;
  return n < 0.5 ? n / (1 - n) : std::numeric_limits<double>::infinity();
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const weight_lines lines = {g};
  pack_weights(g, first, count, static_cast<const float*>(weights), [&](const weight_run<float>& w) {
    float* const to = reinterpret_cast<float*>(payload) + lines.phase(w.group, w.before) +
                      (w.k * w.ph.taps() + w.tap) * lines.channels;
    for (int64_t c = w.begin; c < w.end; ++c) to[c] = w[c];
    if (w.end == g.c) std::fill(to + g.c, to + lines.channels, 0.0f);
  });
}

// What the loops of one item share.
struct block {
  const job& j;
  const geometry& g;
  const phase& ph;
  const float* src;  // of this image and group
  float* dst;        // of this image
  const float* residual;
  gemm_tap* taps;
};

// Every line of a box.
void sweep(const block& b, range d, range y, range x, dot_f32 call) {
  const geometry& g = b.g;
  const phase& ph = b.ph;
  const range td = ph.d.taps_at(d.begin), th = ph.h.taps_at(y.begin), tw = ph.w.taps_at(x.begin);
  const int64_t channels = padded(g.c);
  call.taps = 0;
  if (g.c > 0)
    for (int64_t t = td.begin; t < td.end; ++t)
      for (int64_t v = th.begin; v < th.end; ++v)
        for (int64_t u = tw.begin; u < tw.end; ++u)
          b.taps[call.taps++] = {(t - td.begin) * ph.d.tap_step * g.src[2] + (v - th.begin) * ph.h.tap_step * g.src[3] +
                                     (u - tw.begin) * ph.w.tap_step * g.src[4],
                                 ((t * ph.h.taps + v) * ph.w.taps + u) * channels};
  const strips s = strips_of(g, ph, {1, d, y, x}, b.j.row.mr, b.residual != nullptr);
  call.lda = s.line.src, call.out.ldc = s.line.dst, call.out.ldr = s.line.residual;
  const auto place = [&](const int64_t* stride) {
    return (ph.d.out_begin + d.begin * ph.d.out_step) * stride[2] +
           (ph.h.out_begin + y.begin * ph.h.out_step) * stride[3] +
           (ph.w.out_begin + x.begin * ph.w.out_step) * stride[4];
  };
  // Where the first pixel is, and in the image its first tap; taps count from there.
  const float* src = b.src;
  if (call.taps)
    src += (ph.d.in_begin + d.begin * ph.d.in_step + td.begin * ph.d.tap_step) * g.src[2] +
           (ph.h.in_begin + y.begin * ph.h.in_step + th.begin * ph.h.tap_step) * g.src[3] +
           (ph.w.in_begin + x.begin * ph.w.in_step + tw.begin * ph.w.tap_step) * g.src[4];
  float* const dst = b.dst + place(g.dst);
  const float* const residual = b.residual ? b.residual + place(g.residual) : nullptr;
  const cut runs(s.line.count, b.j.row.mr);
  for (int64_t u = 0; u < s.others[0].count; ++u)
    for (int64_t v = 0; v < s.others[1].count; ++v)
      for (int64_t w = 0; w < s.others[2].count; ++w) {
        const auto at = [&](int64_t side::*step, int64_t pixel) {
          return u * (s.others[0].*step) + v * (s.others[1].*step) + w * (s.others[2].*step) + pixel * (s.line.*step);
        };
        for (int64_t i = 0; i < runs.tiles; ++i) {
          const int64_t pixel = runs.begin(i);
          call.m = runs.rows(i);
          call.a = call.taps ? src + at(&side::src, pixel) : src;
          call.out.c = dst + at(&side::dst, pixel);
          if (residual) call.out.residual = residual + at(&side::residual, pixel);
          b.j.row.dot(call);
        }
      }
}

void run(const job& j, const execution& e) {
  const geometry& g = geometry_of(j.problem);
  const weight_lines lines = {g};
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t count = j.blocks.word[bands];
  const cut chunks(g.k, j.row.nr);
  for_each_item(j, e, g.n * g.groups * count, [&](int64_t item, char* workspace) {
    const int64_t band = digit(item, count), group = digit(item, g.groups), n = item;
    gemm_tap on_stack[stack_taps];
    size_t column[most_outputs], residual_column[most_outputs];
    for (int64_t k = 0; k < g.k; ++k) {
      column[k] = size_t(g.dst_channel(group * g.k + k));
      residual_column[k] = epilogue.residual ? size_t(g.residual_channel(group * g.k + k)) : 0;
    }
    int64_t before = 0;
    for (int64_t f = 0; f < g.phases(); ++f) {
      const phase ph = phase_of(g, f);
      const block b = {
          .j = j,
          .g = g,
          .ph = ph,
          .src = static_cast<const float*>(e.args.src) + n * g.src[0] + g.src_channel(group * g.c),
          .dst = static_cast<float*>(e.args.dst) + n * g.dst[0],
          .residual = epilogue.residual ? static_cast<const float*>(e.args.residual) + n * g.residual[0] : nullptr,
          .taps = g.filter_size() > stack_taps ? reinterpret_cast<gemm_tap*>(workspace) : on_stack};
      for (int64_t i = 0; i < chunks.tiles; ++i) {
        const int64_t first = chunks.begin(i);
        dot_f32 call = {};
        call.n = size_t(chunks.rows(i)), call.k = size_t(g.c);
        call.tap = b.taps;
        call.next = g.src_block == 1 ? lanes : g.src[1];
        call.fetches = j.blocks.word[fetches_ahead];
        call.ldb = size_t(ph.taps() * lines.channels);
        call.b = reinterpret_cast<const float*>(e.packed) + lines.phase(group, before) + first * int64_t(call.ldb);
        call.out.epilogue = &epilogue, call.out.channel = size_t(group * g.k + first);
        call.column = column + first, call.residual_column = residual_column + first;
        boxes(ph, part(ph.h.out_count, band, count), [&](range d, range y, range x) { sweep(b, d, y, x, call); });
      }
      before += ph.taps();
    }
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_dot, .about = "few outputs: channels across the vector, NHWC and blocks of 16",
                .drives = kind::dot_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_BATCH, .refuses_alike = true, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict, .least_cycles = least_by_pixels, .error_bound = error_bound, .pack = pack,
                .run = run)
