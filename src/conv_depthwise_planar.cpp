// SPDX-License-Identifier: MIT
//
// Depthwise convolution, forward and transposed, any number of outputs a channel, where the pixels of a line lie side
// by side: NCHW, and blocks of fewer channels than a vector has.
//
//   item = image, phase, band of lines, blocks of channels         one task of the parallel_for
//     for class of lines
//       for output plane
//         for block of channels
//           row.depthwise_planar                                   all lines of the band
#include "depthwise_classes.h"
#include "driver.h"
#include "weights.h"

namespace quern {
namespace {

enum word { bands, together, parts };

refusal refuse(const quern_problem& p, const kernel& row) {
  if (p.src.type != QUERN_F32) return {QUERN_REASON_TYPE, "src.type", p.src.type, QUERN_F32};
  if (const int64_t c = p.src.size[1] / p.groups; c != 1) return {QUERN_REASON_SHAPE, "src.size[1] / groups", c, 1};
  const geometry g = geometry_of(p);
  if (g.src_block >= row.vector || row.vector % g.src_block)
    return {QUERN_REASON_LAYOUT, "src.layout", p.src.layout, QUERN_NCHW};
  if (g.dst_block != g.src_block) return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, p.src.layout};
  if (p.epilogue.residual && g.residual_block != g.src_block)
    return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, p.src.layout};
  if (g.in[2] > 1 && g.src[4] != g.src_block) return {QUERN_REASON_LAYOUT, "src.stride[4]", g.src[4], g.src_block};
  if (g.k > 1 && g.src_block > 1) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", g.k, 1};
  if (g.filter[0] > most_planes) return {QUERN_REASON_SHAPE, "window.filter[0]", g.filter[0], most_planes};
  if (row.taps) {
    static constexpr const char* filter[] = {"window.filter[0]", "window.filter[1]", "window.filter[2]"};
    static constexpr const char* stride[] = {"window.stride[0]", "window.stride[1]", "window.stride[2]"};
    for (int i = 0; i < 3; ++i) {
      const int64_t taps = i ? row.taps : 1;
      if (g.filter[i] != taps) return {QUERN_REASON_SHAPE, filter[i], g.filter[i], taps};
    }
    if (g.dilation[2] != 1) return {QUERN_REASON_SHAPE, "window.dilation[2]", g.dilation[2], 1};
    for (int i = 1; i < 3; ++i) {
      const int64_t step = g.stride[i] / std::gcd(g.stride[i], g.dilation[i]);
      if (step != row.step) return {QUERN_REASON_SHAPE, stride[i], g.stride[i], row.step * g.stride[i] / step};
      if (g.transposed && g.stride[i] != 1) return {QUERN_REASON_SHAPE, "op", p.op, QUERN_CONV};
    }
  }
  return g.refuse_phases();
}

// Loads are rarely aligned, one costs a cycle; multiply-adds half of one.
double compute_cycles(const geometry& g, const kernel& row) {
  const double block = double(g.src_block), mr = row.mr;
  const double phases = g.transposed ? double(g.stride[1] * g.stride[2]) : 1;
  const double high = g.transposed ? double(up(g.out[1], g.stride[1]) * g.stride[1]) : double(g.out[1]);
  const double vectors = phases * double(up(up(g.out[2], g.transposed ? g.stride[2] : 1) * g.src_block, row.vector)) *
                         double(up(int64_t(high / (g.transposed ? double(g.stride[1]) : 1)), row.mr)) * mr;
  const double planes = double(up(g.groups * g.k, g.src_block)) * double(g.n * g.out[0]);
  const double taps = double(g.filter[0] * g.filter[1] * g.filter[2]) / phases;
  const double step = double(g.stride[1]);
  const double lines = row.taps ? ((mr - 1) * step + row.taps) / mr : double(g.filter[1]) / (g.transposed ? step : 1);
  double loads = lines * double(g.filter[2]) * (g.stride[2] == 1 || g.transposed ? 1 : g.stride[2] == 2 ? 2 : 20);
  if (row.taps > 3) loads += taps / 2;
  if (!row.taps) loads += taps * 0.7;
  const double store = g.dst[4] == g.src_block && !g.transposed ? 3 : 12 * row.vector / block;
  return planes * (vectors * (std::max(taps / 2, loads) + store) + double(g.filter[1] * g.filter[2]) + 60);
}

blocking choose_blocks(const quern_problem& p, const kernel& row, const machine&, uint32_t threads) {
  const geometry g = geometry_of(p);
  const int64_t blocks = std::max<int64_t>(1, up(g.groups * g.k, g.src_block));
  blocking b = {};
  b.packed_bytes = uint64_t(g.taps() * blocks * g.src_block) * sizeof(float);
  b.cycles = compute_cycles(g, row);
  b.workers = useful_workers(b.cycles / clock_ghz, threads);
  const int64_t wanted = b.workers > 1 ? 4 * b.workers : 1;
  const int64_t fixed = std::max<int64_t>(1, g.n * g.phases());
  b.word[together] = up(blocks, std::min(blocks, up(wanted, fixed)));
  b.word[parts] = up(blocks, b.word[together]);
  // Few channels: bands of whole tiles.
  const int64_t tiles = std::max<int64_t>(1, up(phase_of(g, 0).h.out_count, row.mr));
  b.word[bands] = std::min(tiles, up(wanted, fixed * b.word[parts]));
  return b;
}

cost predict(const quern_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry g = geometry_of(p);
  const double bytes =
      4.0 * double(g.n * g.groups) * double(g.in[0] * g.in[1] * g.in[2] + 2 * g.k * g.out[0] * g.out[1] * g.out[2]);
  return overlapped(row, b, bytes / (bytes > double(m.l2) ? 8 : 24));
}

// [phase][block][tap][channel of the block], the last one filled up with zeros.
void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry g = geometry_of(j.problem);
  const int64_t block = g.src_block, channels = g.groups * g.k, whole = up(channels, block) * block;
  float* to = reinterpret_cast<float*>(payload);
  pack_weights(g, first, count, static_cast<const float*>(weights),
               [&](int64_t group, int64_t k, int64_t, const phase& ph, int64_t before, int64_t tap, int64_t, float w) {
                 const int64_t channel = group * g.k + k, lane = channel % block;
                 float* row = to + before * whole + (channel / block * ph.taps() + tap) * block;
                 row[lane] = w;
                 if (channel == channels - 1) std::fill(row + lane + 1, row + block, 0.0f);
               });
}

void run(const job& j, const execution& e) {
  const geometry g = geometry_of(j.problem);
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t* word = j.blocks.word;
  const int64_t block = g.src_block, channels = g.groups * g.k, blocks = up(channels, block);
  const int64_t items = g.n * g.phases() * word[bands] * word[parts];
  for_each_item(j, e, items, [&](int64_t item, char*) {
    const int64_t p = item % word[parts], band = item / word[parts] % word[bands];
    const int64_t rest = item / word[parts] / word[bands], f = rest % g.phases(), n = rest / g.phases();
    const phase ph = phase_of(g, f);
    gemm_tap planes[most_planes];
    depthwise_planar_f32 call = {};
    call.plane = planes;
    call.block = block;
    call.x.count = ph.w.out_count, call.x.taps = ph.w.taps, call.y.taps = ph.h.taps;
    call.x.step = ph.w.in_step, call.apart = ph.w.tap_step;
    call.x.begin = -ph.w.in_begin, call.x.end = ph.w.in_size - ph.w.in_begin;
    call.out.ldc = ph.w.out_step * g.dst[4], call.out.ldr = ph.w.out_step * g.residual[4];
    call.out.epilogue = &epilogue;
    const float* weights = reinterpret_cast<const float*>(e.packed) + taps_before(g, f) * blocks * block;
    const int64_t classes = axis_class::count_of(ph.h), last = std::min(blocks, (p + 1) * word[together]);
    for (int64_t c = 0; c < classes; ++c) {
      const axis_class y(ph.h, c, classes);
      const range within = part(up(y.count, j.row.mr), band, word[bands]);
      const int64_t line = within.begin * j.row.mr;
      if (within.count() == 0) continue;
      call.y.count = std::min(within.end * j.row.mr, y.count) - line;
      call.y.step = y.step;
      call.y.begin = y.begin - line * y.step, call.y.end = y.end - line * y.step;
      call.y.src = y.apart * g.src[3];
      call.y.dst = ph.h.out_step * classes * g.dst[3], call.y.residual = ph.h.out_step * classes * g.residual[3];
      call.origin = (y.base + line * y.step * y.apart) * g.src[3] + ph.w.in_begin * block;
      for (int64_t d = 0; d < ph.d.out_count; ++d) {
        call.planes = planes_of(g, ph, d, planes);
        const auto place = [&](const int64_t* stride) {
          return n * stride[0] + (ph.d.out_begin + d * ph.d.out_step) * stride[2] +
                 (ph.h.out_begin + (y.first + line * classes) * ph.h.out_step) * stride[3] + ph.w.out_begin * stride[4];
        };
        const float* const src = static_cast<const float*>(e.args.src) + n * g.src[0];
        float* const dst = static_cast<float*>(e.args.dst) + place(g.dst);
        const float* const residual =
            epilogue.residual ? static_cast<const float*>(e.args.residual) + place(g.residual) : nullptr;
        for (int64_t index = p * word[together]; index < last; ++index) {
          const int64_t channel = index * block;
          call.n = std::min(block, channels - channel);
          call.weights = weights + index * ph.taps() * block;
          call.src = src + g.src_channel(channel / g.k);
          call.out.c = dst + g.dst_channel(channel);
          call.out.channel = channel;
          if (residual) call.out.residual = residual + g.residual_channel(channel);
          j.row.depthwise_planar(call);
        }
      }
    }
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_depthwise_planar, .about = "one filter a channel, pixels across the vector; NCHW and small blocks",
                .drives = kind::depthwise_planar_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED},
                .accuracy = QUERN_ACCURACY_F32, .repeat = QUERN_REPEAT_ISA, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .error_bound = chain_bound, .pack = pack,
                .run = run)
