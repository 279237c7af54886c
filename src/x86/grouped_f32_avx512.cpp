// SPDX-License-Identifier: MIT
//
// f32 grouped convolution for AVX-512; the contract is grouped_f32 in kernel.h, the loop grouped_f32.h.
//
// 4 channels a group: 2 lines of 7 pixels leave registers for the 12 weights of a row of 3 taps.  8: the weights
// are loaded for every pixel, so 3 lines share them.  Planes: 4 channels of 6 vectors, 4 weights and a pixel vector.
#include <immintrin.h>

#include "grouped_f32.h"
#include "grouped_planes_f32.h"
#include "vec_avx512.h"

namespace quern {
namespace {

// A pixel of 16 channels: 4 groups of 4, or 2 groups of 8.
template <int GROUP>
struct groups_of {
  static constexpr int quads = GROUP / 4;
  ptrdiff_t half;
  __mmask16 low, high;

  explicit groups_of(const grouped_f32& g) : half(g.src_half - 8) {
    const uint32_t all = (uint32_t{1} << g.n) - 1;
    low = static_cast<__mmask16>(half == 0 ? all : all & 0xff);
    high = static_cast<__mmask16>(half == 0 ? 0 : all & 0xff00);
  }
  [[gnu::always_inline]] vec load(const float* p) const {
    return {_mm512_mask_loadu_ps(_mm512_maskz_loadu_ps(low, p), high, p + half)};
  }
  [[gnu::always_inline]] static vec four(vec v, int u) {
    if constexpr (GROUP == 4) return v;
    return {u == 0 ? _mm512_maskz_shuffle_f32x4(0xffff, v.v, v.v, 0xa0)
                   : _mm512_maskz_shuffle_f32x4(0xffff, v.v, v.v, 0xf5)};
  }
  template <int J>
  [[gnu::always_inline]] static vec spread(vec v) {
    return {_mm512_maskz_permute_ps(0xffff, v.v, J * 0x55)};
  }
};

struct lanes {
  __mmask16 v;

  [[gnu::always_inline]] static lanes of(uint32_t bits, size_t n) {
    return {static_cast<__mmask16>(bits & ((uint32_t{1} << n) - 1))};
  }
  [[gnu::always_inline]] static vec load(lanes m, const float* p) { return {_mm512_maskz_loadu_ps(m.v, p)}; }
  [[gnu::always_inline]] static vec fma(lanes m, vec a, vec b, vec c) {
    return {_mm512_mask3_fmadd_ps(a.v, b.v, c.v, m.v)};
  }
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
              {.name = "grouped_planes_f32_4x96_avx512",
               .about = "planes of groups, stride 1",
               .kind = kind::grouped_planes_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 4,
               .nr = 96,
               .vector = 16,
               .planes = run_planes<vec, lanes, 4, 6>})
