// SPDX-License-Identifier: MIT
//
// The kernels of few_channels.h for each element type: their entries, or their rows.  Blocks of threads that share a
// multiprocessor, at least, say how many registers each may have.
#pragma once

#include "cuda/few_channels.h"

#define QUERN_FEW_KERNELS(X, type, element)                         \
  QUERN_FEW_KERNELS_OF_BYTES(X, type, element, 75)                  \
  X(type, element, 75, anys2, 4, "filters of any size at stride 2") \
  X(type, element, 75, line14, 6, "filters that reach over lines of up to 14 pixels")
// Of 8 bits fewer.
#define QUERN_FEW_KERNELS_OF_BYTES(X, type, element, sm) \
  X(type, element, sm, any, 4, "filters of any size")    \
  X(type, element, sm, any_step, 5, "filters of any size at any stride")

#ifdef __CUDACC__

#define QUERN_FEW_ENTRY(type, element, sm, name, blocks, about)                                    \
  extern "C" __global__ void __launch_bounds__(quern::few_threads, blocks)                         \
      few_##type##_##name##_sm##sm(const __grid_constant__ quern::few_conv a) {                    \
    extern __shared__ __align__(16) float shared[];                                                \
    const int32_t index = int32_t(blockIdx.x) * quern::few_threads + int32_t(threadIdx.x);         \
    if (index < a.threads) quern::few_kernels<element>::name::run(a, index, shared + threadIdx.x); \
  }

#else

#include "cuda/image.h"

#define QUERN_FEW_ROW(type, element, sm, name, blocks, about) \
  few_row<few_kernels<element>::name>("few_" #type "_" #name "_sm" #sm, about, sm),

namespace quern {
namespace {

template <class Kernel>
constexpr kernel few_row(const char* name, const char* about, uint32_t capability) {
  return {.name = name,
          .about = about,
          .kind = kind::few_channels,
          .type = type_of<typename Kernel::element>,
          .mr = Kernel::lines,
          .nr = Kernel::columns,
          .vector = 1,
          .step = Kernel::step,
          .group = Kernel::group,
          .image = image,
          .capability = capability,
          .src_align = sizeof(typename Kernel::element),
          .threads = few_threads,
          .shared_bytes = Kernel::shared_bytes};
}

}  // namespace
}  // namespace quern

#endif
