// SPDX-License-Identifier: MIT
//
// The f32 GEMM microkernel, once, over a vector type; the contract is gemm_f32 in kernel.h.
//
// MR x NV accumulators stay in registers; a step of k is NV loads of B, MR broadcasts of A and MR * NV
// fused multiply-adds (gemm_lanes.h: MR loads of A for four steps).  Every m and nv below the tile is an instance
// of its own, so edges run at full rate.  The tile names mr x nr of the kernels count elements: nr = NV * V::width.
#pragma once

#include <math.h>

#include "epilogue.h"
#include "gemm_lanes.h"
#include "kernel.h"

namespace quern {
namespace {

// Where a tile of a call is, and how many follow it.
struct place {
  const float *a, *b;
  const char* ahead;
  float* c;
  const float* residual;
  size_t channel, more;
};

// Bounds the sums and stores them, or leaves them to the epilogue.
template <class V, int MR, int NV, bool PART>
[[gnu::always_inline]] inline void end_tile(const output_f32& out, const place& where, size_t last, V (&acc)[MR][NV]) {
  constexpr size_t W = V::width;
  const epilogue_f32* const e = out.epilogue;
  if (e && !e->clamp_only) {
    alignas(64) float buffer[MR * NV * W];
    QUERN_UNROLL for (int i = 0; i < MR; ++i) QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[i][j].store(
        buffer + (i * NV + j) * W);
    output_f32 to = out;
    to.c = where.c, to.residual = where.residual, to.channel = where.channel;
    return finish<V>(to, MR, (NV - 1) * W + last, buffer, NV * W);
  }
  size_t at[NV];
  QUERN_UNROLL for (int j = 0; j < NV; ++j) at[j] = column(j * W, out.block, out.next);
  float* row = where.c;
  const size_t ldc = out.ldc;
  if (!PART && (!e || (e->plain && !out.stream))) {
    QUERN_UNROLL for (int i = 0; i < MR; ++i, row += ldc) {
      __asm__("" : "+r"(row));
      QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[i][j].store(row + at[j]);
    }
    return;
  }
  // A bias or lower bound that is not asked for changes no bit, and one of the two costs less than to ask; an upper one
  // is rare, and takes the units that multiply (3 % at k = 16, Granite Rapids).  min and max return the second operand
  // for NaN, which therefore comes through.
  V bias[NV], lower = V::set1(-INFINITY), upper = V::set1(INFINITY);
  QUERN_UNROLL for (int j = 0; j < NV; ++j) bias[j] = V::set1(-0.0f);
  const float *along = nullptr, *down = nullptr;
  if (e) {
    lower = V::set1(e->lower), upper = V::set1(e->upper);
    if (e->bias) (out.channels_are_rows ? down : along) = e->bias + where.channel;
  }
  if (along)
    QUERN_UNROLL for (int j = 0; j < NV; ++j) bias[j] =
        PART && j == NV - 1 ? V::load_part(along + j * W, last) : V::load(along + j * W);
  bool bounded = e && e->upper < INFINITY, streams = out.stream && is_aligned<V>(where.c, out);
  // A row is bounded and stored before the next one is begun: passes over all of them hold up the multiply-adds of the
  // tile that follows (2 to 5 % at k = 64, Zen 4).
  if (!PART && !bounded && !streams) {
    const auto rows = [&](const auto& bias_at) __attribute__((always_inline)) {
      QUERN_UNROLL for (int i = 0; i < MR; ++i, row += ldc) {
        __asm__ volatile("" : "+r"(row) : : "memory");
        QUERN_UNROLL for (int j = 0; j < NV; ++j) V::hold(acc[i][j]);
        QUERN_UNROLL for (int j = 0; j < NV; ++j) V::max(lower, acc[i][j] + bias_at(i, j)).store(row + at[j]);
      }
    };
    return down ? rows([&](int i, int) { return V::set1(down[i]); }) : rows([&](int, int j) { return bias[j]; });
  }
  QUERN_UNROLL for (int i = 0; i < MR; ++i, row += ldc) {
    // The empty asm keeps branches and addresses where they are: the compiler would rather write all rows again for
    // each way, and know the address of every vector beforehand.
    __asm__("" : "+r"(down), "+r"(row), "+r"(bounded), "+r"(streams));
    if (down) {
      const V here = V::set1(down[i]);
      QUERN_UNROLL for (int j = 0; j < NV; ++j) bias[j] = here;
    }
    V y[NV];
    QUERN_UNROLL for (int j = 0; j < NV; ++j) y[j] = V::max(lower, acc[i][j] + bias[j]);
    if (bounded) QUERN_UNROLL for (int j = 0; j < NV; ++j) y[j] = V::min(upper, y[j]);
    QUERN_UNROLL for (int j = 0; j < NV; ++j) {
      if (PART && j == NV - 1 && (!streams || last < W))
        y[j].store_part(row + at[j], last);
      else if (streams)
        y[j].stream(row + at[j]);
      else
        y[j].store(row + at[j]);
    }
  }
}

template <class V, int MR, int NV, bool PART>
void tile(const gemm_f32& g) {
  const gemm_f32* call = &g;
  static_assert(MR <= 14);
  constexpr size_t W = V::width;
  const size_t last = PART ? call->n - (NV - 1) * W : W;  // columns of the last vector
  // What changes from tile to tile is in memory: kept aside it would go through vector registers, and wait there for
  // the multiply-adds of the tile before.
  place at = {call->a,           call->b,   reinterpret_cast<const char*>(call->ahead), call->out.c, call->out.residual,
              call->out.channel, call->more};
  for (;; --at.more) {
    __asm__("" : "+m"(at));
    V acc[MR][NV];
    if (call->accumulate) {
      QUERN_UNROLL for (int j = 0; j < NV; ++j) {
        const float* c = at.c + column(j * W, call->out.block, call->out.next);
        QUERN_UNROLL for (int i = 0; i < MR; ++i, c += call->out.ldc) acc[i][j] =
            PART && j == NV - 1 ? V::load_part(c, last) : V::load(c);
      }
    } else {
      QUERN_UNROLL for (int i = 0; i < MR; ++i) QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = V::set1(0.0f);
    }

    if constexpr (requires { typename V::factors; }) {
      sum_by_lanes<V, MR, NV, PART>(*call, at.a, at.b, acc);
    } else {
      // Rows 0 to 6 are at a base plus 0 to 6 strides, which three registers address, 7 to 13 at another.  The empty
      // asm hides how they relate, or the compiler makes a register for every row and spills.
      size_t s1 = call->lda * sizeof(float), s3 = 3 * s1, s5 = 5 * s1;
      __asm__("" : "+r"(s1), "+r"(s3), "+r"(s5));
      const gemm_tap* tap = call->tap;
      for (size_t taps = call->taps; taps != 0; --taps, ++tap) {
        __asm__("" : "+r"(call), "+m"(at), "+r"(tap), "+r"(taps));
        const char* a0 = reinterpret_cast<const char*>(at.a + tap->a);
        const char* a7 = MR > 7 ? a0 + 7 * s1 : a0;
        const char* b = reinterpret_cast<const char*>(at.b + tap->b);
        const size_t ldb = call->ldb * sizeof(float);
        // HINTS is the cache that what lies ahead goes to, 0: none.
        const auto steps = [&]<int HINTS>(const char* ahead, size_t pace) __attribute__((always_inline)) {
          for (size_t k = call->k; k != 0; --k) {
            __asm__("" : "+r"(a0), "+r"(a7), "+r"(b));
            V vb[NV];
            QUERN_UNROLL for (int j = 0; j < NV; ++j) {
              const float* from = reinterpret_cast<const float*>(b) + j * W;
              vb[j] = PART && j == NV - 1 ? V::load_part(from, last) : V::load(from);
              if (HINTS) __builtin_prefetch(ahead + j * W * sizeof(float), 0, HINTS == 1 ? 3 : 2);
            }
            QUERN_UNROLL for (int i = 0; i < MR; ++i) {
              const int r = i % 7;
              const char* base = i < 7 ? a0 : a7;
              const char* from = base + (r == 3 ? s3 : r == 5 ? s5 : r == 6 ? s3 * 2 : s1 * r);
              const V va = V::set1(*reinterpret_cast<const float*>(from));
              QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = V::fma(va, vb[j], acc[i][j]);
            }
            a0 += sizeof(float), a7 += sizeof(float), b += ldb;
            if (!HINTS) continue;
            ahead += pace;
            __asm__("" : "+r"(ahead));
          }
          return ahead;
        };
        // Whole tiles of wide vectors alone are worth loops of their own: beside weights that stay in L1 there is room
        // for pixels.
        const bool hinted = call->ahead;
        if (W >= 16 && !PART && call->near && !hinted) {
          steps.template operator()<0>(nullptr, 0);
        } else if (W >= 16 && !PART && call->near) {
          at.ahead = steps.template operator()<1>(at.ahead, call->pace * sizeof(float));
        } else {
          // Weights that come from L3 arrive too late without help: the hardware follows 14 rows of A already.
          // 8 KiB ahead gained 10 to 60 % there and costs nothing where they are near (Zen 5).  Rows of an image are
          // planes apart: what the next tile reads lies behind what this one does.  To L2: a panel on its way to L1
          // pushes out the rows that it will meet (up to 30 % where weights come from memory: Zen 4).
          const size_t further = call->ldb > NV * W ? NV * W * sizeof(float) : 8192 / (sizeof(float) * NV * W) * ldb;
          const char* const end =
              steps.template operator()<2>(hinted ? at.ahead : b + further, hinted ? call->pace * sizeof(float) : ldb);
          if (call->ahead) at.ahead = end;
        }
      }
    }
    __asm__("" : "+m"(at));
    end_tile<V, MR, NV, PART>(call->out, at, last, acc);
    if (at.more == 0) return;
    at.a += call->step.a, at.b += call->step.b;
    at.c += call->step.c, at.channel += size_t(call->step.channel);
    if (at.residual) at.residual += call->step.residual;
  }
}

// The instance for m rows and n columns; the full tile is asked for first.
template <class V, int MR, int NV, bool PART>
void pick_rows(const gemm_f32& g) {
  if (g.m == MR) return tile<V, MR, NV, PART>(g);
  if constexpr (MR > 1) pick_rows<V, MR - 1, NV, PART>(g);
}

// Where masks cost next to nothing, one instance does for whole and partial vectors; full tiles have their own: Zen 4
// takes an operation more for each masked load, which is 1 to 4 % of a step of k.
template <class V, int MR, int NV>
void run(const gemm_f32& g) {
  constexpr size_t W = V::width;
  if (NV == 1 || g.n > (NV - 1) * W) {
    if (g.n == NV * W) {
      if constexpr (!V::masks_are_free) return pick_rows<V, MR, NV, false>(g);
      if (g.m == MR) return tile<V, MR, NV, false>(g);
    }
    pick_rows<V, MR, NV, true>(g);
  } else if constexpr (NV > 1) {
    run<V, MR, NV - 1>(g);
  }
}

}  // namespace
}  // namespace quern
