// SPDX-License-Identifier: MIT
//
// Implicit GEMM in f16 on tensor cores.
#include "cuda/tensor_rows.h"

#ifdef __CUDACC__

QUERN_TENSOR_KERNELS(QUERN_TENSOR_ENTRY, f16, quern::f16, 2, "")

#else

// Of kind::tensor.
QUERN_KERNELS(tensor_f16_sm80, QUERN_TENSOR_KERNELS(QUERN_TENSOR_ROW, f16, quern::f16, 2, ""))

#endif
