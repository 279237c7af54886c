// SPDX-License-Identifier: MIT
//
// Implicit GEMM in f16 on the tensor cores of capability 9.0.  Names: pixels x channels of a tile.
#ifdef __CUDACC__

#include "cuda/tma_half_run.h"

QUERN_TMA_HALF(f16, 256x128)
QUERN_TMA_HALF(f16, 208x128)
QUERN_TMA_HALF(f16, 192x128)
QUERN_TMA_HALF(f16, 128x128)
QUERN_TMA_HALF(f16, 96x128)
QUERN_TMA_HALF(f16, 256x64)
QUERN_TMA_HALF(f16, 128x64)
QUERN_TMA_HALF(f16, 112x64)
QUERN_TMA_HALF(f16, 64x64)
QUERN_TMA_HALF(f16, 256x64_w3)
QUERN_TMA_HALF(f16, 208x64_w3)
QUERN_TMA_HALF(f16, 256x64_3x3)
QUERN_TMA_HALF(f16, 208x64_3x3)
QUERN_TMA_HALF(f16, 192x128_k4)
QUERN_TMA_HALF(f16, 128x128_k2)
QUERN_TMA_HALF(f16, 64x64_k4)
QUERN_TMA_HALF(f16, 64x64_k8)
QUERN_PIXELS_LAST(uint16_t)

#else

#include "cuda/tma_half.h"
#include "cuda/tma_rows.h"

namespace quern {
namespace {

template <class Tile>
constexpr kernel row(const char* name, const char* about) {
  return tma_row_of<Tile>(kind::tma, name, about);
}

}  // namespace
}  // namespace quern

QUERN_KERNELS(tma_f16_sm90a, row<tma_half_256x128<f16>>("tma_f16_256x128_sm90a", "the largest tile"),
              row<tma_half_208x128<f16>>("tma_f16_208x128_sm90a", "tiles of another size, for whole waves"),
              row<tma_half_192x128<f16>>("tma_f16_192x128_sm90a", "tiles of another size, for whole waves"),
              row<tma_half_128x128<f16>>("tma_f16_128x128_sm90a", "tiles of another size, for whole waves"),
              row<tma_half_96x128<f16>>("tma_f16_96x128_sm90a", "images that give few tiles"),
              row<tma_half_256x64<f16>>("tma_f16_256x64_sm90a", "64 output channels"),
              row<tma_half_128x64<f16>>("tma_f16_128x64_sm90a", "64 output channels, few tiles"),
              row<tma_half_112x64<f16>>("tma_f16_112x64_sm90a", "64 output channels, fewer tiles"),
              row<tma_half_64x64<f16>>("tma_f16_64x64_sm90a", "the fewest tiles"),
              row<tma_half_256x64_w3<f16>>("tma_f16_256x64_w3_sm90a",
                                            "filters three wide, a line of which is loaded once"),
              row<tma_half_208x64_w3<f16>>("tma_f16_208x64_w3_sm90a", "the same, tiles of another size"),
              row<tma_half_256x64_3x3<f16>>("tma_f16_256x64_3x3_sm90a", "3x3 of up to 64 channels: weights stay"),
              row<tma_half_208x64_3x3<f16>>("tma_f16_208x64_3x3_sm90a", "the same, tiles of another size"),
              row<tma_half_192x128_k4<f16>>("tma_f16_192x128_k4_sm90a", "long sums of few tiles, by clusters of four"),
              row<tma_half_128x128_k2<f16>>("tma_f16_128x128_k2_sm90a", "long sums of few tiles, by two blocks each"),
              row<tma_half_64x64_k4<f16>>("tma_f16_64x64_k4_sm90a", "few pixels, by clusters of four"),
              row<tma_half_64x64_k8<f16>>("tma_f16_64x64_k8_sm90a", "the fewest pixels, by clusters of eight"))

#endif
