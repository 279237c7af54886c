// SPDX-License-Identifier: MIT
//
// f32 grouped convolution for AVX-512; the contract is grouped_f32 in kernel.h, the loop grouped_f32.h.
//
// 4 channels a group: 2 lines of 7 pixels leave registers for the 12 weights of a row of 3 taps.  8 and 16: the weights
// are loaded for every pixel, so 3 lines share them; beyond filters 3 wide at stride 1 a GEMM tile of 16 columns is as
// good for 16.  Any: 2 lines of 14 pixels, 3 weights and a channel.  Planes: 4 channels of 6 vectors, 4 weights and a
// pixel vector; at stride 2 one less, for the second half and its order.
#include <immintrin.h>

#include "grouped_f32.h"
#include "grouped_planes_f32.h"
#include "vec_avx512.h"

namespace quern {
namespace {

// A pixel of 16 channels: 4 groups of 4, 2 groups of 8, or one.
struct lanes {
  ptrdiff_t half;
  bool whole;
  __mmask16 low, high;

  explicit lanes(const grouped_f32& g) : half(g.src_run - 8), whole(half == 0 && g.n == 16) {
    const uint32_t all = (uint32_t{1} << g.n) - 1;
    low = static_cast<__mmask16>(half == 0 ? all : all & 0xff);
    high = static_cast<__mmask16>(half == 0 ? 0 : all & 0xff00);
  }
  [[gnu::always_inline]] vec load(const float* p) const {
    if (__builtin_expect(whole, 1)) return vec::load(p);  // masks cost Zen 4 an operation each
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

template <int GROUP>
using groups_of = groups_in_lanes<vec, lanes, GROUP>;

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

QUERN_KERNELS(grouped_f32_avx512,
              {.name = "grouped_f32_c4_taps3_avx512",
               .about = "4 channels a group, filters 3 wide",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 7,
               .nr = 16,
               .vector = 16,
               .taps = 3,
               .step = 1,
               .group = 4,
               .lines = 2,
               .grouped = run_grouped<vec, groups_of<4>, 2, 7, 3, 1>},
              {.name = "grouped_f32_c4_taps3s2_avx512",
               .about = "4 channels a group, filters 3 wide, stride 2",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 7,
               .nr = 16,
               .vector = 16,
               .taps = 3,
               .step = 2,
               .group = 4,
               .lines = 2,
               .grouped = run_grouped<vec, groups_of<4>, 2, 7, 3, 2>},
              {.name = "grouped_f32_c4_avx512",
               .about = "4 channels a group, any filter and stride",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 7,
               .nr = 16,
               .vector = 16,
               .group = 4,
               .lines = 2,
               .grouped = run_grouped<vec, groups_of<4>, 2, 7, 1, 1>},
              {.name = "grouped_f32_c8_taps3_avx512",
               .about = "8 channels a group, filters 3 wide",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 7,
               .nr = 16,
               .vector = 16,
               .taps = 3,
               .step = 1,
               .group = 8,
               .lines = 3,
               .grouped = run_grouped<vec, groups_of<8>, 3, 7, 3, 1>},
              {.name = "grouped_f32_c8_taps3s2_avx512",
               .about = "8 channels a group, filters 3 wide, stride 2",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 7,
               .nr = 16,
               .vector = 16,
               .taps = 3,
               .step = 2,
               .group = 8,
               .lines = 3,
               .grouped = run_grouped<vec, groups_of<8>, 3, 7, 3, 2>},
              {.name = "grouped_f32_c8_avx512",
               .about = "8 channels a group, any filter and stride",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 7,
               .nr = 16,
               .vector = 16,
               .group = 8,
               .lines = 3,
               .grouped = run_grouped<vec, groups_of<8>, 3, 7, 1, 1>},
              {.name = "grouped_f32_c16_taps3_avx512",
               .about = "16 channels a group, filters 3 wide",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 7,
               .nr = 16,
               .vector = 16,
               .taps = 3,
               .step = 1,
               .group = 16,
               .lines = 3,
               .grouped = run_grouped<vec, groups_of<16>, 3, 7, 3, 1>},
              {.name = "grouped_f32_taps3_avx512",
               .about = "any number of channels a group, filters 3 wide",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 14,
               .nr = 16,
               .vector = 16,
               .taps = 3,
               .step = 1,
               .lines = 2,
               .grouped = run_grouped<vec, group_of_any<vec>, 2, 14, 3, 1>},
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
