// SPDX-License-Identifier: MIT
//
// The CPU as the choice and the cost models see it.
#pragma once

#include <quern/quern.h>

namespace quern {

struct machine {
  uint64_t isa;
  uint64_t l1, l2, l3;  // bytes, never zero: what is unknown is assumed small
  uint32_t cores;
};

// What this CPU has, found once and lock-free; not capped by the environment.
quern_cpu this_cpu();
machine machine_of(const quern_cpu&);

}  // namespace quern
