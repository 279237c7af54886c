// SPDX-License-Identifier: MIT
//
// A vector of one float: what vec_<isa>.h promises, for a thread of a GPU and for any host.  The same bits as
// there, so activations are written once.
#pragma once

#include <math.h>
#include <string.h>

#include "kernel.h"

namespace quern {
namespace {

struct vec {
  float v;

  QUERN_INLINE static vec set1(float x) { return {x}; }
  QUERN_INLINE static vec zero() { return {0.0f}; }
  QUERN_INLINE friend vec operator+(vec a, vec b) { return {a.v + b.v}; }
  QUERN_INLINE friend vec operator-(vec a, vec b) { return {a.v - b.v}; }
  QUERN_INLINE friend vec operator*(vec a, vec b) { return {a.v * b.v}; }
  QUERN_INLINE friend vec operator/(vec a, vec b) { return {a.v / b.v}; }
  QUERN_INLINE static vec fma(vec a, vec b, vec c) { return {fmaf(a.v, b.v, c.v)}; }
  QUERN_INLINE static vec fnma(vec a, vec b, vec c) { return {fmaf(-a.v, b.v, c.v)}; }
  // b where either is NaN, and where both are zeros.
  QUERN_INLINE static vec min(vec a, vec b) { return a.v < b.v ? a : b; }
  QUERN_INLINE static vec max(vec a, vec b) { return a.v > b.v ? a : b; }
  // clamp() of activation.h, but which of two zeros comes out is not said.
  QUERN_INLINE static vec limited(vec x, vec lower, vec upper) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x.v) : "f"(lower.v));
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(x.v) : "f"(upper.v));
    return x;
#else
    return min(upper, max(lower, x));
#endif
  }
  QUERN_INLINE friend bool operator<(vec a, vec b) { return a.v < b.v; }
  QUERN_INLINE friend bool operator==(vec a, vec b) { return a.v == b.v; }
  QUERN_INLINE static vec select(bool m, vec a, vec b) { return m ? a : b; }
  QUERN_INLINE friend vec operator&(vec a, vec b) { return of_bits(a.bits() & b.bits()); }
  QUERN_INLINE friend vec operator|(vec a, vec b) { return of_bits(a.bits() | b.bits()); }
  QUERN_INLINE friend vec operator^(vec a, vec b) { return of_bits(a.bits() ^ b.bits()); }
  QUERN_INLINE static vec andnot(vec a, vec b) { return of_bits(~a.bits() & b.bits()); }
  // 2^(n + more) for whole n and n + more from -126 to 127; any value for others and NaN.
  QUERN_INLINE static vec pow2(vec n, float more = 0) { return of_bits((n + set1(exponent_bias + more)).bits() << 23); }

 private:
  QUERN_INLINE uint32_t bits() const {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u;
  }
  QUERN_INLINE static vec of_bits(uint32_t u) {
    vec x;
    memcpy(&x.v, &u, sizeof u);
    return x;
  }
};

}  // namespace
}  // namespace quern
