// SPDX-License-Identifier: MIT
//
// Winograd along x for few channels, once, over a vector type; the contract is winograd_line_f32 in kernel.h.
//
// T tiles by NV vectors of channels of a point take all lines of the filter and all channels at a time: T * NV
// accumulators in registers, T + NV loads a step.  Sums wait in L1 for the other points, and for the strip that follows
// to transform them back, a share after each of its points: outputs drain while it multiplies.  Lines are transformed
// at every position, m times too often, which needs no shuffle and takes channels last as it takes planes.
#pragma once

#include "epilogue.h"
#include "winograd.h"

namespace quern {
namespace {

// each(x, load) for vectors of positions x of a line, with a load of pixels of x and up to `reach` behind.
template <class V, class Each>
[[gnu::always_inline]] inline void each_position(const winograd_transform_f32& t, ptrdiff_t reach, const Each& each) {
  constexpr ptrdiff_t W = V::width;
  ptrdiff_t x = 0;
  const auto up_to = [&](ptrdiff_t end, const auto& load) __attribute__((always_inline)) {
    for (; x < end; x += W) each(x, load);
  };
  const auto some = [&](ptrdiff_t at) __attribute__((always_inline)) {
    return V::load_mask(t.src + at, V::range(t.begin - at, t.end - at));
  };
  const auto all = [&](ptrdiff_t at) __attribute__((always_inline)) { return V::load(t.src + at); };
  const ptrdiff_t last = t.end - reach - W + 1;
  if (t.begin > 0) up_to(t.begin < t.n ? t.begin : t.n, some);
  up_to(last < t.n ? last : t.n, all);
  if (x < t.n) up_to(t.n, some);
}

template <class V, int A>
void transform_line(const winograd_transform_f32& call) {
  const winograd_transform_f32 t = call;
  const auto transform = [&](ptrdiff_t x, const auto& load) __attribute__((always_inline)) {
    V d[A], o[A];
    QUERN_UNROLL for (int k = 0; k < A; ++k) d[k] = load(x + k * t.apart), V::hold(d[k]);
    input_line<A>(d, o);
    QUERN_UNROLL for (int j = 0; j < A; ++j) o[j].store(t.v + j * t.matrix + x);
  };
  each_position<V>(t, (A - 1) * t.apart, transform);
}

// Sums that registers hold beside weights and a pixel.
template <class V>
constexpr int held_sums = V::registers < 32 ? line_sums / 2 : line_sums;

// Of point j, T tiles from t on and NV vectors from v on, of nv.
template <class V, int T, int NV>
void sum_part(const winograd_strip_f32& s, size_t j, size_t t, size_t v, size_t nv, float* sums) {
  static_assert(T <= 14 && T * NV <= held_sums<V>);
  constexpr size_t W = V::width;
  V acc[T][NV];
  QUERN_UNROLL for (int i = 0; i < T; ++i) QUERN_UNROLL for (int k = 0; k < NV; ++k) acc[i][k] = V::zero();
  // As gemm_f32.h addresses rows of A.
  size_t s1 = s.tile * sizeof(float), s3 = 3 * s1, s5 = 5 * s1, at = (s.first + j * s.matrix) * sizeof(float) + t * s1;
  const float* w = s.weights + j * s.w.point + v * W;
  const float* const* step = s.step;
  __asm__("" : "+r"(s1), "+r"(s3), "+r"(s5), "+r"(at));
  for (size_t p = s.steps; p != 0; --p, ++step, w += nv * W) {
    const char* a0 = reinterpret_cast<const char*>(*step) + at;
    const char* a7 = T > 7 ? a0 + 7 * s1 : a0;
    __asm__("" : "+r"(a0), "+r"(a7), "+r"(w), "+r"(step));
    V weights[NV];
    QUERN_UNROLL for (int k = 0; k < NV; ++k) weights[k] = V::load(w + k * W);
    QUERN_UNROLL for (int i = 0; i < T; ++i) {
      const int r = i % 7;
      const char* from = (i < 7 ? a0 : a7) + (r == 3 ? s3 : r == 5 ? s5 : r == 6 ? s3 * 2 : s1 * r);
      const V pixel = V::set1(*reinterpret_cast<const float*>(from));
      QUERN_UNROLL for (int k = 0; k < NV; ++k) acc[i][k] = V::fma(pixel, weights[k], acc[i][k]);
    }
  }
  sums += (t * nv + v) * W;
  QUERN_UNROLL for (int i = 0; i < T; ++i, sums += nv * W) QUERN_UNROLL for (int k = 0; k < NV; ++k) acc[i][k].store(
      sums + k * W);
}

template <class V>
using part_function = void (*)(const winograd_strip_f32&, size_t j, size_t t, size_t v, size_t nv, float* sums);

// How a point goes through the registers: parts of so many tiles and vectors, the last ones of what is left of tiles.
template <class V>
struct sum_parts {
  size_t tiles, vectors;
  part_function<V> run, last;

  template <int T, int NV>
  static part_function<V> instance(size_t tiles) {
    if constexpr (T > 1)
      if (tiles < T) return instance<T - 1, NV>(tiles);
    return sum_part<V, T, NV>;
  }
  template <int NV>
  static sum_parts of(size_t tiles) {
    constexpr int fit = held_sums<V> / NV, most = fit < 14 ? fit : 14;
    static_assert(line_tiles(NV) <= 2 * most);
    const size_t each = tiles <= most ? tiles : (tiles + 1) / 2;
    return {each, NV, instance<most, NV>(each), instance<most, NV>(tiles <= most ? tiles : tiles - each)};
  }
  // Four vectors of which registers do not hold enough tiles are two and two.
  static sum_parts of(size_t tiles, size_t vectors) {
    constexpr int four = held_sums<V> == line_sums ? 4 : 2;
    return vectors == 1 ? of<1>(tiles) : vectors == 2 ? of<2>(tiles) : vectors == 3 ? of<3>(tiles) : of<four>(tiles);
  }
};

template <bool STREAM, bool BOUNDED, class V>
[[gnu::always_inline]] inline void store_bounded(V y, V lower, V upper, float* to) {
  y = V::max(lower, y);
  if constexpr (BOUNDED) y = V::min(upper, y);
  if constexpr (STREAM)
    y.stream(to);
  else
    y.store(to);
}

// Tiles [begin, end) of whole vectors and m outputs, bounded and stored.
template <class V, int A, int M, bool STREAM, bool BOUNDED>
void store_tiles(const winograd_sums_f32& s, size_t begin, size_t end) {
  constexpr size_t W = V::width;
  const epilogue_f32& e = *s.out.epilogue;
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  const size_t ldc = s.out.ldc, nv = s.n / W;
  const float* bias = e.bias ? e.bias + s.out.channel : nullptr;
  const float* from = s.sums + begin * nv * W;
  float* to = s.out.c + begin * M * ldc;
  for (; begin < end; ++begin, to += M * ldc)
    for (size_t v = 0; v < nv; ++v, from += W) {
      V m[A], y[M];
      QUERN_UNROLL for (int j = 0; j < A; ++j) m[j] = V::load(from + j * line_sums * W), V::hold(m[j]);
      output_line<A, M>(m, y);
      const V add = bias ? V::load(bias + v * W) : V::set1(-0.0f);
      float* c = to + column(v * W, s.out.block, s.out.next);
      QUERN_UNROLL for (int i = 0; i < M; ++i, c += ldc) {
        store_bounded<STREAM, BOUNDED>(y[i] + add, lower, upper, c);
      }
    }
}

// The same of any tiles, with any epilogue.
template <class V, int A, int M>
[[gnu::noinline]] void activate_tiles(const winograd_sums_f32& s, size_t begin, size_t end) {
  constexpr size_t W = V::width;
  const size_t nv = (s.n + W - 1) / W;
  output_f32 out = s.out;
  out.c += begin * M * out.ldc;
  if (out.residual) out.residual += begin * M * out.ldr;
  for (size_t t = begin; t < end && t * M < s.pixels; ++t, out.c += M * out.ldc) {
    alignas(64) float buffer[M * 4 * W];
    for (size_t v = 0; v < nv; ++v) {
      V m[A], y[M];
      QUERN_UNROLL for (int j = 0; j < A; ++j) m[j] = V::load(s.sums + (size_t(j) * line_sums + t * nv + v) * W);
      output_line<A, M>(m, y);
      QUERN_UNROLL for (int i = 0; i < M; ++i) y[i].store(buffer + (i * nv + v) * W);
    }
    V::finish(out, s.pixels - t * M < M ? s.pixels - t * M : M, s.n, buffer, nv * W);
    if (out.residual) out.residual += M * out.ldr;
  }
}

template <class V, int A, int M, bool BOUNDED>
void finish_bounded(const winograd_sums_f32& s, size_t begin, size_t end) {
  if (s.out.stream && is_aligned<V>(s.out.c, s.out))
    store_tiles<V, A, M, true, BOUNDED>(s, begin, end);
  else
    store_tiles<V, A, M, false, BOUNDED>(s, begin, end);
}

template <class V, int A, int M>
void finish_tiles(const winograd_sums_f32& s, size_t begin, size_t end) {
  if (!s.out.epilogue->clamp_only || s.n % V::width || end * M > s.pixels)
    activate_tiles<V, A, M>(s, begin, end);
  else if (s.out.epilogue->upper < __builtin_inff())
    finish_bounded<V, A, M, true>(s, begin, end);
  else
    finish_bounded<V, A, M, false>(s, begin, end);
}

template <class V, int A, int M>
void finish_strip(const winograd_sums_f32& s) {
  finish_tiles<V, A, M>(s, 0, s.tiles);
}

template <class V, int A, int M>
void strip(const winograd_strip_f32& s) {
  constexpr size_t W = V::width;
  const size_t tiles = s.to->tiles, nv = (s.to->n + W - 1) / W;
  const auto parts = sum_parts<V>::of(tiles, nv);
  for (size_t j = 0; j < A; ++j) {
    float* const sums = s.to->sums + j * line_sums * W;
    for (size_t t = 0; t < tiles; t += parts.tiles) {
      const auto sum = t + parts.tiles < tiles ? parts.run : parts.last;
      for (size_t v = 0; v < nv; v += parts.vectors) sum(s, j, t, v, nv, sums);
    }
    if (s.before) finish_tiles<V, A, M>(*s.before, s.before->tiles * j / A, s.before->tiles * (j + 1) / A);
  }
}

// The row of F(M, R).
template <class V, int M, int R>
constexpr kernel winograd_line_row(const char* name, const char* about, uint64_t isa) {
  constexpr int A = M + R - 1;
  return {.name = name,
          .about = about,
          .kind = kind::winograd_line_f32,
          .isa = isa,
          .mr = line_tiles(1) * M,
          .nr = 4 * V::width,
          .vector = V::width,
          .taps = R,
          .tile = M,
          .copy = V::copy,
          .winograd_line = transform_line<V, A>,
          .winograd_strip = strip<V, A, M>,
          .winograd_finish = finish_strip<V, A, M>};
}

}  // namespace
}  // namespace quern
