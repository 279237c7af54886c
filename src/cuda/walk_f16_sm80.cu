// SPDX-License-Identifier: MIT
//
// Walks down the lines of an image in f16.
#include "cuda/walk_rows.h"

#ifdef __CUDACC__

QUERN_WALK_KERNELS(QUERN_WALK_ENTRY, f16, quern::f16)
QUERN_WALK_PAIRS(QUERN_WALK_ENTRY, f16, quern::f16)

#else

// Of kind::walk.
QUERN_KERNELS(walk_f16_sm80,
              QUERN_WALK_KERNELS(QUERN_WALK_ROW, f16, quern::f16) QUERN_WALK_PAIRS(QUERN_WALK_ROW, f16, quern::f16))

#endif
