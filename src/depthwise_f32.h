// SPDX-License-Identifier: MIT
//
// The depthwise microkernel, once, over a vector type; the contract is depthwise_f32 in kernel.h.
//
// MR pixels of NV vectors of channels stay in registers.  With TAPS and STEP known, a loaded pixel feeds
// every tap of its row that reaches it; else each tap loads its own.  At the border of the image the same
// code asks before every load.
#pragma once

#include "epilogue.h"
#include "kernel.h"

namespace quern {
namespace {

template <class V, int MR, int NV, int TAPS, int STEP, bool BORDER, bool PART>
[[gnu::always_inline]] inline void strip(const depthwise_f32& d, size_t c, size_t last) {
  constexpr size_t W = V::width;
  const auto load = [last](const float* p, int j) __attribute__((always_inline)) {
    return PART && j == NV - 1 ? V::load_part(p + j * W, last) : V::load(p + j * W);
  };
  V acc[MR][NV];
  QUERN_UNROLL for (int i = 0; i < MR; ++i) QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = V::zero();
  for (size_t r = 0; r < d.rows; ++r) {
    const float* weights = d.weights + d.row[r].b + c;
    const ptrdiff_t pixel = static_cast<ptrdiff_t>(d.src_pixel),
                    from = d.origin + d.row[r].a + static_cast<ptrdiff_t>(c);
    if constexpr (TAPS > 0) {
      V w[TAPS][NV];
      QUERN_UNROLL for (int s = 0; s < TAPS; ++s) QUERN_UNROLL for (int j = 0; j < NV; ++j) w[s][j] =
          load(weights + s * d.channels, j);
      QUERN_UNROLL for (int x = 0; x < (MR - 1) * STEP + TAPS; ++x) {
        if (BORDER && (x < d.begin || x >= d.end)) continue;
        const float* p = d.src + (from + x * pixel);
        V v[NV];
        QUERN_UNROLL for (int j = 0; j < NV; ++j) v[j] = load(p, j);
        QUERN_UNROLL for (int s = 0; s < TAPS; ++s) if (x >= s && (x - s) % STEP == 0 && (x - s) / STEP < MR)
            QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[(x - s) / STEP][j] =
                V::fma(v[j], w[s][j], acc[(x - s) / STEP][j]);
      }
    } else {
      for (size_t s = 0; s < d.taps; ++s, weights += d.channels) {
        const ptrdiff_t x = static_cast<ptrdiff_t>(s) * d.dilation;
        V w[NV];
        QUERN_UNROLL for (int j = 0; j < NV; ++j) w[j] = load(weights, j);
        QUERN_UNROLL for (int i = 0; i < MR; ++i) {
          const ptrdiff_t input = x + i * d.step;
          if (BORDER && (input < d.begin || input >= d.end)) continue;
          const float* p = d.src + (from + input * pixel);
          QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = V::fma(load(p, j), w[j], acc[i][j]);
        }
      }
    }
  }

  const epilogue_f32& e = *d.out.epilogue;
  if (!e.clamp_only) {
    alignas(64) float buffer[MR * NV * W];
    QUERN_UNROLL for (int i = 0; i < MR; ++i) QUERN_UNROLL for (int j = 0; j < NV; ++j) acc[i][j].store(
        buffer + (i * NV + j) * W);
    output_f32 out = d.out;
    out.c += c, out.channel += c;
    if (out.residual) out.residual += c;
    finish<V>(out, MR, PART ? (NV - 1) * W + last : NV * W, buffer, NV * W);
    return;
  }
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  QUERN_UNROLL for (int j = 0; j < NV; ++j) {
    const V bias = e.bias ? load(e.bias + d.out.channel + c, j) : V::set1(-0.0f);
    QUERN_UNROLL for (int i = 0; i < MR; ++i) {
      const V y = V::min(upper, V::max(lower, acc[i][j] + bias));
      float* p = d.out.c + static_cast<size_t>(i) * d.out.ldc + c + j * W;
      if (PART && j == NV - 1)
        y.store_part(p, last);
      else
        y.store(p);
    }
  }
}

template <class V, int MR, int NV, int TAPS, int STEP, bool BORDER>
void channels(const depthwise_f32& d) {
  constexpr size_t W = V::width;
  size_t c = 0;
  for (; c + NV * W <= d.n; c += NV * W) strip<V, MR, NV, TAPS, STEP, BORDER, false>(d, c, W);
  for (; c < d.n; c += W) strip<V, MR, 1, TAPS, STEP, BORDER, true>(d, c, d.n - c < W ? d.n - c : W);
}

// The instance for m pixels.  Only full strips have one that does not ask for the border: the others are
// few, and code is to stay small.
template <class V, int MR, int NV, int TAPS, int STEP>
void pick_pixels(const depthwise_f32& d) {
  if (d.m == MR) return channels<V, MR, NV, TAPS, STEP, true>(d);
  if constexpr (MR > 1) pick_pixels<V, MR - 1, NV, TAPS, STEP>(d);
}

template <class V, int MR, int NV, int TAPS, int STEP>
void run_depthwise(const depthwise_f32& d) {
  const ptrdiff_t inputs = (MR - 1) * d.step + static_cast<ptrdiff_t>(d.taps - 1) * d.dilation + 1;
  if (d.m == MR && d.begin <= 0 && d.end >= inputs) return channels<V, MR, NV, TAPS, STEP, false>(d);
  pick_pixels<V, MR, NV, TAPS, STEP>(d);
}

}  // namespace
}  // namespace quern
