// SPDX-License-Identifier: MIT
//
// f32 GEMM microkernels for AVX2 and FMA; the contract is gemm_f32 in kernel.h, the loop gemm_f32.h.
//
// 16 registers hold MR x NV accumulators, NV vectors of B and a broadcast of A: 12 accumulators cover the
// latency of the two FMA units (4 or 5 cycles each) and leave a register for a mask.
#include "gemm_f32.h"
#include "vec_avx2.h"

namespace quern::rows {
extern const kernel_list winograd_f32_avx2 __attribute__((weak, visibility("hidden")));  // NULL without that family
}

QUERN_KERNELS(gemm_f32_avx2,
              {.name = "gemm_f32_6x16_avx2",
               .about = "tall tile: reads B least often; few columns",
               .kind = kind::gemm_f32,
               .isa = QUERN_ISA_AVX2,
               .mr = 6,
               .nr = 16,
               .vector = 8,
               .winograd = &winograd_f32_avx2,
               .gemm = run<vec, 6, 2>,
               .copy = vec::copy},
              {.name = "gemm_f32_4x24_avx2",
               .about = "wide tile: reads A least often; rows used where they lie",
               .kind = kind::gemm_f32,
               .isa = QUERN_ISA_AVX2,
               .mr = 4,
               .nr = 24,
               .vector = 8,
               .winograd = &winograd_f32_avx2,
               .gemm = run<vec, 4, 3>,
               .copy = vec::copy})
