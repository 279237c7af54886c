// SPDX-License-Identifier: MIT
//
// Depthwise convolution of small images in f16.
#include "cuda/toeplitz_rows.h"

#ifdef __CUDACC__

QUERN_TOEPLITZ_ENTRY(f16)

#else

// Of kind::toeplitz.
QUERN_KERNELS(toeplitz_f16_sm80, QUERN_TOEPLITZ_ROW(f16))

#endif
