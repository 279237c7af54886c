// SPDX-License-Identifier: MIT
//
// The reference of pooling, reductions, norms, softmax and elementwise operators against formulas written apart from
// it: elements of src are sorted into the outputs, or slices, that they belong to.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "friends.h"
#include "half.h"
#include "reference_problem.h"

namespace quern {
namespace {

using namespace test;

constexpr double infinity = std::numeric_limits<double>::infinity();

double largest(const std::vector<double>& list) {
  double x = -infinity;
  for (double v : list) x = std::isnan(x) || std::isnan(v) ? NAN : std::max(x, v);
  return x;
}

double sum(
    const std::vector<double>& list, double (*term)(double) = [](double v) { return v; }) {
  double x = 0;
  for (double v : list) x += term(v);
  return x;
}

double square(double x) { return x * x; }

double mean(const std::vector<double>& list) { return list.empty() ? 0 : sum(list) / static_cast<double>(list.size()); }

double reduced(quern_op op, const std::vector<double>& list) {
  switch (op) {
    case QUERN_REDUCE_SUM: return sum(list);
    case QUERN_POOL_AVG:
    case QUERN_REDUCE_MEAN: return mean(list);
    case QUERN_POOL_MAX:
    case QUERN_REDUCE_MAX: return largest(list);
    case QUERN_REDUCE_MIN: {
      std::vector<double> negative;
      for (double v : list) negative.push_back(-v);
      return -largest(negative);
    }
    case QUERN_REDUCE_PROD: {
      double x = 1;
      for (double v : list) x *= v;
      return x;
    }
    case QUERN_REDUCE_L1: return sum(list, std::fabs);
    case QUERN_REDUCE_L2: return std::sqrt(sum(list, square));
    case QUERN_REDUCE_SUM_SQUARE: return sum(list, square);
    default: return NAN;
  }
}

// Of an element x of the slice.
double normalised(const quern_problem& p, const std::vector<double>& slice, double x) {
  const double n = static_cast<double>(slice.size()), epsilon = static_cast<double>(p.epsilon);
  if (p.op == QUERN_RMS_NORM) return x / std::sqrt(sum(slice, square) / n + epsilon);
  if (p.op == QUERN_NORM) {
    const double middle = mean(slice);
    double variance = 0;
    for (double v : slice) variance += square(v - middle) / n;
    return (x - middle) / std::sqrt(variance + epsilon);
  }
  if (std::isinf(largest(slice))) return NAN;
  double all = 0;  // of exponentials over that of x: infinite where x is -infinity
  for (double v : slice) all += v == x ? 1 : std::exp(v - x);
  return p.op == QUERN_SOFTMAX ? 1 / all : -std::log(all);
}

double combined(quern_op op, double x, double y) {
  switch (op) {
    case QUERN_ADD: return x + y;
    case QUERN_SUB: return x - y;
    case QUERN_MUL: return x * y;
    case QUERN_DIV: return x / y;
    case QUERN_MAX: return std::isnan(x) || std::isnan(y) ? NAN : std::max(x, y);
    case QUERN_MIN: return std::isnan(x) || std::isnan(y) ? NAN : std::min(x, y);
    default: return x;
  }
}

// What stands for the slice of an element: its index with zeros along the axes, and the group for the channel.
index slice_of(const quern_problem& p, index at) {
  for (size_t i = 0; i < 5; ++i)
    if (p.axes >> i & 1) at[i] = i == 1 ? at[i] * p.groups / std::max<int64_t>(p.src.size[1], 1) : 0;
  return at;
}

// The outputs whose windows have the element, each once.
template <class Visit>
void windows_with(const quern_problem& p, const index& at, Visit visit) {
  index out = at;
  const auto each = [&](auto&& self, size_t axis) -> void {
    if (axis == 5) return visit(out);
    const size_t i = axis - 2;
    for (int64_t tap = 0; tap < p.window.filter[i]; ++tap) {
      const int64_t from = at[axis] + p.window.pad_begin[i] - tap * p.window.dilation[i];
      if (from < 0 || from % p.window.stride[i] || from / p.window.stride[i] >= p.dst.size[axis]) continue;
      out[axis] = from / p.window.stride[i];
      self(self, axis + 1);
    }
  };
  each(each, 2);
}

// Every output before the epilogue, by the order n c d h w of dst.
template <class T>
std::vector<double> expected(const quern_problem& p, std::vector<T>& src, std::vector<T>& weights) {
  std::map<index, std::vector<double>> lists;
  const auto element_at = [&](std::vector<T>& list, const quern_tensor& t, const index& at) {
    return static_cast<double>(value(element(list, t, at)));
  };
  if (!is_elementwise(p.op))
    walk(p.src, [&](const index& at) {
      const double x = element_at(src, p.src, at);
      if (is_pooling(p.op)) {
        windows_with(p, at, [&](const index& out) { lists[out].push_back(x); });
      } else {
        lists[slice_of(p, at)].push_back(x);
      }
    });
  std::vector<double> dst;
  walk(p.dst, [&](const index& at) {
    if (p.op == QUERN_POOL_AVG_PADDED) {
      dst.push_back(sum(lists[at]) / static_cast<double>(p.window.filter[0] * p.window.filter[1] * p.window.filter[2]));
    } else if (is_pooling(p.op) || is_reduction(p.op)) {
      dst.push_back(reduced(p.op, lists[at]));
    } else if (has_axes(p.op)) {
      dst.push_back(normalised(p, lists[slice_of(p, at)], element_at(src, p.src, at)));
    } else {
      index other = at;
      for (size_t i = 0; i < 5; ++i) other[i] = std::min(other[i], std::max<int64_t>(p.weights.size[i] - 1, 0));
      const double y = p.op == QUERN_UNARY ? 0 : element_at(weights, p.weights, other);
      dst.push_back(combined(p.op, element_at(src, p.src, at), y));
    }
  });
  return dst;
}

template <class T, class Number>
std::vector<T> filled(const quern_tensor& t, const Number& number) {
  std::vector<T> list(static_cast<size_t>(extent(t)));
  for (T& x : list) x = rounded<T>(static_cast<double>(number()));
  return list;
}

// Equal but for the one rounding to T, and what float64 loses around it.
template <class T>
void compare(const quern_problem& p, std::vector<T>& src, std::vector<T>& weights) {
  const std::vector<T> got = reference(p, src, weights);
  const std::vector<double> want = expected(p, src, weights);
  size_t i = 0;
  walk(p.dst, [&](const index& at) {
    const T x = got[static_cast<size_t>(offset(p.dst, at))];
    const double is = static_cast<double>(value(x)), must = want[i++];
    const double nearest = static_cast<double>(value(rounded<T>(must)));
    if (is == nearest || (std::isnan(is) && std::isnan(must))) return;
    const double least = p.src.type == QUERN_F16 ? 0x1p-25 : 0;  // half of the smallest denormal
    ASSERT_LE(std::fabs(is - must), roundoff(p.src.type) * std::fabs(must) + 1e-11 * (1 + std::fabs(must)) + least)
        << text(p) << " at " << at[0] << " " << at[1] << " " << at[2] << " " << at[3] << " " << at[4];
  });
}

template <class T>
void compare_all(quern_type type) {
  std::mt19937 random(static_cast<uint32_t>(type));
  for (int i = 0; i < 800; ++i) {
    quern_problem p = random_friend(random_friendly_op(random), type, random);
    if (random() & 1) spread(p.src, random);
    if (has_weights(p.op) && random() & 1) spread(p.weights, random);
    if (random() & 1) spread(p.dst, random);
    p = completed(p);
    SCOPED_TRACE("problem " + std::to_string(i) + ": " + text(p));
    const int kind = static_cast<int>(random() % 4);
    const auto number = [&]() -> double {
      const double integer = static_cast<int>(random() % 9) - 4;
      if (kind < 2) return integer;
      if (kind == 2 || random() % 8) return std::normal_distribution<double>(3, 2)(random);
      const double special[] = {infinity, -infinity, NAN, 0.0, -0.0, 60000};
      return special[random() % 6];
    };
    std::vector<T> src = filled<T>(p.src, number), weights = filled<T>(p.weights, number);
    compare(p, src, weights);
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

TEST(friends, follow_their_formulas_f32) { compare_all<float>(QUERN_F32); }
TEST(friends, follow_their_formulas_f64) { compare_all<double>(QUERN_F64); }
TEST(friends, follow_their_formulas_f16) { compare_all<f16>(QUERN_F16); }
TEST(friends, follow_their_formulas_bf16) { compare_all<bf16>(QUERN_BF16); }

quern_problem parsed(const char* line) {
  quern_problem p = {};
  quern_error error = {};
  EXPECT_EQ(quern_problem_parse(line, &p, &error), QUERN_OK) << line << ": " << error.text;
  return completed(p);
}

std::vector<float> run(const char* line, const std::vector<float>& src, const std::vector<float>& weights = {}) {
  return reference(parsed(line), src, weights);
}

// Values that anyone can check.
TEST(friends, give_the_values_of_the_textbook) {
  using v = std::vector<float>;
  EXPECT_EQ(run("pool_max ic1ih2iw4kh2kw2sh2sw2", {1, 5, 2, -3, 4, 0, 7, 8}), (v{5, 8}));
  EXPECT_EQ(run("pool_avg ic1ih1iw3kh1kw3pw1", {3, 6, 9}), (v{4.5f, 6, 7.5f}));
  EXPECT_EQ(run("pool_avg_padded ic1ih1iw3kh1kw3pw1", {3, 6, 9}), (v{3, 6, 5}));
  EXPECT_EQ(run("reduce_mean 1x2x1x2 axes=hw", {1, 2, 3, 5}), (v{1.5f, 4}));
  EXPECT_EQ(run("reduce_l2 1x2x1x1 axes=c", {3, 4}), (v{5}));
  EXPECT_EQ(run("norm 1x1x1x2 axes=w eps=3", {1, 3}), (v{-0.5f, 0.5f}));
  EXPECT_EQ(run("norm 1x4x1x1 axes=c groups=2 eps=3", {1, 3, 15, 13}), (v{-0.5f, 0.5f, 0.5f, -0.5f}));
  EXPECT_EQ(run("rms_norm 1x2x1x1 axes=c eps=2", {1, 5 - 4}), (v{1 / std::sqrt(3.0f), 1 / std::sqrt(3.0f)}));
  EXPECT_EQ(run("softmax 1x2x1x1 axes=c", {1000, 1000}), (v{0.5f, 0.5f}));
  EXPECT_EQ(run("log_softmax 1x2x1x1 axes=c", {-7, -7}), (v(2, -std::log(2.0f))));
  EXPECT_EQ(run("unary 1x3x1x1 act=relu", {-1, 0, 2}), (v{0, 0, 2}));
  EXPECT_EQ(run("mul 1x2x1x2:1x2x1x1", {1, 2, 3, 4}, {10, 100}), (v{10, 20, 300, 400}));
}

// Windows on padding alone, and slices of nothing.
TEST(friends, of_no_element_are_what_adds_nothing) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::pair<const char*, float> cases[] = {{"pool_max ic1ih1iw1kh1kw1pw1", -inf},
                                                 {"pool_avg ic1ih1iw1kh1kw1pw1", 0},
                                                 {"pool_avg_padded ic1ih1iw1kh1kw1pw1", 0}};
  for (const auto& [line, nothing] : cases)
    EXPECT_EQ(run(line, {7}), (std::vector<float>{nothing, 7, nothing})) << line;
  const std::pair<const char*, float> reductions[] = {
      {"reduce_sum", 0},  {"reduce_mean", 0}, {"reduce_max", -inf}, {"reduce_min", inf},
      {"reduce_prod", 1}, {"reduce_l1", 0},   {"reduce_l2", 0},     {"reduce_sum_square", 0}};
  for (const auto& [op, nothing] : reductions)
    EXPECT_EQ(run((std::string(op) + " 1x2x0x3 axes=h").c_str(), {}), (std::vector<float>(6, nothing))) << op;
  EXPECT_TRUE(empty(parsed("norm 1x2x0x3 axes=h")));
}

// Scale and bias of a norm are the epilogue's, by output channel; a residual lies as it likes.
TEST(friends, end_with_an_epilogue) {
  quern_problem p = parsed("norm nhwc 1x2x1x2 axes=w eps=3 scale bias residual=before act=relu");
  const std::vector<float> src = {1, 10, 3, 30}, scale = {2, 20}, bias = {1, -100}, residual = {0, 1000, 0.5f, 0};
  std::vector<float> dst(4);
  quern_args args = {};
  args.size = sizeof args;
  args.src = src.data(), args.dst = dst.data(), args.residual = residual.data();
  args.scale = scale.data(), args.bias = bias.data();
  reference_of(p.op).reference(p, args, 0, 4);
  const float y = 10 / std::sqrt(103.0f);
  EXPECT_EQ(dst[0], 0);
  EXPECT_EQ(dst[2], 2 * 0.5f + 1 + 0.5f);
  EXPECT_NEAR(dst[1], 20 * -y - 100 + 1000, 1e-4);
  EXPECT_EQ(dst[3], 0);
}

}  // namespace
}  // namespace quern
