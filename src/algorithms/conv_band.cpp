// SPDX-License-Identifier: MIT
//
// Direct convolution, forward and transposed, over a band of the image that is copied first: channels last,
// padded along x.  Reads and writes any layout; the sliding window then runs as over NHWC, in whole lines.
//
//   item = image, group, phase, depth, band of rows, block of panels      one task of the parallel_for
//     copy the band                                                        stays in L2
//     for panel of nr output channels in the block
//       for chunk of taps                                                  its weights stay in L2
//         for row of the band
//           for strip of mr pixels
//             row.gemm                                                     to dst, or to sums in the workspace
//       the sums to dst
#include "band.h"
#include "driver.h"
#include "strips.h"
#include "weights.h"

namespace quern {
namespace {

enum word { bands, block_panels, blocks, chunk, lines, sown, strip_floats, streams };

constexpr int64_t most_taps = 64;  // of a chunk

// Elements from pixel to pixel of the band: a multiple of 1 KiB would put a strip into few sets of L1.
int64_t pixel_pitch(const geometry& g) { return g.c % 256 == 0 ? g.c + 16 : g.c; }

// Taps that neighbour each other in x read neighbouring pixels: one run of s * c floats.
bool rows_merge(const geometry& g, const band_axis& w) { return w.tap == 1 && pixel_pitch(g) == g.c; }

// Of any phase: the largest run, in floats, and the most slots, which are the taps but where rows merge.
struct tap_slots {
  int64_t run = 1, slots = 1;

  explicit tap_slots(const geometry& g) {
    int64_t across = 0;
    for (int64_t f = 0; f < g.phases(2); ++f) {
      const axis w = g.axis_of(2, f);
      const bool merged = rows_merge(g, band_axis(w));
      run = std::max(run, (merged ? w.taps : 1) * g.c), across = std::max(across, merged ? 1 : w.taps);
    }
    for (int i = 0; i < 2; ++i) {
      int64_t most = 0;
      for (int64_t f = 0; f < g.phases(i); ++f) most = std::max(most, g.axis_of(i, f).taps);
      slots *= most;
    }
    slots *= across;
  }
};

double band_floats(const geometry& g, const band_extent& x, int64_t outputs) {
  return x.depth * x.places(outputs) * x.columns * double(pixel_pitch(g));
}

refusal refuse(const full_problem& p, const kernel&) {
  const geometry g = band_geometry(p);
  if (const refusal why = g.refuse_phases()) return why;
  return refuse_band(g, pixel_pitch(g), [&](const band_extent& x) { return band_floats(g, x, 1); });
}

double compute_cycles(const geometry& g, const kernel& row, const machine& on, bool sow, int64_t band_count,
                      int64_t block_count) {
  double cycles = 0;
  const int64_t panels = g.k / row.nr, tail = g.k % row.nr;
  const int64_t phases = std::min<int64_t>(g.phases(), 64);
  for (int64_t f = 0; f < phases; ++f) {
    const phase ph = phase_of(g, f);
    const band_axis h(ph.h), w(ph.w);
    const cut tiles(ph.w.out_count, row.mr);
    const double m = double(tiles.count) / double(std::max<int64_t>(1, tiles.tiles));
    // Rows above and below the image are left out.
    const double rows_read = share_inside(ph.h) * double(ph.h.taps) * double(ph.h.out_count);
    const double k =
        double(ph.d.taps) * double(ph.w.taps) * double(g.c) * rows_read / double(std::max<int64_t>(1, ph.h.out_count));
    const double calls = double(ph.d.out_count) * double(ph.h.out_count) * double(tiles.tiles);
    cycles += calls * double(panels) * (tile_cycles(row, on, m, row.nr, k) + refill_cycles(row, on, m, k * row.nr));
    if (tail)
      cycles += calls * (tile_cycles(row, on, m, double(tail), k) + refill_cycles(row, on, m, k * double(tail)));
    cycles += calls * double(up(g.k, row.nr)) * row_cycles(m, k / double(std::max<int64_t>(ph.w.taps, 1)));
    cycles += calls * double(up(g.k, row.nr)) * 4 * double(ph.d.taps * ph.h.taps * (rows_merge(g, w) ? 1 : ph.w.taps));
    // Copying: a vector of four in two cycles, and what every row takes around it.
    const double copied = double(ph.d.out_count) * double(ph.d.taps) * double(band_count * block_count) *
                          double(h.places(up(ph.h.out_count, std::max<int64_t>(1, band_count))));
    cycles += copied * (60 + 0.5 * double(w.places(ph.w.out_count)) * double(g.c));
    cycles += double(ph.d.out_count) * double(band_count * block_count) * 300;
    // Vectors of eight are turned beside their multiply-adds (first layers, Zen 3).
    if (sow)
      cycles += row.vector == 8 ? 0.2 * double(ph.outputs()) * double(g.k)
                                : 0.7 * double(ph.outputs()) * double(g.k) + 30 * calls * double(up(g.k, row.nr));
  }
  return cycles * double(g.phases()) / double(phases) * double(g.n) * double(g.groups);
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry g = band_geometry(p);
  const weight_panels panels = {g, row.nr, row.vector};
  blocking b = {};
  b.packed_bytes = uint64_t(panels.size()) * sizeof(float);

  const int64_t l2 = int64_t(m.l2) / 4;  // elements
  const phase ph = phase_of(g, 0);
  // Sums that wait in dst for the next chunk would overwrite a residual that is read in place.
  const tap_slots taps(g);
  b.word[chunk] = std::clamp<int64_t>(l2 / 3 / row.nr / taps.run, 1, most_taps);
  const bool chunks = taps.slots > b.word[chunk];
  b.word[sown] = !channels_dense(g.dst, g.dst_block) ||
                 (p.epilogue.residual && (!channels_dense(g.residual, g.residual_block) || chunks));

  // Half of L2 for the band; more where weights pass by once a band.
  const int64_t rows = std::max<int64_t>(1, ph.h.out_count);
  const band_extent x(g);
  const double one = std::max(1.0, band_floats(g, x, 1)), two = std::max(one, band_floats(g, x, 2));
  const double room = double(l2) * (double(b.packed_bytes) > double(m.l2) ? 0.75 : 0.5);
  int64_t most = rows;
  if (two > one) most = std::clamp<int64_t>(int64_t((room - one) / (two - one)) + 1, 1, rows);
  // Rows that two bands copy: where even one row's band is too large for L2, at most as many as it has itself.
  const band_axis h(ph.h);
  if (one > room) most = std::clamp<int64_t>((h.taps - 1) * h.tap / h.pixel, most, rows);
  int64_t parts = up(rows, most);
  b.cycles = compute_cycles(g, row, m, b.word[sown], parts, 1);
  b.workers = useful_workers(m, b.cycles, threads);

  const int64_t fixed = std::max<int64_t>(1, g.n * g.groups * g.phases() * std::max<int64_t>(1, ph.d.out_count));
  int64_t channel_blocks = 1;
  const int64_t wanted = b.workers > 1 ? 4 * int64_t(b.workers) : 1;
  if (fixed * parts < wanted) {
    // Bands of a few rows copy most of their rows twice: threads share the channels before that.
    parts = std::max(parts, std::min(up(rows, 4), up(wanted, fixed)));
    channel_blocks = std::clamp<int64_t>(up(wanted, fixed * parts), 1, std::max<int64_t>(1, panels.count));
  }
  b.word[bands] = parts;
  b.word[streams] = !b.word[sown] && streams_outputs(g, m);
  b.word[block_panels] = std::max<int64_t>(1, up(panels.count, channel_blocks));
  b.word[blocks] = up(panels.count, b.word[block_panels]);

  const int64_t band = up(rows, parts);
  b.word[strip_floats] = up(int64_t(band_floats(g, x, band)), 16) * 16;
  const int64_t width = std::max<int64_t>(1, ph.w.out_count);
  b.word[lines] = chunks ? band : std::min(band, up(128, width));
  const int64_t sums = b.word[sown] ? b.word[lines] * width * row.nr * (p.epilogue.residual ? 2 : 1) : 0;
  b.workspace_bytes = uint64_t(up((b.word[strip_floats] + sums) * 4, QUERN_ALIGN) * QUERN_ALIGN);
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry g = band_geometry(p);
  const operand_bytes o(g, b.packed_bytes);
  const double passes = o.weights > double(m.l2) ? double(b.word[bands]) * double(g.n) : 1;
  // The image is copied before anything is multiplied, which hides none of it.
  return overlapped(row, m, b, o.cycles(m, o.weights * passes + 2 * o.image, b.word[streams]));
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry g = band_geometry(j.problem);
  pack_panels({g, j.row.nr, j.row.vector}, first, count, static_cast<const float*>(weights),
              reinterpret_cast<float*>(payload));
}

// What the loops of one item share.
struct block {
  const job& j;
  const geometry& g;
  const phase& ph;
  const epilogue_f32& epilogue;
  band_axis h, w;
  range td, rows;         // taps along d, rows of the band
  range channels;         // of the group, among those of src
  const float* image;     // of this batch element, channel 0
  float* dst;             // of this batch element, first pixel of the phase and depth, channel 0
  const float* residual;  // as dst
  float* strip;
  float* sums;

  int64_t places() const { return h.places(rows.count()); }
  int64_t row_floats() const { return w.places(ph.w.out_count) * pixel_pitch(g); }
};

void copy_band(const block& b, int64_t d) {
  const geometry& g = b.g;
  const int64_t pitch = pixel_pitch(g), width = b.w.places(b.ph.w.out_count);
  const range inside = b.w.inside({0, width});
  for (int64_t t = b.td.begin; t < b.td.end; ++t) {
    const float* plane = b.image + (b.ph.d.in_begin + d * b.ph.d.in_step + t * b.ph.d.tap_step) * g.src[2];
    for (int64_t r = 0; r < b.places(); ++r) {
      const int64_t y = b.h.input(b.rows.begin * b.h.pixel + r);
      if (y < 0 || y >= b.h.in_size) continue;  // taps there are left out
      float* to = b.strip + ((t - b.td.begin) * b.places() + r) * b.row_floats();
      memset(to, 0, size_t(inside.begin * pitch) * sizeof(float));
      memset(to + inside.end * pitch, 0, size_t((width - inside.end) * pitch) * sizeof(float));
      if (inside.count())
        gather(b.j.row,
               {plane + y * g.src[3] + b.w.input(inside.begin) * g.src[4], inside.count(), b.w.step * g.src[4],
                g.src[1], g.src_block},
               b.channels, to + inside.begin * pitch, pitch, 1);
    }
  }
}

// The pixels of row y in dst, or in the residual.
template <class Float>
pixel_run<Float> line_of(const block& b, Float* base, const int64_t* stride, int64_t channel_block, int64_t y) {
  return {base + y * b.ph.h.out_step * stride[3], b.ph.w.out_count, b.ph.w.out_step * stride[4], stride[1],
          channel_block};
}

// Rows [y.begin, y.end) of one panel, whose weights are at tile.b.
void rows_of_panel(const block& b, gemm_f32 tile, range ys, int64_t channel) {
  const geometry& g = b.g;
  const phase& ph = b.ph;
  const int64_t* word = b.j.blocks.word;
  const int64_t width = ph.w.out_count, nr = b.j.row.nr;
  const bool merged = rows_merge(g, b.w);
  const int64_t across = merged ? (ph.w.taps > 0) : ph.w.taps, run = merged ? ph.w.taps : 1;
  const int64_t slots = ph.d.taps * ph.h.taps * across;
  float* addends = b.sums + word[lines] * width * nr;
  const range channels = {channel, channel + int64_t(tile.n)};
  tile.k = run * g.c;
  tile.lda = b.w.pixel * pixel_pitch(g);
  tile.out.channel = channel;
  if (word[sown]) {
    tile.out.ldc = tile.out.ldr = nr;
    if (b.residual)
      for (int64_t y = ys.begin; y < ys.end; ++y)
        gather(b.j.row, line_of(b, b.residual, g.residual, g.residual_block, y), channels,
               addends + (y - ys.begin) * width * nr, nr, 1);
  } else {
    tile.out.ldc = ph.w.out_step * g.dst[4], tile.out.ldr = ph.w.out_step * g.residual[4];
  }
  const cut tiles(width, b.j.row.mr);
  gemm_tap taps[most_taps];
  tile.tap = taps;
  int64_t done = 0;
  do {
    const int64_t end = std::min(slots, done + word[chunk]);
    tile.accumulate = done > 0;
    tile.out.epilogue = end == slots ? &b.epilogue : nullptr;
    set_stream(tile, word[streams]);
    for (int64_t y = ys.begin; y < ys.end; ++y) {
      const range th = ph.h.taps_at(y);
      tile.taps = 0;
      for (int64_t i = done; i < end; ++i) {
        const int64_t u = i % across, v = i / across % ph.h.taps, t = i / across / ph.h.taps;
        if (t < b.td.begin || t >= b.td.end || v < th.begin || v >= th.end) continue;
        const int64_t r = (t - b.td.begin) * b.places() + (y - b.rows.begin) * b.h.pixel + v * b.h.tap;
        taps[tile.taps++] = {r * b.row_floats() + u * b.w.tap * pixel_pitch(g),
                             ((t * ph.h.taps + v) * ph.w.taps + u) * g.c * int64_t(tile.ldb)};
      }
      // One call, changed from tile to tile: a copy of it would wait for what was just written.
      const bool sow = word[sown];
      float* dst = sow ? b.sums + (y - ys.begin) * width * nr : b.dst + y * ph.h.out_step * g.dst[3] + channel;
      const float* add = sow          ? addends + (y - ys.begin) * width * nr
                         : b.residual ? b.residual + y * ph.h.out_step * g.residual[3] + channel
                                      : nullptr;
      for (int64_t i = 0; i < tiles.tiles; i += tiles.alike(i)) {
        const int64_t x = tiles.begin(i);
        take_rows(tile, tiles, i);
        tile.a = b.strip + x * int64_t(tile.lda);
        tile.out.c = dst + x * int64_t(tile.out.ldc);
        if (b.residual) tile.out.residual = add + x * int64_t(tile.out.ldr);
        b.j.row.gemm(tile);
      }
    }
    done = end;
  } while (done < slots);
  if (word[sown])
    for (int64_t y = ys.begin; y < ys.end; ++y)
      scatter(b.j.row, b.sums + (y - ys.begin) * width * nr, nr, 1, channels, line_of(b, b.dst, g.dst, g.dst_block, y));
}

void run(const job& j, const execution& e) {
  const geometry g = band_geometry(j.problem);
  const weight_panels panels = {g, j.row.nr, j.row.vector};
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t* word = j.blocks.word;
  for_each_band(j, e, g, word[blocks], 1, word[bands], [&](const band_task& at, char* workspace) {
    const phase& ph = at.ph;
    float* strip = reinterpret_cast<float*>(workspace);
    const block b = {
        .j = j,
        .g = g,
        .ph = ph,
        .epilogue = epilogue,
        .h = band_axis(ph.h),
        .w = band_axis(ph.w),
        .td = ph.d.taps_at(at.d),
        .rows = at.rows,
        .channels = {at.group * g.c, (at.group + 1) * g.c},
        .image = static_cast<const float*>(e.args.src) + at.n * g.src[0],
        .dst = static_cast<float*>(e.args.dst) + at.begin(g.dst),
        .residual = epilogue.residual ? static_cast<const float*>(e.args.residual) + at.begin(g.residual) : nullptr,
        .strip = strip,
        .sums = strip + word[strip_floats]};
    if (g.c > 0) copy_band(b, at.d);
    const int64_t before = taps_before(g, at.f);
    const int64_t last = std::min<int64_t>(panels.count, (at.block + 1) * word[block_panels]);
    for (int64_t panel = at.block * word[block_panels]; panel < last; ++panel) {
      gemm_f32 tile = {};
      tile.n = std::min<int64_t>(j.row.nr, g.k - panel * j.row.nr);
      tile.b =
          reinterpret_cast<const float*>(e.packed) + panels.phase(at.group, before) + panels.panel(panel, ph.taps());
      tile.ldb = panels.width(panel);
      for (int64_t y = at.rows.begin; y < at.rows.end; y += word[lines])
        rows_of_panel(b, tile, {y, std::min(at.rows.end, y + word[lines])}, at.group * g.k + panel * j.row.nr);
    }
    if (word[streams]) finish_streams();
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_band, .about = "sliding window over a band copied channels last, any layout",
                .drives = kind::gemm_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_ISA, .pads = true, .refuses_alike = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .least_cycles = least_by_channels,
                .error_bound = chain_bound, .pack = pack, .run = run)
