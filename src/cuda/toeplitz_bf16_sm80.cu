// SPDX-License-Identifier: MIT
//
// Depthwise convolution of small images in bf16.
#include "cuda/toeplitz_rows.h"

#ifdef __CUDACC__

QUERN_TOEPLITZ_ENTRY(bf16)

#else

// Of kind::toeplitz.
QUERN_KERNELS(toeplitz_bf16_sm80, QUERN_TOEPLITZ_ROW(bf16))

#endif
