// SPDX-License-Identifier: MIT
#include "conv_winograd.h"

// Half of F(6x6, 3x3)'s gain over F(4x4, 3x3), and of lines all of it, while still within the class.  Of fewer
// channels: more than four times the error of a chain of multiply-adds.
using form = quern::winograd_driver::of<6, 3, 16, 64, INT64_MAX, 1, 4>;

QUERN_ALGORITHM(conv_winograd_f6x43, .about = "Winograd F(4x6, 3x3), or F(6, 3) of one axis", .drives = kind::gemm_f32,
                .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32_FAST,
                .repeat = QUERN_REPEAT_ISA, .transforms = true, .refuses_alike = true, .refuse = form::refuse,
                .choose_blocks = form::choose_blocks, .predict = form::predict, .least_cycles = form::least_cycles,
                .error_bound = form::error_bound, .pack = form::pack, .run = form::run)
