// SPDX-License-Identifier: MIT
//
// Families of operators.
#pragma once

#include <quern/quern.h>

namespace quern {

constexpr bool is_conv(quern_op op) { return op == QUERN_CONV || op == QUERN_CONV_TRANSPOSED; }
constexpr bool multiplies(quern_op op) { return op <= QUERN_GEMM; }
constexpr bool is_pooling(quern_op op) { return op >= QUERN_POOL_MAX && op <= QUERN_POOL_AVG_PADDED; }
constexpr bool is_reduction(quern_op op) { return op >= QUERN_REDUCE_SUM && op <= QUERN_REDUCE_SUM_SQUARE; }
constexpr bool is_norm(quern_op op) { return op == QUERN_NORM || op == QUERN_RMS_NORM; }
constexpr bool is_softmax(quern_op op) { return op == QUERN_SOFTMAX || op == QUERN_LOG_SOFTMAX; }
constexpr bool has_axes(quern_op op) { return op >= QUERN_REDUCE_SUM && op <= QUERN_LOG_SOFTMAX; }
constexpr bool is_elementwise(quern_op op) { return op >= QUERN_UNARY && op <= QUERN_MIN; }
constexpr bool has_weights(quern_op op) { return multiplies(op) || op > QUERN_UNARY; }
constexpr bool has_window(quern_op op) { return is_conv(op) || is_pooling(op); }

}  // namespace quern
