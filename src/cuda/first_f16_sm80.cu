// SPDX-License-Identifier: MIT
//
// First layers in f16.
#include "cuda/first_layer_rows.h"

#ifdef __CUDACC__

QUERN_FIRST_HALF_KERNELS(QUERN_FIRST_ENTRY, f16)

#else

// Of kind::first_layer.
QUERN_KERNELS(first_f16_sm80, QUERN_FIRST_HALF_KERNELS(QUERN_FIRST_ROW, f16))

#endif
