// SPDX-License-Identifier: MIT
//
// Groups of up to 16 channels, 3x3 at stride 1, in 16 bits and f32 on capability 9.0, written for any compiler, as
// implicit.h is.  The copy engine brings the box under a tile of outputs, 128 bytes of channels wide, padding included,
// and takes the tile back: nothing walks, and blocks are so small that others load and store while one multiplies.
//
//   dst[pixel][o] = clamped(sum over taps (r, s), channels c of the group of o of
//                             src[pixel at tap][c] * weights[r][s][c][o])
//
// A warp has 8 or 16 channels of all lines of the box: a group, or several side by side, whose weights for each other
// are zeros.  A line is read once, for the three lines of outputs that it meets; of eight channels of 16 bits, an
// instruction has two neighbouring taps.  A finished line lies where its first line of inputs did, in the warp's own
// channels, which the warp alone reads.  Rows are swizzled by the engine, as tma.h has it.
//
// f32 is three products of TF32 (tf32.h), of which those of eight channels of a line of the filter are summed from
// zero. Pixels are split in registers, where loads of matrices bring them as if they were pairs of 16 bits; weights by
// packing.
//
// As groups beside an output's own are multiplied by zero, infinite and NaN inputs of one may make those NaN.
#pragma once

#include "cuda/chunks.h"
#include "cuda/tf32.h"
#include "cuda/tma.h"

namespace quern {
namespace {

// By value in the kernel's parameters.
struct group_box {
  tensor_map src, dst;                    // channels, columns, lines, images
  int32_t begin_h, begin_w;               // of output 0
  int32_t tiles_h, tiles_w, slabs, jobs;  // tiles of an image, slabs of channels; warps' shares of all
  bool stores;                            // the engine writes dst
  bool ahead;                             // weights are loaded before what precedes the kernel has ended
  const uint32_t* weights;                // [job][tap][lane], or [job][tap][lane][4], those of [in / 8][out / 8] of f32
  gpu_output out;
};

// Columns of a tile of outputs, and pixels of a line of the box, which the instruction has.
constexpr int group_box_wide = 14, group_box_pitch = 16;

template <class Element, int Depth, int High>
struct group_tile {
  using element = Element;
  static constexpr bool parts = sizeof(Element) == 4;  // high and low ones
  static constexpr int depth = Depth, tiles = Depth / 8, high = High, taps = 3;
  static constexpr int chunk = 16 / sizeof(Element), channels = 8 * chunk, threads = 32 * channels / Depth;
  static constexpr int pieces = Depth / chunk;                   // of 16 bytes, of a pixel's channels
  static constexpr int words = tiles * tiles * (parts ? 4 : 1);  // of a tap's weights, of a lane
  static constexpr int lines = high + taps - 1;
  static constexpr int line_bytes = group_box_pitch * 128, box_bytes = lines * line_bytes;
  // Columns that no output needs are read beyond the last line.
  static constexpr int barrier_at = box_bytes + 256, shared_bytes = barrier_at + 16 + 1008;  // aligned by the kernel

  const group_box& a;
  char* shared;
  int32_t thread, slab, x, y, n;  // the tile's first output
  uint32_t w[taps * taps * words];
  float sum[taps][tiles][4] = {};
  channel_f32 of[tiles][2];
  uint32_t lower, upper;

  QUERN_INLINE group_tile(const group_box& box, char* memory, int32_t block, int32_t index)
      : a(box), shared(memory), thread(index) {
    const int32_t row = block / a.slabs, line = row / a.tiles_w;
    slab = block - row * a.slabs, x = (row - line * a.tiles_w) * group_box_wide;
    n = line / a.tiles_h, y = (line - n * a.tiles_h) * high;
  }

  QUERN_INLINE int32_t lane() const { return thread % 32; }
  QUERN_INLINE int32_t warp() const { return thread / 32; }
  QUERN_INLINE int32_t first_channel() const { return slab * channels; }

  // Channels that there are not have the first ones' weights, and are not stored.
  QUERN_INLINE void load_weights() {
    const int32_t number = slab * (channels / Depth) + warp(), job = number < a.jobs ? number : 0;
    const uint32_t* const packed = a.weights + int64_t{job} * (taps * taps * words * 32);
    if constexpr (words == 1) {
      QUERN_UNROLL
      for (int i = 0; i < taps * taps; ++i) w[i] = packed[i * 32 + lane()];
    } else {
      QUERN_UNROLL
      for (int i = 0; i < taps * taps * words / 4; ++i) {
        const four_words four = reinterpret_cast<const four_words*>(packed)[i * 32 + lane()];
        QUERN_UNROLL
        for (int k = 0; k < 4; ++k) w[4 * i + k] = four.v[k];
      }
    }
  }
  QUERN_INLINE void load_channels() {
    if constexpr (!parts) {
      lower = rounded_pair<Element>(a.out.epilogue.lower, a.out.epilogue.lower);
      upper = rounded_pair<Element>(a.out.epilogue.upper, a.out.epilogue.upper);
    }
    QUERN_UNROLL
    for (int i = 0; i < 2 * tiles; ++i) {
      const int32_t channel = first_channel() + warp() * Depth + i / 2 * 8 + lane() % 4 * 2 + i % 2;
      of[i / 2][i % 2] = channel < a.jobs * Depth ? channel_of(a.out.epilogue, channel) : channel_f32{};
    }
  }

  // 16 bytes of a pixel of a line.
  QUERN_INLINE char* at(int line, int32_t pixel, int32_t part) const {
    return shared + (line * line_bytes + pixel * 128 + ((part ^ pixel % 8) << 4));
  }
  // The row of a matrix that the lane names: 16 pixels by 32 bytes of channels of tap s, or by 16 of that and the next
  // tap.
  QUERN_INLINE const char* row(int line, int s, int step) const {
    const int32_t pixel = lane() % 16 + s, half = lane() / 16;
    return pieces == 1 ? at(line, pixel + half, warp()) : at(line, pixel, warp() * pieces + 2 * step + half);
  }
  QUERN_INLINE void move_up() {
    QUERN_UNROLL
    for (int j = taps - 1; j >= 0; --j) {
      QUERN_UNROLL
      for (int i = 0; i < 4 * tiles; ++i) sum[j][i / 4][i % 4] = j > 0 ? sum[j - 1][i / 4][i % 4] : 0.0f;
    }
  }
  // Element 2 h + e of tile t is of pixel lane / 4 + 8 h, and of the warp's channel 8 t + lane % 4 * 2 + e.
  QUERN_INLINE void finish(int line) const {
    QUERN_UNROLL
    for (int i = 0; i < 2 * tiles; ++i) {
      const int t = i / 2, h = i % 2;
      const int32_t pixel = lane() / 4 + 8 * h;
      const auto scaled = [&](int e) {
        return vec::fma(vec::set1(sum[taps - 1][t][2 * h + e]), vec::set1(of[t][e].factor), vec::set1(of[t][e].bias));
      };
      if constexpr (parts) {
        const auto limited = [&](int e) {
          return vec::limited(scaled(e), vec::set1(a.out.epilogue.lower), vec::set1(a.out.epilogue.upper)).v;
        };
        *reinterpret_cast<two_floats*>(at(line, pixel, warp() * pieces + 2 * t + lane() % 4 / 2) +
                                       lane() % 2 * 8) = {{limited(0), limited(1)}};
      } else {
        *reinterpret_cast<uint32_t*>(at(line, pixel, warp() * pieces + t) + lane() % 4 * 4) =
            limited_pair<Element>(rounded_pair<Element>(scaled(0).v, scaled(1).v), lower, upper);
      }
    }
  }
  // The tile, one by one, where the engine cannot.
  QUERN_INLINE void write_out() const {
    QUERN_ROLL
    for (int32_t i = thread; i < high * group_box_wide * channels; i += threads) {
      const int32_t c = i % channels, pixel = i / channels, line = pixel / group_box_wide;
      const int32_t column = pixel - line * group_box_wide, channel = first_channel() + c;
      if (y + line >= a.out.size[1] || x + column >= a.out.size[2] || channel >= a.jobs * Depth) continue;
      const int64_t* const to = a.out.dst_stride;
      static_cast<Element*>(a.out.dst)[n * to[0] + channel * to[1] + (y + line) * to[3] + (x + column) * to[4]] =
          reinterpret_cast<const Element*>(at(line, column, c / chunk))[c % chunk];
    }
  }
};

template <class T>
struct group_tiles {
  using c8 = group_tile<T, 8, 7>;
  using c16 = group_tile<T, 16, 7>;
  using c8_14 = group_tile<T, 8, 14>;
};

}  // namespace
}  // namespace quern
