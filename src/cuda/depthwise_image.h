// SPDX-License-Identifier: MIT
//
// Depthwise convolution with filters of any size on images of up to 14x14, written for any compiler, as implicit.h is.
//
//   dst[pixel][o] = clamped(sum over taps (r, s) of src[pixel at tap][o] * weights[r][s][o])
//
// Along x, spectra of lines multiply (line_spectrum.h); along y, those of one frequency are summed by their distance.
// With the three products of a complex one
//
//   re' = c * (re + im) - (c + d) * im
//   im' = c * (re + im) + (d - c) * re
//
// that is a fifth of the products of all inputs by all outputs.
//
// A lane has a channel.  A warp has a pair of the spectrum, whose weights stay in registers while images pass: in
// shared memory it finds the pair of all lines of inputs, and leaves it for all lines of outputs there.  It also has a
// line, which it brings there and takes from there.
#pragma once

#include "cuda/line_spectrum.h"
#include "cuda/output.h"
#include "cuda/strip_sums.h"

namespace quern {
namespace {

// By value in the kernel's parameters.
struct depthwise_image {
  int32_t lines, columns, images;  // of src
  int32_t chunks, parts;           // chunks of channels; blocks that share the images of each
  bool ahead;                      // weights are loaded before what precedes the kernel has ended
  int64_t src_image, src_channel, src_line, src_pixel;
  const float *src, *weights;  // weights: [chunk][pair][weight_at]
  gpu_output out;
};

struct image_14x14 {
  static constexpr int channels = 32, lines = line_most, columns = line_most, threads = 32 * lines;
  static_assert(line_pairs == lines, "a warp has both");
  static constexpr int distances = 2 * lines - 1, weights = 2 * distances, padded_weights = (weights + 3) / 4 * 4;
  static constexpr int pair_floats = padded_weights * channels, packed_floats = line_pairs * pair_floats;  // of a chunk
  static constexpr int image_floats = line_pairs * 2 * lines * channels, shared_bytes = 2 * image_floats * 4;

  const depthwise_image& a;
  float* shared;
  int32_t lane, warp, chunk, part, channel;
  float weight[padded_weights];  // real parts by the distance of lines, imaginary ones
  float x[columns];              // of the warp's line of the next image
  plain_results<float, 1> results;

  // Of a channel and pair: by fours, as lanes load them.
  static constexpr int64_t weight_at(int64_t number, int64_t lane) {
    return number / 4 * (4 * channels) + lane * 4 + number % 4;
  }

  QUERN_INLINE image_14x14(const depthwise_image& conv, float* memory, int32_t block, int32_t thread)
      : a(conv), shared(memory), lane(thread % 32), warp(thread / 32) {
    part = block / a.chunks, chunk = block - part * a.chunks;
    channel = chunk * channels + lane;
  }

  // The block's image of this number.
  QUERN_INLINE int32_t image(int32_t number) const { return part + number * a.parts; }
  QUERN_INLINE bool exists(int32_t number) const { return image(number) < a.images; }

  QUERN_INLINE void load_weights() {
    const float* const from = a.weights + (int64_t{chunk} * line_pairs + warp) * pair_floats;
    QUERN_UNROLL
    for (int i = 0; i < padded_weights; i += 4) {
      const four_floats four = load_four(from + weight_at(i, lane));
      QUERN_UNROLL
      for (int k = 0; k < 4; ++k) weight[i + k] = four.v[k];
    }
  }
  QUERN_INLINE void load_channels() { results.load(a.out.epilogue, channel < a.out.k ? channel : 0); }

  QUERN_INLINE void load_line(int32_t number) {
    const bool any = exists(number) && warp < a.lines && channel < a.out.k;
    const float* from = a.src + image(number) * a.src_image + channel * a.src_channel + warp * a.src_line;
    QUERN_UNROLL
    for (int i = 0; i < columns; ++i) {
      x[i] = any && i < a.columns ? *from : 0.0f;
      from += a.src_pixel;
    }
  }

  QUERN_INLINE void store_spectrum(int32_t number) const {
    float* const to = spectra(number) + warp * channels;
    spectrum_of(x, [&](int pair, float re, float im) {
      to[2 * pair * lines * channels] = re, to[(2 * pair + 1) * lines * channels] = im;
    });
  }

  // The warp's pair of all lines.  `fence` keeps a compiler from loading early what would take its registers.
  template <class Fence>
  QUERN_INLINE void multiply(int32_t number, Fence fence) const {
    float* const at = spectra(number) + warp * (2 * lines * channels);
    float own[lines], re[lines] = {}, im[lines];
    QUERN_UNROLL
    for (int i = 0; i < lines; ++i) own[i] = at[i * channels] + at[(lines + i) * channels];
    add_lines(own, re, [&](int i) { return weight[i]; });
    QUERN_UNROLL
    for (int i = 0; i < lines; ++i) im[i] = re[i];
    fence();
    QUERN_UNROLL
    for (int i = 0; i < lines; ++i) own[i] = at[i * channels];
    add_lines(own, im, [&](int i) { return weight[distances + i] - weight[i]; });
    fence();
    QUERN_UNROLL
    for (int i = 0; i < lines; ++i) {
      own[i] = at[(lines + i) * channels];
      at[(lines + i) * channels] = im[i];
    }
    const float square = warp == 0 ? 1 : -1;
    add_lines(own, re, [&](int i) { return fmaf(square, weight[distances + i], -weight[i]); });
    QUERN_UNROLL
    for (int i = 0; i < lines; ++i) at[i * channels] = re[i];
  }

  // The warp's line of outputs.
  QUERN_INLINE void finish(int32_t number) const {
    if (warp >= a.out.size[1] || channel >= a.out.k) return;
    const float* const from = spectra(number) + warp * channels;
    struct complex {
      float re, im;
    };
    float sum[1][columns];
    numbers_of(
        [&](int pair) {
          return complex{from[2 * pair * lines * channels], from[(2 * pair + 1) * lines * channels]};
        },
        sum[0]);
    const int64_t* const to = a.out.dst_stride;
    float* pixel = static_cast<float*>(a.out.dst) + image(number) * to[0] + channel * to[1] + warp * to[3];
    QUERN_UNROLL
    for (int q = 0; q < columns; ++q) {
      const float result = results.of(a.out.epilogue, sum, q).v;
      if (q < a.out.size[2]) *pixel = result;
      pixel += to[4];
    }
  }

 private:
  QUERN_INLINE float* spectra(int32_t number) const { return shared + number % 2 * image_floats + lane; }

  template <class Weight>
  QUERN_INLINE static void add_lines(const float (&from)[lines], float (&to)[lines], Weight of) {
    // Up and down in turns: then ptxas finds registers of which fewer are in the same bank.
    QUERN_UNROLL
    for (int i = 0; i < distances; ++i) {
      const float w = of(i);
      QUERN_UNROLL
      for (int k = 0; k < lines; ++k) {
        const int y = i % 2 == 0 ? k : lines - 1 - k, in = y + i - (lines - 1);
        if (in >= 0 && in < lines) to[y] = fmaf(from[in], w, to[y]);
      }
    }
  }
};

}  // namespace
}  // namespace quern
