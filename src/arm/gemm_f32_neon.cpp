// SPDX-License-Identifier: MIT
//
// f32 GEMM microkernels for NEON; the contract is gemm_f32 in kernel.h, the loop gemm_lanes.h, the rest gemm_f32.h.
//
// 64-bit: 32 registers hold MR x NV accumulators, 4 values of MR rows of A and NV vectors of B.  For 4 steps of k,
// 8x8 loads 16 times for 64 multiply-adds, 5x16 21 times for 80, both far below the load a multiply-add that big
// cores can do, and 16 or 20 independent chains cover the latency of two FMA units (4 cycles each).
// 32-bit: 16 registers leave room for 4x8, and each row of A takes a copy of its lane for 2 multiply-adds.
#include "gemm_f32.h"
#include "vec_neon.h"

namespace quern::rows {
extern const kernel_list winograd_f32_neon __attribute__((weak, visibility("hidden")));  // NULL without that family
}

#if defined(__aarch64__)
QUERN_KERNELS(gemm_f32_neon,
              {.name = "gemm_f32_8x8_neon",
               .about = "tall tile: reads B least often; few columns",
               .kind = kind::gemm_f32,
               .isa = QUERN_ISA_NEON,
               .mr = 8,
               .nr = 8,
               .vector = 4,
               .winograd = &winograd_f32_neon,
               .gemm = run<vec, 8, 2>,
               .copy = vec::copy},
              {.name = "gemm_f32_5x16_neon",
               .about = "wide tile: reads A least often; rows used where they lie",
               .kind = kind::gemm_f32,
               .isa = QUERN_ISA_NEON,
               .mr = 5,
               .nr = 16,
               .vector = 4,
               .winograd = &winograd_f32_neon,
               .gemm = run<vec, 5, 4>,
               .copy = vec::copy})
#else
QUERN_KERNELS(gemm_f32_neon, {.name = "gemm_f32_4x8_neon",
                              .about = "all that 16 registers hold",
                              .kind = kind::gemm_f32,
                              .isa = QUERN_ISA_NEON,
                              .mr = 4,
                              .nr = 8,
                              .vector = 4,
                              .winograd = &winograd_f32_neon,
                              .gemm = run<vec, 4, 2>,
                              .copy = vec::copy})
#endif
