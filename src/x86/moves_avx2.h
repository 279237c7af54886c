// SPDX-License-Identifier: MIT
//
// What reorder_moves.h and reorder_skewed.h ask of registers of eight floats, for every x86 ISA from AVX2 on.
#pragma once

#include "transpose8_avx2.h"

namespace quern {
namespace {

struct moves_avx2 {
  [[gnu::always_inline]] static void transpose8(const float* src, size_t src_row, float* dst, size_t dst_row) {
    transpose8_avx2(src, src_row, dst, dst_row);
  }
  // Eight floats from two places.
  [[gnu::always_inline]] static __m256 load_halves8(const float* low, const float* high) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
  }
  // The lanes of a bit mask from b, the others from a: no shuffle, as compilers would have it.
  template <int lanes>
  [[gnu::always_inline]] static __m256 blend8(__m256 a, __m256 b) {
    return _mm256_blend_ps(a, b, lanes);
  }
  [[gnu::always_inline]] static void move4(const float* src, float* dst) { _mm_storeu_ps(dst, _mm_loadu_ps(src)); }
  [[gnu::always_inline]] static void join4(const float* p, size_t apart, float* dst) {
    _mm256_storeu_ps(dst, load_halves8(p, p + apart));
  }
  [[gnu::always_inline]] static void move8(const float* src, float* dst) {
    _mm256_storeu_ps(dst, _mm256_loadu_ps(src));
  }
};

}  // namespace
}  // namespace quern
