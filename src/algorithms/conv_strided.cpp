// SPDX-License-Identifier: MIT
//
// Direct convolution, forward and transposed, without any workspace: a sliding window that reads every channel where it
// lies, in any layout, by a tap of its own.  That costs a few cycles a tap, so it is for who has no memory to give.
//
//   item = image, group, phase, depth, row                    one task of the parallel_for
//     for panel of nr output channels
//       for span of pixels with the same taps on the image    padding is left out
//         for strip of mr pixels
//           for chunk of (tap, channel)                       listed on the stack
//             row.gemm                                        k = 1; sums on the stack
//           the sums to dst
#include "driver.h"
#include "pixels.h"
#include "weights.h"

namespace quern {
namespace {

constexpr int64_t most_taps = 96, most_tile = 512;

refusal refuse(const full_problem& p, const kernel& row) {
  if (row.mr * row.nr > most_tile) return {QUERN_REASON_SHAPE, "kernel.mr * kernel.nr", row.mr * row.nr, most_tile};
  return geometry_of(p).refuse_phases();
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& on, uint32_t threads) {
  const geometry& g = geometry_of(p);
  const weight_panels panels = {g, row.nr, row.vector};
  blocking b = {};
  b.packed_bytes = uint64_t(panels.size()) * sizeof(float);
  const phase ph = phase_of(g, 0);
  const cut tiles(ph.w.out_count, row.mr);
  const double m = double(tiles.count) / double(std::max<int64_t>(1, tiles.tiles));
  const double k = double(g.taps()) / double(g.phases()) * double(g.c);
  const double calls = double(ph.d.out_count) * double(ph.h.out_count) * double(tiles.tiles);
  // The list, and pixels of one channel after the other: a line of the cache serves few of them.
  const auto tile = [&](double n) { return tile_cycles(row, on, m, n, k) + (6 + m / 2) * k + 0.7 * m * n + 60; };
  const int64_t tail = g.k % row.nr;
  const double cycles = calls * (double(g.k / row.nr) * tile(row.nr) + (tail ? tile(double(tail)) : 0));
  b.cycles = cycles * double(g.phases()) * double(g.n) * double(g.groups);
  b.workers = useful_workers(on, b.cycles, threads);
  return b;
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  pack_panels({g, j.row.nr, j.row.vector}, first, count, static_cast<const float*>(weights),
              reinterpret_cast<float*>(payload));
}

// What the loops of one item share.
struct line {
  const job& j;
  const geometry& g;
  const phase& ph;
  const epilogue_f32& epilogue;
  int64_t group;
  range td, th;
  const float* src;       // of this image, channel 0, the first tap's row
  float* dst;             // of this image and row, the phase's first pixel, channel 0
  const float* residual;  // as dst
};

// Taps [begin, end) of (t, r, s, c), as places in the image and in the panel.
int64_t list_taps(const line& l, range tw, range part, size_t ldb, gemm_tap* to) {
  const geometry& g = l.g;
  const phase& ph = l.ph;
  for (int64_t i = part.begin; i < part.end; ++i) {
    int64_t t = i;
    const int64_t c = digit(t, g.c), u = digit(t, tw.count()), v = digit(t, l.th.count());
    const int64_t at = ((l.td.begin + t) * ph.h.taps + l.th.begin + v) * ph.w.taps + tw.begin + u;
    to[i - part.begin] = {t * ph.d.tap_step * g.src[2] + v * ph.h.tap_step * g.src[3] + u * ph.w.tap_step * g.src[4] +
                              g.src_channel(l.group * g.c + c),
                          (at * g.c + c) * int64_t(ldb)};
  }
  return part.count();
}

void sweep(const line& l, gemm_f32 tile, range x, int64_t channel) {
  const geometry& g = l.g;
  const phase& ph = l.ph;
  const kernel& row = l.j.row;
  const range tw = ph.w.taps_at(x.begin), channels = {channel, channel + int64_t(tile.n)};
  const int64_t total = l.td.count() * l.th.count() * tw.count() * g.c;
  alignas(QUERN_ALIGN) float sums[most_tile], addends[most_tile];
  gemm_tap taps[most_taps];
  tile.tap = taps, tile.k = 1;
  tile.lda = size_t(ph.w.in_step * g.src[4]);
  tile.out.c = sums, tile.out.ldc = size_t(row.nr);
  tile.out.channel = size_t(channel);
  const cut tiles(x.count(), row.mr);
  range listed = {0, 0};
  for (int64_t i = 0; i < tiles.tiles; ++i) {
    const int64_t pixel = x.begin + tiles.begin(i), m = tiles.rows(i);
    tile.m = size_t(m);
    tile.a = total ? l.src + (ph.w.in_begin + pixel * ph.w.in_step + tw.begin * ph.w.tap_step) * g.src[4] : l.src;
    int64_t done = 0;
    do {
      const range part = {done, std::min(total, done + most_taps)};
      if (!(part == listed)) list_taps(l, tw, part, tile.ldb, taps), listed = part;
      tile.taps = size_t(part.count());
      tile.accumulate = done > 0;
      tile.out.epilogue = part.end == total ? &l.epilogue : nullptr;
      if (tile.out.epilogue && l.residual) {
        gather(row,
               {l.residual + pixel * ph.w.out_step * g.residual[4], m, ph.w.out_step * g.residual[4], g.residual[1],
                g.residual_block},
               channels, addends, row.nr, 1);
        tile.out.residual = addends, tile.out.ldr = size_t(row.nr);
      }
      row.gemm(tile);
      done = part.end;
    } while (done < total);
    scatter(row, sums, row.nr, 1, channels,
            {l.dst + pixel * ph.w.out_step * g.dst[4], m, ph.w.out_step * g.dst[4], g.dst[1], g.dst_block});
  }
}

void run(const job& j, const execution& e) {
  const geometry& g = geometry_of(j.problem);
  const weight_panels panels = {g, j.row.nr, j.row.vector};
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const phase largest = phase_of(g, 0);
  const int64_t depth = largest.d.out_count, height = largest.h.out_count;
  for_each_item(j, e, g.n * g.groups * g.phases() * depth * height, [&](int64_t item, char*) {
    const int64_t y = digit(item, height), d = digit(item, depth), f = digit(item, g.phases());
    const int64_t group = digit(item, g.groups), n = item;
    const phase ph = phase_of(g, f);
    if (d >= ph.d.out_count || y >= ph.h.out_count) return;
    const auto out = [&](const int64_t* stride) {
      return n * stride[0] + (ph.d.out_begin + d * ph.d.out_step) * stride[2] +
             (ph.h.out_begin + y * ph.h.out_step) * stride[3] + ph.w.out_begin * stride[4];
    };
    line l = {.j = j,
              .g = g,
              .ph = ph,
              .epilogue = epilogue,
              .group = group,
              .td = ph.d.taps_at(d),
              .th = ph.h.taps_at(y),
              .src = static_cast<const float*>(e.args.src) + n * g.src[0],
              .dst = static_cast<float*>(e.args.dst) + out(g.dst),
              .residual = epilogue.residual ? static_cast<const float*>(e.args.residual) + out(g.residual) : nullptr};
    if (l.td.count() * l.th.count() * g.c > 0)
      l.src += (ph.d.in_begin + d * ph.d.in_step + l.td.begin * ph.d.tap_step) * g.src[2] +
               (ph.h.in_begin + y * ph.h.in_step + l.th.begin * ph.h.tap_step) * g.src[3];
    const float* const weights = reinterpret_cast<const float*>(e.packed) + panels.phase(group, taps_before(g, f));
    for (int64_t panel = 0; panel < panels.count; ++panel) {
      gemm_f32 tile = {};
      tile.n = size_t(std::min<int64_t>(j.row.nr, g.k - panel * j.row.nr));
      tile.b = weights + panels.panel(panel, ph.taps());
      tile.ldb = size_t(panels.width(panel));
      for (range x = {0, 0}; x.begin < ph.w.out_count; x.begin = x.end) {
        x = ph.w.span(x.begin, ph.w.out_count);
        sweep(l, tile, x, group * g.k + panel * j.row.nr);
      }
    }
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_strided, .about = "sliding window over any layout, channel by channel, without workspace",
                .drives = kind::gemm_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_ISA, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict_one_pass, .least_cycles = least_by_channels, .error_bound = chain_bound,
                .pack = pack, .run = run)
