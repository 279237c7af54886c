// SPDX-License-Identifier: MIT
//
// A vector of 4 floats in one NEON register.  What vec_<isa>.h promises, the same on every ISA: each
// operation rounds once as IEEE 754 says (no reciprocal estimates), so that a template over `vec` gives
// the same bits whatever its width.  On 32-bit ARM, NEON takes denormals for zero and makes none.
// Operations: load load_part store store_part store_halves stream set1 zero + - * / fma fnma min max larger < <= ==
// select & | ^ andnot pow2 hold order permute pick range load_mask store_mask store_sums transpose8, and
// fma_lane.
#pragma once

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel.h"

namespace quern {

// Once for all kernels: finish_copy_neon.cpp.
void copy_neon(const copy_f32&);
void finish_neon(const output_f32&, size_t m, size_t n, const float* tile, size_t tile_row);

namespace {

struct vec {
  static constexpr int width = 4;
#if defined(__aarch64__)
  static constexpr int registers = 32;
#else
  static constexpr int registers = 16;
#endif
  static constexpr bool masks_are_free = false;  // load_part costs more than load
  static constexpr auto copy = copy_neon;
  static constexpr auto finish = finish_neon;
  float32x4_t v;

  struct mask {
    uint32x4_t v;
  };

  [[gnu::always_inline]] static vec set1(float x) { return {vdupq_n_f32(x)}; }
  [[gnu::always_inline]] static vec zero() { return {vdupq_n_f32(0.0f)}; }

  // Memory needs no alignment.  The _part forms touch `count` elements, 0 < count <= width, and nothing
  // after them; the other elements of the vector are zero.
  [[gnu::always_inline]] static vec load(const float* p) { return {vld1q_f32(p)}; }
  [[gnu::always_inline]] static vec load_part(const float* p, size_t count) {
    if (count >= 4) return load(p);
    float32x4_t x = vld1q_lane_f32(p, vdupq_n_f32(0.0f), 0);
    if (count > 1) x = vld1q_lane_f32(p + 1, x, 1);
    if (count > 2) x = vld1q_lane_f32(p + 2, x, 2);
    return {x};
  }
  // One element from each place, and any fourth.
  [[gnu::always_inline]] static vec gather3(const float* p0, const float* p1, const float* p2) {
    return {vld1q_lane_f32(p2, vld1q_lane_f32(p1, vld1q_dup_f32(p0), 1), 2)};
  }
  [[gnu::always_inline]] void store(float* p) const { vst1q_f32(p, v); }
  [[gnu::always_inline]] void store_part(float* p, size_t count) const {
    if (count >= 4) return store(p);
    vst1q_lane_f32(p, v, 0);
    if (count > 1) vst1q_lane_f32(p + 1, v, 1);
    if (count > 2) vst1q_lane_f32(p + 2, v, 2);
  }
  [[gnu::always_inline]] void store_halves(float* low, float* high) const {
    vst1_f32(low, vget_low_f32(v));
    vst1_f32(high, vget_high_f32(v));
  }

  // NEON has no store of one register past the caches.
  [[gnu::always_inline]] void stream(float* p) const { store(p); }

  [[gnu::always_inline]] friend vec operator+(vec a, vec b) { return {vaddq_f32(a.v, b.v)}; }
  [[gnu::always_inline]] friend vec operator-(vec a, vec b) { return {vsubq_f32(a.v, b.v)}; }
  [[gnu::always_inline]] friend vec operator*(vec a, vec b) { return {vmulq_f32(a.v, b.v)}; }
  [[gnu::always_inline]] friend vec operator/(vec a, vec b) { return {a.v / b.v}; }  // 32-bit: four scalar ones
  // a * b + c and c - a * b, rounded once.
  [[gnu::always_inline]] static vec fma(vec a, vec b, vec c) { return {vfmaq_f32(c.v, a.v, b.v)}; }
  [[gnu::always_inline]] static vec fnma(vec a, vec b, vec c) { return {vfmsq_f32(c.v, a.v, b.v)}; }

  // Four factors of which fma_lane multiplies by one: a[LANE] * b + c, rounded once.
  struct factors {
    float32x4_t v;
  };
  [[gnu::always_inline]] static factors load_factors(const float* p) { return {vld1q_f32(p)}; }
#if defined(__aarch64__)
  static constexpr bool lanes_are_copied = false;
  template <int LANE>
  [[gnu::always_inline]] static vec fma_lane(factors a, vec b, vec c) {
    return {vfmaq_laneq_f32(c.v, b.v, a.v, LANE)};
  }
#else
  // Nothing multiplies by a lane and fuses: the lane is copied into a register, which is to serve a whole row.  By
  // hand, as g++ 12 sends it through memory.
  static constexpr bool lanes_are_copied = true;
  template <int LANE>
  [[gnu::always_inline]] static vec fma_lane(factors a, vec b, vec c) {
    vec copy;
    if constexpr (LANE < 2)
      __asm__("vdup.32 %q0, %e1[%c2]" : "=w"(copy.v) : "w"(a.v), "i"(LANE));
    else
      __asm__("vdup.32 %q0, %f1[%c2]" : "=w"(copy.v) : "w"(a.v), "i"(LANE - 2));
    return fma(copy, b, c);
  }
#endif

  // b where either is NaN, and where both are zeros: max(bound, x) lets a NaN in x through.
  [[gnu::always_inline]] static vec min(vec a, vec b) { return select(a < b, a, b); }
  [[gnu::always_inline]] static vec max(vec a, vec b) { return select(b < a, a, b); }
  // NaN where either is.
  [[gnu::always_inline]] static vec larger(vec a, vec b) { return {vmaxq_f32(a.v, b.v)}; }

  // False where either is NaN.
  [[gnu::always_inline]] friend mask operator<(vec a, vec b) { return {vcltq_f32(a.v, b.v)}; }
  [[gnu::always_inline]] friend mask operator<=(vec a, vec b) { return {vcleq_f32(a.v, b.v)}; }
  [[gnu::always_inline]] friend mask operator==(vec a, vec b) { return {vceqq_f32(a.v, b.v)}; }
  // m ? a : b
  [[gnu::always_inline]] static vec select(mask m, vec a, vec b) { return {vbslq_f32(m.v, a.v, b.v)}; }

  // On the bits; andnot is ~a & b.
  [[gnu::always_inline]] friend vec operator&(vec a, vec b) { return of(vandq_u32(bits(a), bits(b))); }
  [[gnu::always_inline]] friend vec operator|(vec a, vec b) { return of(vorrq_u32(bits(a), bits(b))); }
  [[gnu::always_inline]] friend vec operator^(vec a, vec b) { return of(veorq_u32(bits(a), bits(b))); }
  [[gnu::always_inline]] static vec andnot(vec a, vec b) { return of(vbicq_u32(bits(b), bits(a))); }

  // 2^(n + more) for whole n and n + more from -126 to 127; any value for others and NaN.
  [[gnu::always_inline]] static vec pow2(vec n, float more = 0) {
    return of(vshlq_n_u32(bits(n + set1(exponent_bias + more)), 23));
  }

  // Keeps what comes before it before what comes after: compilers gather all additions, then all stores.
  [[gnu::always_inline]] static void order(vec& a) { __asm__ volatile("" : "+w"(a.v)); }
  // Keeps a loaded vector in its register: compilers fold a load into each of its uses, and load it as often.
  [[gnu::always_inline]] static void hold(vec& a) { __asm__("" : "+w"(a.v)); }

  // Lanes of a vector by number.
  struct index {
    uint8x16_t v;  // of bytes
  };
  [[gnu::always_inline]] static index load_index(const int32_t* p) {
    const uint32x4_t first = vmulq_n_u32(vreinterpretq_u32_s32(vld1q_s32(p)), 0x04040404);
    return {vreinterpretq_u8_u32(vaddq_u32(first, vdupq_n_u32(0x03020100)))};
  }
  [[gnu::always_inline]] static vec permute(vec a, index i) {
    const uint8x16_t bytes = vreinterpretq_u8_f32(a.v);
#if defined(__aarch64__)
    return {vreinterpretq_f32_u8(vqtbl1q_u8(bytes, i.v))};
#else
    const uint8x8x2_t table = {{vget_low_u8(bytes), vget_high_u8(bytes)}};
    return {vreinterpretq_f32_u8(vcombine_u8(vtbl2_u8(table, vget_low_u8(i.v)), vtbl2_u8(table, vget_high_u8(i.v))))};
#endif
  }

  // pick counts the lanes of b from `width` on.
  [[gnu::always_inline]] static vec pick(vec a, vec b, index i) {
    const uint8x16_t first = vreinterpretq_u8_f32(a.v), second = vreinterpretq_u8_f32(b.v);
#if defined(__aarch64__)
    return {vreinterpretq_f32_u8(vqtbl2q_u8({{first, second}}, i.v))};
#else
    const uint8x8x4_t table = {{vget_low_u8(first), vget_high_u8(first), vget_low_u8(second), vget_high_u8(second)}};
    return {vreinterpretq_f32_u8(vcombine_u8(vtbl4_u8(table, vget_low_u8(i.v)), vtbl4_u8(table, vget_high_u8(i.v))))};
#endif
  }

  // Lanes that memory has, a bit each.  NEON has no loads by mask: whole vectors, as nearly all are, take a branch that
  // is foreseen, and the others collect their lanes from there or from a zero.
  struct lanes {
    uint32_t v;
  };
  [[gnu::always_inline]] static void hold(lanes& m) { __asm__("" : "+r"(m.v)); }
  // From `begin` to before `end`, any of them may lie outside; loads of the others are zero.
  [[gnu::always_inline]] static lanes range(ptrdiff_t begin, ptrdiff_t end) { return {below(end) & ~below(begin)}; }
  [[gnu::always_inline]] friend lanes operator&(lanes a, lanes b) { return {a.v & b.v}; }
  [[gnu::always_inline]] static vec load_mask(const float* p, lanes m) {
    if (__builtin_expect(m.v == whole, 1)) return load(p);
    static constexpr float nothing = 0.0f;
    float32x4_t x = vld1q_dup_f32(m.v & 1 ? p : &nothing);
    x = vld1q_lane_f32(m.v & 2 ? p + 1 : &nothing, x, 1);
    x = vld1q_lane_f32(m.v & 4 ? p + 2 : &nothing, x, 2);
    return {vld1q_lane_f32(m.v & 8 ? p + 3 : &nothing, x, 3)};
  }
  [[gnu::always_inline]] void store_mask(float* p, lanes m) const {
    if (__builtin_expect(m.v == whole, 1)) return store(p);
    if (m.v & 1) vst1q_lane_f32(p, v, 0);
    if (m.v & 2) vst1q_lane_f32(p + 1, v, 1);
    if (m.v & 4) vst1q_lane_f32(p + 2, v, 2);
    if (m.v & 8) vst1q_lane_f32(p + 3, v, 3);
  }

  // to[i] = sixteen lanes from a[4 * i] on added up: l and l + 8, then 4 apart, neighbours, pairs.
  [[gnu::always_inline]] static void store_sums(const vec* a, float* to) {
    const auto four = [a](int i) { return ((a[4 * i] + a[4 * i + 2]) + (a[4 * i + 1] + a[4 * i + 3])).v; };
    const auto pairs = [](float32x4_t x, float32x4_t y) {
#if defined(__aarch64__)
      return vpaddq_f32(x, y);
#else
      return vcombine_f32(vpadd_f32(vget_low_f32(x), vget_high_f32(x)), vpadd_f32(vget_low_f32(y), vget_high_f32(y)));
#endif
    };
    vst1q_f32(to, pairs(pairs(four(0), four(1)), pairs(four(2), four(3))));
  }

  // dst[j * dst_row + i] = src[i * src_row + j] for i, j < 8.
  [[gnu::always_inline]] static void transpose8(const float* src, size_t src_row, float* dst, size_t dst_row) {
    for (size_t i = 0; i < 8; i += 4)
      for (size_t j = 0; j < 8; j += 4) transpose4(src + i * src_row + j, src_row, dst + j * dst_row + i, dst_row);
  }

 private:
  static constexpr uint32_t whole = 15;
  [[gnu::always_inline]] static uint32_t below(ptrdiff_t lane) {
    return lane <= 0 ? 0 : lane >= width ? whole : (uint32_t{1} << lane) - 1;
  }
  [[gnu::always_inline]] static uint32x4_t bits(vec a) { return vreinterpretq_u32_f32(a.v); }
  [[gnu::always_inline]] static vec of(uint32x4_t a) { return {vreinterpretq_f32_u32(a)}; }

  [[gnu::always_inline]] static void transpose4(const float* src, size_t src_row, float* dst, size_t dst_row) {
    const float32x4x2_t top = vtrnq_f32(vld1q_f32(src), vld1q_f32(src + src_row));
    const float32x4x2_t bottom = vtrnq_f32(vld1q_f32(src + 2 * src_row), vld1q_f32(src + 3 * src_row));
    for (size_t j = 0; j < 2; ++j) {
      vst1q_f32(dst + j * dst_row, vcombine_f32(vget_low_f32(top.val[j]), vget_low_f32(bottom.val[j])));
      vst1q_f32(dst + (j + 2) * dst_row, vcombine_f32(vget_high_f32(top.val[j]), vget_high_f32(bottom.val[j])));
    }
  }
};

}  // namespace
}  // namespace quern
