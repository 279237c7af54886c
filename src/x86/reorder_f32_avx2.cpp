// SPDX-License-Identifier: MIT
//
// Layout conversion in registers of 8 floats (reorder_f32.h): 8 pixels of 4 or 8 channels at a time.
#include <immintrin.h>

#include "moves_avx2.h"
#include "reorder_f32.h"

namespace quern {
namespace {

struct registers : moves_avx2 {
  static constexpr int width = 8;
  using vector = __m256;

  [[gnu::always_inline]] static vector load(const float* p) { return _mm256_loadu_ps(p); }
  [[gnu::always_inline]] static void store(float* p, vector v) { _mm256_storeu_ps(p, v); }
  [[gnu::always_inline]] static void stream(float* p, vector v) { _mm256_stream_ps(p, v); }
  static void fence() { _mm_sfence(); }

  [[gnu::always_inline]] static vector load_part(const float* p, uint32_t mask) {
    return _mm256_maskload_ps(p, lanes_of(mask));
  }
  // By pieces: what stores by a mask of a vector is microcode on AMD, 17 clocks (Zen 4).
  static constexpr bool masks_are_free = false;
  [[gnu::always_inline]] static void store_part(float* p, vector v, uint32_t mask) {
    store4(p, _mm256_castps256_ps128(v), mask & 15);
    store4(p + 4, _mm256_extractf128_ps(v, 1), mask >> 4 & 15);
  }

  // `pixels` pieces of `channels` floats, each at the begin of four lanes.
  template <int view>
  [[gnu::always_inline]] static vector load_pieces(const float* p, size_t pixel, size_t channels, size_t pixels) {
    const __m128 low = _mm_maskload_ps(p, piece(0, channels, pixels));
    const __m128 high = _mm_maskload_ps(p + pixel, piece(1, channels, pixels));
    return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
  }
  template <int view>
  [[gnu::always_inline]] static void store_pieces(float* p, size_t pixel, vector v, size_t channels, size_t pixels) {
    const uint32_t lanes = (1u << channels) - 1;
    if (pixels > 0) store4(p, _mm256_castps256_ps128(v), lanes);
    if (pixels > 1) store4(p + pixel, _mm256_extractf128_ps(v, 1), lanes);
  }

  // So many floats of each of as many places as fill a register.
  template <int floats>
  [[gnu::always_inline]] static vector pieces(const float* p, size_t apart) {
    return load_halves8(p, p + apart);
  }
  // Four floats each to as many places.
  [[gnu::always_inline]] static void scatter4(float* p, size_t apart, vector v) {
    _mm_storeu_ps(p, _mm256_castps256_ps128(v));
    _mm_storeu_ps(p + apart, _mm256_extractf128_ps(v, 1));
  }

  // Four lanes a pixel from pixels of up to four floats that follow each other, and back.
  using order = __m256i;
  static order spread(size_t pixel) {
    return order_of([&](uint32_t i) { return i / 4 * pixel + i % 4; });
  }
  static order gather(size_t pixel) {
    return order_of([&](uint32_t i) { return i / pixel * 4 + i % pixel; });
  }
  [[gnu::always_inline]] static vector move_lanes(vector v, order o) { return _mm256_permutevar8x32_ps(v, o); }

  // In every lane of 128 bits, element j of register i and element i of register j change places.
  [[gnu::always_inline]] static void quads(vector* a) {
    const vector b0 = _mm256_unpacklo_ps(a[0], a[1]), b1 = _mm256_unpackhi_ps(a[0], a[1]);
    const vector b2 = _mm256_unpacklo_ps(a[2], a[3]), b3 = _mm256_unpackhi_ps(a[2], a[3]);
    a[0] = _mm256_shuffle_ps(b0, b2, 0x44), a[1] = _mm256_shuffle_ps(b0, b2, 0xee);
    a[2] = _mm256_shuffle_ps(b1, b3, 0x44), a[3] = _mm256_shuffle_ps(b1, b3, 0xee);
  }
  // The high lane of the first and the low lane of the second change places.
  [[gnu::always_inline]] static void lanes(vector* a) {
    const vector low = _mm256_permute2f128_ps(a[0], a[1], 0x20), high = _mm256_permute2f128_ps(a[0], a[1], 0x31);
    a[0] = low, a[1] = high;
  }

 private:
  // Pixels of three channels are what there is most of.
  [[gnu::always_inline]] static void store4(float* p, __m128 v, uint32_t lanes) {
    if (__builtin_expect(lanes != 7, 0)) return store_any4(p, v, lanes);
    _mm_storel_pi(reinterpret_cast<__m64*>(p), v);
    _mm_store_ss(p + 2, _mm_movehl_ps(v, v));
  }
  [[gnu::noinline]] static void store_any4(float* p, __m128 v, uint32_t lanes) {
    if (lanes == 15) return _mm_storeu_ps(p, v);
    for (; lanes; lanes >>= 1, ++p, v = _mm_shuffle_ps(v, v, 0x39))
      if (lanes & 1) _mm_store_ss(p, v);
  }
  template <class From>
  static order order_of(From from) {
    alignas(32) uint32_t lane[8];
    for (uint32_t i = 0; i < 8; ++i) lane[i] = static_cast<uint32_t>(from(i)) % 8;
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(lane));
  }
  [[gnu::always_inline]] static __m256i lanes_of(uint32_t mask) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(mask)), bit), bit);
  }
  [[gnu::always_inline]] static __m128i piece(size_t i, size_t channels, size_t pixels) {
    return _mm_cmpgt_epi32(_mm_set1_epi32(i < pixels ? static_cast<int>(channels) : 0), _mm_setr_epi32(0, 1, 2, 3));
  }
};

}  // namespace
}  // namespace quern

QUERN_KERNELS(reorder_f32_avx2, {.name = "reorder_f32_8_avx2",
                                 .about = "8 pixels of 8 channels in registers",
                                 .kind = kind::reorder_f32,
                                 .isa = QUERN_ISA_AVX2,
                                 .vector = 8,
                                 .reorder = reorder<registers>})
