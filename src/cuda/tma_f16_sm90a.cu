// SPDX-License-Identifier: MIT
//
// Implicit GEMM in f16 on the tensor cores of capability 9.0.  Names: pixels x channels of a tile.
#include "cuda/tma_half_rows.h"

#ifdef __CUDACC__

QUERN_TMA_HALF_KERNELS(QUERN_TMA_HALF_ENTRY, f16)

#else

// Of kind::tma.
QUERN_KERNELS(tma_f16_sm90a, QUERN_TMA_HALF_KERNELS(QUERN_TMA_HALF_ROW, f16))

#endif
