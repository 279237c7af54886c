// SPDX-License-Identifier: MIT
//
// A pixel of 16 channels in an AVX-512 register, 4 groups of 4, 2 groups of 8, or one: the `Lanes` of grouped_f32.h.
#pragma once

#include <immintrin.h>

#include "kernel.h"
#include "vec_avx512.h"

namespace quern {
namespace {

struct lanes {
  ptrdiff_t half;
  bool whole, halves;
  __mmask16 low, high;

  explicit lanes(const grouped_f32& g) : half(g.src_run - 8), whole(half == 0 && g.n == 16), halves(g.n == 16) {
    const uint32_t all = (uint32_t{1} << g.n) - 1;
    low = static_cast<__mmask16>(half == 0 ? all : all & 0xff);
    high = static_cast<__mmask16>(half == 0 ? 0 : all & 0xff00);
  }
  [[gnu::always_inline]] vec load(const float* p) const {
    if (__builtin_expect(whole, 1)) return vec::load(p);  // masks cost Zen 4 an operation each
    if (halves)
      return {_mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(p)), _mm256_loadu_ps(p + 8 + half), 1)};
    return {_mm512_mask_loadu_ps(_mm512_maskz_loadu_ps(low, p), high, p + half)};
  }
  [[gnu::always_inline]] static vec four(vec v, size_t u) {
    return {u == 0 ? _mm512_maskz_shuffle_f32x4(0xffff, v.v, v.v, 0xa0)
                   : _mm512_maskz_shuffle_f32x4(0xffff, v.v, v.v, 0xf5)};
  }
  [[gnu::always_inline]] vec load_four(const float* p, size_t u) const {
    return {_mm512_maskz_broadcast_f32x4(0xffff, _mm_loadu_ps(p + u * 4 + (u < 2 ? 0 : half)))};
  }
  template <int J>
  [[gnu::always_inline]] static vec lane(vec v) {
    return {_mm512_maskz_permute_ps(0xffff, v.v, J * 0x55)};
  }
};

}  // namespace
}  // namespace quern
