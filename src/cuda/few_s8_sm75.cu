// SPDX-License-Identifier: MIT
//
// Convolution of few input channels a group in s8, in exact sums.
#include "cuda/few_channels_rows.h"

#ifdef __CUDACC__

QUERN_FEW_KERNELS_OF_BYTES(QUERN_FEW_ENTRY, s8, quern::s8, 75)

#else

// Of kind::few_channels.
QUERN_KERNELS(few_s8_sm75, QUERN_FEW_KERNELS_OF_BYTES(QUERN_FEW_ROW, s8, quern::s8, 75))

#endif
