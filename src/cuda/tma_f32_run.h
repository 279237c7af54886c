// SPDX-License-Identifier: MIT
//
// The kernels of tma_f32.h.  nvcc alone reads this.
#pragma once

#include "cuda/hopper.h"
#include "cuda/tma_f32.h"

namespace quern {
namespace {

// The chunks of a tile's stage that begins with this one.
template <class Tile>
__device__ __forceinline__ int chunks_from(const tma_conv& a, int32_t first) {
  return Tile::chunks == 1 ? 1 : min(Tile::chunks, a.blocks - first);
}

template <class Tile>
__device__ __forceinline__ void request_stages(const tma_conv& a, uint32_t base, uint32_t full, uint32_t empty) {
  const uint32_t weights_at = base + Tile::weights_at * 4;
  int stage = 0;
  uint32_t turn = 0;
  for (int32_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const tma_place place = tma_place_of(a, tile, Tile::bm, Tile::bn);
    tma_walk walk(a, place);
    const char* weights =
        a.weights + place.group * a.weights_group + int64_t{place.panel} * a.blocks * (Tile::weight_floats * 4);
    for (int32_t i = 0; i < a.blocks; i += Tile::chunks) {
      const int chunks = chunks_from<Tile>(a, i);
      wait(empty + 8 * stage, turn ^ 1);
      arrive_expecting(full + 8 * stage, chunks * Tile::chunk_bytes);
      copy_bytes(weights_at + stage * Tile::chunks * Tile::weight_floats * 4, weights, chunks * Tile::weight_floats * 4,
                 full + 8 * stage);
      weights += chunks * Tile::weight_floats * 4;
      for (int k = 0; k < chunks; ++k, walk.advance(Tile::bk))
        copy_pixels(base + (stage * Tile::chunks + k) * Tile::pixel_floats * 4, a.src, full + 8 * stage, walk.now);
      if (++stage == Tile::stages) stage = 0, turn ^= 1;
    }
  }
}

// The products of a chunk at a tap: small ones first.
template <class Tile>
__device__ __forceinline__ void multiply_chunk(float (&part)[Tile::bn / 2], const typename Tile::fragments& x,
                                               uint64_t high, bool add) {
  using instruction = matrix_by_registers<typename Tile::parts::element, Tile::bn>;
  const uint64_t low = high + (Tile::parts::matrices == 2 ? Tile::bn * 128 : 64) / 16;
#pragma unroll
  for (int k = 0; k < Tile::steps; ++k) instruction::run(part, x.low[k], high + 2 * k, add || k > 0);
#pragma unroll
  for (int k = 0; k < Tile::steps; ++k) instruction::run(part, x.high[k], low + 2 * k, true);
#pragma unroll
  for (int k = 0; k < Tile::steps; ++k) instruction::run(part, x.high[k], high + 2 * k, true);
}

template <class Tile>
__device__ __forceinline__ void multiply(const typename Tile::parameters& a, float* shared, uint32_t base,
                                         uint32_t full, uint32_t empty) {
  const typename Tile::parts parts(a);
  const int32_t thread = threadIdx.x;
  int stage = 0;
  uint32_t turn = 0;
  if (thread / 128 == Tile::groups - 1) give_turn(0);
  for (int32_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const tma_place place = tma_place_of(a, tile, Tile::bm, Tile::bn);
    float sum[Tile::bn / 2], part[Tile::bn / 2];
#pragma unroll
    for (int i = 0; i < Tile::bn / 2; ++i) sum[i] = part[i] = 0;
    constexpr int units = Tile::chunks * Tile::taps;
    typename Tile::fragments x[units];
    int before = -1;
    const auto finish = [&] {
      matrix_wait<0>();
      keep(part);
#pragma unroll
      for (int i = 0; i < Tile::bn / 2; ++i) sum[i] += part[i];
      if (before >= 0 && thread % 32 == 0) arrive(empty + 8 * before);
    };
    for (int32_t i = 0; i < a.blocks; i += Tile::chunks) {
      const int there = chunks_from<Tile>(a, i) * Tile::taps;
      wait(full + 8 * stage, turn);
      const auto load = [&](int k) {
        x[k].load(shared + (stage * Tile::chunks + k / Tile::taps) * Tile::pixel_floats, thread, k % Tile::taps);
      };
      load(0);
      finish();
#pragma unroll
      for (int k = 0; k < units; ++k) {
        if (k > 0 && k < there) load(k);
        x[k].split(parts);
        // Now, not when its turn has come.
#pragma unroll
        for (int i = 0; i < Tile::steps; ++i) keep(x[k].high[i]), keep(x[k].low[i]);
      }
      const uint64_t weights =
          matrix_in_shared(base + (Tile::weights_at + stage * Tile::chunks * Tile::weight_floats) * 4);
      // Groups take turns, so that one splits while the others multiply (FlashAttention-3's ping-pong).
      wait_turn(thread / 128);
      keep(part);
#pragma unroll
      for (int k = 0; k < units; ++k) {
        if (k >= there) break;
        matrix_begin();
        multiply_chunk<Tile>(part, x[k], weights + k * Tile::tap_floats / 4, k > 0);
        matrix_commit();
      }
      give_turn((thread / 128 + 1) % Tile::groups);
      keep(part);
      before = stage;
      if (++stage == Tile::stages) stage = 0, turn ^= 1;
    }
    finish();
    parts.finish(a, place, sum, thread);

    if (Tile::writes_planes(a.out)) {
      Tile::write_planes(a, place, sum, thread);
      continue;
    }
    const typename Tile::warp_out out = Tile::output(a, shared, thread);
    Tile::find_places(out, a, place, thread);
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

// Producer, Consumer: registers of a thread that requests, and of one that multiplies.
template <class Tile, int Producer, int Consumer>
__device__ __forceinline__ void run(const typename Tile::parameters& a) {
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
}  // namespace quern

#define QUERN_TMA_F32_ENTRY(name, tile, producer, consumer)             \
  extern "C" __global__ void __launch_bounds__(quern::tile::threads, 1) \
      name(const __grid_constant__ quern::tile::parameters a) {         \
    quern::run<quern::tile, producer, consumer>(a);                     \
  }
