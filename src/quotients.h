// SPDX-License-Identifier: MIT
//
// Counting taps of strided windows without walking over them.
#pragma once

#include <stdint.h>

#include <utility>

namespace quern {

// The sum over i < n of (a * i + b) / m, rounded down each, by Euclid's algorithm on (a, m), where a * n + b and
// the sum are below 2^64: the terms of the sum need not be.
inline uint64_t sum_of_quotients(uint64_t n, uint64_t m, uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  while (n > 0) {
    const uint64_t pairs = n % 2 ? (n - 1) / 2 * n : n / 2 * (n - 1);
    sum += pairs * (a / m) + n * (b / m);
    a %= m, b %= m;
    const uint64_t top = a * n + b;
    n = top / m, b = top % m;
    std::swap(a, m);
  }
  return sum;
}

// How many i < n have a residue (a * i + b) mod m below `limit`, which is at most m.
inline int64_t count_residues(uint64_t n, uint64_t m, uint64_t a, uint64_t b, uint64_t limit) {
  return static_cast<int64_t>(n + sum_of_quotients(n, m, a, b) - sum_of_quotients(n, m, a, b + m - limit));
}

}  // namespace quern
