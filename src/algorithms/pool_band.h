// SPDX-License-Identifier: MIT
//
// Short lines of a plane as one long line: some of them, with their padding, are copied to L1 behind each other, and
// vectors go across their ends.
#pragma once

#include <algorithm>

#include "driver.h"
#include "problem.h"

namespace quern {

// Taps of a window along an axis that are no padding, and the input of the first.
struct taps_inside {
  int64_t first, count;
  taps_inside(const quern_problem& p, int axis, int64_t output) {
    const quern_window& w = p.window;
    const int64_t from = output * w.stride[axis] - w.pad_begin[axis], step = w.dilation[axis];
    const int64_t begin = from < 0 ? up(-from, step) : 0, left = p.src.size[2 + axis] - from;
    first = from + begin * step;
    count = std::max<int64_t>(0, std::min(left > 0 ? up(left, step) : 0, w.filter[axis]) - begin);
  }
};

// Of every `step` lines one is in each phase, so that what a tap meets follows each other, too.
struct pool_band {
  int64_t n, lines, inputs;        // floats of a pixel; lines of outputs, of src
  int64_t step, phase, row, span;  // lines of a phase; pixels of a line, and those that windows reach
  int64_t columns;                 // outputs from line to line

  pool_band(const quern_problem& p, int64_t floats, int64_t of)
      : n(floats),
        lines(of),
        inputs((of - 1) * p.window.stride[1] + (p.window.filter[1] - 1) * p.window.dilation[1] + 1),
        step(p.window.stride[1]),
        phase(up(inputs, step)),
        row(0),
        span((p.dst.size[4] - 1) * p.window.stride[2] + (p.window.filter[2] - 1) * p.window.dilation[2] + 1),
        columns(up(span, p.window.stride[2])) {
    row = columns * p.window.stride[2];
  }
  // Two dimensions, where the one slice of windows is that of src, not padding, and pixels that follow each other.
  static bool fits(const quern_problem& p, int64_t n) {
    return p.window.filter[0] == 1 && p.window.pad_begin[0] == 0 && p.src.size[2] == 1 && p.dst.size[2] == 1 &&
           p.dst.size[3] > 1 && (p.src.stride[4] == n || p.src.size[4] == 1);
  }
  int64_t floats() const { return step * phase * row * n; }
  int64_t line_of(int64_t input) const { return (input % step * phase + input / step) * row * n; }

  // The call for all of it.
  void set(const quern_problem& p, pool_f32& call) const {
    call.lines = size_t(p.window.filter[1]), call.pixel = n, call.pad = 0;
    call.count = size_t((lines - 1) * columns + p.dst.size[4]), call.width = ptrdiff_t(call.span());
    call.rows = size_t(lines), call.row_count = size_t(p.dst.size[4]), call.tile_row = size_t(columns * n);
    call.dst_row = size_t(p.dst.stride[3]), call.residual_row = p.epilogue.residual ? size_t(p.residual.stride[3]) : 0;
  }
  void place_taps(const quern_problem& p, ptrdiff_t* line) const {
    for (int64_t i = 0; i < p.window.filter[1]; ++i) line[i] = line_of(i * p.window.dilation[1]);
  }
  // pool_f32.inside, where outputs differ.
  const float* count_inside(const quern_problem& p, int64_t first, float* to) const {
    const float whole = float(p.window.filter[1] * p.window.filter[2]);
    bool alike = true;
    std::fill_n(to, lines * columns * n, 1.0f);
    for (int64_t y = 0; y < lines; ++y) {
      const int64_t of_line = taps_inside(p, 1, first + y).count;
      for (int64_t x = 0; x < p.dst.size[4]; ++x) {
        const float count = float(std::max<int64_t>(1, of_line * taps_inside(p, 2, x).count));
        alike &= count == whole;
        std::fill_n(to + (y * columns + x) * n, n, count);
      }
    }
    return alike ? nullptr : to;
  }
  // What of a plane is on the image; the rest keeps what was there.
  void copy(const quern_problem& p, const kernel& with, const float* plane, int64_t first, float* to) const {
    const int64_t top = first * step - p.window.pad_begin[1], left = p.window.pad_begin[2];
    const int64_t begin = std::max<int64_t>(0, -top), end = std::min(inputs, p.src.size[3] - top);
    copy_f32 call = {};
    call.cols = size_t(std::min(p.src.size[4], span - left) * n), call.src_col = 1;
    call.src_row = size_t(step * p.src.stride[3]), call.dst_row = size_t(row * n);
    if (span <= left) return;
    for (int64_t i = begin; i < std::min(end, begin + step); ++i) {
      call.rows = size_t(up(end - i, step));
      call.src = plane + (top + i) * p.src.stride[3], call.dst = to + line_of(i) + left * n;
      with.copy(call);
    }
  }
};

}  // namespace quern
