// SPDX-License-Identifier: MIT
//
// Squares of 16 pixels by 16 channels, for cores whose 512 bits are one: whole lines of the cache are read, turned in
// registers (reorder_turn.h) and written, and as a store that misses L1 is waited for, the lines of the next square
// are asked for before.
#pragma once

#include "reorder_turn.h"

namespace quern {
namespace {

template <class R, int from, int to>
void move_squares(const reorder_view<const float>& src, const reorder_view<float>& dst, const reorder_grid& grid) {
  constexpr int W = R::width, T = from > to ? from : to;
  for (size_t row = 0; row < grid.count[1]; ++row) {
    const float* in = src.at + row * grid.src[1];
    float* const begin = dst.at + row * grid.dst[1];
    float* out = begin;
    for (size_t i = 0; i < grid.count[0]; ++i, in += grid.src[0], out += grid.dst[0]) {
      typename R::vector a[W];
      each_register<W, from, const float>({in, src.group, src.pixel}, W,
                                          [&](int r, const float* at) { a[r] = R::load(at); });
      if constexpr (from != to) QUERN_UNROLL for (int r = 0; r < W; r += T) turn<R, from, to>(a + r);
      each_register<W, to, float>({out, dst.group, dst.pixel}, W, [&](int r, float* at) { R::store(at, a[r]); });
      float* const next = i + 1 < grid.count[0] ? out + grid.dst[0] : begin + grid.dst[1];
      each_register<W, to, float>({next, dst.group, dst.pixel}, W,
                                  [](int, float* at) { __builtin_prefetch(at, 1, 3); });
    }
  }
}

// Does what squares there are from channel c on, the last ones of a line over some pixels of those before.
template <class R>
size_t reorder_by_squares(const reorder_f32& call, size_t c) {
  constexpr size_t W = R::width;
  using move = void (*)(const reorder_view<const float>&, const reorder_view<float>&, const reorder_grid&);
  constexpr move moves[4][4] = {
      {nullptr, move_squares<R, 1, 4>, move_squares<R, 1, 8>, move_squares<R, 1, W>},
      {move_squares<R, 4, 1>, nullptr, move_squares<R, 4, 8>, move_squares<R, 4, W>},
      {move_squares<R, 8, 1>, move_squares<R, 8, 4>, nullptr, move_squares<R, 8, W>},
      {move_squares<R, W, 1>, move_squares<R, W, 4>, move_squares<R, W, 8>, move_squares<R, W, W>}};
  const reorder_side &from = call.from, &to = call.to;
  const int f = view_of<W>(from, W), t = view_of<W>(to, W);
  const size_t views[] = {reorder_widths[f], reorder_widths[t]};
  const move squares = moves[f][t];
  const size_t tiles = (call.channels - c) / W;
  const bool to_wide = to.block > W, wide = from.block > W || to_wide;
  const bool crowd = crowded(from.block == 1 ? from.channel : to.block == 1 ? to.channel : 1);
  // Of few pixels the last square moves too much twice; few planes are lines that stay; of pixels a multiple of 4 KiB
  // apart L1 keeps no square's lines.
  if (call.halves || !squares || tiles == 0 || call.pixels < 4 * W || !lies_whole<W>(from, views[0]) ||
      !lies_whole<W>(to, views[1]) || share_lines(call) ||
      (to_wide && from.block == 1 && call.channels <= 64 && !crowd) || (to_wide && to.pixel % 1024 == 0))
    return 0;

  // Pixels with all channels side by side are finished while their lines are there, but for what lies along planes: L2
  // foresees so many of those, of crowded ones few.  Lines of odd planes have parts of two squares: along them.
  const bool odd = to.block < W && to.channel % 16 != 0;
  const size_t together = !wide || odd ? 1 : to_wide && from.block > 1 ? tiles : crowd ? 2 : 8;
  const size_t along[] = {W * from.pixel, W * to.pixel},
               across[] = {tile_step(from, views[0], W), tile_step(to, views[1], W)};
  const size_t lines = call.pixels / W, rest = call.pixels % W, last = call.pixels - W;
  const float* src = call.src + offset_of(from, c);
  float* dst = call.dst + offset_of(to, c);
  for (size_t i = 0; i < tiles; i += together, src += together * across[0], dst += together * across[1]) {
    const size_t count = least(together, tiles - i);
    const reorder_view<const float> in = {src, from.channel, from.pixel};
    const reorder_view<float> out = {dst, to.channel, to.pixel};
    if (together == 1)
      squares(in, out, {{lines, 1}, {along[0], 0}, {along[1], across[1]}, 0});
    else
      squares(in, out, {{count, lines}, {across[0], along[0]}, {across[1], along[1]}, 0});
    if (rest > 0)
      squares({src + last * from.pixel, in.group, in.pixel}, {dst + last * to.pixel, out.group, out.pixel},
              {{count, 1}, {across[0], 0}, {across[1], across[1]}, 0});
  }
  return tiles * W;
}

}  // namespace
}  // namespace quern
