// SPDX-License-Identifier: MIT
//
// Winograd along x for few channels, for AVX-512; the contract is winograd_line_f32 in kernel.h, the algebra
// winograd_line_f32.h.  24 sums, of 6 tiles by 4 vectors or 12 by 2, beside weights and a pixel; with 28, those of
// eight points push out of L1 what they are made of.
#include "vec_avx512.h"
#include "winograd_line_f32.h"
#include "winograd_line_few_f32.h"
#include "winograd_line_s2_f32.h"

QUERN_KERNELS(winograd_line_f32_avx512,
              winograd_line_row<vec, 4, 3>("winograd_line_f32_f43_avx512", "F(4, 3) along x", QUERN_ISA_AVX512),
              winograd_line_row<vec, 4, 4>("winograd_line_f32_f44_avx512", "F(4, 4) along x; 7 and 8 taps at stride 2",
                                           QUERN_ISA_AVX512),
              winograd_line_row<vec, 4, 5>("winograd_line_f32_f45_avx512", "F(4, 5) along x", QUERN_ISA_AVX512),
              winograd_line_few_row<vec, 4, 3>("winograd_line_f32_f43_few_avx512", "F(4, 3) along x, sums of few steps",
                                               QUERN_ISA_AVX512),
              winograd_line_few_row<vec, 4, 5>("winograd_line_f32_f45_few_avx512", "F(4, 5) along x, sums of few steps",
                                               QUERN_ISA_AVX512),
              winograd_line_s2_row<vec>("winograd_line_f32_s2_avx512", "3 taps at stride 2: two by F(2, 2)",
                                        QUERN_ISA_AVX512))
