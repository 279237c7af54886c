// SPDX-License-Identifier: MIT
//
// Loops over numbers that are known, unrolled before anything else is.
#pragma once

namespace quern {
namespace {

// visit<I>() for BEGIN <= I < END: a loop that holds another is unrolled too late for its sums to be in registers.
template <int BEGIN, int END, class Visit>
[[gnu::always_inline]] inline void each_number(const Visit& visit) {
  if constexpr (BEGIN < END) {
    visit.template operator()<BEGIN>();
    each_number<BEGIN + 1, END>(visit);
  }
}

}  // namespace
}  // namespace quern
