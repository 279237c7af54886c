// SPDX-License-Identifier: MIT
//
// A block of first_box.h, whose groups of four warps walk over items.  nvcc alone reads this.
#pragma once

#include "cuda/first_box.h"
#include "cuda/hopper.h"

namespace quern {
namespace {

// So many steps one after the other; weights of a step, and of f32 their low parts behind the high ones, lie in a row.
template <class Tile, int Steps>
__device__ __forceinline__ void multiply_steps(const Tile& t, float (&d)[Tile::sums],
                                               const box_unit (&unit)[Tile::most_together][2], uint64_t weights,
                                               bool add) {
  using instruction = matrix_by_registers<typename Tile::element, Tile::columns>;
  constexpr int apart = Tile::step_bytes / 16;
  uint32_t x[Steps][4];
#pragma unroll
  for (int i = 0; i < Steps; ++i) t.load_pixels(x[i], unit[i]);
  if constexpr (Tile::halves) {
    keep(d);
    matrix_begin();
#pragma unroll
    for (int i = 0; i < Steps; ++i) instruction::run(d, x[i], weights + i * apart, add || i > 0);
  } else {
    // Small products first: the unit's sums are truncated.
    uint32_t high[Steps][4], low[Steps][4];
#pragma unroll
    for (int i = 0; i < 4 * Steps; ++i) {
      const tf32_pair p = split_tf32(__uint_as_float(x[i / 4][i % 4]));
      high[i / 4][i % 4] = __float_as_uint(p.high), low[i / 4][i % 4] = __float_as_uint(p.low);
    }
    keep(d);
    matrix_begin();
#pragma unroll
    for (int i = 0; i < Steps; ++i) instruction::run(d, low[i], weights + i * apart, i > 0);
#pragma unroll
    for (int i = 0; i < Steps; ++i) instruction::run(d, high[i], weights + i * apart + apart / 2, true);
#pragma unroll
    for (int i = 0; i < Steps; ++i) instruction::run(d, high[i], weights + i * apart, true);
  }
  matrix_commit();
  keep(d);
  matrix_wait<0>();
  keep(d);
}
template <class Tile, int Steps = 1>
__device__ __forceinline__ void multiply_some(const Tile& t, float (&d)[Tile::sums],
                                              const box_unit (&unit)[Tile::most_together][2], uint64_t weights,
                                              bool add) {
  if constexpr (Steps < Tile::most_together)
    if (t.a.together > Steps) return multiply_some<Tile, Steps + 1>(t, d, unit, weights, add);
  multiply_steps<Tile, Steps>(t, d, unit, weights, add);
}

template <class Tile>
__device__ __forceinline__ void write(const Tile& t, const typename Tile::tile_place& at, int32_t kind,
                                      const float (&sum)[Tile::sums]) {
  if (t.whole_chunks()) return t.write_chunks(at, kind, sum);
  write_any<2>(
      t.out(), [&](int i) { t.find_places(at, kind, i); }, [&](int i, int j, int e) { return sum[4 * j + 2 * i + e]; });
}

template <class Tile>
__device__ __forceinline__ void multiply_tile(Tile& t, uint32_t base, const typename Tile::tile_place& at,
                                              int32_t slot) {
  const first_box& a = t.a;
  const int32_t begin = at.part * a.of_part, end = min(begin + a.of_part, t.panels);
  const bool once = a.steps == a.together;  // places of units stay in registers
#pragma unroll 1
  for (int32_t kind = 0; kind < a.kinds; ++kind) {
    box_unit unit[Tile::most_together][2];
    const auto load_units = [&](int32_t step) {
#pragma unroll
      for (int i = 0; i < Tile::most_together; ++i)
        if (i < a.together) t.load_units(unit[i], kind, step + i);
    };
    if (once) load_units(0);
#pragma unroll 1
    for (t.strip = 0; t.strip < a.strips; ++t.strip) {
      t.find_windows(kind, slot);
#pragma unroll 1
      for (t.panel = begin; t.panel < end; ++t.panel) {
        float sum[Tile::sums];
        if constexpr (!Tile::halves) {
#pragma unroll
          for (int i = 0; i < Tile::sums; ++i) sum[i] = 0;
        }
#pragma unroll 1
        for (int32_t step = 0; step < a.steps; step += a.together) {
          if (!once) load_units(step);
          const uint64_t weights = narrow_matrix_in_shared(base + t.weights_at(kind, step));
          if constexpr (Tile::halves) {
            multiply_some(t, sum, unit, weights, step > 0);
          } else {
            float part[Tile::sums];
            multiply_some(t, part, unit, weights, false);
#pragma unroll
            for (int i = 0; i < Tile::sums; ++i) sum[i] += part[i];
          }
        }
        write(t, at, kind, sum);
      }
    }
  }
}

template <class Tile>
__device__ __forceinline__ void run(const first_box& a) {
  extern __shared__ __align__(1024) char memory[];
  char* const shared = memory + (-shared_address(memory) & 1023);
  const uint32_t base = shared_address(shared), held = base + a.barriers_at;
  Tile t(a, shared, blockIdx.x, threadIdx.x);
  const uint32_t full = held + 8 + t.group() * (8 * box_stages);
  const bool speaks = threadIdx.x % 128 == 0;
  if (threadIdx.x == 0) {
    prefetch(a.src);
    for (int i = 0; i <= Tile::groups * box_stages; ++i) init_barrier(held + 8 * i, 1);
    publish_barriers();
  }
  t.make_tables();
  __syncthreads();
  let_next_start();
  wait_for_previous();

  const int32_t apart = gridDim.x / a.chunks * Tile::groups, items = t.items();
  const int32_t first = t.group() * (gridDim.x / a.chunks) + blockIdx.x / a.chunks;
  const auto request = [&](int32_t item, int32_t slot) {
    if (!speaks || item >= items) return;
    arrive_expecting(full + 8 * slot, a.box_bytes);
    t.request(item, [&](int32_t x, int32_t y, int32_t n) {
      copy_box(base + t.stage(slot), a.src, full + 8 * slot, x, y, n);
    });
  };
  if (threadIdx.x == 0) {
    const uint32_t bytes = t.panels * (a.weights_bytes / a.panels);
    arrive_expecting(held, bytes);
    copy_bytes(base, a.weights + int64_t{t.first} * (a.weights_bytes / a.panels), bytes, held);
  }
  for (int i = 0; i < box_stages; ++i) request(first + i * apart, i);
  t.load_channels();
  __syncthreads();
  wait(held, 0);

  int32_t slot = 0;
  uint32_t turn = 0;
  for (int32_t item = first; item < items; item += apart) {
    wait(full + 8 * slot, turn);
    multiply_tile(t, base, t.place_of(item), slot);
    // All of the group are done with the stage.
    asm volatile("bar.sync %0, 128;" ::"r"(1 + t.group()) : "memory");
    request(item + box_stages * apart, slot);
    if (++slot == box_stages) slot = 0, turn ^= 1;
  }
}

}  // namespace
}  // namespace quern
