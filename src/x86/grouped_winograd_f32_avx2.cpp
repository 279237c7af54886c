// SPDX-License-Identifier: MIT
//
// f32 grouped convolution by Winograd for AVX2 and FMA; the contract and the loop are grouped_winograd_f32.h.
//
// F(4, 3): 10 sums of a point, three weights and what is spread of a pixel; with 12 the compiler spills.
#include "group_lanes_avx2.h"
#include "grouped_winograd_f32.h"

QUERN_KERNELS(grouped_winograd_f32_avx2,
              {.name = "grouped_winograd_f32_c4_f43_avx2",
               .about = "4 channels a group, F(4, 3) down the lines",
               .kind = kind::grouped_winograd_f32,
               .isa = QUERN_ISA_AVX2,
               .mr = 10,
               .nr = 8,
               .vector = 8,
               .taps = 3,
               .step = 1,
               .group = 4,
               .lines = 4,
               .tile = 4,
               .grouped = run_grouped_winograd_by_points<vec, lanes, 4, 4, 7, 10>},
              {.name = "grouped_winograd_f32_c8_f43_avx2",
               .about = "8 channels a group, F(4, 3) down the lines",
               .kind = kind::grouped_winograd_f32,
               .isa = QUERN_ISA_AVX2,
               .mr = 10,
               .nr = 8,
               .vector = 8,
               .taps = 3,
               .step = 1,
               .group = 8,
               .lines = 4,
               .tile = 4,
               .grouped = run_grouped_winograd_by_points<vec, lanes, 8, 4, 7, 10>})
