// SPDX-License-Identifier: MIT
//
// f32 GEMM microkernels for AVX-512; the contract is gemm_f32 in kernel.h, the loop gemm_f32.h.
//
// 32 registers hold MR x NV accumulators, NV vectors of B and a broadcast of A.  A step of k loads
// MR + NV times for MR * NV multiply-adds: 14x32 16 for 28, 8x48 11 for 24, 6x64 10 for 24, all below
// the one load a multiply-add that the core can do.
#include "gemm_f32.h"
#include "vec_avx512.h"

namespace quern::rows {
extern const kernel_list winograd_f32_avx512 __attribute__((weak, visibility("hidden")));  // NULL without that family
}

QUERN_KERNELS(gemm_f32_avx512,
              {.name = "gemm_f32_14x32_avx512",
               .about = "tall tile: reads B least often; few columns",
               .kind = kind::gemm_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 14,
               .nr = 32,
               .vector = 16,
               .winograd = &winograd_f32_avx512,
               .gemm = run<vec, 14, 2>,
               .copy = vec::copy},
              {.name = "gemm_f32_8x48_avx512",
               .about = "square tile: 48, 96 or 144 columns",
               .kind = kind::gemm_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 8,
               .nr = 48,
               .vector = 16,
               .winograd = &winograd_f32_avx512,
               .gemm = run<vec, 8, 3>,
               .copy = vec::copy},
              {.name = "gemm_f32_6x64_avx512",
               .about = "wide tile: reads A least often; rows used where they lie",
               .kind = kind::gemm_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 6,
               .nr = 64,
               .vector = 16,
               .winograd = &winograd_f32_avx512,
               .gemm = run<vec, 6, 4>,
               .copy = vec::copy})
