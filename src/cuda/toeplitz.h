// SPDX-License-Identifier: MIT
//
// Depthwise convolution in 16 bits on the matrix instructions of a warp, with filters of any size on images of up to 14
// lines and 16 columns, written for any compiler, as implicit.h is.
//
//   dst[pixel][o] = epilogue(sum over taps (r, s) of src[pixel at tap][o] * weights[r][s][o])
//
// Along x, line r of a channel's filter is a Toeplitz matrix: input p of a line meets its output x by the weight of
// their distance, p - x, and by zero where there is no such tap.  An instruction multiplies a line of 16 images by
// eight columns of it.  A warp has all lines of these images in registers, and the filter passes, as a line of it meets
// all lines of inputs and outputs that are as far apart.  A word of the matrix is two neighbouring weights, whatever
// input and output it is for, so a line of the filter is a short row of elements between zeros, in shared memory.
//
// A block has 16 channels, and half of the columns.  Matrices are pieces of planes, but pixels lie channels last:
// threads turn them round on their way into shared memory and out of it, two neighbours along x at a time.
//
// As all of a line is multiplied, by zero where there is no tap, infinite and NaN inputs may make any output of the
// lines that meet theirs NaN.
#pragma once

#include "cuda/chunks.h"
#include "cuda/fill.h"

namespace quern {
namespace {

// By value in the kernel's parameters.
struct toeplitz_conv {
  int32_t size_h, size_w, images, channels;
  int32_t halves, chunks;                 // of the columns of outputs, eight each; of all channels
  int32_t first_distance, last_distance;  // from a line of outputs to one of inputs that the filter has
  int64_t src_image;
  int32_t src_line, src_pixel;
  bool ahead;  // weights are loaded before what precedes the kernel has ended
  const void *src, *weights;
  gpu_output out;
};

template <class Element>
struct toeplitz_images {
  using element = Element;
  static constexpr int threads = 512, channels = 16, images = 16, lines = 14, columns = 16;
  static constexpr int distances = 2 * lines - 1;  // of lines; number lines - 1 is none
  // Weights of a distance: elements, and the number of the one that an input has which lies as its output does.
  static constexpr int row_elements = 2 * columns, row_first = columns;
  static constexpr int weight_bytes = distances * row_elements * 2;  // of a channel
  // Bytes, in shared memory: so apart, a line of eight images lies in all banks; the two halves of the channels do,
  // too.
  static constexpr int line_at = 2 * columns, image_at = lines * line_at + 16, plane_at = images * image_at;
  static constexpr int half_at = 64, weights_at = channels * plane_at + half_at;
  static constexpr int vectors_at = weights_at + channels * weight_bytes + 16;  // a word behind the last row
  static constexpr int shared_bytes = vectors_at + 3 * channels * 4;

  const toeplitz_conv& a;
  char* shared;
  int32_t thread, channel, column, n;  // the block's first
  float sum[lines][4] = {};
  uint32_t w[2];

  QUERN_INLINE toeplitz_images(const toeplitz_conv& conv, char* memory, int32_t block, int32_t index)
      : a(conv), shared(memory), thread(index) {
    const int32_t row = block / a.chunks, of_images = row / a.halves;
    channel = (block - row * a.chunks) * channels, column = (row - of_images * a.halves) * 8, n = of_images * images;
  }

  QUERN_INLINE int32_t lane() const { return thread % 32; }
  QUERN_INLINE int32_t of_block() const { return thread / 32; }  // the warp's channel
  QUERN_INLINE char* plane(int32_t number) const { return shared + number * plane_at + number / 8 * half_at; }

  // ---- Pixels into planes, and back ----

  // Pairs of neighbours in the same place of every so many images; Pairs: of a line.
  template <int Pairs>
  struct pairs {
    static constexpr int apart = threads / (2 * Pairs * lines), most = images / apart;
    int32_t half, pair, line, image;
    char* at;  // of the first of eight planes

    QUERN_INLINE pairs(const toeplitz_images& t, int32_t first)
        : half(t.thread % 2),
          pair(t.thread / 2 % Pairs),
          line(t.thread / (2 * Pairs) % lines),
          image(t.thread / (2 * Pairs * lines)) {
      at = t.plane(half * 8) + image * image_at + line * line_at + (first + 2 * pair) * 2;
    }
    // Some threads have none.
    QUERN_INLINE bool any() const { return image < apart; }
  };
  // The lower or upper halves of two words.
  QUERN_INLINE static uint32_t halves_of(uint32_t first, uint32_t second, bool upper) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(first, second, upper ? 0x7632 : 0x5410);
#else
    return upper ? first >> 16 | (second & 0xffff0000u) : (first & 0xffffu) | second << 16;
#endif
  }
  // Zero when `there` is false, without reading, and without a branch, where it would be waited for.  With its
  // neighbours, which other blocks ask for at the same time.
  QUERN_INLINE static four_words pixel_at(const Element* from, bool there) {
    four_words x = {};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p ld.global.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];\n}"
                 : "+r"(x.v[0]), "+r"(x.v[1]), "+r"(x.v[2]), "+r"(x.v[3])
                 : "l"(from), "r"(int{there}));
#else
    if (there) x = *reinterpret_cast<const four_words*>(from);
#endif
    return x;
  }
  QUERN_INLINE void turn_in() const {
    using all = pairs<columns / 2>;
    const all own(*this, 0);
    if (!own.any()) return;
    const int32_t x = 2 * own.pair, first = channel + own.half * 8;
    const bool there = own.line < a.size_h && first < a.channels;
    const Element* const from = static_cast<const Element*>(a.src) + (n + own.image) * a.src_image +
                                (own.line * a.src_line + x * a.src_pixel + first);
    four_words in[all::most][2];
    QUERN_UNROLL
    for (int i = 0; i < 2 * all::most; ++i) {
      const int image = i / 2 * all::apart, next = i % 2;
      in[i / 2][next] = pixel_at(from + image * a.src_image + next * a.src_pixel,
                                 there && n + own.image + image < a.images && x + next < a.size_w);
    }
    QUERN_UNROLL
    for (int i = 0; i < 8 * all::most; ++i) {
      const int image = i / 8 * all::apart, c = i % 8;
      *reinterpret_cast<uint32_t*>(own.at + c * plane_at + image * image_at) =
          halves_of(in[i / 8][0].v[c / 2], in[i / 8][1].v[c / 2], c % 2);
    }
  }
  QUERN_INLINE void turn_out() const {
    using all = pairs<4>;
    const all own(*this, column);
    const int32_t x = column + 2 * own.pair, first = channel + own.half * 8;
    if (!own.any() || own.line >= a.out.size[1] || first >= a.channels) return;
    const int64_t* const to = a.out.dst_stride;
    Element* pixel =
        static_cast<Element*>(a.out.dst) + (n + own.image) * to[0] + first * to[1] + own.line * to[3] + x * to[4];
    // Code that runs once is waited for, too: this is the least of it.
    QUERN_ROLL
    for (int i = 0; i < all::most; ++i, pixel += all::apart * to[0]) {
      uint32_t pair[8];
      QUERN_UNROLL
      for (int c = 0; c < 8; ++c)
        pair[c] = *reinterpret_cast<const uint32_t*>(own.at + c * plane_at + i * all::apart * image_at);
      QUERN_UNROLL
      for (int next = 0; next < 2; ++next) {
        four_words y;
        QUERN_UNROLL
        for (int j = 0; j < 4; ++j) y.v[j] = halves_of(pair[2 * j], pair[2 * j + 1], next);
        if (n + own.image + i * all::apart < a.images && x + next < a.out.size[2]) write(pixel + next * to[4], y);
      }
    }
  }

  // ---- Weights, and what the epilogue has for channels: factors, biases, slopes ----

  QUERN_INLINE void request_weights() const {
    const char* const from = static_cast<const char*>(a.weights) + int64_t{channel} * weight_bytes;
    QUERN_ROLL
    for (int32_t at = thread * 16; at < channels * weight_bytes; at += threads * 16)
      fill<16>(shared + weights_at + at, from + at, channel + at / weight_bytes < a.channels);
  }
  QUERN_INLINE void request_vectors() const {
    const epilogue_f32& e = a.out.epilogue;
    const float* const from = thread < channels ? e.scale : thread < 2 * channels ? e.bias : e.slope;
    const int32_t own = channel + thread % channels;
    if (thread < 3 * channels && from) fill<4>(shared + vectors_at + thread * 4, from + own, own < a.channels);
  }
  QUERN_INLINE channel_f32 brings() const {
    const epilogue_f32& e = a.out.epilogue;
    const float* const own = reinterpret_cast<const float*>(shared + vectors_at) + of_block();
    return {e.scale ? e.alpha * own[0] : e.alpha, e.bias ? own[channels] : -0.0f, e.slope ? own[2 * channels] : 0.0f};
  }

  // ---- Products: rows of a matrix are images, its columns pixels ----

  // The row that the lane names: eight inputs of a line.
  QUERN_INLINE const char* row(int line) const {
    return plane(of_block()) + lane() % 16 * image_at + line * line_at + lane() / 16 * 16;
  }
  // Two neighbours each.
  QUERN_INLINE void load_weights(int distance) {
    const int32_t first = row_first + lane() % 4 * 2 - lane() / 4 - column;
    const uint32_t* const rows = reinterpret_cast<const uint32_t*>(shared + weights_at + of_block() * weight_bytes);
    QUERN_UNROLL
    for (int i = 0; i < 2; ++i) {
      const uint32_t* const at = rows + first / 2 + ((distance + lines - 1) * (row_elements / 2) + 4 * i);
      w[i] = static_cast<uint32_t>((uint64_t{at[1]} << 32 | at[0]) >> first % 2 * 16);
    }
  }

  // ---- Sums: of images lane / 4 and that + 8, of columns lane % 4 * 2 and that + 1 ----

  // In place of inputs, which no other warp has.
  QUERN_INLINE void finish() const {
    const epilogue_f32& e = a.out.epilogue;
    const channel_f32 k = brings();
    const int32_t own = column + lane() % 4 * 2;
    char* const first = plane(of_block()) + lane() / 4 * image_at + own * 2;
    const auto put = [&](int line, int h, uint32_t pair) {
      *reinterpret_cast<uint32_t*>(first + h * 8 * image_at + line * line_at) = pair;
    };
    if (!only_clamps(e) || e.residual) return finish_any(k, own, put);
    const uint32_t lower = rounded_pair<Element>(e.lower, e.lower), upper = rounded_pair<Element>(e.upper, e.upper);
    QUERN_UNROLL
    for (int i = 0; i < 2 * lines; ++i) {
      const auto scaled = [&](int c) {
        return vec::fma(vec::set1(sum[i / 2][i % 2 * 2 + c]), vec::set1(k.factor), vec::set1(k.bias)).v;
      };
      put(i / 2, i % 2, limited_pair<Element>(rounded_pair<Element>(scaled(0), scaled(1)), lower, upper));
    }
  }

 private:
  QUERN_INLINE void write(Element* pixel, const four_words& y) const {
    if (a.out.vector) {
      *reinterpret_cast<four_words*>(pixel) = y;
    } else {
      QUERN_UNROLL
      for (int c = 0; c < 8; ++c)
        pixel[c * a.out.dst_stride[1]] = Element{static_cast<uint16_t>(y.v[c / 2] >> c % 2 * 16)};
    }
  }
  // One sum after the other: there is one copy of the activations.
  template <class Put>
  QUERN_INLINE void finish_any(const channel_f32& k, int32_t first_column, Put put) const {
    const epilogue_f32& e = a.out.epilogue;
    const int64_t* const from = a.out.residual_stride;
    QUERN_ROLL
    for (int i = 0; i < 2 * lines; ++i) {
      const int32_t image = n + lane() / 4 + i % 2 * 8, line = i / 2;
      float of_pair[2] = {}, y[2] = {};
      QUERN_UNROLL
      for (int j = 0; j < 4 * lines; ++j) of_pair[j % 2] = j / 2 == i ? sum[j / 4][j % 4] : of_pair[j % 2];
      QUERN_ROLL
      for (int c = 0; c < 2; ++c) {
        const int32_t at = first_column + c;
        float r = 0;
        if (e.residual && channel + of_block() < a.channels && image < a.images && line < a.out.size[1] &&
            at < a.out.size[2])
          r = value(static_cast<const Element*>(
              a.out.residual)[image * from[0] + (channel + of_block()) * from[1] + line * from[3] + at * from[4]]);
        y[0] = y[1], y[1] = finished<false>(e, k, c ? of_pair[1] : of_pair[0], r);
      }
      put(line, i % 2, rounded_pair<Element>(y[0], y[1]));
    }
  }
};

}  // namespace
}  // namespace quern
