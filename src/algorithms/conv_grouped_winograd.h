// SPDX-License-Identifier: MIT
//
// What the drivers of grouped convolution by Winograd's F(4, 3) down the lines share: 3x3 filters at stride 1, whose
// rows are summed as they are.
#pragma once

#include "conv_winograd.h"
#include "driver.h"
#include "weights.h"

namespace quern::grouped_winograd {

using form = winograd_driver::of<4, 3>;

constexpr int64_t taps = 3, lines = 4, points = lines + taps - 1;

inline refusal refuse_window(const full_problem& p) {
  const geometry& w = geometry_of(p);
  if (w.filter[0] != 1) return w.refuse(window_filter, 0, w.filter[0], 1);
  if (w.filter[1] != taps) return w.refuse(window_filter, 1, w.filter[1], taps);
  if (w.filter[2] != taps) return w.refuse(window_filter, 2, w.filter[2], taps);
  for (int i = 0; i < 3; ++i)
    if (w.stride[i] != 1 && (w.out[i] > 1 || p.op != QUERN_CONV)) return w.refuse(window_stride, i, w.stride[i], 1);
  if (w.dilation[1] != 1) return w.refuse(window_dilation, 1, w.dilation[1], 1);
  if (w.dilation[2] != 1) return w.refuse(window_dilation, 2, w.dilation[2], 1);
  return {};
}

inline double error_bound(const full_problem& p) {
  // Of a product's way: at most five roundings in each transform, one of its weight, one a channel and tap of a row.
  const double n = (double(geometry_of(p).c) * taps + 16) * 0x1p-24;
  return n < 0.5 ? form::f.growth[1] * n / (1 - n) : std::numeric_limits<double>::infinity();
}

// Transformed weights of output channels [first, first + count): place(channel, c, point, s, weight).
template <class Place>
void pack_points(const geometry& g, int64_t first, int64_t count, const float* weights, Place place) {
  const phase ph = phase_of(g, 0);
  const int64_t base = weight_offset(g, first);
  const auto& matrix = form::f.axis[1]->g;
  for (int64_t k = first; k < first + count; ++k) {
    const float* w =
        weights + (weight_offset(g, k) - base) + ph.h.filter_begin * g.weights[3] + ph.w.filter_begin * g.weights[4];
    for (int64_t c = 0; c < g.c; ++c)
      for (int64_t i = 0; i < points; ++i)
        for (int64_t s = 0; s < taps; ++s) {
          double sum = 0;
          for (int64_t r = 0; r < taps; ++r)
            sum +=
                matrix[i][r] *
                double(w[c * g.weights[1] + r * ph.h.filter_step * g.weights[3] + s * ph.w.filter_step * g.weights[4]]);
          place(k, c, i, s, float(sum));
        }
  }
}

}  // namespace quern::grouped_winograd
