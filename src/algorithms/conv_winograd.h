// SPDX-License-Identifier: MIT
//
// The driver of Winograd's forms, of which every conv_winograd_<form>.cpp makes an algorithm: F(m x m, r x r) of
// square filters, or F(my x m, r x r) with fewer outputs along y, and F(m, r) of filters that are r long along one axis
// and one along the other.  At stride 2 an axis is two interleaved images, of which each meets every other tap: filters
// 2 r and 2 r - 1 long.  Forms in two parts take such filters at stride 1: half of the taps are a part, and products
// are summed in the same way.
#pragma once

#include <algorithm>

#include "algorithm.h"
#include "winograd_points.h"

namespace quern::winograd_driver {

// G of winograd_matrices, which packing takes: all of them that is left when the library runs.
struct weight_transform {
  int m, r, a;
  double g[most_points][most_taps];
};
template <int M, int R>
inline constexpr weight_transform transform_of = [] {
  const winograd_matrices w(M, R);
  weight_transform t = {w.m, w.r, w.a, {}};
  for (int i = 0; i < w.a; ++i)
    for (int k = 0; k < w.r; ++k) t.g[i][k] = w.g[i][k];
  return t;
}();

struct form {
  const weight_transform* axis[2];  // along y and x; a line takes the latter
  int r;
  double growth[2];  // of rounding errors along them
  // Input channels of a group with which lines and squares keep to the error class; the most, over all parts.
  int64_t least_line, least_square, most_square;
  int parts;  // of taps, along an axis
};

refusal refuse(const form&, const full_problem&, const kernel&);
blocking choose_blocks(const form&, const full_problem&, const kernel&, const machine&, uint32_t threads);
cost predict(const full_problem&, const kernel&, const blocking&, const machine&);
double least_cycles(const form&, const full_problem&, const kernel&, const machine&);
double error_bound(const form&, const full_problem&);
void pack(const form&, const job&, int64_t first, int64_t count, const void* weights, char* payload);
void run(const form&, const job&, const execution&);

// The largest, over outputs, of the sum over points of |A^T| times the largest of |G| times the row sum of |B^T|, where
// inputs that follow from others count as what they are made of.  Of tiles with all outputs, and with fewer.
constexpr double growth_of(const winograd_matrices& w) {
  constexpr auto magnitude = [](double x) { return x < 0 ? -x : x; };
  double most = 0;
  for (int outputs = 1; outputs <= w.m; ++outputs) {
    const int n = points_for(w.a, outputs + w.r - 1);
    const monic p = recurrence(w.a, n);
    double input[most_points] = {};
    for (int k = 0; k < w.a; ++k) {
      input[k] = k < n;
      for (int j = 0; k >= n && j < n; ++j) input[k] += magnitude(p.at[j]) * input[k - n + j];
    }
    for (int y = 0; y < outputs; ++y) {
      double sum = 0;
      for (int i = 0; i < w.a; ++i) {
        double g = 0, b = 0;
        for (int k = 0; k < w.r; ++k) g = std::max(g, magnitude(w.g[i][k]));
        for (int k = 0; k < w.a; ++k) b += magnitude(w.bt[i][k]) * input[k];
        sum += is_kept(w.a, n, i) ? magnitude(w.at[y][i]) * g * b : 0;
      }
      most = std::max(most, sum);
    }
  }
  return most;
}

// What an algorithm's row of functions takes.
template <int M, int R, int64_t LEAST_LINE = 0, int64_t LEAST_SQUARE = 0, int64_t MOST_SQUARE = INT64_MAX,
          int PARTS = 1, int MY = M>
struct of {
  static constexpr form f = {{&transform_of<MY, R>, &transform_of<M, R>},
                             R,
                             {growth_of({MY, R}), growth_of({M, R})},
                             LEAST_LINE,
                             LEAST_SQUARE,
                             MOST_SQUARE,
                             PARTS};

  static refusal refuse(const full_problem& p, const kernel& row) { return winograd_driver::refuse(f, p, row); }
  static blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
    return winograd_driver::choose_blocks(f, p, row, m, threads);
  }
  static cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
    return winograd_driver::predict(p, row, b, m);
  }
  static double least_cycles(const full_problem& p, const kernel& row, const machine& m) {
    return winograd_driver::least_cycles(f, p, row, m);
  }
  static double error_bound(const full_problem& p) { return winograd_driver::error_bound(f, p); }
  static void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
    winograd_driver::pack(f, j, first, count, weights, payload);
  }
  static void run(const job& j, const execution& e) { winograd_driver::run(f, j, e); }
};

}  // namespace quern::winograd_driver
