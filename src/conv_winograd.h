// SPDX-License-Identifier: MIT
//
// The driver of Winograd's forms, of which every conv_winograd_<form>.cpp makes an algorithm: F(m x m, r x r) of
// square filters, and F(m, r) of filters that are r long along one axis and one along the other.  At stride 2 an axis
// is two interleaved images, of which each meets every other tap: filters 2 r and 2 r - 1 long.
#pragma once

#include <algorithm>

#include "algorithm.h"
#include "winograd_points.h"

namespace quern::winograd_driver {

struct form {
  const winograd_matrices& matrices;
  int m, r;
  double growth;  // of rounding errors, along one axis
  // Input channels of a group with which lines and squares keep to the error class; the most, over all parts.
  int64_t least_line, least_square, most_square;
};

refusal refuse(const form&, const full_problem&, const kernel&);
blocking choose_blocks(const form&, const full_problem&, const kernel&, const machine&, uint32_t threads);
cost predict(const full_problem&, const kernel&, const blocking&, const machine&);
double error_bound(const form&, const full_problem&);
void pack(const form&, const job&, int64_t first, int64_t count, const void* weights, char* payload);
void run(const form&, const job&, const execution&);

// The largest, over outputs, of the sum over points of |A^T| times the largest of |G| times the row sum of |B^T|.
constexpr double growth_of(const winograd_matrices& w) {
  double most = 0;
  for (int y = 0; y < w.m; ++y) {
    double sum = 0;
    for (int i = 0; i < w.a; ++i) {
      double g = 0, b = 0;
      for (int k = 0; k < w.r; ++k) g = std::max(g, w.g[i][k] < 0 ? -w.g[i][k] : w.g[i][k]);
      for (int k = 0; k < w.a; ++k) b += w.bt[i][k] < 0 ? -w.bt[i][k] : w.bt[i][k];
      sum += (w.at[y][i] < 0 ? -w.at[y][i] : w.at[y][i]) * g * b;
    }
    most = std::max(most, sum);
  }
  return most;
}

// What an algorithm's row of functions takes.
template <int M, int R, int64_t LEAST_LINE = 0, int64_t LEAST_SQUARE = 0, int64_t MOST_SQUARE = INT64_MAX>
struct of {
  static constexpr winograd_matrices matrices{M, R};
  static constexpr form f = {matrices, M, R, growth_of(matrices), LEAST_LINE, LEAST_SQUARE, MOST_SQUARE};

  static refusal refuse(const full_problem& p, const kernel& row) { return winograd_driver::refuse(f, p, row); }
  static blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
    return winograd_driver::choose_blocks(f, p, row, m, threads);
  }
  static cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
    return winograd_driver::predict(p, row, b, m);
  }
  static double error_bound(const full_problem& p) { return winograd_driver::error_bound(f, p); }
  static void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
    winograd_driver::pack(f, j, first, count, weights, payload);
  }
  static void run(const job& j, const execution& e) { winograd_driver::run(f, j, e); }
};

}  // namespace quern::winograd_driver
