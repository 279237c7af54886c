// SPDX-License-Identifier: MIT
//
// A line of outputs, or a part of one: how a kernel takes it, and the memory for that.
#pragma once

#include <algorithm>

#include "driver.h"
#include "problem.h"

namespace quern {

// Of a window, that may be on the image.
inline int64_t window_lines(const geometry& g) {
  return std::min(g.filter[0], g.in[0]) * std::min(g.filter[1], g.in[1]);
}

// What a call needs for all lines of a run, of which it takes `count` outputs.  One of them, or one tap, takes no step.
inline pool_f32 call_of(const quern_problem& p, const geometry& g, int64_t n, int64_t count) {
  pool_f32 call = {};
  call.largest = p.op == QUERN_POOL_MAX;
  call.n = size_t(n), call.count = size_t(count);
  call.taps = size_t(g.filter[2]);
  call.step = g.out[2] > 1 ? g.stride[2] : 1, call.apart = g.filter[2] > 1 ? g.dilation[2] : 1, call.pad = g.pad[2];
  call.width = g.in[0] > 0 && g.in[1] > 0 ? g.in[2] : 0;
  call.pixel = call.width > 1 ? g.src[4] : n;
  if (p.op == QUERN_POOL_AVG_PADDED) call.taps_counted = float(g.filter[0]) * float(g.filter[1]) * float(g.filter[2]);
  call.out.channels_are_rows = p.src.layout == QUERN_NCHW;
  call.out.ldc = size_t(g.out[2] > 1 ? g.dst[4] : n), call.out.ldr = size_t(g.residual[4]);
  return call;
}

// The same for outputs from x on.  Returns how many inputs of the line are behind them.
inline ptrdiff_t begin_at(pool_f32& call, ptrdiff_t x) {
  const ptrdiff_t first = x * call.step - call.pad, behind = std::clamp<ptrdiff_t>(first, 0, call.width);
  call.pad = std::max<ptrdiff_t>(0, -first), call.width -= behind;
  return behind;
}

// Outputs that wait for nothing, neither an epilogue nor their place, need no tile.
inline bool is_straight(const quern_problem& p, const pool_f32& call) {
  return call.rows == 0 && only_bounds(p.epilogue) && !p.epilogue.bias && call.lies_as_dst();
}

// Where buffers begin, in floats, behind the offsets of lines, which are two each.
struct pool_workspace {
  size_t fold, tile, inside, band, all;

  pool_workspace() = default;
  pool_workspace(const quern_problem& p, const geometry& g, const pool_f32& call, int64_t of_band) {
    const auto behind = [](size_t begin, size_t floats) { return begin + pool_f32::whole(floats); };
    const bool counts = p.op == QUERN_POOL_AVG && call.across();
    fold = behind(0, 2 * size_t(std::max(window_lines(g), of_band ? g.filter[1] : 0)));
    tile = behind(fold, call.fold_floats());
    inside = behind(tile, is_straight(p, call) ? 0 : call.tile_floats());
    band = behind(inside, counts ? call.tile_floats() + call.tile_row : 0);
    all = behind(band, size_t(of_band));
  }
};

// The loads that an output takes, in vectors of which only n floats count, or that cross pixels; and stores to the
// buffer that lines fold to.
struct way_cost {
  pool_way way;
  double cost;
};

inline way_cost way_of(const geometry& g, pool_f32 call, const kernel& row, const machine& m) {
  const int64_t n = int64_t(call.n), width = row.vector;
  const double lines = double(window_lines(g)), taps = double(call.taps);
  const double partly = double(up(n, width) * width) / double(n);
  const double inputs = double(std::min<int64_t>(int64_t(call.span()), call.width));
  way_cost best = {pool_way::windows, (lines * taps + 2) * partly};
  const auto offer = [&](pool_way way, double cost) {
    call.way = way;
    if (cost < best.cost && double(call.fold_floats()) * 4 <= double(m.l2) / 2) best = {way, cost};
  };
  const bool few_taps = (call.taps == 2 || call.taps == 3) && call.step <= 2 && call.apart == 1;
  if (few_taps) offer(pool_way::columns, (lines * std::min(taps, double(call.step)) + 1) * partly);
  const bool dense = call.pixel == n;
  if (inputs * double(n) * 4 <= double(m.l2))
    offer(pool_way::pixels, inputs / double(call.count) * (lines + 2) * (dense ? 1 : partly) + (taps + 2) * partly);
  // Lines may be padding for the most part.
  const bool parted = call.step == 1 || (call.step <= pool_phases && width % n == 0);
  if (dense && parted && double(call.span()) * double(n) * 4 <= double(m.l2)) {
    const double phases = double(call.step) * (lines + double(call.step - 1));
    offer(pool_way::flat, phases + 2 * double(call.step) + (call.doubles() ? 2 * std::log2(taps) : taps) + 1);
    if (few_taps && 2 * n <= width) offer(pool_way::shifted, phases + taps);
  }
  return best;
}

// Outputs of a line that a call takes, at most: what their windows reach stays in half of L2, and what that folds to,
// or waits in a tile, in half of L1.  Folded parts are as long as what a window has of the image, or they would fold
// for the most part what others do.
inline int64_t outputs_of_part(const quern_problem& p, const geometry& g, int64_t n, const kernel& row,
                               const machine& m, int64_t most) {
  const int64_t grain = n < 16 ? 16 : 1;  // outputs, in lines of the cache
  pool_f32 call = call_of(p, g, n, most);
  for (;;) {
    call.way = way_of(g, call, row, m).way;
    const pool_workspace w(p, g, call, 0);
    const size_t floats = std::max(w.tile - w.fold, w.all - w.tile);
    const bool fits = double(call.span()) * double(n) * 4 <= double(m.l2) / 2 && floats <= m.l1 / 8;
    const ptrdiff_t shared = call.fold_floats() > 0 ? std::min(call.reach(), call.width) : 0;
    const int64_t count = int64_t(call.count), least = up(shared / call.step + 1, grain) * grain;
    if (fits || count <= least) return count;
    call.count = size_t(std::max(least, up(up(count, 2), grain) * grain));
  }
}

}  // namespace quern
