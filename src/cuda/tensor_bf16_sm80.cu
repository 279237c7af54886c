// SPDX-License-Identifier: MIT
//
// Implicit GEMM in bf16 on tensor cores.
#include "cuda/tensor_rows.h"

#ifdef __CUDACC__

QUERN_TENSOR_KERNELS(QUERN_TENSOR_ENTRY, bf16, quern::bf16, 2, "")

#else

// Of kind::tensor.
QUERN_KERNELS(tensor_bf16_sm80, QUERN_TENSOR_KERNELS(QUERN_TENSOR_ROW, bf16, quern::bf16, 2, ""))

#endif
