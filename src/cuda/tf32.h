// SPDX-License-Identifier: MIT
//
// f32 on tensor cores by three products of TF32: x = high + low, of 11 bits each, and
//
//   x * w = high(x) * high(w) + (high(x) * low(w) + low(x) * high(w))        what is left out is below 2^-22
//
// (Ootomo and Yokota 2022; CUTLASS calls it 3xTF32).  The units' accumulators truncate, so few products are summed
// there, small ones first, and then added to the others in f32, rounded: the error is less than that of a chain of
// multiply-adds.  Where an input or weight is infinite or NaN, or rounds to infinity at 11 bits, the outputs that
// meet it are infinite or NaN; which of the two is not said.
#pragma once

#include <string.h>

#include "kernel.h"

namespace quern {
namespace {

// The nearest float of 11 bits, of two the one further from zero.  By integers: cvt.rna has a quarter of their rate.
QUERN_INLINE float to_tf32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x1000) & ~0x1fffu;
  memcpy(&x, &bits, sizeof bits);
  return x;
}

// The units ignore what low has beyond 11 bits.
struct tf32_pair {
  float high, low;
};
QUERN_INLINE tf32_pair split_tf32(float x) {
  const float high = to_tf32(x);
  return {high, x - high};
}

}  // namespace
}  // namespace quern
