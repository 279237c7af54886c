// SPDX-License-Identifier: MIT
#include "conv_winograd.h"

// Five taps are 3 + 2: 5x5 takes 121 products for 16 outputs, where F(2x2, 5x5) takes 144.  Fewer channels: more than
// four times the error of a chain of multiply-adds.
using form = quern::winograd_driver::of<4, 3, 0, 4, INT64_MAX, 2>;

QUERN_ALGORITHM(conv_winograd_f43x2,
                .about = "Winograd F(4x4, 3x3) of the quarters of 5x5 or 6x6, or F(4, 3) of halves",
                .drives = kind::gemm_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED},
                .accuracy = QUERN_ACCURACY_F32_FAST, .repeat = QUERN_REPEAT_ISA, .transforms = true,
                .refuses_alike = true, .refuse = form::refuse, .choose_blocks = form::choose_blocks,
                .predict = form::predict, .least_cycles = form::least_cycles, .error_bound = form::error_bound,
                .pack = form::pack, .run = form::run)
