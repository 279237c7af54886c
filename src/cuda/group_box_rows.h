// SPDX-License-Identifier: MIT
//
// The kernels of group_box.h for each element type: their entries, or their rows.  As many blocks as are said share a
// multiprocessor.
#pragma once

#include "cuda/group_box.h"

#define QUERN_GROUP_BOX_KERNELS(X, type, element, small, large, how) \
  X(type, element, c8, small, how "groups of up to 8 channels, 3x3") \
  X(type, element, c16, large, how "groups of 16 channels, 3x3")

#ifdef __CUDACC__

#include "cuda/hopper.h"
#include "cuda/mma.h"

namespace quern {
namespace {

// A box from these channels on; hopper.h's has all channels, or pixels of no lines.
__device__ __forceinline__ void store_channels(const tensor_map& map, uint32_t from, int32_t c, int32_t w, int32_t h,
                                               int32_t n) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2,%3,%4,%5}], [%1];" ::"l"(&map),
               "r"(from), "r"(c), "r"(w), "r"(h), "r"(n)
               : "memory");
}

template <class Element, int Depth, int High>
__device__ __forceinline__ void take_line(group_tile<Element, Depth, High>& t, int line) {
#if __CUDA_ARCH__ >= 800
  using tile = group_tile<Element, Depth, High>;
  constexpr bool small = tile::tiles == 1;
  t.move_up();
#pragma unroll
  for (int s = 0; s < tile::taps; s += small ? 2 : 1) {
    const bool whole = !small || s + 1 < tile::taps;
    uint32_t x[4];
    if (whole) {
      load_matrices<false>(x, t.row(line, s, 0));
    } else {
      load_two_matrices(x, t.row(line, s, 0));
    }
#pragma unroll
    for (int r = 0; r < tile::taps; ++r) {
      if (line < r || line - r >= High) continue;
      const uint32_t* const w = t.w + (r * tile::taps + s) * tile::words;
      if constexpr (!small) {
#pragma unroll
        for (int n = 0; n < tile::tiles; ++n) multiply_halves<Element>(t.sum[r][n], 0, x, w[2 * n], w[2 * n + 1]);
      } else if (whole) {
        multiply_halves<Element>(t.sum[r][0], 0, x, w[0], w[1]);
      } else {
        multiply_eight<Element>(t.sum[r][0], x, w[0]);
      }
    }
  }
  // All lanes have read what some write to.
  __syncwarp();
  if (line >= tile::taps - 1) t.finish(line - (tile::taps - 1));
#endif
}

// Of f32, for outputs of which it is line `From` to line `To` under the filter: products of eight channels, small ones
// first, from zero.
template <int From, int To, class Tile>
__device__ __forceinline__ void take_parts(Tile& t, int line) {
#if __CUDA_ARCH__ >= 800
  t.move_up();
#pragma unroll
  for (int k = 0; k < Tile::tiles; ++k) {
    float part[Tile::taps][Tile::tiles][4] = {}, high[Tile::taps][4];
    const auto multiply = [&](const float(&x)[4], int s, int second) {
#pragma unroll
      for (int r = From; r <= To; ++r)
#pragma unroll
        for (int n = 0; n < Tile::tiles; ++n) {
          const uint32_t* const w = t.w + (r * Tile::taps + s) * Tile::words + (k * Tile::tiles + n) * 4 + second;
          multiply_tf32(part[r][n], x[0], x[1], x[2], x[3], __uint_as_float(w[0]), __uint_as_float(w[1]));
        }
    };
#pragma unroll
    for (int s = 0; s < Tile::taps; ++s) {
      uint32_t x[4];
      load_matrices<false>(x, t.row(line, s, k));
      float low[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const tf32_pair two = split_tf32(__uint_as_float(x[i]));
        high[s][i] = two.high, low[i] = two.low;
      }
      multiply(low, s, 0);
      multiply(high[s], s, 2);
    }
#pragma unroll
    for (int s = 0; s < Tile::taps; ++s) multiply(high[s], s, 0);
#pragma unroll
    for (int r = From; r <= To; ++r)
#pragma unroll
      for (int i = 0; i < 4 * Tile::tiles; ++i) {
        float& sum = t.sum[r][i / 4][i % 4];
        sum = r + k == 0 ? part[r][i / 4][i % 4] : sum + part[r][i / 4][i % 4];
      }
  }
  __syncwarp();
  if (To == Tile::taps - 1) t.finish(line - To);
#endif
}

// A loop: unrolled it is larger, and no faster on an H200.
template <class Tile>
__device__ __forceinline__ void take_all_parts(Tile& t) {
  take_parts<0, 0>(t, 0);
  take_parts<0, 1>(t, 1);
#pragma unroll 1
  for (int line = 2; line < Tile::high; ++line) take_parts<0, 2>(t, line);
  take_parts<1, 2>(t, Tile::high);
  take_parts<2, 2>(t, Tile::high + 1);
}

template <class Tile>
__device__ __forceinline__ void run(const group_box& a) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) char memory[];
  char* const shared = memory + (-shared_address(memory) & 1023);
  const uint32_t base = shared_address(shared), bar = base + Tile::barrier_at;
  Tile t(a, shared, blockIdx.x, threadIdx.x);
  if (threadIdx.x == 0) {
    prefetch(a.src), prefetch(a.dst);
    init_barrier(bar, 1);
    publish_barriers();
  }
  let_next_start();
  if (a.ahead) t.load_weights();
  wait_for_previous();
  if (threadIdx.x == 0) {
    arrive_expecting(bar, Tile::box_bytes);
    copy_box(base, a.src, bar, t.first_channel(), t.x + a.begin_w, t.y + a.begin_h, t.n);
  }
  if (!a.ahead) t.load_weights();
  t.load_channels();
  __syncthreads();
  wait(bar, 0);
  if constexpr (Tile::parts) {
    take_all_parts(t);
  } else {
#pragma unroll
    for (int line = 0; line < Tile::lines; ++line) take_line(t, line);
  }
  publish_to_engine();
  __syncthreads();
  if (!a.stores) return t.write_out();
  if (threadIdx.x >= Tile::high) return;
  store_channels(a.dst, base + threadIdx.x * Tile::line_bytes, t.first_channel(), t.x, t.y + int32_t(threadIdx.x), t.n);
  store_commit();
  store_wait<0>();
#endif
}

}  // namespace
}  // namespace quern

#define QUERN_GROUP_BOX_ENTRY(type, element, name, blocks, about)                                  \
  extern "C" __global__ void __launch_bounds__(quern::group_tiles<element>::name::threads, blocks) \
      group_box_##type##_##name##_sm90a(const __grid_constant__ quern::group_box a) {              \
    quern::run<quern::group_tiles<element>::name>(a);                                              \
  }

#else

#include "cuda/image.h"

#define QUERN_GROUP_BOX_ROW(type, element, name, blocks, about) \
  group_box_row<group_tiles<element>::name>("group_box_" #type "_" #name "_sm90a", blocks, about),

namespace quern {
namespace {

template <class Tile>
constexpr kernel group_box_row(const char* name, int16_t blocks, const char* about) {
  return {.name = name,
          .about = about,
          .kind = kind::group_box,
          .type = type_of<typename Tile::element>,
          .mr = Tile::high,
          .nr = group_box_wide,
          .taps = Tile::taps,
          .step = 1,
          .group = Tile::depth,
          .tile = blocks,
          .image = image,
          .capability = 90,
          .capability_alone = true,
          .src_align = 16,
          .threads = Tile::threads,
          .shared_bytes = Tile::shared_bytes,
          .early = true};
}

}  // namespace
}  // namespace quern

#endif
