// SPDX-License-Identifier: MIT
//
// The matrix instructions of a warp, capability 8.0 and later.  nvcc alone has a use for this.
#pragma once

#include "half.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

namespace quern {
namespace {

// Four matrices of 8 x 8 elements of 16 bits, whose rows lanes name eight by eight; Turned: transposed.
template <bool Turned>
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void* row) {
  const uint32_t from = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (Turned) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from));
  }
}
// The first two of them.
__device__ __forceinline__ void load_two_matrices(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row))));
}
// d[16 x 8] += x[16 x 16] * w[16 x 8]; d is four elements from `at` on.
// Of 8-bit elements 32 are multiplied, and a pair is what an element of 16 bits is.
#define QUERN_MULTIPLY(type)                                           \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type           \
      ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "                   \
      "{%0,%1,%2,%3};"                                                 \
      : "+f"(d[at]), "+f"(d[at + 1]), "+f"(d[at + 2]), "+f"(d[at + 3]) \
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(w0), "r"(w1))
template <class Element, int N>
__device__ __forceinline__ void multiply_halves(float (&d)[N], int at, const uint32_t (&x)[4], uint32_t w0,
                                                uint32_t w1) {
  if constexpr (type_of<Element> == QUERN_F16) {
    QUERN_MULTIPLY("f16");
  } else if constexpr (type_of<Element> == QUERN_BF16) {
    QUERN_MULTIPLY("bf16");
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[at]), "+f"(d[at + 1]), "+f"(d[at + 2]), "+f"(d[at + 3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(w0), "r"(w1));
  }
}
template <class Element, int N>
__device__ __forceinline__ void multiply_halves(int32_t (&d)[N], int at, const uint32_t (&x)[4], uint32_t w0,
                                                uint32_t w1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(d[at]), "+r"(d[at + 1]), "+r"(d[at + 2]), "+r"(d[at + 3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(w0), "r"(w1));
}
// d[16 x 8] += x[16 x 8] * w[8 x 8].
#define QUERN_MULTIPLY_EIGHT(type)                                                                              \
  asm("mma.sync.aligned.m16n8k8.row.col.f32." type "." type ".f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};" \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                          \
      : "r"(x[0]), "r"(x[1]), "r"(w))
template <class Element>
__device__ __forceinline__ void multiply_eight(float (&d)[4], const uint32_t (&x)[4], uint32_t w) {
  if constexpr (type_of<Element> == QUERN_F16) {
    QUERN_MULTIPLY_EIGHT("f16");
  } else {
    QUERN_MULTIPLY_EIGHT("bf16");
  }
}
__device__ __forceinline__ void multiply_tf32(float (&d)[4], float x0, float x1, float x2, float x3, float w0,
                                              float w1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(x0)), "r"(__float_as_uint(x1)), "r"(__float_as_uint(x2)), "r"(__float_as_uint(x3)),
        "r"(__float_as_uint(w0)), "r"(__float_as_uint(w1)));
}

}  // namespace
}  // namespace quern

#endif
