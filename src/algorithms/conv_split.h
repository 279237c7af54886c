// SPDX-License-Identifier: MIT
//
// The driver of f32 by products of bf16 parts: conv_split.cpp, conv_split_cost.cpp.  conv_split2.cpp and the like make
// algorithms of it, of three parts and six products, and of two parts and three.
#pragma once

#include "algorithm.h"

namespace quern::split_driver {

enum word { bands, columns, block_panels, blocks, chunk, flat, line, weights_pass };  // of blocking.word

refusal refuse(const full_problem&, const kernel&, int parts);
blocking choose_blocks(const full_problem&, const kernel&, const machine&, uint32_t threads, int parts);
cost predict(const full_problem&, const kernel&, const blocking&, const machine&, int parts);
double error_bound(const full_problem&, int parts);
void pack(const job&, int64_t first, int64_t count, const void* weights, char* payload, int parts);
void run(const job&, const execution&, int parts);

// What an algorithm's row of functions takes.
template <int PARTS>
struct of {
  static refusal refuse(const full_problem& p, const kernel& row) { return split_driver::refuse(p, row, PARTS); }
  static blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
    return split_driver::choose_blocks(p, row, m, threads, PARTS);
  }
  static cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
    return split_driver::predict(p, row, b, m, PARTS);
  }
  static double error_bound(const full_problem& p) { return split_driver::error_bound(p, PARTS); }
  static void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
    split_driver::pack(j, first, count, weights, payload, PARTS);
  }
  static void run(const job& j, const execution& e) { split_driver::run(j, e, PARTS); }
};

}  // namespace quern::split_driver
