// SPDX-License-Identifier: MIT
//
// A table of tuning results: text, a line for each row, sorted by its first word.
//
//   # quern tuning 1
//   KEY SUM PROBLEM | MACHINE | level=N ms=N | ALGORITHM KERNEL MEDIAN MIN SAMPLES L1 L2 THREADS | ...
//
// KEY is the hash of "PROBLEM | MACHINE", SUM of all that follows it, both 16 hexadecimal digits; times are whole
// nanoseconds, candidates stand in the order of choice.  A row is found by bisection, which needs no index and no
// memory; a damaged line costs its own row.
#pragma once

#include "choose.h"

namespace quern {

inline constexpr char tuning_header[] = "# quern tuning 1\n";
inline constexpr size_t tuning_header_bytes = sizeof tuning_header - 1;

struct tuned_candidate {
  const char *algorithm, *kernel;  // not terminated
  uint32_t algorithm_length, kernel_length;
  uint64_t median_ns, min_ns, samples;
  variation as;
};

inline constexpr int most_tuned = 96;  // candidates of a row: more than any problem has that are usable

// A row as it was read, or to be written.
struct tuned_row {
  int32_t level;
  uint64_t ms;  // the budget that cut the tuning short, 0: it came to its end
  int count;
  tuned_candidate candidate[most_tuned];
};

inline constexpr size_t most_key = 2600, most_line = most_key + 100 + most_tuned * 200;

// "PROBLEM | MACHINE", what a row is for: the machine with its threads, the kernels of this build, and, for rows of
// wishes that leave candidates out, the hash of those wishes.  Returns its length, 0: none that a row can have.
size_t tuning_key(const quern_problem&, const resolved_wish&, bool demands, char out[most_key]);

// Whether the wish leaves out candidates by more than what the problem says.
bool has_demands(const quern_wish&);

// The row in the wish's table for these demands, else the one for none.
bool find_tuned(const quern_problem&, const resolved_wish&, tuned_row& out);
// ... for this very key.
bool find_tuned(const void* table, size_t bytes, const char* key, size_t key_length, tuned_row& out);

// Whether a candidate is of the algorithm, with the kernel.
bool is_of(const tuned_candidate&, const algorithm&);
bool is_of(const tuned_candidate&, const kernel&);

// The candidate in a row, NULL: not measured.
const tuned_candidate* find_candidate(const tuned_row&, const algorithm&, const kernel&);

// A table of this one row, at most most_line + tuning_header_bytes; returns its length.
size_t print_tuned(const char* key, size_t key_length, const tuned_row&, char* out);

}  // namespace quern
