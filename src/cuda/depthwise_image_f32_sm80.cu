// SPDX-License-Identifier: MIT
//
// Depthwise convolution of small images in f32.  Names: the largest image.
#include "cuda/depthwise_image.h"

#ifdef __CUDACC__

#include "cuda/hopper.h"

extern "C" __global__ void __launch_bounds__(quern::image_14x14::threads, 1)
    depthwise_image_f32_14x14_sm80(const __grid_constant__ quern::depthwise_image a) {
  using namespace quern;
  extern __shared__ __align__(16) char shared[];
  image_14x14 t(a, reinterpret_cast<float*>(shared), static_cast<int32_t>(blockIdx.x),
                static_cast<int32_t>(threadIdx.x));
#if __CUDA_ARCH__ >= 900
  let_next_start();
  if (a.ahead) t.load_weights();
  wait_for_previous();
#endif
  t.load_line(0);
  if (!a.ahead) t.load_weights();
  t.load_channels();
  // While a warp has its pair of an image, others have their lines of the one before and the one after.
#pragma unroll 1
  for (int32_t number = -1;; ++number) {
    keep(t.weight);  // or their sums would take registers, too
    if (number >= 0 && t.exists(number)) t.multiply(number, [] { __syncwarp(); });
    if (number > 0) t.finish(number - 1);
    if (!t.exists(number)) break;
    t.store_spectrum(number + 1);
    t.load_line(number + 2);
    __syncthreads();
  }
}

#else

#include "cuda/image.h"

// Of kind::depthwise_image.
QUERN_KERNELS(depthwise_image_f32_sm80, {.name = "depthwise_image_f32_14x14_sm80",
                                         .about = "depthwise, any filter on images of up to 14x14",
                                         .kind = kind::depthwise_image,
                                         .mr = image_14x14::lines,
                                         .nr = image_14x14::columns,
                                         .step = 1,
                                         .image = image,
                                         .capability = 80,
                                         .threads = image_14x14::threads,
                                         .shared_bytes = image_14x14::shared_bytes,
                                         .early = true})

#endif
