// SPDX-License-Identifier: MIT
//
// Groups of few channels, fed by the copy engine of capability 9.0, in bf16.
#include "cuda/group_box_rows.h"

#ifdef __CUDACC__

QUERN_GROUP_BOX_KERNELS(QUERN_GROUP_BOX_ENTRY, bf16, quern::bf16, 6, 5, "")

#else

// Of kind::group_box.
QUERN_KERNELS(group_box_bf16_sm90a, QUERN_GROUP_BOX_KERNELS(QUERN_GROUP_BOX_ROW, bf16, bf16, 6, 5, ""))

#endif
