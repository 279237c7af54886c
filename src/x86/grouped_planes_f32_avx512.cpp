// SPDX-License-Identifier: MIT
//
// f32 grouped convolution over planes for AVX-512; the contract is grouped_planes_f32 in kernel.h, the loop
// grouped_planes_f32.h.
//
// 4 channels of 6 vectors, 4 weights and a pixel vector; at stride 2 one less, for the second half and its order.
#include <immintrin.h>

#include "grouped_planes_f32.h"
#include "vec_avx512.h"

namespace quern {
namespace {

struct masked {
  static constexpr int step = 1;
  __mmask16 v;

  [[gnu::always_inline]] static masked of(uint32_t bits, size_t n) {
    return {static_cast<__mmask16>(bits & ((uint32_t{1} << n) - 1))};
  }
  [[gnu::always_inline]] static vec load(masked m, const float* p) { return {_mm512_maskz_loadu_ps(m.v, p)}; }
  [[gnu::always_inline]] static vec fma(masked m, vec a, vec b, vec c) {
    return {_mm512_mask3_fmadd_ps(a.v, b.v, c.v, m.v)};
  }
};

// Every other pixel, from two vectors.
struct masked_pairs {
  static constexpr int step = 2;
  masked m;
  __mmask16 first, second;

  [[gnu::always_inline]] static masked_pairs of(uint32_t bits, size_t n) {
    const masked m = masked::of(bits, n);
    uint32_t even = m.v;  // bit i goes to bit 2 i
    even = (even | even << 8) & 0x00ff00ff;
    even = (even | even << 4) & 0x0f0f0f0f;
    even = (even | even << 2) & 0x33333333;
    even = (even | even << 1) & 0x55555555;
    return {m, static_cast<__mmask16>(even), static_cast<__mmask16>(even >> 16)};
  }
  [[gnu::always_inline]] static vec load(masked_pairs m, const float* p) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return {_mm512_permutex2var_ps(_mm512_maskz_loadu_ps(m.first, p), even, _mm512_maskz_loadu_ps(m.second, p + 16))};
  }
  [[gnu::always_inline]] static vec fma(masked_pairs m, vec a, vec b, vec c) { return masked::fma(m.m, a, b, c); }
};

}  // namespace
}  // namespace quern

QUERN_KERNELS(grouped_planes_f32_avx512,
              {.name = "grouped_planes_f32_4x96_avx512",
               .about = "planes of groups, stride 1",
               .kind = kind::grouped_planes_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 4,
               .nr = 96,
               .vector = 16,
               .step = 1,
               .planes = run_planes<vec, masked, 4, 6>},
              {.name = "grouped_planes_f32_4x80_s2_avx512",
               .about = "planes of groups, stride 2",
               .kind = kind::grouped_planes_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 4,
               .nr = 80,
               .vector = 16,
               .step = 2,
               .planes = run_planes<vec, masked_pairs, 4, 5>})
