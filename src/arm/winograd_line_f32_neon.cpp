// SPDX-License-Identifier: MIT
//
// Winograd along x for few channels, for NEON; the contract is winograd_line_f32 in kernel.h, the algebra
// winograd_line_f32.h.
#include "vec_neon.h"
#include "winograd_line_f32.h"

QUERN_KERNELS(winograd_line_f32_neon,
              winograd_line_row<vec, 4, 3>("winograd_line_f32_f43_neon", "F(4, 3) along x", QUERN_ISA_NEON),
              winograd_line_row<vec, 4, 4>("winograd_line_f32_f44_neon", "F(4, 4) along x; 7 and 8 taps at stride 2",
                                           QUERN_ISA_NEON),
              winograd_line_row<vec, 4, 5>("winograd_line_f32_f45_neon", "F(4, 5) along x", QUERN_ISA_NEON))
