// SPDX-License-Identifier: MIT
//
// Implicit GEMM in f32 on the tensor cores of capability 9.0, by three products of F16, of src whose range is
// promised.  Names: pixels x channels of a tile.
#include "cuda/pixels_last.h"
#include "cuda/tma_f16x3.h"

#ifdef __CUDACC__

#include "cuda/tma_f32_run.h"

QUERN_TMA_F32_ENTRY(tma_f16x3_f32_128x128_sm90a, tma_f16x3_128x128, 40, 232)
QUERN_TMA_F32_ENTRY(tma_f16x3_f32_192x64_sm90a, tma_f16x3_192x64, 24, 160)
QUERN_TMA_F32_ENTRY(tma_f16x3_f32_128x64_sm90a, tma_f16x3_128x64, 40, 232)
QUERN_TMA_F32_ENTRY(tma_f16x3_f32_128x64_w3_sm90a, tma_f16x3_128x64_w3, 40, 232)

#else

#include "cuda/tma_rows.h"

QUERN_KERNELS(tma_f16x3_f32_sm90a,
              tma_row<tma_f16x3_128x128, kind::tma_f16x3>("tma_f16x3_f32_128x128_sm90a", "3xF16, the largest tile"),
              tma_row<tma_f16x3_192x64, kind::tma_f16x3>("tma_f16x3_f32_192x64_sm90a", "3xF16, 64 output channels"),
              tma_row<tma_f16x3_128x64, kind::tma_f16x3>("tma_f16x3_f32_128x64_sm90a", "3xF16, few tiles"),
              tma_row<tma_f16x3_128x64_w3, kind::tma_f16x3>("tma_f16x3_f32_128x64_w3_sm90a",
                                                            "3xF16, lines of filters three wide at once"))

#endif
