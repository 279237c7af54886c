// SPDX-License-Identifier: MIT
//
// A block of implicit.h from its first load to dst.  nvcc alone reads this.
#pragma once

#include "cuda/implicit.h"

namespace quern {
namespace {

template <class Tile>
__device__ __forceinline__ void run(const implicit_conv& a, const implicit_tap* taps) {
  extern __shared__ __align__(16) float shared[];
  Tile t(a, taps, blockIdx.x, threadIdx.x, shared);
  const auto commit = [] {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  };
  const auto arrived = [] {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
  };
  __syncthreads();
  t.load(), commit();
  t.load(), commit();
  for (int32_t i = 0; i < a.steps; ++i) {
    arrived();
    __syncthreads();
    t.load(), commit();
    if constexpr (Tile::tensor) {
#if __CUDA_ARCH__ >= 800
      if constexpr (Tile::halves) {
        t.multiply_halves_on_tensor_cores();
      } else {
        t.multiply_on_tensor_cores();
      }
#endif
    } else {
      t.multiply();
    }
  }
  __syncthreads();
  t.find_places();
  t.stage(0);
  __syncwarp();
  t.finish(0);
  __syncwarp();
  t.stage(1);
  __syncwarp();
  t.finish(1);
}

}  // namespace
}  // namespace quern
