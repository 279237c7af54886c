// SPDX-License-Identifier: MIT
//
// Winograd along x for few channels, for AVX2 and FMA; the contract is winograd_line_f32 in kernel.h, the algebra
// winograd_line_f32.h.  24 sums are two halves in registers, of 6 tiles by 2 vectors, beside weights and a pixel.
#include "vec_avx2.h"
#include "winograd_line_f32.h"

QUERN_KERNELS(winograd_line_f32_avx2,
              winograd_line_row<vec, 4, 3>("winograd_line_f32_f43_avx2", "F(4, 3) along x", QUERN_ISA_AVX2),
              winograd_line_row<vec, 4, 4>("winograd_line_f32_f44_avx2", "F(4, 4) along x; 7 and 8 taps at stride 2",
                                           QUERN_ISA_AVX2),
              winograd_line_row<vec, 4, 5>("winograd_line_f32_f45_avx2", "F(4, 5) along x", QUERN_ISA_AVX2))
