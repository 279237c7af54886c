// SPDX-License-Identifier: MIT
//
// First layers in bf16.
#include "cuda/first_layer_rows.h"

#ifdef __CUDACC__

QUERN_FIRST_HALF_KERNELS(QUERN_FIRST_ENTRY, bf16)

#else

// Of kind::first_layer.
QUERN_KERNELS(first_bf16_sm80, QUERN_FIRST_HALF_KERNELS(QUERN_FIRST_ROW, bf16))

#endif
