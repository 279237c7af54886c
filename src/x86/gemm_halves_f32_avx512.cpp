// SPDX-License-Identifier: MIT
//
// f32 GEMM microkernel on halves of AVX-512 registers; the contract is gemm_f32 in kernel.h, the loop gemm_f32.h.
//
// 24 columns are three halves: a quarter less than two whole registers for cores that multiply in halves anyway
// (Zen 4).  A family of its own, which the smallest library leaves out.
#include "gemm_f32.h"
#include "vec_avx512_half.h"

QUERN_KERNELS(gemm_halves_f32_avx512, {.name = "gemm_f32_8x24_avx512",
                                       .about = "halves of registers: 24 columns, on cores that multiply in halves",
                                       .kind = kind::gemm_f32,
                                       .isa = QUERN_ISA_AVX512,
                                       .mr = 8,
                                       .nr = 24,
                                       .vector = 8,
                                       .gemm = run<half_vec, 8, 3>,
                                       .copy = vec::copy})
