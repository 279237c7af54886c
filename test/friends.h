// SPDX-License-Identifier: MIT
//
// Random problems of the operators without products, with every field that they have but strides and epilogue.
#pragma once

#include <quern/quern.h>

#include <random>

#include "operators.h"

namespace quern::test {

inline quern_problem random_friend(quern_op op, quern_type type, std::mt19937& random) {
  const auto from = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  const auto layout = [&] { return static_cast<quern_layout>(from(QUERN_NCHW, QUERN_NC16HW16)); };
  const int64_t channels[] = {1, 2, 3, 4, 7, 8, 9, 12, 16, 17, 33};
  for (;;) {
    const int64_t c = channels[from(0, 10)], h = from(1, 9), w = from(1, 9) + (from(1, 6) == 1 ? from(10, 60) : 0);
    quern_problem p = {};
    if (is_pooling(op)) {
      p = quern_pool2d(op, type, layout(), from(1, 3), c, h, w, from(0, 4), from(0, 4));
      for (int i = 0; i < 3; ++i) {
        p.window.stride[i] = from(1, 3), p.window.dilation[i] = from(1, 2);
        p.window.pad_begin[i] = from(0, i ? 3 : 1), p.window.pad_end[i] = from(0, i ? 3 : 1);
      }
    } else if (has_axes(op)) {
      p = quern_over_axes(op, type, layout(), from(1, 3), c, h, w, static_cast<int32_t>(from(1, 31)));
      if (is_norm(op) && p.axes & QUERN_AXIS_C) p.groups = from(1, 4);
      if (is_norm(op) && from(0, 1)) p.epsilon = 0.01f;
    } else {
      p = quern_elementwise(op, type, layout(), from(1, 3), c, h, w);
    }
    if (from(1, 3) == 1) p.src.size[2] = from(1, 4);
    if (is_pooling(op) && p.src.size[2] > 1) p.window.filter[0] = from(0, 3);
    if (from(1, 25) == 1) p.src.size[from(0, 4)] = 0;
    if (has_weights(op)) {
      p.weights.layout = layout();
      for (int i = 0; i < 5; ++i) p.weights.size[i] = from(1, 3) == 1 ? 1 : p.src.size[i];
    }
    p.dst.layout = layout();
    if (quern_problem_complete(&p, &p, nullptr) == QUERN_OK) return p;
  }
}

inline quern_op random_friendly_op(std::mt19937& random) {
  return static_cast<quern_op>(QUERN_POOL_MAX + random() % (QUERN_MIN - QUERN_POOL_MAX + 1));
}

}  // namespace quern::test
