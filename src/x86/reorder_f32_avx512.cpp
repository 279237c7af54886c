// SPDX-License-Identifier: MIT
//
// Layout conversion in registers of 16 floats (reorder_f32.h): 16 pixels of 4, 8 or 16 channels at a time.
#include <immintrin.h>

#include "moves_avx2.h"
#include "reorder_f32.h"

namespace quern {
namespace {

struct registers : moves_avx2 {
  static constexpr int width = 16;
  using vector = __m512;

  [[gnu::always_inline]] static vector load(const float* p) { return _mm512_loadu_ps(p); }
  [[gnu::always_inline]] static void store(float* p, vector v) { _mm512_storeu_ps(p, v); }
  [[gnu::always_inline]] static void stream(float* p, vector v) { _mm512_stream_ps(p, v); }
  static void fence() { _mm_sfence(); }

  [[gnu::always_inline]] static vector load_part(const float* p, uint32_t mask) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), p);
  }
  static constexpr bool masks_are_free = true;
  [[gnu::always_inline]] static void store_part(float* p, vector v, uint32_t mask) {
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>(mask), v);
  }

  // `pixels` pieces of `channels` floats, each at the begin of `view` lanes.
  template <int view>
  [[gnu::always_inline]] static vector load_pieces(const float* p, size_t pixel, size_t channels, size_t pixels) {
    const auto mask = [&](size_t i) { return static_cast<__mmask8>(i < pixels ? (1u << channels) - 1 : 0); };
    if constexpr (view == 8) {
      const __m256 low = _mm256_maskz_loadu_ps(mask(0), p), high = _mm256_maskz_loadu_ps(mask(1), p + pixel);
      return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
    } else {
      vector v = _mm512_castps128_ps512(_mm_maskz_loadu_ps(mask(0), p));
      v = _mm512_insertf32x4(v, _mm_maskz_loadu_ps(mask(1), p + pixel), 1);
      v = _mm512_insertf32x4(v, _mm_maskz_loadu_ps(mask(2), p + 2 * pixel), 2);
      return _mm512_insertf32x4(v, _mm_maskz_loadu_ps(mask(3), p + 3 * pixel), 3);
    }
  }
  template <int view>
  [[gnu::always_inline]] static void store_pieces(float* p, size_t pixel, vector v, size_t channels, size_t pixels) {
    const auto mask = [&](size_t i) { return static_cast<__mmask8>(i < pixels ? (1u << channels) - 1 : 0); };
    if constexpr (view == 8) {
      _mm256_mask_storeu_ps(p, mask(0), _mm512_castps512_ps256(v));
      _mm256_mask_storeu_ps(p + pixel, mask(1), apart(_mm512_extractf32x8_ps(v, 1)));
    } else {
      _mm_mask_storeu_ps(p, mask(0), _mm512_castps512_ps128(v));
      _mm_mask_storeu_ps(p + pixel, mask(1), apart(_mm512_extractf32x4_ps(v, 1)));
      _mm_mask_storeu_ps(p + 2 * pixel, mask(2), apart(_mm512_extractf32x4_ps(v, 2)));
      _mm_mask_storeu_ps(p + 3 * pixel, mask(3), apart(_mm512_extractf32x4_ps(v, 3)));
    }
  }

  // So many floats of each of as many places as fill a register.
  template <int floats>
  [[gnu::always_inline]] static vector pieces(const float* p, size_t apart) {
    if constexpr (floats == 8)
      return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(p)), _mm256_loadu_ps(p + apart), 1);
    vector v = _mm512_castps128_ps512(_mm_loadu_ps(p));
    v = _mm512_insertf32x4(v, _mm_loadu_ps(p + apart), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps(p + 2 * apart), 2);
    return _mm512_insertf32x4(v, _mm_loadu_ps(p + 3 * apart), 3);
  }
  // Four floats each to as many places.
  [[gnu::always_inline]] static void scatter4(float* p, size_t apart, vector v) {
    _mm_storeu_ps(p, _mm512_castps512_ps128(v));
    _mm_storeu_ps(p + apart, _mm512_extractf32x4_ps(v, 1));
    _mm_storeu_ps(p + 2 * apart, _mm512_extractf32x4_ps(v, 2));
    _mm_storeu_ps(p + 3 * apart, _mm512_extractf32x4_ps(v, 3));
  }

  // Four lanes a pixel from pixels of up to four floats that follow each other, and back.
  using order = __m512i;
  template <class From>
  static order order_of(From from) {
    alignas(64) uint32_t lane[16];
    for (uint32_t i = 0; i < 16; ++i) lane[i] = static_cast<uint32_t>(from(i));
    return _mm512_load_si512(lane);
  }
  static order spread(size_t pixel) {
    return order_of([&](uint32_t i) { return i / 4 * pixel + i % 4; });
  }
  static order gather(size_t pixel) {
    return order_of([&](uint32_t i) { return i / pixel * 4 + i % pixel; });
  }
  // Four pixels of each of four channels from pixels of those, the first channel `by` lanes of 128 bits further on.
  static order turned(uint32_t by) {
    return order_of([&](uint32_t i) { return i % 4 * 4 + (i / 4 - by) % 4; });
  }
  [[gnu::always_inline]] static vector move_lanes(vector v, order o) { return _mm512_permutexvar_ps(o, v); }
  // Lanes of a and b, and where a bit is set of c.
  [[gnu::always_inline]] static vector weave(vector a, vector b, order pair, vector c, order third, uint32_t of_third) {
    return _mm512_mask_permutexvar_ps(_mm512_permutex2var_ps(a, pair, b), static_cast<__mmask16>(of_third), third, c);
  }
  // The lanes of a bit mask from b, the others from a.
  template <int lanes>
  [[gnu::always_inline]] static vector blend(vector a, vector b) {
    return _mm512_mask_blend_ps(lanes, a, b);
  }

  // In every lane of 128 bits, element j of register i and element i of register j change places.
  [[gnu::always_inline]] static void quads(vector* a) {
    const vector b0 = _mm512_unpacklo_ps(a[0], a[1]), b1 = _mm512_unpackhi_ps(a[0], a[1]);
    const vector b2 = _mm512_unpacklo_ps(a[2], a[3]), b3 = _mm512_unpackhi_ps(a[2], a[3]);
    a[0] = _mm512_shuffle_ps(b0, b2, 0x44), a[1] = _mm512_shuffle_ps(b0, b2, 0xee);
    a[2] = _mm512_shuffle_ps(b1, b3, 0x44), a[3] = _mm512_shuffle_ps(b1, b3, 0xee);
  }
  // Lane j of register i and lane i of register j change places.
  [[gnu::always_inline]] static void lanes(vector* a) {
    const vector b0 = _mm512_shuffle_f32x4(a[0], a[1], 0x88), b1 = _mm512_shuffle_f32x4(a[0], a[1], 0xdd);
    const vector b2 = _mm512_shuffle_f32x4(a[2], a[3], 0x88), b3 = _mm512_shuffle_f32x4(a[2], a[3], 0xdd);
    a[0] = _mm512_shuffle_f32x4(b0, b2, 0x88), a[2] = _mm512_shuffle_f32x4(b0, b2, 0xdd);
    a[1] = _mm512_shuffle_f32x4(b1, b3, 0x88), a[3] = _mm512_shuffle_f32x4(b1, b3, 0xdd);
  }
  // Lanes of a and b in turn, and back.
  [[gnu::always_inline]] static void zip4(vector a, vector b, vector& low, vector& high) {
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                  rest = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    low = _mm512_castpd_ps(_mm512_permutex2var_pd(x, first, y));
    high = _mm512_castpd_ps(_mm512_permutex2var_pd(x, rest, y));
  }
  [[gnu::always_inline]] static void unzip4(vector low, vector high, vector& a, vector& b) {
    a = _mm512_shuffle_f32x4(low, high, 0x88), b = _mm512_shuffle_f32x4(low, high, 0xdd);
  }
  // The halves of a and b in turn; its own inverse.
  [[gnu::always_inline]] static void zip8(vector a, vector b, vector& low, vector& high) {
    low = _mm512_shuffle_f32x4(a, b, 0x44), high = _mm512_shuffle_f32x4(a, b, 0xee);
  }

 private:
  // GCC 12 makes one instruction of extraction and masked store, which faults on what the mask leaves out.
  template <class Part>
  [[gnu::always_inline]] static Part apart(Part v) {
    __asm__("" : "+v"(v));
    return v;
  }
};

}  // namespace
}  // namespace quern

QUERN_KERNELS(reorder_f32_avx512, {.name = "reorder_f32_16_avx512",
                                   .about = "16 pixels of 16 channels in registers",
                                   .kind = kind::reorder_f32,
                                   .isa = QUERN_ISA_AVX512,
                                   .vector = 16,
                                   .reorder = reorder<registers>})
