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
  if (a.ahead) t.load_weights();
  wait_for_previous();
#endif
  constexpr int together = Thread::set_lines, depth = (Thread::taps + Thread::step - 1) / Thread::step;
  const int32_t count = t.line_count(Thread::taps), numbers = (t.end - t.line + depth - 1) * Thread::step;
  const auto request = [&](int32_t number) {
    t.request(number, count);
    close_fills();
  };
#pragma unroll 1
  for (int32_t number = 0; number < (ring_sets - 1) * together; number += together) request(number);
  if (!a.ahead) t.load_weights();
  t.load_channels();
  int32_t line = 1 - depth;
#pragma unroll 1
  for (int32_t number = 0; number < numbers; ++number) {
    if (number % together == 0) {
      wait_for_sets<ring_sets - 2>();
      __syncthreads();
      request(number + (ring_sets - 1) * together);
    }
    take<0>(t, number, line);
  }
#endif
}

}  // namespace
}  // namespace quern
