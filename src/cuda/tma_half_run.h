// SPDX-License-Identifier: MIT
//
// A block of tma_half.h: one thread requests, groups of warps multiply.  nvcc alone reads this.
#pragma once

#include "cuda/hopper.h"
#include "cuda/pixels_last.h"
#include "cuda/tma_half.h"

namespace quern {
namespace {

template <class Tile>
__device__ __forceinline__ void request(const tma_conv& a, uint32_t base, uint32_t full, uint32_t empty) {
  const uint32_t weights_at = base + Tile::stages * Tile::pixel_bytes;
  int stage = 0;
  uint32_t turn = 0;
  for (int32_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const tma_place place = tma_place_of(a, tile, Tile::bm, Tile::bn);
    tma_walk walk(a, place);
    const char* weights =
        a.weights + place.group * a.weights_group + int64_t{place.panel} * a.blocks * Tile::weight_bytes;
    for (int32_t i = 0; i < a.blocks; ++i) {
      wait(empty + 8 * stage, turn ^ 1);
      arrive_expecting(full + 8 * stage, Tile::stage_bytes);
      copy_pixels(base + stage * Tile::pixel_bytes, a.src, full + 8 * stage, walk.now);
      copy_bytes(weights_at + stage * Tile::weight_bytes, weights, Tile::weight_bytes, full + 8 * stage);
      walk.advance(Tile::bk), weights += Tile::weight_bytes;
      if (++stage == Tile::stages) stage = 0, turn ^= 1;
    }
  }
}

// Of the four warps of a group.
__device__ __forceinline__ void meet(int group) { asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory"); }

// Sets of groups multiply in turn: a barrier's parity tells a stage that has arrived from one that has not only to who
// is less than a round of stages away.
__device__ __forceinline__ void wait_turn(int set) { asm volatile("bar.sync %0, 256;" ::"r"(3 + set) : "memory"); }
__device__ __forceinline__ void give_turn(int set) { asm volatile("bar.arrive %0, 256;" ::"r"(3 + set) : "memory"); }

template <class Tile>
__device__ __forceinline__ void write_tile(const Tile& t, int group, const float (&sum)[Tile::bm / 2]) {
  const int lane = t.thread % 32;
  if (!t.whole_chunks()) {
    // One copy of the activations; sums must be named by constants.
#pragma unroll 1
    for (int i = 0; i < Tile::bm / 16; ++i) {
      __syncwarp();
      t.output().find_place(t.output_of(16 * i + lane % 16));
#pragma unroll
      for (int k = 0; k < Tile::bm / 16; ++k)
        if (k == i) t.stage_out(sum + 8 * k);
      __syncwarp();
      t.finish();
    }
    return meet(group);
  }
  const channel_f32 of[] = {t.of(0), t.of(1)};
  const bool residual = t.a.out.epilogue.residual != QUERN_RESIDUAL_NONE;
#pragma unroll
  for (int first = 0; first < Tile::bm; first += Tile::out_rows) {
    constexpr int most = Tile::out_rows;
    const int rows = Tile::bm - first < most ? Tile::bm - first : most;
    if (residual) t.read_residual(first, rows), meet(group);
#pragma unroll
    for (int j = 0; j < rows / 8; j += 2) {
      // Four matrices of 8 x 8, of which a thread of eight names a row.
      char* const row =
          t.shared + Tile::staged(8 * j + lane / 16 * 8 + lane % 8, t.thread % 128 / 32 * 16 + lane / 8 % 2 * 8);
      uint32_t r[4] = {}, y[4];
      if (residual) load_matrices_turned(r, row);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float* const two = sum + 4 * (first / 8 + j + k / 2) + 2 * (k % 2);
        y[k] = t.finished_pair(of[k % 2], two[0], two[1], r[k]);
      }
      if (residual) __syncwarp();
      store_matrices_turned(row, y);
    }
    meet(group);
    t.write_out(first, rows);
    meet(group);
  }
}

template <class Tile>
__device__ __forceinline__ void multiply(const tma_conv& a, char* shared, uint32_t base, uint32_t full,
                                         uint32_t empty) {
  const int group = threadIdx.x / 128, set = group / Tile::groups;
  const int32_t thread = threadIdx.x - set * 128 * Tile::groups;
  const uint32_t weights_at = base + Tile::stages * Tile::pixel_bytes + thread / 128 * 64 * 128;
  int stage = 0;
  uint32_t turn = 0;
  const auto skip = [&](int stages) {
    stage += stages;
    turn ^= stage / Tile::stages & 1, stage %= Tile::stages;
  };
  if (Tile::sets > 1) {
    skip(set * a.blocks);
    if (set == 1) give_turn(0);
  }
  for (int32_t tile = blockIdx.x + set * gridDim.x; tile < a.tiles; tile += Tile::sets * gridDim.x) {
    float sum[Tile::bm / 2];
    if (a.blocks == 0) {
#pragma unroll
      for (int i = 0; i < Tile::bm / 2; ++i) sum[i] = 0;
    }
    int before = -1;
    if (Tile::sets > 1) wait_turn(set);
    for (int32_t i = 0; i < a.blocks; ++i) {
      wait(full + 8 * stage, turn);
      const uint64_t weights = matrix_in_shared(weights_at + stage * Tile::weight_bytes);
      const uint64_t pixels = matrix_in_shared(base + stage * Tile::pixel_bytes);
      keep(sum);
      matrix_begin();
#pragma unroll
      for (int tap = 0; tap < Tile::taps; ++tap) {
#pragma unroll
        for (int k = 0; k < 4; ++k)
          matrix_half<typename Tile::element, Tile::bm>::run(sum, weights + tap * (Tile::tap_bytes / 16) + 2 * k,
                                                             pixels + tap * 8 + 2 * k, i > 0 || tap > 0 || k > 0);
      }
      matrix_commit();
      keep(sum);
      matrix_wait<1>();  // for the stage before
      if (before >= 0 && thread % 32 == 0) arrive(empty + 8 * before);
      before = stage;
      if (++stage == Tile::stages) stage = 0, turn ^= 1;
    }
    if (Tile::sets > 1) give_turn(1 - set);
    matrix_wait<0>();
    keep(sum);
    if (before >= 0 && thread % 32 == 0) arrive(empty + 8 * before);
    const tma_place place = tma_place_of(a, tile, Tile::bm, Tile::bn);
    write_tile(Tile{a, place, shared + Tile::stages * Tile::stage_bytes + group * Tile::out_bytes, thread}, group, sum);
    if (Tile::sets > 1) skip((Tile::sets - 1) * a.blocks);
  }
}

template <class Tile>
__device__ __forceinline__ void run(const tma_conv& a) {
  extern __shared__ __align__(1024) char memory[];
  char* const shared = memory + (-shared_address(memory) & 1023);
  const uint32_t base = shared_address(shared);
  const uint32_t full = base + Tile::shared_bytes - 1024 - Tile::stages * 16, empty = full + Tile::stages * 8;
  if (threadIdx.x == 0) {
    prefetch(a.src);
    for (int i = 0; i < Tile::stages; ++i) init_barrier(full + 8 * i, 1), init_barrier(empty + 8 * i, 4 * Tile::groups);
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= 256) {
    fewer_registers<40>();
    if (threadIdx.x == 256) request<Tile>(a, base, full, empty);
  } else {
    more_registers<232>();
    multiply<Tile>(a, shared, base, full, empty);
  }
}

}  // namespace
}  // namespace quern

#define QUERN_TMA_HALF(type, tile)                                                              \
  extern "C" __global__ void __launch_bounds__(quern::tma_half_##tile<quern::type>::threads, 1) \
      tma_##type##_##tile##_sm90a(const __grid_constant__ quern::tma_conv a) {                  \
    quern::run<quern::tma_half_##tile<quern::type>>(a);                                         \
  }
