// SPDX-License-Identifier: MIT
//
// f32 elementwise operators for AVX2 and FMA; the contract is elementwise_f32 in kernel.h, the loops elementwise_f32.h.
#include "elementwise_f32.h"
#include "vec_avx2.h"

QUERN_KERNELS(elementwise_f32_avx2, {.name = "elementwise_f32_avx2",
                                     .about = "one element, or two, and the epilogue in one pass",
                                     .kind = kind::elementwise_f32,
                                     .isa = QUERN_ISA_AVX2,
                                     .vector = 8,
                                     .copy = vec::copy,
                                     .elementwise = run_elementwise<vec>})
