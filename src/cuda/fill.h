// SPDX-License-Identifier: MIT
//
// Copies into shared memory, for any compiler.
#pragma once

#include <type_traits>

#include "cuda/output.h"

namespace quern {
namespace {

// Asynchronous where the GPU can; zero when `there` is false, without reading.
template <int Bytes>
QUERN_INLINE void fill(void* shared, const void* from, bool there) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (Bytes == 1) {
    *static_cast<uint8_t*>(shared) = there ? *static_cast<const uint8_t*>(from) : uint8_t{0};
  } else if constexpr (Bytes == 2) {
    *static_cast<uint16_t*>(shared) = there ? *static_cast<const uint16_t*>(from) : uint16_t{0};
  } else if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
  }
#else
  using narrow = std::conditional_t<Bytes == 2, uint16_t, uint8_t>;
  using chunk = std::conditional_t<Bytes == 16, four_floats, std::conditional_t<Bytes == 4, float, narrow> >;
  *static_cast<chunk*>(shared) = there ? *static_cast<const chunk*>(from) : chunk{};
#endif
}

#if defined(__CUDACC__)
// What this thread has asked for so far is a set; all but the last `But` sets are there.
__device__ __forceinline__ void close_fills() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int But>
__device__ __forceinline__ void wait_for_sets() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(But) : "memory");
#endif
}
// All that this thread has asked for is there.
__device__ __forceinline__ void wait_for_fills() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
#endif

}  // namespace
}  // namespace quern
