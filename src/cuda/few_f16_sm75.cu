// SPDX-License-Identifier: MIT
//
// Convolution of few input channels a group in f16.
#include "cuda/few_channels_rows.h"

#ifdef __CUDACC__

QUERN_FEW_KERNELS(QUERN_FEW_ENTRY, f16, quern::f16)

#else

// Of kind::few_channels.
QUERN_KERNELS(few_f16_sm75, QUERN_FEW_KERNELS(QUERN_FEW_ROW, f16, quern::f16))

#endif
