// SPDX-License-Identifier: MIT
//
// f32 depthwise microkernels for AVX2 and FMA where channels lie last; the contract is depthwise_f32 in kernel.h, the
// loop depthwise_last_f32.h.
//
// Two pixels of two lines of two vectors are eight sums, beside which the weights of two rows stay in registers.
#include "depthwise_last_f32.h"
#include "vec_avx2.h"

QUERN_KERNELS(depthwise_last_f32_avx2,
              {.name = "depthwise_last_f32_2x2x16_taps3s1_avx2",
               .about = "3x3, stride 1, channels last",
               .kind = kind::depthwise_f32,
               .isa = QUERN_ISA_AVX2,
               .mr = 2,
               .nr = 16,
               .vector = 8,
               .taps = 3,
               .step = 1,
               .channels_last = true,
               .lines = 2,
               .copy = vec::copy,
               .depthwise = run_depthwise_last<vec, 3, 1>},
              {.name = "depthwise_last_f32_2x2x16_taps3s2_avx2",
               .about = "3x3, stride 2, channels last",
               .kind = kind::depthwise_f32,
               .isa = QUERN_ISA_AVX2,
               .mr = 2,
               .nr = 16,
               .vector = 8,
               .taps = 3,
               .step = 2,
               .channels_last = true,
               .lines = 2,
               .copy = vec::copy,
               .depthwise = run_depthwise_last<vec, 3, 2>})
