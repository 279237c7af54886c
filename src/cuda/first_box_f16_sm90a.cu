// SPDX-License-Identifier: MIT
//
// First layers in f16 on capability 9.0.
#include "cuda/first_box_rows.h"

#ifdef __CUDACC__

QUERN_BOX_KERNELS(QUERN_BOX_ENTRY, f16)

#else

// Of kind::first_box.
QUERN_KERNELS(first_box_f16_sm90a, QUERN_BOX_KERNELS(QUERN_BOX_ROW, f16))

#endif
