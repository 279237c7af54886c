// SPDX-License-Identifier: MIT
//
// Blocks and cost of conv_split_winograd.cpp.
#include "conv_split_winograd.h"
#include "split_winograd.h"
#include "winograd_blocks.h"

namespace quern::split_winograd_driver {
namespace {

double compute_cycles(const quern_problem& p, const tiling& t, const kernel& row, const blocking& b) {
  const geometry& g = t.g;
  const packed_steps steps = {g, parts, t.products()};
  const cut groups(t.tiles, up(std::max<int64_t>(t.tiles, 1), b.word[tile_groups]));
  const double tiles = groups.tiles ? double(groups.count) / double(groups.tiles) : 0;
  // The products of one point.  Around a block sums are zeroed and stored, and the unit drained.
  const auto multiply = [&](double taking_part) {
    const double pieces = std::max(1.0, std::ceil(taking_part / tile)), rows = taking_part / pieces;
    const double products = split_driver::products_of(parts) * double(steps.blocks()) * double(t.products()) /
                            double(t.points()) * double(steps.halves());
    return pieces * products * split_driver::product_cycles(rows) + std::ceil(pieces / 2) * double(steps.count()) * 250;
  };
  double group = winograd_driver::over_points(t, tiles, multiply);
  // A vector through the transforms, and a line for each of its parts; where channels are not densest, buffers.
  const double in = 12 + (source_run(g, row) ? 0 : 2.4), out = 4 + (destination_run(p, g, row) ? 0 : 2), call = 60;
  const double sources = double(t.all_parts()) * double(b.word[blocks]);
  const double vectors = in * sources * double(2 * steps.blocks()) + out * double(steps.halves());
  group += tiles * (double(t.points()) * vectors + call * (sources * double(steps.blocks()) + double(steps.count())));
  return group * double(groups.tiles) * double(g.groups);
}

}  // namespace

blocking choose_blocks(const form& f, const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry& g = geometry_of(p);
  const tiling t = tiling_of(f, g);
  const packed_steps steps = {g, parts, t.products()};
  blocking b = {};
  b.packed_bytes = uint64_t(steps.size());
  const int64_t l2 = int64_t(m.l2);
  const int64_t one_tile =
      std::max<int64_t>(1, t.points() * (t.all_parts() * g.c + steps.count() * panel) * int64_t(sizeof(float)));
  // Weights that stay in L2 leave it to two register tiles.  Others pass once for every group, which is to be large
  // enough to hide that: a line of them buys two rows of products, so many cycles a tile.  More tiles wait in L3, and
  // pay while weights are the larger share of what passes.
  const bool resident = int64_t(b.packed_bytes) <= l2 * 5 / 8;
  b.word[weights_ahead] = !resident;
  b.word[image_ahead] = winograd_driver::asks_ahead(p, g, row, m);
  const double line_cycles = 64 / (m.l3_rate * m.cycle_ns), tile_cycles = split_driver::product_cycles(tile) / 128;
  const int64_t hides = int64_t(std::clamp(line_cycles / tile_cycles, 16.0, 64.0));
  const double room = std::min(l3_share(m), double(b.packed_bytes));
  const int64_t most = resident ? std::clamp<int64_t>((l2 * 3 / 4 - int64_t(b.packed_bytes)) / one_tile, 12, 32)
                                : std::clamp(int64_t(room) / one_tile, hides, 4 * hides);
  const int64_t group_tiles =
      winograd_driver::share_out(b, t, m, threads, std::max<int64_t>(1, up(t.tiles, most)), tile, steps.count(), panel,
                                 [&] { return compute_cycles(p, t, row, b); });
  b.workspace_bytes =
      uint64_t(group_sizes(t, group_tiles, b.word[block_panels], through_buffer(p, g, row)).bytes(t.points()));
  return b;
}

cost predict(const form&, const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry& g = geometry_of(p);
  const operand_bytes o(g, b.packed_bytes);
  const double passes = b.word[weights_ahead] ? double(b.word[tile_groups]) : 1;
  // The unit hides two fifths of what passes (Emerald Rapids: 0.55 to 0.78 is left).
  const double weights = 0.62 * passes * passing_cycles(m, o.weights);
  const double group = double(b.workspace_bytes), items = double(b.word[tile_groups] * b.word[blocks] * g.groups);
  const double buffers = group > double(m.l2) ? 0.8 * group * items / (copy_rate(m, group) * m.cycle_ns) : 0;
  const double piece = through_buffer(p, g, row) ? 2.5 : 1.2;
  const double image =
      o.image + o.output > double(m.l2) ? piece * (o.image + o.output) / (copy_rate(m, o.all()) * m.cycle_ns) : 0;
  return waiting(row, m, b, weights + buffers + image);
}

}  // namespace quern::split_winograd_driver
