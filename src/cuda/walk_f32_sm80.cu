// SPDX-License-Identifier: MIT
//
// Walks down the lines of an image in f32; groups of few channels, too.
#include "cuda/walk_rows.h"

#ifdef __CUDACC__

QUERN_WALK_KERNELS(QUERN_WALK_ENTRY, f32, float)
QUERN_WALK_PAIRS(QUERN_WALK_ENTRY, f32, float)
QUERN_WALK_GROUPS(QUERN_WALK_ENTRY, f32, float)

#else

// Of kind::walk.
QUERN_KERNELS(walk_f32_sm80, QUERN_WALK_KERNELS(QUERN_WALK_ROW, f32, float) QUERN_WALK_PAIRS(QUERN_WALK_ROW, f32, float)
                                 QUERN_WALK_GROUPS(QUERN_WALK_ROW, f32, float))

#endif
