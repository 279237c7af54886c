// SPDX-License-Identifier: MIT
//
// Depthwise convolution, forward and transposed, any number of outputs a channel, where the pixels of a line lie side
// by side: NCHW, and blocks of fewer channels than a vector has.
//
//   item = image, phase, band of lines, blocks of channels         one task of the parallel_for
//     for class of lines
//       for output plane
//         row.depthwise_planar                                     block by block, each over all lines of the band
#include "depthwise_classes.h"
#include "driver.h"
#include "strips.h"
#include "weights.h"

namespace quern {
namespace {

enum word { bands, together, parts, streams, fetches };

refusal refuse(const full_problem& p, const kernel& row) {
  if (const int64_t c = p.src.size[1] / p.groups; c != 1) return {QUERN_REASON_SHAPE, "src.size[1] / groups", c, 1};
  const geometry& g = geometry_of(p);
  if (g.src_block >= row.vector || row.vector % g.src_block)
    return {QUERN_REASON_LAYOUT, "src.layout", p.src.layout, QUERN_NCHW};
  if (g.dst_block != g.src_block) return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, p.src.layout};
  if (p.epilogue.residual && g.residual_block != g.src_block)
    return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, p.src.layout};
  if (g.in[2] > 1 && g.src[4] != g.src_block) return {QUERN_REASON_LAYOUT, "src.stride[4]", g.src[4], g.src_block};
  if (g.k > 1 && g.src_block > 1) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", g.k, 1};
  if (g.filter[0] > most_planes) return g.refuse(window_filter, 0, g.filter[0], most_planes);
  if (row.taps) {
    for (int i = 0; i < 3; ++i) {
      const int64_t taps = i ? row.taps : 1;
      if (g.filter[i] != taps) return g.refuse(window_filter, i, g.filter[i], taps);
    }
    if (row.step != 1 && g.dilation[2] != 1) return g.refuse(window_dilation, 2, g.dilation[2], 1);
    for (int i = 1; i < 3; ++i) {
      const int64_t step = step_in_class(g, i);
      if (step != row.step) return g.refuse(window_stride, i, g.stride[i], row.step * g.stride[i] / step);
      if (g.transposed && g.stride[i] != 1) return {QUERN_REASON_SHAPE, "op", p.op, QUERN_CONV};
    }
  }
  return g.refuse_phases();
}

// A multiply-add of a vector costs half a cycle, a load one, as it is rarely aligned; a weight that is broadcast by
// the instruction that multiplies half of one.
double compute_cycles(const geometry& g, const kernel& row, const machine& on) {
  const double phases = g.transposed ? double(g.stride[1] * g.stride[2]) : 1, mr = row.mr;
  const int64_t wide = g.transposed ? up(g.out[2], g.stride[2]) : g.out[2],
                high = g.transposed ? up(g.out[1], g.stride[1]) : g.out[1];
  const int64_t lanes = wide * g.src_block, rest = lanes % row.vector;
  // Where a vector of half the width is as good for the end of a line, it takes less; where it is all of the line, more
  // on some cores of whole vectors (lines of 7, 3x3 and 5x5: 1.5 times what AVX2 takes, Granite Rapids).
  const bool half = row.vector == 16 && g.src_block == 1 && rest && rest <= 8;
  const double end = !half ? 0 : !slow_l3(on) || lanes > rest ? -0.4 : 1.2;
  const double vectors = (double(up(lanes, row.vector)) + end) * double(high) * phases;
  const double planes = double(up(g.groups * g.k, g.src_block)) * double(g.n * g.out[0]);
  const double width = double(g.filter[2]) / (g.transposed ? double(g.stride[2]) : 1);
  const double rows = double(g.filter[1]) / (g.transposed ? double(g.stride[1]) : 1) * share_inside(phase_of(g, 0).h);
  const double depth = double(g.filter[0]) / (g.transposed ? double(g.stride[0]) : 1), taps = depth * rows * width;
  const double step = g.transposed ? 1 : double(g.stride[1]);
  const double lines = depth * ((mr - 1) * step + rows) / mr;  // read for one
  double loads = 0;
  if (g.filter[0] == 1 && g.filter[1] == 1 && g.stride[2] == 1 && !row.taps) {
    loads = (fast_and_wide(row, on) ? 1.7 : 1) * width;  // a tile of one line shares its weights
  } else if (row.taps) {
    const double kept = std::clamp((row.vector == 16 ? 28 : 12) - mr, 0.0, taps);
    // Of vectors of eight with a step of two each tap has loads and a shuffle of its own (Zen 3).
    const double line = row.step == 1 ? width : row.vector == 8 ? 1 + 1.8 * width : 3 + 0.65 * width;
    loads = lines * line + (row.vector == 8 && row.step == 1 ? 0.65 : 0.5) * (taps - kept);
  } else if (g.stride[2] == 1 && g.filter[2] <= 3) {
    loads = taps * (1 + 1 / mr);  // one for each product, and the weights
  } else {
    const bool one = g.transposed || g.stride[2] == 1;
    loads = lines * width * (one ? 2 : g.stride[2] == 2 ? 10 : 4.0 * row.vector) + taps / 2;
  }
  // Where a tile begins and ends few sums are on their way, whose taps wait for each other: more than a core of two
  // whole vectors a clock finds other work for, forty products (7x7: 1.6 times what products and loads take, Granite
  // Rapids).
  double waits = 0;
  if (row.taps && row.step == 1 && row.vector == 16 && !in_halves(on) && slow_l3(on)) {
    const int64_t read = g.in[1] + (up(high, row.mr) - 1) * (g.filter[1] - 1);  // lines, by all tiles
    const double seen = 1 - 40 / (double(row.taps * row.taps) * mr);
    waits = 4 * seen * width * double(read) / double(std::max<int64_t>(high, 1));
  }
  // Masks of vectors of eight come from memory, too, and lines shorter than these have one for each load (Zen 3).
  const double once = row.vector != 8 ? 1.5 : lanes < 8 ? 12 : 3;
  const double store = g.dst[4] == g.src_block && !g.transposed ? once : 12.0 * row.vector / double(g.src_block);
  // A core that multiplies two whole vectors a cycle has no room left for loads of two lines of L1.
  const double held_up = fast_and_wide(row, on) ? 0.35 * std::min(taps / 2, loads) : 0;
  return planes * (pace(row, on) * vectors * (std::max({taps / 2, loads, waits}) + held_up + store) +
                   clock_cycles(on) * (taps + 20));
}

// Floats that a tap of a block has in the packed weights: several channels fill a vector.
int64_t lanes_of(int64_t block, const kernel& row) { return block == 1 ? 1 : row.vector; }

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry& g = geometry_of(p);
  const int64_t packed = up(g.groups * g.k, g.src_block), blocks = std::max<int64_t>(1, packed);
  blocking b = {};
  b.order = uint32_t(g.src_block);
  b.packed_bytes = uint64_t(g.taps() * packed * lanes_of(g.src_block, row)) * sizeof(float);
  b.cycles = compute_cycles(g, row, m);
  b.workers = useful_workers(m, b.cycles, threads);
  const int64_t wanted = b.workers > 1 ? 4 * b.workers : 1;
  const int64_t fixed = std::max<int64_t>(1, g.n * g.phases());
  b.word[streams] = streams_outputs(g, m);
  b.word[fetches] = operand_bytes(g, 0).all() > double(m.l2);
  b.word[together] = up(blocks, std::min(blocks, up(wanted, fixed)));
  b.word[parts] = up(blocks, b.word[together]);
  // Few channels: bands of whole tiles.
  const int64_t tiles = std::max<int64_t>(1, up(phase_of(g, 0).h.out_count, row.mr));
  b.word[bands] = std::min(tiles, up(wanted, fixed * b.word[parts]));
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry& g = geometry_of(p);
  const operand_bytes o(g, b.packed_bytes);
  // GEMMs, which take many outputs of a plane faster, are predicted about as much too slow (5x5, 64 of one plane, 1.5
  // times: Zen 4).
  const bool many = g.k > 16;
  // A plane in and a few planes out, one after the other.
  if (slow_l3(m) && !many && g.src_block == 1) return overlapped(row, m, b, slow_copy_cycles(g, m));
  // Lines of dst are read before they are written, and many lines are on their way at once.
  const double bytes = 1.5 * (o.image + 2 * o.output), rate = copy_rate(m, o.all()) * m.cycle_ns;
  if (slow_l3(m) || many) return overlapped(row, m, b, bytes / rate);
  // An L3 that answers in time hides most of a plane.
  return overlapped(row, m, b, 0.5 * (o.image + o.output) / rate, 0.6);
}

// [phase][block][tap][channel of the block, again and again], channels that are not there are zeros.
void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const int64_t block = g.src_block, channels = g.groups * g.k, lanes = lanes_of(block, j.row);
  float* to = reinterpret_cast<float*>(payload);
  pack_weights(g, first, count, static_cast<const float*>(weights), [&](const weight_run<float>& w) {
    const int64_t channel = w.group * g.k + w.k, lane = channel % block, blocks = up(channels, block);
    float* const row = to + (w.before * blocks + channel / block * w.ph.taps() + w.tap) * lanes;
    for (int64_t i = 0; i < lanes; i += block)
      put_lane(row + i, lane, channel == channels - 1 ? block : lane + 1, w[0]);
  });
}

void run(const job& j, const execution& e) {
  const geometry& g = geometry_of(j.problem);
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t* word = j.blocks.word;
  const int64_t block = g.src_block, channels = g.groups * g.k, blocks = up(channels, block);
  const int64_t lanes = lanes_of(block, j.row);
  const int64_t items = g.n * g.phases() * word[bands] * word[parts];
  for_each_item(j, e, items, [&](int64_t item, char*) {
    const int64_t p = digit(item, word[parts]), band = digit(item, word[bands]), f = digit(item, g.phases()), n = item;
    const phase ph = phase_of(g, f);
    gemm_tap planes[most_planes];
    depthwise_planar_f32 call = {};
    call.plane = planes;
    const int64_t first = p * word[together] * block, last = std::min(channels, (p + 1) * word[together] * block);
    if (first >= last) return;
    call.block = block, call.n = last - first, call.multiplier = g.k;
    call.src_block = g.src_channel(block), call.dst_block = g.dst_channel(block);
    call.residual_block = g.residual_channel(block), call.weights_block = ph.taps() * lanes;
    call.x.count = ph.w.out_count, call.x.taps = ph.w.taps, call.y.taps = ph.h.taps;
    call.x.step = ph.w.in_step, call.apart = ph.w.tap_step;
    call.x.begin = -ph.w.in_begin, call.x.end = ph.w.in_size - ph.w.in_begin;
    call.out.ldc = ph.w.out_step * g.dst[4], call.out.ldr = ph.w.out_step * g.residual[4];
    call.out.epilogue = &epilogue, call.out.stream = word[streams];
    call.fetches = word[fetches];
    call.weights =
        reinterpret_cast<const float*>(e.packed) + (taps_before(g, f) * blocks + first / block * ph.taps()) * lanes;
    const int64_t classes = axis_class::count_of(ph.h);
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
        call.src = static_cast<const float*>(e.args.src) + n * g.src[0] + g.src_channel(first / g.k);
        call.out.c = static_cast<float*>(e.args.dst) + place(g.dst) + g.dst_channel(first);
        call.out.channel = first;
        if (epilogue.residual)
          call.out.residual =
              static_cast<const float*>(e.args.residual) + place(g.residual) + g.residual_channel(first);
        j.row.depthwise_planar(call);
      }
    }
    if (word[streams]) finish_streams();
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_depthwise_planar, .about = "one filter a channel, pixels across the vector; NCHW and small blocks",
                .drives = kind::depthwise_planar_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED},
                .accuracy = QUERN_ACCURACY_F32, .repeat = QUERN_REPEAT_ISA, .pads = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .least_cycles = least_by_pixels,
                .error_bound = chain_bound, .pack = pack, .run = run)
