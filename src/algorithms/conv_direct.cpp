// SPDX-License-Identifier: MIT
//
// Direct convolution, forward and transposed: a sliding window without im2col, for NHWC and blocked layouts.
//
// The output is cut into boxes whose pixels have the same taps on the image (strips.h).  In a box a strip of
// mr pixels stays in registers over all taps and channels, reading the image where it lies; taps on padding
// are left out and cost nothing.
//
//   item = images, group, phase, band of rows, block of panels        one task of the parallel_for
//     for panels of nr output channels: all of the block, or one       their weights stay in L2
//       for chunk of taps                                              where those of one panel do not fit either
//         for box in the band
//           for strip of mr pixels                                     read from L1 by all panels but the first
//             for panel                                                or the other way round, line by line
//               row.gemm
#include "driver.h"
#include "strips.h"
#include "weights.h"

namespace quern {
namespace {

enum word { bands, block_panels, panels_at_once, chunk_k, images, streams, fetches, panel_by_panel };

// What tiles fetch meanwhile.
enum fetched : int64_t { nothing = 0, next_strip = 1, weights_behind = 2, next_line = 4 };

constexpr int64_t stack_taps = 64;  // lists of taps that are longer lie in the workspace

// Whether the channels of each group lie side by side.
bool side_by_side(int64_t channels, int64_t groups, int64_t block) {
  return block == 1 || channels == 0 || (groups == 1 ? channels <= block : block % channels == 0);
}

// How many channels of src lie side by side: a kernel's tap.
int64_t run_of(const geometry& g) { return side_by_side(g.c, g.groups, g.src_block) ? g.c : g.src_block; }

// A tap for each of the filter's and each run of channels.
int64_t most_taps(const geometry& g) { return g.filter_size() * (g.c ? g.c / run_of(g) : 1); }

// Blocks of dst or the residual: a vector lies in one, and a panel begins where one does.
refusal refuse_columns(const geometry& g, const kernel& row, quern_layout layout, const char* field) {
  const int64_t block = block_of(layout);
  if (side_by_side(g.k, g.groups, block)) return {};
  if (block % row.vector || row.nr % block) return {QUERN_REASON_LAYOUT, field, layout, QUERN_NHWC};
  if (g.groups > 1 && g.k % block) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", g.k, up(g.k, block) * block};
  return {};
}

refusal refuse(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  if (const refusal why = refuse_channels_apart(p)) return why;
  if (!side_by_side(g.c, g.groups, g.src_block) && g.c % g.src_block)
    return {QUERN_REASON_SHAPE, "src.size[1] / groups", g.c, up(g.c, g.src_block) * g.src_block};
  if (const refusal why = refuse_columns(g, row, p.dst.layout, "dst.layout")) return why;
  if (p.epilogue.residual)
    if (const refusal why = refuse_columns(g, row, p.residual.layout, "residual.layout")) return why;
  return g.refuse_phases();
}

// Taps that neighbour each other in x read neighbouring pixels: one run of s * c floats.
bool rows_merge(const geometry& g, const phase& ph) {
  return g.groups == 1 && ph.w.tap_step == 1 && run_of(g) == g.c && g.src[4] == g.c;
}

double compute_cycles(const geometry& g, const kernel& row, const machine& on, int64_t images, bool near) {
  double cycles = 0;
  const int64_t panels = g.k / row.nr, tail = g.k % row.nr;
  // Of many phases the first along each axis stand for all.
  const int64_t fd = std::min<int64_t>(g.phases(0), 4), fh = std::min<int64_t>(g.phases(1), 4),
                fw = std::min<int64_t>(g.phases(2), 4);
  phase ph;
  for (int64_t i = 0; i < fd; ++i) {
    ph.d = g.axis_of(0, i);
    const axis_parts ds(ph.d);
    for (int64_t j = 0; j < fh; ++j) {
      ph.h = g.axis_of(1, j);
      const axis_parts ys(ph.h);
      for (int64_t l = 0; l < fw; ++l) {
        ph.w = g.axis_of(2, l);
        const axis_parts xs(ph.w);
        for (int d = 0; d < ds.count; ++d)
          for (int y = 0; y < ys.count; ++y)
            for (int x = 0; x < xs.count; ++x) {
              const auto &pd = ds.part[d], &py = ys.part[y], &px = xs.part[x];
              const strips s =
                  strips_of(g, ph, {images, {0, pd.outputs}, {0, py.outputs}, {0, px.outputs}}, row.mr, false);
              const double k = pd.taps * py.taps * px.taps * double(g.c);
              const int64_t tiles = up(s.line.count, row.mr);
              const double calls = pd.parts * py.parts * px.parts * double(s.lines()) * double(tiles);
              const double m = double(s.line.count) / double(tiles);
              // Taps that neighbour each other in x share most of what they read.
              const double rows = row_cycles(m, k / std::max(px.taps, 1.0));
              const double clash = row_clash(on, m, s.line.src) * calls;
              // Weights that L1 holds altogether stay there (96 outputs of 48 to 72 products, Zen 4).
              const bool stay = in_halves(on) && 4 * k * double(g.k) <= 0.85 * double(on.l1);
              const auto tiles_of = [&](double n) {
                return tile_cycles(row, on, m, n, k, near) + rows + (stay ? 0 : refill_cycles(row, on, m, k * n));
              };
              if (panels) cycles += clash * double(panels) * tiles_of(row.nr);
              if (tail) cycles += clash * tiles_of(double(tail));
            }
      }
    }
  }
  return cycles * double(g.phases()) / double(fd * fh * fw) * double(g.n) / double(images) * double(g.groups);
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry& g = geometry_of(p);
  const weight_panels panels = {g, row.nr, row.vector};
  const int64_t l2 = int64_t(m.l2);
  blocking b = {};
  b.packed_bytes = uint64_t(panels.size()) * sizeof(float);
  if (most_taps(g) > stack_taps)
    b.workspace_bytes = uint64_t(up(2 * most_taps(g) * int64_t(sizeof(gemm_tap)), QUERN_ALIGN) * QUERN_ALIGN);
  b.word[streams] = streams_outputs(g, m);

  const phase first = phase_of(g, 0);
  const int64_t k = std::max<int64_t>(1, first.taps() * g.c);
  // Weights that fit L1, or L2 where the image does not, are all used by one strip after another; else those of
  // one panel are, or of a chunk of its taps, a third of L2, by all strips of the band.
  const int64_t weights = 4 * k * panels.columns(), image = 4 * g.c * g.in[0] * g.in[1] * g.in[2];
  const bool fit = weights <= int64_t(m.l1) / 2 || (weights <= l2 / 2 && image > l2 / 2);
  b.word[panels_at_once] = fit ? std::max<int64_t>(panels.count, 1) : 1;
  // Pixels from beyond L2 are waited for, with whatever tile they are read.  What stays in L1 from strip to strip needs
  // no fetching, which takes units and lines that stores wait for (5 to 9 % of short sums, Granite Rapids).
  const bool near =
      weights <= l2 / 2 && std::min(weights, 4 * k * row.nr * b.word[panels_at_once]) <= int64_t(m.l1) / 2;
  // They leave room there for the next line's pixels: 3 % of a first layer that L2 does not keep (Granite Rapids).
  const int64_t image_row = std::max<int64_t>(1, 4 * g.c * g.in[2] * std::min(g.stride[1], g.in[1]));
  const bool by_line = near && image_row <= int64_t(m.l1) / 4 && operand_bytes(g, b.packed_bytes).all() > double(l2);
  b.word[fetches] = (weights <= l2 / 2 && image > l2 / 2 ? next_strip : nothing) | (by_line ? next_line : nothing) |
                    (near ? nothing : weights_behind);
  // Sums that wait in dst for the next chunk would overwrite a residual that is read in place.
  b.word[chunk_k] = fit || p.epilogue.residual ? INT64_MAX : std::max<int64_t>(l2 / 3 / 4 / row.nr, 256);
  const int64_t rows = std::max<int64_t>(1, first.h.out_count);
  const bool stream_weights = k * g.k * 4 > l2 / 2;  // then they pass once, over as much image as there is

  // Small images go together, where they share weights that are far or make longer strips.
  const int64_t pixels = std::max<int64_t>(1, first.outputs());
  const int64_t most_images = std::max<int64_t>(1, stream_weights ? l2 / 3 / image_row / rows : 196 / pixels);
  b.word[images] = std::clamp<int64_t>(g.n, 1, most_images);
  // A call has more strips of a line than panels of a strip, and L1 keeps the line for all panels: beside short tiles
  // of narrow vectors calls show (4 to 7 % of 1x1 from 16 and 64 channels, 5 of a stem: Zen 4 by AVX2).
  const double line = 4.0 * double(g.c) * double(g.in[2]) * double(first.h.taps) * double(first.d.taps);
  b.word[panel_by_panel] = row.vector < 16 && b.word[panels_at_once] > 1 && first.w.out_count / row.mr > panels.count &&
                           line <= double(m.l1) / 2;
  b.cycles = compute_cycles(g, row, m, b.word[images], near);
  b.workers = useful_workers(m, b.cycles, threads);

  const auto fixed_items = [&] { return std::max<int64_t>(1, up(g.n, b.word[images]) * g.groups * g.phases()); };
  int64_t fixed = fixed_items();
  int64_t parts = fit || stream_weights ? 1 : up(rows, std::clamp<int64_t>(l2 / 3 / image_row, 1, rows));
  int64_t channel_blocks = 1;
  // Several items for each worker, so that fast ones help; but bands of a few rows are mostly border.
  const int64_t wanted = b.workers > 1 ? b.workers * (stream_weights || fixed * rows >= 16 * b.workers ? 4 : 1) : 1;
  if (fixed * parts < wanted) {
    // Too few items: weights that stream are split over threads, else images, then rows, then both.
    if (stream_weights) {
      channel_blocks = std::min(panels.count, up(wanted, fixed));
    } else if (b.word[images] > 1) {
      b.word[images] = std::max<int64_t>(1, b.word[images] * fixed / wanted);
      fixed = fixed_items();
    }
    parts = std::min(rows, std::max(parts, up(wanted, fixed * channel_blocks)));
    if (fixed * channel_blocks * parts < wanted)
      channel_blocks = std::min(std::max<int64_t>(panels.count, 1), up(wanted, fixed * parts));
  }
  b.word[bands] = channel_blocks > 1 ? parts : std::min(rows, up(parts, b.workers) * b.workers);
  b.word[block_panels] = std::max<int64_t>(1, up(panels.count, std::max<int64_t>(1, channel_blocks)));
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry& g = geometry_of(p);
  const operand_bytes o(g, b.packed_bytes);
  // Panels one by one read the image of their group again each.
  const double reads = double(up(std::max<int64_t>(g.k, 1), row.nr * b.word[panels_at_once])), l2 = double(m.l2);
  const double passes = double(b.word[bands]) * double(up(g.n, b.word[images]));
  const double groups = std::max(1.0, double(g.groups));
  const double read = (o.weights > l2 ? o.weights * passes : o.weights) +
                      (o.image / passes / groups > l2 / 2 ? o.image * reads : o.image);
  return overlapped(row, m, b, o.cycles(m, read, b.word[streams]));
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  pack_panels({g, j.row.nr, j.row.vector}, first, count, static_cast<const float*>(weights),
              reinterpret_cast<float*>(payload));
}

// The taps of a box, as a kernel sees them, that belong to a chunk.  Offsets of B count from the beginning of a
// panel, where the last panel differs from the others.
struct tap_list {
  gemm_tap *whole, *last;
  int64_t count = 0, k = 0;                 // of the kernel
  int64_t before = 0, here = 0, total = 0;  // of the filter: in earlier chunks, in this one, in all

  tap_list(const geometry& g, const phase& ph, range td, range th, range tw, range chunk, const weight_panels& panels,
           gemm_tap* room)
      : whole(room), last(room + most_taps(g)) {
    const bool merged = rows_merge(g, ph);
    const int64_t unit = merged ? std::max<int64_t>(ph.w.taps, 1) : 1, run = std::max<int64_t>(run_of(g), 1);
    const int64_t width = panels.width(0), last_width = panels.width(panels.count - 1);
    if (merged && tw.count() > 0) k = tw.count() * g.c, tw.end = tw.begin + 1;
    if (!merged) k = run_of(g);
    for (int64_t t = td.begin; t < td.end; ++t)
      for (int64_t v = th.begin; v < th.end; ++v)
        for (int64_t u = tw.begin; u < tw.end; ++u, ++total) {
          const int64_t at = (t * ph.h.taps + v) * ph.w.taps + u;
          if (at / unit < chunk.begin) ++before;
          if (at / unit < chunk.begin || at / unit >= chunk.end) continue;
          ++here;
          const ptrdiff_t a = (t - td.begin) * ph.d.tap_step * g.src[2] + (v - th.begin) * ph.h.tap_step * g.src[3] +
                              (u - tw.begin) * ph.w.tap_step * g.src[4];
          for (int64_t c = 0; c < g.c; c += run, ++count) {
            whole[count] = {a + c / run * g.src[1], (at * g.c + c) * width};
            last[count] = {whole[count].a, (at * g.c + c) * last_width};
          }
        }
  }
};

// What the loops of one item share.
struct block {
  const job& j;
  const geometry& g;
  const phase& ph;
  const weight_panels& panels;
  const float *src, *weights;  // of the first image, this group and phase
  float* dst;                  // of the first image
  const float* residual;
  const epilogue_f32& epilogue;
  int64_t images, group;
  gemm_tap* taps;
};

// Every strip of a box, by some panels, over a chunk of the taps.
void sweep(const block& b, range d, range y, range x, range panels, range chunk, bool last_chunk) {
  const kernel& row = b.j.row;
  const geometry& g = b.g;
  const phase& ph = b.ph;
  const range td = ph.d.taps_at(d.begin), th = ph.h.taps_at(y.begin), tw = ph.w.taps_at(x.begin);
  const tap_list taps(g, ph, td, th, tw, chunk, b.panels, b.taps);
  if (taps.here == 0 && (taps.total > 0 || !last_chunk)) return;
  const strips s = strips_of(g, ph, {b.images, d, y, x}, row.mr, b.residual != nullptr);

  gemm_f32 tile = {};
  tile.k = taps.k, tile.taps = taps.count;
  tile.lda = s.line.src;
  tile.accumulate = taps.before > 0;
  tile.out.ldc = s.line.dst, tile.out.ldr = s.line.residual;
  tile.out.epilogue = taps.before + taps.here == taps.total ? &b.epilogue : nullptr;
  set_stream(tile, b.j.blocks.word[streams]);
  if (!side_by_side(g.k, g.groups, g.dst_block)) tile.out.block = g.dst_block, tile.out.next = g.dst[1];
  if (!side_by_side(g.k, g.groups, g.residual_block))
    tile.out.residual_block = g.residual_block, tile.out.residual_next = g.residual[1];

  // Where the first pixel is, and in the image its first tap; taps count from there.
  const auto place = [&](const int64_t* stride) {
    return (ph.d.out_begin + d.begin * ph.d.out_step) * stride[2] +
           (ph.h.out_begin + y.begin * ph.h.out_step) * stride[3] +
           (ph.w.out_begin + x.begin * ph.w.out_step) * stride[4];
  };
  const int64_t channel = b.group * g.k + panels.begin * row.nr;
  const float* src = b.src;
  if (taps.total)
    src += (ph.d.in_begin + d.begin * ph.d.in_step + td.begin * ph.d.tap_step) * g.src[2] +
           (ph.h.in_begin + y.begin * ph.h.in_step + th.begin * ph.h.tap_step) * g.src[3] +
           (ph.w.in_begin + x.begin * ph.w.in_step + tw.begin * ph.w.tap_step) * g.src[4];
  float* const dst = b.dst + place(g.dst) + g.dst_channel(channel);
  const float* residual = b.residual;
  if (residual) residual += place(g.residual) + g.residual_channel(channel);
  const float* const weights = b.weights + b.panels.panel(panels.begin, ph.taps());

  // From panel to panel; the last one of all may be narrower than the others.
  const int64_t weights_step = b.panels.panel(1, ph.taps()), dst_step = g.dst_channel(row.nr),
                residual_step = residual ? g.residual_channel(row.nr) : 0;
  const int64_t whole = std::min(panels.end, g.k / row.nr) - panels.begin;
  // What the next strip reads first of all strips follows what this one's last tap reads, and what the next line reads
  // follows this line: the first panel fetches it, a share in each step of k.
  const bool follows = taps.count > 0 && s.line.src <= taps.k;
  const bool by_strip = follows && b.j.blocks.word[fetches] & next_strip;
  const bool by_line = follows && b.j.blocks.word[fetches] & next_line;
  const cut tiles(s.line.count, row.mr);
  const int64_t share = s.others[2].src / std::max<int64_t>(tiles.tiles, 1);
  const float* behind = nullptr;  // the line
  const int64_t together = b.j.blocks.word[panel_by_panel] ? 1 : panels.count();
  tile.near = !(b.j.blocks.word[fetches] & weights_behind);
  // Panels that share a strip find it in L1, if they leave room there; between short runs there is no time to ask.
  tile.apart = (run_of(g) < g.c || s.line.src >= taps.k + 16) && (panels.count() == 1 || !tile.near) && taps.k >= 8;
  // A call takes all whole panels of a strip, or, of one panel, strips that are alike.
  const auto call = [&](range some, const float* a, int64_t strips, bool asks, float* c, const float* add, int64_t m) {
    if (behind) {
      tile.ahead = behind, tile.pace = size_t(up(share, taps.count * taps.k));
      behind += strips * share;
    } else if (asks) {
      tile.ahead = a + taps.whole[taps.count - 1].a + (m - 1) * s.line.src + taps.k;
      tile.pace = size_t(up(m * s.line.src, taps.count * taps.k));
    }
    const int64_t here = std::max<int64_t>(0, std::min(whole, some.end) - some.begin);
    const auto go_to = [&](int64_t panel) {
      tile.b = weights + panel * weights_step;
      tile.out.c = c + panel * dst_step, tile.out.channel = channel + panel * row.nr;
      tile.out.residual = add ? add + panel * residual_step : nullptr;
    };
    tile.m = m, tile.a = a;
    tile.more = strips - 1;
    tile.step = {.a = taps.total ? m * s.line.src : 0, .c = m * s.line.dst, .residual = m * s.line.residual};
    if (here > 1)
      tile.more = here - 1,
      tile.step = {.b = weights_step, .c = dst_step, .residual = residual_step, .channel = row.nr};
    if (here > 0) {
      go_to(some.begin);
      tile.tap = taps.whole, tile.n = row.nr, tile.ldb = row.nr;
      row.gemm(tile);
      tile.ahead = nullptr;
    }
    if (here == some.count()) return;
    go_to(whole);
    if (here > 0) tile.more = 0;
    tile.n = g.k % row.nr;
    tile.tap = taps.last, tile.ldb = b.panels.width(panels.end - 1);
    row.gemm(tile);
    tile.ahead = nullptr;
  };
  // All strips of a line; the first panels ask for what the next strip reads.
  const auto along = [&](range some, const float* a, float* c, const float* add) {
    const bool asks = by_strip && some.begin == 0;
    for (int64_t i = 0, count; i < tiles.tiles; i += count) {
      count = together == 1 ? tiles.alike(i) : 1;
      if (asks && i + count == tiles.tiles && count > 1) --count;  // nothing follows the last one
      const int64_t m = tiles.rows(i);
      const bool is_last = i + count == tiles.tiles;
      call(some, a, count, asks && !is_last, c, add, m);
      if (is_last) break;  // no pointer leaves its operand
      if (taps.total) a += count * m * s.line.src;
      c += count * m * s.line.dst;
      if (add) add += count * m * s.line.residual;
    }
  };
  for (int64_t u = 0; u < s.others[0].count; ++u)
    for (int64_t v = 0; v < s.others[1].count; ++v)
      for (int64_t w = 0; w < s.others[2].count; ++w) {
        const auto at = [&](int64_t side::*step) {
          return u * (s.others[0].*step) + v * (s.others[1].*step) + w * (s.others[2].*step);
        };
        const float* a = taps.total ? src + at(&side::src) : src;
        float* c = dst + at(&side::dst);
        const float* add = residual ? residual + at(&side::residual) : nullptr;
        if (by_line && w + 1 < s.others[2].count)
          behind = a + taps.whole[taps.count - 1].a + (s.line.count - 1) * s.line.src + taps.k;
        for (range some = {0, together}; some.begin < panels.count(); some = {some.end, some.end + together})
          along(some, a, c, add), behind = nullptr;
      }
}

void run(const job& j, const execution& e) {
  const geometry& g = geometry_of(j.problem);
  const weight_panels panels = {g, j.row.nr, j.row.vector};
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t* word = j.blocks.word;
  const int64_t blocks = up(panels.count, word[block_panels]);
  const int64_t items = up(g.n, word[images]) * g.groups * g.phases() * word[bands] * blocks;
  for_each_item(j, e, items, [&](int64_t item, char* workspace) {
    const int64_t block_index = digit(item, blocks), band_index = digit(item, word[bands]);
    const int64_t f = digit(item, g.phases()), group = digit(item, g.groups), n = item * word[images];
    const phase ph = phase_of(g, f);
    const range band = part(ph.h.out_count, band_index, word[bands]);
    gemm_tap on_stack[2 * stack_taps];
    const block b = {
        .j = j,
        .g = g,
        .ph = ph,
        .panels = panels,
        .src = static_cast<const float*>(e.args.src) + n * g.src[0] + g.src_channel(group * g.c),
        .weights = reinterpret_cast<const float*>(e.packed) + panels.phase(group, taps_before(g, f)),
        .dst = static_cast<float*>(e.args.dst) + n * g.dst[0],
        .residual = epilogue.residual ? static_cast<const float*>(e.args.residual) + n * g.residual[0] : nullptr,
        .epilogue = epilogue,
        .images = std::min<int64_t>(word[images], g.n - n),
        .group = group,
        .taps = most_taps(g) > stack_taps ? reinterpret_cast<gemm_tap*>(workspace) : on_stack};
    const int64_t unit = rows_merge(g, ph) ? std::max<int64_t>(ph.w.taps, 1) : 1, units = ph.taps() / unit;
    const int64_t chunk = std::max<int64_t>(1, word[chunk_k] / std::max<int64_t>(1, unit * g.c));
    const int64_t end = std::min<int64_t>(panels.count, (block_index + 1) * word[block_panels]);
    for (int64_t panel = block_index * word[block_panels]; panel < end; panel += word[panels_at_once]) {
      const range group_of_panels = {panel, std::min<int64_t>(end, panel + word[panels_at_once])};
      int64_t first = 0;
      do {
        const range taps = {first, units - first > chunk ? first + chunk : units};
        boxes(ph, band,
              [&](range d, range y, range x) { sweep(b, d, y, x, group_of_panels, taps, taps.end == units); });
        first = taps.end;
      } while (first < units);
    }
    if (word[streams]) finish_streams();
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_direct, .about = "sliding window without im2col, NHWC and blocks of channels",
                .drives = kind::gemm_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_ISA, .refuse = refuse, .choose_blocks = choose_blocks, .predict = predict,
                .least_cycles = least_by_channels, .error_bound = chain_bound, .pack = pack, .run = run)
