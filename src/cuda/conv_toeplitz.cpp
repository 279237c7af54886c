// SPDX-License-Identifier: MIT
//
// Depthwise convolution of small images in 16 bits on a GPU's tensor cores, any filter at stride 1, by Toeplitz
// matrices of its lines (cuda/toeplitz.h).  Pixels lie channels last, in chunks of 16 bytes.
//
//   block: 16 images, 16 channels, eight columns of all lines
//     warp: a channel
#include <string.h>

#include "cuda/few_drive.h"
#include "cuda/toeplitz.h"

namespace quern {
namespace {

using block = toeplitz_images<f16>;  // of all types

int64_t blocks_of(const geometry& g) {
  return up(g.n, int64_t{block::images}) * up(g.out[2], int64_t{8}) * up(g.groups, int64_t{block::channels});
}

// Pairs of a line of inputs and one of outputs that are multiplied.
double pairs_of(const geometry& g) {
  const axis h = phase_of(g, 0).h;
  double pairs = 0;
  for (int64_t distance = 1 - block::lines; distance < block::lines; ++distance)
    if (distance >= h.in_begin && distance < h.in_begin + h.taps) pairs += double(block::lines - std::abs(distance));
  return pairs;
}

refusal refuse(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  if (const refusal r = refuse_all_but_depthwise(p, row)) return r;
  if (const refusal r = refuse_large_images(p, row)) return r;
  if (const refusal r = refuse_broken_pixels(p)) return r;
  const int64_t whole = 16 / type_bytes(row.type);
  for (const int i : {0, 3, 4})
    if (g.src[i] % whole != 0) return {QUERN_REASON_SHAPE, "src.stride modulo 16 bytes", g.src[i] % whole, 0};
  return refuse_many(double(blocks_of(g)) * row.threads, "tiles");
}

blocking choose_blocks(const full_problem& p, const kernel&, const machine&, uint32_t) {
  blocking b = {};
  b.packed_bytes = uint64_t(geometry_of(p).groups * block::weight_bytes);
  b.workers = 1;
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking&, const machine& m) {
  const geometry& g = geometry_of(p);
  const double blocks = double(blocks_of(g)), processors = std::max(1u, m.gpu.multiprocessors);
  // Clocks of a block, of which a multiprocessor has one at a time: pixels, products, and what it waits for (measured
  // on an H200).
  const double pixels = double(std::min<int64_t>(g.n, block::images) * g.in[1] * g.in[2]);
  const double clocks = 5900 + 3 * pixels + 42 * pairs_of(g);
  // What conv_walk and conv_group predict is up to 1.6 times what they take on images as small as these: where they
  // have kernels, so is this.
  const double fair = std::max(g.filter[1], g.filter[2]) <= 7 ? 1.5 : 1;
  const double compute = 1000 * ceil(blocks / processors) * clocks / std::max(1u, m.gpu.clock_mhz);
  const double memory = tensor_bytes(g, row.type, row.type) / (double(m.gpu.bandwidth) * 0.8e-9);
  return {fair * (1000 + std::max(compute, memory)),
          2 * blocks * pairs_of(g) * block::channels * block::images * 16 * 8};
}

// As conv_tensor's of 16 bits.
double error_bound(const full_problem& p) {
  const double n = (2 * double(geometry_of(p).filter_size()) * 2 + 4) * 0x1p-24;
  return n / (1 - n);
}

// Of a channel, a row of elements for each distance of lines, whose elements are of distances along the line.
void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  pack_weights(g, first, count, static_cast<const uint16_t*>(weights), [&](const weight_run<uint16_t>& w) {
    char* const own = payload + w.group * block::weight_bytes;
    if (w.tap == 0) memset(own, 0, block::weight_bytes);
    const int64_t row = w.tap / w.ph.w.taps + w.ph.h.in_begin + block::lines - 1;
    const int64_t at = w.tap % w.ph.w.taps + w.ph.w.in_begin + block::row_first;
    // What is further away than the image is large meets nothing.
    if (row >= 0 && row < block::distances && at >= 0 && at < block::row_elements)
      reinterpret_cast<uint16_t*>(own)[row * block::row_elements + at] = w[0];
  });
}

quern_status launch(const job& j, const launching& l) {
  const geometry& g = geometry_of(j.problem);
  const phase ph = phase_of(g, 0);
  toeplitz_conv a = {};
  a.size_h = int32_t(g.in[1]), a.size_w = int32_t(g.in[2]), a.images = int32_t(g.n), a.channels = int32_t(g.groups);
  a.halves = int32_t(up(g.out[2], int64_t{8})), a.chunks = int32_t(up(g.groups, int64_t{block::channels}));
  a.first_distance = int32_t(ph.h.in_begin), a.last_distance = int32_t(ph.h.in_begin + ph.h.taps - 1);
  a.src_image = g.src[0], a.src_line = int32_t(g.src[3]), a.src_pixel = int32_t(g.src[4]);
  a.src = l.args.src, a.weights = l.packed, a.ahead = l.loaded.ahead;
  a.out = output_of(j, g, ph, l.args, 1);
  a.out.vector = in_chunks(a.out.dst, a.out.dst_stride, 8, j.row.type);
  return launch_kernel(l, j.row, uint32_t(blocks_of(g)), &a);
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_toeplitz, .about = "depthwise on small images, any filter, by Toeplitz matrices on tensor cores",
                .drives = kind::toeplitz, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_BATCH, .pads = true, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict, .error_bound = error_bound, .pack = pack, .launch = launch)
