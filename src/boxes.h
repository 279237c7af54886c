// SPDX-License-Identifier: MIT
//
// What one output of an operator without products is made of, as the mathematics reads: the elements under its window,
// its slice, or itself.  For the reference of the CPU and for that of a GPU.
#pragma once

#include <math.h>

#include "half.h"
#include "layout.h"
#include "operators.h"

namespace quern {
namespace {

// Elements first, first + step, ... of src, `count` of them, along each axis.
struct box {
  int64_t first[5], count[5], step[5];
  QUERN_INLINE int64_t size() const { return count[0] * count[1] * count[2] * count[3] * count[4]; }
};

// The steps from `from` to `to`, at least so many.
QUERN_INLINE int64_t steps_to(int64_t from, int64_t to, int64_t step) {
  return from < to ? (to - from + step - 1) / step : 0;
}

QUERN_INLINE box box_of(const quern_problem& p, const int64_t* at) {
  box b;
  QUERN_UNROLL
  for (int i = 0; i < 5; ++i) {
    b.first[i] = at[i], b.count[i] = b.step[i] = 1;
    if (p.axes >> i & 1) {
      const int64_t groups = i == 1 ? p.groups : 1;
      b.count[i] = p.src.size[i] / groups;
      b.first[i] = groups == 1 ? 0 : at[i] / b.count[i] * b.count[i];
    } else if (i >= 2 && is_pooling(p.op)) {
      const quern_window& w = p.window;
      const int64_t from = at[i] * w.stride[i - 2] - w.pad_begin[i - 2], step = w.dilation[i - 2];
      const int64_t before = steps_to(from, 0, step), all = steps_to(from, p.src.size[i], step);
      b.first[i] = from + before * step, b.step[i] = step;
      b.count[i] = (all < w.filter[i - 2] ? all : w.filter[i - 2]) - before;
      if (b.count[i] < 0) b.count[i] = 0;
    }
  }
  return b;
}

template <class T, class Visit>
QUERN_INLINE void each_of(const quern_tensor& t, const T* from, const box& b, const Visit& visit) {
  const int64_t block = block_of(t.layout);
  const auto at = [&](int axis, int64_t i) { return (b.first[axis] + i * b.step[axis]) * t.stride[axis]; };
  for (int64_t n = 0; n < b.count[0]; ++n)
    for (int64_t c = 0; c < b.count[1]; ++c)
      for (int64_t d = 0; d < b.count[2]; ++d)
        for (int64_t h = 0; h < b.count[3]; ++h)
          for (int64_t w = 0; w < b.count[4]; ++w)
            visit(static_cast<double>(value(
                from[at(0, n) + channel_offset(b.first[1] + c, t.stride[1], block) + at(2, d) + at(3, h) + at(4, w)])));
}

QUERN_INLINE double larger(double a, double b) { return a > b || a != a ? a : b; }
QUERN_INLINE double smaller(double a, double b) { return a < b || a != a ? a : b; }

// What the outputs of a box have in common.
struct box_sum {
  double x;  // what becomes of the elements, of a norm the mean, of a softmax the largest
  double y;  // the root of a norm; of a softmax the sum of exponentials, or its logarithm
};

// Of nothing.
QUERN_INLINE double neutral(quern_op op) {
  switch (op) {
    case QUERN_POOL_MAX:
    case QUERN_REDUCE_MAX:
    case QUERN_SOFTMAX:
    case QUERN_LOG_SOFTMAX: return -INFINITY;
    case QUERN_REDUCE_MIN: return INFINITY;
    case QUERN_REDUCE_PROD: return 1;
    default: return 0;
  }
}

// With another element v; in the second pass `from` is what came of the first.
QUERN_INLINE double added(quern_op op, bool second, double sum, double v, double from) {
  switch (op) {
    case QUERN_SOFTMAX:
    case QUERN_LOG_SOFTMAX: return second ? sum + exp(v - from) : larger(sum, v);
    case QUERN_NORM: return sum + (second ? (v - from) * (v - from) : v);
    case QUERN_POOL_MAX:
    case QUERN_REDUCE_MAX: return larger(sum, v);
    case QUERN_REDUCE_MIN: return smaller(sum, v);
    case QUERN_REDUCE_PROD: return sum * v;
    case QUERN_REDUCE_L1: return sum + fabs(v);
    case QUERN_REDUCE_L2:
    case QUERN_REDUCE_SUM_SQUARE:
    case QUERN_RMS_NORM: return sum + v * v;
    default: return sum + v;
  }
}

template <class T>
QUERN_INLINE box_sum sum_of(const quern_problem& p, const T* src, const box& b) {
  const double count = static_cast<double>(b.size()), epsilon = static_cast<double>(p.epsilon);
  const bool twice = p.op == QUERN_NORM || is_softmax(p.op);
  double x = 0, y = neutral(p.op);
  QUERN_ROLL
  for (int pass = 0; pass <= twice; ++pass) {
    if (pass == 1) x = p.op == QUERN_NORM ? y / count : y, y = 0;
    each_of(p.src, src, b, [&](double v) { y = added(p.op, pass == 1, y, v, x); });
  }
  switch (p.op) {
    case QUERN_POOL_AVG_PADDED:
      return {y / (static_cast<double>(p.window.filter[0]) * static_cast<double>(p.window.filter[1]) *
                   static_cast<double>(p.window.filter[2])),
              0};
    case QUERN_POOL_AVG:
    case QUERN_REDUCE_MEAN: return {count == 0 ? 0 : y / count, 0};
    case QUERN_REDUCE_L2: return {sqrt(y), 0};
    case QUERN_NORM: return {x, sqrt(y / count + epsilon)};
    case QUERN_RMS_NORM: return {0, sqrt(y / count + epsilon)};
    case QUERN_SOFTMAX: return {x, y};
    case QUERN_LOG_SOFTMAX: return {x, log(y)};
    default: return {y, 0};
  }
}

// An output before the epilogue.
template <class T>
QUERN_INLINE double output_of(const quern_problem& p, const box_sum& s, const T* src, const T* weights,
                              const int64_t* at) {
  if (is_pooling(p.op) || is_reduction(p.op)) return s.x;
  const double x = static_cast<double>(value(src[offset_of(p.src, at)]));
  if (is_norm(p.op)) return (x - s.x) / s.y;
  if (p.op == QUERN_SOFTMAX) return exp(x - s.x) / s.y;
  if (p.op == QUERN_LOG_SOFTMAX) return x - s.x - s.y;
  if (p.op == QUERN_UNARY) return x;
  int64_t other[5];
  QUERN_UNROLL
  for (int i = 0; i < 5; ++i) other[i] = p.weights.size[i] == 1 ? 0 : at[i];
  const double y = static_cast<double>(value(weights[offset_of(p.weights, other)]));
  switch (p.op) {
    case QUERN_ADD: return x + y;
    case QUERN_SUB: return x - y;
    case QUERN_MUL: return x * y;
    case QUERN_DIV: return x / y;
    case QUERN_MAX: return larger(x, y);
    default: return smaller(x, y);
  }
}

}  // namespace
}  // namespace quern
