// SPDX-License-Identifier: MIT
//
// f32 grouped convolution on planes by Winograd for AVX-512; the contract and the loop are
// grouped_planes_winograd_f32.h.
//
// F(4, 3): 4 output channels of 6 points, and a vector of pixels.
#include "grouped_planes_winograd_f32.h"
#include "vec_avx512_half.h"

QUERN_KERNELS(grouped_planes_winograd_f32_avx512, {.name = "grouped_planes_winograd_f32_4x16_f43_avx512",
                                                   .about = "planes of groups, F(4, 3) down the lines",
                                                   .kind = kind::grouped_planes_winograd_f32,
                                                   .isa = QUERN_ISA_AVX512,
                                                   .mr = 4,
                                                   .nr = 16,
                                                   .vector = 16,
                                                   .taps = 3,
                                                   .step = 1,
                                                   .lines = 4,
                                                   .tile = 4,
                                                   .grouped = run_planes_winograd<vec, half_vec, 4, 4>,
                                                   .winograd_input = {transform_lines<vec, half_vec, 4>}})
