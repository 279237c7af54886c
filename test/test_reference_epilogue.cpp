// SPDX-License-Identifier: MIT
//
// Every epilogue of the reference, against the sums it gives without one and the formulas of quern.h.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "activation_exact.h"
#include "reference_problem.h"

namespace quern {
namespace {

using namespace test;

template <class T>
void compare_epilogue(quern_op op, quern_type type, quern_activation activation, int32_t residual, uint32_t bits,
                      std::mt19937& random) {
  quern_problem p = op == QUERN_GEMM ? quern_gemm(type, 3, 4, 2) : quern_conv2d(type, QUERN_NHWC, 1, 2, 3, 2, 4, 1, 1);
  p.op = op;
  if (op == QUERN_CONV_TRANSPOSED) p.weights.size[0] = 2, p.weights.size[1] = 4;
  quern_epilogue& e = p.epilogue;
  e.scale = bits & 1;
  e.bias = bits >> 1 & 1;
  e.alpha = bits & 4 ? 1.5f : 0;
  e.beta = bits & 8 && residual != QUERN_RESIDUAL_NONE ? -0.5f : 0;
  e.residual = residual;
  e.activation = activation;
  if (activation == QUERN_CLAMP) e.activation_alpha = -0.5f, e.activation_beta = 1.25f;
  if (activation == QUERN_LEAKY_RELU) e.activation_alpha = 0.1f;
  if (activation == QUERN_HARD_SIGMOID) e.activation_alpha = 0.3f, e.activation_beta = 0.4f;
  p = completed(p);
  if (residual != QUERN_RESIDUAL_NONE) spread(p.residual, random);
  p = completed(p);

  const std::vector<T> src = integers<T>(p.src, random), weights = integers<T>(p.weights, random);
  std::vector<T> add = integers<T>(p.residual, random);
  std::normal_distribution<double> normal(0, 1);
  std::vector<T> scale(4), bias(4), slope(4);
  for (auto* v : {&scale, &bias, &slope})
    for (T& x : *v) x = static_cast<T>(normal(random));
  std::vector<T> dst(static_cast<size_t>(extent(p.dst)));
  quern_args args = {};
  args.size = sizeof args;
  args.src = src.data(), args.weights = weights.data(), args.dst = dst.data(), args.residual = add.data();
  args.scale = scale.data(), args.bias = bias.data(), args.slope = slope.data();
  reference_of(op).reference(p, args, 0, count(p.dst));

  quern_problem bare = p;
  bare.epilogue = {};
  bare.residual = {};
  std::vector<T> sums = reference(completed(bare), src, weights);
  walk(p.dst, [&](const index& at) {
    const size_t k = static_cast<size_t>(at[op == QUERN_GEMM ? 4 : 1]);
    double y = element(sums, p.dst, at);
    if (e.scale) y *= scale[k];
    if (bits & 4) y *= 1.5;
    if (e.bias) y += bias[k];
    const double r = residual != QUERN_RESIDUAL_NONE ? (bits & 8 ? -0.5 : 1) * element(add, p.residual, at) : 0;
    double a = 0, b = 0;
    if (activation == QUERN_HARD_SWISH) a = 1.0f / 6, b = 0.5;
    if (activation == QUERN_CLAMP) a = -0.5, b = 1.25;
    if (activation == QUERN_LEAKY_RELU) a = 0.1f;
    if (activation == QUERN_HARD_SIGMOID) a = 0.3f, b = 0.4f;
    const double s = slope[k];
    const double want =
        residual == QUERN_RESIDUAL_BEFORE ? exact(activation, y + r, a, b, s) : exact(activation, y, a, b, s) + r;
    const double got = element(dst, p.dst, at);
    // One rounding to T, beside what libm and the order of operations cost in double.
    const double rounding = type == QUERN_F64 ? 0x1p-53 : 0x1p-24;
    const double bound = rounding * std::fabs(want) + 0x1p-49 * (1 + std::fabs(y) + std::fabs(r));
    ASSERT_LE(std::fabs(got - want), bound) << text(p) << " at " << at[3] << " " << at[4];
  });
}

TEST(reference_epilogue, every_epilogue_follows_the_header) {
  std::mt19937 random(11);
  for (quern_op op : {QUERN_CONV, QUERN_CONV_TRANSPOSED, QUERN_GEMM}) {
    for (quern_activation activation = QUERN_IDENTITY; activation <= QUERN_GELU_SIGMOID; ++activation) {
      for (int32_t residual = QUERN_RESIDUAL_NONE; residual <= QUERN_RESIDUAL_AFTER; ++residual) {
        for (uint32_t bits = 0; bits < 16; ++bits) {
          ASSERT_NO_FATAL_FAILURE(compare_epilogue<float>(op, QUERN_F32, activation, residual, bits, random));
          ASSERT_NO_FATAL_FAILURE(compare_epilogue<double>(op, QUERN_F64, activation, residual, bits, random));
        }
      }
    }
  }
}

TEST(reference_epilogue, limits_and_nan) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (quern_activation activation = QUERN_IDENTITY; activation <= QUERN_GELU_SIGMOID; ++activation) {
    for (float x : {infinity, -infinity, nan, 1e30f, -1e30f, 0.0f}) {
      quern_problem p = row_of(1, 1);
      p.epilogue.activation = activation;
      if (activation == QUERN_CLAMP) p.epilogue.activation_alpha = -2, p.epilogue.activation_beta = 3;
      p = completed(p);
      const float one = 1, slope = 0;
      float y = 0;
      quern_args args = {};
      args.size = sizeof args;
      args.src = &x, args.weights = &one, args.dst = &y, args.slope = &slope;
      reference_of(QUERN_CONV).reference(p, args, 0, 1);
      const double want = exact(activation, x, p.epilogue.activation_alpha, p.epilogue.activation_beta, slope);
      EXPECT_LE(ulps(y, want), 0.5) << "activation " << activation << " of " << x << " is " << y;
    }
  }
}

// One output of s8, by hand: sum, factor, bias and residual, and what comes out.
TEST(reference_epilogue, integers_are_rounded_to_even_and_end_at_their_ends) {
  const struct {
    int sum;
    float scale, bias;
    int residual, want;
  } cases[] = {{5, 0.5f, 0, 0, 2},       {7, 0.5f, 0, 0, 4},         {-5, 0.5f, 0, 0, -2},    {-7, 0.5f, 0, 0, -4},
               {100, 1, 27, 0, 127},     {100, 1, 28, 0, 127},       {-100, 1, -29, 0, -128}, {1, NAN, 0, 0, 0},
               {1, INFINITY, 0, 0, 127}, {-1, INFINITY, 0, 0, -128}, {3, 0.25f, 0.75f, 7, 5}, {127, 1, 0, -8, 123}};
  for (const auto& c : cases) {
    quern_problem p = quern_conv2d(QUERN_S8, QUERN_NHWC, 1, 1, 1, 1, 1, 1, 1);
    p.epilogue.scale = p.epilogue.bias = 1, p.epilogue.residual = QUERN_RESIDUAL_AFTER, p.epilogue.beta = 0.5f;
    p = completed(p);
    const s8 src = {static_cast<int8_t>(c.sum)}, weight = {1}, residual = {static_cast<int8_t>(c.residual)};
    s8 dst = {99};
    quern_args args = {};
    args.size = sizeof args;
    args.src = &src, args.weights = &weight, args.dst = &dst, args.residual = &residual;
    args.scale = &c.scale, args.bias = &c.bias;
    reference_of(QUERN_CONV).reference(p, args, 0, 1);
    EXPECT_EQ(dst.bits, c.want) << c.sum << " * " << c.scale;
  }
}

// Every type that 8 bits may come out as: 72 * 0.25 + 1 = 19, halfway between 18 and 20 of e4m3.
TEST(reference_epilogue, eight_bits_come_out_as_other_types) {
  for (const quern_type src_type : {QUERN_S8, QUERN_E4M3})
    for (const quern_type type : std::initializer_list<quern_type>{QUERN_F32, QUERN_F16, QUERN_BF16, src_type}) {
      quern_problem p = quern_gemm(src_type, 1, 1, 2);
      p.dst.type = type, p.epilogue.bias = 1, p.epilogue.alpha = 0.25f;
      p = completed(p);
      const s8 integers[] = {{6}, {6}};
      const e4m3 floats[] = {rounded<e4m3>(6.0f), rounded<e4m3>(6.0f)};
      const float bias = 1;
      float dst = 0;
      quern_args args = {};
      args.size = sizeof args;
      args.src = args.weights = src_type == QUERN_S8 ? static_cast<const void*>(integers) : floats;
      args.bias = &bias, args.dst = &dst;
      reference_of(QUERN_GEMM).reference(p, args, 0, 1);
      const auto as = [&](auto of) {
        memcpy(&of, &dst, sizeof of);
        return value(of);
      };
      const float got = type == QUERN_F32    ? dst
                        : type == QUERN_F16  ? as(f16{})
                        : type == QUERN_BF16 ? as(bf16{})
                        : type == QUERN_S8   ? as(s8{})
                                             : as(e4m3{});
      EXPECT_EQ(got, type == QUERN_E4M3 ? 20 : 19) << type;
    }
}

}  // namespace
}  // namespace quern
