// SPDX-License-Identifier: MIT
//
// First layers in f32 on capability 9.0, by three products of TF32.
#include "cuda/first_box_rows.h"

#ifdef __CUDACC__

QUERN_BOX_KERNELS(QUERN_BOX_ENTRY, f32)

#else

// Of kind::first_box.
QUERN_KERNELS(first_box_f32_sm90a, QUERN_BOX_KERNELS(QUERN_BOX_ROW, f32))

#endif
