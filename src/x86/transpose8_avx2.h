// SPDX-License-Identifier: MIT
//
// An 8 x 8 transposition of floats in AVX registers, for the vector types of every x86 ISA from AVX2 on.
#pragma once

#include <immintrin.h>
#include <stddef.h>

namespace quern {
namespace {

// dst[j * dst_row + i] = src[i * src_row + j] for i, j < 8.  The rows of src are loaded as halves, so that
// columns 4 apart share a register and two rounds of in-lane shuffles are left.  The empty asm hides how rows relate:
// compilers keep an offset for each of them, on the stack, where squares follow each other.
[[gnu::always_inline]] inline void transpose8_avx2(const float* src, size_t src_row, float* dst, size_t dst_row) {
  __m256 a[8], b[8];
  const float* below = src + 4 * src_row;
  __asm__("" : "+r"(src), "+r"(below));
  for (size_t i = 0; i < 4; ++i) {
    const float* top = src + i * src_row;
    const float* bottom = below + i * src_row;
    a[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(top)), _mm_loadu_ps(bottom), 1);
    a[i + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(top + 4)), _mm_loadu_ps(bottom + 4), 1);
  }
  for (size_t i = 0; i < 8; i += 4) {
    for (size_t j = 0; j < 4; j += 2) {
      b[i + j] = _mm256_unpacklo_ps(a[i + j], a[i + j + 1]);
      b[i + j + 1] = _mm256_unpackhi_ps(a[i + j], a[i + j + 1]);
    }
    __asm__("" : "+r"(dst));
    _mm256_storeu_ps(dst, _mm256_shuffle_ps(b[i], b[i + 2], 0x44));
    _mm256_storeu_ps(dst + dst_row, _mm256_shuffle_ps(b[i], b[i + 2], 0xee));
    _mm256_storeu_ps(dst + 2 * dst_row, _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44));
    _mm256_storeu_ps(dst + 3 * dst_row, _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee));
    dst += 4 * dst_row;
  }
}

}  // namespace
}  // namespace quern
