// SPDX-License-Identifier: MIT
//
// Where threads of few_channels.h and lines.h work: strips of neighbouring outputs along x, walked down along y.  An
// axis with dilation falls into classes of outputs that share no input (depthwise_classes.h): each is an undilated
// problem.
#pragma once

#include "cuda/output.h"

namespace quern {
namespace {

constexpr int few_lanes = 32;  // outputs whose weights lie side by side: [tap][channel][32]

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

// Outputs of one channel from `column` on, in lines from `line` to before `end`.
template <class T>
struct few_place {
  const few_phase& phase;
  int32_t n, class_x, class_y, column, line, end, channel;
  channel_f32 brings;  // what the epilogue has for the channel

  QUERN_INLINE explicit few_place(const few_phase& p) : phase(p) {}

  QUERN_INLINE void take_run(int32_t run) {
    line = run * phase.lines;
    const int32_t lines = (phase.y.count - class_y + phase.y.classes - 1) / phase.y.classes;
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
    return (phase.x.count - class_x - first * phase.x.classes + phase.x.classes - 1) / phase.x.classes;
  }
  // Elements from the first pixel of an image.
  QUERN_INLINE int32_t output_at(int32_t of_line, int32_t of_column, const int32_t (&pixel)[2]) const {
    return (class_y + of_line * phase.y.classes) * pixel[0] + (class_x + of_column * phase.x.classes) * pixel[1];
  }

  // shared: the thread's, so many floats and `apart` from each other, for activations that are not worth as many copies
  // of their code.
  template <int Columns>
  QUERN_INLINE void write(int32_t of_line, const float (&sum)[Columns], float* shared, int32_t apart) const {
    const gpu_output& out = phase.out;
    const epilogue_f32& e = out.epilogue;
    const int32_t columns = columns_from(column);
    T* const dst = static_cast<T*>(out.dst) + n * out.dst_stride[0] + channel * out.dst_stride[1] +
                   output_at(of_line, column, phase.dst_pixel);
    const T* const residual = static_cast<const T*>(out.residual) + n * out.residual_stride[0] +
                              channel * out.residual_stride[1] + output_at(of_line, column, phase.residual_pixel);
    const int32_t next = phase.x.classes * phase.dst_pixel[1], from = phase.x.classes * phase.residual_pixel[1];
    if (only_clamps(e)) {
      if (e.residual) return write_clamped<true>(dst, next, residual, from, columns, sum);
      return write_clamped<false>(dst, next, residual, from, columns, sum);
    }
    QUERN_UNROLL
    for (int i = 0; i < Columns; ++i) shared[i * apart] = sum[i];
    QUERN_ROLL
    for (int i = 0; i < Columns && i < columns; ++i) {
      const float r = e.residual ? value(residual[i * from]) : 0.0f;
      dst[i * next] = rounded<T>(finished<false>(e, brings, shared[i * apart], r));
    }
  }

 private:
  template <bool Residual, int Columns>
  QUERN_INLINE void write_clamped(T* dst, int32_t next, const T* residual, int32_t from, int32_t columns,
                                  const float (&sum)[Columns]) const {
    const epilogue_f32& e = phase.out.epilogue;
    QUERN_UNROLL
    for (int i = 0; i < Columns; ++i) {
      if (i < columns) {
        const float r = Residual ? value(*residual) : 0.0f;
        *dst = rounded<T>(sizeof(T) == 4 ? finished<true, Residual>(e, brings, sum[i], r)
                                         : finished_narrow<Residual>(e, brings, sum[i], r));
      }
      dst += next, residual += Residual ? from : 0;
    }
  }
};

}  // namespace
}  // namespace quern
