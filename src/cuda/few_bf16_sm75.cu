// SPDX-License-Identifier: MIT
//
// Convolution of few input channels a group in bf16.
#include "cuda/few_channels_rows.h"

#ifdef __CUDACC__

QUERN_FEW_KERNELS(QUERN_FEW_ENTRY, bf16, quern::bf16)

#else

// Of kind::few_channels.
QUERN_KERNELS(few_bf16_sm75, QUERN_FEW_KERNELS(QUERN_FEW_ROW, bf16, quern::bf16))

#endif
