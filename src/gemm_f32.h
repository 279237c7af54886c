// SPDX-License-Identifier: MIT
//
// The f32 GEMM microkernel, once, over a vector type; the contract is gemm_f32 in kernel.h.
//
// MR x NV accumulators stay in registers; a step of k is NV loads of B, MR broadcasts of A and MR * NV
// fused multiply-adds.  Every m and nv below the tile is an instance of its own, so edges run at full
// rate.  The tile names mr x nr of the kernels count elements: nr = NV * V::width.
#pragma once

#include "epilogue.h"
#include "kernel.h"

namespace quern {
namespace {

template <class V, int MR, int NV, bool PART>
void tile(const gemm_f32& g) {
  constexpr size_t W = V::width;
  const size_t last = g.n - (NV - 1) * W;  // columns of the last vector
  V acc[MR][NV];
  if (g.accumulate) {
    QUERN_UNROLL for (int i = 0; i < MR; ++i) {
      const float* c = g.out.c + static_cast<size_t>(i) * g.out.ldc;
      QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] =
          PART && j == NV - 1 ? V::load_part(c + j * W, last) : V::load(c + j * W);
    }
  } else {
    QUERN_UNROLL for (int i = 0; i < MR; ++i) QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = V::set1(0.0f);
  }

  const size_t ldb = g.ldb;
  // Weights that come from L3 arrive too late without help: the hardware follows 14 rows of A already.
  // 8 KiB ahead gained 10 to 60 % there and costs nothing where they are near (Zen 5).  Rows of an image are
  // planes apart: so far ahead there is nothing but misses of the TLB.
  const size_t ahead = ldb > NV * W ? 0 : 8192 / (sizeof(float) * NV * W) * ldb;
  for (size_t t = 0; t < g.taps; ++t) {
    // Row i is at base i / 5 plus 0 to 4 strides: three bases and two strides address 15 rows.  The
    // empty asm hides their relation, or the compiler makes a register for every row and spills.
    const char* a0 = reinterpret_cast<const char*>(g.a + g.tap[t].a);
    size_t s1 = g.lda * sizeof(float), s3 = 3 * s1;
    const char* a1 = MR > 5 ? a0 + 5 * s1 : a0;
    const char* a2 = MR > 10 ? a0 + 10 * s1 : a0;
    __asm__("" : "+r"(a1), "+r"(a2), "+r"(s1), "+r"(s3));
    const float* b = g.b + g.tap[t].b;
    const auto step = [&](size_t p) __attribute__((always_inline)) {
      V vb[NV];
      QUERN_UNROLL for (int j = 0; j < NV; ++j) __builtin_prefetch(b + ahead + j * W);
      QUERN_UNROLL for (int j = 0; j < NV; ++j) vb[j] =
          PART && j == NV - 1 ? V::load_part(b + j * W, last) : V::load(b + j * W);
      QUERN_UNROLL for (int i = 0; i < MR; ++i) {
        const char* base = i < 5 ? a0 : i < 10 ? a1 : a2;
        const V va =
            V::set1(*reinterpret_cast<const float*>(base + (i % 5 == 3 ? s3 : s1 * (i % 5)) + p * sizeof(float)));
        QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = V::fma(va, vb[j], acc[i][j]);
      }
      b += ldb;
    };
    size_t k = g.k;
    for (; k >= 4; k -= 4, a0 += 16, a1 += 16, a2 += 16) step(0), step(1), step(2), step(3);
    for (; k != 0; --k, a0 += 4, a1 += 4, a2 += 4) step(0);
  }

  const epilogue_f32* const e = g.out.epilogue;
  if (e && !e->clamp_only) {
    alignas(64) float buffer[MR * NV * W];
    QUERN_UNROLL for (int i = 0; i < MR; ++i) QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[i][j].store(
        buffer + (i * NV + j) * W);
    finish<V>(g.out, g.m, g.n, buffer, NV * W);
    return;
  }
  if (e) {
    const V lower = V::set1(e->lower), upper = V::set1(e->upper);
    if (e->bias && g.out.channels_are_rows) {
      QUERN_UNROLL for (int i = 0; i < MR; ++i) {
        const V bias = V::set1(e->bias[g.out.channel + i]);
        QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = acc[i][j] + bias;
      }
    } else if (e->bias) {
      const float* p = e->bias + g.out.channel;
      QUERN_UNROLL for (int j = 0; j < NV; ++j) {
        const V bias = PART && j == NV - 1 ? V::load_part(p + j * W, last) : V::load(p + j * W);
        QUERN_UNROLL for (int i = 0; i < MR; ++i) acc[i][j] = acc[i][j] + bias;
      }
    }
    // min and max return the second operand for NaN, which therefore comes through.
    QUERN_UNROLL for (int i = 0; i < MR; ++i) QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] =
        V::min(upper, V::max(lower, acc[i][j]));
  }
  QUERN_UNROLL for (int i = 0; i < MR; ++i) {
    float* c = g.out.c + static_cast<size_t>(i) * g.out.ldc;
    QUERN_UNROLL for (int j = 0; j < NV; ++j) if (PART && j == NV - 1) acc[i][j].store_part(c + j * W, last);
    else acc[i][j].store(c + j * W);
  }
}

// The instance for m rows and n columns; the full tile is asked for first.
template <class V, int MR, int NV, bool PART>
void pick_rows(const gemm_f32& g) {
  if (g.m == MR) return tile<V, MR, NV, PART>(g);
  if constexpr (MR > 1) pick_rows<V, MR - 1, NV, PART>(g);
}

// Vector types whose masked loads cost nothing take one instance for whole and partial vectors alike.
template <class V, int MR, int NV>
void run(const gemm_f32& g) {
  constexpr size_t W = V::width;
  if (NV == 1 || g.n > (NV - 1) * W) {
    if constexpr (!V::masks_are_free)
      if (g.n == NV * W) return pick_rows<V, MR, NV, false>(g);
    pick_rows<V, MR, NV, true>(g);
  } else if constexpr (NV > 1) {
    run<V, MR, NV - 1>(g);
  }
}

}  // namespace
}  // namespace quern
