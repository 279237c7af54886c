// SPDX-License-Identifier: MIT
//
// Groups of few channels in bf16.
#include "cuda/group_rows.h"

#ifdef __CUDACC__

QUERN_GROUP_KERNELS(QUERN_GROUP_ENTRY, bf16)

#else

// Of kind::group.
QUERN_KERNELS(group_bf16_sm80, QUERN_GROUP_KERNELS(QUERN_GROUP_ROW, bf16))

#endif
