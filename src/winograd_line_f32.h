// SPDX-License-Identifier: MIT
//
// Winograd along x for few channels, once, over a vector type; the contract is winograd_line_f32 in kernel.h.
//
// T tiles of A points and one vector of channels are T * A accumulators, which take all lines of the filter and all
// channels before they are transformed back: no product goes through memory.  Lines are transformed at every
// position, m times too often, which needs no shuffle and takes channels last as it takes planes.
#pragma once

#include "copy_f32.h"
#include "epilogue.h"
#include "winograd.h"

namespace quern {
namespace {

template <class V, int A>
void transform_line(const winograd_transform_f32& call) {
  const winograd_transform_f32 t = call;
  for (size_t x = 0; x < t.n; x += V::width) {
    V d[A], o[A];
    QUERN_UNROLL for (int k = 0; k < A; ++k) d[k] = V::load(t.src + x + k * t.apart);
    input_line<A>(d, o);
    QUERN_UNROLL for (int j = 0; j < A; ++j) o[j].store(t.v + j * t.matrix + x);
  }
}

template <class V, int M, int R, int T>
void strip(const winograd_strip_f32& s) {
  constexpr int A = M + R - 1;
  constexpr size_t W = V::width;
  V acc[T][A];
  QUERN_UNROLL for (int t = 0; t < T; ++t) QUERN_UNROLL for (int j = 0; j < A; ++j) acc[t][j] = V::zero();
  const float* w = s.weights;
  const size_t tile = s.tile, matrix = s.matrix;
  for (size_t r = 0; r < s.lines; ++r)
    for (size_t q = 0; q < s.terms; ++q) {
      const float* p = s.line[r] + s.first + s.term[q];
      QUERN_UNROLL for (int j = 0; j < A; ++j, p += matrix, w += W) {
        const V weights = V::load(w);
        QUERN_UNROLL for (int t = 0; t < T; ++t) acc[t][j] =
            V::fma(V::set1(p[static_cast<size_t>(t) * tile]), weights, acc[t][j]);
      }
    }
  const output_f32& out = s.out;
  const epilogue_f32& e = *out.epilogue;
  const size_t pixels = s.pixels;
  if (e.clamp_only && s.n == W) {
    const V lower = V::set1(e.lower), upper = V::set1(e.upper);
    const V bias = e.bias ? V::load(e.bias + out.channel) : V::set1(-0.0f);
    const bool stream = out.stream && is_aligned<V>(out);
    float* c = out.c;
    const size_t ldc = out.ldc;
    QUERN_UNROLL for (int t = 0; t < T; ++t) {
      V y[M];
      output_line<A, M>(acc[t], y);
      QUERN_UNROLL for (int i = 0; i < M; ++i, c += ldc) {
        if (static_cast<size_t>(t * M + i) >= pixels) return;
        const V value = V::min(upper, V::max(lower, y[i] + bias));
        if (stream)
          value.stream(c);
        else
          value.store(c);
      }
    }
    return;
  }
  alignas(64) float buffer[T * M * W];
  QUERN_UNROLL for (int t = 0; t < T; ++t) {
    V y[M];
    output_line<A, M>(acc[t], y);
    QUERN_UNROLL for (int i = 0; i < M; ++i) y[i].store(buffer + (t * M + i) * W);
  }
  finish<V>(out, pixels, s.n, buffer, W);
}

// The row of F(M, R), T tiles at a time.
template <class V, int M, int R, int T>
constexpr kernel winograd_line_row(const char* name, const char* about, uint64_t isa) {
  return {.name = name,
          .about = about,
          .kind = kind::winograd_line_f32,
          .isa = isa,
          .mr = T * M,
          .nr = V::width,
          .vector = V::width,
          .taps = R,
          .tile = M,
          .copy = copy<V>,
          .winograd_line = transform_line<V, M + R - 1>,
          .winograd_strip = strip<V, M, R, T>};
}

}  // namespace
}  // namespace quern
