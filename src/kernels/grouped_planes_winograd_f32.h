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
  if (__builtin_expect(t.columns == (1u << A) - 1 && count >= V::width, 1))
    QUERN_UNROLL for (int k = 0; k < A; ++k) d[k] = V::load(p + k * t.column);
  else
    QUERN_UNROLL for (int k = 0; k < A; ++k) d[k] = !(t.columns >> k & 1) ? V::zero()
                                                    : count >= V::width   ? V::load(p + k * t.column)
                                                                          : V::load_part(p + k * t.column, count);
  QUERN_UNROLL for (int k = 0; k < A; ++k) V::hold(d[k]);  // one load for all that it is part of
  QUERN_UNROLL for (int k = TAPS - 1; k < A; ++k) __builtin_prefetch(p + (k + M) * t.column);  // the next strip's
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
  if (e.clamp_only && g.m == MR) {
    // No branch between stores: lines that are not wanted go where the first one does, before it.
    ptrdiff_t line[M];
    QUERN_UNROLL for (int i = 0; i < M; ++i) line[i] = static_cast<size_t>(i) < g.lines ? i * g.dst_line : 0;
    float* c = g.out.c;
    QUERN_UNROLL for (int o = 0; o < MR; ++o, c += g.out.ldc) {
      __asm__("" : "+r"(c));
      V y[M];
      output_line<A, M>(acc[o], y);
      const V bias = V::set1(e.bias ? e.bias[g.out.channel + static_cast<size_t>(o)] : -0.0f);
      QUERN_UNROLL for (int i = M - 1; i >= 0; --i) V::min(upper, V::max(lower, y[i] + bias))
          .store_part(c + line[i], g.n);
    }
    return;
  }
  alignas(64) float sums[M][MR * W];
  QUERN_UNROLL for (int o = 0; o < MR; ++o) {
    V y[M];
    output_line<A, M>(acc[o], y);
    QUERN_UNROLL for (int i = 0; i < M; ++i) y[i].store(sums[i] + o * W);
  }
  output_f32 out = g.out;
  for (size_t i = 0; i < g.lines; ++i, out.c += g.dst_line) {
    V::finish(out, g.m, g.n, sums[i], W);
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
