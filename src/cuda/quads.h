// SPDX-License-Identifier: MIT
//
// Convolution of s8, depthwise and of few input channels a group, four neighbouring channels of a pixel at a time, by
// threads that have nothing in common, as few_channels.h's.  Written for any compiler, as a test runs them on this CPU.
//
//   dst[pixel][o] = epilogue(sum over taps (r, s), channels c of the group of o of
//                              src[pixel at tap][c] * weights[r][s][c][o])
//
// An instruction adds four products to a sum.  Of groups they are of four channels, of which a word of a pixel serves
// four outputs.  Of depthwise they are of four taps of a line: four pixels are turned round, four channels each, and a
// window that begins between two such words is made of both.
//
// Lanes are neighbouring quads of outputs of a pixel.  A block of outputs stays in registers, and taps pass.
#pragma once

#include "cuda/chunks.h"
#include "cuda/dot4.h"
#include "cuda/few_place.h"
#include "cuda/several.h"

namespace quern {
namespace {

// By value in the kernel's parameters.
struct quads_conv : few_phase, few_order {
  divisor outputs;            // quads of a group; of depthwise one
  int32_t inputs;             // the same; of depthwise none
  int32_t line_steps, steps;  // of a line of the filter, and of all: words of weights for an output
  int64_t src_image;
  const s8* src;
  const uint32_t* weights;  // of 32 quads: [step][quad][output]
};

// What is kept in a register from here on, where it would be computed again at each use.
template <class Number>
QUERN_INLINE void settle([[maybe_unused]] Number& x) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(x));
#endif
}

// Taps of a line that groups have at once; depthwise has four.
constexpr int quads_run(int step) { return step > 0 ? 3 : 1; }

// Lines x Columns outputs of four channels.  Of step 0: any, which shares no inputs.
template <int Step, int Lines, int Columns>
struct quad_block {
  static constexpr int step = Step, columns = Columns, lines = Lines;
  static constexpr int shared_bytes = 4 * few_threads * Columns;
  static_assert(Step > 0 || Lines == 1);
  static constexpr int run_taps = quads_run(Step);
  // Words of a line under the block, of so many taps.
  template <int Taps>
  static constexpr int width() {
    return Step > 0 ? (Columns - 1) * Step + Taps : Columns * Taps;
  }

  using sums = int32_t[4 * Lines][Columns];  // all lines of a channel, then of the next

  struct place : few_place<s8> {
    const quads_conv& a;
    const s8* src;    // the quad's, or the group's first one, in the image
    int32_t weights;  // the quad's first

    QUERN_INLINE place(const quads_conv& conv, int32_t index) : few_place<s8>(conv), a(conv) {
      const int32_t quad = a.channels.take(index), strip = a.strips.take(index);
      this->take_strip(strip, Columns);
      this->take_rest(a, index);
      this->channel = 4 * quad;
      src = a.src + this->n * a.src_image + 4 * (a.inputs == 0 ? quad : a.outputs.quotient(quad) * a.inputs);
      weights = (quad / few_lanes * (a.steps * few_lanes) + quad % few_lanes) * 4;
    }
    QUERN_INLINE four_words weights_at(int32_t at) const {
      return *reinterpret_cast<const four_words*>(a.weights + (weights + at * (4 * few_lanes)));
    }
  };

  // Where words under the block of a line of inputs lie, from tap s on: the same in all lines.
  template <int Taps>
  struct reads {
    int32_t at[width<Taps>()];  // of what is beside the image: 0
    uint32_t inside = 0;        // a bit for each

    QUERN_INLINE reads(const place& here, int32_t s) {
      QUERN_UNROLL
      for (int i = 0; i < width<Taps>(); ++i) {
        const int32_t number =
            Step > 0 ? here.column * Step + s + i : (here.column + i / Taps) * here.a.x.step + s + i % Taps;
        const int32_t from = here.column_at(number);
        const bool exists = here.has_column(from);
        at[i] = exists ? from * here.a.src_pixel[1] : 0;
        inside |= uint32_t{exists} << i;
        settle(at[i]);
      }
      settle(inside);
    }
    // All are asked for, and something is read where there is nothing: as few_block has it.
    QUERN_INLINE void load(uint32_t (&x)[width<Taps>()], const s8* line) const {
      QUERN_UNROLL
      for (int i = 0; i < width<Taps>(); ++i) x[i] = *reinterpret_cast<const uint32_t*>(line + at[i]);
      if (inside == (uint32_t{1} << width<Taps>()) - 1) return;
      QUERN_UNROLL
      for (int i = 0; i < width<Taps>(); ++i) x[i] = inside >> i & 1 ? x[i] : 0;
    }
  };

  // Lines of outputs that meet line `at` of the inputs under the block, and their lines of the filter.
  template <class Add>
  QUERN_INLINE static void for_each_line(const place& here, int32_t at, Add add) {
    QUERN_UNROLL
    for (int j = 0; j < Lines; ++j) {
      const int32_t r = at - j * Step;
      if (r >= 0 && r < here.a.y.taps && here.line + j < here.end) add(j, r * here.a.line_steps);
    }
  }

  // Four taps of a line, from s on, of each channel.
  QUERN_INLINE static void add_words(const place& here, sums& sum, const uint32_t (&x)[width<4>()], int32_t at,
                                     int32_t s) {
    constexpr int words = (width<4>() + 3) / 4;
    uint32_t of[words][4], window[4][Columns];
    QUERN_UNROLL
    for (int w = 0; w < words; ++w) {
      QUERN_UNROLL
      for (int k = 0; k < 4; ++k) of[w][k] = 4 * w + k < width<4>() ? x[4 * w + k] : 0;
      turn(of[w]);
    }
    QUERN_UNROLL
    for (int i = 0; i < 4 * Columns; ++i) {
      const int c = i / Columns, first = i % Columns * (Step > 0 ? Step : 4), w = first / 4, by = first % 4;
      window[c][i % Columns] =
          by == 0 ? of[w][c] : bytes(of[w][c], of[w + 1 < words ? w + 1 : w][c], 0x3210 + 0x1111 * by);
    }
    for_each_line(here, at, [&](int j, int32_t line_of_filter) {
      const four_words w = here.weights_at(line_of_filter + s / 4);
      QUERN_UNROLL
      for (int i = 0; i < 4 * Columns; ++i) {
        int32_t& own = sum[i / Columns * Lines + j][i % Columns];
        own = dot4(window[i / Columns][i % Columns], w.v[i / Columns], own);
      }
    });
  }
  // `Taps` taps of a line, from s on, of the four inputs that are number c of the group.
  template <int Taps>
  QUERN_INLINE static void add_inputs(const place& here, sums& sum, const uint32_t (&x)[width<Taps>()], int32_t at,
                                      int32_t s, int32_t c) {
    for_each_line(here, at, [&](int j, int32_t line_of_filter) {
      QUERN_UNROLL
      for (int u = 0; u < Taps; ++u) {
        const four_words w = here.weights_at(line_of_filter + (s + u) * here.a.inputs + c);
        QUERN_UNROLL
        for (int i = 0; i < 4 * Columns; ++i) {
          int32_t& own = sum[i / Columns * Lines + j][i % Columns];
          own = dot4(x[Step > 0 ? i % Columns * Step + u : i % Columns * Taps + u], w.v[i / Columns], own);
        }
      }
    });
  }
  // All lines; of four taps those of depthwise.
  template <int Taps>
  QUERN_INLINE static void add(const place& here, sums& sum, int32_t s) {
    const reads<Taps> from(here, s);
    const quads_conv& a = here.a;
    QUERN_ROLL
    for (int32_t i = 0; i < (Lines - 1) * Step + a.y.taps; ++i) {
      const int32_t y = here.line_at(here.line * a.y.step + i);
      if (!here.has_line(y)) continue;
      const s8* const line = here.src + y * a.src_pixel[0];
      uint32_t x[width<Taps>()];
      if constexpr (Taps == 4) {
        from.load(x, line);
        add_words(here, sum, x, i, s);
      } else {
        QUERN_ROLL
        for (int32_t c = 0; c < a.inputs; ++c) {
          from.load(x, line + 4 * c);
          add_inputs<Taps>(here, sum, x, i, s, c);
        }
      }
    }
  }

  QUERN_INLINE static void run(const quads_conv& a, int32_t index, float* shared) {
    place here(a, index);
    sums sum = {};
    // Sums are exact in any order, and taps behind a line's last one have weights of zero.
    const int32_t run = a.inputs == 0 ? 4 : run_taps;
    QUERN_ROLL
    for (int32_t s = 0; s < a.x.taps; s += run) a.inputs == 0 ? add<4>(here, sum, s) : add<run_taps>(here, sum, s);
    write(here, sum, shared);
  }

  QUERN_INLINE static void write_words(const place& here, const sums& sum) {
    const gpu_output& out = here.a.out;
    channel_f32 of[4];
    load_channels(out.epilogue, here.channel, 1, of);
    const int32_t there = here.columns_from(here.column), next = here.a.x.classes * here.a.dst_pixel[1];
    s8* const image = static_cast<s8*>(out.dst) + here.n * out.dst_stride[0] + here.channel;
    QUERN_UNROLL
    for (int j = 0; j < Lines; ++j) {
      if (here.line + j >= here.end) continue;
      s8* to = image + here.output_at(here.line + j, here.column, here.a.dst_pixel);
      QUERN_UNROLL
      for (int i = 0; i < Columns; ++i) {
        float y[4];
        QUERN_UNROLL
        for (int o = 0; o < 4; ++o)
          y[o] = finished_narrow<false>(out.epilogue, of[o], static_cast<float>(sum[o * Lines + j][i]), 0);
        if (i < there) *reinterpret_cast<uint32_t*>(to) = rounded_four<s8>(y);
        to += next;
      }
    }
  }
  QUERN_INLINE static void write(place& here, const sums& sum, float* shared) {
    const gpu_output& out = here.a.out;
    const epilogue_f32& e = out.epilogue;
    if (out.vector && only_clamps(e) && !e.residual) return write_words(here, sum);
    // Line by line of a channel: one copy of the rest.
    const int32_t first = here.channel;
    QUERN_ROLL
    for (int k = 0; k < 4 * Lines; ++k) {
      const int32_t line = here.line + k % Lines;
      if (line >= here.end) continue;
      int32_t own[Columns];
      pick_line(sum, k, own);
      here.channel = first + k / Lines;
      here.brings = channel_of(e, here.channel);
      here.write_compactly(line, own, shared, few_threads);
    }
  }
};

using quads_any = quad_block<1, 2, 7>;
using quads_any_step = quad_block<0, 1, 4>;

}  // namespace
}  // namespace quern
