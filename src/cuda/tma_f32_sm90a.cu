// SPDX-License-Identifier: MIT
//
// Implicit GEMM in f32 on the tensor cores of capability 9.0, by three products of TF32.  Names: pixels x channels
// of a tile.
#include "cuda/pixels_last.h"
#include "cuda/tma_f32.h"

#ifdef __CUDACC__

#include "cuda/hopper.h"

namespace {

using namespace quern;

template <class Tile>
__device__ __forceinline__ void request_stages(const tma_conv& a, uint32_t base, uint32_t full, uint32_t empty) {
  const uint32_t weights_at = base + Tile::stages * Tile::pixel_floats * 4;
  int stage = 0;
  uint32_t turn = 0;
  for (int32_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const tma_place place = tma_place_of(a, tile, Tile::bm, Tile::bn);
    tma_walk walk(a, place);
    const char* weights =
        a.weights + place.group * a.weights_group + int64_t{place.panel} * a.blocks * (Tile::weight_floats * 4);
    for (int32_t i = 0; i < a.blocks; ++i) {
      wait(empty + 8 * stage, turn ^ 1);
      arrive_expecting(full + 8 * stage, Tile::stage_bytes);
      copy_pixels(base + stage * Tile::pixel_floats * 4, a.src, full + 8 * stage, walk.now);
      copy_bytes(weights_at + stage * Tile::weight_floats * 4, weights, Tile::weight_floats * 4, full + 8 * stage);
      walk.advance(Tile::bk), weights += Tile::weight_floats * 4;
      if (++stage == Tile::stages) stage = 0, turn ^= 1;
    }
  }
}

// Barriers of two groups of warps, one that waits and the one before it.
__device__ __forceinline__ void wait_turn(int group) { asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory"); }
__device__ __forceinline__ void give_turn(int group) {
  asm volatile("bar.arrive %0, 256;" ::"r"(1 + group) : "memory");
}

template <class Tile>
__device__ __forceinline__ void multiply(const tma_conv& a, float* shared, uint32_t base, uint32_t full,
                                         uint32_t empty) {
  const int32_t thread = threadIdx.x;
  int stage = 0;
  uint32_t turn = 0;
  if (thread / 128 == Tile::groups - 1) give_turn(0);
  for (int32_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    float sum[Tile::bn / 2], part[Tile::bn / 2];
#pragma unroll
    for (int i = 0; i < Tile::bn / 2; ++i) sum[i] = part[i] = 0;
    typename Tile::fragments x;
    int before = -1;
    const auto finish = [&] {
      matrix_wait<0>();
      keep(part);
#pragma unroll
      for (int i = 0; i < Tile::bn / 2; ++i) sum[i] += part[i];
      if (before >= 0 && thread % 32 == 0) arrive(empty + 8 * before);
    };
    for (int32_t i = 0; i < a.blocks; ++i) {
      wait(full + 8 * stage, turn);
      x.load(shared + stage * Tile::pixel_floats, thread);
      finish();
      x.split();
      const uint64_t high =
          matrix_in_shared(base + (Tile::stages * Tile::pixel_floats + stage * Tile::weight_floats) * 4);
      const uint64_t low = high + Tile::weight_floats * 2 / 16;
      // Groups take turns, so that one splits while the others multiply (FlashAttention-3's ping-pong).
      wait_turn(thread / 128);
      keep(part);
      matrix_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) matrix_by_registers<float, Tile::bn>::run(part, x.low[k], high + 2 * k, k > 0);
#pragma unroll
      for (int k = 0; k < 4; ++k) matrix_by_registers<float, Tile::bn>::run(part, x.high[k], low + 2 * k, true);
#pragma unroll
      for (int k = 0; k < 4; ++k) matrix_by_registers<float, Tile::bn>::run(part, x.high[k], high + 2 * k, true);
      matrix_commit();
      give_turn((thread / 128 + 1) % Tile::groups);
      keep(part);
      before = stage;
      if (++stage == Tile::stages) stage = 0, turn ^= 1;
    }
    finish();

    const tma_place place = tma_place_of(a, tile, Tile::bm, Tile::bn);
    if (Tile::writes_planes(a.out)) {
      Tile::write_planes(a, place, sum, thread);
      continue;
    }
    const typename Tile::warp_out out = Tile::output(a, shared, thread);
    out.find_places(place.pixel + thread / 32 * 16);
#pragma unroll
    for (int i = 0; i < Tile::bn / 32; ++i) {
      __syncwarp();
      Tile::stage_out(out, sum + 16 * i, thread);
      __syncwarp();
      out.finish(place.group, place.channel + 32 * i);
    }
    __syncwarp();
  }
}

template <class Tile, int Producer, int Consumer>
__device__ __forceinline__ void run(const tma_conv& a) {
  extern __shared__ __align__(1024) char memory[];
  float* const shared = reinterpret_cast<float*>(memory + (-shared_address(memory) & 1023));
  const uint32_t base = shared_address(shared);
  const uint32_t full = base + Tile::shared_bytes - 1024 - Tile::stages * 16, empty = full + Tile::stages * 8;
  if (threadIdx.x == 0) {
    prefetch(a.src);
    for (int i = 0; i < Tile::stages; ++i) init_barrier(full + 8 * i, 1), init_barrier(empty + 8 * i, 4 * Tile::groups);
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= 128 * Tile::groups) {
    fewer_registers<Producer>();
    if (threadIdx.x == 128 * Tile::groups) request_stages<Tile>(a, base, full, empty);
  } else {
    more_registers<Consumer>();
    multiply<Tile>(a, shared, base, full, empty);
  }
}

}  // namespace

#define QUERN_TMA(tile, producer, consumer)                                       \
  extern "C" __global__ void __launch_bounds__(quern::tma_f32_##tile::threads, 1) \
      tma_f32_##tile##_sm90a(const __grid_constant__ quern::tma_conv a) {         \
    run<quern::tma_f32_##tile, producer, consumer>(a);                            \
  }
QUERN_TMA(128x128, 40, 232)
QUERN_TMA(192x64, 24, 160)
QUERN_TMA(128x64, 40, 232)

#else

#include "cuda/tma_rows.h"

// Of kind::tma.
QUERN_KERNELS(tma_f32_sm90a, tma_row<tma_f32_128x128>("tma_f32_128x128_sm90a", "3xTF32, the largest tile"),
              tma_row<tma_f32_192x64>("tma_f32_192x64_sm90a", "3xTF32, 64 output channels or waves of another size"),
              tma_row<tma_f32_128x64>("tma_f32_128x64_sm90a", "3xTF32, images that give few tiles"))

#endif
