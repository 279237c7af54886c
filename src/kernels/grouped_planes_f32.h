// SPDX-License-Identifier: MIT
//
// The microkernel of grouped convolution on planes, once, over a vector type; the contract is
// grouped_planes_f32 in kernel.h.
//
// MR planes of NV vectors of pixels stay in registers.  A channel of a tap is MR weights by broadcast and NV loads,
// which may lie anywhere.  Lanes on padding are left out by the mask of the multiply-add, which costs nothing. `Lanes`:
//
//   step                pixels from lane to lane
//   of(bits, n)         a mask of those among the first n lanes whose bit is set
//   load(mask, p)       touches those alone
//   fma(mask, a, b, c)  a * b + c there, c elsewhere
#pragma once

#include <algorithm>

#include "epilogue.h"
#include "fetch.h"
#include "kernel.h"

namespace quern {
namespace {

// FETCHES: what the call asks for comes meanwhile.
template <class V, class Lanes, int MR, int NV, bool FETCHES>
void planes(const grouped_planes_f32& g) {
  constexpr size_t W = V::width;
  const size_t last = g.n - (NV - 1) * W;  // pixels of the last vector
  V acc[MR][NV];
  QUERN_UNROLL for (int o = 0; o < MR; ++o) QUERN_UNROLL for (int v = 0; v < NV; ++v) {
    acc[o][v] = V::zero();
    __asm__("" : "+v"(acc[o][v].v));  // or the compiler keeps flags of which are still zero
  }
  lines_ahead ahead[2] = {};
  size_t beside = 0;  // a tap
  if constexpr (FETCHES)
    ahead[0] = g.ahead[0], ahead[1] = g.ahead[1], beside = (MR * NV + g.taps - 1) / std::max<size_t>(g.taps, 1);
  for (size_t t = 0; t < g.taps; ++t) {
    if constexpr (FETCHES) fetch(ahead, beside);
    const float* p = g.src + g.tap[t].a;
    const float* w = g.weights + g.tap[t].b;
    Lanes inside[NV];
    QUERN_UNROLL for (int v = 0; v < NV; ++v) inside[v] = Lanes::of(g.tap[t].inside[v], v == NV - 1 ? last : W);
    for (size_t c = g.channels; c != 0; --c, p += g.src_plane, w += MR) {
      V weight[MR];
      QUERN_UNROLL for (int o = 0; o < MR; ++o) {
        weight[o] = V::set1(w[o]);
        __asm__("" : "+v"(weight[o].v));  // loaded once, not for every vector
      }
      QUERN_UNROLL for (int v = 0; v < NV; ++v) {
        const V x = Lanes::load(inside[v], p + v * W * Lanes::step);
        QUERN_UNROLL for (int o = 0; o < MR; ++o) acc[o][v] = Lanes::fma(inside[v], x, weight[o], acc[o][v]);
      }
    }
  }

  const epilogue_f32& e = *g.out.epilogue;
  if (!e.clamp_only) {
    alignas(64) float buffer[MR * NV * W];
    QUERN_UNROLL for (int o = 0; o < MR; ++o) QUERN_UNROLL for (int v = 0; v < NV; ++v) acc[o][v].store(
        buffer + (o * NV + v) * W);
    return V::finish(g.out, g.m, g.n, buffer, NV * W);
  }
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  QUERN_UNROLL for (int o = 0; o < MR; ++o) {
    if (static_cast<size_t>(o) >= g.m) break;
    const V bias = V::set1(e.bias ? e.bias[g.out.channel + static_cast<size_t>(o)] : -0.0f);
    float* c = g.out.c + static_cast<size_t>(o) * g.out.ldc;
    QUERN_UNROLL for (int v = 0; v < NV; ++v) {
      const V y = V::min(upper, V::max(lower, acc[o][v] + bias));
      if (v == NV - 1)
        y.store_part(c + v * W, last);
      else
        y.store(c + v * W);
    }
  }
}

// The instance for n pixels; the widest is asked for first.
template <class V, class Lanes, int MR, int NV>
void run_planes(const grouped_planes_f32& g) {
  if constexpr (NV > 1) {
    if (g.n <= (NV - 1) * V::width) return run_planes<V, Lanes, MR, NV - 1>(g);
  }
  if (g.ahead[0].count > 0) return planes<V, Lanes, MR, NV, true>(g);
  planes<V, Lanes, MR, NV, false>(g);
}

}  // namespace
}  // namespace quern
