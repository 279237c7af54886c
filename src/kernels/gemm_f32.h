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

  // Read again for each tap.
  [[gnu::always_inline]] const float* a_of(const gemm_f32*) {
    __asm__("" : "+m"(*this));
    return a;
  }
  [[gnu::always_inline]] const float* next_a(const gemm_f32* call) const { return more ? a + call->step.a : a; }
  [[gnu::always_inline]] const float* b_of(const gemm_f32*) const { return b; }
  [[gnu::always_inline]] const char* ahead_of(const gemm_f32*, const gemm_tap*) const { return ahead; }
  [[gnu::always_inline]] void fetched(const char* end) {
    if (ahead) ahead = end;
  }
};

// The same, counted from the first tile.
struct numbered {
  ptrdiff_t index;

  [[gnu::always_inline]] const float* a_of(const gemm_f32* call) const { return call->a + index * call->step.a; }
  [[gnu::always_inline]] const float* next_a(const gemm_f32* call) const {
    return call->a + (index + (size_t(index) != call->more)) * call->step.a;
  }
  [[gnu::always_inline]] const float* b_of(const gemm_f32* call) const { return call->b + index * call->step.b; }
  [[gnu::always_inline]] const char* ahead_of(const gemm_f32* call, const gemm_tap* tap) const {
    if (!call->ahead) return nullptr;
    const size_t before = (size_t(index) * call->taps + size_t(tap - call->tap)) * call->k;
    return reinterpret_cast<const char*>(call->ahead + before * call->pace);
  }
  [[gnu::always_inline]] void fetched(const char*) const {}
};

// One copy for tiles of all sizes.
template <class V>
[[gnu::noinline]] void finish_tile(const output_f32& out, const place& where, size_t m, size_t n, const float* sums,
                                   size_t row) {
  output_f32 to = out;
  to.c = where.c, to.residual = where.residual, to.channel = where.channel;
  V::finish(to, m, n, sums, row);
}

// Bounds the sums and stores them, or leaves them to the epilogue.
template <class V, int MR, int NV, bool PART>
[[gnu::always_inline]] inline void end_tile(const output_f32& out, const place& where, size_t last, V (&acc)[MR][NV]) {
  constexpr size_t W = V::width;
  const epilogue_f32* const e = out.epilogue;
  // The rare way, and said to be: else its arguments cost the loop of NEON's 5 x 16 tile two copies.
  if (__builtin_expect(e && !e->clamp_only, 0)) {
    alignas(64) float buffer[MR * NV * W];
    QUERN_UNROLL for (int i = 0; i < MR; ++i) QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[i][j].store(
        buffer + (i * NV + j) * W);
    return finish_tile<V>(out, where, MR, (NV - 1) * W + last, buffer, NV * W);
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

// The cache that what lies ahead is fetched to.
enum fetching { nowhere, to_l1, to_l2 };

// acc += the sum over all taps.
template <class V, int MR, int NV, bool PART, fetching TO, class Where>
[[gnu::always_inline]] inline void sum(const gemm_f32* call, Where& where, V (&acc)[MR][NV]) {
  constexpr size_t W = V::width;
  // Rows 0 to 6 are at a base plus 0 to 6 strides, which three registers address, 7 to 13 at another.  The empty asm
  // hides how they relate, or the compiler makes a register for every row and spills.  Tiles of wide vectors make them
  // anew for each tap: kept, they push others out (5 % of 64 to 384 channels, Zen 4); short taps of narrow ones mind.
  size_t s1, s3, s5;
  const auto strides = [&]() __attribute__((always_inline)) {
    s1 = call->lda * sizeof(float), s3 = 3 * s1, s5 = 5 * s1;
    __asm__("" : "+r"(s1), "+r"(s3), "+r"(s5));
  };
  const auto row_of = [&](const char* base, int r) __attribute__((always_inline)) {
    return base + (r == 3 ? s3 : r == 5 ? s5 : r == 6 ? s3 * 2 : s1 * r);
  };
  if (W < 16) strides();
  const gemm_tap* tap = call->tap;
  for (size_t taps = call->taps; taps != 0; --taps, ++tap) {
    __asm__("" : "+r"(call), "+r"(tap));
    if (W >= 16) strides();
    const char* a0 = reinterpret_cast<const char*>(where.a_of(call) + tap->a);
    const char* a7 = MR > 7 ? a0 + 7 * s1 : a0;
    const char* b = reinterpret_cast<const char*>(where.b_of(call) + tap->b);
    // The hardware follows no row that ends after 8 to 80 floats: up to a tenth of 1x1 on blocks of 8 (Zen 3; wide
    // vectors were not measured).  Few tiles are low, narrow or partial.
    if (W < 16 && !PART && MR * NV >= 8 && call->apart) {
      const float* next = taps > 1 ? where.a_of(call) + tap[1].a : where.next_a(call) + call->tap->a;
      QUERN_UNROLL for (int i = 0; i < MR; ++i)
          __builtin_prefetch(row_of(reinterpret_cast<const char*>(next), i), 0, 3);
    }
    const size_t ldb = call->ldb * sizeof(float), last = PART ? call->n - (NV - 1) * W : W;
    const char* ahead = TO == nowhere ? nullptr : where.ahead_of(call, tap);
    size_t pace = ldb;
    if (ahead) {
      pace = call->pace * sizeof(float);
    } else if (TO != nowhere) {
      // Weights that come from L3 arrive too late without help: the hardware follows 14 rows of A already.
      // 8 KiB ahead gained 10 to 60 % there and costs nothing where they are near (Zen 5).  Rows of an image are
      // planes apart: what the next tile reads lies behind what this one does.  To L2: a panel on its way to L1 pushes
      // out the rows that it will meet (up to 30 % where weights come from memory: Zen 4).
      ahead = b + (call->ldb > NV * W ? NV * W * sizeof(float) : 8192 / (sizeof(float) * NV * W) * ldb);
    }
    for (size_t k = call->k; k != 0; --k) {
      __asm__("" : "+r"(a0), "+r"(a7), "+r"(b));
      V vb[NV];
      QUERN_UNROLL for (int j = 0; j < NV; ++j) {
        const float* from = reinterpret_cast<const float*>(b) + j * W;
        vb[j] = PART && j == NV - 1 ? V::load_part(from, last) : V::load(from);
        if (TO != nowhere) __builtin_prefetch(ahead + j * W * sizeof(float), 0, TO == to_l1 ? 3 : 2);
      }
      QUERN_UNROLL for (int i = 0; i < MR; ++i) {
        const V va = V::set1(*reinterpret_cast<const float*>(row_of(i < 7 ? a0 : a7, i % 7)));
        QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = V::fma(va, vb[j], acc[i][j]);
      }
      a0 += sizeof(float), a7 += sizeof(float), b += ldb;
      if (TO == nowhere) continue;
      ahead += pace;
      __asm__("" : "+r"(ahead));
    }
    if (TO != nowhere) where.fetched(ahead);
  }
}

// What layers ask for most, and the time of short sums hangs on: whole tiles that begin at zero and are stored as they
// are or after a bias along the columns and bounds (an upper one only where nothing is fetched); of narrow vectors
// those of one tap, which the next layer finds in its caches (3 % of products of Winograd's, but short taps lose as
// much).  Not inline: runs of all tiles ask.
template <class V>
[[gnu::noinline]] bool is_simple(const gemm_f32& g, fetching to) {
  const epilogue_f32* const e = g.out.epilogue;
  return !g.accumulate && (g.out.block == 0 || g.out.block == V::width) &&
         (V::width >= 16 || (g.taps == 1 && !g.out.stream)) &&
         (!e || (e->plain && !g.out.stream) ||
          (e->clamp_only && e->bias && !g.out.channels_are_rows &&
           (!(e->upper < INFINITY) || (to == nowhere && !g.out.stream))));
}

// A row is finished and stored before the next one is begun: passes over all of them hold up the multiply-adds of the
// tile that follows (2 to 5 % at k = 64, Zen 4).
template <class V, int MR, int NV, bool BIAS, bool ABOVE, bool STREAM>
[[gnu::always_inline]] inline void store_rows(const V (&acc)[MR][NV], float* row, size_t ldc, size_t next,
                                              const float* bias, float lower, float upper) {
  QUERN_UNROLL for (int i = 0; i < MR; ++i, row += ldc) {
    __asm__ volatile("" : "+r"(row) : : "memory");
    QUERN_UNROLL for (int j = 0; j < NV; ++j) {
      V y = acc[i][j];
      if (BIAS) y = V::max(V::set1(lower), y + V::load(bias + j * V::width));
      if (ABOVE) y = V::min(V::set1(upper), y);
      if (STREAM)
        y.stream(row + j * next);
      else
        y.store(row + j * next);
    }
  }
}

template <class V, int MR, int NV, fetching TO>
void simple_tiles(const gemm_f32& g) {
  constexpr size_t W = V::width;
  const gemm_f32* call = &g;
  // Where a tile lies is counted from the first one: places that were kept in memory from tile to tile waited for the
  // stores of the tile before, in vector registers for its multiply-adds (5 % at k = 16, Zen 4).
  for (ptrdiff_t index = 0;; ++index) {
    __asm__("" : "+r"(index), "+r"(call));
    V acc[MR][NV];
    QUERN_UNROLL for (int i = 0; i < MR; ++i) QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = V::set1(0.0f);
    numbered here = {index};
    sum<V, MR, NV, false, TO>(call, here, acc);
    __asm__("" : "+r"(index), "+r"(call));
    const output_f32& out = call->out;
    const epilogue_f32* const e = out.epilogue;
    float* row = out.c + index * call->step.c;
    const size_t ldc = out.ldc, next = out.block ? out.next : W;
    const float* const bias = !e || e->plain ? nullptr : e->bias + out.channel + size_t(index * call->step.channel);
    // An upper bound takes the units that multiply (3 % at k = 16, Granite Rapids).
    if (!bias)
      store_rows<V, MR, NV, false, false, false>(acc, row, ldc, next, nullptr, 0, 0);
    else if (TO == nowhere && e->upper < INFINITY)
      store_rows<V, MR, NV, true, true, false>(acc, row, ldc, next, bias, e->lower, e->upper);
    else if (W >= 16 && out.stream && is_aligned<V>(row, out))
      store_rows<V, MR, NV, true, false, true>(acc, row, ldc, next, bias, e->lower, 0);
    else
      store_rows<V, MR, NV, true, false, false>(acc, row, ldc, next, bias, e->lower, 0);
    if (size_t(index) == call->more) return;
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
    if constexpr (requires { typename V::factors; })
      sum_by_lanes<V, MR, NV, PART>(*call, at.a, at.b, acc);
    else if (W >= 16 && !PART && call->near && !call->ahead)
      sum<V, MR, NV, PART, nowhere>(call, at, acc);
    else
      sum<V, MR, NV, PART, to_l2>(call, at, acc);
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
// NEAR: where what is ahead goes beside weights in L1, for whole tiles; nowhere: this tile is a narrower one's.
template <class V, int MR, int NV, fetching NEAR = to_l2>
void run(const gemm_f32& g) {
  constexpr size_t W = V::width;
  if (NV == 1 || g.n > (NV - 1) * W) {
    if (g.n == NV * W) {
      // Tall tiles of narrow vectors gain nothing; whole tiles of wide ones alone are worth two loops.
      if constexpr (NEAR != nowhere && (W >= 16 || (W == 8 && MR < 6))) {
        const fetching to = W < 16 || !g.near ? to_l2 : g.ahead ? NEAR : nowhere;
        if (g.m == MR && is_simple<V>(g, to)) {
          if (W >= 16 && to == nowhere) return simple_tiles<V, MR, NV, nowhere>(g);
          return to == NEAR ? simple_tiles<V, MR, NV, NEAR>(g) : simple_tiles<V, MR, NV, to_l2>(g);
        }
      }
      if constexpr (!V::masks_are_free) return pick_rows<V, MR, NV, false>(g);
      if (g.m == MR) return tile<V, MR, NV, false>(g);
    }
    pick_rows<V, MR, NV, true>(g);
  } else if constexpr (NV > 1) {
    run<V, MR, NV - 1, nowhere>(g);
  }
}

}  // namespace
}  // namespace quern
