// SPDX-License-Identifier: MIT
//
// Winograd's transforms, once, over a vector type; the contracts are winograd_input_f32 and winograd_output_f32
// in kernel.h, the matrices and their points winograd_points.h.
//
// A tile of W channels goes down its columns and then along its rows; what lies between is a buffer of at most
// 64 vectors in L1, or in registers where there are enough.  Points come in pairs +p and -p, whose even and odd halves
// are shared: six points cost 12 operations a vector, eight 26.  Every ISA does the same operations in the same order.
#pragma once

#include "kernel.h"
#include "winograd_points.h"

namespace quern {
namespace {

// o = B^T d.  Points without infinity are a row less of the same matrix: 5 of 6, 7 of 8.
template <int A, class V>
[[gnu::always_inline]] inline void input_line(const V* d, V* o) {
  if constexpr (A == 1) {
    o[0] = d[0];
  } else if constexpr (A == 4) {
    o[0] = d[0] - d[2], o[1] = d[1] + d[2], o[2] = d[2] - d[1], o[3] = d[3] - d[1];
  } else if constexpr (A == 5 || A == 6) {
    const V p = V::set1(float(half_root2)), q = V::set1(float(root2));
    const V even1 = V::fnma(V::set1(2), d[2], d[4]), odd1 = V::fnma(V::set1(2), d[1], d[3]);
    const V even2 = V::fnma(V::set1(0.5f), d[2], d[4]), odd2 = V::fnma(V::set1(0.5f), d[1], d[3]);
    o[0] = V::fnma(V::set1(2.5f), d[2], d[0] + d[4]);
    o[1] = V::fma(p, odd1, even1), o[2] = V::fnma(p, odd1, even1);
    o[3] = V::fma(q, odd2, even2), o[4] = V::fnma(q, odd2, even2);
    if constexpr (A == 6) o[5] = V::fnma(V::set1(2.5f), d[3], d[1] + d[5]);
  } else {
    static_assert(A == 7 || A == 8);
    const V two = V::set1(2), half = V::set1(0.5f), five_halves = V::set1(2.5f);
    const auto pair = [&](int i, V even, V odd) { o[i] = even + odd, o[i + 1] = even - odd; };
    o[0] = V::fma(V::set1(5.25f), d[4] - d[2], d[0] - d[6]);
    pair(1, V::fnma(V::set1(4.25f), d[4], d[2] + d[6]), V::fnma(V::set1(4.25f), d[3], d[1] + d[5]));
    pair(3, V::fnma(V::set1(1.25f), d[4], V::fma(V::set1(0.25f), d[2], d[6])),
         V::fnma(five_halves, d[3], V::fma(half, d[1], two * d[5])));
    pair(5, V::fnma(V::set1(5), d[4], V::fma(V::set1(4), d[2], d[6])),
         V::fnma(five_halves, d[3], V::fma(two, d[1], half * d[5])));
    if constexpr (A == 8) o[7] = V::fma(V::set1(5.25f), d[3] - d[5], d[7] - d[1]);
  }
}

// Inputs from n on that make the products vanish which n points leave out.  Infinity is none of them: nobody takes its
// product.
template <int A, int N = A - 1, class V>
[[gnu::always_inline]] inline void extend(V* d, int n) {
  if constexpr (N >= 2) {
    if (n != N) return extend<A, N - 1>(d, n);
    if constexpr (points_for(A, N) == N) {
      constexpr monic p = recurrence(A, N);
      QUERN_UNROLL for (int s = N; s < A - (A % 2 == 0); ++s) {
        V sum = V::zero();
        QUERN_UNROLL for (int k = N % 2; k < N; k += 2) sum = V::fnma(V::set1(float(p.at[k])), d[s - N + k], sum);
        d[s] = sum;
      }
    }
  }
}

// x times a power of a point, and that plus y; points 1 take no multiplication.
template <int A, class V>
[[gnu::always_inline]] inline V times(int pair, int power, V x) {
  const double p = point_power(A, pair, power);
  return p == 1 ? x : x * V::set1(float(p));
}
template <int A, class V>
[[gnu::always_inline]] inline V times(int pair, int power, V x, V y) {
  const double p = point_power(A, pair, power);
  return p == 1 ? x + y : V::fma(V::set1(float(p)), x, y);
}

// y = A^T m: output j sums m times the j-th power of each point, and the last one takes infinity.
template <int A, int M, int PAIRS = (A - 1) / 2, class V>
[[gnu::always_inline]] inline void output_line(const V* m, V* y) {
  if constexpr (A == 1) {
    y[0] = m[0];
  } else {
    constexpr bool infinity = A % 2 == 0;
    V sum[PAIRS], difference[PAIRS];
    QUERN_UNROLL for (int i = 0; i < PAIRS; ++i) sum[i] = m[2 * i + 1] + m[2 * i + 2],
                                                 difference[i] = m[2 * i + 1] - m[2 * i + 2];
    y[0] = m[0];
    QUERN_UNROLL for (int i = 0; i < PAIRS; ++i) y[0] = y[0] + sum[i];
    QUERN_UNROLL for (int j = 1; j < M; ++j) {
      const V* half = j % 2 ? difference : sum;
      const bool last = infinity && j == M - 1;
      V value = last ? m[2 * PAIRS + 1] : times<A, V>(0, j, half[0]);
      QUERN_UNROLL for (int i = last ? 0 : 1; i < PAIRS; ++i) value = times<A, V>(i, j, half[i], value);
      y[j] = value;
    }
  }
}

// The products of a pair of points added to outputs of those before.
template <int A, int M, class V>
[[gnu::always_inline]] inline void add_pair(int pair, const V* m, V* y) {
  const V sum = m[0] + m[1], difference = m[0] - m[1];
  y[0] = y[0] + sum;
  QUERN_UNROLL for (int j = 1; j < M; ++j) y[j] = times<A, V>(pair, j, j % 2 ? difference : sum, y[j]);
}

// Rows of a vector of channels to V: point x of row y is at from + y * row + x * point.  Not inlined: lines and
// squares, on the border and inside, share it.
template <class V, int A>
[[gnu::noinline]] void input_rows(const float* from, int rows, ptrdiff_t row, ptrdiff_t point, float* v,
                                  size_t matrix) {
  for (int y = 0; y < rows; ++y, from += row, v += A * matrix) {
    V d[A], o[A];
    QUERN_UNROLL for (int x = 0; x < A; ++x) d[x] = V::load(from + x * point);
    input_line<A>(d, o);
    QUERN_UNROLL for (int x = 0; x < A; ++x) o[x].store(v + x * matrix);
  }
}

// `count` channels from src[at] on of a tile of A columns, down each of which goes a transform of AY rows.  EDGE:
// pixels may be missing, and channels.  What the loop needs is copied from the call first: a vector store may change
// any memory.
template <class V, int AY, int A, bool EDGE>
[[gnu::always_inline]] inline void input_vector(const winograd_input_f32& t, ptrdiff_t at, size_t count, float* v) {
  constexpr int W = V::width;
  const float* const src = t.src;
  const ptrdiff_t row = t.row, column = t.column;
  const uint32_t rows = t.rows, columns = t.columns;
  const int points_y = t.points[0], points_x = t.points[1];
  alignas(64) float between[AY * A * W];
  for (int x = 0; x < A; ++x, at += column) {
    V d[AY], o[AY];
    QUERN_UNROLL for (int y = 0; y < AY; ++y) {
      const float* p = src + (at + y * row);
      if constexpr (EDGE)
        d[y] = rows >> y & columns >> x & 1 ? V::load_part(p, count) : V::zero();
      else
        d[y] = V::load(p);
    }
    if constexpr (EDGE) extend<AY>(d, points_y);
    input_line<AY>(d, o);
    QUERN_UNROLL for (int y = 0; y < AY; ++y) o[y].store(between + (y * A + x) * W);
  }
  if constexpr (EDGE) {
    for (int y = 0; y < AY && points_x < A; ++y) {
      V d[A];
      QUERN_UNROLL for (int x = 0; x < A; ++x) d[x] = V::load(between + (y * A + x) * W);
      extend<A>(d, points_x);
      QUERN_UNROLL for (int x = 0; x < A; ++x) d[x].store(between + (y * A + x) * W);
    }
  }
  input_rows<V, A>(between, AY, A * W, W, v, t.matrix);
}

template <class V, int AY, int A>
void input(const winograd_input_f32& t) {
  constexpr size_t W = V::width;
  // Read apart: one word of both would wait until the caller's two stores, and all before them, are in L1.
  uint32_t rows = t.rows, columns = t.columns;
  __asm__("" : "+r"(rows), "+r"(columns));
  const bool whole = rows == (1u << AY) - 1 && columns == (1u << A) - 1;
  ptrdiff_t origin = t.origin;
  float* v = t.v;
  for (size_t more = t.more;; --more, origin += t.step.src, v += t.step.v) {
    size_t c = 0;
    for (; whole && c + W <= t.n; c += W) {
      const ptrdiff_t at = origin + static_cast<ptrdiff_t>(c);
      if constexpr (AY == 1)
        input_rows<V, A>(t.src + at, 1, 0, t.column, v + c, t.matrix);
      else
        input_vector<V, AY, A, false>(t, at, W, v + c);
    }
    for (; c < t.n; c += W)
      input_vector<V, AY, A, true>(t, origin + static_cast<ptrdiff_t>(c), t.n - c < W ? t.n - c : W, v + c);
    if (more == 0) return;
  }
}

// Where a tile of a call is.
struct output_place {
  const float* m;
  float* c;
  const float* residual;
};

template <class Tile>
[[gnu::always_inline]] inline void each_tile(const winograd_output_f32& t, const Tile& tile) {
  output_place at = {t.m, t.out.c, t.out.residual};
  for (size_t more = t.more;; --more) {
    tile(at);
    if (more == 0) return;
    at.m += t.step.m, at.c += t.step.c;
    if (at.residual) at.residual += t.step.residual;
  }
}

// Channels from c on of the rows of a tile: point x of row y is at from + y * row + x * point.  Not inlined: lines and
// squares share it.
template <class V, int A, int M>
[[gnu::noinline]] void output_rows(const winograd_output_f32& t, const output_place& tile, size_t c, const float* from,
                                   size_t row, size_t point) {
  constexpr size_t W = V::width;
  const epilogue_f32& e = *t.out.epilogue;
  const size_t count = t.n - c < W ? t.n - c : W, rows = t.rows, columns = t.columns;
  const bool simple = e.clamp_only && count == W;
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  const V bias = simple && e.bias ? V::load(e.bias + t.out.channel + c) : V::set1(-0.0f);
  float* dst = tile.c + c;
  const size_t dst_row = t.dst_row, pixel = t.out.ldc;
  for (size_t y = 0; y < rows; ++y, dst += dst_row, from += row) {
    V d[A], o[M];
    QUERN_UNROLL for (int x = 0; x < A; ++x) d[x] = V::load(from + x * point);
    output_line<A, M>(d, o);
    if (simple) {
      QUERN_UNROLL for (int x = 0; x < M; ++x) {
        if (static_cast<size_t>(x) < columns)
          V::min(upper, V::max(lower, o[x] + bias)).store(dst + static_cast<size_t>(x) * pixel);
      }
    } else {
      alignas(64) float line[M * W];
      QUERN_UNROLL for (int x = 0; x < M; ++x) o[x].store(line + x * W);
      // Copied here alone: vectors of fields would wait until the caller's stores are in L1.
      output_f32 to = t.out;
      to.c = dst, to.channel += c;
      if (to.residual) to.residual = tile.residual + (c + y * t.residual_row);
      V::finish(to, columns, count, line, W);
    }
  }
}

template <class V, int A, int M>
void output_along(const winograd_output_f32& t) {
  // Rows of M are padded to whole vectors.
  each_tile(t, [&](const output_place& at) {
    for (size_t c = 0; c < t.n; c += V::width) output_rows<V, A, M>(t, at, c, at.m + c, 0, t.matrix);
  });
}

// A whole vector of channels of a tile with all its outputs, bounded and stored; what lies between stays in registers.
template <class V, int AY, int MY, int A, int M>
[[gnu::always_inline]] inline void output_whole(const winograd_output_f32& t, const output_place& at, size_t c) {
  const size_t matrix = t.matrix, pixel = t.out.ldc, row = t.dst_row;
  const float* m = at.m + c;
  V between[MY][A];
  QUERN_UNROLL for (int x = 0; x < A; ++x, m += matrix) {
    V d[AY], o[MY];
    QUERN_UNROLL for (int y = 0; y < AY; ++y) d[y] = V::load(m + y * A * matrix);
    output_line<AY, MY>(d, o);
    QUERN_UNROLL for (int y = 0; y < MY; ++y) between[y][x] = o[y];
  }
  const epilogue_f32& e = *t.out.epilogue;
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  const V bias = e.bias ? V::load(e.bias + t.out.channel + c) : V::set1(-0.0f);
  float* dst = at.c + c;
  QUERN_UNROLL for (int y = 0; y < MY; ++y, dst += row) {
    V o[M];
    output_line<A, M>(between[y], o);
    float* to = dst;
    QUERN_UNROLL for (int x = 0; x < M; ++x, to += pixel) V::min(upper, V::max(lower, o[x] + bias)).store(to);
  }
}

template <class V, int AY, int MY, int A, int M>
void output_square(const winograd_output_f32& t) {
  constexpr size_t W = V::width;
  const size_t matrix = t.matrix;
  each_tile(t, [&](const output_place& at) {
    size_t c = 0;
    if constexpr (MY * A + (AY > A ? AY : A) + 2 <= V::registers)
      if (t.out.epilogue->clamp_only && t.rows == MY && t.columns == M)
        for (; c + W <= t.n; c += W) output_whole<V, AY, MY, A, M>(t, at, c);
    for (; c < t.n; c += W) {
      const float* m = at.m + c;
      alignas(64) float between[MY * A * W];
      for (int x = 0; x < A; ++x, m += matrix) {
        V d[AY], o[MY];
        QUERN_UNROLL for (int y = 0; y < AY; ++y) d[y] = V::load(m + y * A * matrix);
        output_line<AY, MY>(d, o);
        QUERN_UNROLL for (int y = 0; y < MY; ++y) o[y].store(between + (y * A + x) * W);
      }
      output_rows<V, A, M>(t, at, c, between, A * W, W);
    }
  });
}

// The row of F(M, R), with MY outputs along y.
template <class V, int M, int R, int MY = M>
constexpr kernel winograd_row(const char* name, const char* about, uint64_t isa) {
  constexpr int A = M + R - 1, AY = MY + R - 1;
  return {.name = name,
          .about = about,
          .kind = kind::winograd_f32,
          .isa = isa,
          .mr = MY,
          .nr = M,
          .vector = V::width,
          .taps = R,
          .winograd_input = {input<V, 1, A>, input<V, AY, A>},
          .winograd_output = {output_along<V, A, M>, output_square<V, AY, MY, A, M>}};
}

}  // namespace
}  // namespace quern
