// SPDX-License-Identifier: MIT
//
// f32 elementwise operators for AVX-512; the contract is elementwise_f32 in kernel.h, the loops elementwise_f32.h.
#include "elementwise_f32.h"
#include "vec_avx512.h"

QUERN_KERNELS(elementwise_f32_avx512, {.name = "elementwise_f32_avx512",
                                       .about = "one element, or two, and the epilogue in one pass",
                                       .kind = kind::elementwise_f32,
                                       .isa = QUERN_ISA_AVX512,
                                       .vector = 16,
                                       .copy = vec::copy,
                                       .elementwise = run_elementwise<vec>})
