// SPDX-License-Identifier: MIT
//
// The rows of a kind, for tests and benches.
#pragma once

#include <quern/quern.h>

#include <vector>

#include "registry.h"

namespace quern::test {

inline std::vector<const kernel*> rows_of(kind k) {
  std::vector<const kernel*> rows;
  for (size_t i = 0; i < kernel_count(); ++i)
    if (kernel_at(i).kind == k) rows.push_back(&kernel_at(i));
  return rows;
}

// The instruction sets that a row needs and this CPU lacks.
inline uint64_t missing_here(const kernel& row) {
  quern_cpu cpu = {};
  cpu.size = sizeof cpu;
  return quern_cpu_get(&cpu, nullptr) == QUERN_OK ? row.isa & ~cpu.isa : row.isa;
}

}  // namespace quern::test
