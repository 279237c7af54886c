// SPDX-License-Identifier: MIT
//
// What every reference shares: the walk over dst and the epilogue of quern.h, in double; of integers in f32, as they
// are to have the same bits everywhere.
#pragma once

#include <math.h>

#include <cmath>
#include <type_traits>

#include "../half.h"
#include "../layout.h"

namespace quern {
namespace {

// x * gate where the limit of a vanishing gate is zero, however large x.
inline double gated(double x, double gate) { return gate == 0 && isinf(x) ? copysign(0.0, x) : x * gate; }

inline double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }

inline double clamp(double x, double lower, double upper) { return x < lower ? lower : x > upper ? upper : x; }

inline double activate(double x, const quern_epilogue& e, double slope) {
  const double alpha = e.activation_alpha, beta = e.activation_beta;
  switch (e.activation) {
    case QUERN_RELU: return x < 0 ? 0 : x;
    case QUERN_CLAMP: return clamp(x, alpha, beta);
    case QUERN_LEAKY_RELU: return x < 0 ? gated(x, alpha) : x;
    case QUERN_PRELU: return x < 0 ? gated(x, slope) : x;
    case QUERN_SIGMOID: return sigmoid(x);
    case QUERN_SILU: return gated(x, sigmoid(x));
    case QUERN_HARD_SIGMOID: return clamp(gated(x, alpha) + beta, 0, 1);
    case QUERN_HARD_SWISH: return gated(x, clamp(gated(x, alpha) + beta, 0, 1));
    case QUERN_TANH: return tanh(x);
    case QUERN_GELU: return gated(x / 2, erfc(-x / M_SQRT2));
    case QUERN_MISH: return gated(x, tanh(log1p(exp(x))));
    default: return x;
  }
}

// Of a channel, beside elements of type T.
template <class T>
using vector_of = std::conditional_t<std::is_same_v<T, double>, double, float>;

// What the epilogue computes in.
template <class T>
using number_of = std::conditional_t<std::is_same_v<T, s8>, float, double>;

// Writes elements [first, last) of dst, counted in the order n k o p q: the epilogue of sum(at), where at
// holds the five indices; output channels run along the axis `channel`.
template <class T, class Sum>
void write(const quern_problem& p, const quern_args& args, int channel, int64_t first, int64_t last, const Sum& sum) {
  if (first >= last) return;
  const quern_epilogue& e = p.epilogue;
  const auto* const scale = static_cast<const vector_of<T>*>(args.scale);
  const auto* const bias = static_cast<const vector_of<T>*>(args.bias);
  const auto* const slope = static_cast<const vector_of<T>*>(args.slope);
  using number = number_of<T>;
  const auto residual_at = [&](int64_t at) {
    return with_output<T>(p.dst.type, [&](auto of) {
      return static_cast<number>(value(static_cast<const decltype(of)*>(args.residual)[at]));
    });
  };

  int64_t at[5];
  for (int64_t axis = 4, rest = first; axis >= 0; --axis) {
    at[axis] = rest % p.dst.size[axis];
    rest /= p.dst.size[axis];
  }
  for (int64_t element = first; element < last; ++element) {
    const int64_t to = offset_of(p.dst, at), from = offset_of(p.residual, at);
    const int64_t k = at[channel];
    if (p.dst.type == QUERN_S32) {
      static_cast<int32_t*>(args.dst)[to] = static_cast<int32_t>(sum(at));
    } else {
      const number factor = static_cast<number>(e.alpha) * (e.scale ? static_cast<number>(scale[k]) : 1);
      // y - 0 keeps the sign of a zero.
      number y = std::fma(factor, static_cast<number>(sum(at)), e.bias ? static_cast<number>(bias[k]) : -number{0});
      const auto add_residual = [&] { y = std::fma(static_cast<number>(e.beta), residual_at(from), y); };
      if (e.residual == QUERN_RESIDUAL_BEFORE) add_residual();
      y = static_cast<number>(activate(y, e, e.activation == QUERN_PRELU ? static_cast<double>(slope[k]) : 0));
      if (e.residual == QUERN_RESIDUAL_AFTER) add_residual();
      with_output<T>(p.dst.type, [&](auto of) { static_cast<decltype(of)*>(args.dst)[to] = rounded<decltype(of)>(y); });
    }

    for (int axis = 4; axis >= 0 && ++at[axis] == p.dst.size[axis]; --axis) at[axis] = 0;
  }
}

// A row's function: the one for the element type that the problem has; those of products take 8 bits too.
template <auto f32, auto f64, auto half, auto brain, auto... bytes>
void by_type(const quern_problem& p, const quern_args& args, int64_t first, int64_t last) {
  using reference = void (*)(const quern_problem&, const quern_args&, int64_t, int64_t);
  static constexpr reference of[] = {nullptr, f32, f64, half, brain, bytes...};
  of[p.src.type](p, args, first, last);
}

}  // namespace
}  // namespace quern
