// SPDX-License-Identifier: MIT
#include "conv_split_winograd.h"

using form = quern::split_winograd_driver::of<quern::winograd_driver::of<2, 3>>;

QUERN_ALGORITHM(conv_split3_winograd_f23,
                .about = "Winograd F(2x2, 3x3), or F(2, 3) of one axis; f32 as three parts of bf16",
                .drives = kind::split_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED},
                .accuracy = QUERN_ACCURACY_F32_FAST, .repeat = QUERN_REPEAT_BATCH, .transforms = true, .splits = true,
                .refuses_alike = true, .refuse = form::refuse, .choose_blocks = form::choose_blocks,
                .predict = form::predict, .error_bound = form::error_bound, .pack = form::pack, .run = form::run)
