// SPDX-License-Identifier: MIT
//
// Convolution of few input channels a group in f32.
#include "cuda/few_channels_rows.h"

#ifdef __CUDACC__

QUERN_FEW_KERNELS(QUERN_FEW_ENTRY, f32, float)

#else

// Of kind::few_channels.
QUERN_KERNELS(few_f32_sm75, QUERN_FEW_KERNELS(QUERN_FEW_ROW, f32, float))

#endif
