// SPDX-License-Identifier: MIT
//
// Elements of several tensors that belong together, counted along axes of which neighbours that lie alike are one.
#pragma once

#include "kernel.h"

namespace quern {
namespace {

// What numbers from zero on are divided by, known before a launch: a division of any two takes some hundred clocks.
struct divisor {
  int32_t by;
  uint32_t inverse;  // 2^32 - 1 over it

  // Rounded down: the product of what was rounded down is one less at most.
  QUERN_INLINE int32_t quotient(int32_t i) const {
    const int32_t q = static_cast<int32_t>(uint64_t{static_cast<uint32_t>(i)} * inverse >> 32);
    return q + (i - q * by >= by);
  }
  // The remainder of i, which the quotient takes the place of.
  QUERN_INLINE int32_t take(int32_t& i) const {
    const int32_t before = i;
    i = quotient(i);
    return before - i * by;
  }
};
inline divisor divisor_of(int64_t count) {
  return {static_cast<int32_t>(count), count > 0 ? UINT32_MAX / static_cast<uint32_t>(count) : 0};
}

// One axis, densest first: so many steps, and how far each goes.
struct dim {
  int32_t count, channel;
  int64_t src, dst, residual, weights;
  divisor steps;  // or the chunks along the densest
};

// Where an element is in each of them.
struct dim_place {
  int64_t src = 0, dst = 0, residual = 0, weights = 0;
  int32_t channel = 0;
};

struct dims {
  int32_t used;
  dim axis[6];

  // Element number i, counted along the axes from First on, or the first of chunk i of `chunk` elements along the
  // densest.
  template <int First = 0>
  QUERN_INLINE dim_place at(int32_t i, int32_t chunk) const {
    dim_place p;
    const auto go = [&](const dim& along, int32_t step) {
      p.src += step * along.src, p.dst += step * along.dst;
      p.residual += step * along.residual, p.weights += step * along.weights;
      p.channel += step * along.channel;
    };
    if (used == First + 1) {  // nothing to divide, as often
      go(axis[First], i * chunk);
      return p;
    }
    QUERN_ROLL
    for (int k = First; k < used; ++k) {
      const int32_t rest = k + 1 < used ? axis[k].steps.quotient(i) : 0;
      go(axis[k], (i - rest * axis[k].steps.by) * (k == First ? chunk : 1));
      i = rest;
    }
    return p;
  }
};

}  // namespace
}  // namespace quern
