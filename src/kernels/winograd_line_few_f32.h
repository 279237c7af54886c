// SPDX-License-Identifier: MIT
//
// Winograd along x where sums have few steps, once, over a vector type; the contract is winograd_line_f32 in kernel.h.
//
// Two tiles of two vectors of channels have all their points in registers: sums never go through L1, for one load a
// multiply-add.  A tile's outputs of all channels leave one after the other, by pairs of cache lines, which stores that
// go past the cache need: of every fourth line they take half as long again (Emerald Rapids).
#pragma once

#include "epilogue.h"
#include "winograd_line_f32.h"

namespace quern {
namespace {

// Tiles beside one vector, or two.
template <int NV>
constexpr int few_tiles = 4 / NV;

// Sums of points, of tiles from t on and vectors from v on.
template <class V, int A, int NV, int N>
[[gnu::always_inline]] inline void sum_points(const winograd_strip_f32& s, size_t t, size_t v, const int (&points)[N],
                                              V (&sums)[few_tiles<NV>][NV][N]) {
  constexpr int T = few_tiles<NV>;
  constexpr size_t W = V::width;
  QUERN_UNROLL for (int i = 0; i < T; ++i) QUERN_UNROLL for (int k = 0; k < NV; ++k)
      QUERN_UNROLL for (int j = 0; j < N; ++j) sums[i][k][j] = V::zero();
  size_t m1 = s.matrix * sizeof(float), m3 = 3 * m1, m5 = 5 * m1, m7 = 7 * m1, s1 = s.tile * sizeof(float);
  __asm__("" : "+r"(m1), "+r"(m3), "+r"(m5), "+r"(m7));
  const size_t at = s.first * sizeof(float) + t * s1;
  const float* w = s.weights + v / 2 * s.w.pair;
  const float* const* step = s.step;
  for (const float* const* const end = step + s.steps; step != end; ++step, w += A * 2 * W) {
    const char* tile[T];
    tile[0] = reinterpret_cast<const char*>(*step) + at;
    QUERN_UNROLL for (int i = 1; i < T; ++i) tile[i] = tile[i - 1] + s1;
    QUERN_UNROLL for (int i = 0; i < T; ++i) __asm__("" : "+r"(tile[i]));
    QUERN_UNROLL for (int n = 0; n < N; ++n) {
      const int j = points[n];
      const size_t point = j == 3 ? m3 : j == 5 ? m5 : j == 6 ? m3 * 2 : j == 7 ? m7 : m1 * size_t(j);
      // Held, else the compiler loads a weight once a tile.
      V weights[NV];
      QUERN_UNROLL for (int k = 0; k < NV; ++k) weights[k] = V::load(w + (j * 2 + k) * int(W)), V::hold(weights[k]);
      QUERN_UNROLL for (int i = 0; i < T; ++i) {
        V pixel = V::set1(*reinterpret_cast<const float*>(tile[i] + point));
        if (NV > 1) V::hold(pixel);
        QUERN_UNROLL for (int k = 0; k < NV; ++k) sums[i][k][n] = V::fma(pixel, weights[k], sums[i][k][n]);
      }
    }
  }
}

// Outputs of tiles from t on, the sums of output_line in its order.  Of eight points the last pair comes when the
// others are outputs: registers do not hold all.
template <class V, int A, int M, int NV>
[[gnu::always_inline]] inline void outputs_of(const winograd_strip_f32& s, size_t t, size_t v,
                                              V (&y)[few_tiles<NV>][NV][M]) {
  constexpr int T = few_tiles<NV>;
  static_assert(A == 6 || A == 8);
  constexpr int points[] = {0, 1, 2, 3, 4, A - 1};
  V sums[T][NV][6];
  sum_points<V, A, NV>(s, t, v, points, sums);
  QUERN_UNROLL for (int i = 0; i < T; ++i) QUERN_UNROLL for (int k = 0; k < NV; ++k)
      output_line<A, M, 2>(sums[i][k], y[i][k]);
  if constexpr (A == 8) {
    constexpr int last[] = {5, 6};
    V pair[T][NV][2];
    sum_points<V, A, NV>(s, t, v, last, pair);
    QUERN_UNROLL for (int i = 0; i < T; ++i) QUERN_UNROLL for (int k = 0; k < NV; ++k)
        add_pair<A, M>(2, pair[i][k], y[i][k]);
  }
}

// Of vectors [begin, end), whole ones: whole tiles, as many as registers hold at least, bounded and stored.  The last
// tiles may write again what others did.
template <class V, int A, int M, int NV, bool STREAM, bool BOUNDED>
void store_few(const winograd_strip_f32& s, size_t tiles, size_t begin, size_t end) {
  constexpr int T = few_tiles<NV>;
  constexpr size_t W = V::width;
  const output_f32& out = s.to->out;
  const epilogue_f32& e = *out.epilogue;
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  const size_t ldc = out.ldc,
               next = column((begin + NV - 1) * W, out.block, out.next) - column(begin * W, out.block, out.next);
  for (size_t t = 0; t < tiles; t += T) {
    if (t + T > tiles) t = tiles - T;
    for (size_t v = begin; v < end; v += NV) {
      V y[T][NV][M], add[NV];
      outputs_of<V, A, M, NV>(s, t, v, y);
      const float* const bias = e.bias ? e.bias + out.channel + v * W : nullptr;
      QUERN_UNROLL for (int k = 0; k < NV; ++k) add[k] = bias ? V::load(bias + size_t(k) * W) : V::set1(-0.0f);
      float* c = out.c + t * M * ldc + column(v * W, out.block, out.next);
      QUERN_UNROLL for (int i = 0; i < T; ++i) QUERN_UNROLL for (int o = 0; o < M; ++o, c += ldc) {
        __asm__("" : "+r"(c));  // else all addresses are made first, and there are not so many registers
        QUERN_UNROLL for (int k = 0; k < NV; ++k)
            store_bounded<STREAM, BOUNDED>(y[i][k][o] + add[k], lower, upper, c + (k ? next : 0));
      }
    }
  }
}

// The same from tile t on, of any tiles and channels, with any epilogue.
template <class V, int A, int M, int NV>
void activate_few(const winograd_strip_f32& s, size_t t, size_t begin, size_t end) {
  constexpr int T = few_tiles<NV>;
  constexpr size_t W = V::width;
  const winograd_sums_f32& to = *s.to;
  for (; t * M < to.pixels; t += T)
    for (size_t v = begin; v < end; v += NV) {
      V y[T][NV][M];
      outputs_of<V, A, M, NV>(s, t, v, y);
      alignas(64) float buffer[T * M * NV * W];
      QUERN_UNROLL for (int i = 0; i < T; ++i) QUERN_UNROLL for (int o = 0; o < M; ++o)
          QUERN_UNROLL for (int k = 0; k < NV; ++k) y[i][k][o]
              .store(buffer + ((i * M + o) * NV + k) * int(W));
      output_f32 out = to.out;
      const size_t pixels = to.pixels - t * M, n = to.n - v * W;
      out.c += t * M * out.ldc + column(v * W, out.block, out.next);
      if (out.residual) out.residual += t * M * out.ldr + column(v * W, out.residual_block, out.residual_next);
      out.channel += v * W;
      V::finish(out, pixels < T * M ? pixels : T * M, n < NV * W ? n : NV * W, buffer, NV * W);
    }
}

template <class V, int A, int M, int NV>
void few_vectors(const winograd_strip_f32& s, size_t begin, size_t end) {
  constexpr size_t T = few_tiles<NV>;
  const winograd_sums_f32& to = *s.to;
  const size_t whole = to.pixels / M, tiles = whole < to.tiles ? whole / T * T : whole, vectors = to.n / V::width;
  if (to.out.epilogue->clamp_only && tiles >= T && vectors >= begin + NV) {
    const size_t stored = end <= vectors ? end : end - NV;
    const bool bounded = to.out.epilogue->upper < __builtin_inff();
    if (to.out.stream && is_aligned<V>(to.out.c, to.out))
      (bounded ? store_few<V, A, M, NV, true, true> : store_few<V, A, M, NV, true, false>)(s, tiles, begin, stored);
    else
      (bounded ? store_few<V, A, M, NV, false, true> : store_few<V, A, M, NV, false, false>)(s, tiles, begin, stored);
    activate_few<V, A, M, NV>(s, tiles, begin, stored);
    begin = stored;
  }
  activate_few<V, A, M, NV>(s, 0, begin, end);
}

// Vectors two at a time, and the last one of an odd number.
template <class V, int A, int M>
void few_strip(const winograd_strip_f32& s) {
  const size_t vectors = (s.to->n + V::width - 1) / V::width, even = vectors / 2 * 2;
  if (even > 0) few_vectors<V, A, M, 2>(s, 0, even);
  if (even < vectors) few_vectors<V, A, M, 1>(s, even, vectors);
}

// The row of F(M, R).
template <class V, int M, int R>
constexpr kernel winograd_line_few_row(const char* name, const char* about, uint64_t isa) {
  constexpr int A = M + R - 1;
  return {.name = name,
          .about = about,
          .kind = kind::winograd_line_f32,
          .isa = isa,
          .mr = few_tiles<1> * M,
          .nr = 4 * V::width,
          .vector = V::width,
          .taps = R,
          .step = 1,
          .tile = M,
          .copy = V::copy,
          .winograd_line = transform_line<V, A>,
          .winograd_strip = few_strip<V, A, M>};
}

}  // namespace
}  // namespace quern
