// SPDX-License-Identifier: MIT
//
// Implicit GEMM fed by the copy engine of capability 9.0 (TMA): where tiles lie and what is requested for them,
// written for any compiler, as implicit.h is.
//
// A launch has as many blocks as the GPU has multiprocessors, and each walks over tiles.  One thread of a block
// requests stages: the pixels of a tile at one tap, 128 bytes of channels each, by an im2col map, and the weights
// that meet them, which packing has laid out as they lie in shared memory.  Groups of four warps multiply 64 pixels
// each.  Rows of 128 bytes are swizzled by the engine: chunk j of 16 bytes of row r lies at j ^ r % 8.
#pragma once

#include "cuda/dims.h"
#include "cuda/output.h"

namespace quern {
namespace {

struct alignas(64) tensor_map {
  uint64_t word[16];
};

// One of h and w: the input of output 0 at the first tap, and what outputs and taps add.
struct tma_axis {
  int32_t begin, step, taps, tap_step;
};

// By value in the kernel's parameters: one phase of a problem.
struct tma_conv {
  tensor_map src;
  tma_axis h, w;
  int32_t c, chunks, blocks;  // input channels of a group, in chunks of 128 bytes; stages of a tile: chunks * taps
  // First pixels of windows in a line of the map, outputs and more where taps share a stage, and in an image.
  divisor columns, of_image;
  divisor channel_tiles, of_group;  // tiles: of the same pixels, of a group
  int32_t tiles;
  const char* weights;
  int64_t weights_group;  // bytes
  gpu_output out;
  int32_t together;  // outputs of a channel that are written at once: of 16 bytes or of 4, or one
  divisor plane;     // those of an image, where their lines follow each other; else 0
  bool stores;       // the engine writes dst, by a map of [pixel][channel]
  bool ahead;        // weights are requested before what precedes the kernel has ended
  tensor_map dst;
};

// Of the stages of a tile, those that a block of a cluster sums.
struct tma_share {
  int32_t first, last;
};
QUERN_INLINE tma_share tma_share_of(const tma_conv& a, int32_t rank, int32_t cluster) {
  const int32_t each = (a.blocks + cluster - 1) / cluster, first = each * rank;
  return {first < a.blocks ? first : a.blocks, first + each < a.blocks ? first + each : a.blocks};
}

// Pixels of a tile that each block of a cluster finishes, and those of a box that is stored: of 8 bits all of them.
constexpr int tma_written(int pixels, int cluster) { return (pixels / 16 + cluster - 1) / cluster * 16; }
constexpr int tma_box(int written, int element_bytes) {
  if (element_bytes == 1) return written;
  int rows = 64;
  while (written % rows != 0) rows -= 16;
  return rows;
}

struct tma_place {
  int32_t group, pixel, channel;  // the first of each
  int32_t panel;
};

QUERN_INLINE tma_place tma_place_of(const tma_conv& a, int32_t tile, int32_t bm, int32_t bn) {
  const int32_t group = a.of_group.quotient(tile), rest = tile - group * a.of_group.by;
  const int32_t row = a.channel_tiles.quotient(rest), panel = rest - row * a.channel_tiles.by;
  return {group, row * bm, panel * bn, panel};
}

// The output of the pixel of a line of the map, where taps share a stage; out.pixels: none.
template <int Taps>
QUERN_INLINE int32_t tma_output_of(const tma_conv& a, int32_t pixel) {
  if constexpr (Taps == 1) return pixel;
  const int32_t line = a.columns.quotient(pixel), column = pixel - line * a.columns.by;
  return column < a.out.size[2] ? line * a.out.size[2] + column : a.out.pixels;
}

// What the map is asked for: n pixels on from this one, this tap, from this channel on.
struct tma_request {
  int32_t c, w, h, n;
  uint16_t tap_w, tap_h;
};

// Stages of a tile one after the other: channels fastest, then s, then r.  Additions only: a division takes longer
// than a stage may.
struct tma_walk {
  const tma_conv& a;
  tma_request now;
  int32_t chunk = 0, s = 0, first_c;

  QUERN_INLINE tma_walk(const tma_conv& conv, const tma_place& place) : a(conv) {
    const int32_t n = a.of_image.quotient(place.pixel), rest = place.pixel - n * a.of_image.by;
    const int32_t row = a.columns.quotient(rest);
    first_c = place.group * a.c;
    now = {first_c, (rest - row * a.columns.by) * a.w.step + a.w.begin, row * a.h.step + a.h.begin, n, 0, 0};
  }
  // To another stage of the tile, from its first.
  QUERN_INLINE void skip(int32_t stages, int32_t channels) {
    const int32_t tap = stages / a.chunks, r = tap / a.w.taps;
    chunk = stages - tap * a.chunks, s = tap - r * a.w.taps;
    now.c += chunk * channels;
    now.tap_w = static_cast<uint16_t>(s * a.w.tap_step), now.tap_h = static_cast<uint16_t>(r * a.h.tap_step);
  }
  QUERN_INLINE void advance(int32_t channels) {
    now.c += channels;
    if (++chunk < a.chunks) return;
    chunk = 0, now.c = first_c;
    now.tap_w = static_cast<uint16_t>(now.tap_w + a.w.tap_step);
    if (++s < a.w.taps) return;
    s = 0, now.tap_w = 0;
    now.tap_h = static_cast<uint16_t>(now.tap_h + a.h.tap_step);
  }
};

// Where element `column` of `row` lies in swizzled rows of 128 bytes, with so many elements in 16 bytes.
template <int Chunk>
QUERN_INLINE int32_t tma_swizzled(int32_t row, int32_t column) {
  return row * 8 * Chunk + ((column / Chunk ^ row % 8) * Chunk + column % Chunk);
}

// The accumulators of a matrix instruction: element 4 j + 2 i + e of a thread is this row of its group's 64, and
// column 8 j + this.
QUERN_INLINE int32_t tma_row(int32_t thread, int32_t i) { return thread % 128 / 32 * 16 + thread % 32 / 4 + 8 * i; }
QUERN_INLINE int32_t tma_column(int32_t thread, int32_t e) { return thread % 4 * 2 + e; }
// Of elements of 8 bits the rows of a warp are packed in another order: then a thread's two are neighbouring channels.
QUERN_INLINE int32_t tma_packed_row(int32_t channel) { return channel / 16 * 16 + channel % 16 / 2 + channel % 2 * 8; }
QUERN_INLINE int32_t tma_paired_channel(int32_t thread, int32_t i) {
  return thread % 128 / 32 * 16 + thread % 32 / 4 * 2 + i;
}

// Two sums of 16-bit elements, of a channel, where nothing but clamps is left.  Easily: ends_easily(), and of easy
// channels.
template <class Element, bool Residual, bool Easily = false>
QUERN_INLINE uint32_t finished_pair(const epilogue_f32& e, const channel_f32& k, float first, float second,
                                    uint32_t residual) {
  if constexpr (Easily)
    return rounded_pair<Element, true>(finished_easily<Element>(k, first), finished_easily<Element>(k, second));
  const Element r[] = {{static_cast<uint16_t>(residual)}, {static_cast<uint16_t>(residual >> 16)}};
  return rounded_pair<Element>(finished_narrow<Residual>(e, k, first, value(r[0])),
                               finished_narrow<Residual>(e, k, second, value(r[1])));
}

// Four of 8 bits: two pixels of the thread's two channels, which are neighbours; sum 2 i + e is of channel i.
template <class Element, bool Residual, bool Easily, class Number>
QUERN_INLINE uint32_t finished_four(const epilogue_f32& e, const channel_f32 (&k)[2], const Number* sum,
                                    uint32_t residual) {
  float y[4];
  QUERN_UNROLL
  for (int i = 0; i < 4; ++i) {
    const Element r = {static_cast<decltype(Element::bits)>(residual >> 8 * i)};
    const float own = static_cast<float>(sum[i % 2 * 2 + i / 2]);
    y[i] = Easily ? finished_easily<Element>(k[i % 2], own)
                  : finished_narrow<Residual>(e, k[i % 2], own, Residual ? value(r) : 0);
  }
  return Easily ? rounded_easily<Element>(y) : rounded_four<Element>(y);
}

}  // namespace
}  // namespace quern
