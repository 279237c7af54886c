// SPDX-License-Identifier: MIT
//
// First layers in f32 by three products of TF32.
#include "cuda/first_layer_rows.h"

#ifdef __CUDACC__

QUERN_FIRST_F32_KERNELS(QUERN_FIRST_ENTRY)

#else

// Of kind::first_layer.
QUERN_KERNELS(first_f32_sm80, QUERN_FIRST_F32_KERNELS(QUERN_FIRST_ROW))

#endif
