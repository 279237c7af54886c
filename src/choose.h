// SPDX-License-Identifier: MIT
//
// The choice: every pair of an algorithm and a kernel is refused as data or costed, and the cheapest wins.
#pragma once

#include "algorithm.h"
#include "machine.h"
#include "wish.h"

namespace quern {

// Block sizes other than the driver's own: those that it would choose for caches 2^l1 and 2^l2 times as large, and
// for so many threads; on a GPU for arithmetic 2^l1 times as fast, and 2^l2 times as many multiprocessors.  Whatever
// they say, the driver makes sound blocks of it.
struct variation {
  int32_t l1, l2;
  uint32_t threads;
};
inline constexpr int32_t most_shift = 4;  // of l1 and l2

struct option {
  const struct algorithm* algorithm;
  const struct kernel* row;
  quern_backend backend;
  int32_t verdict;  // QUERN_USABLE, QUERN_REFUSED or QUERN_UNAVAILABLE
  refusal why;
  blocking blocks;
  struct cost cost;
  quern_layout src_layout, dst_layout;  // the problem's, or those that it is best in
  double measured_ns;                   // 0: never
  int rank;                             // among those that were measured side by side, from 0
};

// The cheapest usable option for a complete problem, over all layouts that it leaves open: `problem` has those of
// the option then.  QUERN_UNSUPPORTED, with the reasons, when there is none.
quern_status choose(full_problem& problem, const resolved_wish&, option& out, quern_error*);

// The usable options of a complete problem without QUERN_ANY, as they are without tuning, by predicted time.  Writes at
// most `capacity` of them; returns how many.
size_t usable_options(const quern_problem&, const resolved_wish&, option* out, size_t capacity);

// Gives the option other blocks; false when they pass the wish's workspace limit, and then it stays as it was.
bool vary(const full_problem&, const resolved_wish&, const variation&, option&);

// Less than any kernel will ever take.
double least_ns(const quern_problem&, const struct machine&, uint32_t threads);

}  // namespace quern
