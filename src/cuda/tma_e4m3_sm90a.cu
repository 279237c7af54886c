// SPDX-License-Identifier: MIT
//
// Implicit GEMM in e4m3 on the tensor cores of capability 9.0.  Names: pixels x channels of a tile.
#include "cuda/tma_half_rows.h"

#ifdef __CUDACC__

QUERN_TMA_BYTE_KERNELS(QUERN_TMA_HALF_ENTRY, e4m3)

#else

// Of kind::tma.
QUERN_KERNELS(tma_e4m3_sm90a, QUERN_TMA_BYTE_KERNELS(QUERN_TMA_HALF_ROW, e4m3))

#endif
