// SPDX-License-Identifier: MIT
//
// The kernels of first_box.h for each element type: their entries, or their rows.  Names: output channels of a panel.
#pragma once

#include "cuda/first_box.h"

#define QUERN_BOX_KERNELS(X, type)     \
  X(type, 64, "1 to 4 input channels") \
  X(type, 32, "the same, 32 output channels")

#ifdef __CUDACC__

#include "cuda/first_box_run.h"

#define QUERN_BOX_ENTRY(type, columns, about)                                             \
  extern "C" __global__ void __launch_bounds__(quern::box_##type##_##columns::threads, 1) \
      first_box_##type##_##columns##_sm90a(const __grid_constant__ quern::first_box a) {  \
    quern::run<quern::box_##type##_##columns>(a);                                         \
  }

#else

#include "cuda/image.h"

#define QUERN_BOX_ROW(type, columns, about) \
  box_row<box_##type##_##columns>("first_box_" #type "_" #columns "_sm90a", about),

namespace quern {
namespace {

template <class Tile>
constexpr kernel box_row(const char* name, const char* about) {
  return {.name = name,
          .about = about,
          .kind = kind::first_box,
          .type = Tile::type,
          .accuracy = sums_of<typename Tile::element>,
          .mr = 64,
          .nr = Tile::columns,
          .vector = Tile::chunk,
          .image = image,
          .capability = 90,
          .capability_alone = true,
          .src_align = 16,
          .threads = Tile::threads,
          .shared_bytes = Tile::shared_bytes,
          .early = true};
}

}  // namespace
}  // namespace quern

#endif
