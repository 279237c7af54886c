// SPDX-License-Identifier: MIT
//
// Blocks and cost of conv_split.cpp.
#include <cmath>

#include "conv_split.h"
#include "split_weights.h"

namespace quern::split_driver {
namespace {

double cycles_of(const band_tiles& tiles) { return double(tiles.count) * product_cycles(double(tiles.rows)); }

bool may_be_flat(const band_axis& h, const band_axis& w) { return h.pixel == 1 && w.pixel == 1; }

double compute_cycles(const geometry& g, const machine& m, const blocking& b, int parts, bool gathers, bool sows) {
  double cycles = 0;
  const packed_steps steps = {g, parts};
  const int64_t phases = std::min<int64_t>(g.phases(), 64);
  for (int64_t f = 0; f < phases; ++f) {
    const phase ph = phase_of(g, f);
    const band_axis h(ph.h), w(ph.w);
    const int64_t lines = up(ph.h.out_count, b.word[bands]), width = up(ph.w.out_count, b.word[columns]);
    const double items =
        double(ph.d.out_count) * double(ph.h.out_count) / double(std::max<int64_t>(1, lines)) * double(b.word[columns]);
    const band_tiles tiles(b.word[flat], lines, width, w.places(width));
    cycles +=
        items * cycles_of(tiles) * products_of(parts) * double(ph.taps() * steps.blocks()) * double(steps.halves());
    // Around a block: sums zeroed and stored, and the unit drained.
    const double block_count = items * double(up(tiles.count, 2)) * double(steps.count());
    const double places = items * double(ph.d.taps * h.places(lines) * w.places(width)) * double(b.word[blocks]);
    cycles += items * 1500;
    // A line is split and finished beside its products, but by the same loads and stores.  A half of the weights that
    // L1 has no room for is waited for, tile by tile.
    if (b.word[line]) {
      cycles += places * 9 * double(steps.blocks() + up(steps.count(), b.word[blocks]));
      cycles += items * double(tiles.count) * std::max(0.0, double(steps.group_bytes()) - double(m.l1) * 0.75) / 128;
    } else {
      cycles += block_count * 250 + places * double(steps.blocks()) * (parts * 3 + 3 + (gathers ? 12 : 0));
    }
    if (sows) cycles += 0.7 * double(ph.outputs()) * double(g.k) + 60 * block_count;
  }
  return cycles * double(g.phases()) / double(phases) * double(g.n) * double(g.groups);
}

}  // namespace

refusal refuse(const full_problem& p, const kernel&, int parts) {
  const geometry g = split_geometry(p);
  if (const refusal why = g.refuse_phases()) return why;
  if (g.groups > 1 && g.c < 8) return {QUERN_REASON_SHAPE, "src.size[1] / groups", g.c, 8};
  return refuse_band(g, up(g.c, depth) * depth * parts / 2,
                     [&](const band_extent&) { return band_bytes(g, parts, 1, std::min(g.out[2], 2 * tile)) / 4; });
}

blocking choose_blocks(const full_problem& p, const kernel&, const machine& m, uint32_t threads, int parts) {
  const geometry g = split_geometry(p);
  const packed_steps steps = {g, parts};
  const layouts in(p, g);
  blocking b = {};
  b.order = g.d_for_h;  // taps along d come before channels, those along h after them
  b.packed_bytes = uint64_t(steps.size());
  const phase ph = phase_of(g, 0);
  const int64_t rows = std::max<int64_t>(1, ph.h.out_count), width = std::max<int64_t>(1, ph.w.out_count);
  // More of L2 where weights pass by once a band.
  const double room = double(m.l2) * (b.packed_bytes > m.l2 / 2 ? 0.45 : 0.3);

  // A line reads all weights again for 16 pixels, a band for 32, but then nothing waits for what is split and finished
  // except at its ends.
  const double weights = double(steps.group_bytes());
  b.word[line] = is_line(g, in, p.epilogue.residual) && weights <= double(m.l2) / 2 &&
                 (weights <= double(m.l2) / 10 || up(g.out[1] * g.out[2], tile) >= 8);
  // Where L1 has no room for all, it is for the pixels' parts.
  const int64_t parts_bytes = int64_t(split_line_tiles(size_t(g.k))) * steps.blocks() * steps.tile_bytes();
  b.word[weights_pass] = weights + double(parts_bytes) > double(m.l1) * 0.55;

  // As many rows as there is room for; where one row is too long, pieces of it.
  b.word[columns] = 1;
  while (!g.transposed && !b.word[line] && b.word[columns] < width &&
         band_bytes(g, parts, 1, up(width, b.word[columns])) > room && up(width, b.word[columns]) > 2 * tile)
    b.word[columns] *= 2;
  b.word[columns] = std::min(b.word[columns], width);
  const int64_t piece = up(width, b.word[columns]);
  const double one = band_bytes(g, parts, 1, piece), two = std::max(one, band_bytes(g, parts, 2, piece));
  int64_t most = two > one ? std::clamp<int64_t>(int64_t((room - one) / (two - one)) + 1, 1, rows) : rows;
  // Rows that two bands split: at most as many as a band has itself.
  const band_axis h(ph.h), w(ph.w);
  if (most * h.pixel < (h.taps - 1) * h.tap)
    most = std::clamp<int64_t>(int64_t((0.9 * double(m.l2) - one) / std::max(1.0, two - one)) + 1, most, rows);
  b.word[bands] = b.word[line] ? 1 : up(rows, most);
  const int64_t panels = std::max<int64_t>(1, steps.count());
  b.word[block_panels] = panels, b.word[blocks] = 1;
  const auto as_flat = [&] {
    const int64_t lines = up(rows, b.word[bands]);
    b.word[flat] = may_be_flat(h, w) && cycles_of(band_tiles(true, lines, piece, w.places(piece))) <
                                            cycles_of(band_tiles(false, lines, piece, w.places(piece)));
  };
  as_flat();
  b.cycles = compute_cycles(g, m, b, parts, !in.src, !in.dst);
  b.workers = useful_workers(m, b.cycles, threads);

  // Threads share bands while each has two, else weights.
  const int64_t fixed = std::max<int64_t>(1, g.n * g.groups * g.phases() * std::max<int64_t>(1, ph.d.out_count));
  const int64_t wanted = b.workers > 1 ? 2 * int64_t(b.workers) : 1;
  int64_t shares = fixed * b.word[bands] * b.word[columns];
  if (shares < wanted) {
    if (b.word[line] && rows == 1) b.word[columns] = std::clamp<int64_t>(up(wanted, fixed), 1, up(width, 4 * tile));
    const int64_t least = std::max<int64_t>(1, up(4 * tile, piece));  // rows of a band
    b.word[bands] = std::max(b.word[bands], std::min(up(rows, least), up(wanted, fixed * b.word[columns])));
    shares = fixed * b.word[bands] * b.word[columns];
    if (shares < wanted) b.word[block_panels] = up(panels, std::min(panels, up(wanted, shares)));
    as_flat();
    b.word[blocks] = up(panels, b.word[block_panels]);
    b.cycles = compute_cycles(g, m, b, parts, !in.src, !in.dst);
  }

  // Weights that L2 does not keep beside the band pass in chunks.
  const int64_t panel_bytes = std::max<int64_t>(1, steps.panel_bytes(ph.taps()));
  const bool stays = panel_bytes * b.word[block_panels] <= int64_t(m.l2) / 2;
  b.word[chunk] = stays ? b.word[block_panels] : std::max<int64_t>(1, int64_t(m.l2) / 8 / panel_bytes);
  const double band =
      b.word[line] ? double(line_parts(g, parts).bytes) : band_bytes(g, parts, up(rows, b.word[bands]), piece);
  const double all = band + double(buffers::bytes(g.filter_size() * steps.blocks())) + 4 * QUERN_ALIGN;
  b.workspace_bytes = uint64_t(std::min(all, 0x1p62)) / QUERN_ALIGN * QUERN_ALIGN;
  return b;
}

// The band is split before its products: reading it is waited for.  Outputs pass while products run, and half of the
// weights that L2 does not keep.
cost predict(const full_problem& p, const kernel&, const blocking& b, const machine& m, int parts) {
  const geometry g = split_geometry(p);
  const layouts in(p, g);
  const operand_bytes o(g, b.packed_bytes);
  const double rate = copy_rate(m, o.all()) * m.cycle_ns, bands_of_all = double(b.word[bands] * b.word[columns] * g.n);
  // Read alone, and once a band where L2 does not keep them.
  const bool streams = o.weights > double(m.l2) / 2;
  const double once = 0.7 * bands_of_all * passing_cycles(m, o.weights);
  const double weights = streams ? once : once / bands_of_all;
  // A band beyond L2 comes from L3 for every chunk of panels.
  const double rows = double(up(std::max<int64_t>(1, g.out[1]), b.word[bands]));
  const double band = band_bytes(g, parts, int64_t(rows), up(std::max<int64_t>(1, g.out[2]), b.word[columns]));
  const double again =
      !b.word[line] && band > 0.6 * double(m.l2)
          ? band * bands_of_all * double(g.groups) * double(up(up(g.k, panel), std::max<int64_t>(1, b.word[chunk])))
          : 0;
  // Of a panel that L2 does not keep beside what is asked for ahead and the band, every two tiles wait for what was
  // pushed out.
  const packed_steps steps = {g, parts};
  const double pairs = double(g.out[1] * g.out[2]) / double(b.word[bands] * b.word[columns] * 2 * tile);
  const double panels =
      (2 - 1 / std::max(1.0, std::ceil(pairs))) * double(steps.panel_bytes(phase_of(g, 0).taps())) + band;
  const double pushed_out = streams ? std::clamp(panels / double(m.l2) - 1, 0.0, 1.0) : 0;
  const double passing = (streams ? 0 : weights) + o.output / rate + again / (copy_rate(m, band) * m.cycle_ns);
  // Lines of planes are shorter, and each in another page.
  const double waited = (in.src ? 0.7 : 1.2) * o.image / rate + (streams ? 0.5 * weights : 0) +
                        pushed_out * std::max(0.0, pairs - 1) * once;
  return {shared_ns(m, std::max(b.cycles, passing) + 0.3 * std::min(b.cycles, passing) + waited, b.workers),
          2.0 * products_of(parts) * double(steps.taps * steps.blocks() * depth) * double(steps.halves() * tile) *
              double(g.out[0] * g.out[1] * g.out[2]) * double(g.n * g.groups) /
              double(std::max<int64_t>(1, g.phases()))};
}

// Of a product, what is left out and what rounding the weights' parts adds to the sum of magnitudes; then 16
// multiply-adds, a sum of two, and one for each product (SDM, TDPBF16PS).
double error_bound(const full_problem& p, int parts) {
  const geometry& g = geometry_of(p);
  const double steps = double(g.filter_size()) * std::ceil(double(g.c) / depth);
  const double left_out = parts == 3 ? 0x1.1p-22 : 0x1.9p-15;
  const double n = (17 + products_of(parts) * steps) * 0x1p-24;
  return n < 0.5 ? left_out + 1.02 * n / (1 - n) : std::numeric_limits<double>::infinity();
}

}  // namespace quern::split_driver
