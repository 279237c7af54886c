// SPDX-License-Identifier: MIT
//
// An axis of a call to a kernel that goes over planes, and which of its inputs exist.
#pragma once

#include <algorithm>
#include <string>

#include "fuzz.h"

namespace quern::test {

// `count` outputs, whose inputs exist from `first` on, `inputs` of them.
struct axis {
  size_t count, taps;
  ptrdiff_t step, apart, first, inputs;

  // The input of a tap of an output, counted among those that exist; negative: padding.
  ptrdiff_t at(size_t output, size_t tap) const {
    const ptrdiff_t i = static_cast<ptrdiff_t>(output) * step + static_cast<ptrdiff_t>(tap) * apart - first;
    return i < inputs ? i : -1;
  }
  std::string text() const {
    return std::to_string(count) + " taps " + std::to_string(taps) + " step " + std::to_string(step) + " apart " +
           std::to_string(apart) + " inputs " + std::to_string(first) + " + " + std::to_string(inputs);
  }
};

// The image holds all inputs, or begins or ends among them, or both, or lies beside them.
inline axis some_axis(size_t count, size_t taps, ptrdiff_t step, ptrdiff_t apart, dice& d) {
  axis a = {count, taps, step, apart, 0, 0};
  const ptrdiff_t last = static_cast<ptrdiff_t>(count - 1) * step + static_cast<ptrdiff_t>(taps ? taps - 1 : 0) * apart;
  a.first = d.one_in(2) ? 0 : d.from(-1, last + 2);
  a.inputs = d.one_in(2) ? std::max<ptrdiff_t>(0, last + 1 - a.first) : d.from(0, last + 1);
  return a;
}

}  // namespace quern::test
