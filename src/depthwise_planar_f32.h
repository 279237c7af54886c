// SPDX-License-Identifier: MIT
//
// The depthwise microkernel with pixels across the vector, once, over a vector type; the contract is
// depthwise_planar_f32 in kernel.h.
//
// A tile is MR lines of one vector.  A vector of a line of src, shifted by a tap, is loaded once for all lines of
// the tile that it reaches; its weights are broadcast.  Lanes on padding are loaded as zeros, lines on padding are
// left out.
#pragma once

#include "epilogue.h"
#include "kernel.h"

namespace quern {
namespace {

// One vector of pixels of a call.
template <class V>
struct planar_column {
  const float* src;  // input 0 of its first output
  float* dst;
  const float* residual;
  size_t lanes;             // of the line, from here on; at most a vector
  ptrdiff_t begin, end;     // inputs that exist, counted from the first output's
  typename V::mask stored;  // lanes that are stored
};

// Pixels 0 2 4 ... and 1 3 5 ... of two vectors, for blocks of 1, 4 and 8 channels.
template <int WIDTH>
struct planar_numbers {
  int32_t lane[3][2][WIDTH];
  constexpr planar_numbers() : lane() {
    constexpr int blocks[] = {1, 4, 8};
    for (int b = 0; b < 3; ++b)
      for (int i = 0; i < WIDTH; ++i)
        for (int odd = 0; odd < 2; ++odd) lane[b][odd][i] = 2 * i - i % blocks[b] + odd * blocks[b];
  }
};

// The channels of a call, lane by lane.
template <class V>
struct planar_lanes {
  typename V::mask channels;    // lanes of channels that exist
  typename V::index even, odd;  // pixels of two vectors
  V bias;

  explicit planar_lanes(const depthwise_planar_f32& d) {
    static constexpr planar_numbers<V::width> numbers;
    const auto& lane = numbers.lane[d.block == 1 ? 0 : d.block == 4 ? 1 : 2];
    even = V::load_index(lane[0]), odd = V::load_index(lane[1]);
    channels = V::range(0, V::width);
    const epilogue_f32& e = *d.out.epilogue;
    bias = e.bias && d.n == d.block ? V::repeat(e.bias + d.out.channel, d.block) : V::set1(-0.0f);
    if (d.n < d.block) {
      alignas(64) float there[V::width], shift[V::width];
      spread(d, e.bias, shift, -0.0f);
      for (size_t i = 0; i < V::width; ++i) there[i] = (i & (d.block - 1)) < d.n ? 1.0f : 0.0f;
      channels = V::zero() < V::load(there);
      bias = V::load(shift);
    }
  }
  // A vector of the epilogue, lane by lane.
  static void spread(const depthwise_planar_f32& d, const float* from, float* to, float nothing) {
    for (size_t i = 0; i < V::width; ++i) {
      const size_t c = i & (d.block - 1);
      to[i] = from && c < d.n ? from[d.out.channel + c] : nothing;
    }
  }
};

// Lanes of pixels that exist, for the tap that begins at `input`, of the vector that begins `after` floats further on.
template <class V>
[[gnu::always_inline]] inline typename V::mask existing(const depthwise_planar_f32& d, const planar_lanes<V>& l,
                                                        const planar_column<V>& c, ptrdiff_t input, ptrdiff_t after) {
  const ptrdiff_t block = static_cast<ptrdiff_t>(d.block);
  return V::range((c.begin - input) * block - after, (c.end - input) * block - after) & l.channels;
}

// Pixels `step` apart, one by one.
template <class V>
[[gnu::noinline]] V gather(const depthwise_planar_f32& d, const planar_column<V>& c, const float* line,
                           ptrdiff_t input) {
  alignas(64) float lane[V::width] = {};
  for (size_t i = 0; i < c.lanes; ++i) {
    const size_t pixel = i / d.block, channel = i % d.block;
    const ptrdiff_t x = input + static_cast<ptrdiff_t>(pixel) * d.x.step;
    if (x >= c.begin && x < c.end && channel < d.n)
      lane[i] = line[x * static_cast<ptrdiff_t>(d.block) + static_cast<ptrdiff_t>(channel)];
  }
  return V::load(lane);
}

// Finished lines of a tile on their way through the epilogue.
template <class V>
[[gnu::noinline]] void finish_lines(const depthwise_planar_f32& d, const planar_column<V>& c, const float* tile,
                                    size_t y, size_t lines) {
  const epilogue_f32& e = *d.out.epilogue;
  alignas(64) float scale[V::width], bias[V::width], slope[V::width];
  epilogue_f32 spread = e;
  if (e.scale) planar_lanes<V>::spread(d, e.scale, scale, 0.0f), spread.scale = scale;
  if (e.bias) planar_lanes<V>::spread(d, e.bias, bias, 0.0f), spread.bias = bias;
  if (e.slope) planar_lanes<V>::spread(d, e.slope, slope, 0.0f), spread.slope = slope;
  output_f32 out = d.out;
  out.channels_are_rows = false, out.channel = 0;
  out.epilogue = &spread;
  const bool together = d.out.ldc == d.block && d.n == d.block && (!c.residual || d.out.ldr == d.block);
  for (size_t i = 0; i < lines; ++i) {
    out.c = c.dst + (y + i) * d.y.dst;
    if (c.residual) out.residual = c.residual + (y + i) * d.y.residual;
    if (together)
      finish<V>(out, 1, c.lanes, tile + i * V::width, V::width);
    else
      finish<V>(out, c.lanes / d.block, d.n, tile + i * V::width, d.block);
  }
}

template <class V, int MR>
[[gnu::always_inline]] inline void store_lines(const depthwise_planar_f32& d, const planar_lanes<V>& l,
                                               const planar_column<V>& c, V (&acc)[MR], size_t y, size_t lines,
                                               bool whole) {
  const epilogue_f32& e = *d.out.epilogue;
  if (!e.clamp_only || d.out.ldc != d.block) {
    alignas(64) float tile[(MR + 1) * V::width];  // finish() reads whole vectors
    QUERN_UNROLL for (int i = 0; i < MR; ++i) acc[i].store(tile + i * V::width);
    V::zero().store(tile + MR * V::width);
    return finish_lines(d, c, tile, y, lines < MR ? lines : MR);
  }
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  const V bias = l.bias;
  const typename V::mask stored = c.stored;
  const size_t apart = d.y.dst;
  float* p = c.dst + y * apart;
  QUERN_UNROLL for (int i = 0; i < MR; ++i, p += apart) {
    if (static_cast<size_t>(i) >= lines) break;
    const V out = V::min(upper, V::max(lower, acc[i] + bias));
    if (whole)
      out.store(p);
    else
      out.store_mask(p, stored);
  }
}

// Filters of K by K with a step of STEP along both axes, dilation 1 along x, one plane.
template <class V, int MR, int K, int STEP>
[[gnu::noinline]] void planar_tiles(const depthwise_planar_f32& d, const planar_lanes<V>& l, const planar_column<V>& c,
                                    const float* weights) {
  constexpr ptrdiff_t W = V::width;
  typename V::mask mask[K][STEP];
  QUERN_UNROLL for (int s = 0; s < K; s += STEP) QUERN_UNROLL for (int j = 0; j < STEP; ++j) mask[s][j] =
      existing(d, l, c, s, j * W);
  const ptrdiff_t tap = static_cast<ptrdiff_t>(d.block);
  const bool whole = d.n == d.block && c.lanes == V::width;
  constexpr bool few = K * K + MR + 4 <= V::registers;  // weights that stay in registers
  const size_t lines = d.y.count;
  const ptrdiff_t apart = d.y.src, begin = d.y.begin, end = d.y.end;
  for (size_t y = 0; y < lines; y += MR) {
    V acc[MR], w[few ? K * K : 1];
    QUERN_UNROLL for (int i = 0; i < MR; ++i) acc[i] = V::zero();
    if constexpr (few) QUERN_UNROLL for (int i = 0; i < K * K; ++i) w[i] = V::load(weights + i * W), V::hold(w[i]);
    const ptrdiff_t first = static_cast<ptrdiff_t>(y) * STEP;
    if (d.planes) {
      const float* line = c.src + d.plane[0].a + first * apart;
      QUERN_UNROLL for (int v = 0; v < (MR - 1) * STEP + K; ++v, line += apart) {
        __asm__("" : "+r"(line));
        if (first + v < begin || first + v >= end) continue;
        V a = V::zero(), b = V::zero();
        QUERN_UNROLL for (int s = 0; s < K; ++s) {
          V x;
          if constexpr (STEP == 1) {
            x = V::load_mask(line + s * tap, mask[s][0]);
          } else {
            if (s % 2 == 0)
              a = V::load_mask(line + s * tap, mask[s][0]), b = V::load_mask(line + s * tap + W, mask[s][1]);
            x = V::pick(a, b, s % 2 ? l.odd : l.even);
          }
          QUERN_UNROLL for (int i = 0; i < MR; ++i) {
            const int r = v - i * STEP;
            if (r >= 0 && r < K)
              acc[i] = V::fma(x, few ? w[few ? r * K + s : 0] : V::load(weights + (r * K + s) * W), acc[i]);
          }
        }
      }
    }
    store_lines<V, MR>(d, l, c, acc, y, lines - y, whole);
  }
}

// Any filter, step and dilation.
template <class V, int MR>
[[gnu::noinline]] void planar_tiles_any(const depthwise_planar_f32& d, const planar_lanes<V>& l,
                                        const planar_column<V>& c, const float* plain) {
  constexpr ptrdiff_t W = V::width;
  const ptrdiff_t block = static_cast<ptrdiff_t>(d.block), taps = static_cast<ptrdiff_t>(d.x.taps),
                  rows = static_cast<ptrdiff_t>(d.y.taps);
  const bool whole = d.n == d.block && c.lanes == V::width;
  for (size_t y = 0; y < d.y.count; y += MR) {
    V acc[MR];
    QUERN_UNROLL for (int i = 0; i < MR; ++i) acc[i] = V::zero();
    const ptrdiff_t first = static_cast<ptrdiff_t>(y) * d.y.step;
    for (size_t t = 0; t < d.planes; ++t) {
      const ptrdiff_t lines = (MR - 1) * d.y.step + rows;
      for (ptrdiff_t v = 0; v < lines; ++v) {
        if (first + v < d.y.begin || first + v >= d.y.end) continue;
        const float* line = c.src + (d.plane[t].a + (first + v) * d.y.src);
        // Row v - i * step of the filter meets line i of the tile; of rows below 0 and beyond the last none is read.
        const float* weights = plain + (d.plane[t].b + v * taps) * block;
        const ptrdiff_t up = d.y.step * taps * block;
        for (ptrdiff_t s = 0; s < taps; ++s, weights += block) {
          const ptrdiff_t input = s * d.apart;
          V x;
          if (d.x.step == 1) {
            x = V::load_mask(line + input * block, existing(d, l, c, input, 0));
          } else if (d.x.step == 2) {
            x = V::pick(V::load_mask(line + input * block, existing(d, l, c, input, 0)),
                        V::load_mask(line + input * block + W, existing(d, l, c, input, W)), l.even);
          } else {
            x = gather<V>(d, c, line, input);
          }
          ptrdiff_t r = v;
          QUERN_UNROLL for (int i = 0; i < MR; ++i, r -= d.y.step) if (r >= 0 && r < rows) acc[i] =
              V::fma(x, V::repeat(weights - i * up, d.block), acc[i]);
        }
      }
    }
    store_lines<V, MR>(d, l, c, acc, y, d.y.count - y, whole);
  }
}

// All vectors of a line; `weights` are handed on to tiles of all its lines.
template <class V>
[[gnu::noinline]] void planar_columns(const depthwise_planar_f32& d, const float* weights,
                                      void (*tiles)(const depthwise_planar_f32&, const planar_lanes<V>&,
                                                    const planar_column<V>&, const float*)) {
  const planar_lanes<V> l(d);
  const size_t pixels = V::width / d.block;
  const epilogue_f32& e = *d.out.epilogue;
  // Where a pixel may be written twice, the last vector of a line is a whole one.
  const bool overlap = e.clamp_only && d.out.ldc == d.block && d.x.count >= pixels;
  for (size_t x = 0; x < d.x.count; x += pixels) {
    const size_t at = overlap && d.x.count - x < pixels ? d.x.count - pixels : x;
    planar_column<V> c = {};
    const ptrdiff_t input = static_cast<ptrdiff_t>(at) * d.x.step;
    c.src = d.src + (d.origin + input * static_cast<ptrdiff_t>(d.block));
    c.dst = d.out.c + at * d.out.ldc;
    c.residual = d.out.residual ? d.out.residual + at * d.out.ldr : nullptr;
    c.lanes = (d.x.count - at < pixels ? d.x.count - at : pixels) * d.block;
    c.begin = d.x.begin - input, c.end = d.x.end - input;
    c.stored = V::range(0, static_cast<ptrdiff_t>(c.lanes)) & l.channels;
    tiles(d, l, c, weights);
  }
}

// Weights are spread over the lanes once for all tiles.
template <class V, int MR, int K, int STEP>
void run_planar(const depthwise_planar_f32& d) {
  alignas(64) float weights[K * K * V::width];
  // A phase of a transposed convolution may have no plane at all, and no weights then.
  for (size_t i = 0; i < K * K; ++i)
    (d.planes ? V::repeat(d.weights + i * d.block, d.block) : V::zero()).store(weights + i * V::width);
  planar_columns<V>(d, weights, planar_tiles<V, MR, K, STEP>);
}

template <class V, int MR>
void run_planar_any(const depthwise_planar_f32& d) {
  planar_columns<V>(d, d.weights, planar_tiles_any<V, MR>);
}

}  // namespace
}  // namespace quern
