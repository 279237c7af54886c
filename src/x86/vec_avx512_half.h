// SPDX-License-Identifier: MIT
//
// A vector of 8 floats with what AVX-512 has over AVX2: free masks, 32 registers, weights broadcast by the operand
// that reads them.  What vec promises but for transpose8.
#pragma once

#include "vec_avx512.h"

namespace quern {
namespace {

struct half_vec {
  static constexpr int width = 8;
  static constexpr int registers = 32;
  static constexpr bool masks_are_free = true;
  static constexpr auto finish = finish_avx512_half;
  __m256 v;

  struct mask {
    __mmask8 v;
  };
  using lanes = mask;  // that memory has
  struct index {
    __m256i v;
  };

  [[gnu::always_inline]] static half_vec set1(float x) { return {_mm256_set1_ps(x)}; }
  [[gnu::always_inline]] static half_vec zero() { return {_mm256_setzero_ps()}; }
  [[gnu::always_inline]] static half_vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  [[gnu::always_inline]] void store(float* p) const { _mm256_storeu_ps(p, v); }
  [[gnu::always_inline]] static half_vec load_part(const float* p, size_t count) {
    return {_mm256_maskz_loadu_ps(first(count), p)};
  }
  [[gnu::always_inline]] void store_part(float* p, size_t count) const { _mm256_mask_storeu_ps(p, first(count), v); }
  [[gnu::always_inline]] void stream(float* p) const { _mm256_stream_ps(p, v); }
  [[gnu::always_inline]] static half_vec load_mask(const float* p, mask m) { return {_mm256_maskz_loadu_ps(m.v, p)}; }
  [[gnu::always_inline]] void store_mask(float* p, mask m) const { _mm256_mask_storeu_ps(p, m.v, v); }

  [[gnu::always_inline]] friend half_vec operator+(half_vec a, half_vec b) { return {_mm256_add_ps(a.v, b.v)}; }
  [[gnu::always_inline]] friend half_vec operator-(half_vec a, half_vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
  [[gnu::always_inline]] friend half_vec operator*(half_vec a, half_vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
  [[gnu::always_inline]] friend half_vec operator/(half_vec a, half_vec b) { return {_mm256_div_ps(a.v, b.v)}; }
  [[gnu::always_inline]] static half_vec fma(half_vec a, half_vec b, half_vec c) {
    return {_mm256_fmadd_ps(a.v, b.v, c.v)};
  }
  [[gnu::always_inline]] static half_vec fnma(half_vec a, half_vec b, half_vec c) {
    return {_mm256_fnmadd_ps(a.v, b.v, c.v)};
  }
  [[gnu::always_inline]] static half_vec min(half_vec a, half_vec b) { return {_mm256_min_ps(a.v, b.v)}; }
  [[gnu::always_inline]] static half_vec max(half_vec a, half_vec b) { return {_mm256_max_ps(a.v, b.v)}; }
  [[gnu::always_inline]] static void hold(half_vec& a) { __asm__("" : "+v"(a.v)); }
  [[gnu::always_inline]] static void hold(mask& m) { __asm__("" : "+Yk"(m.v)); }

  [[gnu::always_inline]] static index load_index(const int32_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
  }
  [[gnu::always_inline]] static half_vec pick(half_vec a, half_vec b, index i) {
    return {_mm256_permutex2var_ps(a.v, i.v, b.v)};
  }
  [[gnu::always_inline]] friend mask operator<(half_vec a, half_vec b) {
    return {_mm256_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
  }
  [[gnu::always_inline]] friend mask operator<=(half_vec a, half_vec b) {
    return {_mm256_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)};
  }
  [[gnu::always_inline]] friend mask operator==(half_vec a, half_vec b) {
    return {_mm256_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)};
  }
  [[gnu::always_inline]] static half_vec select(mask m, half_vec a, half_vec b) {
    return {_mm256_mask_blend_ps(m.v, b.v, a.v)};
  }
  [[gnu::always_inline]] friend half_vec operator&(half_vec a, half_vec b) { return {_mm256_and_ps(a.v, b.v)}; }
  [[gnu::always_inline]] friend half_vec operator|(half_vec a, half_vec b) { return {_mm256_or_ps(a.v, b.v)}; }
  [[gnu::always_inline]] friend half_vec operator^(half_vec a, half_vec b) { return {_mm256_xor_ps(a.v, b.v)}; }
  [[gnu::always_inline]] static half_vec andnot(half_vec a, half_vec b) { return {_mm256_andnot_ps(a.v, b.v)}; }
  [[gnu::always_inline]] static half_vec pow2(half_vec n, float more = 0) {
    const __m256 biased = _mm256_add_ps(n.v, _mm256_set1_ps(exponent_bias + more));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(biased), 23))};
  }
  [[gnu::always_inline]] static mask range(ptrdiff_t begin, ptrdiff_t end) {
    return {static_cast<__mmask8>(vec::range(begin, end).v)};
  }
  [[gnu::always_inline]] friend mask operator&(mask a, mask b) { return {static_cast<__mmask8>(a.v & b.v)}; }

 private:
  [[gnu::always_inline]] static __mmask8 first(size_t count) {
    return static_cast<__mmask8>((uint32_t{1} << count) - 1);
  }
};

}  // namespace
}  // namespace quern
