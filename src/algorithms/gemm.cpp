// SPDX-License-Identifier: MIT
//
// GEMM: a pointwise convolution whose pixels are the rows of A (geometry.h), so the loops of conv_im2col,
// which read A where it lies when its rows are contiguous, and turn the product over when C's columns are.
#include "conv_im2col.h"
#include "driver.h"

QUERN_ALGORITHM(gemm, .about = "packed GEMM, blocked for L2 (Goto and van de Geijn 2008)", .drives = kind::gemm_f32,
                .op = {QUERN_GEMM}, .accuracy = QUERN_ACCURACY_F32, .repeat = QUERN_REPEAT_ISA, .refuses_alike = true,
                .refuse = im2col_driver::refuse, .choose_blocks = im2col_driver::choose_blocks,
                .predict = im2col_driver::predict, .least_cycles = least_by_pixels, .error_bound = chain_bound,
                .pack = im2col_driver::pack, .run = im2col_driver::run)
