// SPDX-License-Identifier: MIT
//
// Sums of a strip of neighbouring outputs of a channel, or of two, which a thread keeps while lines of inputs pass:
// walk.h and depthwise_box.h have them.
#pragma once

#include "cuda/chunks.h"
#include "cuda/several.h"

namespace quern {
namespace {

// Input i of the strip in a line, number k of a step: its products, in the sums of all lines of outputs that it meets.
// Sums move up by one line with the first product of each chain.  x: an output's Group inputs, or one of each of
// several.
template <int Group, int Taps, int Step, int Depth, int Outputs, int Columns>
QUERN_INLINE void add_input(float (&sum)[Depth][Outputs][Columns], const float (&w)[Outputs][Taps * Taps * Group],
                            const float (&x)[Group * Outputs], int i, int k) {
  QUERN_UNROLL
  for (int j = Depth - 1; j >= 0; --j) {
    const int r = j * Step + k;
    if (r >= Taps) continue;
    QUERN_UNROLL
    for (int c = 0; c < Group * Outputs; ++c) {
      const int o = c / Group, in = c % Group;
      QUERN_UNROLL
      for (int q = 0; q < Columns; ++q) {
        const int s = i - q * Step;
        if (s < 0 || s >= Taps) continue;
        const float before = s > 0 || in > 0 || k > 0 ? sum[j][o][q] : j > 0 ? sum[j - 1][o][q] : 0.0f;
        sum[j][o][q] = fmaf(x[c], w[o][(r * Taps + s) * Group + in], before);
      }
    }
  }
}

// Results of neighbouring channels, where nothing but clamps is left.
template <class Element, int Outputs>
struct plain_results {
  static constexpr bool pairs = Outputs == 2 && sizeof(Element) == 2;
  float factor[Outputs], bias[Outputs];
  uint32_t lower, upper;  // of two elements of 16 bits

  QUERN_INLINE void load(const epilogue_f32& e, int32_t channel) {
    if constexpr (pairs)
      lower = rounded_pair<Element>(e.lower, e.lower), upper = rounded_pair<Element>(e.upper, e.upper);
    QUERN_UNROLL
    for (int o = 0; o < Outputs; ++o) {
      const channel_f32 of = channel_of(e, channel + o);
      factor[o] = of.factor, bias[o] = of.bias;
    }
  }
  template <int Columns>
  QUERN_INLINE several<Element, Outputs> of(const epilogue_f32& e, const float (&sum)[Outputs][Columns], int q) const {
    float y[Outputs];
    QUERN_UNROLL
    for (int o = 0; o < Outputs; ++o) {
      const vec x = vec::fma(vec::set1(sum[o][q]), vec::set1(factor[o]), vec::set1(bias[o]));
      y[o] = pairs ? x.v : clamp(x, vec::set1(e.lower), vec::set1(e.upper)).v;
    }
    several<Element, Outputs> all = several<Element, Outputs>::of(y);
    if constexpr (pairs) all.w[0] = limited_pair<Element>(all.w[0], lower, upper);
    return all;
  }
};

}  // namespace
}  // namespace quern
