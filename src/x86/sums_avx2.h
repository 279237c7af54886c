// SPDX-License-Identifier: MIT
//
// The sums of four vectors of 8 floats, for vec_avx2.h and vec_avx512.h.
#pragma once

#include <immintrin.h>

namespace quern {
namespace {

// to[i] = the lanes of the i-th added up: 4 apart, neighbours, pairs.
[[gnu::always_inline]] inline void store_sums_avx2(__m256 a, __m256 b, __m256 c, __m256 d, float* to) {
  const auto half = [](__m256 x) { return _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1)); };
  _mm_storeu_ps(to, _mm_hadd_ps(_mm_hadd_ps(half(a), half(b)), _mm_hadd_ps(half(c), half(d))));
}

}  // namespace
}  // namespace quern
