// SPDX-License-Identifier: MIT
//
// What every reference shares: the walk over dst and the epilogue of quern.h, in double.
#pragma once

#include <math.h>

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

// Writes elements [first, last) of dst, counted in the order n k o p q: the epilogue of sum(at), where at
// holds the five indices; output channels run along the axis `channel`.
template <class T, class Sum>
void write(const quern_problem& p, const quern_args& args, int channel, int64_t first, int64_t last, const Sum& sum) {
  if (first >= last) return;
  const quern_epilogue& e = p.epilogue;
  const auto* const scale = static_cast<const vector_of<T>*>(args.scale);
  const auto* const bias = static_cast<const vector_of<T>*>(args.bias);
  const auto* const slope = static_cast<const vector_of<T>*>(args.slope);
  const T* const residual = static_cast<const T*>(args.residual);
  T* const dst = static_cast<T*>(args.dst);

  int64_t at[5];
  for (int64_t axis = 4, rest = first; axis >= 0; --axis) {
    at[axis] = rest % p.dst.size[axis];
    rest /= p.dst.size[axis];
  }
  for (int64_t element = first; element < last; ++element) {
    const int64_t to = offset_of(p.dst, at), from = offset_of(p.residual, at);
    const int64_t k = at[channel];
    double y = e.alpha * (e.scale ? static_cast<double>(scale[k]) : 1) * sum(at) +
               (e.bias ? static_cast<double>(bias[k]) : -0.0);  // y - 0 keeps the sign of a zero
    const double add = e.residual != QUERN_RESIDUAL_NONE ? e.beta * static_cast<double>(value(residual[from])) : 0;
    if (e.residual == QUERN_RESIDUAL_BEFORE) y += add;
    y = activate(y, e, e.activation == QUERN_PRELU ? static_cast<double>(slope[k]) : 0);
    if (e.residual == QUERN_RESIDUAL_AFTER) y += add;
    dst[to] = rounded<T>(y);

    for (int axis = 4; axis >= 0 && ++at[axis] == p.dst.size[axis]; --axis) at[axis] = 0;
  }
}

// A row's function: the one for the element type that the problem has.
template <auto f32, auto f64, auto half, auto brain>
void by_type(const quern_problem& p, const quern_args& args, int64_t first, int64_t last) {
  switch (p.src.type) {
    case QUERN_F64: return f64(p, args, first, last);
    case QUERN_F16: return half(p, args, first, last);
    case QUERN_BF16: return brain(p, args, first, last);
    default: return f32(p, args, first, last);
  }
}

}  // namespace
}  // namespace quern
