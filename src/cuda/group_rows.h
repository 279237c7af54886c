// SPDX-License-Identifier: MIT
//
// The kernels of group.h for each element type: their entries, or their rows.  As many blocks as are said share a
// multiprocessor, at least.
#pragma once

#include "cuda/group.h"

#define QUERN_GROUP_KERNELS(X, type)                           \
  X(type, d8_7x7, 3, "groups of up to 8 channels, 7x7")        \
  X(type, d16, 4, "groups of up to 16 channels")               \
  X(type, d16s2, 4, "groups of up to 16 channels at stride 2") \
  X(type, d32, 3, "groups of 32 channels")                     \
  X(type, d32s2, 3, "groups of 32 channels at stride 2")

#ifdef __CUDACC__

#include "cuda/lines_run.h"
#include "cuda/mma.h"

namespace quern {
namespace {
template <class Element, int Depth, int Taps, int Step, int K>
__device__ __forceinline__ void take_line(group_thread<Element, Depth, Taps, Step>& t, std::integral_constant<int, K>,
                                          int32_t number) {
#if __CUDA_ARCH__ >= 800
  using thread = group_thread<Element, Depth, Taps, Step>;
  if (K == 0) t.move_up();
  if (thread::leaves_out && !t.has_input(number)) return;
#pragma unroll
  for (int i = 0; i < (thread::small ? (Taps + 1) / 2 : Taps * thread::steps); ++i) {
    const int s = thread::small ? 2 * i : i / thread::steps, at = i % thread::steps;
    const bool whole = !thread::small || s + 1 < Taps;
    uint32_t x[4];
    if (whole) {
      load_matrices<false>(x, t.row(number, s, at));
    } else {
      load_two_matrices(x, t.row(number, s, at));
    }
#pragma unroll
    for (int j = 0; j < thread::met; ++j) {
      const int r = j * Step + K;
      if (r >= Taps) continue;
      const uint32_t* const w = t.w + (r * Taps + s) * thread::words + 4 * at;
      if constexpr (!thread::small) {
#pragma unroll
        for (int n = 0; n < 2; ++n) multiply_halves<Element>(t.sum[j][n], 0, x, w[2 * n], w[2 * n + 1]);
      } else if (whole) {
        multiply_halves<Element>(t.sum[j][0], 0, x, w[0], w[1]);
      } else {
        multiply_eight<Element>(t.sum[j][0], x, w[0]);
      }
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
