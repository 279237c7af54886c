// SPDX-License-Identifier: MIT
//
// f32 elementwise operators for NEON; the contract is elementwise_f32 in kernel.h, the loops elementwise_f32.h.
#include "elementwise_f32.h"
#include "vec_neon.h"

QUERN_KERNELS(elementwise_f32_neon, {.name = "elementwise_f32_neon",
                                     .about = "one element, or two, and the epilogue in one pass",
                                     .kind = kind::elementwise_f32,
                                     .isa = QUERN_ISA_NEON,
                                     .vector = 4,
                                     .copy = vec::copy,
                                     .elementwise = run_elementwise<vec>})
