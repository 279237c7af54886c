// SPDX-License-Identifier: MIT
//
// Winograd's transforms for AVX-512; the contracts are winograd_f32 in kernel.h, the algebra winograd.h.
#include "vec_avx512.h"
#include "winograd.h"

QUERN_KERNELS(winograd_f32_avx512,
              winograd_row<vec, 2, 3>("winograd_f32_f23_avx512", "transforms of F(2, 3)", QUERN_ISA_AVX512),
              winograd_row<vec, 3, 3>("winograd_f32_f33_avx512", "transforms of F(3, 3)", QUERN_ISA_AVX512),
              winograd_row<vec, 4, 3>("winograd_f32_f43_avx512", "transforms of F(4, 3)", QUERN_ISA_AVX512),
              winograd_row<vec, 6, 3>("winograd_f32_f63_avx512", "transforms of F(6, 3)", QUERN_ISA_AVX512),
              winograd_row<vec, 6, 3, 4>("winograd_f32_f6x43_avx512", "transforms of F(6 by 4, 3)", QUERN_ISA_AVX512),
              winograd_row<vec, 2, 5>("winograd_f32_f25_avx512", "transforms of F(2, 5)", QUERN_ISA_AVX512),
              winograd_row<vec, 4, 5>("winograd_f32_f45_avx512", "transforms of F(4, 5)", QUERN_ISA_AVX512),
              winograd_row<vec, 4, 5, 2>("winograd_f32_f4x25_avx512", "transforms of F(4 by 2, 5)", QUERN_ISA_AVX512),
              winograd_row<vec, 2, 7>("winograd_f32_f27_avx512", "transforms of F(2, 7)", QUERN_ISA_AVX512),
              winograd_row<vec, 5, 4>("winograd_f32_f54_avx512", "transforms of F(5, 4)", QUERN_ISA_AVX512),
              winograd_row<vec, 5, 2>("winograd_f32_f52_avx512", "transforms of F(5, 2)", QUERN_ISA_AVX512))
