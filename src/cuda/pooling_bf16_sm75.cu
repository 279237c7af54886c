// SPDX-License-Identifier: MIT
//
// Pooling of any window, stride and layout.
#include "cuda/pooling.h"

#ifdef __CUDACC__

extern "C" __global__ void __launch_bounds__(quern::pooling_threads, 4)
    pooling_bf16_sm75(const __grid_constant__ quern::pooling a) {
  extern __shared__ float shared[];
  quern::pool_thread<quern::bf16>(a, int32_t(blockIdx.x) * quern::pooling_threads + int32_t(threadIdx.x),
                           shared + threadIdx.x);
}

#else

#include "cuda/image.h"

QUERN_KERNELS(pooling_bf16_sm75, {.name = "pooling_bf16_sm75",
                                 .about = "pooling, one output or 16 bytes of channels a thread",
                                 .kind = kind::pooling,
                                 .type = QUERN_BF16,
                                 .image = image,
                                 .capability = 75,
                                 .threads = pooling_threads,
                                 .shared_bytes = pooling_shared<bf16>})

#endif
