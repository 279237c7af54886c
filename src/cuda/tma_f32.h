// SPDX-License-Identifier: MIT
//
// A tile of f32 by three products of TF32 (tf32.h) on the matrix instructions of capability 9.0.  Products of one tap
// and 32 channels are summed there from zero.
//
// Pixels go through registers, where they are split; weights were split by packing.  Channels of a chunk are
// permuted there, so that a thread finds its elements of all four steps of the instruction in 2 x 16 bytes.
#pragma once

#include "cuda/tf32.h"
#include "cuda/tma.h"

namespace quern {
namespace {

// The column of a row of weights where channel c of a chunk lies: step c % 8 / 2 of the instruction, whose columns
// t and t + 4 thread t of four has.
QUERN_INLINE int32_t tma_f32_column(int32_t c) { return c % 8 / 2 * 8 + c / 8 + c % 2 * 4; }

// Groups: of four warps, 64 pixels each.
template <int Groups, int Channels, int Stages>
struct tma_tile_f32 {
  using element = float;
  static constexpr int groups = Groups, bm = 64 * Groups, bn = Channels, bk = 32, stages = Stages, taps = 1, lines = 0,
                       cluster = 1;
  static constexpr bool early = false;
  static constexpr int threads = 128 * (Groups + 1);  // the last group's first thread requests
  static constexpr int pixel_floats = bm * bk, weight_floats = 2 * bn * bk;
  static constexpr int stage_bytes = 4 * (pixel_floats + weight_floats);
  using warp_out = output_warp<float, 16, 32 + 8>;
  // Pixels of all stages, weights of all stages, what warps write out, a pair of barriers a stage.
  static constexpr int stages_floats = stages * (pixel_floats + weight_floats);
  static constexpr int shared_bytes = 1024 + stages_floats * 4 + 4 * Groups * warp_out::floats * 4 + stages * 16;

  // The part of a thread in one stage: rows g and g + 8 of its warp's 16, by the instruction's four steps.
  struct fragments {
    four_floats whole[2][2];
    float high[4][4], low[4][4];

    QUERN_INLINE void load(const float* pixels, int32_t thread) {
      QUERN_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int32_t row = thread / 128 * 64 + tma_row(thread, i / 2);
        whole[i / 2][i % 2] = load_four(pixels + tma_swizzled<4>(row, thread % 4 * 8 + i % 2 * 4));
      }
    }
    QUERN_INLINE void split() {
      QUERN_UNROLL
      for (int i = 0; i < 16; ++i) {
        const tf32_pair x = split_tf32(whole[i / 8][i / 4 % 2].v[i % 4]);
        high[i / 2 % 4][i / 8 + i % 2 * 2] = x.high;
        low[i / 2 % 4][i / 8 + i % 2 * 2] = x.low;
      }
    }
  };

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
      const int32_t pixel = place.pixel + thread / 128 * 64 + tma_row(thread, i);
      exists[i] = pixel < out.pixels;
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

using tma_f32_128x128 = tma_tile_f32<2, 128, 4>;
using tma_f32_192x64 = tma_tile_f32<3, 64, 4>;
using tma_f32_128x64 = tma_tile_f32<2, 64, 6>;

}  // namespace
}  // namespace quern
