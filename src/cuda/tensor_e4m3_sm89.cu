// SPDX-License-Identifier: MIT
//
// Implicit GEMM in e4m3 on tensor cores.
#include "cuda/tensor_rows.h"

#ifdef __CUDACC__

QUERN_TENSOR_KERNELS_OF_BYTES(QUERN_TENSOR_ENTRY, e4m3, quern::e4m3, 1, 89)

#else

// Of kind::tensor.
QUERN_KERNELS(tensor_e4m3_sm89, QUERN_TENSOR_KERNELS_OF_BYTES(QUERN_TENSOR_ROW, e4m3, quern::e4m3, 1, 89))

#endif
