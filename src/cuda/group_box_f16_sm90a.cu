// SPDX-License-Identifier: MIT
//
// Groups of few channels, fed by the copy engine of capability 9.0, in f16.
#include "cuda/group_box_rows.h"

#ifdef __CUDACC__

QUERN_GROUP_BOX_KERNELS(QUERN_GROUP_BOX_ENTRY, f16, quern::f16, 6, 5, "")

#else

// Of kind::group_box.
QUERN_KERNELS(group_box_f16_sm90a, QUERN_GROUP_BOX_KERNELS(QUERN_GROUP_BOX_ROW, f16, f16, 6, 5, ""))

#endif
