// SPDX-License-Identifier: MIT
//
// f32 dot products for AVX-512; the contract is dot_f32 in kernel.h, the loop dot_f32.h.
#include "dot_f32.h"
#include "vec_avx512.h"

QUERN_KERNELS(dot_f32_avx512, {.name = "dot_f32_64x4_avx512",
                               .about = "channels across the vector, at most 4 outputs",
                               .kind = kind::dot_f32,
                               .isa = QUERN_ISA_AVX512,
                               .mr = dot_pixels,
                               .nr = 4,
                               .vector = 16,
                               .tile = dot_sums<vec>,
                               .dot = run_dot<vec, 4>})
