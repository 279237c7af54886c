// SPDX-License-Identifier: MIT
//
// Groups of few channels in f16.
#include "cuda/group_rows.h"

#ifdef __CUDACC__

QUERN_GROUP_KERNELS(QUERN_GROUP_ENTRY, f16)

#else

// Of kind::group.
QUERN_KERNELS(group_f16_sm80, QUERN_GROUP_KERNELS(QUERN_GROUP_ROW, f16))

#endif
