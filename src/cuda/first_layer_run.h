// SPDX-License-Identifier: MIT
//
// A block of first_layer.h, which walks over tiles.  nvcc alone reads this.
#pragma once

#include "cuda/first_layer.h"
#include "cuda/hopper.h"
#include "cuda/mma.h"

namespace quern {
namespace {

#if __CUDA_ARCH__ >= 800

template <class Tile>
__device__ __forceinline__ void multiply(const Tile& t, float (&sum)[Tile::tiles][8]) {
  if constexpr (Tile::halves) {
#pragma unroll 2
    for (int32_t step = 0; step < t.a.steps; ++step) {
      uint32_t x[2][4];
      t.load_pixels(x, step);
#pragma unroll
      for (int j = 0; j < Tile::fours; ++j) {
        const four_words w = t.load_weights_of(step, j);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          multiply_halves<typename Tile::element>(sum[2 * j + i / 2], i % 2 * 4, x[i % 2], w.v[i / 2 * 2],
                                                  w.v[i / 2 * 2 + 1]);
      }
    }
  } else {
    float part[Tile::tiles][2][4] = {};
#pragma unroll 1
    for (int32_t step = 0; step < t.a.steps;) {
      uint32_t x[2][4];
      t.load_pixels(x, step);
      tf32_pair p[2][4];
#pragma unroll
      for (int k = 0; k < 8; ++k) p[k / 4][k % 4] = split_tf32(__uint_as_float(x[k / 4][k % 4]));
#pragma unroll
      for (int j = 0; j < Tile::fours; ++j) {
        const four_words u = t.load_weights_of(step, j);
        float w[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) w[k] = __uint_as_float(u.v[k]);
#pragma unroll
        for (int m = 0; m < 2; ++m)
          multiply_tf32(part[j][m], p[m][0].low, p[m][1].low, p[m][2].low, p[m][3].low, w[0], w[1]);
#pragma unroll
        for (int m = 0; m < 2; ++m)
          multiply_tf32(part[j][m], p[m][0].high, p[m][1].high, p[m][2].high, p[m][3].high, w[2], w[3]);
#pragma unroll
        for (int m = 0; m < 2; ++m)
          multiply_tf32(part[j][m], p[m][0].high, p[m][1].high, p[m][2].high, p[m][3].high, w[0], w[1]);
      }
      if (++step % Tile::together != 0 && step < t.a.steps) continue;
#pragma unroll
      for (int i = 0; i < 8 * Tile::tiles; ++i)
        sum[i / 8][i % 8] += part[i / 8][i / 4 % 2][i % 4], part[i / 8][i / 4 % 2][i % 4] = 0;
    }
  }
}

template <class Tile>
__device__ __forceinline__ void write(const Tile& t, const typename Tile::tile_place& at,
                                      const float (&sum)[Tile::tiles][8]) {
  if (t.whole_chunks()) {
    if (t.a.out.epilogue.residual == QUERN_RESIDUAL_NONE) return t.template write_chunks<false>(at, sum);
    return t.template write_chunks<true>(at, sum);
  }
  write_any<4, typename Tile::writer>(
      t.out(), [&](int i) { t.find_places(at, i); }, [&](int i, int j, int e) { return sum[j][2 * i + e]; });
}

#endif

template <class Tile>
__device__ __forceinline__ void run(const first_conv& a) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) uint32_t shared[];
  Tile t(a, shared, blockIdx.x, threadIdx.x);
  t.make_tables();
#if __CUDA_ARCH__ >= 900
  let_next_start();
  wait_for_previous();
#endif
  const int32_t items = a.tiles * a.chunks;
  t.load_weights();
  t.request(t.place_of(blockIdx.x));
  t.load_channels();
  for (int32_t item = blockIdx.x; item < items; item += gridDim.x) {
    const typename Tile::tile_place here = t.place_of(item);
    wait_for_fills();
    __syncthreads();
    t.arrange(here);
    __syncthreads();
    // The next tile arrives while this one is multiplied.
    if (item + gridDim.x < items) t.request(t.place_of(item + gridDim.x));
    t.strip = t.panel = 0;
    for (bool more = t.begin(threadIdx.x / 32); more; more = t.begin(Tile::warps)) {
      float sum[Tile::tiles][8] = {};
      multiply(t, sum);
      write(t, here, sum);
    }
  }
#endif
}

}  // namespace
}  // namespace quern
