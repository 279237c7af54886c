// SPDX-License-Identifier: MIT
//
// The workspace of a group of tiles whose products are those of bf16 parts:
//
//   V   [point][part of the taps][tile][channels]                    f32
//   A   [part of the taps][32 channels][tile][part][32]             bf16: V of one point
//   M   [point][panel][tile][32]                                     f32
//
// V as it is would be half as large again in parts, and what is split for a point stays in L2 while panels pass.
#pragma once

#include "split_weights.h"
#include "winograd_tiling.h"

namespace quern::split_winograd_driver {

using split_driver::depth, split_driver::packed_steps, split_driver::panel, split_driver::panel_step,
    split_driver::split_vector, split_driver::tile;
using winograd_driver::destination_run, winograd_driver::source_run, winograd_driver::through_buffer;
using winograd_driver::tile_groups, winograd_driver::block_panels, winograd_driver::blocks,
    winograd_driver::image_ahead, winograd_driver::weights_ahead;
using winograd_driver::tiling;

constexpr int parts = 3, pixel = parts * int(depth) * 2;  // bytes of a tile's 32 channels at a point

struct group_sizes {
  int64_t rows;              // of A and M, some more than tiles: register tiles may be taller
  int64_t v_row, v_part, v;  // floats of V: from tile to tile, from part to part, from point to point
  int64_t panel_floats, m;   // floats of M: from panel to panel, from point to point
  int64_t channels, block;   // blocks of 32 channels, and bytes of A from one to the next
  int64_t steps, buffer;     // of a product at most; floats of a buffer between layouts

  group_sizes(const tiling& t, int64_t tiles, int64_t panels, bool through_buffer)
      : rows(tiles + up(tiles, tile)),
        v_row(winograd_driver::padded(t.g.c, tile)),
        v_part(tiles * v_row + 16),
        v(t.all_parts() * v_part),
        panel_floats(rows * panel),
        m(panels * panel_floats + 16),
        channels(up(t.g.c, depth)),
        // Blocks that lie alike in a page would share a few sets of L1.
        block(rows * pixel + (rows % 8 ? 0 : 64)),
        steps(t.all_parts() * channels),
        buffer(through_buffer ? winograd_driver::buffer_floats(t) : 0) {}

  int64_t bytes(int64_t points) const {
    const int64_t floats = points * (v + m) + 2 * buffer;
    return up(floats * 4 + steps * (block + int64_t(sizeof(ptrdiff_t))), QUERN_ALIGN) * QUERN_ALIGN;
  }
};

struct group_memory {
  char* a;
  float *v, *m, *buffer;
  ptrdiff_t* step;
  group_memory(char* at, const group_sizes& s, int64_t points)
      : a(at),
        v(reinterpret_cast<float*>(a + s.steps * s.block)),
        m(v + points * s.v),
        buffer(m + points * s.m),
        step(reinterpret_cast<ptrdiff_t*>(buffer + 2 * s.buffer)) {}
};

}  // namespace quern::split_winograd_driver
