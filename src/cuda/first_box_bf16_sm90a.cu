// SPDX-License-Identifier: MIT
//
// First layers in bf16 on capability 9.0.
#include "cuda/first_box_rows.h"

#ifdef __CUDACC__

QUERN_BOX_KERNELS(QUERN_BOX_ENTRY, bf16)

#else

// Of kind::first_box.
QUERN_KERNELS(first_box_bf16_sm90a, QUERN_BOX_KERNELS(QUERN_BOX_ROW, bf16))

#endif
