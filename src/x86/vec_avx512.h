// SPDX-License-Identifier: MIT
//
// A vector of 16 floats in one AVX-512 register.  What vec_<isa>.h promises, the same on every ISA: each
// operation rounds once as IEEE 754 says (no reciprocal estimates), so that a template over `vec` gives
// the same bits whatever its width.
// Operations: load load_part store store_part store_halves stream set1 zero + - * / fma fnma min max larger < <= ==
// select & | ^ andnot pow2 transpose8, scale and scale_where.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel.h"
#include "sums_avx2.h"
#include "transpose8_avx2.h"

namespace quern {

// Once for all kernels: finish_copy_avx512.cpp.
void copy_avx512(const copy_f32&);
void finish_avx512(const output_f32&, size_t m, size_t n, const float* tile, size_t tile_row);
void finish_avx512_half(const output_f32&, size_t m, size_t n, const float* tile, size_t tile_row);

namespace {

struct vec {
  static constexpr int width = 16;
  static constexpr int registers = 32;
  static constexpr bool masks_are_free = true;  // load_part costs nearly what load does
  static constexpr auto copy = copy_avx512;
  static constexpr auto finish = finish_avx512;
  __m512 v;

  struct mask {
    __mmask16 v;
  };
  using lanes = mask;  // that memory has

  [[gnu::always_inline]] static vec set1(float x) { return {_mm512_set1_ps(x)}; }
  [[gnu::always_inline]] static vec zero() { return {_mm512_setzero_ps()}; }

  // Memory needs no alignment.  The _part forms touch `count` elements, 0 < count <= width, and nothing
  // after them; the other elements of the vector are zero.
  [[gnu::always_inline]] static vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  [[gnu::always_inline]] static vec load_part(const float* p, size_t count) {
    return {_mm512_maskz_loadu_ps(first(count), p)};
  }
  [[gnu::always_inline]] void store(float* p) const { _mm512_storeu_ps(p, v); }
  [[gnu::always_inline]] void store_part(float* p, size_t count) const { _mm512_mask_storeu_ps(p, first(count), v); }
  [[gnu::always_inline]] void store_halves(float* low, float* high) const {
    _mm256_storeu_ps(low, _mm512_castps512_ps256(v));
    _mm256_storeu_ps(high, _mm512_maskz_extractf32x8_ps(0xff, v, 1));
  }
  // Past the caches, in no order with other stores; p is aligned to the vector.
  [[gnu::always_inline]] void stream(float* p) const { _mm512_stream_ps(p, v); }

  [[gnu::always_inline]] friend vec operator+(vec a, vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  [[gnu::always_inline]] friend vec operator-(vec a, vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
  [[gnu::always_inline]] friend vec operator*(vec a, vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  [[gnu::always_inline]] friend vec operator/(vec a, vec b) { return {_mm512_div_ps(a.v, b.v)}; }
  // a * b + c and c - a * b, rounded once.
  [[gnu::always_inline]] static vec fma(vec a, vec b, vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  [[gnu::always_inline]] static vec fnma(vec a, vec b, vec c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }

  // b where either is NaN, and where both are zeros: max(bound, x) lets a NaN in x through.
  [[gnu::always_inline]] static vec min(vec a, vec b) { return {_mm512_maskz_min_ps(0xffff, a.v, b.v)}; }
  [[gnu::always_inline]] static vec max(vec a, vec b) { return {_mm512_maskz_max_ps(0xffff, a.v, b.v)}; }
  // NaN where either is.
  [[gnu::always_inline]] static vec larger(vec a, vec b) {
    return {_mm512_mask_max_ps(b.v, _mm512_cmp_ps_mask(b.v, b.v, _CMP_ORD_Q), b.v, a.v)};
  }

  // False where either is NaN.
  [[gnu::always_inline]] friend mask operator<(vec a, vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
  [[gnu::always_inline]] friend mask operator<=(vec a, vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
  [[gnu::always_inline]] friend mask operator==(vec a, vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
  // m ? a : b
  [[gnu::always_inline]] static vec select(mask m, vec a, vec b) { return {_mm512_mask_blend_ps(m.v, b.v, a.v)}; }

  // On the bits; andnot is ~a & b.
  [[gnu::always_inline]] friend vec operator&(vec a, vec b) { return {_mm512_and_ps(a.v, b.v)}; }
  [[gnu::always_inline]] friend vec operator|(vec a, vec b) { return {_mm512_or_ps(a.v, b.v)}; }
  [[gnu::always_inline]] friend vec operator^(vec a, vec b) { return {_mm512_xor_ps(a.v, b.v)}; }
  [[gnu::always_inline]] static vec andnot(vec a, vec b) { return {_mm512_maskz_andnot_ps(0xffff, a.v, b.v)}; }

  // 2^(n + more) for whole n and n + more from -126 to 127; any value for others and NaN.
  [[gnu::always_inline]] static vec pow2(vec n, float more = 0) {
    const __m512 biased = _mm512_add_ps(n.v, _mm512_set1_ps(exponent_bias + more));
    return {_mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, _mm512_castps_si512(biased), 23))};
  }
  // y * 2^n for whole n, rounded once; where m holds, elsewhere y.
  [[gnu::always_inline]] friend vec scale(vec y, vec n) { return {_mm512_maskz_scalef_ps(0xffff, y.v, n.v)}; }
  [[gnu::always_inline]] friend vec scale_where(mask m, vec y, vec n) {
    return {_mm512_mask_scalef_ps(y.v, m.v, y.v, n.v)};
  }

  // Keeps what comes before it before what comes after: compilers gather all additions, then all stores.
  [[gnu::always_inline]] static void order(vec& a) { __asm__ volatile("" : "+v"(a.v)); }
  // Keeps a loaded vector in its register: compilers fold a load into each of its uses, and load it as often.
  [[gnu::always_inline]] static void hold(vec& a) { __asm__("" : "+v"(a.v)); }
  [[gnu::always_inline]] static void hold(mask& m) { __asm__("" : "+Yk"(m.v)); }

  // Lanes by number; pick counts those of b from `width` on.
  struct index {
    __m512i v;
  };
  [[gnu::always_inline]] static index load_index(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
  [[gnu::always_inline]] static vec permute(vec a, index i) { return {_mm512_maskz_permutexvar_ps(0xffff, i.v, a.v)}; }
  [[gnu::always_inline]] static vec pick(vec a, vec b, index i) { return {_mm512_permutex2var_ps(a.v, i.v, b.v)}; }

  // Lanes from `begin` to before `end`, any of them may lie outside; loads of the others are zero.
  [[gnu::always_inline]] static mask range(ptrdiff_t begin, ptrdiff_t end) {
    return {static_cast<__mmask16>(below(end) & ~below(begin))};
  }
  [[gnu::always_inline]] friend mask operator&(mask a, mask b) { return {static_cast<__mmask16>(a.v & b.v)}; }
  [[gnu::always_inline]] static vec load_mask(const float* p, mask m) { return {_mm512_maskz_loadu_ps(m.v, p)}; }
  [[gnu::always_inline]] void store_mask(float* p, mask m) const { _mm512_mask_storeu_ps(p, m.v, v); }

  // to[i] = the lanes of a[i] added up: l and l + 8, then 4 apart, neighbours, pairs.
  [[gnu::always_inline]] static void store_sums(const vec* a, float* to) {
    const auto half = [](vec x) { return _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1)); };
    store_sums_avx2(half(a[0]), half(a[1]), half(a[2]), half(a[3]), to);
  }

  // dst[j * dst_row + i] = src[i * src_row + j] for i, j < 8.
  [[gnu::always_inline]] static void transpose8(const float* src, size_t src_row, float* dst, size_t dst_row) {
    transpose8_avx2(src, src_row, dst, dst_row);
  }

 private:
  [[gnu::always_inline]] static uint32_t below(ptrdiff_t lane) {
    return (uint32_t{1} << (lane < 0 ? 0 : lane > width ? width : lane)) - 1;
  }
  [[gnu::always_inline]] static __mmask16 first(size_t count) {
    return static_cast<__mmask16>((uint32_t{1} << count) - 1);
  }
};

}  // namespace
}  // namespace quern
