// SPDX-License-Identifier: MIT
//
// f32 dot products for NEON; the contract is dot_f32 in kernel.h, the loop dot_f32.h.
#include "dot_f32.h"
#include "vec_neon.h"

QUERN_KERNELS(dot_f32_neon, {.name = "dot_f32_64x3_neon",
                             .about = "channels across the vector, at most 3 outputs",
                             .kind = kind::dot_f32,
                             .isa = QUERN_ISA_NEON,
                             .mr = dot_pixels,
                             .nr = 3,
                             .vector = 4,
                             .tile = dot_sums<vec>,
                             .dot = run_dot<vec, 3>})
