// SPDX-License-Identifier: MIT
//
// Convolution of s8, four channels at a time.
#include "cuda/quads.h"

// As many blocks as are said share a multiprocessor, at least.
#define QUERN_QUADS(X)             \
  X(any, 4, "filters of any size") \
  X(any_step, 5, "filters of any size at any stride")

#ifdef __CUDACC__

#define QUERN_QUADS_ENTRY(name, blocks, about)                                             \
  extern "C" __global__ void __launch_bounds__(quern::few_threads, blocks)                 \
      quads_s8_##name##_sm80(const __grid_constant__ quern::quads_conv a) {                \
    extern __shared__ __align__(16) float shared[];                                        \
    const int32_t index = int32_t(blockIdx.x) * quern::few_threads + int32_t(threadIdx.x); \
    if (index < a.threads) quern::quads_##name::run(a, index, shared + threadIdx.x);       \
  }
QUERN_QUADS(QUERN_QUADS_ENTRY)

#else

#include "cuda/image.h"

namespace quern {
namespace {

template <class Kernel>
constexpr kernel quads_row(const char* name, const char* about) {
  return {.name = name,
          .about = about,
          .kind = kind::quads,
          .type = QUERN_S8,
          .mr = Kernel::lines,
          .nr = Kernel::columns,
          .vector = 4,
          .step = Kernel::step,
          .image = image,
          .capability = 80,
          .src_align = 4,
          .threads = few_threads,
          .shared_bytes = Kernel::shared_bytes};
}

}  // namespace
}  // namespace quern

#define QUERN_QUADS_ROW(name, blocks, about) quads_row<quads_##name>("quads_s8_" #name "_sm80", about),

// Of kind::quads.
QUERN_KERNELS(quads_s8_sm80, QUERN_QUADS(QUERN_QUADS_ROW))

#endif
