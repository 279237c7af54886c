// SPDX-License-Identifier: MIT
//
// The operator's formula in f64, one thread an output: any layout, stride and shape.
#include "cuda/reference.h"

#ifdef __CUDACC__

extern "C" __global__ void __launch_bounds__(256, 1)
    reference_e4m3_sm89(const __grid_constant__ quern::reference_cuda r) {
  for (int64_t i = blockIdx.x * int64_t{256} + threadIdx.x; i < r.elements; i += gridDim.x * int64_t{256})
    quern::reference_output<quern::e4m3>(r, i);
}

#else

#include "cuda/image.h"

QUERN_KERNELS(reference_e4m3_sm89, {.name = "reference_e4m3_sm89",
                                    .about = "the operator's formula, summed in float64",
                                    .kind = kind::reference_cuda,
                                    .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED, QUERN_GEMM},
                                    .type = QUERN_E4M3,
                                    .image = image,
                                    .capability = 89,
                                    .threads = 256})

#endif
