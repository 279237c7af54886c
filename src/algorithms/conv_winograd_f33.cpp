// SPDX-License-Identifier: MIT
#include "conv_winograd.h"

// Five points suffice for three outputs, which divide images that four do not.  Fewer channels: more than four times
// the error of a chain of multiply-adds.
using form = quern::winograd_driver::of<3, 3, 0, 4>;

QUERN_ALGORITHM(conv_winograd_f33, .about = "Winograd F(3x3, 3x3), or F(3, 3) of one axis", .drives = kind::gemm_f32,
                .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32_FAST,
                .repeat = QUERN_REPEAT_ISA, .transforms = true, .refuses_alike = true, .refuse = form::refuse,
                .choose_blocks = form::choose_blocks, .predict = form::predict, .least_cycles = form::least_cycles,
                .error_bound = form::error_bound, .pack = form::pack, .run = form::run)
