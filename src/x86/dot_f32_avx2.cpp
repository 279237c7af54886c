// SPDX-License-Identifier: MIT
//
// f32 dot products for AVX2 and FMA; the contract is dot_f32 in kernel.h, the loop dot_f32.h.
#include "dot_f32.h"
#include "vec_avx2.h"

QUERN_KERNELS(dot_f32_avx2, {.name = "dot_f32_64x3_avx2",
                             .about = "channels across the vector, at most 3 outputs",
                             .kind = kind::dot_f32,
                             .isa = QUERN_ISA_AVX2,
                             .mr = dot_pixels,
                             .nr = 3,
                             .vector = 8,
                             .tile = dot_sums<vec>,
                             .dot = run_dot<vec, 3>})
