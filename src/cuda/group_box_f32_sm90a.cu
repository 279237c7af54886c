// SPDX-License-Identifier: MIT
//
// Groups of few channels, fed by the copy engine of capability 9.0, in f32 by three products of TF32.
#include "cuda/group_box_rows.h"

// Tiles of 14 lines read less beside their own, where there are enough of them.
#define QUERN_GROUP_BOX_LARGE(X) X(f32, float, c8_14, 5, "3xTF32, groups of up to 8 channels, 3x3, larger tiles")

#ifdef __CUDACC__

QUERN_GROUP_BOX_KERNELS(QUERN_GROUP_BOX_ENTRY, f32, float, 5, 4, "3xTF32, ")
QUERN_GROUP_BOX_LARGE(QUERN_GROUP_BOX_ENTRY)

#else

// Of kind::group_box.
QUERN_KERNELS(group_box_f32_sm90a, QUERN_GROUP_BOX_KERNELS(QUERN_GROUP_BOX_ROW, f32, float, 5, 4, "3xTF32, ")
                                       QUERN_GROUP_BOX_LARGE(QUERN_GROUP_BOX_ROW))

#endif
