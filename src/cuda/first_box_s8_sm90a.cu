// SPDX-License-Identifier: MIT
//
// First layers in s8 on capability 9.0.
#include "cuda/first_box_rows.h"

#ifdef __CUDACC__

QUERN_BOX_KERNELS(QUERN_BOX_ENTRY, s8)

#else

// Of kind::first_box.
QUERN_KERNELS(first_box_s8_sm90a, QUERN_BOX_KERNELS(QUERN_BOX_ROW, s8))

#endif
