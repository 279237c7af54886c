// SPDX-License-Identifier: MIT
//
// Short lines of a plane as one long line: some of them, with their padding, are copied to L1 behind each other, and
// vectors go across their ends.
#pragma once

#include <algorithm>

#include "driver.h"

namespace quern {

// Of every `step` lines one is in each phase, so that what a tap meets follows each other, too.
struct pool_band {
  axis y, x;
  int64_t n, lines, inputs;        // floats of a pixel; lines of outputs, of src
  int64_t step, phase, row, span;  // lines of a phase; pixels of a line, and those that windows reach
  int64_t columns;                 // outputs from line to line

  pool_band(const geometry& g, int64_t floats, int64_t of)
      : y(g.axis_of(1, 0)),
        x(g.axis_of(2, 0)),
        n(floats),
        lines(of),
        inputs((of - 1) * y.in_step + (y.taps - 1) * y.tap_step + 1),
        step(y.in_step),
        phase(up(inputs, step)),
        row(0),
        span((x.out_count - 1) * x.in_step + (x.taps - 1) * x.tap_step + 1),
        columns(up(span, x.in_step)) {
    row = columns * x.in_step;
  }
  // Two dimensions, where the one slice of windows is that of src, not padding, and pixels that follow each other.
  static bool fits(const geometry& g, int64_t n) {
    return g.filter[0] == 1 && g.pad[0] == 0 && g.in[0] == 1 && g.out[0] == 1 && g.out[1] > 1 && g.filter[1] > 0 &&
           g.filter[2] > 0 && (g.src[4] == n || g.in[2] <= 1);
  }
  // Pads may be of any size: to be asked before what follows.
  bool exceeds(int64_t most) const { return double(step) * double(phase) * double(row) * double(n) > double(most); }
  int64_t floats() const { return step * phase * row * n; }
  int64_t line_of(int64_t input) const { return (input % step * phase + input / step) * row * n; }

  // The call for all of it.
  void set(const quern_problem& p, const geometry& g, pool_f32& call) const {
    call.lines = size_t(y.taps), call.pixel = n, call.pad = 0;
    call.count = size_t((lines - 1) * columns + x.out_count), call.width = ptrdiff_t(call.span());
    call.rows = size_t(lines), call.row_count = size_t(x.out_count), call.tile_row = size_t(columns * n);
    call.dst_row = size_t(g.dst[3]), call.residual_row = p.epilogue.residual ? size_t(g.residual[3]) : 0;
  }
  void place_taps(ptrdiff_t* line) const {
    for (int64_t i = 0; i < y.taps; ++i) line[i] = line_of(i * y.tap_step);
  }
  // pool_f32.inside, where outputs differ.
  const float* count_inside(int64_t first, float* to) const {
    bool alike = true;
    std::fill_n(to, lines * columns * n, 1.0f);
    for (int64_t i = 0; i < lines; ++i) {
      const int64_t of_line = y.taps_at(first + i).count();
      for (int64_t k = 0; k < x.out_count; ++k) {
        const int64_t count = of_line * x.taps_at(k).count();
        alike &= count == y.taps * x.taps;
        std::fill_n(to + (i * columns + k) * n, n, float(std::max<int64_t>(1, count)));
      }
    }
    return alike ? nullptr : to;
  }
  // What of a plane is on the image; the rest keeps what was there.
  void copy(const geometry& g, const kernel& with, const float* plane, int64_t first, float* to) const {
    const int64_t top = first * step + y.in_begin, left = -x.in_begin;
    const int64_t begin = std::max<int64_t>(0, -top), end = std::min(inputs, y.in_size - top);
    copy_f32 call = {};
    call.cols = size_t(std::min(x.in_size, span - left) * n), call.src_col = 1;
    call.src_row = size_t(step * g.src[3]), call.dst_row = size_t(row * n);
    if (span <= left) return;
    for (int64_t i = begin; i < std::min(end, begin + step); ++i) {
      call.rows = size_t(up(end - i, step));
      call.src = plane + (top + i) * g.src[3], call.dst = to + line_of(i) + left * n;
      with.copy(call);
    }
  }
};

}  // namespace quern
