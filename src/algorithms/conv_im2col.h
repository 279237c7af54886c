// SPDX-License-Identifier: MIT
//
// The loops of conv_im2col, which solve a GEMM as well: geometry.h turns it into a pointwise convolution.
#pragma once

#include "algorithm.h"

namespace quern::im2col_driver {

refusal refuse(const full_problem&, const kernel&);
blocking choose_blocks(const full_problem&, const kernel&, const machine&, uint32_t threads);
cost predict(const full_problem&, const kernel&, const blocking&, const machine&);
void pack(const job&, int64_t first, int64_t count, const void* weights, char* payload);
void run(const job&, const execution&);

}  // namespace quern::im2col_driver
