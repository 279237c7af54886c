// SPDX-License-Identifier: MIT
#include "conv_split_winograd.h"

// Parts round so little that this is within the class, unlike by multiply-adds.  Of fewer channels: more than four
// times the error of a chain of those.
using form = quern::split_winograd_driver::of<quern::winograd_driver::of<6, 3, 16, 128>>;

QUERN_ALGORITHM(conv_split3_winograd_f63,
                .about = "Winograd F(6x6, 3x3), or F(6, 3) of one axis; f32 as three parts of bf16",
                .drives = kind::split_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED},
                .accuracy = QUERN_ACCURACY_F32_FAST, .repeat = QUERN_REPEAT_BATCH, .transforms = true, .splits = true,
                .refuses_alike = true, .refuse = form::refuse, .choose_blocks = form::choose_blocks,
                .predict = form::predict, .error_bound = form::error_bound, .pack = form::pack, .run = form::run)
