// SPDX-License-Identifier: MIT
//
// Depthwise convolution, forward and transposed, for NHWC: every channel its own filter.
//
//   item = image, phase, band of rows, block of channels          one task of the parallel_for
//     for line of the band
//       for strip of mr pixels
//         row.depthwise                                           all channels of the block
#include "driver.h"
#include "geometry.h"
#include "weights.h"

namespace quern {
namespace {

enum word { bands, block_channels, blocks };

constexpr int64_t most_rows = 64;  // of a filter: their offsets are kept on the stack

refusal refuse(const quern_problem& p, const kernel& row) {
  if (p.src.type != QUERN_F32) return {QUERN_REASON_TYPE, "src.type", p.src.type, QUERN_F32};
  if (const refusal why = refuse_blocked(p)) return why;
  const geometry g = geometry_of(p);
  if (g.c != 1) return {QUERN_REASON_SHAPE, "src.size[1] / groups", g.c, 1};
  if (g.k != 1) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", g.k, 1};
  if (g.groups > 1 && g.src[1] != 1) return {QUERN_REASON_LAYOUT, "src.stride[1]", g.src[1], 1};
  if (g.groups > 1 && g.dst[1] != 1) return {QUERN_REASON_LAYOUT, "dst.stride[1]", g.dst[1], 1};
  if (p.epilogue.residual && g.groups > 1 && g.residual[1] != 1)
    return {QUERN_REASON_LAYOUT, "residual.stride[1]", g.residual[1], 1};
  if (g.filter[0] * g.filter[1] > most_rows)
    return {QUERN_REASON_SHAPE, "window.filter[1]", g.filter[0] * g.filter[1], most_rows};
  if (row.taps) {
    if (g.transposed) return {QUERN_REASON_SHAPE, "op", p.op, QUERN_CONV};
    if (g.filter[2] != row.taps) return {QUERN_REASON_SHAPE, "window.filter[2]", g.filter[2], row.taps};
    if (g.stride[2] != row.step) return {QUERN_REASON_SHAPE, "window.stride[2]", g.stride[2], row.step};
    if (g.dilation[2] != 1) return {QUERN_REASON_SHAPE, "window.dilation[2]", g.dilation[2], 1};
  }
  return g.refuse_phases();
}

// A multiply-add of a vector costs half a cycle; a load as much, of pixels once for all taps that share it,
// where the kernel knows its filter.
double compute_cycles(const geometry& g, const kernel& row) {
  const double pixels = double(g.n * g.out[0] * g.out[1] * g.out[2]), vectors = double(up(g.groups, row.vector));
  const double rows = double(g.filter[0] * g.filter[1]) / double(g.transposed ? g.stride[0] * g.stride[1] : 1);
  const double taps = double(g.filter[2]) / double(g.transposed ? g.stride[2] : 1);
  const double m = row.mr, loads = row.taps ? ((m - 1) * row.step + 2 * taps) / m : taps + taps / m;
  return pixels * vectors * (rows * std::max(taps, loads) / 2 + 1.5) + pixels / m * 30;
}

blocking choose_blocks(const quern_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry g = geometry_of(p);
  blocking b = {};
  b.packed_bytes = uint64_t(g.taps() * g.groups) * sizeof(float);
  b.cycles = compute_cycles(g, row);
  b.workers = useful_workers(b.cycles / clock_ghz, threads);
  // As many channels as keep the lines under the filter in L1 until the next line comes.
  const int64_t lines = std::max<int64_t>(1, g.filter[1] * g.in[2]) * row.vector * 4;
  const int64_t vectors = std::max<int64_t>(1, up(g.groups, row.vector));
  const int64_t wide = row.nr / row.vector;
  int64_t block = std::clamp<int64_t>(int64_t(m.l1) / 2 / lines / wide * wide, wide, vectors);
  block = up(vectors, std::max<int64_t>(1, up(vectors, block)));
  // Lines that do not stay in L2 either are read once, all of their channels together.
  if (4 * g.in[1] * g.in[2] * g.groups > int64_t(m.l2)) block = vectors;
  const int64_t rows = std::max<int64_t>(1, phase_of(g, 0).h.out_count);
  const int64_t fixed = std::max<int64_t>(1, g.n * g.phases() * up(vectors, block));
  const int64_t wanted = b.workers > 1 ? 4 * b.workers : 1;
  b.word[block_channels] = block * row.vector;
  b.word[blocks] = up(vectors, block);
  b.word[bands] = std::min(rows, up(wanted, fixed));
  return b;
}

cost predict(const quern_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry g = geometry_of(p);
  const double bytes =
      4.0 * double(g.n * g.groups) * double(g.in[0] * g.in[1] * g.in[2] + 2 * g.out[0] * g.out[1] * g.out[2]);
  const double traffic = bytes / (bytes > double(m.l2) ? 8 : 24);
  return overlapped(row, b, traffic);
}

// [phase][tap][channel]
void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry g = geometry_of(j.problem);
  float* to = reinterpret_cast<float*>(payload);
  pack_weights(g, first, count, static_cast<const float*>(weights),
               [&](int64_t group, int64_t, int64_t, const phase&, int64_t before, int64_t tap, int64_t, float w) {
                 to[(before + tap) * g.groups + group] = w;
               });
}

void run(const job& j, const execution& e) {
  const geometry g = geometry_of(j.problem);
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t* word = j.blocks.word;
  const int64_t items = g.n * g.phases() * word[bands] * word[blocks];
  for_each_item(j, e, items, [&](int64_t item, char*) {
    const int64_t block = item % word[blocks], band = item / word[blocks] % word[bands];
    const int64_t f = item / word[blocks] / word[bands] % g.phases(),
                  n = item / word[blocks] / word[bands] / g.phases();
    const phase ph = phase_of(g, f);
    const int64_t before = taps_before(g, f);
    const int64_t channel = block * word[block_channels];
    const cut strips(ph.w.out_count, j.row.mr);
    const range lines = part(ph.h.out_count, band, word[bands]);
    gemm_tap rows[most_rows];
    depthwise_f32 call = {};
    call.n = std::min(word[block_channels], g.groups - channel);
    call.taps = ph.w.taps;
    call.row = rows;
    call.step = ph.w.in_step, call.dilation = ph.w.tap_step;
    call.src = static_cast<const float*>(e.args.src) + n * g.src[0] + channel;
    call.src_pixel = g.src[4];
    call.channels = g.groups;
    call.weights = reinterpret_cast<const float*>(e.packed) + before * g.groups + channel;
    call.out.ldc = ph.w.out_step * g.dst[4];
    call.out.epilogue = &epilogue;
    call.out.channel = channel;
    call.out.ldr = ph.w.out_step * g.residual[4];
    for (int64_t d = 0; d < ph.d.out_count; ++d)
      for (int64_t y = lines.begin; y < lines.end; ++y) {
        const range td = ph.d.taps_at(d), th = ph.h.taps_at(y);
        call.rows = td.count() * th.count();
        for (int64_t i = 0; i < int64_t(call.rows); ++i) {
          const int64_t t = td.begin + i / th.count(), r = th.begin + i % th.count();
          rows[i].a = (ph.d.in_begin + d * ph.d.in_step + t * ph.d.tap_step) * g.src[2] +
                      (ph.h.in_begin + y * ph.h.in_step + r * ph.h.tap_step) * g.src[3];
          rows[i].b = (t * ph.h.taps + r) * ph.w.taps * g.groups;
        }
        const auto place = [&](const int64_t* stride) {
          return n * stride[0] + channel + (ph.d.out_begin + d * ph.d.out_step) * stride[2] +
                 (ph.h.out_begin + y * ph.h.out_step) * stride[3] + ph.w.out_begin * stride[4];
        };
        for (int64_t i = 0; i < strips.tiles; ++i) {
          const int64_t x = strips.begin(i), input = ph.w.in_begin + x * ph.w.in_step;
          call.m = strips.rows(i);
          call.begin = -input, call.end = g.in[2] - input;
          call.origin = input * g.src[4];
          call.out.c = static_cast<float*>(e.args.dst) + place(g.dst) + x * int64_t(call.out.ldc);
          if (epilogue.residual)
            call.out.residual =
                static_cast<const float*>(e.args.residual) + place(g.residual) + x * int64_t(call.out.ldr);
          j.row.depthwise(call);
        }
      }
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_depthwise, .about = "one filter a channel, NHWC, pixels and channels in registers",
                .drives = kind::depthwise_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED},
                .accuracy = QUERN_ACCURACY_F32, .repeat = QUERN_REPEAT_ISA, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .error_bound = chain_bound, .pack = pack,
                .run = run)
