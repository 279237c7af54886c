// SPDX-License-Identifier: MIT
//
// One output of an operator, summed in f64: what the GPU's reference computes in each thread, written for any host too.
#pragma once

#include <math.h>

#include <type_traits>

#include "boxes.h"
#include "half.h"
#include "layout.h"

namespace quern {
namespace {

// By value in the kernel's parameters, as the others are.  Strides as in geometry.h.
struct reference_cuda {
  int64_t elements;  // of dst, counted in the order n k o p q
  int64_t c, k;      // of one group
  int64_t channels;  // of dst: k times groups
  int64_t src_stride[5], weights_stride[5], weights_group, dst_stride[5], residual_stride[5];
  int64_t src_block, dst_block, residual_block;  // channels that lie side by side
  int64_t in[3], out[3], filter[3], stride[3], dilation[3], pad[3];
  bool transposed;
  quern_type type;  // of dst and residual
  const void *src, *weights, *residual;
  void* dst;
  epilogue_f32 epilogue;
};

// The input that output `at` meets through a tap, or -1.
QUERN_INLINE int64_t reference_input(const reference_cuda& r, int axis, int64_t at, int64_t tap) {
  int64_t input = at * r.stride[axis] + tap * r.dilation[axis] - r.pad[axis];
  if (r.transposed) {
    const int64_t scaled = at + r.pad[axis] - tap * r.dilation[axis];
    input = scaled % r.stride[axis] == 0 ? scaled / r.stride[axis] : -1;
  }
  return input >= 0 && input < r.in[axis] ? input : -1;
}

// x * gate where the limit of a vanishing gate is zero, however large x.
QUERN_INLINE double reference_gated(double x, double gate) {
  return gate == 0 && isinf(x) ? copysign(0.0, x) : x * gate;
}

QUERN_INLINE double reference_sigmoid(double x) { return (x < 0 ? exp(x) : 1) / (1 + exp(-fabs(x))); }

QUERN_INLINE double reference_clamp(double x, double lower, double upper) {
  return x < lower ? lower : x > upper ? upper : x;
}

QUERN_INLINE double reference_activation(double x, const epilogue_f32& e, double slope) {
  const double alpha = static_cast<double>(e.activation_alpha), beta = static_cast<double>(e.activation_beta);
  switch (e.activation) {
    case QUERN_RELU: return x < 0 ? 0 : x;
    case QUERN_CLAMP: return reference_clamp(x, alpha, beta);
    case QUERN_LEAKY_RELU: return x < 0 ? reference_gated(x, alpha) : x;
    case QUERN_PRELU: return x < 0 ? reference_gated(x, slope) : x;
    case QUERN_SIGMOID: return reference_sigmoid(x);
    case QUERN_SILU: return reference_gated(x, reference_sigmoid(x));
    case QUERN_HARD_SIGMOID: return reference_clamp(reference_gated(x, alpha) + beta, 0, 1);
    case QUERN_HARD_SWISH: return reference_gated(x, reference_clamp(reference_gated(x, alpha) + beta, 0, 1));
    case QUERN_TANH: return ::tanh(x);
    case QUERN_GELU: return reference_gated(x / 2, erfc(-x / 1.4142135623730951));
    case QUERN_MISH: return reference_gated(x, ::tanh(log1p(exp(x))));
    case QUERN_GELU_TANH: return reference_gated(x, reference_sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)));
    case QUERN_GELU_SIGMOID: return reference_gated(x, reference_sigmoid(1.702 * x));
    default: return x;
  }
}

// What they compute, beside convolutions and GEMM.
[[maybe_unused]] constexpr op_set without_products = {
    QUERN_REORDER,     QUERN_POOL_MAX,    QUERN_POOL_AVG,   QUERN_POOL_AVG_PADDED,
    QUERN_REDUCE_SUM,  QUERN_REDUCE_MEAN, QUERN_REDUCE_MAX, QUERN_REDUCE_MIN,
    QUERN_REDUCE_PROD, QUERN_REDUCE_L1,   QUERN_REDUCE_L2,  QUERN_REDUCE_SUM_SQUARE,
    QUERN_NORM,        QUERN_RMS_NORM,    QUERN_SOFTMAX,    QUERN_LOG_SOFTMAX,
    QUERN_UNARY,       QUERN_ADD,         QUERN_SUB,        QUERN_MUL,
    QUERN_DIV,         QUERN_MAX,         QUERN_MIN};

QUERN_INLINE double reference_fma(double a, double b, double c) { return ::fma(a, b, c); }
QUERN_INLINE float reference_fma(float a, float b, float c) { return ::fmaf(a, b, c); }

// The epilogue of a finished sum of elements T, in f64, of integers in f32; `from` and `to` are where elements of
// residual and dst lie.
template <class T>
QUERN_INLINE void reference_store(const epilogue_f32& e, quern_type type, int64_t channel, double sum,
                                  const void* residual, int64_t from, void* dst, int64_t to) {
  if (std::is_same_v<T, s8> && type == QUERN_S32) {
    static_cast<int32_t*>(dst)[to] = static_cast<int32_t>(sum);
    return;
  }
  using number = std::conditional_t<std::is_same_v<T, s8>, float, double>;
  const auto of = [&](const float* v) { return static_cast<number>(v[channel]); };
  const number factor = static_cast<number>(e.alpha) * (e.scale ? of(e.scale) : 1);
  // y - 0 keeps the sign of a zero.
  number y = reference_fma(factor, static_cast<number>(sum), e.bias ? of(e.bias) : -number{0});
  const auto add_residual = [&] {
    const auto load = [&](auto as) {
      return static_cast<number>(value(static_cast<const decltype(as)*>(residual)[from]));
    };
    y = reference_fma(static_cast<number>(e.beta), with_output<T>(type, load), y);
  };
  if (e.residual == QUERN_RESIDUAL_BEFORE) add_residual();
  y = static_cast<number>(reference_activation(y, e, e.slope ? static_cast<double>(e.slope[channel]) : 0));
  if (e.residual == QUERN_RESIDUAL_AFTER) add_residual();
  with_output<T>(type, [&](auto as) { static_cast<decltype(as)*>(dst)[to] = rounded<decltype(as)>(y); });
}

template <class T>
QUERN_INLINE void reference_output(const reference_cuda& r, int64_t element) {
  int64_t at[3], rest = element;
  QUERN_UNROLL
  for (int i = 2; i >= 0; --i) at[i] = rest % r.out[i], rest /= r.out[i];
  const int64_t channel = rest % r.channels, n = rest / r.channels, group = channel / r.k;
  double sum = 0;
  for (int64_t t = 0; t < r.filter[0]; ++t) {
    const int64_t d = reference_input(r, 0, at[0], t);
    if (d < 0) continue;
    for (int64_t u = 0; u < r.filter[1]; ++u) {
      const int64_t h = reference_input(r, 1, at[1], u);
      if (h < 0) continue;
      for (int64_t s = 0; s < r.filter[2]; ++s) {
        const int64_t w = reference_input(r, 2, at[2], s);
        if (w < 0) continue;
        const T* x = static_cast<const T*>(r.src) + n * r.src_stride[0] + d * r.src_stride[2] + h * r.src_stride[3] +
                     w * r.src_stride[4];
        const T* f = static_cast<const T*>(r.weights) + group * r.weights_group + channel % r.k * r.weights_stride[0] +
                     t * r.weights_stride[2] + u * r.weights_stride[3] + s * r.weights_stride[4];
        // Products of two elements are exact in f64.
        for (int64_t c = 0; c < r.c; ++c)
          sum += static_cast<double>(value(x[channel_offset(group * r.c + c, r.src_stride[1], r.src_block)])) *
                 static_cast<double>(value(f[c * r.weights_stride[1]]));
      }
    }
  }
  const auto place = [&](const int64_t* stride, int64_t block) {
    return n * stride[0] + channel_offset(channel, stride[1], block) + at[0] * stride[2] + at[1] * stride[3] +
           at[2] * stride[4];
  };
  reference_store<T>(r.epilogue, r.type, channel, sum, r.residual, place(r.residual_stride, r.residual_block), r.dst,
                     place(r.dst_stride, r.dst_block));
}

// Operators without products.
struct reference_friend {
  quern_problem p;
  int64_t elements;
  const void *src, *weights, *residual;
  void* dst;
  epilogue_f32 epilogue;
};

template <class T>
QUERN_INLINE void reference_output(const reference_friend& r, int64_t element) {
  int64_t at[5], rest = element;
  QUERN_UNROLL
  for (int i = 4; i >= 0; --i) at[i] = rest % r.p.dst.size[i], rest /= r.p.dst.size[i];
  const T* const src = static_cast<const T*>(r.src);
  if (r.p.op == QUERN_REORDER) {
    static_cast<T*>(r.dst)[offset_of(r.p.dst, at)] = src[offset_of(r.p.src, at)];
    return;
  }
  const box_sum sum = is_elementwise(r.p.op) ? box_sum{} : sum_of(r.p, src, box_of(r.p, at));
  reference_store<T>(r.epilogue, type_of<T>, at[1], output_of(r.p, sum, src, static_cast<const T*>(r.weights), at),
                     r.residual, offset_of(r.p.residual, at), r.dst, offset_of(r.p.dst, at));
}

}  // namespace
}  // namespace quern
