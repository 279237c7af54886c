// SPDX-License-Identifier: MIT
//
// What the tests of the reference share: tensors of small integers and the reference on whole problems.
#pragma once

#include <gtest/gtest.h>
#include <quern/quern.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "geometry.h"
#include "half.h"
#include "kernel.h"
#include "problem.h"
#include "registry.h"

namespace quern::test {

using index = std::array<int64_t, 5>;

inline std::string text(const quern_problem& p) {
  char line[1024] = "";
  quern_error error = {};
  return quern_problem_print(&p, line, sizeof line, nullptr, &error) == QUERN_OK ? line : error.text;
}

inline quern_problem completed(quern_problem p) {
  quern_error error = {};
  EXPECT_EQ(quern_problem_complete(&p, &p, &error), QUERN_OK) << error.text;
  return p;
}

inline const kernel& reference_of(quern_op op) {
  for (size_t i = 0; i < kernel_count(); ++i) {
    if (kernel_at(i).kind == kind::reference && kernel_at(i).op.has(op)) return kernel_at(i);
  }
  std::abort();  // a build without this operator cannot test it
}

inline int64_t count(const quern_tensor& t) {
  return std::accumulate(t.size, t.size + 5, int64_t{1}, std::multiplies<>());
}

inline int64_t offset(const quern_tensor& t, const index& at) {
  const int64_t block = block_of(t.layout);
  return std::inner_product(at.begin(), at.end(), t.stride, at[1] % block) + (at[1] / block - at[1]) * t.stride[1];
}

// f(index) for every element, in the order n c d h w.
template <class F>
void walk(const quern_tensor& t, F f) {
  index at = {};
  for (at[0] = 0; at[0] < t.size[0]; ++at[0])
    for (at[1] = 0; at[1] < t.size[1]; ++at[1])
      for (at[2] = 0; at[2] < t.size[2]; ++at[2])
        for (at[3] = 0; at[3] < t.size[3]; ++at[3])
          for (at[4] = 0; at[4] < t.size[4]; ++at[4]) f(at);
}

// Values for every element of memory that the tensor spans.
template <class T>
std::vector<T> integers(const quern_tensor& t, std::mt19937& random) {
  std::vector<T> values(static_cast<size_t>(extent(t)));
  for (T& v : values) v = rounded<T>(static_cast<double>(static_cast<int>(random() % 9) - 4));
  return values;
}

template <class T>
T& element(std::vector<T>& values, const quern_tensor& t, const index& at) {
  return values[static_cast<size_t>(offset(t, at))];
}

// The whole dst of a problem without epilogue.
template <class T, class Out = T>
std::vector<Out> reference(const quern_problem& p, const std::vector<T>& src, const std::vector<T>& weights) {
  std::vector<Out> dst(static_cast<size_t>(extent(p.dst)));
  quern_args args = {};
  args.size = sizeof args;
  args.src = src.data();
  args.weights = weights.data();
  args.dst = dst.data();
  reference_of(p.op).reference(p, args, 0, count(p.dst));
  return dst;
}

// A random order of the axes, and some space between their rows.  Blocks of channels stay together.
inline void spread(quern_tensor& t, std::mt19937& random) {
  std::array<int, 5> order = {0, 1, 2, 3, 4};
  std::shuffle(order.begin(), order.end(), random);
  const int64_t block = block_of(t.layout);
  int64_t stride = block + random() % 2;
  for (int axis : order) {
    t.stride[axis] = stride;
    stride *= (axis == 1 ? up(t.size[1], block) : t.size[axis]) + random() % 2;
  }
}

// A tensor of one row along w.
inline quern_problem row_of(int64_t width, int64_t filter) {
  return quern_conv2d(QUERN_F32, QUERN_NCHW, 1, 1, 1, width, 1, 1, filter);
}

}  // namespace quern::test
