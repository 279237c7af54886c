// SPDX-License-Identifier: MIT
//
// The driver of Winograd's forms with products of bf16 parts (split_f32 in kernel.h), three of each f32:
// conv_split_winograd.cpp, conv_split_winograd_cost.cpp.  Every conv_split3_winograd_<form>.cpp makes an algorithm of
// it.
#pragma once

#include "conv_winograd.h"

namespace quern::split_winograd_driver {

using winograd_driver::form;

refusal refuse(const form&, const full_problem&, const kernel&);
blocking choose_blocks(const form&, const full_problem&, const kernel&, const machine&, uint32_t threads);
cost predict(const form&, const full_problem&, const kernel&, const blocking&, const machine&);
double error_bound(const form&, const full_problem&);
void pack(const form&, const job&, int64_t first, int64_t count, const void* weights, char* payload);
void run(const form&, const job&, const execution&);

// What an algorithm's row of functions takes; Form as winograd_driver::of.
template <class Form>
struct of {
  static constexpr const form& f = Form::f;

  static refusal refuse(const full_problem& p, const kernel& row) { return split_winograd_driver::refuse(f, p, row); }
  static blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
    return split_winograd_driver::choose_blocks(f, p, row, m, threads);
  }
  static cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
    return split_winograd_driver::predict(f, p, row, b, m);
  }
  static double error_bound(const full_problem& p) { return split_winograd_driver::error_bound(f, p); }
  static void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
    split_winograd_driver::pack(f, j, first, count, weights, payload);
  }
  static void run(const job& j, const execution& e) { split_winograd_driver::run(f, j, e); }
};

}  // namespace quern::split_winograd_driver
