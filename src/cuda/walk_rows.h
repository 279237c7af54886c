// SPDX-License-Identifier: MIT
//
// The kernels of walk.h for each element type: their entries, or their rows.  As many blocks as are said share a
// multiprocessor, at least.
#pragma once

#include "cuda/walk.h"

#define QUERN_WALK_KERNELS(X, type, element)                 \
  X(type, element, c1_3x3, 5, "depthwise 3x3")               \
  X(type, element, c1_3x3s2, 6, "depthwise 3x3 at stride 2") \
  X(type, element, c1_5x5, 4, "depthwise 5x5")               \
  X(type, element, c1_5x5s2, 4, "depthwise 5x5 at stride 2") \
  X(type, element, c1_7x7, 3, "depthwise 7x7")               \
  X(type, element, c1_7x7s2, 3, "depthwise 7x7 at stride 2")
#define QUERN_WALK_PAIRS(X, type, element)                            \
  X(type, element, c2_3x3, 3, "depthwise 3x3, two channels a thread") \
  X(type, element, c2_3x3s2, 4, "depthwise 3x3 at stride 2, two channels a thread")
#define QUERN_WALK_GROUPS(X, type, element)                       \
  X(type, element, c4_3x3, 4, "4 channels a group")               \
  X(type, element, c4_3x3s2, 4, "4 channels a group at stride 2") \
  X(type, element, c8_3x3, 3, "8 channels a group")               \
  X(type, element, c8_3x3s2, 3, "8 channels a group at stride 2") \
  X(type, element, c16_3x3, 2, "16 channels a group")

#ifdef __CUDACC__

#include "cuda/lines_run.h"

namespace quern {
namespace {
template <class Element, int Group, int Taps, int Step, int Columns, int Outputs, int K>
__device__ __forceinline__ void take_line(walk_thread<Element, Group, Taps, Step, Columns, Outputs>& t,
                                          std::integral_constant<int, K>, int32_t number) {
  t.add(K, number);
}
}  // namespace
}  // namespace quern

#define QUERN_WALK_ENTRY(type, element, name, blocks, about)                     \
  extern "C" __global__ void __launch_bounds__(128, blocks)                      \
      walk_##type##_##name##_sm80(const __grid_constant__ quern::lines_conv a) { \
    quern::run<quern::walk_kernels<element>::name>(a);                           \
  }

#else

#include "cuda/lines_rows.h"

#define QUERN_WALK_ROW(type, element, name, blocks, about) \
  lines_row<walk_kernels<element>::name>(kind::walk, "walk_" #type "_" #name "_sm80", blocks, about),

#endif
