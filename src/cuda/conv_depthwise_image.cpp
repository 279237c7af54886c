// SPDX-License-Identifier: MIT
//
// Depthwise convolution in f32 of images of up to 14x14 by filters about as large, at stride 1, on capability 9.0
// (cuda/depthwise_image.h).  Pixels lie channels last, in chunks of 16 bytes.
//
//   block: the filters of 32 channels, three images at a time
//     warp: one of three products of halves of lines, for four lines of outputs or three
#include "cuda/depthwise_image.h"
#include "cuda/few_drive.h"

namespace quern {
namespace {

using block = image_14x14;

int64_t chunks_of(const geometry& g) { return up(g.groups, int64_t{block::channels}); }
int64_t rows_of(const geometry& g) { return g.in[1] + g.out[1] - 1; }

// Blocks that share the images of a chunk: as few rounds of all blocks as there can be, of those the fewest blocks.
struct shares {
  int64_t parts, rounds;  // rounds: times that a multiprocessor has three images
};
shares shares_of(const geometry& g, const machine& m) {
  const int64_t all = up(g.n, int64_t{block::together}), processors = std::max(1u, m.gpu.multiprocessors);
  shares best = {1, std::numeric_limits<int64_t>::max()};
  for (int64_t parts = 1; parts <= std::min(all, processors); ++parts) {
    const int64_t rounds = up(all, parts) * up(chunks_of(g) * parts, processors);
    if (rounds < best.rounds) best = {parts, rounds};
  }
  return best;
}

refusal refuse(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  if (const refusal r = refuse_all_but_depthwise(p, row)) return r;
  if (const int64_t most = std::max(g.in[1], g.out[1]); most > row.mr)
    return {QUERN_REASON_SHAPE, "lines of src or dst", most, row.mr};
  if (const int64_t most = std::max(g.in[2], g.out[2]); most > row.nr)
    return {QUERN_REASON_SHAPE, "pixels of a line of src or dst", most, row.nr};
  if (const refusal r = refuse_all_but_clamps(p)) return r;
  if (const refusal r = refuse_broken_pixels(p)) return r;
  if (const refusal r = refuse_uneven_strides(p)) return r;
  return refuse_many(double(g.n * chunks_of(g)) * row.threads, "tiles");
}

blocking choose_blocks(const full_problem& p, const kernel&, const machine& m, uint32_t) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  b.packed_bytes = uint64_t(chunks_of(g) * rows_of(g) * block::row_bytes);
  b.workers = 1;
  b.word[0] = shares_of(g, m).parts;
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking&, const machine& m) {
  const geometry& g = geometry_of(p);
  const double rounds = double(shares_of(g, m).rounds);
  // Clocks of three images: what they and the filters wait for, and lines of inputs, each by 14 lines of outputs
  // whether those exist or not (measured on an H200, 31x31 on 14x14: 22.6 us for one round, 44.8 for two).
  const double clocks = 1000 + rounds * (9000 + 2500 * double(g.in[1]));
  const double memory = tensor_bytes(g, row.type, row.type) / (double(m.gpu.bandwidth) * 0.8e-9);
  const double pairs = double(up(g.n, int64_t{block::together}) * block::together * g.in[1] * block::lines);
  return {std::max(1000 * clocks / std::max(1u, m.gpu.clock_mhz), 2000 + memory),
          2 * pairs * double(chunks_of(g) * block::channels) * block::products * image_half * image_half};
}

// Inputs are added first, and weights subtracted: three times as large, of lines that are half as long.
double error_bound(const full_problem& p) {
  const geometry& g = geometry_of(p);
  const int64_t along = std::min<int64_t>(image_half, 2 * g.filter[2]),
                lines = std::min<int64_t>(block::lines, g.filter[1]);
  const double n = (double(along * lines) + 4) * 0x1p-24;
  return 3 * n / (1 - n);
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const int64_t rows = rows_of(g), padded = chunks_of(g) * block::channels;
  // Of a channel's line: of a product, by the distance of pixels; beyond a half it has none.
  const auto place = [&](int64_t channel, int64_t row, int64_t product, int64_t distance) {
    float* const to =
        reinterpret_cast<float*>(payload) +
        ((channel / block::channels * rows + row) * block::products + product) * image_weights * block::channels;
    return to + image_weight(distance + image_half - 1, channel % block::channels);
  };
  const auto clear = [&](int64_t channel) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < block::products * image_weights; ++i)
        *place(channel, row, i / image_weights, i % image_weights - (image_half - 1)) = 0;
  };
  pack_weights(g, first, count, static_cast<const float*>(weights),
               [&](int64_t channel, int64_t, int64_t, const phase& ph, int64_t, int64_t tap, int64_t, float w) {
                 if (tap == 0) clear(channel);
                 if (tap == 0 && channel == g.groups - 1)
                   for (int64_t i = g.groups; i < padded; ++i) clear(i);
                 const int64_t row = tap / ph.w.taps + ph.h.in_begin + g.out[1] - 1;
                 const int64_t at = tap % ph.w.taps + ph.w.in_begin;
                 // What is further away than the image is large meets nothing.
                 if (row < 0 || row >= rows || std::abs(at) >= block::columns) return;
                 if (std::abs(at) < image_half) {
                   *place(channel, row, 0, at) += w;
                   *place(channel, row, 1, at) -= w, *place(channel, row, 2, at) -= w;
                 }
                 if (at > 0) *place(channel, row, 1, at - image_half) += w;
                 if (at < 0) *place(channel, row, 2, at + image_half) += w;
               });
}

quern_status launch(const job& j, const launching& l) {
  const geometry& g = geometry_of(j.problem);
  depthwise_image a = {};
  a.lines = int32_t(g.in[1]), a.images = int32_t(g.n);
  a.chunks = int32_t(chunks_of(g)), a.parts = int32_t(j.blocks.word[0]);
  a.weights = reinterpret_cast<const float*>(l.packed), a.ahead = l.loaded.ahead;
  a.out = output_of(j, g, phase_of(g, 0), l.args, 1);
  a.out.k = int32_t(g.groups);
  const int64_t size[] = {g.groups, g.in[2], g.in[1], g.n};
  const uint32_t box[] = {uint32_t(block::channels), uint32_t(block::columns), 1, uint32_t(block::together)};
  if (const quern_status s = map_pixels(l, QUERN_F32, cuda_map_swizzle_none, l.args.src, size, g.src, box, &a.src))
    return s;
  return launch_kernel(l, j.row, uint32_t(a.chunks * a.parts), &a);
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_depthwise_image, .about = "depthwise on small images by filters as large, three products for four",
                .drives = kind::depthwise_image, .op = {QUERN_CONV}, .accuracy = QUERN_ACCURACY_F32_FAST,
                .repeat = QUERN_REPEAT_BATCH, .pads = true, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict, .error_bound = error_bound, .pack = pack, .launch = launch)
