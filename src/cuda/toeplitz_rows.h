// SPDX-License-Identifier: MIT
//
// The kernel of toeplitz.h for each element type: its entry, or its row.
#pragma once

#include "cuda/toeplitz.h"

#ifdef __CUDACC__

#include "cuda/hopper.h"
#include "cuda/mma.h"

namespace quern {
namespace {

// The same thread, whose place is found anew: it takes no registers meanwhile.
template <class Thread>
__device__ __forceinline__ Thread again(const Thread& t) {
  uint32_t block, index;
  asm volatile("mov.u32 %0, %%ctaid.x;\nmov.u32 %1, %%tid.x;" : "=r"(block), "=r"(index));
  return Thread(t.a, t.shared, block, index);
}

template <class Element>
__device__ __forceinline__ void multiply(toeplitz_images<Element>& t) {
#if __CUDA_ARCH__ >= 800
  constexpr int lines = toeplitz_images<Element>::lines;
  uint32_t x[lines][4];
#pragma unroll
  for (int distance = 1 - lines; distance < lines; ++distance) {
    if (distance <= 0) load_matrices<false>(x[lines - 1 + distance], t.row(lines - 1 + distance));
    if (distance < t.a.first_distance || distance > t.a.last_distance) continue;
    t.load_weights(distance);
#pragma unroll
    for (int line = 0; line < lines; ++line)
      if (line + distance >= 0 && line + distance < lines)
        multiply_halves<Element>(t.sum[line], 0, x[line + distance], t.w[0], t.w[1]);
  }
#endif
}

template <class Element>
__device__ __forceinline__ void run_toeplitz(const toeplitz_conv& a) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) char shared[];
  toeplitz_images<Element> t(a, shared, blockIdx.x, threadIdx.x);
#if __CUDA_ARCH__ >= 900
  let_next_start();
  if (a.ahead) t.request_weights();
  wait_for_previous();
#endif
  if (!a.ahead) t.request_weights();
  t.request_vectors();
  t.turn_in();
  wait_for_fills();
  __syncthreads();
  multiply(t);
  toeplitz_images<Element> last = again(t);
#pragma unroll
  for (int i = 0; i < 4 * t.lines; ++i) last.sum[i / 4][i % 4] = t.sum[i / 4][i % 4];
  __syncwarp();
  last.finish();
  __syncthreads();
  last.turn_out();
#endif
}

}  // namespace
}  // namespace quern

#define QUERN_TOEPLITZ_ENTRY(type)                                                           \
  extern "C" __global__ void __launch_bounds__(quern::toeplitz_images<quern::type>::threads) \
      toeplitz_##type##_14x16_sm80(const __grid_constant__ quern::toeplitz_conv a) {         \
    quern::run_toeplitz<quern::type>(a);                                                     \
  }

#else

#include "cuda/image.h"

#define QUERN_TOEPLITZ_ROW(type) toeplitz_row<toeplitz_images<type>>("toeplitz_" #type "_14x16_sm80")

namespace quern {
namespace {

template <class Thread>
constexpr kernel toeplitz_row(const char* name) {
  return {.name = name,
          .about = "depthwise, any filter on images of up to 14 lines and 16 columns",
          .kind = kind::toeplitz,
          .type = type_of<typename Thread::element>,
          .mr = Thread::lines,
          .nr = Thread::columns,
          .step = 1,
          .image = image,
          .capability = 80,
          .src_align = 16,
          .threads = Thread::threads,
          .shared_bytes = Thread::shared_bytes,
          .early = true};
}

}  // namespace
}  // namespace quern

#endif
