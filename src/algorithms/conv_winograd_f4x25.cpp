// SPDX-License-Identifier: MIT
#include "conv_winograd.h"

// Two thirds of F(2x2, 5x5)'s products, and of lines F(4, 5)'s, while still within the class.  Of fewer channels: more
// than four times the error of a chain of multiply-adds.
using form = quern::winograd_driver::of<4, 5, 16, 16, INT64_MAX, 1, 2>;

QUERN_ALGORITHM(conv_winograd_f4x25, .about = "Winograd F(2x4, 5x5), or F(4, 5) of one axis", .drives = kind::gemm_f32,
                .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32_FAST,
                .repeat = QUERN_REPEAT_ISA, .transforms = true, .refuses_alike = true, .refuse = form::refuse,
                .choose_blocks = form::choose_blocks, .predict = form::predict, .least_cycles = form::least_cycles,
                .error_bound = form::error_bound, .pack = form::pack, .run = form::run)
