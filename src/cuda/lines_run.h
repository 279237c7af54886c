// SPDX-License-Identifier: MIT
//
// A block of lines.h, which walks down some lines.  nvcc alone reads this.
#pragma once

#include <type_traits>

#include "cuda/hopper.h"
#include "cuda/lines.h"

namespace quern {
namespace {

// Line `number` of inputs, which take_line(thread, k, number) makes sums of when it is number k of a step.
template <int K, class Thread>
__device__ __forceinline__ void take(Thread& t, int32_t number, int32_t& line) {
  if (number % Thread::step == K) {
    take_line(t, std::integral_constant<int, K>(), number);
    if (K == (Thread::taps - 1) % Thread::step) t.finish(line);
    if (K == Thread::step - 1) ++line;
  } else if constexpr (K + 1 < Thread::step) {
    take<K + 1>(t, number, line);
  }
}

template <class Thread>
__device__ __forceinline__ void run(const lines_conv& a) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) float shared[];
  Thread t(a, shared, blockIdx.x, threadIdx.x);
#if __CUDA_ARCH__ >= 900
  let_next_start();
  wait_for_previous();
#endif
  constexpr int depth = (Thread::taps + Thread::step - 1) / Thread::step;
  const int32_t count = t.line_count(Thread::taps), numbers = (t.end - t.line + depth - 1) * Thread::step;
#pragma unroll 1
  for (int32_t number = 0; number < ring_lines - 1; ++number) {
    if (number < count) t.request(number);
    close_fills();
  }
  t.load_weights();
  int32_t line = 1 - depth;
#pragma unroll 1
  for (int32_t number = 0; number < numbers; ++number) {
    wait_for_sets<ring_lines - 2>();
    __syncthreads();
    if (number + ring_lines - 1 < count) t.request(number + ring_lines - 1);
    close_fills();
    take<0>(t, number, line);
  }
#endif
}

}  // namespace
}  // namespace quern
