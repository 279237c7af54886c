// SPDX-License-Identifier: MIT
//
// f32 grouped convolution for AVX2 and FMA; the contract is grouped_f32 in kernel.h, the loop grouped_f32.h.
//
// 2 lines of 5 pixels: 10 accumulators cover the latency of the FMA units and leave 6 registers for two pixels,
// what they are spread to, and weights.
#include <immintrin.h>

#include "grouped_f32.h"
#include "vec_avx2.h"

namespace quern {
namespace {

// A pixel of 8 channels: 2 groups of 4, or one of 8.
template <int GROUP>
struct groups_of {
  static constexpr int quads = GROUP / 4;
  ptrdiff_t half;

  explicit groups_of(const grouped_f32& g) : half(g.n > 4 ? g.src_half : 0) {}
  [[gnu::always_inline]] vec load(const float* p) const {
    return {_mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + half), 1)};
  }
  [[gnu::always_inline]] static vec four(vec v, int u) {
    if constexpr (GROUP == 4) return v;
    return {u == 0 ? _mm256_permute2f128_ps(v.v, v.v, 0x00) : _mm256_permute2f128_ps(v.v, v.v, 0x11)};
  }
  template <int J>
  [[gnu::always_inline]] static vec spread(vec v) {
    return {_mm256_permute_ps(v.v, J * 0x55)};
  }
};

}  // namespace
}  // namespace quern

QUERN_KERNELS(grouped_f32_avx2,
              {.name = "grouped_f32_c4_taps3_avx2",
               .about = "4 channels a group, filters 3 wide",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX2,
               .mr = 5,
               .nr = 8,
               .vector = 8,
               .taps = 3,
               .step = 1,
               .group = 4,
               .lines = 2,
               .grouped = run_grouped<vec, groups_of<4>, 2, 5, 3, 1>},
              {.name = "grouped_f32_c4_avx2",
               .about = "4 channels a group, any filter and stride",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX2,
               .mr = 5,
               .nr = 8,
               .vector = 8,
               .group = 4,
               .lines = 2,
               .grouped = run_grouped<vec, groups_of<4>, 2, 5, 1, 1>},
              {.name = "grouped_f32_c8_taps3_avx2",
               .about = "8 channels a group, filters 3 wide",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX2,
               .mr = 5,
               .nr = 8,
               .vector = 8,
               .taps = 3,
               .step = 1,
               .group = 8,
               .lines = 2,
               .grouped = run_grouped<vec, groups_of<8>, 2, 5, 3, 1>},
              {.name = "grouped_f32_c8_avx2",
               .about = "8 channels a group, any filter and stride",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX2,
               .mr = 5,
               .nr = 8,
               .vector = 8,
               .group = 8,
               .lines = 2,
               .grouped = run_grouped<vec, groups_of<8>, 2, 5, 1, 1>})
