// SPDX-License-Identifier: MIT
//
// Implicit GEMM in f32 on tensor cores, by three products of TF32.  Names: pixels x channels of a tile; `any` reads
// single elements, of any layout.
#include "cuda/implicit_f32.h"

#ifdef __CUDACC__

#include "cuda/implicit_run.h"

#define QUERN_TENSOR(tile, blocks)                                                    \
  extern "C" __global__ void __launch_bounds__(quern::tensor_##tile::threads, blocks) \
      tensor_f32_##tile##_sm80(const __grid_constant__ quern::implicit_f32 a) {       \
    quern::run<quern::tensor_##tile>(a, nullptr);                                     \
  }
QUERN_TENSOR(128x128, 1)
QUERN_TENSOR(128x64, 2)
QUERN_TENSOR(64x64, 4)
QUERN_TENSOR(128x64_any, 2)
QUERN_TENSOR(64x64_any, 4)

#else

#include "cuda/image.h"

namespace quern {
namespace {

template <class Tile>
constexpr kernel row(const char* name, const char* about, int16_t vector, index_scheme index) {
  return {.name = name,
          .about = about,
          .kind = kind::tensor_f32,
          .mr = Tile::bm,
          .nr = Tile::bn,
          .vector = vector,
          .image = image,
          .capability = 80,
          .threads = Tile::threads,
          .shared_bytes = Tile::shared_bytes,
          .index = index};
}

}  // namespace
}  // namespace quern

QUERN_KERNELS(tensor_f32_sm80,
              row<tensor_128x128>("tensor_f32_128x128_sm80", "3xTF32, the largest tile", 4, index_scheme::increments),
              row<tensor_128x64>("tensor_f32_128x64_sm80", "3xTF32, 64 output channels, or fewer pixels", 4,
                                 index_scheme::increments),
              row<tensor_64x64>("tensor_f32_64x64_sm80", "3xTF32, images that give few tiles", 4,
                                index_scheme::increments),
              row<tensor_128x64_any>("tensor_f32_128x64_any_sm80", "3xTF32, any layout and number of channels", 1,
                                     index_scheme::increments),
              row<tensor_64x64_any>("tensor_f32_64x64_any_sm80", "3xTF32, any layout and filter, few tiles", 1,
                                    index_scheme::division))

#endif
