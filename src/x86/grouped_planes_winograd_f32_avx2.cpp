// SPDX-License-Identifier: MIT
//
// f32 grouped convolution on planes by Winograd for AVX2 and FMA; the contract and the loop are
// grouped_planes_winograd_f32.h.
//
// F(4, 3): 2 output channels of 6 points, and a vector of pixels.
#include "grouped_planes_winograd_f32.h"
#include "vec_avx2.h"

QUERN_KERNELS(grouped_planes_winograd_f32_avx2, {.name = "grouped_planes_winograd_f32_2x8_f43_avx2",
                                                 .about = "planes of groups, F(4, 3) down the lines",
                                                 .kind = kind::grouped_planes_winograd_f32,
                                                 .isa = QUERN_ISA_AVX2,
                                                 .mr = 2,
                                                 .nr = 8,
                                                 .vector = 8,
                                                 .taps = 3,
                                                 .step = 1,
                                                 .lines = 4,
                                                 .tile = 4,
                                                 .grouped = run_planes_winograd<vec, vec, 4, 2>,
                                                 .winograd_input = {transform_lines<vec, vec, 4>}})
