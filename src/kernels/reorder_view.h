// SPDX-License-Identifier: MIT
//
// What all that move pixels from layout to layout have in common: a side of a run of pixels, and how it shares the sets
// of L1.
//
// Places a multiple of 2 KiB apart, as planes of 32x32 or the pixels of 512 channels, share a set of L1 or two.  What
// walks along them has few in turn, and whole lines of each.
#pragma once

#include "kernel.h"

namespace quern {
namespace {

// How many channels a register of a tile may have, in the order of the tables.
constexpr size_t reorder_widths[] = {1, 4, 8, 16};

// One side of a run of pixels, as its view has it.
template <class Float>
struct reorder_view {
  Float* at;
  size_t group, pixel;  // from the first channel of one register to that of the next, from pixel to pixel
};

inline size_t least(size_t a, size_t b) { return a < b ? a : b; }
inline size_t offset_of(const reorder_side& s, size_t c) { return c / s.block * s.channel + c % s.block; }

// How `channels` channels at most are seen in registers of W floats, as a place in the list of widths.
template <size_t W>
int view_of(const reorder_side& side, size_t channels) {
  if (side.block == 1) return 0;
  int view = side.block < 8 ? 1 : side.block < 16 || W == 8 ? 2 : 3;
  while (view > 1 && reorder_widths[view - 1] >= channels) --view;
  return view;
}

// Whether what a register of this view holds lies together.
template <size_t W>
bool lies_whole(const reorder_side& s, size_t view) {
  return view == 1 || view == W || s.pixel == view;
}

// From tile to tile of so many channels: as far as a whole number of blocks, or within one that has them all.
inline size_t tile_step(const reorder_side& s, size_t view, size_t channels) {
  return view == 1 || view == s.block ? channels / view * s.channel : channels;
}

// Rows of whole tiles: the second count and its steps lead from row to row.  Where pixels are left at a row's end, so
// many, one tile more takes them and the ones before them, unless they are few.
struct reorder_grid {
  size_t count[2], src[2], dst[2], left;
};

inline bool crowded(size_t apart) { return apart % 512 == 0; }

// How many lines so many floats apart the sets of L1 that they share hold.
inline size_t lines_apart(const reorder_f32& call, size_t floats) {
  const size_t step = floats & -floats;
  return call.ways * 1024 / (step < 16 ? 16 : step > 1024 ? 1024 : step);
}

// Pixels of few channels that are no whole number of lines: each pass over some of the channels meets lines that the
// others have, too.
inline bool share_lines(const reorder_f32& call) {
  return (call.from.block > 16 || call.to.block > 16) && call.channels < 64 && call.channels % 16 != 0;
}

// Asks for the lines that so many planes are written to 32 pixels after pixel x, of this row or, where it ends before,
// of the next one: each plane would be waited for (a fifth of the time, half of it at 14x14: Granite Rapids).  Lines of
// crowded planes would push each other out.  Not inline: beside so many addresses compilers keep those of a tile on the
// stack, whether any are asked for or not.
template <int planes>
[[gnu::noinline]] void ask_ahead(size_t plane, const float* row, size_t x, size_t pixels, size_t next) {
  if (planes > 4 && crowded(plane)) return;
  const float* at = row + x + 32;
  if (x + 32 >= pixels) at += next - pixels;
  QUERN_UNROLL for (int c = 0; c < planes; ++c, at += plane) __builtin_prefetch(at, 1, 3);
}

// Pixels of a block that lie before the first which begins a register of W floats there: blocks of odd planes begin
// anywhere in a line of the cache, and every register that is written across its end is two stores.
template <size_t W, size_t block>
[[gnu::always_inline]] inline size_t pixels_before(const float* at) {
  return -(reinterpret_cast<uintptr_t>(at) / sizeof(float)) % W / block;
}

// What is less pixels than this goes one by one: a tile would move the others of its pixels again.
constexpr size_t few_pixels = 3;

template <int from, int to>
[[gnu::always_inline]] inline void move_pixel(const float* in, const reorder_view<const float>& src, float* out,
                                              const reorder_view<float>& dst) {
  constexpr size_t T = from > to ? from : to;
  if constexpr (from == 1) {
    using quad = float __attribute__((vector_size(16)));
    QUERN_UNROLL for (size_t c = 0; c < T; c += 4, in += 4 * src.group) {
      const quad four = {in[0], in[src.group], in[2 * src.group], in[3 * src.group]};
      __builtin_memcpy(out + c, &four, sizeof four);
    }
  } else {
    QUERN_UNROLL for (size_t c = 0; c < T; ++c) out[c / to * dst.group + c % to] = in[c / from * src.group + c % from];
  }
}

}  // namespace
}  // namespace quern
