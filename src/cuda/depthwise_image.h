// SPDX-License-Identifier: MIT
//
// Depthwise convolution in f32 on capability 9.0 with filters that are about as large as the image, written for any
// compiler, as implicit.h is.
//
//   dst[pixel][o] = clamped(sum over taps (r, s) of src[pixel at tap][o] * weights[r][s][o])
//
// A line of inputs meets a line of outputs by one line of the filter, a Toeplitz matrix of 14 x 14 weights, whose
// halves along both sides are Toeplitz matrices B = [D A; C D].  So three products of halves do for four (Karatsuba's
// trick, as Winograd has it for such matrices), with weights that packing has subtracted:
//
//   left half of outputs += D * (left + right) + (A - D) * right
//   right half           += D * (left + right) + (C - D) * left
//
// A block has the filters of 32 channels and walks over images, three at a time, so a weight that was loaded serves
// up to 21 sums.  A lane has a channel, a warp one of the products for four lines of outputs or three, whose inputs
// pass line by line.  Sums meet in memory where weights were, which are loaded again for other images, and a loop
// writes them: code that runs once is waited for.
#pragma once

#include "cuda/strip_sums.h"
#include "cuda/tma.h"

namespace quern {
namespace {

// By value in the kernel's parameters.
struct depthwise_image {
  tensor_map src;         // channels, columns, lines, images
  int32_t lines, images;  // of src
  int32_t chunks, parts;  // chunks of channels; blocks that share the images of each
  bool ahead;             // weights are loaded before what precedes the kernel has ended
  const float* weights;   // [chunk][distance of lines][product][image_weight]
  gpu_output out;
};

constexpr int image_half = 7, image_weights = 2 * image_half - 1;  // distances of pixels, from 1 - image_half on
// Of a product, by fours: lanes load as much at once.
constexpr int64_t image_weight(int64_t distance, int64_t lane) {
  const int64_t four = distance / 4 * 4, wide = four + 4 <= image_weights ? 4 : image_weights - four;
  return four * 32 + lane * wide + distance - four;
}

struct image_14x14 {
  static constexpr int channels = 32, lines = 14, columns = 2 * image_half, together = 3;  // together: images
  static constexpr int products = 3, groups = 4, most = 4, warps = products * groups, threads = 32 * warps;
  static constexpr int requests = 32 * (groups + 1);  // the thread that does
  static constexpr int distances = 2 * lines - 1, row_floats = products * image_weights * channels;
  static constexpr int image_floats = columns * channels, line_floats = together * image_floats;
  static constexpr int line_bytes = 4 * line_floats, row_bytes = 4 * row_floats;
  static constexpr int lines_at = distances * row_floats, barriers_at = 4 * (lines_at + lines * line_floats);
  static constexpr int shared_bytes = barriers_at + 8 * lines + 128;  // aligned by the kernel
  static constexpr int half_floats = image_half * channels;
  static_assert(lines * together * products * half_floats <= lines_at);

  const depthwise_image& a;
  float* shared;
  int32_t lane, product, first, end;  // lines of outputs
  int32_t chunk, n, channel;          // n: the first image
  float sum[most][together][image_half];
  plain_results<float, 1> results;

  QUERN_INLINE image_14x14(const depthwise_image& conv, float* memory, int32_t block, int32_t thread)
      : a(conv), shared(memory), lane(thread % 32), product(thread / 32 / groups) {
    // Of 4, 4, 3 and 3 lines: so no scheduler has more than 11.
    const int32_t group = (thread / 32 + product) % groups;
    first = group * most - (group == groups - 1), end = first + (group < 2 ? most : most - 1);
    if (end > a.out.size[1]) end = a.out.size[1];
    const int32_t part = block / a.chunks;
    chunk = block - part * a.chunks, n = part * together;
    channel = chunk * channels + lane;
  }

  QUERN_INLINE bool has_next() const { return n + a.parts * together < a.images; }
  QUERN_INLINE void next_images() { n += a.parts * together; }

  // Of the filter, what a line of inputs needs besides those before it: lines from `first_row` on.
  QUERN_INLINE int32_t first_row(int32_t line) const { return line == 0 ? 0 : a.out.size[1] - 1 + line; }
  QUERN_INLINE uint32_t weights_bytes(int32_t line) const {
    return static_cast<uint32_t>(line == 0 ? a.out.size[1] : 1) * row_bytes;
  }
  QUERN_INLINE const float* weights(int32_t line) const {
    return a.weights + (int64_t{chunk} * (a.out.size[1] + a.lines - 1) + first_row(line)) * row_floats;
  }
  QUERN_INLINE float* weights_place(int32_t line) const { return shared + first_row(line) * row_floats; }
  QUERN_INLINE float* line_place(int32_t line) const { return shared + lines_at + line * line_floats; }

  QUERN_INLINE void clear() {
    QUERN_UNROLL
    for (int i = 0; i < most * together * image_half; ++i)
      sum[i / (together * image_half)][i / image_half % together][i % image_half] = 0;
  }

  // The products of a line of inputs.
  QUERN_INLINE void add(int32_t line) {
    const float* const from = line_place(line) + (product == 1 ? half_floats : 0) + lane;
    float x[together][image_half];
    QUERN_UNROLL
    for (int i = 0; i < together * image_half; ++i)
      x[i / image_half][i % image_half] = from[i / image_half * image_floats + i % image_half * channels];
    if (product == 0) {
      QUERN_UNROLL
      for (int i = 0; i < together * image_half; ++i)
        x[i / image_half][i % image_half] +=
            from[i / image_half * image_floats + half_floats + i % image_half * channels];
    }
    // Lines that there are not are multiplied by any weights: a branch would keep loads from starting early.
    const float* const rows = shared + product * (image_weights * channels);
    const int32_t row = line - first + a.out.size[1] - 1;
    QUERN_UNROLL
    for (int j = 0; j < most; ++j) {
      if (j == most - 1 && first + j >= end) break;
      add_products(sum[j], x, rows + (row > j ? row - j : 0) * row_floats);
    }
  }

  // Sums pass through memory where weights were.
  QUERN_INLINE void hand_over() {
    QUERN_UNROLL
    for (int j = 0; j < most; ++j) {
      if (first + j >= end) break;
      QUERN_UNROLL
      for (int i = 0; i < together * image_half; ++i)
        sums(first + j, i / image_half, product)[i % image_half * channels] = sum[j][i / image_half][i % image_half];
    }
  }

  QUERN_INLINE void load_channels() { results.load(a.out.epilogue, channel < a.out.k ? channel : 0); }

  // A warp's part of what is written: halves of lines of images.
  QUERN_INLINE void finish(int32_t warp) const {
    const bool exists = channel < a.out.k;
    QUERN_ROLL
    for (int32_t number = warp; number < a.out.size[1] * together * 2; number += warps) {
      const int32_t half = number % 2, image = number / 2 % together, line = number / (2 * together);
      const int32_t column = half * image_half, count = exists ? a.out.size[2] - column : 0;
      if (n + image >= a.images) continue;
      const float *const shared_sums = sums(line, image, 0), *const own = sums(line, image, 1 + half);
      const int64_t* const to = a.out.dst_stride;
      float* pixel =
          static_cast<float*>(a.out.dst) + (n + image) * to[0] + channel * to[1] + line * to[3] + column * to[4];
      float all[1][image_half];
      QUERN_UNROLL
      for (int q = 0; q < image_half; ++q) all[0][q] = shared_sums[q * channels] + own[q * channels];
      QUERN_UNROLL
      for (int q = 0; q < image_half; ++q) {
        const float result = results.of(a.out.epilogue, all, q).v;
        if (q < count) *pixel = result;
        pixel += to[4];
      }
    }
  }

 private:
  QUERN_INLINE float* sums(int32_t line, int32_t image, int32_t of) const {
    return shared + ((line * together + image) * products + of) * half_floats + lane;
  }

  // By the weights of a row.  In this order ptxas has few of their operands in the same bank of registers.
  QUERN_INLINE void add_products(float (&to)[together][image_half], const float (&x)[together][image_half],
                                 const float* row) const {
    QUERN_UNROLL
    for (int d = 0; d < image_weights; d += 4) {
      four_floats w;
      if (d + 4 <= image_weights) {
        w = load_four(row + image_weight(d, lane));
      } else {
        w.v[0] = row[image_weight(d, lane)];
      }
      QUERN_UNROLL
      for (int k = 0; k < 4 && d + k < image_weights; ++k) {
        QUERN_UNROLL
        for (int i = 0; i < together; ++i) {
          QUERN_UNROLL
          for (int q = 0; q < image_half; ++q) {
            const int in = q + d + k - (image_half - 1);
            if (in >= 0 && in < image_half) to[i][q] = fmaf(x[i][in], w.v[k], to[i][q]);
          }
        }
      }
    }
  }
};

}  // namespace
}  // namespace quern
