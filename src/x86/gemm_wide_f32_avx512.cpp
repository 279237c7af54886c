// SPDX-License-Identifier: MIT
//
// f32 GEMM microkernel of few rows for AVX-512; the contract is gemm_f32 in kernel.h, the loop gemm_f32.h.
//
// 96 channels are all that a layer has, or a whole part of them: outputs are written in the order of memory, and tiles
// of one panel follow each other without a call.  A family of its own, which the smallest library leaves out.
#include "gemm_f32.h"
#include "vec_avx512.h"

QUERN_KERNELS(gemm_wide_f32_avx512, {.name = "gemm_f32_4x96_avx512",
                                     .about = "widest tile: 96 columns of a row, written at once",
                                     .kind = kind::gemm_f32,
                                     .isa = QUERN_ISA_AVX512,
                                     .mr = 4,
                                     .nr = 96,
                                     .vector = 16,
                                     .gemm = run<vec, 4, 6, to_l1>,
                                     .copy = vec::copy})
