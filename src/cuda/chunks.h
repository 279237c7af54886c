// SPDX-License-Identifier: MIT
//
// Finished sums on their way to dst without shared memory.  Matrix instructions leave a thread two channels of each
// eight; weights whose channels are permuted make those of several instructions neighbours, so that a thread has 16
// bytes of a pixel, or 8 where channels are few, and writes them by itself.
#pragma once

#include "cuda/output.h"

namespace quern {
namespace {

struct alignas(16) four_words {
  uint32_t v[4];
};

// The column of an instruction's operand that a channel has, of chunks of so many channels.
constexpr int64_t chunk_column(int64_t channel, int64_t chunk) {
  const int64_t in = channel % (4 * chunk);
  return channel - in + in % chunk / 2 * 8 + in / chunk * 2 + in % 2;
}

// A pair of rounded elements between two bounds: rounding keeps order, so bounds may be rounded, too.
template <class T>
QUERN_INLINE uint32_t limited_pair(uint32_t x, uint32_t lower, uint32_t upper) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (type_of<T> == QUERN_F16) {
    asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(x) : "r"(lower));
    asm("min.NaN.f16x2 %0, %0, %1;" : "+r"(x) : "r"(upper));
  } else {
    asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(x) : "r"(lower));
    asm("min.NaN.bf16x2 %0, %0, %1;" : "+r"(x) : "r"(upper));
  }
  return x;
#else
  const auto one = [&](int shift) {
    const auto of = [&](uint32_t pair) { return vec::set1(value(T{static_cast<uint16_t>(pair >> shift)})); };
    return vec::limited(of(x), of(lower), of(upper)).v;
  };
  return rounded_pair<T>(one(0), one(16));
#endif
}

// Where a column's bias is among channels of panels of so many; its factor is as many further on.
constexpr int32_t bias_of(int32_t column, int32_t columns) { return column + column / columns * columns; }

// Channels of a pixel that a thread has of so many columns, and what a warp stages of any other output.
constexpr int chunk_of_columns(int columns, int element_bytes) {
  return 16 / element_bytes < columns / 4 ? 16 / element_bytes : columns / 4;
}
constexpr int chunk_floats(int chunk) { return 8 * (4 * chunk + 4) + 4 * 8; }

// Of a warp and Columns channels from `first` on.  Sums are named (tile of eight columns, row of two, column of two):
// row lane / 4 or that + 8, column lane % 4 * 2 or that + 1.
template <class Element, int Columns>
struct chunk_writer {
  static constexpr int bytes = sizeof(Element), chunk = chunk_of_columns(Columns, bytes);
  static constexpr int group = 4 * chunk, groups = Columns / group;  // of channels that four threads have
  using warp_out = output_warp<Element, 8, group + 4, group>;
  static_assert(warp_out::floats == chunk_floats(chunk));
  struct alignas(chunk* bytes) words {
    uint32_t v[chunk * bytes / 4];
  };

  const gpu_output& to;
  const float* channels;  // in shared memory: the biases of all columns, then their factors
  int32_t first, lane;
  float* staged;  // warp_out::floats, of the warp

  // To two pixels of a thread, their elements of dst and residual; below zero: none.  Where chunks are whole and
  // nothing but clamps is left.
  // Scaled: factors differ.  Easily: ends_easily(), and channels are easy ones.
  template <bool Residual, bool Scaled = true, bool Easily = false, class Sum>
  QUERN_INLINE void write(const int64_t (&at)[2], const int64_t (&from)[2], Sum sum) const {
    const epilogue_f32& e = to.epilogue;
    const float alpha = Easily ? easy_channel<Element>({e.alpha, 0, 0}).factor : e.alpha;
    uint32_t lower = 0, upper = 0;
    if constexpr (bytes == 2 && !Easily)
      lower = rounded_pair<Element>(e.lower, e.lower), upper = rounded_pair<Element>(e.upper, e.upper);
    // All is computed, and what has a place is stored: without branches the groups overlap.
    const int32_t own = lane % 4 * chunk;
    QUERN_UNROLL
    for (int g = 0; g < groups; ++g) {
      const int32_t column = g * group + own;
      channel_f32 k[chunk];
      QUERN_UNROLL
      for (int v = 0; v < chunk; v += 4) {
        const four_floats bias = load_four(channels + column + v);
        const four_floats factor = Scaled ? load_four(channels + Columns + column + v) : four_floats{};
        QUERN_UNROLL
        for (int i = 0; i < 4; ++i) k[v + i] = {Scaled ? factor.v[i] : alpha, bias.v[i], 0};
      }
      QUERN_UNROLL
      for (int i = 0; i < 2; ++i) {
        const bool exists = at[i] >= 0 && first + column < to.k;
        words r = {}, y;
        if (Residual && exists)
          r = *reinterpret_cast<const words*>(static_cast<const Element*>(to.residual) + (from[i] + first + own) +
                                              g * group);
        const auto sum_of = [&](int v) { return static_cast<float>(sum(g * (chunk / 2) + v / 2, i, v % 2)); };
        const auto finish = [&](int v, float residual) {
          return finished_narrow<Residual>(e, k[v], sum_of(v), residual);
        };
        QUERN_UNROLL
        for (int w = 0; w < chunk * bytes / 4; ++w) {
          const int v = w * 4 / bytes;
          if constexpr (Easily) {
            float of_word[4 / bytes];
            QUERN_UNROLL
            for (int n = 0; n < 4 / bytes; ++n) of_word[n] = finished_easily<Element>(k[v + n], sum_of(v + n));
            y.v[w] = rounded_easily<Element>(of_word);
          } else if constexpr (bytes == 1) {
            float four[4];
            QUERN_UNROLL
            for (int n = 0; n < 4; ++n)
              four[n] = finish(v + n, value(Element{static_cast<decltype(Element::bits)>(r.v[w] >> 8 * n)}));
            y.v[w] = rounded_four<Element>(four);
          } else if constexpr (bytes == 2 && !Residual) {
            const auto scaled = [&](int n) {
              return vec::fma(vec::set1(sum_of(n)), vec::set1(k[n].factor), vec::set1(k[n].bias)).v;
            };
            y.v[w] = limited_pair<Element>(rounded_pair<Element>(scaled(v), scaled(v + 1)), lower, upper);
          } else if constexpr (bytes == 2) {
            const Element low = {static_cast<uint16_t>(r.v[w])}, high = {static_cast<uint16_t>(r.v[w] >> 16)};
            y.v[w] = rounded_pair<Element>(finish(v, value(low)), finish(v + 1, value(high)));
          } else {
            y.v[w] = bits_of(finish(v, float_of(r.v[w])));
          }
        }
        if (exists) *reinterpret_cast<words*>(static_cast<Element*>(to.dst) + (at[i] + first + own) + g * group) = y;
      }
    }
  }

  // Any other output, through shared memory: eight pixels, whose places have been found, by a group of channels.
  QUERN_INLINE warp_out output() const { return {to, staged, lane}; }
  template <class Sum>
  QUERN_INLINE void stage_out(int g, Sum sum) const {
    QUERN_UNROLL
    for (int j = 0; j < chunk / 2; ++j)
      *reinterpret_cast<two_floats*>(output().at(lane / 4, lane % 4 * chunk + 2 * j)) = {
          {sum_bits(sum(g * (chunk / 2) + j, 0)), sum_bits(sum(g * (chunk / 2) + j, 1))}};
  }
  QUERN_INLINE void finish(int g) const { output().finish(0, first + g * group); }
};

#ifdef __CUDACC__

// Eights of pixels of any output: find(eight) finds their places.
template <int Eights, class Writer, class Find, class Sum>
__device__ __forceinline__ void write_any(const Writer& out, Find find, Sum sum) {
  // One copy of the activations; sums must be named by constants.
#pragma unroll 1
  for (int i = 0; i < Eights * Writer::groups; ++i) {
    __syncwarp();
    find(i / Writer::groups);
#pragma unroll
    for (int k = 0; k < Eights * Writer::groups; ++k)
      if (k == i) out.stage_out(k % Writer::groups, [&](int j, int e) { return sum(k / Writer::groups, j, e); });
    __syncwarp();
    out.finish(i % Writer::groups);
  }
}

#endif

}  // namespace
}  // namespace quern
