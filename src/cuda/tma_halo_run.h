// SPDX-License-Identifier: MIT
//
// A block of tma_halo.h: one thread requests, two groups of warps multiply in turn.  nvcc alone reads this.
#pragma once

#include "cuda/tma_half_run.h"
#include "cuda/tma_halo.h"

namespace quern {
namespace {

template <class Tile>
__device__ __forceinline__ void request(const halo_conv& a, uint32_t base, uint32_t full, uint32_t empty) {
  const uint32_t held = full + Tile::stages * 16, bytes = a.taps[0] * a.taps[1] * Tile::tap_bytes;
  if (!a.ahead) wait_for_previous();
  arrive_expecting(held, bytes);
  copy_bytes(base + Tile::stages * Tile::stage_bytes, a.weights, bytes, held);
  wait_for_previous();
  int stage = 0;
  uint32_t turn = 0;
  for (int32_t tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const halo_place place = halo_place_of(a, tile);
    wait(empty + 8 * stage, turn ^ 1);
    arrive_expecting(full + 8 * stage, a.lines * a.pitch * 128);
    copy_box(base + stage * Tile::stage_bytes, a.src, full + 8 * stage, 0, place.w + a.begin[1], place.h + a.begin[0],
             place.n);
    if (++stage == Tile::stages) stage = 0, turn ^= 1;
  }
}

// Easily: ends_easily().
template <class Tile, bool Residual, bool Easily>
__device__ __forceinline__ void write_whole(const Tile& t, int group, const float (&sum)[Tile::bm / 2],
                                            const channel_f32 (&of)[2]) {
  const int lane = t.thread % 32;
  if (Residual) t.read_residual(), meet(group);
#pragma unroll
  for (int j = 0; j < Tile::bm / 8; j += 2) {
    // Four matrices of 8 x 8, of which a thread of eight names a row.
    char* const row =
        t.shared + Tile::staged(t.staged_row(8 * j + lane / 16 * 8 + lane % 8), t.thread / 32 * 16 + lane / 8 % 2 * 8);
    uint32_t r[4] = {}, y[4];
    if (Residual) load_matrices_turned(r, row);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int two = 4 * (j + k / 2) + 2 * (k % 2);
      y[k] = finished_pair<typename Tile::element, Residual, Easily>(t.a.out.epilogue, of[k % 2], sum[two],
                                                                     sum[two + 1], r[k]);
    }
    if (Residual) __syncwarp();
    store_matrices_turned(row, y);
  }
  publish_to_engine();
  meet(group);
  if (!t.a.stores) {
    t.write_out();
    meet(group);
  } else if (t.thread == 0) {
    store_box(t.a.dst, shared_address(t.shared), t.place.w, t.place.h, t.place.n);
    store_commit();
    store_wait<0>();
  }
}

template <class Tile>
__device__ __forceinline__ void write_tile(const Tile& t, int group, const float (&sum)[Tile::bm / 2],
                                           const channel_f32 (&of)[2]) {
  if (t.whole_chunks()) {
    if (ends_easily(t.a.out.epilogue)) return write_whole<Tile, false, true>(t, group, sum, of);
    if (t.a.out.epilogue.residual == QUERN_RESIDUAL_NONE) return write_whole<Tile, false, false>(t, group, sum, of);
    return write_whole<Tile, true, false>(t, group, sum, of);
  }
  // One copy of the activations; sums must be named by constants.
#pragma unroll 1
  for (int i = 0; i < Tile::bm / 16; ++i) {
    __syncwarp();
    t.output().find_place(t.output_of(16 * i + t.thread % 16));
#pragma unroll
    for (int k = 0; k < Tile::bm / 16; ++k)
      if (k == i) t.stage_out(sum + 8 * k);
    __syncwarp();
    t.finish();
  }
  publish_to_engine();  // which writes here next
  meet(group);
}

template <class Tile>
__device__ __forceinline__ void multiply(const halo_conv& a, char* shared, uint32_t base, uint32_t full,
                                         uint32_t empty) {
  const int group = threadIdx.x / 128;
  const int32_t thread = threadIdx.x % 128;
  const int32_t taps = a.taps[0] * a.taps[1];
  int stage = group;
  uint32_t turn = 0;
  wait(full + Tile::stages * 16, 0);
  if (group == 1) give_turn(0);
  const channel_f32 of[] = {Tile::of(a, thread, 0), Tile::of(a, thread, 1)};
  for (int32_t tile = blockIdx.x + group * gridDim.x; tile < a.tiles; tile += 2 * gridDim.x) {
    const halo_place place = halo_place_of(a, tile);
    const Tile t = {a, place, shared + stage * Tile::stage_bytes, thread};
    float sum[Tile::bm / 2];
    wait_turn(group);
    wait(full + 8 * stage, turn);
    uint64_t weights = matrix_in_shared(base + Tile::stages * Tile::stage_bytes);
    uint64_t line = matrix_in_shared(base + stage * Tile::stage_bytes), pixels = line;
    for (int32_t tap = 0, s = 0; tap < taps; ++tap) {
      keep(sum);
      matrix_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        matrix_half<typename Tile::element, Tile::bm>::run(sum, weights + 2 * k, pixels + 2 * k, tap > 0 || k > 0);
      matrix_commit();
      keep(sum);
      weights += Tile::tap_bytes / 16, pixels += a.step[1] * 8;
      if (++s == a.taps[1]) s = 0, line += a.step[0] * a.pitch * 8, pixels = line;
    }
    give_turn(1 - group);
    matrix_wait<0>();
    keep(sum);
    meet(group);  // all have read the pixels
    write_tile(t, group, sum, of);
    if (thread == 0) arrive(empty + 8 * stage);
    stage += 2;
    if (stage >= Tile::stages) stage -= Tile::stages, turn ^= 1;
  }
}

template <class Tile>
__device__ __forceinline__ void run(const halo_conv& a) {
  extern __shared__ __align__(1024) char memory[];
  char* const shared = memory + (-shared_address(memory) & 1023);
  const uint32_t base = shared_address(shared);
  const uint32_t full = base + Tile::stages_bytes, empty = full + Tile::stages * 8;
  if (threadIdx.x == 0) {
    prefetch(a.src), prefetch(a.dst);
    for (int i = 0; i < 2 * Tile::stages + 1; ++i) init_barrier(full + 8 * i, 1);
    publish_barriers();
  }
  __syncthreads();
  let_next_start();
  if (threadIdx.x >= Tile::multiplying) {
    fewer_registers<40>();
    if (threadIdx.x == Tile::multiplying) request<Tile>(a, base, full, empty);
  } else {
    more_registers<232>();
    wait_for_previous();
    multiply<Tile>(a, shared, base, full, empty);
  }
}

}  // namespace
}  // namespace quern
