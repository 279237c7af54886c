// SPDX-License-Identifier: MIT
//
// The microkernels of grouped convolution, once, over a vector type; the contract is grouped_f32 in kernel.h.
//
// NS lines of MR pixels stay in registers.  A loaded pixel is spread four channels at a time, every channel over
// the lanes of its group's outputs, and meets the weights of all taps of its row that reach it: the lanes of a
// vector are outputs of any number of groups, and channels are summed in their order.  `Pixel` says how:
//
//   quads        fours of channels in a group
//   Pixel(g)     what loads need of a call
//   load(p)      the pixel at p
//   four(v, u)   four u of every group, in all lanes of that group
//   spread<J>    channel J of the four to all lanes of its group
#pragma once

#include "epilogue.h"
#include "kernel.h"

namespace quern {
namespace {

// Lines of mr sums each, the first m of them wanted.  One copy for all kernels of a file.
template <class V>
[[gnu::noinline]] void finish_lines(const grouped_f32& g, size_t lines, size_t mr, const float* tile) {
  constexpr size_t half = V::width / 2;
  const bool together = g.n <= half || (g.dst_half == half && (!g.out.residual || g.residual_half == half));
  for (size_t line = 0; line < lines; ++line, tile += mr * V::width) {
    output_f32 out = g.out;
    out.c += static_cast<ptrdiff_t>(line) * g.dst_line;
    if (out.residual) out.residual += static_cast<ptrdiff_t>(line) * g.residual_line;
    finish<V>(out, g.m, together ? g.n : half, tile, V::width);
    if (together) continue;
    out.c += g.dst_half, out.channel += half;
    if (out.residual) out.residual += g.residual_half;
    finish<V>(out, g.m, g.n - half, tile + half, V::width);
  }
}

template <class V, class Pixel, int NS, int MR, int TAPS, int STEP>
void strips(const grouped_f32& g) {
  constexpr size_t W = V::width;
  constexpr bool weights_in_registers = Pixel::quads == 1 && (NS * MR + TAPS * 4) * 2 <= 56 && W == 16;
  V acc[NS][MR];
  QUERN_UNROLL for (int h = 0; h < NS; ++h) QUERN_UNROLL for (int i = 0; i < MR; ++i) {
    acc[h][i] = V::zero();
    __asm__("" : "+v"(acc[h][i].v));  // or the compiler keeps flags of which are still zero
  }
  const Pixel pixel(g);
  const ptrdiff_t line = g.src_line;
  for (size_t r = 0; r < g.rows; ++r) {
    const float* x_pixel = g.src + g.row[r].a;
    const float* const row_weights = g.weights + g.row[r].b;
    const uint32_t inside = *g.row[r].inside;
    V kept[weights_in_registers ? TAPS * 4 : 1];
    if constexpr (weights_in_registers) QUERN_UNROLL for (int w = 0; w < TAPS * 4; ++w) {
        kept[w] = V::load(row_weights + w * W);
        __asm__("" : "+v"(kept[w].v));  // or they are loaded again for every pixel
      }
    QUERN_UNROLL for (int x = 0; x < (MR - 1) * STEP + TAPS; ++x, x_pixel += g.src_pixel) {
      if (__builtin_expect((inside >> x & 1) == 0, 0)) continue;
      // Four channels of all lines meet their taps.
      const float* weights = row_weights;
      const auto step = [&](const auto& four) __attribute__((always_inline)) {
        const auto channel = [&]<int J>() __attribute__((always_inline)) {
          V v[NS];
          QUERN_UNROLL for (int h = 0; h < NS; ++h) v[h] = Pixel::template spread<J>(four[h]);
          QUERN_UNROLL for (int s = 0; s < TAPS; ++s) if (x >= s && (x - s) % STEP == 0 && (x - s) / STEP < MR) {
            V w;
            if constexpr (weights_in_registers) {
              w = kept[s * 4 + J];
            } else {
              w = V::load(weights + (s * 4 + J) * W);
              if (NS > 1) __asm__("" : "+v"(w.v));  // one load for all lines, not one for each
            }
            QUERN_UNROLL for (int h = 0; h < NS; ++h) acc[h][(x - s) / STEP] = V::fma(v[h], w, acc[h][(x - s) / STEP]);
          }
        };
        channel.template operator()<0>();
        channel.template operator()<1>();
        channel.template operator()<2>();
        channel.template operator()<3>();
        weights += TAPS * 4 * W;
      };
      V all[NS];
      QUERN_UNROLL for (int h = 0; h < NS; ++h) all[h] = pixel.load(x_pixel + h * line);
      QUERN_UNROLL for (int u = 0; u < Pixel::quads; ++u) {
        V four[NS];
        QUERN_UNROLL for (int h = 0; h < NS; ++h) four[h] = Pixel::four(all[h], u);
        step(four);
      }
    }
  }

  const epilogue_f32& e = *g.out.epilogue;
  if (!e.clamp_only || g.n != W || g.dst_half != W / 2) {
    alignas(64) float buffer[(NS * MR + 1) * W];  // the second half of the last vector is read as a whole one
    QUERN_UNROLL for (int h = 0; h < NS; ++h) QUERN_UNROLL for (int i = 0; i < MR; ++i) acc[h][i].store(
        buffer + (h * MR + i) * W);
    return finish_lines<V>(g, NS, MR, buffer);
  }
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  const V bias = e.bias ? V::load(e.bias + g.out.channel) : V::set1(-0.0f);
  QUERN_UNROLL for (int h = 0; h < NS; ++h) {
    float* c = g.out.c + h * g.dst_line;
    QUERN_UNROLL for (int i = 0; i < MR; ++i, c += g.out.ldc) {
      if (static_cast<size_t>(i) >= g.m) break;
      V::min(upper, V::max(lower, acc[h][i] + bias)).store(c);
    }
  }
}

// Lines that do not fill a call's NS are done one by one.
template <class V, class Pixel, int NS, int MR, int TAPS, int STEP>
void run_grouped(const grouped_f32& g) {
  if (g.lines == NS) return strips<V, Pixel, NS, MR, TAPS, STEP>(g);
  grouped_f32 one = g;
  for (size_t line = 0; line < g.lines; ++line) {
    strips<V, Pixel, 1, MR, TAPS, STEP>(one);
    one.src += g.src_line;
    one.out.c += g.dst_line;
    if (one.out.residual) one.out.residual += g.residual_line;
  }
}

}  // namespace
}  // namespace quern
