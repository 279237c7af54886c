// SPDX-License-Identifier: MIT
//
// Implicit GEMM in f16 on tensor cores.  Names: pixels x channels of a tile; `any` reads
// single elements, of any layout.
#include "cuda/implicit.h"

#ifdef __CUDACC__

#include "cuda/implicit_run.h"

#define QUERN_TENSOR(tile, blocks)                                                                \
  extern "C" __global__ void __launch_bounds__(quern::tensor_##tile<quern::f16>::threads, blocks) \
      tensor_f16_##tile##_sm80(const __grid_constant__ quern::implicit_conv a) {                  \
    quern::run<quern::tensor_##tile<quern::f16>>(a, nullptr);                                     \
  }
QUERN_TENSOR(128x128, 2)
QUERN_TENSOR(128x64, 4)
QUERN_TENSOR(64x64, 8)
QUERN_TENSOR(128x64_any, 4)
QUERN_TENSOR(64x64_any, 8)

#else

#include "cuda/implicit_rows.h"

namespace quern {
namespace {

template <class Tile>
constexpr kernel row(const char* name, const char* about) {
  return implicit_row<Tile>(kind::tensor, 80, name, about);
}

}  // namespace
}  // namespace quern

QUERN_KERNELS(tensor_f16_sm80, row<tensor_128x128<f16>>("tensor_f16_128x128_sm80", "the largest tile"),
              row<tensor_128x64<f16>>("tensor_f16_128x64_sm80", "64 output channels, or fewer pixels"),
              row<tensor_64x64<f16>>("tensor_f16_64x64_sm80", "images that give few tiles"),
              row<tensor_128x64_any<f16>>("tensor_f16_128x64_any_sm80", "any layout and number of channels"),
              row<tensor_64x64_any<f16>>("tensor_f16_64x64_any_sm80", "any layout and filter, few tiles"))

#endif
