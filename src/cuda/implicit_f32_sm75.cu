// SPDX-License-Identifier: MIT
//
// Implicit GEMM in f32 on the FMA units.  Names: pixels x channels of a tile; without a word more, indices move
// by precomputed increments; `division` divides at each step, `table` looks taps up in constant memory, `any`
// reads single elements, of any layout.
#include "cuda/implicit.h"

#ifdef __CUDACC__

#include "cuda/implicit_run.h"

// Registers for so many blocks on a multiprocessor at once; on 7.5 shared memory is for one alone.
#if __CUDA_ARCH__ >= 800
#define QUERN_BLOCKS(n) n
#else
#define QUERN_BLOCKS(n) 1
#endif
#define QUERN_IMPLICIT(tile, blocks)                                                                  \
  extern "C" __global__ void __launch_bounds__(quern::implicit_##tile::threads, QUERN_BLOCKS(blocks)) \
      implicit_f32_##tile##_sm75(const __grid_constant__ quern::implicit_conv a) {                    \
    quern::run<quern::implicit_##tile>(a, nullptr);                                                   \
  }
QUERN_IMPLICIT(128x128, 2)
QUERN_IMPLICIT(128x64, 4)
QUERN_IMPLICIT(64x64, 6)
QUERN_IMPLICIT(128x128_division, 2)
QUERN_IMPLICIT(128x128_any, 2)
QUERN_IMPLICIT(128x64_any, 4)
QUERN_IMPLICIT(64x64_any, 6)

extern "C" __global__ void __launch_bounds__(quern::implicit_128x128_table::threads, QUERN_BLOCKS(2))
    implicit_f32_128x128_table_sm75(const __grid_constant__ quern::implicit_table a) {
  quern::run<quern::implicit_128x128_table>(a.problem, a.tap);
}

#else

#include "cuda/implicit_rows.h"

namespace quern {
namespace {

template <class Tile>
constexpr kernel row(const char* name, const char* about) {
  return implicit_row<Tile>(kind::implicit_f32, 75, name, about);
}

}  // namespace
}  // namespace quern

QUERN_KERNELS(implicit_f32_sm75, row<implicit_128x128>("implicit_f32_128x128_sm75", "the largest tile"),
              row<implicit_128x64>("implicit_f32_128x64_sm75", "64 output channels, or fewer pixels"),
              row<implicit_64x64>("implicit_f32_64x64_sm75", "images that give few tiles"),
              row<implicit_128x128_division>("implicit_f32_128x128_division_sm75", "any filter: indices by division"),
              row<implicit_128x128_table>("implicit_f32_128x128_table_sm75", "indices from a table of taps"),
              row<implicit_128x128_any>("implicit_f32_128x128_any_sm75", "any layout and number of channels"),
              row<implicit_128x64_any>("implicit_f32_128x64_any_sm75", "any layout, 64 output channels"),
              row<implicit_64x64_any>("implicit_f32_64x64_any_sm75", "any layout and filter, few tiles"))

#endif
