// SPDX-License-Identifier: MIT
//
// The operator's formula in f64, one thread an output: any layout, stride and shape.
#include "cuda/reference.h"

#ifdef __CUDACC__

extern "C" __global__ void __launch_bounds__(256, 1)
    reference_s8_sm80(const __grid_constant__ quern::reference_cuda r) {
  for (int64_t i = blockIdx.x * int64_t{256} + threadIdx.x; i < r.elements; i += gridDim.x * int64_t{256})
    quern::reference_output<quern::s8>(r, i);
}

#else

#include "cuda/image.h"

QUERN_KERNELS(reference_s8_sm80, {.name = "reference_s8_sm80",
                                  .about = "the operator's formula, summed in float64",
                                  .kind = kind::reference_cuda,
                                  .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED, QUERN_GEMM},
                                  .type = QUERN_S8,
                                  .image = image,
                                  .capability = 80,
                                  .threads = 256})

#endif
