// SPDX-License-Identifier: MIT
//
// Activations, as templates over the vector types of vec_<isa>.h.  NaN stays NaN; infinities give the
// limit.  Every operation is an IEEE one, so all ISAs give the same bits.
//
// No approximation beyond rounding: the largest errors over all 2^32 floats against float64
// (bench/sweep_activation.cpp), in units in the last place of the result, denormal results included:
//
//   sigmoid  2.00  at -0.000344992    gelu             5.74  at 0.00381149
//   silu     2.00  at -0.000488341    gelu_tanh      214.94  at -10.0411
//   tanh     1.93  at 0.519163        gelu_sigmoid    83.77  at -53.2423
//   mish     3.93  at -3.31190
//
// As epilogues they cost what many multiply-adds do: a rounding is left out of account where that saves operations.
//
// The polynomials are minimax fits of this project, of the relative error of the result: that of the exponential by
// Remez exchange in 160-bit arithmetic (mpmath), those of GELU by reweighted least squares; coefficients were rounded
// to float one by one, the others fitted again after each.
#pragma once

#include "kernel.h"

namespace quern {
namespace {

template <class V>
QUERN_INLINE V sign_bit() {
  return V::set1(-0.0f);
}

template <class V>
QUERN_INLINE V magnitude(V x) {
  return V::andnot(sign_bit<V>(), x);
}

// c0 + x (c1 + x (c2 + ...))
template <class V>
QUERN_INLINE V polynomial(V, float c0) {
  return V::set1(c0);
}

template <class V, class... Floats>
QUERN_INLINE V polynomial(V x, float c0, Floats... rest) {
  return V::fma(x, polynomial(x, rest...), V::set1(c0));
}

// y * 2^n for whole n from -190 to 0 and |y| < 2^64, rounded once: 2^n itself may be no float.  A vector type may have
// an instruction for it, as a friend of this name.
template <class V>
QUERN_INLINE V scale(V y, V n) {
  return y * V::pow2(n, 64) * V::set1(0x1p-64f);
}

// The same where m holds, elsewhere y, however large.
template <class V, class Mask>
QUERN_INLINE V scale_where(Mask m, V y, V n) {
  const V one = V::set1(1.0f);
  return y * V::select(m, V::pow2(n, 64), one) * V::select(m, V::set1(0x1p-64f), one);
}

// 2^n for n <= 127, or 2^-100 for what is smaller: for terms that no longer matter then.
template <class V>
QUERN_INLINE V pow2_floored(V n) {
  return V::pow2(V::max(V::set1(-100.0f), n));
}

// e^x = (1 + t) 2^n with |t| < 0.42, n whole.  Keeping the 1 apart preserves t to its own last place, and what is
// multiplied by 1 + t afterwards is rounded once, in a fused multiply-add.
template <class V>
struct power {
  V t, n;
};

// x * factor to the nearest whole number, below 2^22.
template <class V>
QUERN_INLINE V rounded_product(V x, float factor) {
  const V shift = V::set1(0x1.8p23f);
  return V::fma(x, V::set1(factor), shift) - shift;
}

// e^r - 1, |r| < 0.35
template <class V>
QUERN_INLINE V small_power(V r) {
  const V q = polynomial(r, 0x1.fffffep-2f, 0x1.5554aap-3f, 0x1.55579cp-5f, 0x1.122c12p-7f, 0x1.6ac2a0p-10f);
  return V::fma(r * r, q, r);
}

// x - n ln 2, in which ln 2 has two parts: exact, but for the smaller one.
template <class V>
QUERN_INLINE V without_logs(V x, V n) {
  return V::fnma(n, V::set1(-0x1.05c61p-29f), V::fnma(n, V::set1(0x1.62e43p-1f), x));
}

// e^x, |x| < 180.
template <class V>
QUERN_INLINE power<V> power_of_e(V x) {
  const V n = rounded_product(x, 0x1.715476p+0f);
  return {small_power(without_logs(x, n)), n};
}

// factor / (1 + e^-x), -115 <= x.  Where e^-x is no float, nor the result a normal one, both sides are 2^64 smaller.
template <class V>
QUERN_INLINE V logistic(V x, V factor) {
  const power<V> e = power_of_e(V::max(V::set1(-69.0f), x ^ sign_bit<V>()));
  const auto far = V::set1(63.0f) < e.n;
  const V one = V::select(far, V::set1(0x1p-64f), V::set1(1.0f));
  const V two_n = V::pow2(e.n - V::select(far, V::set1(64.0f), V::zero()));
  return factor * one / (V::fma(e.t, two_n, one) + two_n);  // in this order: 1 + 2^24 has no room for both
}

// -|x|, at least `least`.
template <class V>
QUERN_INLINE V below_zero(V x, float least) {
  return V::max(V::set1(least), x | sign_bit<V>());
}

// 1 or x times the logistic function of w(x), once for all of them.  What is below `least` rounds to zero: 110 e^-110.
//
// Two stand for GELU in some networks (Hendrycks & Gimpel, Gaussian error linear units, 2016): w is x (a + b x^2) with
// a = sqrt(8 / pi), b = 0.044715 a, or 1.702 x.  Being approximations they take w as it is rounded, which counts as
// often as w is large: below zero at most three units for each 1 + |w|.
template <class V>
QUERN_INLINE V logistic_activation(V x, quern_activation activation) {
  const bool cubic = activation == QUERN_GELU_TANH, linear = activation == QUERN_GELU_SIGMOID;
  const float least = cubic ? -11.0f : linear ? -65.0f : -110.0f;
  const V bounded = V::max(V::set1(least), x);
  V w = V::min(V::set1(110.0f), bounded);
  if (cubic) w = w * V::fma(w * w, V::set1(0x1.2444f2p-4f), V::set1(0x1.988454p+0f));
  if (linear) w = w * V::set1(1.702f);
  return logistic(w, activation == QUERN_SIGMOID ? V::set1(1.0f) : bounded);
}

// (1 - e) / (1 + e) with e = e^(-2|x|)
template <class V>
QUERN_INLINE V tanh(V x) {
  const V one = V::set1(1.0f);
  const power<V> e = power_of_e(below_zero(x + x, -40.0f));
  const V two_n = V::pow2(e.n);
  const V y = V::fnma(e.t, two_n, one - two_n) / V::fma(e.t, two_n, one + two_n);
  return magnitude(y) | (x & sign_bit<V>());
}

// x times the normal distribution, whose tail beyond u = |x| is e^(-u u / 2) M(u) with M(u) = e^(u u / 2) erfc(u / sqrt
// 2) / 2, a quotient of two polynomials.  u * u is kept in two floats.
template <class V>
QUERN_INLINE V gelu(V x) {
  const V u = V::min(V::set1(14.6f), magnitude(x)), zero = V::zero();  // 14.6 times its tail rounds to zero
  const V square = u * u;
  const V low = V::fma(u, u, zero - square);
  const V n = rounded_product(square, -0x1.715476p-1f);
  const V t = small_power(V::fnma(low, V::set1(0.5f), without_logs(square * V::set1(-0.5f), n)));
  // Even and odd powers apart: half the roundings in a row, and what u * u lost is lost above and below.
  const V m = V::fma(u, polynomial(square, 0x1.c04e08p-2f, 0x1.4bb672p-5f),
                     polynomial(square, 0.5f, 0x1.7674c8p-3f, 0x1.0c3e42p-8f)) /
              V::fma(u, polynomial(square, 0x1.ac6932p+0f, 0x1.dfa996p-2f, 0x1.503064p-7f),
                     polynomial(square, 1.0f, 0x1.336f7ep+0f, 0x1.9fc45p-4f));
  const V tail = V::fma(m, t, m);
  const auto negative = x < zero;
  const V phi = V::select(negative, tail, V::fnma(tail, pow2_floored(n), V::set1(1.0f)));
  return scale_where(negative, V::max(V::set1(-14.6f), x) * phi, n);
}

// x tanh(log(1 + e^x)) = x e (e + 2) / (e (e + 2) + 2) with e = e^x; for x >= 0 with e = e^-x x (2 e + 1) / (2 e (e +
// 1) + 1), where nothing overflows.
template <class V>
QUERN_INLINE V mish(V x) {
  const V two = V::set1(2.0f);
  const power<V> p = power_of_e(below_zero(x, -110.0f));
  const V two_n = pow2_floored(p.n);
  const V e = V::fma(p.t, two_n, two_n);
  const V above = e + two, positive_top = V::fma(two, e, V::set1(1.0f));
  const auto negative = x < V::zero();
  const V top = V::select(negative, V::fma(above, p.t, above), positive_top);
  const V bottom = V::select(negative, V::fma(e, above, two), V::fma(e + e, e, positive_top));
  return scale_where(negative, V::max(V::set1(-110.0f), x) * (top / bottom), p.n);
}

// Those of them that take an exponential: to ask which one for each vector costs some percent of it.
template <class V>
QUERN_INLINE V exponential_activation(V x, quern_activation activation) {
  switch (activation) {
    case QUERN_TANH: return tanh(x);
    case QUERN_GELU: return gelu(x);
    case QUERN_MISH: return mish(x);
    default: return logistic_activation(x, activation);
  }
}

// a * x + b, with the limit b where a is zero and x infinite.
template <class V>
QUERN_INLINE V line(V a, V x, V b) {
  const V largest = V::set1(0x1.fffffep+127f);
  const V finite = V::max(V::zero() - largest, V::min(largest, x));
  return V::fma(a, V::select(a == V::zero(), finite, x), b);
}

template <class V>
QUERN_INLINE V relu(V x) {
  return V::max(V::zero(), x);
}

template <class V>
QUERN_INLINE V clamp(V x, V lower, V upper) {
  return V::min(upper, V::max(lower, x));
}

// Leaky ReLU and PReLU.
template <class V>
QUERN_INLINE V leaky_relu(V x, V slope) {
  return V::select(x < V::zero(), line(slope, x, sign_bit<V>()), x);
}

template <class V>
QUERN_INLINE V hard_sigmoid(V x, V alpha, V beta) {
  return clamp(line(alpha, x, beta), V::zero(), V::set1(1.0f));
}

template <class V>
QUERN_INLINE V hard_swish(V x, V alpha, V beta) {
  const V gate = hard_sigmoid(x, alpha, beta);
  return V::select(gate == V::zero(), x & sign_bit<V>(), x * gate);  // not infinity times zero
}

}  // namespace
}  // namespace quern
