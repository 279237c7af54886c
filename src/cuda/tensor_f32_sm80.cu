// SPDX-License-Identifier: MIT
//
// Implicit GEMM in f32 on tensor cores, by three products of TF32.
#include "cuda/tensor_rows.h"

#ifdef __CUDACC__

QUERN_TENSOR_KERNELS(QUERN_TENSOR_ENTRY, f32, float, 1, "3xTF32, ")

#else

// Of kind::tensor.
QUERN_KERNELS(tensor_f32_sm80, QUERN_TENSOR_KERNELS(QUERN_TENSOR_ROW, f32, float, 1, "3xTF32, "))

#endif
