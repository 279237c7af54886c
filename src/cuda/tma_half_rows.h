// SPDX-License-Identifier: MIT
//
// The kernels of tma_half.h and tma_halo.h for each element type: their entries, or their rows.
#pragma once

#define QUERN_TMA_HALF_KERNELS(X, type)                                    \
  X(type, 256x128, "the largest tile")                                     \
  X(type, 208x128, "tiles of another size, for whole waves")               \
  X(type, 192x128, "tiles of another size, for whole waves")               \
  X(type, 128x128, "tiles of another size, for whole waves")               \
  X(type, 96x128, "images that give few tiles")                            \
  X(type, 256x64, "64 output channels")                                    \
  X(type, 128x64, "64 output channels, few tiles")                         \
  X(type, 64x64, "the fewest tiles")                                       \
  X(type, 256x64_w3, "filters three wide, a line of which is loaded once") \
  X(type, 208x64_w3, "the same, tiles of another size")                    \
  X(type, 176x64_w3, "the same, tiles of another size")                    \
  X(type, 128x64_w3, "the same, few tiles")                                \
  X(type, 96x64_w3, "the same, fewer tiles")                               \
  X(type, 208x64_halo, "up to 64 channels and nine taps: pixels once")     \
  X(type, 192x128_k4, "long sums of few tiles, by clusters of four")       \
  X(type, 128x128_k2, "long sums of few tiles, by two blocks each")        \
  X(type, 64x64_k4, "few pixels, by clusters of four")                     \
  X(type, 64x64_k8, "the fewest pixels, by clusters of eight")

// Of 8 bits fewer; e4m3 has sums of stages in registers too, which leaves none for the largest.
#define QUERN_TMA_BYTE_KERNELS(X, type)                                    \
  X(type, 192x128, "tiles of another size, for whole waves")               \
  X(type, 128x128, "tiles of another size, for whole waves")               \
  X(type, 128x64, "64 output channels, or few tiles")                      \
  X(type, 128x64_w3, "filters three wide, a line of which is loaded once") \
  X(type, 64x64_k4, "few pixels, by clusters of four")                     \
  X(type, 64x64_k8, "the fewest pixels, by clusters of eight")
#define QUERN_TMA_S8_KERNELS(X)                                          \
  X(s8, 256x128, "the largest tile")                                     \
  X(s8, 256x64_w3, "filters three wide, a line of which is loaded once") \
  X(s8, 208x64_w3, "the same, tiles of another size")

#ifdef __CUDACC__

#include "cuda/tma_halo_run.h"

#define QUERN_TMA_HALF_ENTRY(type, tile, about)                                                                \
  extern "C" __global__ void __launch_bounds__(quern::tma_half_##tile<quern::type>::threads, 1)                \
      tma_##type##_##tile##_sm90a(const __grid_constant__ quern::tma_half_##tile<quern::type>::parameters a) { \
    quern::run<quern::tma_half_##tile<quern::type>>(a);                                                        \
  }

#else

#include "cuda/tma_half.h"
#include "cuda/tma_halo.h"
#include "cuda/tma_rows.h"

#define QUERN_TMA_HALF_ROW(type, tile, about) tma_row<tma_half_##tile<type>>("tma_" #type "_" #tile "_sm90a", about),

#endif
