// SPDX-License-Identifier: MIT
//
// The depthwise microkernel for channels last, all channels of a few pixels before the next ones; the contract is
// depthwise_f32 in kernel.h, with whole vectors of channels side by side and filters of TAPS lines.
//
// A strip is some pixels of two lines of outputs.  It walks along the channels, as many at a time as a line of the
// cache holds: what lies under it are streams that hardware foresees, however far apart pixels lie.  A vector of
// channels through all lines (depthwise_f32.h) reads memory in steps instead, and comes back for the other half of a
// line.  (3x3: 1.1 to 1.9 times as fast, Zen 3; 5x5 and 7x7 0.8, whose strips of seven pixels read less.)  XNNPACK
// walks so, a pixel at a time.
#pragma once

#include "each_number.h"
#include "epilogue.h"
#include "kernel.h"
#include "pointers.h"

namespace quern {
namespace {

// Where a strip lies; inputs that exist.
struct strip_last {
  const float* src;  // input 0 of both axes, of the first channel
  const float* weights;
  float* dst;
  ptrdiff_t first_line, past_lines, begin, end;
};

// Which inputs of a line may be padding, as in depthwise_f32.h: none, some of the first and last taps - 1, any.
enum missing { none, some, any };

// `strips` strips side by side, `vectors` vectors of each from vector `v` on.  They are finished in dst or, where the
// epilogue is more than bounds, left as SUMS in `room`, `room_row` floats a pixel.
template <class V, int LINES, int MR, int VECTORS, int TAPS, int STEP, missing MISS, bool SUMS>
[[gnu::noinline]] void run_strips(const depthwise_f32& d, strip_last s, size_t strips, size_t v, size_t vectors,
                                  float* room, size_t room_row) {
  constexpr int W = V::width, rows = (LINES - 1) * STEP + TAPS, inputs = (MR - 1) * STEP + TAPS;
  const epilogue_f32& e = *d.out.epilogue;
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  // Copies: what is stored could be these, as far as a compiler knows.
  const ptrdiff_t pixel = d.x.src, line = d.y.src * static_cast<ptrdiff_t>(sizeof(float));
  const ptrdiff_t to_pixel = static_cast<ptrdiff_t>(SUMS ? room_row : d.out.ldc);
  const size_t to_line = SUMS ? MR * room_row : d.y.dst, weights_vector = d.weights_vector;
  for (; strips > 0; --strips, s.src += MR * STEP * pixel, s.dst += MR * to_pixel) {
    const float* src = s.src + v * W;
    const float* weights = s.weights + v * weights_vector;
    const float* bias = e.bias ? e.bias + d.out.channel + v * W : nullptr;
    float* dst = SUMS ? room : s.dst + v * W;
    for (size_t left = vectors; left > 0; left -= VECTORS) {
      V acc[LINES][MR][VECTORS];
      QUERN_UNROLL for (auto& of_line : acc) QUERN_UNROLL for (auto& of_pixel : of_line)
          QUERN_UNROLL for (V& sum : of_pixel) sum = V::zero();
      const char* row = reinterpret_cast<const char*>(src);
      each_number<0, rows>([&]<int r>() __attribute__((always_inline)) {
        if (MISS == none || (r >= s.first_line && r < s.past_lines)) {
          pointers p(reinterpret_cast<const float*>(row), pixel);
          QUERN_UNROLL for (int c = 0; c < inputs; p.next(c), ++c) {
            if ((MISS == any || (MISS == some && c < TAPS - 1)) && c < s.begin) continue;
            if ((MISS == any || (MISS == some && c >= inputs - (TAPS - 1))) && c >= s.end) continue;
            QUERN_UNROLL for (int u = 0; u < VECTORS; ++u) {
              V input = V::load(p.get(c) + u * W);
              V::hold(input);
              QUERN_UNROLL for (int l = 0; l < LINES; ++l) QUERN_UNROLL for (int j = 0; j < MR; ++j) {
                const int of_line = r - l * STEP, tap = c - j * STEP;
                if (of_line < 0 || of_line >= TAPS || tap < 0 || tap >= TAPS) continue;
                acc[l][j][u] =
                    V::fma(input, V::load(weights + u * weights_vector + (of_line * TAPS + tap) * W), acc[l][j][u]);
              }
            }
          }
        }
        row += line;
        __asm__("" : "+r"(row));
      });
      V add[VECTORS];
      QUERN_UNROLL for (int u = 0; u < VECTORS; ++u) add[u] = V::set1(-0.0f);
      if (!SUMS && bias) {
        QUERN_UNROLL for (int u = 0; u < VECTORS; ++u) add[u] = V::load(bias + u * W);
        bias += VECTORS * W;
      }
      float* out = dst;
      QUERN_UNROLL for (int l = 0; l < LINES; ++l, out += to_line) {
        pointers p(out, to_pixel);
        QUERN_UNROLL for (int j = 0; j < MR; p.next(j), ++j) QUERN_UNROLL for (int u = 0; u < VECTORS; ++u) {
          const V sum = SUMS ? acc[l][j][u] : V::min(upper, V::max(lower, acc[l][j][u] + add[u]));
          sum.store(const_cast<float*>(p.get(j)) + u * W);
        }
      }
      src += VECTORS * W, weights += VECTORS * weights_vector, dst += VECTORS * W;
    }
  }
}

// The strips of a kind: without padding, with any, and of one vector; and such whose sums wait.
struct kind_of_strip {
  using run = void (*)(const depthwise_f32&, strip_last, size_t, size_t, size_t, float*, size_t);
  size_t lines, pixels, vectors;
  run inside, any, one, sums, sums_of_one;
};

template <class V, int LINES, int MR, int VECTORS, int TAPS, int STEP, missing MISS = any>
constexpr kind_of_strip strips_of = {LINES,
                                     MR,
                                     VECTORS,
                                     run_strips<V, LINES, MR, VECTORS, TAPS, STEP, none, false>,
                                     run_strips<V, LINES, MR, VECTORS, TAPS, STEP, MISS, false>,
                                     run_strips<V, LINES, MR, 1, TAPS, STEP, MISS, false>,
                                     run_strips<V, LINES, MR, VECTORS, TAPS, STEP, MISS, true>,
                                     run_strips<V, LINES, MR, 1, TAPS, STEP, MISS, true>};

// Elements from pixel to pixel that leave all pixels an eighth of L1's sets.
constexpr ptrdiff_t few_sets = 128;

template <class V, int TAPS, int STEP>
void run_depthwise_last(const depthwise_f32& d) {
  // Two lines at a time, and a last one.  Images of seven pixels or twice as many are at the border everywhere: long
  // strips ask for it less often.  Where pixels share few sets of L1 it does not keep what is under those.
  const kind_of_strip *two = &strips_of<V, 2, 2, 2, TAPS, STEP>, *one = &strips_of<V, 1, 2, 2, TAPS, STEP>;
  if constexpr (STEP == 1)
    if ((d.x.count == 7 || d.x.count == 14) && d.x.src % few_sets != 0 && d.x.begin < TAPS &&
        d.x.end >= static_cast<ptrdiff_t>(d.x.count)) {
      two = &strips_of<V, 2, 7, 1, TAPS, STEP, some>;
      one = &strips_of<V, 1, 7, 1, TAPS, STEP, some>;
    }
  if (d.x.count < 2) two = one = &strips_of<V, 1, 1, 1, TAPS, STEP>;
  constexpr size_t W = V::width, run = 128 / W;
  const size_t vectors = d.n / W;
  const bool plain = d.out.epilogue->clamp_only;
  alignas(64) float room[14 * run * W];
  const gemm_tap plane = d.planes ? d.plane[0] : gemm_tap{};
  for (size_t y = 0, lines; y < d.y.count; y += lines) {
    const kind_of_strip& kind = d.y.count - y < two->lines ? *one : *two;
    lines = kind.lines;
    const ptrdiff_t line = static_cast<ptrdiff_t>(y) * STEP, rows = static_cast<ptrdiff_t>(lines - 1) * STEP + TAPS,
                    advance = static_cast<ptrdiff_t>(kind.pixels) * STEP, inputs = advance - STEP + TAPS;
    for (size_t x = 0, strips; x < d.x.count; x += strips * kind.pixels) {
      // The last pixels lie over those before, which are there already.
      const size_t left = x + kind.pixels > d.x.count ? d.x.count - kind.pixels : x;
      const ptrdiff_t pixel = static_cast<ptrdiff_t>(left) * STEP;
      const strip_last s = {d.src + (d.origin + plane.a + line * d.y.src + pixel * d.x.src),
                            d.weights + plane.b * static_cast<ptrdiff_t>(W),
                            d.out.c + y * d.y.dst + left * d.out.ldc,
                            d.y.begin - line,
                            d.planes ? d.y.end - line : 0,
                            d.x.begin - pixel,
                            d.x.end - pixel};
      strips = 1;
      if (!plain) {
        for (size_t v = 0, count; v < vectors; v += count) {
          count = vectors - v < run ? vectors - v : run;
          const size_t whole = count / kind.vectors * kind.vectors;
          kind.sums(d, s, 1, v, whole, room, count * W);
          if (whole < count) kind.sums_of_one(d, s, 1, v + whole, 1, room + whole * W, count * W);
          for (size_t l = 0; l < lines; ++l) {
            const size_t skip = x - left;
            output_f32 out = d.out;
            out.c = s.dst + l * d.y.dst + skip * d.out.ldc + v * W, out.channel += v * W;
            if (out.residual) out.residual += (y + l) * d.y.residual + x * out.ldr + v * W;
            V::finish(out, kind.pixels - skip, count * W, room + (l * kind.pixels + skip) * count * W, count * W);
          }
        }
        continue;
      }
      const bool inside = s.first_line <= 0 && s.past_lines >= rows && s.begin <= 0 && s.end >= inputs;
      if (inside) {
        strips = 1 + static_cast<size_t>((s.end - inputs) / advance);
        const size_t most = (d.x.count - left) / kind.pixels;
        if (strips > most) strips = most;
      }
      const size_t whole = vectors / kind.vectors * kind.vectors;
      (inside ? kind.inside : kind.any)(d, s, strips, 0, whole, nullptr, 0);
      if (whole < vectors) kind.one(d, s, strips, whole, 1, nullptr, 0);
    }
  }
}

}  // namespace
}  // namespace quern
