// SPDX-License-Identifier: MIT
//
// Blocks and cost of conv_winograd.cpp.
#include "winograd_blocks.h"

namespace quern::winograd_driver {
namespace {

// Of transformed tiles: a little over its size, as some have been used up when others come.
int64_t l2_keeps(const machine& m) { return int64_t(m.l2) * 9 / 8; }

// What a panel of weights that L1 does not keep makes m rows wait: L2 answers in time up to two fifths of its rate.
// Where two vectors are multiplied in a clock this decides between wide and tall tiles (10 % on VGG's conv3_2, Granite
// Rapids).
double panel_cycles(const kernel& row, const machine& on, double m, double floats) {
  if (4 * floats <= double(on.l1) * 0.75) return 0;
  const double read = 4 * floats / (on.l2_rate * on.cycle_ns),
               multiply = multiply_pace(row, on) * m * floats / row.vector / 2;
  return read * std::clamp(0.8 * (read / multiply - 0.42), 0.0, 1.0);
}

// Products, and transforms at a price a point and vector.
double compute_cycles(const quern_problem& p, const tiling& t, const kernel& row, const machine& on,
                      const blocking& b) {
  const geometry& g = t.g;
  const int64_t panels = g.k / row.nr, tail = g.k % row.nr;
  const cut groups(t.tiles, up(std::max<int64_t>(t.tiles, 1), b.word[tile_groups]));
  const double tiles = groups.tiles ? double(groups.count) / double(groups.tiles) : 0;
  const double depth = double(g.c * t.products()) / double(t.points());
  // The products of one point: all panels by so many tiles.  The hardware follows the panels, not the rows of tiles.
  const auto multiply = [&](double taking_part) {
    const double row_tiles = std::max(1.0, std::ceil(taking_part / row.mr)), m = taking_part / row_tiles;
    const auto panel = [&](double n) {
      return tile_cycles(row, on, m, n, depth) + row_cycles(m, depth) + panel_cycles(row, on, m, n * depth);
    };
    return row_tiles * (double(panels) * panel(row.nr) + (tail ? panel(double(tail)) : 0));
  };
  double group = over_points(t, tiles, multiply);
  // Stores bound that, so narrow vectors win nothing; and a call waits for the first lines of its tile.
  const double down = t.upright ? 0.6 : 0;  // through planes, where each pixel is in a line of its own
  const double in = (0.18 + (source_run(g, row) ? 0 : 0.15 + down)) * row.vector,
               out = (0.25 + (destination_run(p, g, row) ? 0 : 0.12 + down)) * row.vector, call = 55;
  const double sources = double(t.all_parts()) * double(b.word[blocks]);
  const double vectors = in * sources * double(up(g.c, row.vector)) + out * double(up(g.k, row.vector));
  group += tiles * (double(t.points()) * vectors + call * (sources + 1));
  return group * double(groups.tiles) * double(g.groups);
}

}  // namespace

blocking choose_blocks(const form& f, const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry& g = geometry_of(p);
  const tiling t = tiling_of(f, g);
  const weight_panels panels = {g, row.nr, row.vector, t.products()};
  blocking b = {};
  b.packed_bytes = uint64_t(panels.size()) * sizeof(float);
  // Weights that stay in L2 leave it to as many tiles as a row tile takes; others pass once for every group, which is
  // to be large enough to hide that: each tile buys the cycles of one product a line.  Where L2 does not hold so many,
  // more tiles wait in L3, and more still of weights that L3 does not keep.
  const int64_t l2 = int64_t(m.l2);
  const int64_t one_tile = (t.points() + 1) * std::max({g.c * t.all_parts(), panels.columns(), int64_t{1}}) * 4;
  const int64_t weights = panels.taps * g.c * panels.columns() * 4;
  const bool resident = weights <= l2 * 5 / 8, far = double(weights) > l3_share(m);
  const bool buffers = through_buffer(p, g, row);
  b.word[image_ahead] = asks_ahead(p, g, row, m);
  b.word[weights_ahead] = !resident;
  // So many tiles barely.
  const double line = 64 / (copy_rate(m, double(weights)) * m.cycle_ns), product = pace(row, m) * 8 / row.vector;
  const double hides = std::min(line / product, 1000.0);
  const auto whole = [&](double tiles) { return std::max(up(12, row.mr), up(int64_t(tiles), row.mr)) * row.mr; };
  const int64_t least = whole(0), in_l2 = l2_keeps(m);
  const bool near = !resident && whole(hides) * one_tile <= in_l2;
  const int64_t room = resident ? l2 * 3 / 4 - weights : near ? in_l2 : (far ? 8 : 4) * l2;
  const int64_t largest = near                                          ? whole(1.5 * hides)
                          : far                                         ? std::numeric_limits<int64_t>::max()
                          : resident && b.word[image_ahead] && !buffers ? least
                                                                        : whole(25);
  const int64_t most = std::clamp(room / one_tile / row.mr * row.mr, least, largest);
  // As few groups as L2 holds, but none that does not hide the weights; halves where all tiles would leave those no
  // room.
  const int64_t hidden = near ? int64_t(double(t.tiles) / hides) : t.tiles;
  const bool halves = near && t.tiles * one_tile > l2 * 5 / 8 && hidden >= 2;
  const int64_t groups = t.tiles > room / one_tile ? std::max<int64_t>(1, std::min(up(t.tiles, most), hidden))
                         : halves                  ? 2
                                                   : 1;
  const int64_t group_tiles =
      share_out(b, t, m, threads, groups, least, panels.count, row.nr, [&] { return compute_cycles(p, t, row, m, b); });
  b.workspace_bytes = sizes(t, row, panels, group_tiles, b.word[block_panels], buffers).bytes(t.points());
  return b;
}

// The products alone, of tiles with all their outputs.
double least_cycles(const form& f, const full_problem& p, const kernel& row, const machine& m) {
  const auto axis = [&](int i) { return double(f.axis[i]->a) / double(f.axis[i]->m * f.r); };
  const bool square = p.g.filter[1] > 1 && p.g.filter[2] > 1;
  return least_by_channels(p, row, m) * (square ? axis(0) : 1) * axis(1);
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry& g = geometry_of(p);
  const operand_bytes o(g, b.packed_bytes);
  // Weights that pass by are fetched while products run, all but a tenth, or but what takes longer than those.  Where a
  // core gets 8 bytes a cycle, from L3 (Intel) or from memory (Zen 5), both hold up each other.
  // Transforms wait for pieces of the image, little where L3 is fast (Zen 4); for more of planes, and for more still
  // where they go down them.
  const double passes = b.word[weights_ahead] ? double(b.word[tile_groups]) : o.weights > double(m.l2) * 5 / 8;
  const double passing = passes * passing_cycles(m, o.weights);
  const bool slow = slow_l3(m), hold_up = slow || copy_rate(m, o.weights) * m.cycle_ns < 9;
  const double alone = (slow ? 0.75 : hold_up ? 0.85 : 0.7) * passing;  // read, not copied
  const double weights = hold_up ? std::hypot(alone, b.cycles) - b.cycles : std::max(0.1 * alone, alone - b.cycles);
  // Those of a group are used in one go, and come from where they stay from run to run: L2 keeps less than it holds.
  const double lost = std::clamp(4 * (o.all() + double(b.workspace_bytes)) / double(m.l2) - 3, 0.0, 1.0);
  const double used_once =
      g.groups > 1 && passes == 0 ? o.weights * (lost / m.l3_rate + (1 - lost) / m.l2_rate) / m.cycle_ns : 0;
  // Transformed tiles that L2 does not keep are written and read line by line, each in another page.
  const double buffers = int64_t(b.workspace_bytes) > l2_keeps(m)
                             ? 1.5 * double(b.workspace_bytes) * double(b.word[tile_groups] * b.word[blocks] * g.groups)
                             : 0;
  const double piece = !through_buffer(p, g, row) ? (slow ? 2 : 0.5) : is_upright(g) ? 10 : 3;
  const double image = o.image + o.output > double(m.l2) ? piece * (o.image + o.output) : 0;
  return waiting(row, m, b,
                 weights + used_once + image / (fetch_rate(m, o.all()) * m.cycle_ns) +
                     buffers / (fetch_rate(m, double(b.workspace_bytes)) * m.cycle_ns));
}

}  // namespace quern::winograd_driver
