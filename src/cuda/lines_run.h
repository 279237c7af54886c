// SPDX-License-Identifier: MIT
//
// A block of lines.h, which walks down some lines.  nvcc alone reads this.
#pragma once

#include <type_traits>

#include "cuda/hopper.h"
#include "cuda/lines.h"

namespace quern {
namespace {

// The lines of inputs of a round, from its line I on: take_line(thread, k, number) makes sums of one that is number k
// of a step, and the last one that a line of outputs meets finishes that.
template <bool Plain, int I, int Round, class Thread>
__device__ __forceinline__ void take_round(Thread& t, int32_t number, int32_t count, int32_t line) {
  if constexpr (I < Round) {
    constexpr int together = Thread::set_lines, K = I % Thread::step;
    if ((Round % together == 0 ? I : number + I) % together == 0) {
      wait_for_sets<ring_sets - 2>();
      __syncthreads();
      t.request(number + I + (ring_sets - 1) * together, count);
      close_fills();
    }
    take_line(t, std::integral_constant<int, K>(), number + I);
    if (K == (Thread::taps - 1) % Thread::step) t.template finish<Plain>(line);
    take_round<Plain, I + 1, Round>(t, number, count, K == Thread::step - 1 ? line + 1 : line);
  }
}

// Plain: the epilogue is known to be, so nothing branches between the lines of a set: a round has all of them, and what
// one waits for the others hide.
template <bool Plain, class Thread>
__device__ __forceinline__ void walk_down(Thread& t, int32_t count) {
  constexpr int depth = (Thread::taps + Thread::step - 1) / Thread::step;
  constexpr int round = Plain && Thread::set_lines > Thread::step ? Thread::set_lines : Thread::step;
  static_assert(round % Thread::step == 0);
  const int32_t numbers = (t.end - t.line + depth - 1) * Thread::step;
  int32_t line = 1 - depth;
#pragma unroll 1
  for (int32_t number = 0; number < numbers; number += round, line += round / Thread::step)
    take_round<Plain, 0, round>(t, number, count, line);
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
  const int32_t count = t.line_count(Thread::taps);
#pragma unroll 1
  for (int32_t number = 0; number < (ring_sets - 1) * Thread::set_lines; number += Thread::set_lines) {
    t.request(number, count);
    close_fills();
  }
  if (!a.ahead) t.load_weights();
  t.load_channels();
  if constexpr (Thread::writes_plain) {
    if (t.plain) return walk_down<true>(t, count);
  }
  walk_down<false>(t, count);
#endif
}

}  // namespace
}  // namespace quern
