// SPDX-License-Identifier: MIT
//
// The dot product microkernel, once, over a vector type; the contract is dot_f32 in kernel.h.
//
// A tile is some pixels by all n outputs: sixteen channels of a pixel, loaded once, meet those of every output's
// weights.  Sums are collected output by output for all pixels of a call, so that one epilogue in full vectors
// serves them, and are spread from there.
#pragma once

#include <type_traits>

#include "epilogue.h"
#include "kernel.h"
#include "pointers.h"

namespace quern {
namespace {

constexpr size_t dot_pixels = 64;  // of a call

// Sums of a tile, sixteen lanes each: as many as leave registers for what is multiplied.
template <class V>
constexpr int dot_sums = (V::registers == 32 ? 24 : 12) / (16 / V::width);

// Sums of M pixels and N outputs, the pixels of an output side by side, outputs dot_pixels apart.
template <class V, int M, int N>
void dot_tile(const dot_f32& d, const float* a, float* sums) {
  // Tiles from one to that whose pixels it asks for: those of the next would come too late (a third to a half of the
  // time of single taps, Zen 4).
  constexpr size_t ahead = 8;
  constexpr int L = 16 / V::width, count = M * N;
  V acc[(count + 3) / 4 * 4 * L];  // four sums are added up at a time
  QUERN_UNROLL for (V& x : acc) x = V::zero();
  const size_t whole = d.k / 16, rest = d.k % 16;
  for (size_t t = 0; t < d.taps; ++t) {
    const float *x = a + d.tap[t].a, *w = d.b + d.tap[t].b;
    const auto step = [&](const auto& load, auto fetches) {
      V factor[N][L];
      QUERN_UNROLL for (int j = 0; j < N; ++j) QUERN_UNROLL for (int l = 0; l < L; ++l) factor[j][l] =
          V::load(w + size_t(j) * d.ldb + l * V::width);
      pointers row(x, static_cast<ptrdiff_t>(d.lda));
      QUERN_UNROLL for (int i = 0; i < M; row.next(i), ++i) QUERN_UNROLL for (int l = 0; l < L; ++l) {
        const V pixel = load(row.get(i), l * V::width);
        if constexpr (fetches)
          if (l == 0) __builtin_prefetch(row.get(i) + ahead * M * d.lda, 0, 2);
        QUERN_UNROLL for (int j = 0; j < N; ++j) {
          V& sum = acc[(j * M + i) * L + l];
          sum = V::fma(pixel, factor[j][l], sum);
        }
      }
    };
    const auto all = [](const float* from, int lane) { return V::load(from + lane); };
    if (d.fetches && t + 1 == d.taps)
      for (size_t p = 0; p < whole; ++p, x += d.next, w += 16) step(all, std::true_type());
    else
      for (size_t p = 0; p < whole; ++p, x += d.next, w += 16) step(all, std::false_type());
    const auto some = [&](const float* from, int lane) {
      return rest > size_t(lane) ? V::load_part(from + lane, rest - size_t(lane)) : V::zero();
    };
    if (rest) step(some, std::false_type());
  }
  QUERN_UNROLL for (int q = 0; q < count; q += 4) {
    if constexpr (M % 4 == 0) {
      V::store_sums(acc + q * L, sums + size_t(q / M) * dot_pixels + q % M);
    } else {
      float four[4];
      V::store_sums(acc + q * L, four);
      QUERN_UNROLL for (int i = 0; i < 4; ++i) if (q + i < count) sums[size_t((q + i) / M) * dot_pixels + (q + i) % M] =
          four[i];
    }
  }
}

template <class V, int N>
[[gnu::noinline]] void dot_outputs(const dot_f32& d) {
  constexpr size_t M = dot_rows(dot_sums<V>, N);
  alignas(64) float sums[N][dot_pixels] = {}, addends[N][dot_pixels], out[N][dot_pixels];
  if (d.m >= M) {
    // The last tile goes back to end with the pixels.
    for (size_t i = 0; i < d.m; i += M) {
      const size_t first = i + M <= d.m ? i : d.m - M;
      dot_tile<V, M, N>(d, d.a + first * d.lda, sums[0] + first);
    }
  } else {
    for (size_t i = 0; i < d.m; ++i) dot_tile<V, 1, N>(d, d.a + i * d.lda, sums[0] + i);
  }
  if (d.out.residual)
    for (size_t j = 0; j < N; ++j)
      for (size_t i = 0; i < d.m; ++i) addends[j][i] = d.out.residual[i * d.out.ldr + d.residual_column[j]];
  output_f32 rows = {};
  rows.c = out[0], rows.ldc = dot_pixels;
  rows.epilogue = d.out.epilogue;
  rows.channels_are_rows = true, rows.channel = d.out.channel;
  if (d.out.residual) rows.residual = addends[0], rows.ldr = dot_pixels;
  V::finish(rows, N, d.m, sums[0], dot_pixels);
  float* c[N];
  for (size_t j = 0; j < N; ++j) c[j] = d.out.c + d.column[j];
  for (size_t i = 0; i < d.m; ++i) QUERN_UNROLL for (int j = 0; j < N; ++j) c[j][i * d.out.ldc] = out[j][i];
}

template <class V, int NR>
void run_dot(const dot_f32& d) {
  switch (d.n) {
    case 1: return dot_outputs<V, 1>(d);
    case 2: return dot_outputs<V, 2>(d);
    case 3: return dot_outputs<V, 3>(d);
    default:
      if constexpr (NR == 4) dot_outputs<V, 4>(d);
  }
}

}  // namespace
}  // namespace quern
