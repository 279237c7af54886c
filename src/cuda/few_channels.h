// SPDX-License-Identifier: MIT
//
// Convolution of few input channels a group, depthwise among them, with any filter and stride, by threads that have
// nothing in common: no barrier, no tile in shared memory, nothing but L1 between them.  Written for any compiler, as a
// test runs them on this CPU.
//
//   dst[pixel][o] = epilogue(sum over taps (r, s), channels c of the group of o of
//                              src[pixel at tap][c] * weights[r][s][c][o])
//
// A sum is one chain of fused multiply-adds in the order (r, s, c), as on the CPU: the same bits, unless a weight
// beside padding is infinite or NaN, as columns of padding are multiplied here.  Of s8 it is an integer.
//
// Lanes are neighbouring outputs of a pixel, or neighbours along x.  A block of outputs stays in registers, and taps
// pass, some of a line at a time.
#pragma once

#include "cuda/few_place.h"

namespace quern {
namespace {

// By value in the kernel's parameters.
struct few_conv : few_phase, few_order {
  divisor outputs, images;  // outputs of a group
  int32_t inputs;           // of a group
  bool across;              // threads follow each other along x; else along channels
  int64_t src_image, src_group, src_channel;
  const void *src, *weights;  // of 32 outputs: [tap][channel][32]
};

// ---- Where a thread works ---------------------------------------------------------------------------------------

template <class T, int Columns>
struct few_strip : few_place<T> {
  const few_conv& a;
  const T* src;  // the group's first channel, in the image
  const T* weights;

  QUERN_INLINE few_strip(const few_conv& conv, int32_t index) : few_place<T>(conv), a(conv) {
    int32_t strip = a.across ? a.strips.take(index) : 0;
    this->channel = a.channels.take(index);
    if (!a.across) strip = a.strips.take(index);
    this->take_strip(strip, Columns);
    this->take_rest(a, index);
    src = static_cast<const T*>(a.src) + a.outputs.quotient(this->channel) * a.src_group;
    weights = static_cast<const T*>(a.weights) +
              int64_t{this->channel / few_lanes} * a.y.taps * a.x.taps * a.inputs * few_lanes +
              this->channel % few_lanes;
    this->brings = channel_of(a.out.epilogue, this->channel);
  }
  QUERN_INLINE sum_type<T> weight(int32_t r, int32_t s, int32_t c) const {
    return number_of(weights[((r * a.x.taps + s) * a.inputs + c) * few_lanes]);
  }
};

// ---- Kernels ----------------------------------------------------------------------------------------------------

// Lines x Columns outputs of a channel, Run taps of a line at a time.  Step 0: any, which shares no inputs.
template <class Element, int Step, int Lines, int Columns, int Run>
struct few_block {
  using element = Element;
  using number = sum_type<Element>;
  using strip = few_strip<Element, Columns>;
  static constexpr int group = 0, step = Step, columns = Columns, lines = Lines;
  static constexpr int shared_bytes = 4 * few_threads * Columns;
  static_assert(Step > 0 || Lines == 1);

  // `Count` taps from s on, of a channel, of the line of inputs that is number `at` under the block.
  template <int Count>
  QUERN_INLINE static void add(const strip& here, number (&sum)[Lines][Columns], const Element* src, int32_t at,
                               int32_t s, int32_t channel) {
    const few_conv& a = here.a;
    constexpr int width = Step > 0 ? (Columns - 1) * Step + Count : Columns * Count;
    number x[width];
    bool exists[width];
    // A thread asks for all that it reads before it turns the first of them into floats, and reads no less where there
    // is nothing to read: a branch around a load would wait for it.
    Element next[width];
    QUERN_UNROLL
    for (int i = 0; i < width; ++i) {
      const int32_t column =
          Step > 0 ? here.column * Step + s + i : (here.column + i / Count) * a.x.step + s + i % Count;
      const int32_t from = here.column_at(column);
      exists[i] = here.has_column(from);
      next[i] = src[exists[i] ? from * a.src_pixel[1] : 0];
    }
    QUERN_UNROLL
    for (int i = 0; i < width; ++i) x[i] = exists[i] ? number_of(next[i]) : 0;
    QUERN_UNROLL
    for (int j = 0; j < Lines; ++j) {
      const int32_t r = at - j * Step;
      if (r < 0 || r >= a.y.taps || here.line + j >= here.end) continue;
      QUERN_UNROLL
      for (int u = 0; u < Count; ++u) {
        const number weight = here.weight(r, s + u, channel);
        QUERN_UNROLL
        for (int i = 0; i < Columns; ++i)
          sum[j][i] = with_product(x[Step > 0 ? i * Step + u : i * Count + u], weight, sum[j][i]);
      }
    }
  }

  QUERN_INLINE static void run(const few_conv& a, int32_t index, float* shared) {
    strip here(a, index);
    here.src += here.n * a.src_image;
    number sum[Lines][Columns] = {};
    // Taps that meet the image in any of the columns.
    const int32_t first = here.column_at(here.column * a.x.step);
    const int32_t last = first + (Columns - 1) * a.x.step * a.x.apart, behind = a.x.size - first;
    const int32_t begin = last < 0 ? (-last + a.x.apart - 1) / a.x.apart : 0;
    int32_t end = behind > 0 ? (behind + a.x.apart - 1) / a.x.apart : 0;
    if (end > a.x.taps) end = a.x.taps;
    QUERN_ROLL
    for (int32_t i = 0; i < (Lines - 1) * Step + a.y.taps; ++i) {
      const int32_t line = here.line_at(here.line * a.y.step + i);
      if (!here.has_line(line)) continue;
      const Element* const src = here.src + line * a.src_pixel[0];
      int32_t s = begin;
      if (a.inputs == 1) {
        QUERN_ROLL
        for (; s + Run <= end; s += Run) add<Run>(here, sum, src, i, s, 0);
      }
      QUERN_ROLL
      for (; s < end; ++s) {
        QUERN_ROLL
        for (int32_t c = 0; c < a.inputs; ++c) add<1>(here, sum, src + c * a.src_channel, i, s, c);
      }
    }
    here.write_lines(sum, shared, few_threads);
  }
};

// Depthwise, on images of up to Columns pixels a line, with filters that reach over such a line from any pixel of it:
// inputs stay in registers and weights pass, each by all outputs that have an input at its distance.  Neighbouring
// warps have the same weights, of other images.
template <class Element, int Lines, int Columns>
struct few_line {
  using element = Element;
  static constexpr int group = 1, step = 1, columns = Columns, lines = Lines;
  static constexpr int shared_bytes = 4 * few_threads * Columns;

  QUERN_INLINE static void run(const few_conv& a, int32_t index, float* shared) {
    few_place<Element> here(a);
    const int32_t lane = index % few_lanes;
    index /= few_lanes;
    const int32_t image = a.images.take(index), run = a.runs.take(index);
    here.n = image, here.class_y = a.classes.take(index), here.class_x = 0;
    here.channel = index * few_lanes + lane;
    if (here.channel >= a.channels.by) return;
    here.column = 0, here.take_run(run);
    here.brings = channel_of(a.out.epilogue, here.channel);

    const Element* const src =
        static_cast<const Element*>(a.src) + here.n * a.src_image + a.outputs.quotient(here.channel) * a.src_group;
    // The tap that the first input has in the first output.
    const Element* const weights =
        static_cast<const Element*>(a.weights) + (int64_t{index} * a.y.taps * a.x.taps - a.x.begin) * few_lanes + lane;
    float sum[Lines][Columns] = {};
    QUERN_ROLL
    for (int32_t i = 0; i < Lines - 1 + a.y.taps; ++i) {
      const int32_t line = here.line_at(here.line + i);
      if (!here.has_line(line)) continue;
      const Element* pixel = src + line * a.src_pixel[0];
      float x[Columns];
      QUERN_UNROLL
      for (int k = 0; k < Columns; ++k) {
        x[k] = k < a.x.size ? value(*pixel) : 0.0f;
        pixel += a.src_pixel[1];
      }
      QUERN_UNROLL
      for (int j = 0; j < Lines; ++j) {
        const int32_t r = i - j;
        if (r < 0 || r >= a.y.taps || here.line + j >= here.end) continue;
        const Element* const row = weights + r * a.x.taps * few_lanes;
        // By distance: so the taps of an output pass in their order.
        QUERN_UNROLL
        for (int d = 1 - Columns; d < Columns; ++d) {
          const float w = value(row[d * few_lanes]);
          QUERN_UNROLL
          for (int q = 0; q < Columns; ++q)
            if (q + d >= 0 && q + d < Columns) sum[j][q] = fmaf(x[q + d], w, sum[j][q]);
        }
      }
    }
    here.write_lines(sum, shared, few_threads);
  }
};

template <class T>
struct few_kernels {
  using any = few_block<T, 1, 4, 7, 4>;
  using anys2 = few_block<T, 2, 4, 7, 4>;
  using any_step = few_block<T, 0, 1, 4, 4>;
  using line14 = few_line<T, 2, 14>;
};

}  // namespace
}  // namespace quern
