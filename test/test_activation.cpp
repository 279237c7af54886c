// SPDX-License-Identifier: MIT
//
// Every activation of every gemm_f32 kernel on millions of floats of all magnitudes: errors against float64,
// and the same bits from all kernels, whatever their ISA.  bench/sweep_activation.cpp takes all floats.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "activation_exact.h"
#include "build_isas.h"
#include "tile_activation.h"

namespace quern {
namespace {

struct activation_case {
  const char* name;
  quern_activation activation;
  float alpha, beta, slope;
  double bound;  // ulp
};

class activations : public testing::TestWithParam<activation_case> {};

std::vector<float> samples() {
  std::vector<float> values;
  // An odd step visits every exponent, both signs, denormals and NaN, with mixed mantissas.
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 2053) values.push_back(std::bit_cast<float>(uint32_t(bits)));
  // Where results turn denormal, zero, one or infinite, densely.
  for (float x = -120; x < 120; x += 0.0071f) values.push_back(x);
  using limits = std::numeric_limits<float>;
  for (float x : {0.0f, limits::infinity(), limits::quiet_NaN(), limits::max(), limits::min(), limits::denorm_min(),
                  limits::epsilon(), 1.0f, 3.0f, 6.0f, 14.6f, 89.0f, 104.5f, 110.0f}) {
    for (float y : {x, std::nextafter(x, 0.0f), std::nextafter(x, limits::infinity())}) {
      values.push_back(y);
      values.push_back(-y);
    }
  }
  return values;
}

// Where no kernel keeps denormals they are zero, as x and as result.
double error_of(const activation_case& a, float x, float got) {
  constexpr float least = std::numeric_limits<float>::min();
  const auto want = [&](float of) { return test::exact(a.activation, of, a.alpha, a.beta, a.slope); };
  double error = test::ulps(got, want(x));
  if (x == x) error /= 1 + test::rounded_exponent(a.activation, x);
  if (keeps_denormals) return error;
  if (std::fabs(x) < least) error = std::min(error, test::ulps(got, want(std::copysign(0.0f, x))));
  return got == 0 && std::fabs(want(x)) < double(least) ? 0 : error;
}

TEST_P(activations, stay_within_their_bound_with_equal_bits_from_all_kernels) {
  const activation_case& a = GetParam();
  const std::vector<const kernel*> rows = test::gemm_rows();
  if (rows.empty()) GTEST_SKIP() << "this CPU runs no gemm_f32 kernel";
  epilogue_f32 e = test::plain_epilogue(a.activation, a.alpha, a.beta);
  e.slope = &a.slope;
  const std::vector<float> x = samples();

  std::vector<float> first = x;
  test::apply(*rows[0], e, first);
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = error_of(a, x[i], first[i]);
    if (error > worst) worst = error, at = i;
  }
  EXPECT_LE(worst, a.bound) << rows[0]->name << ": " << a.name << "(" << x[at] << ") = " << first[at];
  RecordProperty("worst_ulp", std::to_string(worst));

  for (size_t r = 1; r < rows.size(); ++r) {
    std::vector<float> y = x;
    test::apply(*rows[r], e, y);
    size_t differ = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const bool same =
          std::bit_cast<uint32_t>(y[i]) == std::bit_cast<uint32_t>(first[i]) || (y[i] != y[i] && first[i] != first[i]);
      if (!same && differ++ == 0) at = i;
    }
    EXPECT_EQ(differ, 0u) << rows[r]->name << " and " << rows[0]->name << " disagree on " << a.name << "(" << x[at]
                          << ")";
  }
}

constexpr float sixth = 1.0f / 6;

INSTANTIATE_TEST_SUITE_P(
    all, activations,
    testing::Values(
        activation_case{"identity", QUERN_IDENTITY, 0, 0, 0, 0}, activation_case{"relu", QUERN_RELU, 0, 0, 0, 0},
        activation_case{"clamp", QUERN_CLAMP, -1.5f, 6, 0, 0},
        activation_case{"leaky_relu", QUERN_LEAKY_RELU, 0.1f, 0, 0, 0.5},
        activation_case{"leaky_relu_flat", QUERN_LEAKY_RELU, 0, 0, 0, 0},
        activation_case{"leaky_relu_falling", QUERN_LEAKY_RELU, -2, 0, 0, 0},
        activation_case{"prelu", QUERN_PRELU, 0, 0, 0.3f, 0.5}, activation_case{"prelu_flat", QUERN_PRELU, 0, 0, 0, 0},
        activation_case{"sigmoid", QUERN_SIGMOID, 0, 0, 0, 2}, activation_case{"silu", QUERN_SILU, 0, 0, 0, 2.75},
        activation_case{"hard_sigmoid", QUERN_HARD_SIGMOID, sixth, 0.5f, 0, 0.5},
        activation_case{"hard_sigmoid_falling", QUERN_HARD_SIGMOID, -0.2f, 0.4f, 0, 0.5},
        activation_case{"hard_sigmoid_flat", QUERN_HARD_SIGMOID, 0, 0.4f, 0, 0.5},
        activation_case{"hard_swish", QUERN_HARD_SWISH, sixth, 0.5f, 0, 1.5},
        activation_case{"hard_swish_falling", QUERN_HARD_SWISH, -0.2f, 0.4f, 0, 1.5},
        activation_case{"tanh", QUERN_TANH, 0, 0, 0, 2}, activation_case{"gelu", QUERN_GELU, 0, 0, 0, 6},
        activation_case{"mish", QUERN_MISH, 0, 0, 0, 4}, activation_case{"gelu_tanh", QUERN_GELU_TANH, 0, 0, 0, 3},
        activation_case{"gelu_sigmoid", QUERN_GELU_SIGMOID, 0, 0, 0, 3}),
    [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace quern
