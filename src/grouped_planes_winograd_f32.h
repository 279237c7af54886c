// SPDX-License-Identifier: MIT
//
// Grouped convolution on planes by Winograd's F(M, 3) down the lines, once, over a vector type.
//
// winograd_input[0] is that of winograd_f32 along "x", with lines in place of columns and pixels in place of channels.
// The call is grouped_f32 of kernel.h:
//
//   C[o][i][x] = epilogue(sum over points j < M + 2 of AT[i][j] * (sum over channels p, taps s < 3 of
//                    src[p * src_run + j * src_line + x + s] * weights[((p * 3 + s) * (M + 2) + j) * mr + o]))
//
// for m <= MR output channels o, `lines` <= M lines i and n <= vector pixels x; rows of `out` are channels.  Whole
// vectors of src are read.  Weights come by broadcast, each for one multiply-add.
#pragma once

#include "epilogue.h"
#include "grouped_f32.h"
#include "winograd.h"

namespace quern {
namespace {

// Pixels x on, at most a vector of them.
template <class V, int M>
[[gnu::always_inline]] inline void transform_lines_at(const winograd_input_f32& t, size_t x) {
  constexpr int A = M + 2, TAPS = 3;
  const float* p = t.src + (t.origin + static_cast<ptrdiff_t>(x));
  const size_t count = t.n - x;
  V d[A], o[A];
  QUERN_UNROLL for (int k = 0; k < A; ++k, p += t.column) {
    d[k] = !(t.columns >> k & 1) ? V::zero() : count >= V::width ? V::load(p) : V::load_part(p, count);
    V::hold(d[k]);                                            // one load for all that it is part of
    if (k >= TAPS - 1) __builtin_prefetch(p + M * t.column);  // the next strip's
  }
  input_line<A>(d, o);
  QUERN_UNROLL for (int j = 0; j < A; ++j) o[j].store(t.v + static_cast<size_t>(j) * t.matrix + x);
}

template <class V, class Half, int M>
void transform_lines(const winograd_input_f32& t) {
  size_t x = 0;
  for (; x + Half::width < t.n; x += V::width) transform_lines_at<V, M>(t, x);
  if (x < t.n) transform_lines_at<Half, M>(t, x);
}

template <class V, int M, int MR>
void planes_winograd(const grouped_f32& g) {
  constexpr int A = M + 2, TAPS = 3;
  constexpr size_t W = V::width;
  V acc[MR][A];
  QUERN_UNROLL for (int o = 0; o < MR; ++o) QUERN_UNROLL for (int j = 0; j < A; ++j) {
    acc[o][j] = V::zero();
    V::hold(acc[o][j]);  // or the compiler keeps flags of which are still zero
  }
  const float *src = g.src, *w = g.weights;
  const ptrdiff_t point = g.src_line;
  for (size_t p = g.channels; p != 0; --p, src += g.src_run, w += TAPS * A * MR)
    each_number<0, TAPS * A>([&]<int i>() __attribute__((always_inline)) {
      constexpr int j = i % A;
      V x = V::load(src + (j * point + i / A));
      V::hold(x);
      QUERN_UNROLL for (int o = 0; o < MR; ++o) acc[o][j] = V::fma(V::set1(w[i * MR + o]), x, acc[o][j]);
    });

  const epilogue_f32& e = *g.out.epilogue;
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  const bool bounded = e.upper < __builtin_inff();
  alignas(64) float sums[M][MR * W];
  QUERN_UNROLL for (int o = 0; o < MR; ++o) {
    if (static_cast<size_t>(o) >= g.m) break;
    V y[M];
    output_line<A, M>(acc[o], y);
    const V bias = V::set1(e.clamp_only && e.bias ? e.bias[g.out.channel + static_cast<size_t>(o)] : -0.0f);
    float* c = g.out.c + static_cast<size_t>(o) * g.out.ldc;
    QUERN_UNROLL for (int i = 0; i < M; ++i, c += g.dst_line) {
      if (static_cast<size_t>(i) >= g.lines) break;
      if (!e.clamp_only) {
        y[i].store(sums[i] + o * W);
        continue;
      }
      V value = V::max(lower, y[i] + bias);
      if (bounded) value = V::min(upper, value);  // takes turns with the multiply-adds
      if (g.n == W)
        value.store(c);
      else
        value.store_part(c, g.n);
    }
  }
  if (e.clamp_only) return;
  output_f32 out = g.out;
  for (size_t i = 0; i < g.lines; ++i, out.c += g.dst_line) {
    finish<V>(out, g.m, g.n, sums[i], W);
    if (out.residual) out.residual += g.residual_line;
  }
}

// Few pixels at the end of a line take half a vector.
template <class V, class Half, int M, int MR>
void run_planes_winograd(const grouped_f32& g) {
  g.n <= Half::width ? planes_winograd<Half, M, MR>(g) : planes_winograd<V, M, MR>(g);
}

}  // namespace
}  // namespace quern
