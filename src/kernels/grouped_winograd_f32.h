// SPDX-License-Identifier: MIT
//
// Grouped convolution with few channels a group by Winograd's F(M, 3) down the lines, once, over a vector type.  The
// call is grouped_f32 of kernel.h, with
//
//   lines     of outputs, at most M
//   row[k]    line k < M + 2 of inputs; `inside` is NULL where it is padding, which is zeros, else bit i % 32 of
//             inside[i / 32] is clear where pixel i < m + 2 is, which is left out; b has no meaning
//   weights   [p][point][s][vector], transformed
//
// An input pixel of all lines is transformed in registers, and its points meet a row of the filter: three neighbouring
// outputs, whose 3 (M + 2) sums move on with it.  So a pixel is transformed and spread over the lanes of its group
// once, and weights come from memory, a load a multiply-add.
#pragma once

#include "fetch.h"
#include "grouped_f32.h"
#include "winograd.h"

namespace quern {
namespace {

// FAST: all lines are on the image and wanted, channels side by side and as many as a vector has, and the epilogue is a
// bias and a clamp.  What is left to ask in the loop takes a sixth of its time.
template <class V, class Lanes, int GROUP, int M, int MR, bool FAST>
[[gnu::noinline]] void grouped_winograd(const grouped_f32& g) {
  constexpr int A = M + 2, TAPS = 3;
  constexpr size_t W = V::width;
  const epilogue_f32& e = *g.out.epilogue;
  const bool at_once = FAST || (e.clamp_only && g.n == W), apart = !FAST && g.dst_half != W / 2;
  const bool bounded = e.upper < __builtin_inff();
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  const V bias = at_once && e.bias ? V::load(e.bias + g.out.channel) : V::set1(-0.0f);
  // The second half of the last vector is read as a whole one.
  alignas(64) float sums[FAST ? 1 : (M * MR + 1) * W];
  float* c = at_once ? g.out.c : sums;
  const ptrdiff_t to_line = at_once ? g.dst_line : MR * W, to_pixel = at_once ? static_cast<ptrdiff_t>(g.out.ldc) : W;
  const size_t lines = FAST || !at_once ? M : g.lines, end = g.m + TAPS - 1;

  const Lanes pixel(g);
  const float* from[A];
  uint32_t on_image = 0;
  uint64_t inside = 0;
  QUERN_UNROLL for (int k = 0; k < A; ++k) {
    from[k] = g.src + g.row[k].a;
    if (const uint32_t* bits = g.row[k].inside) on_image |= 1u << k, inside = bits[0] | uint64_t{bits[1]} << 32;
  }
  const float* const weights = g.weights;
  const ptrdiff_t src_pixel = g.src_pixel;
  lines_ahead ahead[2] = {g.ahead[0], g.ahead[1]};
  V acc[TAPS][A];
  QUERN_UNROLL for (int s = 0; s < TAPS; ++s) QUERN_UNROLL for (int j = 0; j < A; ++j) acc[s][j] = V::zero();

  // Input pixel x is the last one of output x - 2 and the first one of output x.
  size_t x = 0;
  ptrdiff_t at = 0;
  const auto step = [&]<int P>() __attribute__((always_inline)) {
    if constexpr (FAST) fetch(ahead, 1);
    V *const last = acc[P], *const middle = acc[(P + 1) % TAPS], *const first = acc[(P + 2) % TAPS];
    if (__builtin_expect(inside >> x & 1, 1)) {
      V d[A], o[A];
      QUERN_UNROLL for (int k = 0; k < A; ++k) {
        d[k] = FAST ? V::load(from[k] + at) : on_image >> k & 1 ? pixel.load(from[k] + at) : V::zero();
        V::hold(d[k]);  // one load for all that it is part of
      }
      input_line<A>(d, o);
      each_number<0, GROUP / 4>([&]<int u>() __attribute__((always_inline)) {
        V four[A];
        QUERN_UNROLL for (int j = 0; j < A; ++j) {
          if constexpr (GROUP == 4)
            four[j] = o[j];
          else
            four[j] = Lanes::four(o[j], u);
        }
        each_number<0, 4 * A>([&]<int i>() __attribute__((always_inline)) {
          constexpr int j = i % A;
          const float* const w = weights + (u * 4 * A + i) * TAPS * W;
          const V channel = Lanes::template lane<i / A>(four[j]);
          first[j] = V::fma(channel, V::load(w), first[j]);
          middle[j] = V::fma(channel, V::load(w + W), middle[j]);
          last[j] = V::fma(channel, V::load(w + 2 * W), last[j]);
        });
      });
    }
    at += src_pixel;
    if (__builtin_expect(x >= TAPS - 1, 1)) {
      V y[M];
      output_line<A, M>(last, y);
      float* to = c;
      QUERN_UNROLL for (int i = 0; i < M; ++i, to += to_line) {
        if (static_cast<size_t>(i) >= lines) break;
        if (!at_once) {
          y[i].store(to);
          continue;
        }
        V value = V::max(lower, y[i] + bias);
        if (__builtin_expect(bounded, 0)) value = V::min(upper, value);  // takes turns with the multiply-adds
        if (apart)
          value.store_halves(to, to + g.dst_half);
        else
          value.store(to);
      }
      c += to_pixel;
    }
    QUERN_UNROLL for (int j = 0; j < A; ++j) last[j] = V::zero();
    return ++x == end;
  };
  for (;;)
    if (step.template operator()<0>() || step.template operator()<1>() || step.template operator()<2>()) break;
  if (!at_once) finish_lines<V>(g, g.lines, MR, sums);
}

template <class V, class Lanes, int GROUP, int M, int MR>
void run_grouped_winograd(const grouped_f32& g) {
  constexpr ptrdiff_t half = V::width / 2;
  bool fast = g.lines == M && g.n == V::width && g.src_run == half && g.dst_half == half && g.out.epilogue->clamp_only;
  for (int k = 0; k < M + 2; ++k) fast &= g.row[k].inside != nullptr;
  fast ? grouped_winograd<V, Lanes, GROUP, M, MR, true>(g) : grouped_winograd<V, Lanes, GROUP, M, MR, false>(g);
}

// Groups of a whole vector: a channel of a pixel comes to all lanes by a load, which takes nothing from the units that
// multiply.  So points wait in L1 until one after the other meets its row of the filter, whose three weights stay in
// registers beside PIXELS sums.  So do groups of four where registers hold no sums of all points.  Lines that are not
// wanted save points (winograd_points.h).
template <class V, class Lanes, int GROUP, int M, int PIXELS>
[[gnu::noinline]] void grouped_winograd_by_points(const grouped_f32& g) {
  static_assert(GROUP == 4 || GROUP == V::width);
  constexpr int A = M + 2, TAPS = 3, INPUTS = PIXELS + TAPS - 1;
  constexpr size_t W = V::width;
  alignas(64) float points[A][INPUTS][W], sums[A][PIXELS][W];
  const Lanes pixel(g);
  const float* from[A];
  uint32_t on_image = 0, inside = 0;
  QUERN_UNROLL for (int k = 0; k < A; ++k) {
    from[k] = g.src + g.row[k].a;
    if (const uint32_t* bits = g.row[k].inside) on_image |= 1u << k, inside = bits[0];
  }
  const int taken = points_for(A, static_cast<int>(g.lines) + TAPS - 1);
  lines_ahead ahead[2] = {g.ahead[0], g.ahead[1]};
  const ptrdiff_t src_pixel = g.src_pixel;
  // WHOLE: all lines are on the image and wanted.
  const auto gather = [&]<bool WHOLE>() __attribute__((always_inline)) {
    ptrdiff_t at = 0;
    for (int x = 0; x < INPUTS; ++x, at += src_pixel) {
      V d[A], o[A];
      fetch(ahead, 1);
      if (!(inside >> x & 1)) {
        QUERN_UNROLL for (int k = 0; k < A; ++k) V::zero().store(points[k][x]);
        continue;
      }
      QUERN_UNROLL for (int k = 0; k < A; ++k) d[k] = WHOLE || on_image >> k & 1 ? pixel.load(from[k] + at) : V::zero();
      if (!WHOLE) extend<A>(d, taken);
      input_line<A>(d, o);
      QUERN_UNROLL for (int k = 0; k < A; ++k) o[k].store(points[k][x]);
    }
  };
  if (on_image == (1u << A) - 1 && taken == A)
    gather.template operator()<true>();
  else
    gather.template operator()<false>();

  for (int j = 0; j < A; ++j) {
    if (!is_kept(A, taken, j)) {
      QUERN_UNROLL for (int i = 0; i < PIXELS; ++i) V::zero().store(sums[j][i]);
      continue;
    }
    V acc[PIXELS];
    QUERN_UNROLL for (int i = 0; i < PIXELS; ++i) acc[i] = V::zero();
    const float* weights = g.weights + static_cast<size_t>(j) * TAPS * W;
    // A channel of all pixels: spread(x) is it in the lanes of its group.
    const auto meet = [&](const auto& spread) __attribute__((always_inline)) {
      V w[TAPS];
      QUERN_UNROLL for (int s = 0; s < TAPS; ++s) w[s] = V::load(weights + static_cast<size_t>(s) * W), V::hold(w[s]);
      each_number<0, INPUTS>([&]<int x>() __attribute__((always_inline)) {
        V v = spread(x);
        V::hold(v);
        QUERN_UNROLL for (int s = 0; s < TAPS; ++s) if (x - s >= 0 && x - s < PIXELS) acc[x - s] =
            V::fma(v, w[s], acc[x - s]);
      });
      weights += A * TAPS * W;
    };
    if constexpr (GROUP == V::width) {
      QUERN_ROLL for (size_t c = 0; c < W; ++c)
          meet([&](int x) __attribute__((always_inline)) { return V::set1(points[j][x][c]); });
    } else {
      each_number<0, 4>([&]<int c>() __attribute__((always_inline)) {
        meet([&](int x) __attribute__((always_inline)) { return Lanes::template lane<c>(V::load(points[j][x])); });
      });
    }
    QUERN_UNROLL for (int i = 0; i < PIXELS; ++i) acc[i].store(sums[j][i]);
  }

  const epilogue_f32& e = *g.out.epilogue;
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  const bool at_once = e.clamp_only && g.n == W, apart = g.dst_half != W / 2;
  const V bias = at_once && e.bias ? V::load(e.bias + g.out.channel) : V::set1(-0.0f);
  const ptrdiff_t to_line = g.dst_line, to_half = g.dst_half;
  const size_t lines = g.lines, pixels = g.m, ldc = g.out.ldc;
  float* c = g.out.c;
  const auto finish = [&]<bool WHOLE>() __attribute__((always_inline)) {
    for (size_t i = 0; i < pixels; ++i, c += ldc) {
      V s[A], y[M];
      QUERN_UNROLL for (int j = 0; j < A; ++j) s[j] = V::load(sums[j][i]);
      output_line<A, M>(s, y);
      float* to = c;
      QUERN_UNROLL for (int l = 0; l < M; ++l, to += to_line) {
        if (!WHOLE && !at_once) {
          y[l].store(sums[l][i]);
          continue;
        }
        if (!WHOLE && static_cast<size_t>(l) >= lines) break;
        const V value = V::min(upper, V::max(lower, y[l] + bias));
        if (!WHOLE && apart)
          value.store_halves(to, to + to_half);
        else
          value.store(to);
      }
    }
  };
  if (at_once && !apart && lines == M)
    finish.template operator()<true>();
  else
    finish.template operator()<false>();
  if (!at_once) finish_lines<V>(g, g.lines, PIXELS, sums[0][0]);
}

// By the shortest of the strips that holds all pixels.
template <class V, class Lanes, int GROUP, int M, int SHORT, int... LONGER>
void run_grouped_winograd_by_points(const grouped_f32& g) {
  if constexpr (sizeof...(LONGER) > 0)
    if (g.m > SHORT) return run_grouped_winograd_by_points<V, Lanes, GROUP, M, LONGER...>(g);
  grouped_winograd_by_points<V, Lanes, GROUP, M, SHORT>(g);
}

}  // namespace
}  // namespace quern
