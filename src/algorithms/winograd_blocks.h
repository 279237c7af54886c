// SPDX-License-Identifier: MIT
//
// What the costs of Winograd's drivers share: the products of a group of tiles, and groups and blocks for workers.
#pragma once

#include "driver.h"
#include "winograd_tiling.h"

namespace quern::winograd_driver {

// Whether what the transforms will touch next is asked for: pixels of images that L2 does not keep at all, planes that
// it does not keep whole.
inline bool asks_ahead(const quern_problem& p, const geometry& g, const kernel& row, const machine& m) {
  return operand_bytes(g, 0).all() > (through_buffer(p, g, row) ? 1 : 4) * double(m.l2);
}

// Cycles of all points, where multiply(tiles) has those of one that so many tiles take part in: of the last tiles of an
// axis some leave points out.
template <class Multiply>
double over_points(const tiling& t, double tiles, const Multiply& multiply) {
  double cycles = 0;
  for (const bool y : {false, true})
    for (const bool x : {false, true}) {
      const auto share = [&](int i, bool out) { return out ? 1 - 1 / double(std::max<int64_t>(t.count[i], 1)) : 1; };
      const int64_t points = (y ? t.ay - t.few[0] : t.few[0]) * (x ? t.ax - t.few[1] : t.few[1]);
      if (points) cycles += double(points) * multiply(tiles * share(0, y) * share(1, x));
    }
  return cycles;
}

// Gives every worker that is of use its part: of all tiles in `groups`, of which `least` tiles fill a register tile,
// and of `panels` of so many output channels.  cycles() is compute_cycles of the blocks so far.  Returns the tiles of a
// group.
template <class Cycles>
int64_t share_out(blocking& b, const tiling& t, const machine& m, uint32_t threads, int64_t groups, int64_t least,
                  int64_t panels, int64_t panel_width, const Cycles& cycles) {
  const geometry& g = t.g;
  int64_t split = 1;
  b.word[tile_groups] = groups, b.word[blocks] = 1;
  b.cycles = cycles();
  b.workers = useful_workers(m, b.cycles, threads);
  if (b.workers > 1 && groups * g.groups < 2 * b.workers) {
    // Smaller groups while each worker has two that fill the tile, else every worker has a share of the weights.
    if (t.tiles * g.groups >= 2 * b.workers * least)
      groups = up(2 * b.workers, g.groups);
    else
      split = std::min(std::max<int64_t>(panels, 1), up(b.workers, groups * g.groups));
  }
  if (split == 1 && g.groups == 1) groups = up(groups, b.workers) * b.workers;
  b.word[tile_groups] = std::clamp<int64_t>(groups, 1, std::max<int64_t>(t.tiles, 1));
  b.word[block_panels] = std::max<int64_t>(1, up(panels, split));
  // Blocks begin where those of a blocked layout do.
  while (b.word[block_panels] * panel_width % 16 != 0) ++b.word[block_panels];
  b.word[blocks] = std::max<int64_t>(1, up(panels, b.word[block_panels]));
  if (b.workers > 1) b.cycles = cycles();
  return cut(t.tiles, up(std::max<int64_t>(t.tiles, 1), b.word[tile_groups])).rows(0);
}

}  // namespace quern::winograd_driver
