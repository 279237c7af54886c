// SPDX-License-Identifier: MIT
//
// Tiles of f32 by three products of F16 (f16x3.h).
#pragma once

#include "cuda/f16x3.h"
#include "cuda/tma_f32.h"

namespace quern {
namespace {

// By value in the kernel's parameters: exponents that src and each channel's weights are scaled by.
struct tma_scaled_conv : tma_conv {
  int32_t exponent;
  const int32_t* exponents;  // [group][channel], as many channels as panels have
};

// A row of weights has a chunk's high parts, then the low ones.
struct tma_f16x3 {
  using parameters = tma_scaled_conv;
  using element = f16;
  using part = uint32_t;
  static constexpr int steps = 2, matrices = 1;

  float scale;

  QUERN_INLINE explicit tma_f16x3(const tma_scaled_conv& a) : scale(power_of_two(a.exponent)) {}

  // Step c % 8 / 4, of whose columns thread t of four has 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
  QUERN_INLINE static int32_t column(int32_t c) { return c % 8 / 4 * 16 + c % 4 / 2 * 8 + c / 8 * 2 + c % 2; }
  QUERN_INLINE void split(const tma_f32_own& x, part (&high)[steps][4], part (&low)[steps][4]) const {
    QUERN_UNROLL
    for (int i = 0; i < 8; ++i) {
      const float* const v = x[i / 4][i / 2 % 2].v + i % 2 * 2;
      const f16_pairs two = split_f16(v[0] * scale, v[1] * scale);
      high[i / 2 % 2][i / 4 + i % 2 * 2] = two.high;
      low[i / 2 % 2][i / 4 + i % 2 * 2] = two.low;
    }
  }
  template <int N>
  QUERN_INLINE void finish(const tma_scaled_conv& a, const tma_place& place, float (&sum)[N], int32_t thread) const {
    const int32_t* const own =
        a.exponents + (int64_t{place.group} * a.channel_tiles.by + place.panel) * (2 * N) + tma_column(thread, 0);
    QUERN_UNROLL
    for (int k = 0; k < N; ++k) sum[k] = unscaled(sum[k], a.exponent + own[k / 4 * 8 + k % 2]);
  }
};

// Names: w3 takes three taps along w at once, the others two chunks.
using tma_f16x3_128x128 = tma_tile_f32<tma_f16x3, 2, 128, 3, 2>;
using tma_f16x3_192x64 = tma_tile_f32<tma_f16x3, 3, 64, 3, 2>;
using tma_f16x3_128x64 = tma_tile_f32<tma_f16x3, 2, 64, 4, 2>;
using tma_f16x3_128x64_w3 = tma_tile_f32<tma_f16x3, 2, 64, 4, 1, 3>;

}  // namespace
}  // namespace quern
