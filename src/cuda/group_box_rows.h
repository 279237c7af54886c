// SPDX-License-Identifier: MIT
//
// The kernels of group_box.h for each element type: their entries, or their rows.  As many blocks as are said share a
// multiprocessor.
#pragma once

#include "cuda/group_box.h"

#define QUERN_GROUP_BOX_KERNELS(X, type)            \
  X(type, c8, 6, "groups of up to 8 channels, 3x3") \
  X(type, c16, 5, "groups of 16 channels, 3x3")

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

template <class Element, int Depth>
__device__ __forceinline__ void take_line(group_tile<Element, Depth>& t, int line) {
#if __CUDA_ARCH__ >= 800
  using tile = group_tile<Element, Depth>;
  constexpr bool small = tile::tiles == 1;
  t.move_up();
#pragma unroll
  for (int s = 0; s < tile::taps; s += small ? 2 : 1) {
    const bool whole = !small || s + 1 < tile::taps;
    uint32_t x[4];
    if (whole) {
      load_matrices<false>(x, t.row(line, s));
    } else {
      load_two_matrices(x, t.row(line, s));
    }
#pragma unroll
    for (int r = 0; r < tile::taps; ++r) {
      if (line < r || line - r >= group_box_high) continue;
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
#pragma unroll
  for (int line = 0; line < Tile::lines; ++line) take_line(t, line);
  publish_to_engine();
  __syncthreads();
  if (!a.stores) return t.write_out();
  if (threadIdx.x >= group_box_high) return;
  store_channels(a.dst, base + threadIdx.x * Tile::line_bytes, t.first_channel(), t.x, t.y + int32_t(threadIdx.x), t.n);
  store_commit();
  store_wait<0>();
#endif
}

}  // namespace
}  // namespace quern

#define QUERN_GROUP_BOX_ENTRY(type, name, blocks, about)                                               \
  extern "C" __global__ void __launch_bounds__(quern::group_tiles<quern::type>::name::threads, blocks) \
      group_box_##type##_##name##_sm90a(const __grid_constant__ quern::group_box a) {                  \
    quern::run<quern::group_tiles<quern::type>::name>(a);                                              \
  }

#else

#include "cuda/image.h"

#define QUERN_GROUP_BOX_ROW(type, name, blocks, about) \
  group_box_row<group_tiles<type>::name>("group_box_" #type "_" #name "_sm90a", blocks, about),

namespace quern {
namespace {

template <class Tile>
constexpr kernel group_box_row(const char* name, int16_t blocks, const char* about) {
  return {.name = name,
          .about = about,
          .kind = kind::group_box,
          .type = type_of<typename Tile::element>,
          .mr = group_box_high,
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
