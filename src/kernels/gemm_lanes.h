// SPDX-License-Identifier: MIT
//
// The sum of the f32 GEMM microkernel for vector types that multiply by one element of a register, as NEON
// does; the contract is gemm_f32 in kernel.h, the rest of the tile gemm_f32.h.
//
// Rows of A are contiguous along k, so one load of a row brings the factors of 4 steps of k: a step is NV
// loads of B, a quarter of MR loads of A and MR * NV fused multiply-adds.
#pragma once

#include "kernel.h"

namespace quern {
namespace {

// The last vector of a row of B, of which `last` elements exist: each from where it is, the missing ones from
// where the first is.  No branch, and no zeros: what they give is not stored.
template <class V>
struct row_end {
  size_t second, third;
  explicit row_end(size_t last) : second(last > 1 ? 1 : 0), third(last > 2 ? 2 : 0) {}
  [[gnu::always_inline]] V load(const float* p) const { return V::gather3(p, p + second, p + third); }
};

template <class V, int MR, int NV, bool PART>
[[gnu::always_inline]] inline void sum_by_lanes(const gemm_f32& g, const float* a, const float* b0, V (&acc)[MR][NV]) {
  constexpr size_t W = V::width;
  const row_end<V> end(g.n - (NV - 1) * W);
  const size_t k = g.k, ldb = g.ldb;
  if (k == 0) return;
  for (size_t t = 0; t < g.taps; ++t) {
    const float* row[MR];
    QUERN_UNROLL for (int i = 0; i < MR; ++i) row[i] = a + g.tap[t].a + static_cast<size_t>(i) * g.lda;
    const float* b = b0 + g.tap[t].b;
    const auto load_b = [&](int j) __attribute__((always_inline)) {
      return PART && j == NV - 1 ? end.load(b + j * W) : V::load(b + j * W);
    };
    // What has been used for the last time is replaced at once by what the next step needs, so that loads run
    // under multiply-adds on cores that do not reorder, too; where nothing follows, by the same again.
    typename V::factors va[MR];
    V vb[NV];
    QUERN_UNROLL for (int j = 0; j < NV; ++j) vb[j] = load_b(j);
    size_t p = 0;
    if (k >= 4) {
      QUERN_UNROLL for (int i = 0; i < MR; ++i) va[i] = V::load_factors(row[i]);
      const size_t last = k / 4 * 4 - 4;
      do {
        const size_t next = p < last ? p + 4 : p;
        const auto step = [&]<int LANE>() __attribute__((always_inline)) {
          b += LANE < 3 || p + 4 < k ? ldb : 0;
          QUERN_UNROLL for (int s = 0; s < MR * NV; ++s) {
            const int i = V::lanes_are_copied ? s / NV : s % MR, j = V::lanes_are_copied ? s % NV : s / MR;
            acc[i][j] = V::template fma_lane<LANE>(va[i], vb[j], acc[i][j]);
            if (LANE == 3 && j == NV - 1) va[i] = V::load_factors(row[i] + next);
            if (i == MR - 1) vb[j] = load_b(j);
          }
        };
        step.template operator()<0>();
        step.template operator()<1>();
        step.template operator()<2>();
        step.template operator()<3>();
        p += 4;
      } while (p <= last);
    }
    for (; p < k; ++p) {
      b += p + 1 < k ? ldb : 0;
      V factor[MR];
      QUERN_UNROLL for (int i = 0; i < MR; ++i) factor[i] = V::set1(row[i][p]);
      QUERN_UNROLL for (int j = 0; j < NV; ++j) {
        QUERN_UNROLL for (int i = 0; i < MR; ++i) acc[i][j] = V::fma(factor[i], vb[j], acc[i][j]);
        vb[j] = load_b(j);
      }
    }
  }
}

}  // namespace
}  // namespace quern
