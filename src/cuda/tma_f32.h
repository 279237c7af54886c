// SPDX-License-Identifier: MIT
//
// A tile of f32 on the matrix instructions of capability 9.0, by products of two parts of each f32: `Parts` says of
// what kind, TF32 here (tf32.h) and F16 in tma_f16x3.h.  Products of 12 instructions are summed there from zero,
// of 18 where a stage has three taps.
//
// Pixels go through registers, where they are split; weights were split by packing.  Channels of a chunk are
// permuted there, so that a thread finds its elements of all steps of the instruction in 2 x 16 bytes.
#pragma once

#include "cuda/tf32.h"
#include "cuda/tma.h"

namespace quern {
namespace {

// Channels of a chunk.
constexpr int tma_f32_chunk = 32;

// What a thread has of a chunk: eight channels of rows g and g + 8 of its warp's 16.
using tma_f32_own = four_floats[2][2];

struct tma_tf32 {
  using parameters = tma_conv;
  using element = float;              // of the instruction
  using part = float;                 // of a register
  static constexpr int steps = 4;     // of the instruction in a chunk
  static constexpr int matrices = 2;  // of weights with rows of 128 bytes: high, low

  QUERN_INLINE explicit tma_tf32(const tma_conv&) {}

  // The column of a row of weights where channel c of a chunk lies: step c % 8 / 2 of the instruction, whose columns
  // t and t + 4 thread t of four has.
  QUERN_INLINE static int32_t column(int32_t c) { return c % 8 / 2 * 8 + c / 8 + c % 2 * 4; }
  QUERN_INLINE void split(const tma_f32_own& x, part (&high)[steps][4], part (&low)[steps][4]) const {
    QUERN_UNROLL
    for (int i = 0; i < 16; ++i) {
      const tf32_pair two = split_tf32(x[i / 8][i / 4 % 2].v[i % 4]);
      high[i / 2 % 4][i / 8 + i % 2 * 2] = two.high;
      low[i / 2 % 4][i / 8 + i % 2 * 2] = two.low;
    }
  }
  // Sums as they come of what the parts were scaled to.
  template <int N>
  QUERN_INLINE void finish(const tma_conv&, const tma_place&, float (&)[N], int32_t) const {}
};

// Groups: of four warps, 64 pixels each.  A stage has several chunks, which are split and multiplied at once, or
// several taps of a line of the filter, as tma_half.h has it: then a tap's pixels are the same rows from a later one
// on.
template <class Parts, int Groups, int Channels, int Stages, int Chunks = 1, int Taps = 1>
struct tma_tile_f32 {
  using element = float;
  using parts = Parts;
  using parameters = typename Parts::parameters;
  static constexpr int groups = Groups, bm = 64 * Groups, bn = Channels, bk = tma_f32_chunk, stages = Stages,
                       taps = Taps, lines = 0, cluster = 1;
  static constexpr bool early = false;
  static constexpr int threads = 128 * (Groups + 1);  // the last group's first thread requests
  static constexpr int chunks = Chunks, steps = Parts::steps;
  static constexpr int fetched = bm + (taps > 1 ? 8 : 0);  // pixels of a stage, a multiple of eight
  // Of a chunk at a tap, and of a chunk.
  static constexpr int tap_floats = Parts::matrices * bn * bk;
  static constexpr int pixel_floats = fetched * bk, weight_floats = taps * tap_floats;
  static constexpr int chunk_bytes = 4 * (pixel_floats + weight_floats);
  using warp_out = output_warp<float, 16, 32 + 8>;
  // Pixels of all stages, weights of all stages, what warps write out, a pair of barriers a stage.
  static constexpr int weights_at = stages * chunks * pixel_floats;
  static constexpr int stages_floats = weights_at + stages * chunks * weight_floats;
  static constexpr int shared_bytes = 1024 + stages_floats * 4 + 4 * Groups * warp_out::floats * 4 + stages * 16;
  static_assert(shared_bytes <= 232448);

  // The part of a thread in a chunk at a tap.
  struct fragments {
    tma_f32_own whole;
    typename Parts::part high[steps][4], low[steps][4];

    QUERN_INLINE void load(const float* pixels, int32_t thread, int tap) {
      QUERN_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int32_t row = tap + thread / 128 * 64 + tma_row(thread, i / 2);
        whole[i / 2][i % 2] = load_four(pixels + tma_swizzled<4>(row, thread % 4 * 8 + i % 2 * 4));
      }
    }
    QUERN_INLINE void split(const Parts& by) { by.split(whole, high, low); }
  };

  // The output of a pixel of the tile, or -1.
  QUERN_INLINE static int32_t output_of(const tma_conv& a, const tma_place& place, int32_t pixel) {
    const int32_t at = tma_output_of<taps>(a, place.pixel + pixel);
    return at < a.out.pixels ? at : -1;
  }

  // Channels first: a warp has eight pixels of a channel, and writes them where they belong.
  QUERN_INLINE static bool writes_planes(const gpu_output& out) {
    return out.dst_stride[1] != 1 && only_clamps(out.epilogue) && !out.epilogue.residual;
  }
  QUERN_INLINE static void write_planes(const tma_conv& a, const tma_place& place, const float* sum, int32_t thread) {
    const gpu_output& out = a.out;
    float* to[2];
    bool exists[2];
    QUERN_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int32_t pixel = output_of(a, place, thread / 128 * 64 + tma_row(thread, i));
      exists[i] = pixel >= 0;
      to[i] = static_cast<float*>(out.dst) + (exists[i] ? out.place_of(pixel, out.dst_stride) : 0);
    }
    QUERN_UNROLL
    for (int k = 0; k < bn / 4; ++k) {
      const int32_t column = place.channel + k / 2 * 8 + tma_column(thread, k % 2);
      if (column >= out.k) continue;
      const int32_t channel = place.group * out.k + column;
      const channel_f32 of = channel_of(out.epilogue, channel);
      QUERN_UNROLL
      for (int i = 0; i < 2; ++i) {
        const float y = finished<true, false>(out.epilogue, of, sum[k / 2 * 4 + 2 * i + k % 2], 0);
        if (exists[i]) to[i][channel * out.dst_stride[1]] = y;
      }
    }
  }

  // The epilogue, by each warp for itself: 32 channels after the other.
  QUERN_INLINE static warp_out output(const tma_conv& a, float* shared, int32_t thread) {
    return {a.out, shared + stages_floats + thread / 32 * warp_out::floats, thread % 32};
  }
  QUERN_INLINE static void find_places(const warp_out& out, const tma_conv& a, const tma_place& place, int32_t thread) {
    out.find_place(output_of(a, place, thread / 32 * 16 + thread % 16));
  }
  QUERN_INLINE static void stage_out(const warp_out& out, const float* sum, int32_t thread) {
    QUERN_UNROLL
    for (int j = 0; j < 4; ++j) {
      QUERN_UNROLL
      for (int i = 0; i < 2; ++i)
        *reinterpret_cast<two_floats*>(out.at(thread % 32 / 4 + 8 * i, 8 * j + tma_column(thread, 0))) = {
            {sum[4 * j + 2 * i], sum[4 * j + 2 * i + 1]}};
    }
  }
};

using tma_f32_128x128 = tma_tile_f32<tma_tf32, 2, 128, 4>;
using tma_f32_192x64 = tma_tile_f32<tma_tf32, 3, 64, 4>;
using tma_f32_128x64 = tma_tile_f32<tma_tf32, 2, 64, 6>;

}  // namespace
}  // namespace quern
