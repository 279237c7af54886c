// SPDX-License-Identifier: MIT
//
// Winograd's transforms for NEON; the contracts are winograd_f32 in kernel.h, the algebra winograd.h.
#include "vec_neon.h"
#include "winograd.h"

QUERN_KERNELS(winograd_f32_neon,
              winograd_row<vec, 2, 3>("winograd_f32_f23_neon", "transforms of F(2, 3)", QUERN_ISA_NEON),
              winograd_row<vec, 3, 3>("winograd_f32_f33_neon", "transforms of F(3, 3)", QUERN_ISA_NEON),
              winograd_row<vec, 4, 3>("winograd_f32_f43_neon", "transforms of F(4, 3)", QUERN_ISA_NEON),
              winograd_row<vec, 6, 3>("winograd_f32_f63_neon", "transforms of F(6, 3)", QUERN_ISA_NEON),
              winograd_row<vec, 6, 3, 4>("winograd_f32_f6x43_neon", "transforms of F(6 by 4, 3)", QUERN_ISA_NEON),
              winograd_row<vec, 2, 5>("winograd_f32_f25_neon", "transforms of F(2, 5)", QUERN_ISA_NEON),
              winograd_row<vec, 4, 5>("winograd_f32_f45_neon", "transforms of F(4, 5)", QUERN_ISA_NEON),
              winograd_row<vec, 4, 5, 2>("winograd_f32_f4x25_neon", "transforms of F(4 by 2, 5)", QUERN_ISA_NEON),
              winograd_row<vec, 2, 7>("winograd_f32_f27_neon", "transforms of F(2, 7)", QUERN_ISA_NEON),
              winograd_row<vec, 5, 4>("winograd_f32_f54_neon", "transforms of F(5, 4)", QUERN_ISA_NEON),
              winograd_row<vec, 5, 2>("winograd_f32_f52_neon", "transforms of F(5, 2)", QUERN_ISA_NEON))
