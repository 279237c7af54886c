// SPDX-License-Identifier: MIT
//
// Implicit GEMM in s8 on the tensor cores of capability 9.0: exact sums, in integers of 32 bits.  Names: pixels x
// channels of a tile.
#include "cuda/tma_half_rows.h"

#ifdef __CUDACC__

QUERN_TMA_BYTE_KERNELS(QUERN_TMA_HALF_ENTRY, s8)
QUERN_TMA_S8_KERNELS(QUERN_TMA_HALF_ENTRY)

#else

// Of kind::tma.
QUERN_KERNELS(tma_s8_sm90a, QUERN_TMA_BYTE_KERNELS(QUERN_TMA_HALF_ROW, s8) QUERN_TMA_S8_KERNELS(QUERN_TMA_HALF_ROW))

#endif
