// SPDX-License-Identifier: MIT
//
// The microkernel of convolution to few outputs on planes, once, over a vector type; the contract is few_planes_f32 in
// kernel.h.
//
// MR planes of R lines of NV vectors of pixels stay in registers while channel after channel passes.  A tap of an input
// line is NV loads, which may lie anywhere, for all the lines that meet it, and a weight by broadcast for each of those
// and each plane.
#pragma once

#include "kernel.h"

namespace quern {
namespace {

template <class V, int MR, int R, int NV>
struct few_sums {
  V of[MR][R][NV];
};

// A tap of an input line that meets lines LO to HI; `weights` are those of its row for line 0.
template <bool EDGE, int LO, int HI, class V, int MR, int R, int NV>
[[gnu::always_inline]] inline void add_tap(const typename V::lanes* inside, const float* pixels, const float* weights,
                                           few_sums<V, MR, R, NV>& sums) {
  V x[NV];
  QUERN_UNROLL for (int v = 0; v < NV; ++v) {
    x[v] = EDGE ? V::load_mask(pixels + v * V::width, inside[v]) : V::load(pixels + v * V::width);
    V::hold(x[v]);
  }
  QUERN_UNROLL for (int y = LO; y <= HI; ++y) QUERN_UNROLL for (int o = 0; o < MR; ++o) {
    V weight = V::set1(weights[o - y * MR]);
    V::hold(weight);
    QUERN_UNROLL for (int v = 0; v < NV; ++v) sums.of[o][y][v] = V::fma(weight, x[v], sums.of[o][y][v]);
  }
}

// Which lines an input line meets decides which code it has; that of all lines is asked for first.
template <bool EDGE, int LO, int HI, class V, int MR, int R, int NV>
[[gnu::always_inline]] inline void add_line(const few_planes_f32& f, int which, const typename V::lanes* inside,
                                            const float* pixels, const float* weights, few_sums<V, MR, R, NV>& sums) {
  if (which == LO * R + HI) {
    for (size_t s = f.taps_x; s != 0; --s, pixels += f.apart, weights += f.taps_y * MR) {
      __asm__("" : "+r"(weights));  // or the compiler writes the loop again for filters of one row
      add_tap<EDGE, LO, HI>(inside, pixels, weights, sums);
      if (EDGE) inside += NV;
    }
  } else if constexpr (HI > LO) {
    add_line<EDGE, LO, HI - 1>(f, which, inside, pixels, weights, sums);
  } else if constexpr (LO + 1 < R) {
    add_line<EDGE, LO + 1, R - 1>(f, which, inside, pixels, weights, sums);
  }
}

// Brings what the next tiles read of a line nearer.
template <class V, int NV>
[[gnu::always_inline]] inline void fetch_pixels(const float* line) {
  QUERN_UNROLL for (int v = 0; v < NV; ++v) __builtin_prefetch(line + (128 + v * V::width), 0, 2);
}

// All channels, for any filter.
template <bool EDGE, class V, int MR, int R, int NV>
[[gnu::always_inline]] inline void add_any(const few_planes_f32& f, const typename V::lanes* inside,
                                           few_sums<V, MR, R, NV>& sums) {
  const ptrdiff_t rows = static_cast<ptrdiff_t>(f.taps_y), count = rows + R - 1;
  const ptrdiff_t first = f.top > 0 ? f.top : 0, last = f.bottom < count ? f.bottom : count;
  const ptrdiff_t fetched = f.fetches ? rows - 1 : count;
  const float *plane = f.src, *weights = f.weights;
  for (size_t p = f.channels; p != 0; --p, plane += f.src_plane, weights += f.taps_x * f.taps_y * MR) {
    const float* line = plane + first * f.src_line;
    for (ptrdiff_t i = first; i < last; ++i, line += f.src_line) {
      __asm__("" : "+r"(i));  // or the compiler writes the loop again for those that are fetched
      if (i >= fetched) fetch_pixels<V, NV>(line);
      const ptrdiff_t low = i < rows ? 0 : i - rows + 1, high = i < R ? i : R - 1;
      add_line<EDGE, 0, R - 1>(f, static_cast<int>(low * R + high), inside, line, weights + i * MR, sums);
    }
  }
}

// Input lines I and on, of a filter of K by K taps.
template <int K, int I, bool EDGE, class V, int MR, int R, int NV>
[[gnu::always_inline]] inline void add_lines(const few_planes_f32& f, const typename V::lanes* inside,
                                             const float* line, const float* weights, few_sums<V, MR, R, NV>& sums) {
  __asm__("" : "+r"(line));
  // Lines on padding are few: the rest is to stand in one piece.
  if (__builtin_expect(I >= f.top && I < f.bottom, 1)) {
    if (I >= K - 1 && f.fetches) fetch_pixels<V, NV>(line);
    const float* pixels = line;
    QUERN_UNROLL for (int s = 0; s < K; ++s, pixels += f.apart)
        add_tap<EDGE, (I < K ? 0 : I - K + 1), (I < R ? I : R - 1)>(inside + (EDGE ? s * NV : 0), pixels,
                                                                    weights + (s * K + I) * MR, sums);
  }
  if constexpr (I < K + R - 2) add_lines<K, I + 1, EDGE>(f, inside, line + f.src_line, weights, sums);
}

// EDGE: some pixels are padding, or past the last one.  K: taps along x and y, 0: any.
template <class V, int K, int MR, int R, int NV, bool EDGE>
void few_tile(const few_planes_f32& f) {
  constexpr ptrdiff_t W = V::width;
  few_sums<V, MR, R, NV> sums;
  const auto each = [&](auto body) __attribute__((always_inline)) {
    QUERN_UNROLL for (int y = 0; y < R; ++y) QUERN_UNROLL for (int o = 0; o < MR; ++o)
        QUERN_UNROLL for (int v = 0; v < NV; ++v)
            body(sums.of[o][y][v], static_cast<size_t>(y * MR + o) * f.sums_line + v * W);
  };
  if (f.begins)
    each([](V & sum, size_t) __attribute__((always_inline)) { sum = V::zero(); });
  else
    each([&](V & sum, size_t at) __attribute__((always_inline)) { sum = V::load(f.sums + at); });

  typename V::lanes inside[EDGE ? few_planes_f32::most_taps_x * NV : 1];
  if (EDGE) QUERN_ROLL for (size_t s = 0; s < f.taps_x; ++s) {
      const ptrdiff_t from = static_cast<ptrdiff_t>(s) * f.apart, n = static_cast<ptrdiff_t>(f.n),
                      end = f.right - from < n ? f.right - from : n;
      QUERN_ROLL for (int v = 0; v < NV; ++v) inside[s * NV + static_cast<size_t>(v)] =
          V::range(f.left - from - v * W, end - v * W);
    }

  if constexpr (K != 0) {
    const float *plane = f.src, *weights = f.weights;
    for (size_t p = f.channels; p != 0; --p, plane += f.src_plane, weights += K * K * MR)
      add_lines<K, 0, EDGE>(f, inside, plane, weights, sums);
  } else {
    add_any<EDGE>(f, inside, sums);
  }

  each([&](V & sum, size_t at) __attribute__((always_inline)) { sum.store(f.sums + at); });
  if (!f.out.epilogue) return;
  output_f32 to = f.out;
  QUERN_ROLL for (size_t y = 0; y < R; ++y, to.c += f.dst_line) {
    V::finish(to, f.m, f.n, f.sums + y * MR * f.sums_line, f.sums_line);
    if (to.residual) to.residual += f.residual_line;
  }
}

// The instance for n pixels.
template <class V, int K, int MR, int R, int NV>
void few_edge(const few_planes_f32& f) {
  if constexpr (NV > 1) {
    if (f.n <= (NV - 1) * V::width) return few_edge<V, K, MR, R, NV - 1>(f);
  }
  few_tile<V, K, MR, R, NV, true>(f);
}

// For all lines of a tile, or one.
template <class V, int K, int MR, int R, int NV>
void run_few(const few_planes_f32& f) {
  if constexpr (R > 1) {
    if (f.lines == 1) return run_few<V, K, MR, 1, NV>(f);
  }
  const ptrdiff_t reach = NV * V::width + static_cast<ptrdiff_t>(f.taps_x - 1) * f.apart;
  if (f.n == NV * V::width && f.left <= 0 && f.right >= reach) return few_tile<V, K, MR, R, NV, false>(f);
  few_edge<V, K, MR, R, NV>(f);
}

}  // namespace
}  // namespace quern
