// SPDX-License-Identifier: MIT
#include "conv_split.h"

using parts = quern::split_driver::of<2>;

QUERN_ALGORITHM(gemm_split2, .about = "GEMM, f32 as two parts of bf16: three products", .drives = kind::split_f32,
                .op = {QUERN_GEMM}, .accuracy = QUERN_ACCURACY_F32_LOOSE, .repeat = QUERN_REPEAT_BATCH, .splits = true,
                .refuse = parts::refuse, .choose_blocks = parts::choose_blocks, .predict = parts::predict,
                .error_bound = parts::error_bound, .pack = parts::pack, .run = parts::run)
