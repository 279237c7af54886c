// SPDX-License-Identifier: MIT
//
// What the drivers of depthwise convolution share: a dilated axis as classes of outputs that have no input in
// common.  Each is an undilated problem whose lines or pixels lie further apart.
#pragma once

#include <algorithm>
#include <numeric>

#include "geometry.h"
#include "kernel.h"

namespace quern {

constexpr int64_t most_planes = 64;  // of a filter: their offsets are kept on the stack

// The outputs first + i * classes of an axis read inputs base + (i * step + u) * apart, of which those from `begin`
// to before `end` exist.
struct axis_class {
  int64_t first, classes, count, step, apart, base, begin, end;

  static int64_t count_of(const axis& a) {
    return std::clamp<int64_t>(a.tap_step / std::max<int64_t>(1, std::gcd(a.in_step, a.tap_step)), 1,
                               std::max<int64_t>(a.out_count, 1));
  }
  axis_class(const axis& a, int64_t index, int64_t of)
      : first(index),
        classes(of),
        count(up(a.out_count - index, of)),
        step(1),
        apart(std::max<int64_t>(a.tap_step, 1)),
        base(a.in_begin + index * a.in_step) {
    if (count > 1) step = a.in_step * classes / apart;  // a single output takes none
    const auto ahead = [&](int64_t to) { return to > 0 ? up(to, apart) : -(-to / apart); };
    begin = ahead(-base), end = ahead(a.in_size - base);
  }
};

// From output to output of a class, for who goes by classes along y alone: there a dilation takes some of the stride,
// or all.
inline int64_t step_in_class(const geometry& g, int i) {
  return i == 1 ? g.stride[i] / std::gcd(g.stride[i], g.dilation[i]) : g.stride[i];
}

// The planes of the filter that meet output plane d, as offsets of src and of the weights in taps.
inline size_t planes_of(const geometry& g, const phase& ph, int64_t d, gemm_tap* planes) {
  const range taps = ph.d.taps_at(d);
  for (int64_t t = taps.begin; t < taps.end; ++t)
    planes[t - taps.begin] = {(ph.d.in_begin + d * ph.d.in_step + t * ph.d.tap_step) * g.src[2],
                              t * ph.h.taps * ph.w.taps};
  return static_cast<size_t>(taps.count());
}

}  // namespace quern
