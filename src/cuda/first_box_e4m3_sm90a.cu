// SPDX-License-Identifier: MIT
//
// First layers in e4m3 on capability 9.0.
#include "cuda/first_box_rows.h"

#ifdef __CUDACC__

QUERN_BOX_KERNELS(QUERN_BOX_ENTRY, e4m3)

#else

// Of kind::first_box.
QUERN_KERNELS(first_box_e4m3_sm90a, QUERN_BOX_KERNELS(QUERN_BOX_ROW, e4m3))

#endif
