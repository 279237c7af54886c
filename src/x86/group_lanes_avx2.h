// SPDX-License-Identifier: MIT
//
// A pixel of 8 channels in an AVX2 register, 2 groups of 4 or one: the `Lanes` of grouped_f32.h.
#pragma once

#include <immintrin.h>

#include "kernel.h"
#include "vec_avx2.h"

namespace quern {
namespace {

struct lanes {
  ptrdiff_t half;

  explicit lanes(const grouped_f32& g) : half(g.n > 4 ? g.src_run : 0) {}
  [[gnu::always_inline]] vec load(const float* p) const {
    return {_mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + half), 1)};
  }
  template <int J>
  [[gnu::always_inline]] static vec lane(vec v) {
    return {_mm256_permute_ps(v.v, J * 0x55)};
  }
};

}  // namespace
}  // namespace quern
