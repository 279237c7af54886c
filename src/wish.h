// SPDX-License-Identifier: MIT
//
// What a caller allows: a quern_wish with its names and its machine looked up.
#pragma once

#include "algorithm.h"
#include "machine.h"

namespace quern {

// A wish with everything looked up, made once a query.
struct resolved_wish {
  quern_wish wish;
  struct machine machine;
  uint64_t runs_isa;  // what the CPU that is asked about can run
  uint64_t withheld_isa;
  int verbose;
};

// For this device; NULL: the CPU, or the GPU that the wish names.
quern_status resolve(const quern_device*, const quern_wish*, resolved_wish& out, quern_error*);

// By name, algorithm, kernel or property.
refusal ruled_out(const algorithm&, const kernel&, const quern_wish&);

}  // namespace quern
