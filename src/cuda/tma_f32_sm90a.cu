// SPDX-License-Identifier: MIT
//
// Implicit GEMM in f32 on the tensor cores of capability 9.0, by three products of TF32.  Names: pixels x channels
// of a tile.
#include "cuda/pixels_last.h"
#include "cuda/tma_f32.h"

#ifdef __CUDACC__

#include "cuda/tma_f32_run.h"

QUERN_TMA_F32_ENTRY(tma_f32_128x128_sm90a, tma_f32_128x128, 40, 232)
QUERN_TMA_F32_ENTRY(tma_f32_192x64_sm90a, tma_f32_192x64, 24, 160)
QUERN_TMA_F32_ENTRY(tma_f32_128x64_sm90a, tma_f32_128x64, 40, 232)

#else

#include "cuda/tma_rows.h"

// Of kind::tma.
QUERN_KERNELS(tma_f32_sm90a, tma_row<tma_f32_128x128>("tma_f32_128x128_sm90a", "3xTF32, the largest tile"),
              tma_row<tma_f32_192x64>("tma_f32_192x64_sm90a", "3xTF32, 64 output channels or waves of another size"),
              tma_row<tma_f32_128x64>("tma_f32_128x64_sm90a", "3xTF32, images that give few tiles"))

#endif
