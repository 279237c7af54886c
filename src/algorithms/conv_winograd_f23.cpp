// SPDX-License-Identifier: MIT
#include "conv_winograd.h"

using form = quern::winograd_driver::of<2, 3>;

QUERN_ALGORITHM(conv_winograd_f23, .about = "Winograd F(2x2, 3x3), or F(2, 3) of one axis", .drives = kind::gemm_f32,
                .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32_FAST,
                .repeat = QUERN_REPEAT_ISA, .transforms = true, .refuses_alike = true, .refuse = form::refuse,
                .choose_blocks = form::choose_blocks, .predict = form::predict, .least_cycles = form::least_cycles,
                .error_bound = form::error_bound, .pack = form::pack, .run = form::run)
