// SPDX-License-Identifier: MIT
//
// Convolution of few input channels a group in e4m3.
#include "cuda/few_channels_rows.h"

#ifdef __CUDACC__

QUERN_FEW_KERNELS_OF_BYTES(QUERN_FEW_ENTRY, e4m3, quern::e4m3, 89)

#else

// Of kind::few_channels.
QUERN_KERNELS(few_e4m3_sm89, QUERN_FEW_KERNELS_OF_BYTES(QUERN_FEW_ROW, e4m3, quern::e4m3, 89))

#endif
