// SPDX-License-Identifier: MIT
//
// Direct convolution, forward and transposed, for NCHW outputs and for few of them in any layout: pixels across
// the tile, weights by broadcast.
// The image is copied a band at a time, planes apart, padded, and split by the stride, so that neighbouring
// outputs read neighbouring floats at every tap; nothing is copied twice but the rows where bands meet.
// Few input channels or wide images; elsewhere conv_band has fuller tiles.
//
//   item = image, group, phase, depth, band of rows, block of channels    one task of the parallel_for
//     copy the band                                                        stays in L2
//     for the weights of mr output channels                                stay in L1
//       for row of the band, or rows that follow each other as one line
//         for nr pixels of the line
//           row.gemm                                                   to dst, or to sums that are sown there
#include "band.h"
#include "driver.h"
#include "weights.h"

namespace quern {
namespace {

enum word { bands, block_tiles, blocks, strip_floats, streams, sown };

// How the places of a band lie in the workspace: [c][t][row phase][column phase][row][column], where a phase
// is every pixel-th place.
struct planes {
  band_axis h, w;
  int64_t rows, columns;  // of a phase
  int64_t plane;          // elements from channel to channel

  planes(const phase& ph, int64_t outputs)
      : h(ph.h),
        w(ph.w),
        rows(up(h.places(outputs), h.pixel)),
        columns(up(w.places(ph.w.out_count), w.pixel)),
        plane(up(ph.d.taps * h.pixel * w.pixel * rows * columns, 16) * 16) {
    // An odd number of lines: channels fall into all sets of a cache.
    if (plane / 16 % 2 == 0) plane += 16;
  }
  int64_t row(int64_t t, int64_t place, int64_t column_phase) const {
    return (((t * h.pixel + place % h.pixel) * w.pixel + column_phase) * rows + place / h.pixel) * columns;
  }
  int64_t at(int64_t t, int64_t row_place, int64_t column_place) const {
    return row(t, row_place, column_place % w.pixel) + column_place / w.pixel;
  }
  // Rows of outputs lie one after the other, as their inputs do.
  bool flat(const phase& ph) const { return columns == ph.w.out_count; }
};

double band_floats(const geometry& g, const band_extent& x, int64_t outputs) {
  return (x.depth * (x.places(outputs) + x.more) * (x.columns + x.split) + 32) * double(g.c);
}

// Neighbouring pixels of a phase are not neighbours in dst, or not in the residual: tiles are made in the
// workspace.
bool sows(const geometry& g, bool residual) {
  const auto scattered = [&](int64_t block, int64_t stride) {
    return block != 1 || (g.out[2] > 1 && g.phases(2) * stride != 1);
  };
  return scattered(g.dst_block, g.dst[4]) || (residual && scattered(g.residual_block, g.residual[4]));
}

refusal refuse(const full_problem& p, const kernel&) {
  const geometry g = band_geometry(p);
  if (const refusal why = g.refuse_phases()) return why;
  return refuse_band(g, g.c, [&](const band_extent& x) { return band_floats(g, x, 1); });
}

double compute_cycles(const geometry& g, const kernel& row, const machine& on, bool sow, int64_t band_count,
                      int64_t block_count) {
  double cycles = 0;
  const int64_t phases = std::min<int64_t>(g.phases(), 64);
  const cut channels(std::max<int64_t>(1, g.k), row.mr);
  const double m = double(channels.count) / double(channels.tiles);
  // Taps along w move pixels within their lines: most vectors cross into the next one, of half of them half.  What that
  // takes few outputs do not hide, and a single one waits for its loads anyway (Zen 4).  Beside two whole vectors a
  // clock more of it shows (Zen 5).
  const double few = m < 2 ? 0 : std::max(0.0, 1 - m / 5);
  const double crossing = in_halves(on)            ? (pace(row, on) < 1 ? 0.4 : 2.5) * few
                          : fast_and_wide(row, on) ? 0.6 * few_rows(m)
                                                   : 0;
  for (int64_t f = 0; f < phases; ++f) {
    const phase ph = phase_of(g, f);
    const planes s(ph, up(ph.h.out_count, std::max<int64_t>(1, band_count)));
    const bool flat = s.flat(ph);
    const int64_t line = ph.w.out_count * (flat ? up(ph.h.out_count, std::max<int64_t>(1, band_count)) : 1);
    const double lines = double(ph.d.out_count) * (flat ? double(band_count) : double(ph.h.out_count));
    const double k = double(ph.taps()) * double(g.c);
    double one = double(line / row.nr) * tile_cycles(row, on, m, row.nr, k);
    if (line % row.nr) one += tile_cycles(row, on, m, double(line % row.nr), k);
    one += double(up(line, row.nr)) * row_cycles(m, k / double(std::max<int64_t>(ph.w.taps, 1)));
    one += double(up(line, row.nr)) * 3 * double(ph.taps());
    if (ph.w.taps > 1) one += double(up(line, row.vector)) * k * crossing;
    // Rows of a tile go to pages of their own.
    if (!sow) one += double(up(line, row.nr)) * 4 * m;
    // Where L1 does not keep the planes, each tap has its pixels from L2.
    if (4.0 * double(s.plane) * double(g.c) > double(on.l1)) one += refill_cycles(row, on, m, k * double(line));
    cycles += lines * double(channels.tiles) * one;
    if (sow) cycles += lines * double(line * g.k);
    const double items = double(ph.d.out_count) * double(band_count * block_count);
    const double copies = double(ph.d.taps) * double(s.h.places(up(ph.h.out_count, std::max<int64_t>(1, band_count)))) *
                          double(s.w.pixel);
    const bool straight = s.w.pixel == 1 && g.src[4] == 1 && g.src_block == 1;
    cycles += items * (300 + copies * (40 + double(g.c) * (15 + (straight ? 0.2 : 0.3) * double(s.columns))));
  }
  return cycles * double(g.phases()) / double(phases) * double(g.n) * double(g.groups);
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry g = band_geometry(p);
  blocking b = {};
  b.packed_bytes = uint64_t(weight_rows{g}.size()) * sizeof(float);

  b.word[sown] = sows(g, p.epilogue.residual);
  const int64_t l2 = int64_t(m.l2) / 4;  // elements
  const phase ph = phase_of(g, 0);
  const int64_t rows = std::max<int64_t>(1, ph.h.out_count);
  const band_extent x(g);
  const double one = std::max(1.0, band_floats(g, x, 1)), two = std::max(one, band_floats(g, x, 2));
  int64_t most = rows;
  if (two > one) most = std::clamp<int64_t>(int64_t((double(l2) / 2 - one) / (two - one)) + 1, 1, rows);
  int64_t parts = up(rows, most);
  b.cycles = compute_cycles(g, row, m, b.word[sown], parts, 1) + weight_rows_cycles(b.packed_bytes, m.l2);
  b.workers = useful_workers(m, b.cycles, threads);

  const int64_t fixed = std::max<int64_t>(1, g.n * g.groups * g.phases() * std::max<int64_t>(1, ph.d.out_count));
  const int64_t tiles = up(std::max<int64_t>(1, g.k), row.mr);
  int64_t channel_blocks = 1;
  const int64_t wanted = b.workers > 1 ? 4 * int64_t(b.workers) : 1;
  if (fixed * parts < wanted) {
    // Bands of a few rows copy most of their rows twice: threads share the channels before that.
    parts = std::max(parts, std::min(up(rows, 4), up(wanted, fixed)));
    channel_blocks = std::clamp<int64_t>(up(wanted, fixed * parts), 1, tiles);
  }
  b.word[bands] = parts;
  b.word[streams] = !b.word[sown] && streams_outputs(g, m);
  b.word[block_tiles] = up(tiles, channel_blocks);
  b.word[blocks] = up(tiles, b.word[block_tiles]);
  b.word[strip_floats] = up(int64_t(band_floats(g, x, up(rows, parts))), 16) * 16;
  const int64_t floats = b.word[strip_floats] + (b.word[sown] ? 2 * int64_t(row.mr) * row.nr : 0);
  b.workspace_bytes = uint64_t(up(floats * 4 + g.filter_size() * int64_t(sizeof(gemm_tap)), QUERN_ALIGN) * QUERN_ALIGN);
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry g = band_geometry(p);
  const operand_bytes o(g, b.packed_bytes);
  // Weights pass once a row.
  const double passes = o.weights > double(m.l2) / 2 ? double(g.out[0] * g.out[1]) * double(g.n) : 1;
  // The image is copied before anything is multiplied, which hides none of it.
  return overlapped(row, m, b, o.cycles(m, o.weights * passes + 2 * o.image, b.word[streams]));
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry g = band_geometry(j.problem);
  pack_rows({g}, first, count, static_cast<const float*>(weights), reinterpret_cast<float*>(payload));
}

// What the loops of one item share.
struct block {
  const job& j;
  const geometry& g;
  const phase& ph;
  planes s;
  range td, rows, tiles;  // taps along d, rows of the band, tiles of mr channels
  range channels;         // of the group, among those of src
  const float* image;     // of this batch element, channel 0
  float* strip;
};

void copy_band(const block& b, int64_t d) {
  const geometry& g = b.g;
  const band_axis &h = b.s.h, &w = b.s.w;
  for (int64_t t = b.td.begin; t < b.td.end; ++t) {
    const float* plane = b.image + (b.ph.d.in_begin + d * b.ph.d.in_step + t * b.ph.d.tap_step) * g.src[2];
    for (int64_t r = 0; r < h.places(b.rows.count()); ++r) {
      const int64_t y = h.input(b.rows.begin * h.pixel + r);
      if (y < 0 || y >= h.in_size) continue;  // taps there are left out
      for (int64_t f = 0; f < w.pixel; ++f) {
        float* to = b.strip + b.s.row(t, r, f);
        band_axis every = w;  // the places of this phase
        every.begin = w.input(f), every.step = w.step * w.pixel;
        const range in = every.inside({0, b.s.columns});
        if (in.count() < b.s.columns)
          for (int64_t c = 0; c < g.c; ++c) {
            memset(to + c * b.s.plane, 0, size_t(in.begin) * sizeof(float));
            memset(to + c * b.s.plane + in.end, 0, size_t(b.s.columns - in.end) * sizeof(float));
          }
        if (in.count())
          gather(b.j.row,
                 {plane + y * g.src[3] + every.input(in.begin) * g.src[4], in.count(), every.step * g.src[4], g.src[1],
                  g.src_block},
                 b.channels, to + in.begin, 1, b.s.plane);
      }
    }
  }
}

// The list of taps of rows that all have `th`, in order.
size_t list_taps(const block& b, range th, gemm_tap* taps) {
  const phase& ph = b.ph;
  size_t count = 0;
  for (int64_t t = b.td.begin; t < b.td.end; ++t)
    for (int64_t v = th.begin; v < th.end; ++v)
      for (int64_t u = 0; u < ph.w.taps; ++u)
        taps[count++] = {((t * ph.h.taps + v) * ph.w.taps + u) * b.g.c, b.s.at(t, v * b.s.h.tap, u * b.s.w.tap)};
  return count;
}

// A tile by way of the workspace: some channels of the pixels that lie as `to` and `add` say.
void gemm_sown(const block& b, gemm_f32 tile, range channels, const pixel_run<float>& to,
               const pixel_run<const float>& add) {
  const kernel& row = b.j.row;
  float* const sums = b.strip + b.j.blocks.word[strip_floats];
  float* const addends = sums + int64_t(row.mr) * row.nr;
  tile.out.c = sums, tile.out.ldc = row.nr;
  if (add.at) {
    gather(row, add, channels, addends, 1, row.nr);
    tile.out.residual = addends, tile.out.ldr = row.nr;
  }
  row.gemm(tile);
  scatter(row, sums, 1, row.nr, channels, to);
}

void run(const job& j, const execution& e) {
  const geometry g = band_geometry(j.problem);
  const weight_rows weights = {g};
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t* word = j.blocks.word;
  const cut tiles(g.k, j.row.mr);
  for_each_band(j, e, g, word[blocks], 1, word[bands], [&](const band_task& at, char* workspace) {
    const phase& ph = at.ph;
    const range rows = at.rows;
    const block b = {
        .j = j,
        .g = g,
        .ph = ph,
        .s = planes(ph, rows.count()),
        .td = ph.d.taps_at(at.d),
        .rows = rows,
        .tiles = {at.block * word[block_tiles], std::min<int64_t>(tiles.tiles, (at.block + 1) * word[block_tiles])},
        .channels = {at.group * g.c, (at.group + 1) * g.c},
        .image = static_cast<const float*>(e.args.src) + at.n * g.src[0],
        .strip = reinterpret_cast<float*>(workspace)};
    gemm_tap* taps = reinterpret_cast<gemm_tap*>(
        workspace + (word[strip_floats] + (word[sown] ? 2 * j.row.mr * j.row.nr : 0)) * int64_t(sizeof(float)));
    if (g.c > 0) copy_band(b, at.d);

    gemm_f32 tile = {};
    tile.k = g.c;
    tile.tap = taps;
    tile.lda = weights.stride(ph.taps());
    tile.ldb = b.s.plane;
    tile.out.ldc = g.dst[1], tile.out.ldr = g.residual[1];
    tile.out.epilogue = &epilogue;
    set_stream(tile, word[streams]);
    tile.out.channels_are_rows = true;
    tile.step = {.b = j.row.nr, .c = j.row.nr, .residual = j.row.nr};
    const auto place = [&](const int64_t* stride, int64_t y) {
      return at.begin(stride) + y * ph.h.out_step * stride[3];
    };
    const int64_t pixel = word[sown] ? ph.w.out_step * g.dst[4] : 1,
                  add_pixel = word[sown] ? ph.w.out_step * g.residual[4] : 1;
    const bool dense = b.s.flat(ph) && ph.h.out_step * g.dst[3] == ph.w.out_count * pixel &&
                       (!epilogue.residual || ph.h.out_step * g.residual[3] == ph.w.out_count * add_pixel);
    for (int64_t i = b.tiles.begin; i < b.tiles.end; ++i) {
      const int64_t channel = at.group * g.k + tiles.begin(i);
      tile.m = tiles.rows(i);
      tile.a =
          reinterpret_cast<const float*>(e.packed) + weights.phase(at.group, at.f) + tiles.begin(i) * int64_t(tile.lda);
      tile.out.channel = channel;
      for (range ys = rows; ys.begin < rows.end; ys.begin = ys.end) {
        ys = ph.h.span(ys.begin, rows.end);
        tile.taps = list_taps(b, ph.h.taps_at(ys.begin), taps);
        const int64_t step = dense ? ys.count() : 1;
        // One call, changed from tile to tile: a copy of it would wait for what was just written.
        for (int64_t y = ys.begin; y < ys.end; y += step) {
          const int64_t pixels = step * ph.w.out_count;
          float* const dst = static_cast<float*>(e.args.dst) + place(g.dst, y);
          const float* const addends =
              epilogue.residual ? static_cast<const float*>(e.args.residual) + place(g.residual, y) : nullptr;
          tile.b = b.strip + (y - rows.begin) * b.s.columns;
          // Whole panels are one call, unless each is sown.
          for (int64_t x = 0, count; x < pixels; x += count, tile.b += count) {
            const int64_t whole = word[sown] ? 0 : (pixels - x) / j.row.nr;
            tile.n = std::min<int64_t>(j.row.nr, pixels - x);
            tile.more = whole > 1 ? whole - 1 : 0;
            count = int64_t(tile.n) * (1 + int64_t(tile.more));
            float* const to = dst + x * pixel;
            const float* const add = addends ? addends + x * add_pixel : nullptr;
            if (word[sown]) {
              gemm_sown(b, tile, {channel, channel + int64_t(tile.m)}, {to, count, pixel, g.dst[1], g.dst_block},
                        {add, count, add_pixel, g.residual[1], g.residual_block});
            } else {
              tile.out.c = to + channel * g.dst[1];
              if (add) tile.out.residual = add + channel * g.residual[1];
              j.row.gemm(tile);
            }
          }
        }
      }
    }
    if (word[streams]) finish_streams();
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_planar,
                .about = "sliding window over a band split by the stride, pixels across: NCHW or few outputs",
                .drives = kind::gemm_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_ISA, .pads = true, .refuses_alike = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .least_cycles = least_by_pixels,
                .error_bound = chain_bound, .pack = pack, .run = run)
