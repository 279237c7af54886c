// SPDX-License-Identifier: MIT
//
// The kernels of implicit.h on tensor cores for each element type: their entries, or their rows.  Names: pixels x
// channels of a tile; `any` reads single elements, of any layout.  `blocks` of the largest tile share a multiprocessor.
#pragma once

#include "cuda/implicit.h"

#define QUERN_TENSOR_KERNELS(X, type, element, blocks, how)                             \
  X(type, element, 128x128, blocks, 80, how "the largest tile")                         \
  X(type, element, 128x64, 2 * blocks, 80, how "64 output channels, or fewer pixels")   \
  X(type, element, 64x64, 4 * blocks, 80, how "images that give few tiles")             \
  X(type, element, 128x64_any, 2 * blocks, 80, how "any layout and number of channels") \
  X(type, element, 64x64_any, 4 * blocks, 80, how "any layout and filter, few tiles")

// Of 8 bits fewer: they are what is left where conv_tma takes none.  `least`: the capability that has the instruction.
#define QUERN_TENSOR_KERNELS_OF_BYTES(X, type, element, blocks, least)    \
  X(type, element, 128x64, 2 * blocks, least, "whole chunks of channels") \
  X(type, element, 64x64_any, 4 * blocks, least, "any layout, filter and number of channels")

#ifdef __CUDACC__

#include "cuda/implicit_run.h"

#define QUERN_TENSOR_ENTRY(type, element, tile, blocks, least, about)                          \
  extern "C" __global__ void __launch_bounds__(quern::tensor_##tile<element>::threads, blocks) \
      tensor_##type##_##tile##_sm##least(const __grid_constant__ quern::implicit_conv a) {     \
    quern::run<quern::tensor_##tile<element>>(a, nullptr);                                     \
  }

#else

#include "cuda/implicit_rows.h"

#define QUERN_TENSOR_ROW(type, element, tile, blocks, least, about) \
  implicit_row<tensor_##tile<element>>(kind::tensor, least, "tensor_" #type "_" #tile "_sm" #least, about),

#endif
