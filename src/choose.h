// SPDX-License-Identifier: MIT
//
// The choice: every pair of an algorithm and a kernel is refused as data or costed, and the cheapest wins.
#pragma once

#include "algorithm.h"
#include "machine.h"

namespace quern {

// A wish with everything looked up, made once a query.
struct resolved_wish {
  quern_wish wish;
  struct machine machine;
  uint64_t runs_isa;  // what the CPU that is asked about can run
  int verbose;
};

struct option {
  const struct algorithm* algorithm;
  const struct kernel* row;
  quern_backend backend;
  int32_t verdict;  // QUERN_USABLE, QUERN_REFUSED or QUERN_UNAVAILABLE
  refusal why;
  blocking blocks;
  struct cost cost;
  quern_layout src_layout, dst_layout;  // the problem's, or those that it is best in
};

// For this device; NULL: the CPU, or the GPU that the wish names.
quern_status resolve(const quern_device*, const quern_wish*, resolved_wish& out, quern_error*);

// The cheapest usable option for a complete problem, over all layouts that it leaves open: `problem` has those of
// the option then.  QUERN_UNSUPPORTED, with the reasons, when there is none.
quern_status choose(quern_problem& problem, const resolved_wish&, option& out, quern_error*);

}  // namespace quern
