// SPDX-License-Identifier: MIT
//
// f32 on tensor cores by three products of F16, at twice the rate of TF32 (tf32.h): x * 2^e = high + low, of 11 bits
// each.  F16 reaches from 2^-24 to 65504, so src and each channel's weights are scaled by powers of two such that
// their largest magnitude is just below 2^15: weights by what they are, src by what wish.src_limit promises of it.
//
//   x * w * 2^(e + f) = high(x) * high(w) + (high(x) * low(w) + low(x) * high(w))
//
// Of a product 2^-22 is left out, and of x what is below 2^-39 of the limit.  Beyond 65504 high is infinite and low
// the opposite: sums that meet it are NaN.
#pragma once

#include "half.h"

namespace quern {
namespace {

// What brings finite magnitudes up to this one just below 2^15.  Up to 2^126, where denormals are what F16 has, it and
// its reciprocal are normal numbers.
QUERN_INLINE int32_t f16x3_exponent(float largest) {
  const int32_t e = 141 - static_cast<int32_t>(bits_of(largest) >> 23 & 0xff);
  return e < 126 ? e : 126;
}
QUERN_INLINE float power_of_two(int32_t e) { return float_of(static_cast<uint32_t>(127 + e) << 23); }

// Two neighbours.
struct f16_pairs {
  uint32_t high, low;
};
QUERN_INLINE f16_pairs split_f16(float first, float second) {
  const uint32_t high = rounded_pair<f16>(first, second);
  const f16 own[] = {{static_cast<uint16_t>(high)}, {static_cast<uint16_t>(high >> 16)}};
  return {high, rounded_pair<f16>(first - value(own[0]), second - value(own[1]))};
}

// Back from 2^e, in two steps: the power alone may be too large, or too small.
QUERN_INLINE float unscaled(float sum, int32_t e) {
  const int32_t half = e >> 1;
  return sum * power_of_two(-half) * power_of_two(half - e);
}

}  // namespace
}  // namespace quern
