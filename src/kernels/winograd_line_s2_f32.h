// SPDX-License-Identifier: MIT
//
// Filters three wide at stride 2, for few channels, once, over a vector type; the contract is winograd_line_f32 in
// kernel.h.
//
// Two outputs next to each other read pixels 0 to 4, of which the middle tap meets 1 and 3 alone, and the other two
// share pixel 2.  Those are F(2, 2), of points 0, 1 and infinity; the middle tap has a sum of its kind to join in each:
//
//   m0 = (x0 - x2) w0 + x1 w1      m1 = x2 (w0 + w2)      m2 = (x2 - x4) w2 - x3 w1      y0 = m0 + m1,  y1 = m1 - m2
//
// Five products for six, and three sums for two outputs, which stay in registers.  Sixteen are too few to gain by that
// (AVX2 loses 3 to 8 %); forms with more outputs save no more than their sums cost on the way through L1.
#pragma once

#include "epilogue.h"
#include "winograd_line_f32.h"

namespace quern {
namespace {

template <class V, bool COPIES>
void difference_line(const winograd_transform_f32& call) {
  const winograd_transform_f32 t = call;
  const auto subtract = [&](ptrdiff_t x, const auto& load) __attribute__((always_inline)) {
    V here = load(x);
    V::hold(here);
    if constexpr (COPIES) here.store(t.v + x);
    (here - load(x + t.apart)).store(t.v + t.matrix + x);
  };
  each_position<V>(t, t.apart, subtract);
}

template <class V>
void paired_line(const winograd_transform_f32& t) {
  (t.copies ? difference_line<V, true> : difference_line<V, false>)(t);
}

// Sums of T tiles and NV vectors of channels.
template <class V, int T, int NV>
struct tile_sums {
  V m[3][T][NV];
};

// Of tiles from an output on, and vectors from v on.  Sums of point 1, which are in both outputs, begin with `first`.
template <class V, int T, int NV>
[[gnu::always_inline]] inline void sum_tiles(const winograd_strip_f32& s, size_t output, size_t v, size_t nr,
                                             const V (&first)[NV], tile_sums<V, T, NV>& sums) {
  static_assert(T % 2 == 0);
  constexpr size_t W = V::width;
  auto& m = sums.m;
  QUERN_UNROLL for (int j = 0; j < T; ++j) QUERN_UNROLL for (int k = 0; k < NV; ++k) m[0][j][k] = V::zero(),
                                                                                     m[1][j][k] = first[k],
                                                                                     m[2][j][k] = V::zero();
  size_t s1 = s.tile / 4 * sizeof(float), s3 = 3 * s1, s5 = 5 * s1, s7 = 7 * s1;
  const size_t at = (s.first + output * (s.tile / 2)) * sizeof(float);
  const size_t p1 = s.w.point, p3 = 3 * p1;
  const float* w = s.weights + v * W;
  const auto pixel = [](const char* p) __attribute__((always_inline)) {
    return V::set1(*reinterpret_cast<const float*>(p));
  };
  const float* const* step = s.step;
  for (const float* const* const end = step + 2 * s.steps; step != end; step += 2, w += nr) {
    __asm__("" : "+r"(s1), "+r"(s3), "+r"(s5), "+r"(s7));
    // Pixel 8 i of the tiles, and its difference from pixel 8 i + 2.
    const char *x[T / 2], *d[T / 2];
    x[0] = reinterpret_cast<const char*>(step[0]) + at;
    d[0] = reinterpret_cast<const char*>(step[1]) + at;
    QUERN_UNROLL for (int i = 1; i < T / 2; ++i) x[i] = x[i - 1] + 8 * s1, d[i] = d[i - 1] + 8 * s1;
    QUERN_UNROLL for (int i = 0; i < T / 2; ++i) __asm__("" : "+r"(x[i]), "+r"(d[i]));
    const auto pass = [&](const float* from, const auto& each) __attribute__((always_inline)) {
      V weights[NV];
      QUERN_UNROLL for (int k = 0; k < NV; ++k) weights[k] = V::load(from + k * W), V::hold(weights[k]);
      QUERN_UNROLL for (int i = 0; i < T / 2; ++i) each(i, weights);
    };
    const auto add = [&](V(&to)[NV], V by, const V(&weights)[NV]) __attribute__((always_inline)) {
      QUERN_UNROLL for (int k = 0; k < NV; ++k) to[k] = V::fma(by, weights[k], to[k]);
    };
    const auto subtract = [&](V(&to)[NV], V by, const V(&weights)[NV]) __attribute__((always_inline)) {
      QUERN_UNROLL for (int k = 0; k < NV; ++k) to[k] = V::fnma(by, weights[k], to[k]);
    };
    const auto point0 = [&](int i, const V(&weights)[NV]) __attribute__((always_inline)) {
      add(m[0][2 * i], pixel(d[i]), weights);
      add(m[0][2 * i + 1], pixel(d[i] + 4 * s1), weights);
    };
    const auto point1 = [&](int i, const V(&weights)[NV]) __attribute__((always_inline)) {
      add(m[1][2 * i], pixel(x[i] + 2 * s1), weights);
      add(m[1][2 * i + 1], pixel(x[i] + 2 * s3), weights);
    };
    const auto infinity = [&](int i, const V(&weights)[NV]) __attribute__((always_inline)) {
      add(m[2][2 * i], pixel(d[i] + 2 * s1), weights);
      add(m[2][2 * i + 1], pixel(d[i] + 2 * s3), weights);
    };
    const auto beside = [&](int i, const V(&weights)[NV]) __attribute__((always_inline)) {
      add(m[0][2 * i], pixel(x[i] + s1), weights);
      add(m[0][2 * i + 1], pixel(x[i] + s5), weights);
      subtract(m[2][2 * i], pixel(x[i] + s3), weights);
      subtract(m[2][2 * i + 1], pixel(x[i] + s7), weights);
    };
    pass(w, point0), pass(w + p1, point1), pass(w + 2 * p1, infinity), pass(w + p3, beside);
  }
}

// Whole vectors from v on, bounded and stored.  The last tiles begin where T of them end with the line, and write the
// same again; what is past a line of odd length goes to nowhere.
template <class V, int T, int NV, bool STREAM, bool BOUNDED>
void store_pairs(const winograd_strip_f32& s, size_t v, size_t nr) {
  constexpr size_t W = V::width;
  const output_f32& out = s.to->out;
  const epilogue_f32& e = *out.epilogue;
  const size_t pixels = s.to->pixels, even = pixels + pixels % 2, ldc = out.ldc,
               next = column((v + NV - 1) * W, out.block, out.next) - column(v * W, out.block, out.next);
  const float* const bias = e.bias ? e.bias + out.channel + v * W : nullptr;
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  float* const first = out.c + column(v * W, out.block, out.next);
  alignas(64) float nowhere[NV * W];
  for (size_t x = 0; x < even; x += 2 * T) {
    if (x + 2 * T > even) x = even - 2 * T;
    V begin[NV];
    QUERN_UNROLL for (int k = 0; k < NV; ++k) begin[k] = bias ? V::load(bias + k * W) : V::zero();
    tile_sums<V, T, NV> sums;
    sum_tiles(s, x, v, nr, begin, sums);
    for (size_t r = 0; r < s.rows; ++r)
      for (size_t i = 0; i < T * s.tile; i += 16) __builtin_prefetch(s.ahead + r * s.row + x * (s.tile / 2) + i, 0, 3);
    float* c = first + x * ldc;
    QUERN_UNROLL for (int j = 0; j < T; ++j, c += 2 * ldc) QUERN_UNROLL for (int k = 0; k < NV; ++k) {
      const size_t at = k ? next : 0;
      store_bounded<STREAM, BOUNDED>(sums.m[0][j][k] + sums.m[1][j][k], lower, upper, c + at);
      float* const odd = j == T - 1 && x + 2 * T > pixels ? nowhere + k * W : c + ldc + at;
      store_bounded<STREAM, BOUNDED>(sums.m[1][j][k] - sums.m[2][j][k], lower, upper, odd);
    }
  }
}

// The same of any tiles and channels, with any epilogue; where store_pairs might have done it, in the same order.
template <class V, int T, int NV>
void activate_pairs(const winograd_strip_f32& s, size_t v, size_t nr) {
  constexpr size_t W = V::width;
  const size_t n = s.to->n - v * W < NV * W ? s.to->n - v * W : NV * W, pixels = s.to->pixels;
  epilogue_f32 epilogue = *s.to->out.epilogue;
  V begin[NV];
  QUERN_UNROLL for (int k = 0; k < NV; ++k) begin[k] = V::zero();
  if (epilogue.clamp_only && epilogue.bias) {
    const float* const bias = epilogue.bias + s.to->out.channel + v * W;
    QUERN_UNROLL for (int k = 0; k < NV; ++k) begin[k] = V::load_part(bias + k * W, n - k * W < W ? n - k * W : W);
    epilogue.bias = nullptr;
  }
  for (size_t x = 0; x < pixels; x += 2 * T) {
    tile_sums<V, T, NV> sums;
    sum_tiles(s, x, v, nr, begin, sums);
    alignas(64) float buffer[2 * T * NV * W];
    QUERN_UNROLL for (int j = 0; j < T; ++j) QUERN_UNROLL for (int k = 0; k < NV; ++k) {
      (sums.m[0][j][k] + sums.m[1][j][k]).store(buffer + (2 * j * NV + k) * W);
      (sums.m[1][j][k] - sums.m[2][j][k]).store(buffer + ((2 * j + 1) * NV + k) * W);
    }
    output_f32 out = s.to->out;
    out.epilogue = &epilogue;
    out.c += x * out.ldc + column(v * W, out.block, out.next);
    if (out.residual) out.residual += x * out.ldr + column(v * W, out.residual_block, out.residual_next);
    out.channel += v * W;
    V::finish(out, pixels - x < 2 * T ? pixels - x : 2 * T, n, buffer, NV * W);
  }
}

template <class V, int T, int NV>
void write_pairs(const winograd_strip_f32& s, size_t v, size_t nr) {
  const winograd_sums_f32& to = *s.to;
  const epilogue_f32& e = *to.out.epilogue;
  if (!e.clamp_only || (v + NV) * V::width > to.n || to.pixels + 1 < 2 * T) return activate_pairs<V, T, NV>(s, v, nr);
  const bool bounded = e.upper < __builtin_inff();
  if (to.out.stream && is_aligned<V>(to.out.c, to.out))
    (bounded ? store_pairs<V, T, NV, true, true> : store_pairs<V, T, NV, true, false>)(s, v, nr);
  else
    (bounded ? store_pairs<V, T, NV, false, true> : store_pairs<V, T, NV, false, false>)(s, v, nr);
}

// Two vectors of channels at a time, with sums of four tiles; the last one of an odd number has eight.
template <class V>
void paired_strip(const winograd_strip_f32& s) {
  const size_t nv = (s.to->n + V::width - 1) / V::width;
  size_t v = 0;
  for (; v + 2 <= nv; v += 2) write_pairs<V, 4, 2>(s, v, nv * V::width);
  if (v < nv) write_pairs<V, 8, 1>(s, v, nv * V::width);
}

template <class V>
constexpr kernel winograd_line_s2_row(const char* name, const char* about, uint64_t isa) {
  return {.name = name,
          .about = about,
          .kind = kind::winograd_line_f32,
          .isa = isa,
          .mr = 16,
          .nr = 4 * V::width,
          .vector = V::width,
          .taps = 3,
          .step = 2,
          .tile = 2,
          .copy = V::copy,
          .winograd_line = paired_line<V>,
          .winograd_strip = paired_strip<V>};
}

}  // namespace
}  // namespace quern
