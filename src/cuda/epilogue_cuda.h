// SPDX-License-Identifier: MIT
//
// The epilogue of quern.h on one finished sum, operation by operation as epilogue.h has it on the CPU.
#pragma once

#include "activation.h"
#include "cuda/vec_cuda.h"
#include "half.h"

namespace quern {
namespace {

// What one output channel brings.
struct channel_f32 {
  float factor, bias, slope;
};

QUERN_INLINE channel_f32 channel_of(const epilogue_f32& e, int32_t channel) {
  // y + -0 is y, signed zeros included
  return {e.scale ? e.alpha * e.scale[channel] : e.alpha, e.bias ? e.bias[channel] : -0.0f,
          e.slope ? e.slope[channel] : 0.0f};
}

// Everything that limits y from two sides, or does nothing.
QUERN_INLINE bool only_clamps(const epilogue_f32& e) {
  return e.activation == QUERN_IDENTITY || e.activation == QUERN_RELU || e.activation == QUERN_CLAMP;
}

QUERN_INLINE vec activated(const epilogue_f32& e, vec y, vec slope) {
  const vec a = vec::set1(e.activation_alpha), b = vec::set1(e.activation_beta);
  switch (e.activation) {
    case QUERN_LEAKY_RELU: return leaky_relu(y, a);
    case QUERN_PRELU: return leaky_relu(y, slope);
    case QUERN_HARD_SIGMOID: return hard_sigmoid(y, a, b);
    case QUERN_HARD_SWISH: return hard_swish(y, a, b);
    case QUERN_IDENTITY:
    case QUERN_RELU:
    case QUERN_CLAMP: return clamp(y, vec::set1(e.lower), vec::set1(e.upper));
    default: return exponential_activation(y, e.activation);
  }
}

// Clamps: only_clamps(e) is known to hold, and no other activation is compiled in.  Residual: whether there may be one.
template <bool Clamps, bool Residual = true>
QUERN_INLINE float finished(const epilogue_f32& e, const channel_f32& k, float sum, float residual) {
  const vec beta = vec::set1(e.beta);
  vec y = vec::fma(vec::set1(sum), vec::set1(k.factor), vec::set1(k.bias));
  if (Residual && e.residual == QUERN_RESIDUAL_BEFORE) y = vec::fma(beta, vec::set1(residual), y);
  if constexpr (Clamps) {
    y = clamp(y, vec::set1(e.lower), vec::set1(e.upper));
  } else {
    y = activated(e, y, vec::set1(k.slope));
  }
  if (Residual && e.residual == QUERN_RESIDUAL_AFTER) y = vec::fma(beta, vec::set1(residual), y);
  return y.v;
}

// The same where nothing but clamps is left, on its way to fewer bits; Residual: whether there is one.
template <bool Residual>
QUERN_INLINE float finished_narrow(const epilogue_f32& e, const channel_f32& k, float sum, float residual) {
  const vec beta = vec::set1(e.beta), r = vec::set1(residual);
  vec y = vec::fma(vec::set1(sum), vec::set1(k.factor), vec::set1(k.bias));
  if (Residual && e.residual == QUERN_RESIDUAL_BEFORE) y = vec::fma(beta, r, y);
  y = vec::limited(y, vec::set1(e.lower), vec::set1(e.upper));
  if (Residual && e.residual == QUERN_RESIDUAL_AFTER) y = vec::fma(beta, r, y);
  return y.v;
}

// ReLU, which conversions to narrow floats do by themselves.  For s8 multiply-adds do, whose results may end at 0 and 1
// at no cost: factor and bias are divided by 128, which rounds nothing, and 128 becomes 127 as whatever is more does.
QUERN_INLINE bool ends_easily(const epilogue_f32& e) { return e.activation == QUERN_RELU && !e.residual; }
template <class Element>
QUERN_INLINE channel_f32 easy_channel(channel_f32 k) {
  if (type_of<Element> == QUERN_S8) k.factor *= 0x1p-7f, k.bias *= 0x1p-7f;
  return k;
}
// What is left to do for an easy channel's sum, and for four of 8 bits or two of 16.
template <class Element>
QUERN_INLINE float finished_easily(const channel_f32& k, float sum) {
  if constexpr (type_of<Element> != QUERN_S8) return fmaf(sum, k.factor, k.bias);
#if defined(__CUDA_ARCH__)
  asm("fma.rn.sat.f32 %0, %0, %1, %2;" : "+f"(sum) : "f"(k.factor), "f"(k.bias));
  return sum;
#else
  const float y = fmaf(sum, k.factor, k.bias);
  return y > 0 ? fminf(y, 1) : 0;
#endif
}
template <class Element, int N>
QUERN_INLINE uint32_t rounded_easily(const float (&x)[N]) {
  if constexpr (N == 2) {
    return rounded_pair<Element, true>(x[0], x[1]);
  } else {
    return type_of<Element> == QUERN_S8 ? rounded_parts(x) : rounded_four<Element, true>(x);
  }
}

}  // namespace
}  // namespace quern
