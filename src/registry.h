// SPDX-License-Identifier: MIT
//
// The two tables that the build writes: kernels and algorithms.
#pragma once

#include "algorithm.h"

namespace quern {

// The rows of one file, all of one kind; all files are every row once.
struct kernel_file {
  const kernel_list* list;
  quern_backend backend;
};
const kernel_file* kernel_files(size_t& count);
constexpr size_t most_files = 127;

size_t kernel_count();
const kernel& kernel_at(size_t index);
quern_backend backend_of(size_t index);  // of that kernel: its folder
const char* kind_name(kind);

size_t algorithm_count();
const algorithm& algorithm_at(size_t index);

bool solves(const algorithm&, quern_op op);

// Whether a row of the kind that `algorithm` drives serves it for the operator.
inline bool serves(const kernel& row, const algorithm& a, quern_op op) {
  return (row.op.bits == 0 || row.op.has(op)) && (!a.transforms || row.winograd);
}

// Whether `algorithm` solves `op` with `row`: same kind, and a row that serves the operator.
bool pairs(const algorithm&, const kernel& row, quern_op op);

}  // namespace quern
