// SPDX-License-Identifier: MIT
//
// Where threads of few_channels.h and lines.h work: strips of neighbouring outputs along x, walked down along y.  An
// axis with dilation falls into classes of outputs that share no input (depthwise_classes.h): each is an undilated
// problem.
#pragma once

#include "cuda/dims.h"
#include "cuda/output.h"

namespace quern {
namespace {

constexpr int few_lanes = 32;     // outputs whose weights lie side by side: [tap][channel][32]
constexpr int few_threads = 128;  // of a block of those that have nothing in common

// The output i of class c, which is number c + i * classes of the axis, meets input
// begin + c * class_step + (i * step + u) * apart through tap u.
struct few_axis {
  int32_t count, classes, step, apart, begin, class_step, size, taps;
  int32_t parts;  // of a class: strips or blocks of columns, runs of lines
};

// One phase of a problem.
struct few_phase {
  few_axis x, y;
  int32_t lines;  // of outputs of a run
  // From line to line and from pixel to pixel: an image is within reach of 32 bits.
  int32_t src_pixel[2], dst_pixel[2], residual_pixel[2];
  gpu_output out;
};

// Most divisors are one, and a division is what a thread begins late by.
QUERN_INLINE int32_t quotient(int32_t x, int32_t by) { return by == 1 ? x : x / by; }

// One of the lines, which registers have: they must be named by constants.
template <int Lines, int Columns, class Sum>
QUERN_INLINE void pick_line(const Sum (&sum)[Lines][Columns], int line, Sum (&own)[Columns]) {
  QUERN_UNROLL
  for (int k = 0; k < Lines; ++k) {
    QUERN_UNROLL
    for (int i = 0; i < Columns; ++i)
      if (k == 0 || k == line) own[i] = sum[k][i];
  }
}

// How threads that have nothing in common follow each other: along channels, or what stands for several, and strips of
// all classes; along runs of a class, classes, and images.
struct few_order {
  int32_t threads;
  divisor channels, strips, runs, classes;
};

// Outputs of one channel from `column` on, in lines from `line` to before `end`.
template <class T>
struct few_place {
  const few_phase& phase;
  int32_t n, class_x, class_y, column, line, end, channel;
  channel_f32 brings;  // what the epilogue has for the channel

  QUERN_INLINE explicit few_place(const few_phase& p) : phase(p) {}

  QUERN_INLINE void take_strip(int32_t strip, int32_t columns_of_strip) {
    class_x = phase.x.classes == 1 ? 0 : strip / phase.x.parts;
    column = (strip - class_x * phase.x.parts) * columns_of_strip;
  }
  // What is left of a thread's number.
  QUERN_INLINE void take_rest(const few_order& order, int32_t rest) {
    const int32_t run = order.runs.take(rest);
    class_y = order.classes.take(rest), n = rest;
    take_run(run);
  }
  QUERN_INLINE void take_run(int32_t run) {
    line = run * phase.lines;
    const int32_t lines = quotient(phase.y.count - class_y + phase.y.classes - 1, phase.y.classes);
    end = line + phase.lines < lines ? line + phase.lines : lines;
  }

  // Inputs of the class, counted in steps of `apart`: where number i lies, whether it exists.
  QUERN_INLINE int32_t line_at(int32_t i) const {
    return phase.y.begin + class_y * phase.y.class_step + i * phase.y.apart;
  }
  QUERN_INLINE int32_t column_at(int32_t i) const {
    return phase.x.begin + class_x * phase.x.class_step + i * phase.x.apart;
  }
  QUERN_INLINE bool has_line(int32_t at) const {
    return static_cast<uint32_t>(at) < static_cast<uint32_t>(phase.y.size);
  }
  QUERN_INLINE bool has_column(int32_t at) const {
    return static_cast<uint32_t>(at) < static_cast<uint32_t>(phase.x.size);
  }
  // Of the class's outputs from a column on, how many there are.
  QUERN_INLINE int32_t columns_from(int32_t first) const {
    return quotient(phase.x.count - class_x - first * phase.x.classes + phase.x.classes - 1, phase.x.classes);
  }
  // Elements from the first pixel of an image.
  QUERN_INLINE int32_t output_at(int32_t of_line, int32_t of_column, const int32_t (&pixel)[2]) const {
    return (class_y + of_line * phase.y.classes) * pixel[0] + (class_x + of_column * phase.x.classes) * pixel[1];
  }

  // shared: the thread's, so many floats and `apart` from each other, for activations that are not worth as many copies
  // of their code.
  template <int Columns, class Sum>
  QUERN_INLINE void write(int32_t of_line, const Sum (&sum)[Columns], float* shared, int32_t apart) const {
    const row to = row_at(of_line);
    if (only_clamps_own()) return write_clamped(to, sum);
    write_any(to, sum, shared, apart);
  }
  // The same without code of its own for what is most often asked for.
  template <int Columns, class Sum>
  QUERN_INLINE void write_compactly(int32_t of_line, const Sum (&sum)[Columns], float* shared, int32_t apart) const {
    write_any(row_at(of_line), sum, shared, apart);
  }
  // All lines from `line` on.
  template <int Lines, int Columns, class Sum>
  QUERN_INLINE void write_lines(const Sum (&sum)[Lines][Columns], float* shared, int32_t apart) const {
    if (only_clamps_own()) {
      QUERN_UNROLL
      for (int j = 0; j < Lines; ++j)
        if (line + j < end) write_clamped(row_at(line + j), sum[j]);
      return;
    }
    // One copy of the activations.
    QUERN_ROLL
    for (int j = 0; j < Lines && line + j < end; ++j) {
      Sum own[Columns];
      pick_line(sum, j, own);
      write_any(row_at(line + j), own, shared, apart);
    }
  }

 private:
  // Where a line of the outputs lies in dst and the residual, and how many there are.
  struct row {
    int64_t to, from;
    int32_t next_to, next_from, columns;
  };
  QUERN_INLINE row row_at(int32_t of_line) const {
    const auto at = [&](const int64_t* stride, const int32_t(&pixel)[2]) {
      return n * stride[0] + channel * stride[1] + output_at(of_line, column, pixel);
    };
    return {at(phase.out.dst_stride, phase.dst_pixel), at(phase.out.residual_stride, phase.residual_pixel),
            phase.x.classes * phase.dst_pixel[1], phase.x.classes * phase.residual_pixel[1], columns_from(column)};
  }
  // Of 8 bits dst and residual may have many types: one is worth code of its own.
  QUERN_INLINE bool only_clamps_own() const {
    const gpu_output& out = phase.out;
    return only_clamps(out.epilogue) && (sizeof(T) > 1 || (out.type == type_of<T> && !out.epilogue.residual));
  }
  template <int Columns, class Sum>
  QUERN_INLINE void write_any(row at, const Sum (&sum)[Columns], float* shared, int32_t apart) const {
    QUERN_UNROLL
    for (int i = 0; i < Columns; ++i) shared[i * apart] = sum_bits(sum[i]);
    QUERN_ROLL
    for (int i = 0; i < Columns && i < at.columns; ++i) {
      write_one<T>(phase.out, brings, shared[i * apart], at.to, at.from);
      at.to += at.next_to, at.from += at.next_from;
    }
  }
  template <int Columns, class Sum>
  QUERN_INLINE void write_clamped(const row& at, const Sum (&sum)[Columns]) const {
    if (sizeof(T) > 1 && phase.out.epilogue.residual) return write_clamped<true>(at, sum);
    write_clamped<false>(at, sum);
  }
  template <bool Residual, int Columns, class Sum>
  QUERN_INLINE void write_clamped(const row& at, const Sum (&sum)[Columns]) const {
    const epilogue_f32& e = phase.out.epilogue;
    T* dst = static_cast<T*>(phase.out.dst) + at.to;
    const T* residual = static_cast<const T*>(phase.out.residual) + at.from;
    QUERN_UNROLL
    for (int i = 0; i < Columns; ++i) {
      if (i < at.columns) {
        const float own = static_cast<float>(sum[i]), r = Residual ? value(*residual) : 0.0f;
        *dst = rounded<T>(sizeof(T) == 4 ? finished<true, Residual>(e, brings, own, r)
                                         : finished_narrow<Residual>(e, brings, own, r));
      }
      dst += at.next_to, residual += Residual ? at.next_from : 0;
    }
  }
};

}  // namespace
}  // namespace quern
