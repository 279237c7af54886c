// SPDX-License-Identifier: MIT
//
// Activations, as templates over the vector types of vec_<isa>.h.  NaN stays NaN; infinities give the
// limit.  Every operation is an IEEE one, so all ISAs give the same bits.
//
// Exact forms: no approximation beyond rounding.  The largest errors over all 2^32 floats against float64
// (bench/sweep_activation.cpp), in units in the last place of the result, denormal results included:
//
//   sigmoid  1.03  at -38.4332        gelu  3.65  at -1.84139
//   silu     1.78  at -82.0869        mish  3.93  at -13.8029
//   tanh     1.43  at 0.157262
//
// The polynomials are minimax fits of this project: Remez exchange in 160-bit arithmetic (mpmath) on the
// relative error of the result, coefficients rounded to float one by one from the constant up, the
// others fitted again after each.
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

// y * 2^n for whole n from -252 to 254, rounded once: in two steps, as 2^n itself may be no float.  A vector type may
// have an instruction for it, as a friend of this name.
template <class V>
QUERN_INLINE V scale(V y, V n) {
  const V half = V::round_even(n * V::set1(0.5f));
  return y * V::pow2(half) * V::pow2(n - half);
}

// 2^n, or 2^-126 for what is smaller: for terms that no longer matter then.
template <class V>
QUERN_INLINE V pow2_floored(V n) {
  return V::pow2(V::max(V::set1(-126.0f), n));
}

// e^x = (1 + t) 2^n with |t| < 0.42, n whole.  Keeping the 1 apart preserves t to its own last place.
template <class V>
struct power {
  V t, n;
};

// e^(x + low), |x| < 180, |low| tiny.
template <class V>
QUERN_INLINE power<V> power_of_e(V x, V low) {
  const V n = V::round_even(x * V::set1(0x1.715476p+0f));
  V r = V::fnma(n, V::set1(0x1.62e43p-1f), x);  // exact: ln 2 in two parts
  r = V::fnma(n, V::set1(-0x1.05c61p-29f), r) + low;
  const V q = polynomial(r, 0x1.fffffep-2f, 0x1.5554aap-3f, 0x1.55579cp-5f, 0x1.122c12p-7f, 0x1.6ac2a0p-10f);
  return {V::fma(r * r, q, r), n};
}

template <class V>
QUERN_INLINE power<V> power_of_e(V x) {
  return power_of_e(x, sign_bit<V>());
}

// A value in two floats, the second below the last place of the first.
template <class V>
struct pair {
  V high, low;
};

// a / b: one Newton step on the quotient of the high parts leaves a single rounding.
template <class V>
QUERN_INLINE V quotient(pair<V> a, pair<V> b) {
  const V inverse = V::set1(1.0f) / b.high;
  const V q = a.high * inverse;
  const V rest = V::fnma(q, b.high, a.high) + V::fnma(q, b.low, a.low);
  return V::fma(rest, inverse, q);
}

// factor / (1 + e^-x), for x < 0 as factor e^x / (1 + e^x).  The scale of e^x comes last, after `factor`,
// so that denormal results are rounded once.
template <class V>
QUERN_INLINE V logistic(V x, V factor) {
  const V one = V::set1(1.0f), zero = V::zero();
  const power<V> p = power_of_e(V::max(V::set1(-110.0f), magnitude(x) ^ sign_bit<V>()));
  const V high = one + p.t;
  const V low = p.t - (high - one);
  const V two_n = pow2_floored(p.n);
  const V e = high * two_n;
  const V sum = one + e;
  const V sum_low = V::fma(low, two_n, e - (sum - one));
  const auto negative = x < zero;
  const V q = quotient<V>({V::select(negative, high, one), V::select(negative, low, zero)}, {sum, sum_low});
  return scale(factor * q, V::select(negative, p.n, zero));
}

template <class V>
QUERN_INLINE V sigmoid(V x) {
  return logistic(x, V::set1(1.0f));
}

template <class V>
QUERN_INLINE V silu(V x) {
  return logistic(x, V::max(V::set1(-110.0f), x));  // silu(-110) rounds to zero
}

// -m / (2 + m) with m = e^(-2|x|) - 1, which t and n give without cancellation.
template <class V>
QUERN_INLINE V tanh(V x) {
  const power<V> p = power_of_e(V::max(V::set1(-20.0f), magnitude(x) * V::set1(-2.0f)));
  const V two_n = V::pow2(p.n);
  const V above = two_n - V::set1(1.0f);
  const V m = V::fma(p.t, two_n, above);
  const V m_low = V::fma(p.t, two_n, above - m);
  const V sum = m + V::set1(2.0f);
  const V sum_low = m - (sum - V::set1(2.0f)) + m_low;
  return magnitude(quotient<V>({m, m_low}, {sum, sum_low})) | (x & sign_bit<V>());
}

// The normal distribution below -u, u >= 0, is y * 2^n.  With M(u) = e^(u u / 2) erfc(u / sqrt 2) / 2 and
// z = 1 / (1 + 0.3 u), M / z is a polynomial in z.  u * u is kept in two floats for the exponential.  M
// multiplies a relative error of z by about 1 + 1.66 z, so what z, the polynomial and the product lost in
// rounding is added in the end.
template <class V>
struct tail {
  V y, n;
};

template <class V>
QUERN_INLINE tail<V> normal_tail(V u) {
  const V one = V::set1(1.0f), slope = V::set1(0x1.333334p-2f);
  u = V::min(V::set1(14.6f), u);  // u times the tail rounds to zero from here on
  const V square = u * u;
  const V square_low = V::fma(u, u, V::zero() - square);
  const power<V> p = power_of_e(square * V::set1(-0.5f), square_low * V::set1(-0.5f));
  const V bottom = V::fma(u, slope, one);
  const V bottom_low = V::fma(u, slope, one - bottom);
  const V z = one / bottom;
  const V lost = V::fnma(z, bottom_low, V::fnma(z, bottom, one));
  const V rise = polynomial(z, 0x1.e9c3e2p-4f, 0x1.c3883ep-4f, 0x1.410c98p-4f, 0x1.89f424p-4f, -0x1.457c94p-4f,
                            0x1.88dec8p-3f, -0x1.d372fcp-3f, 0x1.cc9734p-4f, -0x1.51eec2p-6f);
  const V base = V::set1(0x1.ea3c9cp-4f);
  const V ratio = V::fma(z, rise, base);
  const V ratio_low = V::fma(z, rise, base - ratio);
  const V m = z * ratio;
  const V m_low = V::fma(z, ratio_low, V::fma(z, ratio, V::zero() - m));
  const V correction = lost * V::fma(z, V::set1(1.66f), one);
  return {m + V::fma(m, p.t + correction, m_low), p.n};
}

// x / 2 (1 + erf(x / sqrt 2)): x times the tail below x, or x times what the tail above x leaves of 1.
template <class V>
QUERN_INLINE V gelu(V x) {
  const tail<V> t = normal_tail(magnitude(x));
  const auto negative = x < V::zero();
  const V phi = V::select(negative, t.y, V::fnma(t.y, pow2_floored(t.n), V::set1(1.0f)));
  return scale(V::max(V::set1(-14.6f), x) * phi, V::select(negative, t.n, V::zero()));
}

// x tanh(log(1 + e^x)) = x n / (n + 2) with n = e^x (e^x + 2); for x >= 0 both sides are multiplied by
// e^-2x, so that nothing overflows.
template <class V>
QUERN_INLINE V mish(V x) {
  const V one = V::set1(1.0f), two = V::set1(2.0f);
  const power<V> p = power_of_e(V::max(V::set1(-110.0f), magnitude(x) ^ sign_bit<V>()));
  const V high = one + p.t;
  const V e = high * pow2_floored(p.n);
  const auto negative = x < V::zero();
  const V positive_top = V::fma(two, e, one);
  const V top = V::select(negative, V::fma(high, e, high + high), positive_top);
  const V bottom = V::select(negative, V::fma(e, e + two, two), V::fma(two * e, e, positive_top));
  return scale(V::max(V::set1(-110.0f), x) * (top / bottom), V::select(negative, p.n, V::zero()));
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
