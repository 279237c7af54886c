// SPDX-License-Identifier: MIT
#include "conv_winograd.h"

// Seven taps are 4 + 3: 16 products for 5 outputs, where F(2, 7) takes 20.  No squares: errors of both axes multiply.
using form = quern::winograd_driver::of<5, 4, 4, 0, 0, 2>;

QUERN_ALGORITHM(conv_winograd_f54x2, .about = "Winograd F(5, 4) of both halves of 7 or 8 taps along one axis",
                .drives = kind::gemm_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED},
                .accuracy = QUERN_ACCURACY_F32_FAST, .repeat = QUERN_REPEAT_ISA, .transforms = true,
                .refuses_alike = true, .refuse = form::refuse, .choose_blocks = form::choose_blocks,
                .predict = form::predict, .least_cycles = form::least_cycles, .error_bound = form::error_bound,
                .pack = form::pack, .run = form::run)
