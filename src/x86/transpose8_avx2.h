// SPDX-License-Identifier: MIT
//
// An 8 x 8 transposition of floats in AVX registers, for the vector types of every x86 ISA from AVX2 on.
#pragma once

#include <immintrin.h>
#include <stddef.h>

namespace quern {
namespace {

// dst[j * dst_row + i] = src[i * src_row + j] for i, j < 8.  The rows of src are loaded as halves, so that
// columns 4 apart share a register and two rounds of in-lane shuffles are left.
[[gnu::always_inline]] inline void transpose8_avx2(const float* src, size_t src_row, float* dst, size_t dst_row) {
  __m256 a[8], b[8];
  for (size_t i = 0; i < 4; ++i) {
    const float* top = src + i * src_row;
    const float* bottom = src + (i + 4) * src_row;
    a[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(top)), _mm_loadu_ps(bottom), 1);
    a[i + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(top + 4)), _mm_loadu_ps(bottom + 4), 1);
  }
  for (size_t i = 0; i < 8; i += 4) {
    for (size_t j = 0; j < 4; j += 2) {
      b[i + j] = _mm256_unpacklo_ps(a[i + j], a[i + j + 1]);
      b[i + j + 1] = _mm256_unpackhi_ps(a[i + j], a[i + j + 1]);
    }
    const auto put = [&](size_t column, __m256 v) { _mm256_storeu_ps(dst + column * dst_row, v); };
    put(i + 0, _mm256_shuffle_ps(b[i], b[i + 2], 0x44));
    put(i + 1, _mm256_shuffle_ps(b[i], b[i + 2], 0xee));
    put(i + 2, _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44));
    put(i + 3, _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee));
  }
}

}  // namespace
}  // namespace quern
