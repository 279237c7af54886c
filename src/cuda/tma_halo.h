// SPDX-License-Identifier: MIT
//
// Convolution at stride 1 of up to 64 channels into up to 64, of 16-bit elements, on capability 9.0: the weights of all
// taps stay in shared memory.  A tile is a rectangle of outputs, and the box of pixels that its windows meet is loaded
// once for all taps, padding included.
//
// The box has pitch pixels a line, and output (y, x) of the tile is position y * pitch + x: what meets tap (r, s) is
// the row (r * pitch + s) * tap_step further on, and a matrix instruction may begin at any row.  Positions between the
// outputs of one line and the next are multiplied for nothing.  Two groups of four warps take turns, a tile each: one
// writes out, from where its box was, what the other need not wait for.
#pragma once

#include "cuda/tma.h"

namespace quern {
namespace {

// By value in the kernel's parameters: one phase of a problem.
struct halo_conv {
  tensor_map src, dst;  // n h w c; dst: where the engine writes it
  int32_t begin[2];     // along h and w: the input of output 0 at the first tap
  int32_t taps[2], step[2];
  int32_t rows, columns;  // outputs of a tile
  int32_t lines, pitch;   // pixels of a tile
  int32_t line_of;        // halo_line_of(pitch)
  int32_t tiles;
  divisor of_image, across;  // tiles of an image, and side by side in one
  const char* weights;
  gpu_output out;
  bool stores, ahead;  // as of tma_conv
};

// Pixels that a stage has room for, by the positions of a tile.
constexpr int halo_room(int positions) { return positions + 96; }

// Of positions below 2^9 the quotient by pitch is exact.
constexpr int32_t halo_line_of(int32_t pitch) { return (1 << 20) / pitch + 1; }

struct halo_place {
  int32_t n, h, w;  // the first output
};

QUERN_INLINE halo_place halo_place_of(const halo_conv& a, int32_t tile) {
  const int32_t n = a.of_image.quotient(tile), rest = tile - n * a.of_image.by, down = a.across.quotient(rest);
  return {n, down * a.rows, (rest - down * a.across.by) * a.columns};
}

template <class Element, int Positions, int Stages>
struct halo_tile_half {
  using element = Element;
  using parameters = halo_conv;
  static constexpr int bm = Positions, bn = 64, bk = 64, stages = Stages, lines = 9, taps = 1, cluster = 1;
  static constexpr int multiplying = 256, threads = multiplying + 128;  // the last group requests
  static constexpr bool early = true;
  static constexpr int tap_bytes = bn * 128, stage_bytes = halo_room(Positions) * 128;
  static constexpr int stages_bytes = Stages * stage_bytes + lines * tap_bytes;
  using warp_out = output_warp<Element, 16, 16 + 4, 16>;
  // Pixels of all stages, weights, a pair of barriers a stage, one of weights.
  static constexpr int shared_bytes = 1024 + stages_bytes + Stages * 16 + 16;
  static_assert(shared_bytes <= 232448 && stage_bytes % 1024 == 0);
  static_assert(Stages >= 3, "each group has one, and one is filled");
  static_assert(4 * warp_out::floats * 4 <= stage_bytes, "outputs lie where pixels were");

  const halo_conv& a;
  const halo_place& place;
  char* shared;    // the stage of the tile
  int32_t thread;  // of the group

  QUERN_INLINE bool whole_chunks() const { return a.out.vector && only_clamps(a.out.epilogue); }

  // The output that is this one of the tile, or -1.
  QUERN_INLINE int32_t output_at(int32_t row, int32_t column) const {
    const int32_t h = place.h + row, w = place.w + column;
    return h < a.out.size[1] && w < a.out.size[2] ? (place.n * a.out.size[1] + h) * a.out.size[2] + w : -1;
  }
  QUERN_INLINE int32_t row_of(int32_t position) const { return position * a.line_of >> 20; }
  QUERN_INLINE int32_t output_of(int32_t position) const {
    const int32_t row = row_of(position), column = position - row * a.pitch;
    return row < a.rows && column < a.columns ? output_at(row, column) : -1;
  }
  // Where outputs lie in the stage, as the engine takes a box from there; what is none, behind them all.
  QUERN_INLINE int32_t staged_row(int32_t position) const {
    const int32_t row = row_of(position), column = position - row * a.pitch;
    return row < a.rows && column < a.columns ? row * a.columns + column : a.rows * a.columns + position % 8;
  }
  QUERN_INLINE static int32_t staged(int32_t row, int32_t channel) { return tma_swizzled<8>(row, channel) * 2; }

  // What the thread's two channels bring, to every tile.
  QUERN_INLINE static channel_f32 of(const halo_conv& a, int32_t thread, int32_t i) {
    const int32_t at = tma_row(thread, i);
    return at < a.out.k ? channel_of(a.out.epilogue, at) : channel_f32{};
  }

  // Chunks of eight channels of all outputs: move(in memory, in shared memory).
  template <class Move>
  QUERN_INLINE void each_chunk(const int64_t* stride, Move move) const {
    const int32_t chunk = thread % 8, count = a.rows * a.columns;
    if (chunk * 8 >= a.out.k) return;
    for (int32_t i = thread / 8; i < count; i += 16) {
      const int32_t row = i / a.columns, pixel = output_at(row, i - row * a.columns);
      if (pixel >= 0) move(a.out.place_of(pixel, stride) + chunk * 8, shared + staged(i, chunk * 8));
    }
  }
  QUERN_INLINE void read_residual() const {
    each_chunk(a.out.residual_stride, [&](int64_t at, char* to) {
      *reinterpret_cast<four_floats*>(to) =
          *reinterpret_cast<const four_floats*>(static_cast<const Element*>(a.out.residual) + at);
    });
  }
  QUERN_INLINE void write_out() const {
    each_chunk(a.out.dst_stride, [&](int64_t at, const char* from) {
      *reinterpret_cast<four_floats*>(static_cast<Element*>(a.out.dst) + at) =
          *reinterpret_cast<const four_floats*>(from);
    });
  }

  // Any other output, by each warp for itself: its 16 channels of 16 positions after the other.
  QUERN_INLINE warp_out output() const {
    return {a.out, reinterpret_cast<float*>(shared) + thread / 32 * warp_out::floats, thread % 32};
  }
  QUERN_INLINE void stage_out(const float* sum) const {
    QUERN_UNROLL
    for (int k = 0; k < 8; ++k)
      *output().at(k / 4 * 8 + tma_column(thread, k % 2), thread % 32 / 4 + k / 2 % 2 * 8) = sum[k];
  }
  QUERN_INLINE void finish() const { output().finish(0, thread / 32 * 16); }
};

template <class Element>
using tma_half_208x64_halo = halo_tile_half<Element, 208, 4>;

}  // namespace
}  // namespace quern
