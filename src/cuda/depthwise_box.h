// SPDX-License-Identifier: MIT
//
// Depthwise convolution in f32 on capability 9.0, written for any compiler, as implicit.h is.  The copy engine brings
// the box under a tile of outputs, 128 bytes of channels wide, padding included; nothing walks, and blocks are so small
// that others load and store while one multiplies.
//
//   dst[pixel][o] = clamped(sum over taps (r, s) of src[pixel at tap][o] * weights[r][s][o])
//
// A sum is one chain of fused multiply-adds in the order (r, s), as on the CPU: the same bits, unless a weight beside
// padding is infinite or NaN.  A lane has a channel, a warp a strip of columns in some of the lines.
#pragma once

#include "cuda/few_place.h"
#include "cuda/strip_sums.h"
#include "cuda/tma.h"

namespace quern {
namespace {

// By value in the kernel's parameters.
struct depthwise_box {
  tensor_map src;                    // channels, columns, lines, images
  int32_t begin_h, begin_w;          // of output 0
  int32_t tiles_h, tiles_w, chunks;  // tiles of an image, chunks of channels
  bool ahead;                        // weights are loaded before what precedes the kernel has ended
  const float* weights;              // few_panels
  gpu_output out;
};

// Parts: of the tile's lines, warps each.
template <int Taps, int Step, int High, int Parts>
struct depthwise_tile {
  static constexpr int taps = Taps, step = Step, channels = 32;
  static constexpr int columns = 7, strips = 2, parts = Parts, threads = 32 * strips * parts;
  static constexpr int high = High, wide = columns * strips, part_high = (high + parts - 1) / parts;
  static constexpr int lines = (high - 1) * step + taps, part_lines = (part_high - 1) * step + taps;
  static constexpr int pixels = (wide - 1) * step + taps;
  static constexpr int depth = (taps + step - 1) / step, width = (columns - 1) * step + taps;
  static constexpr int box_bytes = lines * pixels * 128;
  static constexpr int barrier_at = box_bytes, shared_bytes = barrier_at + 16 + 112;  // aligned by the kernel

  const depthwise_box& a;
  const float* own;               // the strip's first input
  int32_t chunk, x, y, n;         // the tile's first output
  int32_t channel, strip, first;  // of the lane; a line of outputs of the tile
  int32_t of_line;                // outputs of a line that there are
  float w[1][taps * taps];
  float sum[depth][1][columns] = {};
  plain_results<float, 1> results;
  float* dst;

  QUERN_INLINE depthwise_tile(const depthwise_box& box, const void* shared, int32_t block, int32_t thread) : a(box) {
    const int32_t row = block / a.chunks, line = row / a.tiles_w;
    chunk = block - row * a.chunks, x = (row - line * a.tiles_w) * wide;
    n = line / a.tiles_h, y = (line - n * a.tiles_h) * high;
    channel = first_channel() + thread % 32, strip = thread / 32 % strips * columns;
    first = thread / (32 * strips) * part_high;
    own = static_cast<const float*>(shared) + (first * pixels + strip) * step * channels + thread % 32;
    const int64_t* const to = a.out.dst_stride;
    dst = static_cast<float*>(a.out.dst) + n * to[0] + channel * to[1] + (y + first) * to[3] + (x + strip) * to[4];
    of_line = a.out.size[2] - x - strip;
    // Channels that there are not have the first ones' weights, and are not stored.
    if (channel >= a.out.k) channel = 0, of_line = 0;
  }

  QUERN_INLINE int32_t first_channel() const { return chunk * channels; }
  // Whether the thread has outputs; the first warp of a block has.
  QUERN_INLINE bool has_any() const { return of_line > 0 && y + first < a.out.size[1]; }

  QUERN_INLINE void load_weights() {
    const float* const panel =
        a.weights + int64_t{channel / few_lanes} * (taps * taps * few_lanes) + channel % few_lanes;
    QUERN_UNROLL
    for (int i = 0; i < taps * taps; ++i) w[0][i] = panel[i * few_lanes];
  }
  QUERN_INLINE void load_channels() { results.load(a.out.epilogue, channel); }

  // A line of the part's, and the line of outputs that it finishes.
  QUERN_INLINE void take_line(int line) {
    if (high % parts != 0 && first * step + line >= lines) return;  // a part may be less
    QUERN_UNROLL
    for (int i = 0; i < width; ++i) {
      const float in[] = {own[(line * pixels + i) * channels]};
      add_input<1, taps, step>(sum, w, in, i, line % step);
    }
    const int of_tile = (line - (taps - 1)) / step;
    if (line < taps - 1 || (line - (taps - 1)) % step != 0 || y + first + of_tile >= a.out.size[1]) return;
    float* pixel = dst + of_tile * a.out.dst_stride[3];
    QUERN_UNROLL
    for (int q = 0; q < columns; ++q) {
      const float result = results.of(a.out.epilogue, sum[depth - 1], q).v;
      if (q < of_line) *pixel = result;
      pixel += a.out.dst_stride[4];
    }
  }
};

using depthwise_3x3 = depthwise_tile<3, 1, 7, 4>;
using depthwise_3x3s2 = depthwise_tile<3, 2, 8, 4>;
using depthwise_5x5 = depthwise_tile<5, 1, 14, 2>;
using depthwise_7x7 = depthwise_tile<7, 1, 14, 2>;

}  // namespace
}  // namespace quern
