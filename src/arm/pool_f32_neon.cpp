// SPDX-License-Identifier: MIT
//
// f32 pooling for NEON; the contract is pool_f32 in kernel.h, the loops pool_f32.h.
#include "pool_f32.h"
#include "vec_neon.h"

QUERN_KERNELS(pool_f32_neon, {.name = "pool_f32_neon",
                              .about = "windows of lines, by vectors of channels or of pixels",
                              .kind = kind::pool_f32,
                              .isa = QUERN_ISA_NEON,
                              .vector = 4,
                              .copy = vec::copy,
                              .pool = run_pool<vec>})
