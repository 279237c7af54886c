// SPDX-License-Identifier: MIT
//
// A block of first_box.h, whose groups of four warps walk over items.  nvcc alone reads this.
#pragma once

#include "cuda/first_box.h"
#include "cuda/hopper.h"

namespace quern {
namespace {

// Products of so many steps from pixels in registers, to be waited for; weights of a step, and of f32 their low parts
// behind the high ones, lie in a row.
template <class Tile, int Steps>
__device__ __forceinline__ void multiply_steps(typename Tile::number (&d)[Tile::sums], const uint32_t (&x)[Steps][4],
                                               uint64_t weights, bool add) {
  using instruction = matrix_by_registers<typename Tile::element, Tile::columns>;
  constexpr int apart = Tile::step_bytes / 16;
  if constexpr (Tile::words == 1) {
    keep(d);
    matrix_begin();
#pragma unroll
    for (int i = 0; i < Steps; ++i) instruction::run(d, x[i], further(weights, i * apart), add || i > 0);
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
    for (int i = 0; i < Steps; ++i) instruction::run(d, low[i], further(weights, i * apart), i > 0);
#pragma unroll
    for (int i = 0; i < Steps; ++i) instruction::run(d, high[i], further(weights, i * apart + apart / 2), true);
#pragma unroll
    for (int i = 0; i < Steps; ++i) instruction::run(d, high[i], further(weights, i * apart), true);
  }
  matrix_commit();
  keep(d);
}

// Steps: as many as are multiplied together.  Rounds of them whose places of units stay in registers; 0: any number,
// whose places are loaded while others are multiplied.  Pixels of a single round do for all panels.  Whole:
// whole_chunks().
template <int Steps, int Rounds, bool Whole, class Tile>
__device__ __forceinline__ void multiply_tile(Tile& t, uint32_t base, const typename Tile::tile_place& at,
                                              int32_t slot) {
  const first_box& a = t.a;
  const int32_t first = at.part * a.of_part, last = min(first + a.of_part, t.panels) - 1;
  if (first > last) return;
#pragma unroll 1
  for (int32_t kind = 0; kind < a.kinds; ++kind) {
    constexpr int held = Rounds > 1 ? Rounds * Steps : Steps;
    box_unit unit[held][2];
    uint32_t x[Steps][4];
    const auto load_units = [&](int32_t step) {
#pragma unroll
      for (int i = 0; i < held; ++i) t.load_units(unit[i], kind, step + i);
    };
    const auto load_pixels = [&](int round) {
#pragma unroll
      for (int i = 0; i < Steps; ++i) t.load_pixels(x[i], unit[round * Steps + i]);
    };
    const auto begin = [&](int32_t strip) {
      t.strip = strip;
      if (strip == a.strips) return;
      t.find_windows(at, kind, slot);
      if constexpr (Rounds == 1) load_pixels(0);
    };
    load_units(0);
    begin(0);
#pragma unroll 1
    while (t.strip < a.strips) {
#pragma unroll 1
      for (t.panel = first; t.panel <= last; ++t.panel) {
        typename Tile::number sum[Tile::sums];
        const auto multiply = [&](typename Tile::number(&d)[Tile::sums], int32_t step, int round, bool add) {
          if constexpr (Rounds != 1) load_pixels(round);
          multiply_steps<Tile, Steps>(d, x, narrow_matrix_in_shared(base + t.weights_at(kind, step)), add);
          if constexpr (Rounds == 0) load_units(step + Steps < a.steps ? step + Steps : 0);
          matrix_wait<0>();
          keep(d);
        };
        const auto multiply_more = [&](int32_t step, int round) {
          if constexpr (!Tile::in_parts) {
            multiply(sum, step, round, true);
          } else {
            float part[Tile::sums];
            multiply(part, step, round, false);
#pragma unroll
            for (int i = 0; i < Tile::sums; ++i) sum[i] += part[i];
          }
        };
        multiply(sum, 0, 0, false);
        if constexpr (Rounds == 0) {
#pragma unroll 1
          for (int32_t step = Steps; step < a.steps; step += Steps) multiply_more(step, 0);
        }
#pragma unroll
        for (int round = 1; round < Rounds; ++round) multiply_more(round * Steps, round);
        if constexpr (Whole) {
          // The next strip's pixels are loaded while this one is written.
          const int32_t output[2] = {t.output[0], t.output[1]};
          if (t.panel == last) begin(t.strip + 1);
          t.write_chunks(output, sum);
        } else {
          write_any<2>(
              t.out(), [&](int i) { t.find_places(at, kind, i); },
              [&](int i, int j, int e) { return sum[4 * j + 2 * i + e]; });
          if (t.panel == last) begin(t.strip + 1);
        }
      }
    }
  }
}

// Calls f with constants: Steps and Rounds of whole chunks.  Other outputs, of which time goes elsewhere, make do with
// a step after the other.
template <int Steps, int Rounds, class Tile, class F>
__device__ __forceinline__ void with_steps(const Tile& t, F f) {
  if constexpr (Steps < Tile::most_together)
    if (t.a.together > Steps) return with_steps<Steps + 1, Rounds>(t, f);
  f(std::integral_constant<int, Steps>{}, std::integral_constant<int, Rounds>{}, std::true_type{});
}
template <class Tile, class F>
__device__ __forceinline__ void with_rounds(const Tile& t, F f) {
  constexpr int few = Tile::most_together / 2 + 1;  // steps of one round of two, at least
  if (!t.whole_chunks())
    return f(std::integral_constant<int, 1>{}, std::integral_constant<int, 0>{}, std::false_type{});
  if (t.a.steps == t.a.together) return with_steps<1, 1>(t, f);
  if (t.a.steps == 2 * t.a.together) return with_steps<few, 2>(t, f);
  with_steps<few, 0>(t, f);
}

template <class Tile>
__device__ __forceinline__ void run(const first_box& a) {
  extern __shared__ __align__(1024) char memory[];
  char* const shared = memory + (-shared_address(memory) & 1023);
  const uint32_t base = shared_address(shared), held = base + a.barriers_at;
  Tile t(a, shared, blockIdx.x, threadIdx.x);
  const uint32_t full = held + 8 + t.group * (8 * box_stages);
  const bool speaks = threadIdx.x % 128 == 0;
  const auto request_weights = [&] {
    const int32_t of_panel = a.weights_bytes / a.panels, bytes = t.panels * of_panel;
    arrive_expecting(held, bytes);
    copy_bytes(base, a.weights + int64_t{t.first} * of_panel, bytes, held);
  };
  if (threadIdx.x == 0) {
    prefetch(a.src);
    for (int i = 0; i <= Tile::groups * box_stages; ++i) init_barrier(held + 8 * i, 1);
    publish_barriers();
    if (a.ahead) request_weights();
  }
  let_next_start();
  t.make_tables();
  __syncthreads();
  wait_for_previous();

  const int32_t apart = gridDim.x / a.chunks * Tile::groups, items = t.items();
  const int32_t first = t.group * (gridDim.x / a.chunks) + blockIdx.x / a.chunks;
  const auto request = [&](int32_t item, int32_t slot) {
    if (!speaks || item >= items) return;
    arrive_expecting(full + 8 * slot, a.box_bytes);
    t.request(item, [&](int32_t x, int32_t y, int32_t n) {
      copy_box(base + t.stage(slot), a.src, full + 8 * slot, x, y, n);
    });
  };
  if (threadIdx.x == 0 && !a.ahead) request_weights();
  for (int i = 0; i < box_stages; ++i) request(first + i * apart, i);
  t.load_channels();
  __syncthreads();
  wait(held, 0);

  with_rounds(t, [&](auto steps, auto rounds, auto whole) {
    int32_t slot = 0;
    uint32_t turn = 0;
    for (int32_t item = first; item < items; item += apart) {
      wait(full + 8 * slot, turn);
      multiply_tile<steps(), rounds(), whole()>(t, base, t.place_of(item), slot);
      // All of the group are done with the stage.
      asm volatile("bar.sync %0, 128;" ::"r"(1 + t.group) : "memory");
      request(item + box_stages * apart, slot);
      if (++slot == box_stages) slot = 0, turn ^= 1;
    }
  });
}

}  // namespace
}  // namespace quern
