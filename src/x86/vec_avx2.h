// SPDX-License-Identifier: MIT
//
// A vector of 8 floats in one AVX register.  What vec_<isa>.h promises, the same on every ISA: each
// operation rounds once as IEEE 754 says (no reciprocal estimates), so that a template over `vec` gives
// the same bits whatever its width.
// Operations: load load_part store store_part store_halves stream set1 zero + - * / fma fnma min max larger < <= ==
// select & | ^ andnot pow2 transpose8, and evens odds in_order.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel.h"
#include "sums_avx2.h"
#include "transpose8_avx2.h"

namespace quern {

// Once for all kernels: finish_copy_avx2.cpp.
void copy_avx2(const copy_f32&);
void finish_avx2(const output_f32&, size_t m, size_t n, const float* tile, size_t tile_row);

namespace {

struct vec {
  static constexpr int width = 8;
  static constexpr int registers = 16;
  static constexpr bool masks_are_free = false;  // load_part costs more than load
  static constexpr auto copy = copy_avx2;
  static constexpr auto finish = finish_avx2;
  __m256 v;

  struct mask {
    __m256 v;
  };
  using lanes = mask;  // that memory has

  [[gnu::always_inline]] static vec set1(float x) { return {_mm256_set1_ps(x)}; }
  [[gnu::always_inline]] static vec zero() { return {_mm256_setzero_ps()}; }

  // Memory needs no alignment.  The _part forms touch `count` elements, 0 < count <= width, and nothing
  // after them; the other elements of the vector are zero.
  [[gnu::always_inline]] static vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  [[gnu::always_inline]] static vec load_part(const float* p, size_t count) {
    return {_mm256_maskload_ps(p, first(count))};
  }
  [[gnu::always_inline]] void store(float* p) const { _mm256_storeu_ps(p, v); }
  // By pieces: what stores by a mask of a vector is microcode on AMD, 17 clocks (Zen 4).
  [[gnu::always_inline]] void store_part(float* p, size_t count) const {
    if (count == width) return store(p);
    __m128 rest = _mm256_castps256_ps128(v);
    if (count & 4) _mm_storeu_ps(p, rest), rest = _mm256_extractf128_ps(v, 1), p += 4;
    if (count & 2) _mm_storel_pi(reinterpret_cast<__m64*>(p), rest), rest = _mm_movehl_ps(rest, rest), p += 2;
    if (count & 1) _mm_store_ss(p, rest);
  }
  [[gnu::always_inline]] void store_halves(float* low, float* high) const {
    _mm_storeu_ps(low, _mm256_castps256_ps128(v));
    _mm_storeu_ps(high, _mm256_extractf128_ps(v, 1));
  }
  // Past the caches, in no order with other stores; p is aligned to the vector.
  [[gnu::always_inline]] void stream(float* p) const { _mm256_stream_ps(p, v); }

  [[gnu::always_inline]] friend vec operator+(vec a, vec b) { return {_mm256_add_ps(a.v, b.v)}; }
  [[gnu::always_inline]] friend vec operator-(vec a, vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
  [[gnu::always_inline]] friend vec operator*(vec a, vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
  [[gnu::always_inline]] friend vec operator/(vec a, vec b) { return {_mm256_div_ps(a.v, b.v)}; }
  // a * b + c and c - a * b, rounded once.
  [[gnu::always_inline]] static vec fma(vec a, vec b, vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  [[gnu::always_inline]] static vec fnma(vec a, vec b, vec c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }

  // b where either is NaN, and where both are zeros: max(bound, x) lets a NaN in x through.
  [[gnu::always_inline]] static vec min(vec a, vec b) { return {_mm256_min_ps(a.v, b.v)}; }
  [[gnu::always_inline]] static vec max(vec a, vec b) { return {_mm256_max_ps(a.v, b.v)}; }
  // NaN where either is.
  [[gnu::always_inline]] static vec larger(vec a, vec b) {
    return {_mm256_or_ps(_mm256_max_ps(b.v, a.v), _mm256_cmp_ps(b.v, b.v, _CMP_UNORD_Q))};
  }

  // False where either is NaN.
  [[gnu::always_inline]] friend mask operator<(vec a, vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
  [[gnu::always_inline]] friend mask operator<=(vec a, vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LE_OQ)}; }
  [[gnu::always_inline]] friend mask operator==(vec a, vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
  // m ? a : b
  [[gnu::always_inline]] static vec select(mask m, vec a, vec b) { return {_mm256_blendv_ps(b.v, a.v, m.v)}; }

  // On the bits; andnot is ~a & b.
  [[gnu::always_inline]] friend vec operator&(vec a, vec b) { return {_mm256_and_ps(a.v, b.v)}; }
  [[gnu::always_inline]] friend vec operator|(vec a, vec b) { return {_mm256_or_ps(a.v, b.v)}; }
  [[gnu::always_inline]] friend vec operator^(vec a, vec b) { return {_mm256_xor_ps(a.v, b.v)}; }
  [[gnu::always_inline]] static vec andnot(vec a, vec b) { return {_mm256_andnot_ps(a.v, b.v)}; }

  // 2^(n + more) for whole n and n + more from -126 to 127; any value for others and NaN.
  [[gnu::always_inline]] static vec pow2(vec n, float more = 0) {
    const __m256 biased = _mm256_add_ps(n.v, _mm256_set1_ps(exponent_bias + more));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(biased), 23))};
  }

  // Keeps what comes before it before what comes after: compilers gather all additions, then all stores.
  [[gnu::always_inline]] static void order(vec& a) { __asm__ volatile("" : "+v"(a.v)); }
  // Keeps a loaded vector in its register: compilers fold a load into each of its uses, and load it as often.
  [[gnu::always_inline]] static void hold(vec& a) { __asm__("" : "+v"(a.v)); }
  [[gnu::always_inline]] static void hold(mask&) {}  // 16 registers are few

  // Lanes by number; pick counts those of b from `width` on.
  struct index {
    __m256i v;
  };
  [[gnu::always_inline]] static index load_index(const int32_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
  }
  [[gnu::always_inline]] static vec permute(vec a, index i) { return {_mm256_permutevar8x32_ps(a.v, i.v)}; }
  [[gnu::always_inline]] static vec pick(vec a, vec b, index i) {
    // Bit 3 of a number, moved to the sign, says which of the two.
    return {_mm256_blendv_ps(_mm256_permutevar8x32_ps(a.v, i.v), _mm256_permutevar8x32_ps(b.v, i.v),
                             _mm256_castsi256_ps(_mm256_slli_epi32(i.v, 28)))};
  }

  // Lanes 0 2 4 ... or 1 3 5 ... of two vectors, in an order of their own; in_order ends it.
  [[gnu::always_inline]] static vec evens(vec a, vec b) { return {_mm256_shuffle_ps(a.v, b.v, 0x88)}; }
  [[gnu::always_inline]] static vec odds(vec a, vec b) { return {_mm256_shuffle_ps(a.v, b.v, 0xdd)}; }
  [[gnu::always_inline]] static vec in_order(vec a) {
    return {_mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(a.v), 0xd8))};
  }

  // Lanes from `begin` to before `end`, any of them may lie outside; loads of the others are zero.
  [[gnu::always_inline]] static mask range(ptrdiff_t begin, ptrdiff_t end) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i from = _mm256_set1_epi32(clamp(begin) - 1), to = _mm256_set1_epi32(clamp(end));
    return {_mm256_castsi256_ps(_mm256_and_si256(_mm256_cmpgt_epi32(lane, from), _mm256_cmpgt_epi32(to, lane)))};
  }
  [[gnu::always_inline]] friend mask operator&(mask a, mask b) { return {_mm256_and_ps(a.v, b.v)}; }
  [[gnu::always_inline]] static vec load_mask(const float* p, mask m) {
    return {_mm256_maskload_ps(p, _mm256_castps_si256(m.v))};
  }
  [[gnu::always_inline]] void store_mask(float* p, mask m) const {
    _mm256_maskstore_ps(p, _mm256_castps_si256(m.v), v);
  }

  // to[i] = sixteen lanes from a[2 * i] on added up: l and l + 8, then 4 apart, neighbours, pairs.
  [[gnu::always_inline]] static void store_sums(const vec* a, float* to) {
    store_sums_avx2(_mm256_add_ps(a[0].v, a[1].v), _mm256_add_ps(a[2].v, a[3].v), _mm256_add_ps(a[4].v, a[5].v),
                    _mm256_add_ps(a[6].v, a[7].v), to);
  }

  // dst[j * dst_row + i] = src[i * src_row + j] for i, j < 8.
  [[gnu::always_inline]] static void transpose8(const float* src, size_t src_row, float* dst, size_t dst_row) {
    transpose8_avx2(src, src_row, dst, dst_row);
  }

 private:
  [[gnu::always_inline]] static int clamp(ptrdiff_t lane) {
    return static_cast<int>(lane < 0 ? 0 : lane > width ? width : lane);
  }
  [[gnu::always_inline]] static __m256i first(size_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

}  // namespace
}  // namespace quern
