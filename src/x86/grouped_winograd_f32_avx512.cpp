// SPDX-License-Identifier: MIT
//
// f32 grouped convolution by Winograd for AVX-512; the contract and the loop are grouped_winograd_f32.h.
//
// F(4, 3): 18 sums, 6 points, and what is spread of one; of 16 channels 14 sums of one point.
#include "group_lanes_avx512.h"
#include "grouped_winograd_f32.h"

QUERN_KERNELS(grouped_winograd_f32_avx512,
              {.name = "grouped_winograd_f32_c4_f43_avx512",
               .about = "4 channels a group, F(4, 3) down the lines",
               .kind = kind::grouped_winograd_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 56,
               .nr = 16,
               .vector = 16,
               .taps = 3,
               .step = 1,
               .group = 4,
               .lines = 4,
               .tile = 4,
               .grouped = run_grouped_winograd<vec, lanes, 4, 4, 56>},
              {.name = "grouped_winograd_f32_c8_f43_avx512",
               .about = "8 channels a group, F(4, 3) down the lines",
               .kind = kind::grouped_winograd_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 56,
               .nr = 16,
               .vector = 16,
               .taps = 3,
               .step = 1,
               .group = 8,
               .lines = 4,
               .tile = 4,
               .grouped = run_grouped_winograd<vec, lanes, 8, 4, 56>},
              {.name = "grouped_winograd_f32_c16_f43_avx512",
               .about = "16 channels a group, F(4, 3) down the lines",
               .kind = kind::grouped_winograd_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 14,
               .nr = 16,
               .vector = 16,
               .taps = 3,
               .step = 1,
               .group = 16,
               .lines = 4,
               .tile = 4,
               .grouped = run_grouped_winograd_by_points<vec, lanes, 16, 4, 7, 14>})
