// SPDX-License-Identifier: MIT
//
// Drivers that have the lines of the next band brought into L2 while one is computed, channels last: when, and how.
#pragma once

#include "driver.h"

namespace quern {

inline bool comes_slowly(const geometry& g, const machine& m) {
  return copy_rate(m, operand_bytes(g, 0).all()) < m.l2_rate / 2;
}

// Whether most of it does: of little more than L2 most stays there.
inline bool mostly_slowly(const geometry& g, const machine& m) {
  return comes_slowly(g, m) && operand_bytes(g, 0).all() > 1.25 * double(m.l2);
}

// Whether a core that does not fetch ahead waits for most of it: an L3 that is fast answers in time.
inline bool is_waited_for(const geometry& g, const machine& m) {
  return mostly_slowly(g, m) && (slow_l3(m) || operand_bytes(g, 0).all() > double(m.l3) / 2);
}

// Inputs along an axis under some outputs, as far as they are on the image.
inline range inputs_under(const axis& a, range outputs) {
  const int64_t first = a.in_begin + outputs.begin * a.in_step;
  const int64_t past = a.in_begin + (outputs.end - 1) * a.in_step + (a.taps - 1) * a.tap_step + 1;
  const int64_t begin = std::clamp<int64_t>(first, 0, a.in_size);
  return {begin, std::clamp(past, begin, a.in_size)};
}

// The inputs under some outputs, but for those under the ones before.
inline range new_inputs_under(const axis& a, range outputs, range before) {
  const int64_t seen = inputs_under(a, before).end;
  const range all = inputs_under(a, outputs);
  return {std::max(seen, all.begin), std::max(seen, all.end)};
}

// What grouped convolution fetches: of the same lines the pixels that come next, or the lines below.
enum fetched { fetch_nothing, fetch_pixels, fetch_lines };

// What the first of so many calls is to fetch of the rows of floats from `at` on, `next` from each other, which go
// beside so many vectors of outputs of all calls; next_share has the others.  The pace is that of all: asked for
// faster, in bursts, lines hold up what they are beside (a sixth of a depthwise layer, Granite Rapids).
inline lines_ahead share_of(const float* at, int64_t rows, int64_t floats, int64_t next, int64_t calls,
                            int64_t vectors) {
  const int64_t row = up(std::max<int64_t>(floats, 0), 16), lines = std::max<int64_t>(rows, 0) * row;
  return {at, size_t(up(lines, calls)), size_t(up(lines, vectors)), size_t(row), size_t(row), next - row * 16};
}

// Of lines `y` of some planes, so far apart.
inline lines_ahead share_of_planes(const float* at, const int64_t* stride, int64_t planes, int64_t apart, range y,
                                   int64_t calls, int64_t vectors) {
  return share_of(at + y.begin * stride[3], planes, y.count() * stride[3], apart, calls, vectors);
}

// Of pixels `x` of lines `y`, all channels side by side.
inline lines_ahead share_of_pixels(const float* at, const int64_t* stride, range y, range x, int64_t calls,
                                   int64_t vectors) {
  return share_of(at + y.begin * stride[3] + x.begin * stride[4], y.count(), x.count() * stride[4], stride[3], calls,
                  vectors);
}

inline void next_share(lines_ahead (&ahead)[2]) {
  for (lines_ahead& a : ahead)
    for (size_t rest = a.count; rest > 0;) {
      const size_t lines = std::min(rest, a.left);
      a.pass(lines), rest -= lines;
    }
}

}  // namespace quern
