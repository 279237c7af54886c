// SPDX-License-Identifier: MIT
//
// The reference against code that works the other way round: outputs collected from inputs by scattering,
// exact on small integers; the transposed operator as the adjoint; values computed by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "reference_problem.h"

namespace quern {
namespace {

using namespace test;

// Input index, filter index and output index that meet along one axis.
struct meeting {
  int64_t in, tap, out;
};

std::vector<meeting> meetings(const quern_problem& p, int axis) {
  const quern_window& v = p.window;
  std::vector<meeting> list;
  for (int64_t in = 0; in < p.src.size[2 + axis]; ++in) {
    for (int64_t tap = 0; tap < v.filter[axis]; ++tap) {
      if (p.op == QUERN_CONV) {
        const int64_t reach = in + v.pad_begin[axis] - tap * v.dilation[axis];  // on the padded image
        if (reach < 0 || reach % v.stride[axis] != 0) continue;
        const int64_t out = reach / v.stride[axis];
        if (out < p.dst.size[2 + axis]) list.push_back({in, tap, out});
      } else {
        const int64_t out = in * v.stride[axis] + tap * v.dilation[axis] - v.pad_begin[axis];  // cropped
        if (out >= 0 && out < p.dst.size[2 + axis]) list.push_back({in, tap, out});
      }
    }
  }
  return list;
}

// Every input element adds its products to the outputs that it reaches.
template <class Out, class T>
std::vector<Out> scatter(const quern_problem& p, std::vector<T>& src, std::vector<T>& weights) {
  std::vector<Out> dst(static_cast<size_t>(extent(p.dst)));
  const int64_t cg = p.src.size[1] / p.groups, kg = p.dst.size[1] / p.groups;
  for (const meeting& z : meetings(p, 0))
    for (const meeting& y : meetings(p, 1))
      for (const meeting& x : meetings(p, 2))
        for (int64_t n = 0; n < p.src.size[0]; ++n)
          for (int64_t c = 0; c < p.src.size[1]; ++c)
            for (int64_t k = 0; k < p.dst.size[1]; ++k) {
              if (c / cg != k / kg) continue;
              const index tap =
                  p.op == QUERN_CONV ? index{k, c % cg, z.tap, y.tap, x.tap} : index{c, k % kg, z.tap, y.tap, x.tap};
              element(dst, p.dst, {n, k, z.out, y.out, x.out}) +=
                  static_cast<Out>(value(element(src, p.src, {n, c, z.in, y.in, x.in}))) *
                  static_cast<Out>(value(element(weights, p.weights, tap)));
            }
  return dst;
}

// A convolution in 1, 2 or 3 dimensions with everything that it may have.
quern_problem random_conv(quern_op op, quern_type type, quern_type dst, std::mt19937& random) {
  const auto upto = [&](uint32_t most) { return static_cast<int64_t>(random() % (most + 1)); };
  const auto layout = [&] { return static_cast<quern_layout>(QUERN_NCHW + upto(QUERN_NC16HW16 - QUERN_NCHW)); };
  quern_problem p = quern_conv2d(type, layout(), 1, 1, 1, 1, 1, 1, 1);
  p.op = op;
  p.groups = 1 + upto(2);
  const int64_t cg = 1 + upto(random() & 3 ? 3 : 18), kg = 1 + upto(random() & 3 ? 3 : 18);
  p.src.size[0] = 1 + upto(1);
  p.src.size[1] = cg * p.groups;
  p.weights.size[0] = op == QUERN_CONV ? kg * p.groups : cg * p.groups;
  p.weights.size[1] = op == QUERN_CONV ? cg : kg;
  const int dimensions = 1 + static_cast<int>(upto(2));
  for (int axis = 3 - dimensions; axis < 3; ++axis) {
    quern_window& v = p.window;
    p.weights.size[2 + axis] = 1 + upto(3);
    v.filter[axis] = 0;
    v.stride[axis] = 1 + upto(2);
    v.dilation[axis] = 1 + upto(2);
    const int64_t reach = v.dilation[axis] * (p.weights.size[2 + axis] - 1) + 1;
    v.pad_begin[axis] = upto(3);
    v.pad_end[axis] = upto(3);
    if (op == QUERN_CONV_TRANSPOSED) {
      v.pad_begin[axis] = std::min(v.pad_begin[axis], reach - 1);
      v.pad_end[axis] = std::min(v.pad_end[axis], reach - 1 - v.pad_begin[axis]);
      v.output_padding[axis] = upto(static_cast<uint32_t>(v.stride[axis] - 1));
    }
    p.src.size[2 + axis] = std::max<int64_t>(1, reach - v.pad_begin[axis] - v.pad_end[axis]) + upto(5);
  }
  p.dst.layout = layout(), p.dst.type = dst;
  p = completed(p);
  if (random() & 1) spread(p.src, random);
  if (random() & 1) spread(p.weights, random);
  if (random() & 1) spread(p.dst, random);
  return completed(p);
}

template <class T, class Out = T>
void compare_with_scatter(quern_op op, quern_type type, quern_type dst) {
  std::mt19937 random(static_cast<uint32_t>(op * 10 + type));
  for (int i = 0; i < 400; ++i) {
    const quern_problem p = random_conv(op, type, dst, random);
    SCOPED_TRACE("problem " + std::to_string(i) + ": " + text(p));
    ASSERT_FALSE(testing::Test::HasFailure());
    std::vector<T> src = integers<T>(p.src, random), weights = integers<T>(p.weights, random);
    const std::vector<Out> got = reference<T, Out>(p, src, weights);
    ASSERT_EQ(got, (scatter<Out>(p, src, weights)));
  }
}

class reference_of_op : public testing::TestWithParam<quern_op> {};
INSTANTIATE_TEST_SUITE_P(reference, reference_of_op, testing::Values(QUERN_CONV, QUERN_CONV_TRANSPOSED));

TEST_P(reference_of_op, is_scattered_products_f32) { compare_with_scatter<float>(GetParam(), QUERN_F32, QUERN_F32); }
TEST_P(reference_of_op, is_scattered_products_f64) { compare_with_scatter<double>(GetParam(), QUERN_F64, QUERN_F64); }
TEST_P(reference_of_op, is_scattered_products_s8) {
  compare_with_scatter<s8, int32_t>(GetParam(), QUERN_S8, QUERN_S32);
  compare_with_scatter<s8, float>(GetParam(), QUERN_S8, QUERN_F32);
}
TEST_P(reference_of_op, is_scattered_products_e4m3) {
  compare_with_scatter<e4m3, float>(GetParam(), QUERN_E4M3, QUERN_F32);
}

// <conv(x), y> = <x, transposed(y)> for every x and y.
TEST(reference, transposed_is_the_adjoint_of_convolution) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    const quern_problem back = random_conv(QUERN_CONV_TRANSPOSED, QUERN_F64, QUERN_F64, random);
    quern_problem there = quern_conv2d(QUERN_F64, QUERN_NCHW, 1, 1, 1, 1, 1, 1, 1);
    there.src = back.dst;
    there.weights = back.weights;
    there.dst = back.src;
    there.groups = back.groups;
    there.window = back.window;
    for (int64_t& rows : there.window.output_padding) rows = 0;
    there = completed(there);
    std::vector<double> x = integers<double>(there.src, random), y = integers<double>(back.src, random);
    std::vector<double> weights = integers<double>(back.weights, random);
    std::vector<double> conv = reference(there, x, weights), transposed = reference(back, y, weights);
    double left = 0, right = 0;
    walk(back.src, [&](const index& at) { left += element(conv, there.dst, at) * element(y, back.src, at); });
    walk(back.dst, [&](const index& at) { right += element(x, there.src, at) * element(transposed, back.dst, at); });
    ASSERT_EQ(left, right) << text(back);
  }
}

TEST(reference, gives_the_values_of_the_textbook) {
  quern_problem p = row_of(5, 3);
  EXPECT_EQ(reference<float>(completed(p), {1, 2, 3, 4, 5}, {1, 10, 100}), (std::vector<float>{321, 432, 543}));
  p.window.pad_begin[2] = 2;
  p.window.stride[2] = 2;
  EXPECT_EQ(reference<float>(completed(p), {1, 2, 3, 4, 5}, {1, 10, 100}), (std::vector<float>{100, 321, 543}));
  p.window.stride[2] = 1;
  p.window.dilation[2] = 2;
  p.window.pad_end[2] = 1;
  EXPECT_EQ(reference<float>(completed(p), {1, 2, 3, 4, 5}, {1, 10, 100}), (std::vector<float>{310, 420, 531, 42}));

  quern_problem t = row_of(2, 3);
  t.op = QUERN_CONV_TRANSPOSED;
  t.window.stride[2] = 2;
  EXPECT_EQ(reference<float>(completed(t), {1, 2}, {1, 10, 100}), (std::vector<float>{1, 10, 102, 20, 200}));
  t.window.pad_begin[2] = 1;
  t.window.output_padding[2] = 1;
  EXPECT_EQ(reference<float>(completed(t), {1, 2}, {1, 10, 100}), (std::vector<float>{10, 102, 20, 200, 0}));

  const quern_problem g = completed(quern_gemm(QUERN_F32, 2, 2, 3));
  EXPECT_EQ(reference<float>(g, {1, 2, 3, 4, 5, 6}, {1, 10, 2, 20, 3, 30}), (std::vector<float>{14, 140, 32, 320}));
}

template <class T>
void compare_gemm(quern_type type) {
  std::mt19937 random(static_cast<uint32_t>(type));
  for (int i = 0; i < 200; ++i) {
    quern_problem p = quern_gemm(type, 1 + random() % 9, 1 + random() % 9, random() % 9);
    p.src.size[0] = 1 + random() % 2;
    p = completed(p);
    if (random() & 1) spread(p.src, random);
    if (random() & 1) spread(p.weights, random);
    if (random() & 1) spread(p.dst, random);
    p = completed(p);
    std::vector<T> src = integers<T>(p.src, random), weights = integers<T>(p.weights, random);
    std::vector<T> want(static_cast<size_t>(extent(p.dst)));
    // Rank-1 updates: the sum over c is the outer loop.
    for (int64_t c = 0; c < p.src.size[4]; ++c) {
      walk(p.dst, [&](const index& at) {
        element(want, p.dst, at) +=
            element(src, p.src, {at[0], 0, 0, at[3], c}) * element(weights, p.weights, {0, 0, 0, c, at[4]});
      });
    }
    ASSERT_EQ(reference(p, src, weights), want) << text(p);
  }
}

TEST(reference, gemm_is_a_sum_of_outer_products_f32) { compare_gemm<float>(QUERN_F32); }
TEST(reference, gemm_is_a_sum_of_outer_products_f64) { compare_gemm<double>(QUERN_F64); }

TEST(reference, computes_the_range_that_it_is_asked_for) {
  std::mt19937 random(9);
  for (quern_op op : {QUERN_CONV, QUERN_CONV_TRANSPOSED}) {
    const quern_problem p = random_conv(op, QUERN_F32, QUERN_F32, random);
    const std::vector<float> src = integers<float>(p.src, random), weights = integers<float>(p.weights, random);
    std::vector<float> whole = reference(p, src, weights), part(whole.size(), 1000);
    quern_args args = {};
    args.size = sizeof args;
    args.src = src.data(), args.weights = weights.data(), args.dst = part.data();
    const int64_t first = count(p.dst) / 3, last = count(p.dst) - count(p.dst) / 4;
    reference_of(op).reference(p, args, first, last);
    int64_t i = 0;
    walk(p.dst, [&](const index& at) {
      EXPECT_EQ(element(part, p.dst, at), i >= first && i < last ? element(whole, p.dst, at) : 1000) << i;
      ++i;
    });
    std::fill(part.begin(), part.end(), 1000.0f);
    reference_of(op).reference(p, args, first, first);
    EXPECT_EQ(part, std::vector<float>(part.size(), 1000));
  }
}

// Sums are rounded once: float partial sums would lose both ones.
TEST(reference, rounds_once) {
  EXPECT_EQ(reference<float>(completed(row_of(4, 4)), {1, 1, 0x1p26f, -0x1p26f}, {1, 1, 1, 1}),
            (std::vector<float>{2}));
  EXPECT_EQ(reference<float>(completed(row_of(3, 3)), {0x1p26f, 1, -0x1p26f}, {1, 1, 1}), (std::vector<float>{1}));
}

}  // namespace
}  // namespace quern
