// SPDX-License-Identifier: MIT
//
// Walks down the lines of an image in bf16.
#include "cuda/walk_rows.h"

#ifdef __CUDACC__

QUERN_WALK_KERNELS(QUERN_WALK_ENTRY, bf16, quern::bf16)
QUERN_WALK_PAIRS(QUERN_WALK_ENTRY, bf16, quern::bf16)

#else

// Of kind::walk.
QUERN_KERNELS(walk_bf16_sm80,
              QUERN_WALK_KERNELS(QUERN_WALK_ROW, bf16, quern::bf16) QUERN_WALK_PAIRS(QUERN_WALK_ROW, bf16, quern::bf16))

#endif
