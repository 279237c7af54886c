// SPDX-License-Identifier: MIT
//
// The kernels of implicit.h on tensor cores for each element type: their entries, or their rows.  Names: pixels x
// channels of a tile; `any` reads single elements, of any layout.  `blocks` of the largest tile share a multiprocessor.
#pragma once

#include "cuda/implicit.h"

#define QUERN_TENSOR_KERNELS(X, type, element, blocks, how)                         \
  X(type, element, 128x128, blocks, how "the largest tile")                         \
  X(type, element, 128x64, 2 * blocks, how "64 output channels, or fewer pixels")   \
  X(type, element, 64x64, 4 * blocks, how "images that give few tiles")             \
  X(type, element, 128x64_any, 2 * blocks, how "any layout and number of channels") \
  X(type, element, 64x64_any, 4 * blocks, how "any layout and filter, few tiles")

#ifdef __CUDACC__

#include "cuda/implicit_run.h"

#define QUERN_TENSOR_ENTRY(type, element, tile, blocks, about)                                 \
  extern "C" __global__ void __launch_bounds__(quern::tensor_##tile<element>::threads, blocks) \
      tensor_##type##_##tile##_sm80(const __grid_constant__ quern::implicit_conv a) {          \
    quern::run<quern::tensor_##tile<element>>(a, nullptr);                                     \
  }

#else

#include "cuda/implicit_rows.h"

#define QUERN_TENSOR_ROW(type, element, tile, blocks, about) \
  implicit_row<tensor_##tile<element>>(kind::tensor, 80, "tensor_" #type "_" #tile "_sm80", about),

#endif
