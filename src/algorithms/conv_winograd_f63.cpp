// SPDX-License-Identifier: MIT
#include "conv_winograd.h"

// More channels than 640: a relative error beyond 1e-5.
using form = quern::winograd_driver::of<6, 3, 0, 0, 640>;

QUERN_ALGORITHM(conv_winograd_f63, .about = "Winograd F(6x6, 3x3), or F(6, 3) of one axis", .drives = kind::gemm_f32,
                .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32_LOOSE,
                .repeat = QUERN_REPEAT_ISA, .transforms = true, .refuses_alike = true, .refuse = form::refuse,
                .choose_blocks = form::choose_blocks, .predict = form::predict, .least_cycles = form::least_cycles,
                .error_bound = form::error_bound, .pack = form::pack, .run = form::run)
