// SPDX-License-Identifier: MIT
//
// Implicit GEMM in s8 on tensor cores: exact sums, in integers of 32 bits.
#include "cuda/tensor_rows.h"

#ifdef __CUDACC__

QUERN_TENSOR_KERNELS_OF_BYTES(QUERN_TENSOR_ENTRY, s8, quern::s8, 2, 80)

#else

// Of kind::tensor.
QUERN_KERNELS(tensor_s8_sm80, QUERN_TENSOR_KERNELS_OF_BYTES(QUERN_TENSOR_ROW, s8, quern::s8, 2, 80))

#endif
