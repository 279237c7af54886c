// SPDX-License-Identifier: MIT
//
// What every reference shares: the walk over dst and the epilogue of quern.h, in double; of integers in f32, as they
// are to have the same bits everywhere.
#pragma once

#include <math.h>

#include <cmath>

#include "half.h"
#include "layout.h"

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
    case QUERN_GELU_TANH: return gated(x, sigmoid(sqrt(8 / M_PI) * (x + 0.044715 * x * x * x)));
    case QUERN_GELU_SIGMOID: return gated(x, sigmoid(1.702 * x));
    default: return x;
  }
}

// An element of any type, and what becomes of a number there.
inline double load(quern_type type, const void* from, int64_t at) {
  const auto as = [&](auto of) { return static_cast<double>(value(static_cast<const decltype(of)*>(from)[at])); };
  switch (type) {
    case QUERN_F64: return as(double{});
    case QUERN_F16: return as(f16{});
    case QUERN_BF16: return as(bf16{});
    case QUERN_S8: return as(s8{});
    case QUERN_E4M3: return as(e4m3{});
    default: return as(float{});
  }
}
inline void store(quern_type type, void* to, int64_t at, double y) {
  const auto as = [&](auto of) { static_cast<decltype(of)*>(to)[at] = rounded<decltype(of)>(y); };
  switch (type) {
    case QUERN_F64: return as(double{});
    case QUERN_F16: return as(f16{});
    case QUERN_BF16: return as(bf16{});
    case QUERN_S8: return as(s8{});
    case QUERN_E4M3: return as(e4m3{});
    case QUERN_S32: static_cast<int32_t*>(to)[at] = static_cast<int32_t>(y); return;
    default: return as(float{});
  }
}

// Writes elements [first, last) of dst, counted in the order n k o p q: the epilogue, computed in numbers, of sum(at),
// where at holds the five indices; output channels run along the axis `channel`.
template <class number, class Sum>
void write(const quern_problem& p, const quern_args& args, int channel, int64_t first, int64_t last, const Sum& sum) {
  if (first >= last) return;
  const quern_epilogue& e = p.epilogue;
  const quern_type vectors = p.src.type == QUERN_F64 ? QUERN_F64 : QUERN_F32;

  int64_t at[5];
  for (int64_t axis = 4, rest = first; axis >= 0; --axis) {
    at[axis] = rest % p.dst.size[axis];
    rest /= p.dst.size[axis];
  }
  for (int64_t element = first; element < last; ++element) {
    const int64_t to = offset_of(p.dst, at), from = offset_of(p.residual, at);
    const auto of_channel = [&](const void* v) { return static_cast<number>(load(vectors, v, at[channel])); };
    const number factor = static_cast<number>(e.alpha) * (e.scale ? of_channel(args.scale) : 1);
    // y - 0 keeps the sign of a zero.
    double y = sum(at);
    if (p.dst.type != QUERN_S32) {
      number z = std::fma(factor, static_cast<number>(y), e.bias ? of_channel(args.bias) : -number{0});
      const auto add_residual = [&] {
        z = std::fma(static_cast<number>(e.beta), static_cast<number>(load(p.dst.type, args.residual, from)), z);
      };
      if (e.residual == QUERN_RESIDUAL_BEFORE) add_residual();
      z = static_cast<number>(activate(z, e, e.activation == QUERN_PRELU ? load(vectors, args.slope, at[channel]) : 0));
      if (e.residual == QUERN_RESIDUAL_AFTER) add_residual();
      y = z;
    }
    store(p.dst.type, args.dst, to, y);

    for (int axis = 4; axis >= 0 && ++at[axis] == p.dst.size[axis]; --axis) at[axis] = 0;
  }
}

// The sum of an output's products.
using product_sum = double (*)(const quern_problem&, const quern_args&, const int64_t* at);
struct sum_of_products {
  const quern_problem& p;
  const quern_args& args;
  product_sum of_type;
  double operator()(const int64_t* at) const { return of_type(p, args, at); }
};

// A row's function, where there are products: with the sum of the element type that the problem has.
template <int Channel, product_sum... of_type>
void products(const quern_problem& p, const quern_args& args, int64_t first, int64_t last) {
  static constexpr product_sum of[] = {nullptr, of_type...};
  const sum_of_products sum = {p, args, of[p.src.type]};
  p.src.type == QUERN_S8 ? write<float>(p, args, Channel, first, last, sum)
                         : write<double>(p, args, Channel, first, last, sum);
}

// A row's function, where there are none: the one for the element type that the problem has.
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
