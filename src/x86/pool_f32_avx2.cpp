// SPDX-License-Identifier: MIT
//
// f32 pooling for AVX2; the contract is pool_f32 in kernel.h, the loops pool_f32.h.
#include "pool_f32.h"
#include "vec_avx2.h"

QUERN_KERNELS(pool_f32_avx2, {.name = "pool_f32_avx2",
                              .about = "windows of lines, by vectors of channels or of pixels",
                              .kind = kind::pool_f32,
                              .isa = QUERN_ISA_AVX2,
                              .vector = 8,
                              .copy = vec::copy,
                              .pool = run_pool<vec>})
