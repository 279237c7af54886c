// SPDX-License-Identifier: MIT
//
// The kernels of group.h for each element type: their entries, or their rows.  As many blocks as are said share a
// multiprocessor, at least.
#pragma once

#include "cuda/group.h"

#define QUERN_GROUP_KERNELS(X, type)                           \
  X(type, d16, 4, "groups of up to 16 channels")               \
  X(type, d16s2, 4, "groups of up to 16 channels at stride 2") \
  X(type, d32, 3, "groups of 32 channels")                     \
  X(type, d32s2, 3, "groups of 32 channels at stride 2")

#ifdef __CUDACC__

#include "cuda/lines_run.h"
#include "cuda/mma.h"

namespace quern {
namespace {
template <class Element, int Depth, int Step, int K>
__device__ __forceinline__ void take_line(group_thread<Element, Depth, Step>& t, std::integral_constant<int, K>,
                                          int32_t number) {
#if __CUDA_ARCH__ >= 800
  using thread = group_thread<Element, Depth, Step>;
  if (K == 0) t.move_up();
#pragma unroll
  for (int i = 0; i < thread::taps * thread::steps; ++i) {
    const int s = i / thread::steps, at = i % thread::steps;
    uint32_t x[4];
    load_matrices<false>(x, t.row(number, s, at));
#pragma unroll
    for (int j = 0; j < thread::met; ++j) {
      const int r = j * Step + K;
      if (r >= thread::taps) continue;
      const group_weights& w = t.w[r * thread::taps + s][at];
#pragma unroll
      for (int n = 0; n < 2; ++n) multiply_halves<Element>(t.sum[j][n], 0, x, w.v[2 * n], w.v[2 * n + 1]);
    }
  }
#endif
}
}  // namespace
}  // namespace quern

#define QUERN_GROUP_ENTRY(type, name, blocks, about)                              \
  extern "C" __global__ void __launch_bounds__(128, blocks)                       \
      group_##type##_##name##_sm80(const __grid_constant__ quern::lines_conv a) { \
    quern::run<quern::group_kernels<quern::type>::name>(a);                       \
  }

#else

#include "cuda/lines_rows.h"

#define QUERN_GROUP_ROW(type, name, blocks, about) \
  lines_row<group_kernels<type>::name>(kind::group, "group_" #type "_" #name "_sm80", blocks, about),

#endif
