// SPDX-License-Identifier: MIT
//
// A block of tma_half.h: one thread requests, groups of warps multiply.  nvcc alone reads this.
#pragma once

#include "cuda/hopper.h"
#include "cuda/pixels_last.h"
#include "cuda/tma_half.h"

namespace quern {
namespace {

// A cluster has one tile, a block alone each so many.
template <class Tile>
__device__ __forceinline__ int32_t first_tile() {
  return blockIdx.x / Tile::cluster;
}
template <class Tile>
__device__ __forceinline__ tma_share share_of(const tma_conv& a) {
  if constexpr (Tile::cluster == 1) return {0, a.blocks};
  return tma_share_of(a, cluster_rank(), Tile::cluster);
}

template <class Tile>
__device__ __forceinline__ void request(const tma_conv& a, uint32_t base, uint32_t full, uint32_t empty) {
  const uint32_t weights_at = base + Tile::stages * Tile::pixel_bytes;
  const tma_share share = share_of<Tile>(a);
  int stage = 0, ahead = 0;
  uint32_t turn = 0;
  const auto weights_of = [&](const tma_place& place) {
    return a.weights + place.group * a.weights_group +
           (int64_t{place.panel} * a.blocks + share.first) * Tile::weight_bytes;
  };
  const auto request_weights = [&](int to, const char* weights) {
    arrive_expecting(full + 8 * to, Tile::stage_bytes);
    copy_bytes(weights_at + to * Tile::weight_bytes, weights, Tile::weight_bytes, full + 8 * to);
  };
  if (a.ahead) {
    const char* const weights = weights_of(tma_place_of(a, first_tile<Tile>(), Tile::bm, Tile::bn));
    for (; ahead < Tile::stages && ahead < share.last - share.first; ++ahead)
      request_weights(ahead, weights + ahead * Tile::weight_bytes);
  }
  for (int32_t tile = first_tile<Tile>(); tile < a.tiles; tile += gridDim.x) {
    const tma_place place = tma_place_of(a, tile, Tile::bm, Tile::bn);
    tma_walk walk(a, place);
    if constexpr (Tile::cluster > 1) walk.skip(share.first, Tile::bk);
    const char* weights = weights_of(place);
    wait_for_previous();  // at the first tile
    for (int32_t i = share.first; i < share.last; ++i) {
      if (ahead > 0) {
        --ahead;
      } else {
        wait(empty + 8 * stage, turn ^ 1);
        request_weights(stage, weights);
      }
      copy_pixels(base + stage * Tile::pixel_bytes, a.src, full + 8 * stage, walk.now);
      walk.advance(Tile::bk), weights += Tile::weight_bytes;
      if (++stage == Tile::stages) stage = 0, turn ^= 1;
    }
  }
}

// Of the four warps of a group.
__device__ __forceinline__ void meet(int group) { asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory"); }

// Of all that multiply.
template <class Tile>
__device__ __forceinline__ void meet_all() {
  asm volatile("bar.sync 5, %0;" ::"n"(Tile::multiplying) : "memory");
}

// Pixels of the tile from `from` on, whose sums these are, a part after the other: sums must be named by constants.
template <class Tile, bool Residual, int First = 0, class Number>
__device__ __forceinline__ void write_parts(Tile t, int group, int from, const Number (&sum)[Tile::written / 2],
                                            const channel_f32 (&of)[2]) {
  constexpr int rows = Tile::written - First < Tile::part_rows ? Tile::written - First : Tile::part_rows;
  const bool speaks = t.thread % 128 == 0;
  // The part before this one has left.
  if (t.a.stores && speaks) store_wait<0>();
  meet(group);
  if (Residual) t.read_residual(from + First, rows), meet(group);
  const auto stage = [&](auto easily, const channel_f32(&channel)[2]) {
#pragma unroll
    for (int j = 0; j < rows; j += 16) {
      char* const row = t.matrix_row(j);
      uint32_t r[Tile::words] = {}, y[Tile::words];
      if (Residual) load_matrices_turned(r, row);
#pragma unroll
      for (int k = 0; k < Tile::words; ++k)
        y[k] = t.template finished_word<Residual, easily()>(sum + (First + j) / 2, k, channel, r[k]);
      if (Residual) __syncwarp();
      store_matrices_turned(row, y);
    }
  };
  if constexpr (Residual) {
    stage(std::false_type{}, of);
  } else if (ends_easily(t.a.out.epilogue)) {
    const auto easy = [&](int i) { return easy_channel<typename Tile::element>(of[i]); };
    stage(std::true_type{}, {easy(0), easy(1)});
  } else {
    stage(std::false_type{}, of);
  }
  if (t.a.stores) publish_to_engine();
  meet(group);
  if (!t.a.stores) {
    t.write_out(from + First, rows);
  } else if (speaks) {
    t.each_box(from + First, rows, [&](const char* box, int32_t channel, int32_t pixel) {
      store_box(t.a.dst, shared_address(box), channel, pixel);
    });
    store_commit();
  }
  if constexpr (First + rows < Tile::written) write_parts<Tile, Residual, First + rows>(t, group, from, sum, of);
}

// The same where channels lie first.
template <class Tile, class Number>
__device__ __forceinline__ void write_planes(const Tile& t, int group, int from, const Number (&sum)[Tile::written / 2],
                                             const channel_f32 (&of)[2]) {
  // One copy of what moves pixels; sums must be named by constants.
#pragma unroll 1
  for (int first = 0; first < Tile::written; first += Tile::plane_rows) {
    const int rows = min(Tile::written - first, Tile::plane_rows);
    meet(group);
    // Addresses are found anew in each part: there is no room for them all.
    int32_t thread = t.thread;
    asm volatile("" : "+r"(thread));
    const Tile own = {t.a, t.place, t.shared, thread};
#pragma unroll
    for (int part = 0; part < Tile::written; part += Tile::plane_rows) {
      if (part != first) continue;
#pragma unroll
      for (int j = 0; j < Tile::plane_rows && part + j < Tile::written; j += 16)
        own.stage_planes(sum + (part + j) / 2, j, of);
    }
    meet(group);
    t.write_planes(from + first, rows);
  }
}

template <class Tile, class Number>
__device__ __forceinline__ void write_tile(const Tile& t, int group, int from, const Number (&sum)[Tile::written / 2],
                                           const channel_f32 (&of)[2]) {
  if (t.whole_chunks()) {
    const bool residual = t.a.out.epilogue.residual != QUERN_RESIDUAL_NONE;
    return residual ? write_parts<Tile, true>(t, group, from, sum, of)
                    : write_parts<Tile, false>(t, group, from, sum, of);
  }
  if constexpr (Tile::taps == 1)
    if (t.whole_planes()) return write_planes(t, group, from, sum, of);
      // One copy of the activations; sums must be named by constants.
#pragma unroll 1
  for (int i = 0; i < Tile::written / 16; ++i) {
    __syncwarp();
    t.output().find_place(t.output_of(from + 16 * i + t.thread % 16));
#pragma unroll
    for (int k = 0; k < Tile::written / 16; ++k)
      if (k == i) t.stage_out(sum + 8 * k);
    __syncwarp();
    t.finish();
  }
  meet(group);
}

// The sums of the cluster's blocks in the order of their ranks, of those pixels that this one finishes: each leaves its
// own where its stages were.
template <class Tile, class Number>
__device__ __forceinline__ void sum_up(uint32_t base, int rank, const Number (&own)[Tile::bm / 2],
                                       Number (&sum)[Tile::written / 2]) {
  constexpr int fours = Tile::written / 8;
  const uint32_t at = base + threadIdx.x * 16;
  constexpr int apart = Tile::multiplying * 16;
#pragma unroll
  for (int i = 0; i < Tile::bm / 8; ++i) {
    const Number* const x = own + 4 * i;
    const float four[] = {sum_bits(x[0]), sum_bits(x[1]), sum_bits(x[2]), sum_bits(x[3])};
    store_shared(at + i * apart, four);
  }
  cluster_meet();
  if (rank * Tile::written >= Tile::bm) return;
  // All are asked for before the first is used.
  four_floats x[Tile::cluster][fours];
#pragma unroll
  for (int other = 0; other < Tile::cluster; ++other) {
#pragma unroll
    for (int i = 0; i < fours; ++i) x[other][i] = load_of_block(other, at + (rank * fours + i) * apart);
  }
#pragma unroll
  for (int i = 0; i < 4 * fours; ++i) {
    sum[i] = sum_of_bits<Number>(x[0][i / 4].v[i % 4]);
#pragma unroll
    for (int other = 1; other < Tile::cluster; ++other) sum[i] += sum_of_bits<Number>(x[other][i / 4].v[i % 4]);
  }
}

template <class Number, int N>
__device__ __forceinline__ void clear(Number (&sum)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) sum[i] = 0;
}

template <class Tile>
__device__ __forceinline__ void multiply(const tma_conv& a, char* shared, uint32_t base, uint32_t full,
                                         uint32_t empty) {
  const int group = threadIdx.x / 128, set = group / Tile::groups;
  const int32_t thread = threadIdx.x - set * 128 * Tile::groups;
  const uint32_t weights_at = base + Tile::stages * Tile::pixel_bytes + thread / 128 * 64 * 128;
  char* const parts = shared + Tile::stages_bytes + group * Tile::out_bytes;
  const tma_share share = share_of<Tile>(a);
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
  using element = typename Tile::element;
  using number = sum_type<element>;
  constexpr bool few_bits = std::is_same_v<element, e4m3>;
  tma_place place = {-1, 0, 0, 0};
  channel_f32 of[2];
  number sum[Tile::bm / 2];
  clear(sum);  // as they stay where there is nothing to sum
  for (int32_t tile = first_tile<Tile>() + set * gridDim.x; tile < a.tiles; tile += Tile::sets * gridDim.x) {
    const tma_place before_this = place;
    place = tma_place_of(a, tile, Tile::bm, Tile::bn);
    const Tile t = {a, place, parts, thread};
    // Tiles of a block mostly have the same channels, and what those bring takes a while to come.
    if (place.group != before_this.group || place.panel != before_this.panel) of[0] = t.of(0), of[1] = t.of(1);
    if constexpr (few_bits) clear(sum);
    int before = -1;
    // Sets multiply in turn: a barrier's parity tells a stage that has arrived from one that has not only to who is
    // less than a round of stages away.
    if (Tile::sets > 1) wait_turn(set);
    for (int32_t i = share.first; i < share.last; ++i) {
      wait(full + 8 * stage, turn);
      const uint64_t weights = matrix_in_shared(weights_at + stage * Tile::weight_bytes);
      const uint64_t pixels = matrix_in_shared(base + stage * Tile::pixel_bytes);
      // So many taps of the stage from `first` on.
      const auto multiply_taps = [&](number(&to)[Tile::bm / 2], int first, int count, bool add) {
        keep(to);
        matrix_begin();
#pragma unroll
        for (int tap = first; tap < first + count; ++tap) {
#pragma unroll
          for (int k = 0; k < 4; ++k)
            matrix_half<element, Tile::bm>::run(to, weights + tap * (Tile::tap_bytes / 16) + 2 * k,
                                                pixels + tap * 8 + 2 * k, add || tap > first || k > 0);
        }
        matrix_commit();
        keep(to);
      };
      if constexpr (few_bits) {
        float part[2][Tile::bm / 2];  // one is added up while the products of the other are on their way
        const auto add_part = [&](const float(&x)[Tile::bm / 2]) {
#pragma unroll
          for (int k = 0; k < Tile::bm / 2; ++k) sum[k] += x[k];
        };
#pragma unroll
        for (int tap = 0; tap < Tile::taps; ++tap) {
          multiply_taps(part[tap % 2], tap, 1, false);
          if (tap == 0) continue;
          matrix_wait<1>();
          keep(part[(tap - 1) % 2]);
          add_part(part[(tap - 1) % 2]);
        }
        matrix_wait<0>();
        keep(part[(Tile::taps - 1) % 2]);
        add_part(part[(Tile::taps - 1) % 2]);
      } else {
        multiply_taps(sum, 0, Tile::taps, i > share.first);
        matrix_wait<1>();  // for the stage before
      }
      if (before >= 0 && thread % 32 == 0) arrive(empty + 8 * before);
      before = stage;
      if (++stage == Tile::stages) stage = 0, turn ^= 1;
    }
    if (Tile::sets > 1) give_turn(1 - set);
    matrix_wait<0>();
    keep(sum);
    if (before >= 0 && thread % 32 == 0) arrive(empty + 8 * before);
    if constexpr (Tile::cluster == 1) {
      write_tile<Tile>(t, group, 0, sum, of);
    } else {
      const int rank = cluster_rank();
      meet_all<Tile>();  // nobody reads stages any more
      number whole[Tile::written / 2];
      sum_up<Tile>(base, rank, sum, whole);
      if (rank * Tile::written < Tile::bm) write_tile<Tile>(t, group, rank * Tile::written, whole, of);
    }
    if (Tile::sets > 1) skip((Tile::sets - 1) * a.blocks);
  }
  if (a.stores && thread % 128 == 0) store_wait<0>();
}

template <class Tile>
__device__ __forceinline__ void run(const tma_conv& a) {
  extern __shared__ __align__(1024) char memory[];
  char* const shared = memory + (-shared_address(memory) & 1023);
  const uint32_t base = shared_address(shared);
  const uint32_t full = base + Tile::shared_bytes - 1024 - Tile::stages * 16, empty = full + Tile::stages * 8;
  if (threadIdx.x == 0) {
    prefetch(a.src), prefetch(a.dst);
    for (int i = 0; i < Tile::stages; ++i) init_barrier(full + 8 * i, 1), init_barrier(empty + 8 * i, 4 * Tile::groups);
    publish_barriers();
  }
  __syncthreads();
  let_next_start();
  if (threadIdx.x >= Tile::multiplying) {
    if constexpr (Tile::multiplying == 256) fewer_registers<40>();
    if (threadIdx.x == Tile::multiplying) request<Tile>(a, base, full, empty);
    if constexpr (Tile::cluster > 1) __syncwarp(), cluster_meet();
  } else {
    if constexpr (Tile::multiplying == 256) more_registers<232>();
    wait_for_previous();
    multiply<Tile>(a, shared, base, full, empty);
  }
  // Nobody leaves whose sums may still be read.
  if constexpr (Tile::cluster > 1) __syncwarp(), cluster_leave();
}

}  // namespace
}  // namespace quern
