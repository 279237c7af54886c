// SPDX-License-Identifier: MIT
//
// The kernels of first_layer.h for each element type: their entries, or their rows.  Names: output channels of a panel.
// As many blocks as are said share a multiprocessor.
#pragma once

#include "cuda/first_layer.h"

#define QUERN_FIRST_HALF_KERNELS(X, type) \
  X(type, 64, 4, "1 to 4 input channels") \
  X(type, 32, 4, "the same, 32 output channels")
#define QUERN_FIRST_F32_KERNELS(X)               \
  X(f32, 64, 2, "1 to 4 input channels, 3xTF32") \
  X(f32, 32, 3, "the same, 32 output channels")

#ifdef __CUDACC__

#include "cuda/first_layer_run.h"

#define QUERN_FIRST_ENTRY(type, columns, blocks, about)                                          \
  extern "C" __global__ void __launch_bounds__(quern::first_##type##_##columns::threads, blocks) \
      first_##type##_##columns##_sm80(const __grid_constant__ quern::first_conv a) {             \
    quern::run<quern::first_##type##_##columns>(a);                                              \
  }

#else

#include "cuda/image.h"

#define QUERN_FIRST_ROW(type, columns, blocks, about) \
  first_row<first_##type##_##columns>("first_" #type "_" #columns "_sm80", about),

namespace quern {
namespace {

template <class Tile>
constexpr kernel first_row(const char* name, const char* about) {
  return {.name = name,
          .about = about,
          .kind = kind::first_layer,
          .type = type_of<typename Tile::element>,
          .mr = first_pixels,
          .nr = Tile::columns,
          .vector = Tile::chunk,
          .image = image,
          .capability = 80,
          .src_align = sizeof(typename Tile::element),
          .threads = Tile::threads,
          .shared_bytes = Tile::shared_bytes,
          .early = true};
}

}  // namespace
}  // namespace quern

#endif
