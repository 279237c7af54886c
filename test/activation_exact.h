// SPDX-License-Identifier: MIT
//
// The activations of quern.h in double, written apart from the library, and the distance to a float.
#pragma once

#include <quern/quern.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace quern::test {

// What the forms that stand for GELU raise e to; 0 for all others.
inline double gelu_exponent(quern_activation activation, double x) {
  switch (activation) {
    case QUERN_GELU_TANH: return -2 * std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(x, 3));
    case QUERN_GELU_SIGMOID: return -1.702 * x;
    default: return 0;
  }
}

// Infinities are replaced by a number beyond which no float result changes, and put back by hand.
inline double exact(quern_activation activation, double x, double alpha, double beta, double slope) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (x == infinity) {
    switch (activation) {
      case QUERN_CLAMP: return beta;
      case QUERN_SIGMOID:
      case QUERN_TANH: return 1;
      case QUERN_HARD_SIGMOID: return alpha > 0 ? 1 : alpha < 0 ? 0 : std::min(std::max(beta, 0.0), 1.0);
      case QUERN_HARD_SWISH: return exact(QUERN_HARD_SIGMOID, x, alpha, beta, slope) > 0 ? infinity : 0;
      default: return infinity;
    }
  }
  if (x == -infinity) {
    switch (activation) {
      case QUERN_IDENTITY: return x;
      case QUERN_RELU: return 0;
      case QUERN_CLAMP: return alpha;
      case QUERN_LEAKY_RELU: return alpha == 0 ? -0.0 : alpha * x;
      case QUERN_PRELU: return slope == 0 ? -0.0 : slope * x;
      case QUERN_SIGMOID: return 0;
      case QUERN_TANH: return -1;
      case QUERN_HARD_SIGMOID: return alpha < 0 ? 1 : alpha > 0 ? 0 : std::min(std::max(beta, 0.0), 1.0);
      case QUERN_HARD_SWISH: return exact(QUERN_HARD_SIGMOID, x, alpha, beta, slope) > 0 ? -infinity : -0.0;
      default: return -0.0;
    }
  }
  const double hard = alpha * x + beta;
  switch (activation) {
    case QUERN_RELU: return std::isnan(x) ? x : std::max(x, 0.0);
    case QUERN_CLAMP: return std::isnan(x) ? x : std::min(std::max(x, alpha), beta);
    case QUERN_LEAKY_RELU: return x < 0 ? alpha * x : x;
    case QUERN_PRELU: return x < 0 ? slope * x : x;
    case QUERN_SIGMOID: return 1 / (1 + std::exp(-x));
    case QUERN_SILU: return x / (1 + std::exp(-x));
    case QUERN_HARD_SIGMOID: return std::isnan(x) ? x : std::min(std::max(hard, 0.0), 1.0);
    case QUERN_HARD_SWISH: return std::isnan(x) ? x : x * std::min(std::max(hard, 0.0), 1.0);
    case QUERN_TANH: return std::tanh(x);
    case QUERN_GELU: return x / 2 * std::erfc(-x * std::sqrt(0.5));
    case QUERN_MISH: return x > 40 ? x : x * std::tanh(std::log1p(std::exp(x)));
    case QUERN_GELU_TANH:
    case QUERN_GELU_SIGMOID: return x / (1 + std::exp(gelu_exponent(activation, x)));
    default: return x;
  }
}

// How often a rounding of what the exponential takes counts in the result, of the forms that round it.
inline double rounded_exponent(quern_activation activation, double x) {
  return x >= 0 || std::isinf(x) ? 0 : gelu_exponent(activation, x);
}

// |got - want| in units in the last place of a float near want; infinite where only one of them is NaN
// or, as floats, infinite, or where their signs differ.
inline double ulps(float got, double want) {
  const double wrong = std::numeric_limits<double>::infinity();
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want) ? 0 : wrong;
  const float rounded = static_cast<float>(want);
  if (std::isinf(got) || std::isinf(rounded)) return got == rounded ? 0 : wrong;
  if (std::signbit(got) != std::signbit(want)) return wrong;
  int exponent = 0;
  std::frexp(want, &exponent);
  return std::fabs(got - want) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

}  // namespace quern::test
