// SPDX-License-Identifier: MIT
//
// Direct convolution, forward and transposed: a sliding window without im2col, for NHWC.
//
// The output is cut into rectangles whose pixels have the same taps on the image (one inside, a few along
// the border).  In a rectangle a strip of mr pixels, along x or along y, stays in registers over all taps
// and channels, reading the image where it lies; taps on padding are left out and cost nothing.
//
//   item = image, group, phase, band of rows, block of panels      one task of the parallel_for
//     for panel of nr output channels in the block
//       for rectangle in the band
//         for chunk of taps                                        its weights stay in L2
//           for strip of mr pixels
//             row.gemm
#include "driver.h"
#include "weights.h"

namespace quern {
namespace {

enum word { bands, block_panels, blocks, chunk_k };

constexpr int64_t stack_taps = 64;  // lists of taps that are longer lie in the workspace

refusal refuse(const quern_problem& p, const kernel&) {
  if (p.src.type != QUERN_F32) return {QUERN_REASON_TYPE, "src.type", p.src.type, QUERN_F32};
  if (const refusal why = refuse_blocked(p)) return why;
  const geometry g = geometry_of(p);
  if (p.src.size[1] > 1 && g.src[1] != 1) return {QUERN_REASON_LAYOUT, "src.stride[1]", g.src[1], 1};
  if (p.dst.size[1] > 1 && g.dst[1] != 1) return {QUERN_REASON_LAYOUT, "dst.stride[1]", g.dst[1], 1};
  if (p.epilogue.residual && p.dst.size[1] > 1 && g.residual[1] != 1)
    return {QUERN_REASON_LAYOUT, "residual.stride[1]", g.residual[1], 1};
  return g.refuse_phases();
}

// Taps that neighbour each other in x read neighbouring pixels: one run of s * c floats.
bool rows_merge(const geometry& g, const phase& ph) { return g.groups == 1 && ph.w.tap_step == 1 && g.src[4] == g.c; }

// Pixels of one output: all at the same distances, so that one kernel call can take any run of them.
struct strip {
  int64_t count, lines;        // pixels in a line, lines
  int64_t src, dst, residual;  // elements from pixel to pixel
  int64_t src_line, dst_line, residual_line;
};

// A rectangle as lines along x or along y, whichever gives fewer tiles; whole images as one line.
strip strip_of(const geometry& g, const phase& ph, range y, range x, int64_t mr, bool residual) {
  const strip along_x = {x.count(),
                         y.count(),
                         ph.w.in_step * g.src[4],
                         ph.w.out_step * g.dst[4],
                         ph.w.out_step * g.residual[4],
                         ph.h.in_step * g.src[3],
                         ph.h.out_step * g.dst[3],
                         ph.h.out_step * g.residual[3]};
  const strip along_y = {along_x.lines,         along_x.count, along_x.src_line, along_x.dst_line,
                         along_x.residual_line, along_x.src,   along_x.dst,      along_x.residual};
  if (along_x.src_line == along_x.src * along_x.count && along_x.dst_line == along_x.dst * along_x.count &&
      (!residual || along_x.residual_line == along_x.residual * along_x.count)) {
    strip one = along_x;
    one.count *= one.lines, one.lines = 1;
    return one;
  }
  return along_y.lines * up(along_y.count, mr) < along_x.lines * up(along_x.count, mr) ? along_y : along_x;
}

// Calls visit(d index, y range, x range) for every rectangle of the band.
template <class Visit>
void rectangles(const phase& ph, range band, Visit visit) {
  for (int64_t d = 0; d < ph.d.out_count; ++d)
    for (range y = {band.begin, band.begin}; y.begin < band.end; y.begin = y.end) {
      y = ph.h.span(y.begin, band.end);
      for (range x = {0, 0}; x.begin < ph.w.out_count; x.begin = x.end) {
        x = ph.w.span(x.begin, ph.w.out_count);
        visit(d, y, x);
      }
    }
}

int64_t most_rows(const geometry& g) { return phase_of(g, 0).h.out_count; }

// Ranges of outputs with the same taps, for the cost.  An axis of more than that counts as if all of it
// were like its middle: a choice must not take longer for a larger filter.
struct axis_cost {
  static constexpr int most = 8;
  struct {
    range outputs;
    int64_t taps;
  } part[most];
  int parts = 0;

  explicit axis_cost(const axis& a) {
    for (range r = {0, 0}; r.begin < a.out_count; r.begin = r.end) {
      r = a.span(r.begin, a.out_count);
      if (parts == most) {
        part[0] = {{0, a.out_count}, a.taps_at(a.out_count / 2).count()}, parts = 1;
        return;
      }
      part[parts++] = {r, a.taps_at(r.begin).count()};
    }
  }
};

double compute_cycles(const geometry& g, const kernel& row) {
  double cycles = 0;
  const int64_t panels = g.k / row.nr, tail = g.k % row.nr;
  for (int64_t f = 0; f < std::min<int64_t>(g.phases(), 64); ++f) {
    const phase ph = phase_of(g, f);
    const axis_cost ys(ph.h), xs(ph.w);
    for (int y = 0; y < ys.parts; ++y)
      for (int x = 0; x < xs.parts; ++x) {
        const strip s = strip_of(g, ph, ys.part[y].outputs, xs.part[x].outputs, row.mr, false);
        const double k = double(ph.d.taps) * double(ys.part[y].taps) * double(xs.part[x].taps) * double(g.c);
        const cut tiles(s.count, row.mr);
        const double calls = double(s.lines) * double(tiles.tiles) * double(ph.d.out_count);
        const double m = double(tiles.count) / double(tiles.tiles);
        cycles += calls * double(panels) * tile_cycles(row, m, row.nr, k);
        if (tail) cycles += calls * tile_cycles(row, m, double(tail), k);
      }
    if (f == 63) cycles *= double(g.phases()) / 64;
  }
  return cycles * double(g.n) * double(g.groups);
}

blocking choose_blocks(const quern_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry g = geometry_of(p);
  const weight_panels panels = {g, row.nr, row.vector};
  blocking b = {};
  b.packed_bytes = uint64_t(panels.size()) * sizeof(float);
  b.cycles = compute_cycles(g, row);
  b.workers = useful_workers(b.cycles / clock_ghz, threads);

  const int64_t l2 = int64_t(m.l2);
  const int64_t k = std::max<int64_t>(1, g.filter_size() * g.c);
  // A third of L2 for a chunk of weights, another for the band of the image that meets it.
  // Sums that wait in dst for the next chunk would overwrite a residual that is read in place.
  b.word[chunk_k] = p.epilogue.residual ? INT64_MAX : std::max<int64_t>(l2 / 3 / 4 / row.nr, 256);
  if (g.filter_size() > stack_taps)
    b.workspace_bytes = uint64_t(up(g.filter_size() * int64_t(sizeof(gemm_tap)), QUERN_ALIGN) * QUERN_ALIGN);
  const int64_t rows = std::max<int64_t>(1, most_rows(g));
  const int64_t image_row = std::max<int64_t>(1, 4 * g.c * g.in[2] * std::min(g.stride[1], g.in[1]));
  const bool streams_weights = k * g.k * 4 > l2 / 2;  // then they pass once, over as much image as there is
  const int64_t fixed = std::max<int64_t>(1, g.n * g.groups * g.phases());
  int64_t parts = streams_weights ? 1 : up(rows, std::clamp<int64_t>(l2 / 3 / image_row, 1, rows));
  int64_t channel_blocks = 1;
  // Several items for each worker, so that fast ones help; but bands of a few rows are mostly border.
  const int64_t wanted = b.workers > 1 ? b.workers * (streams_weights || fixed * rows >= 16 * b.workers ? 4 : 1) : 1;
  if (fixed * parts < wanted) {
    // Too few items: weights that stream are split over threads, else rows are, then both.
    if (streams_weights) channel_blocks = std::min(panels.count(), up(wanted, fixed));
    parts = std::min(rows, std::max(parts, up(wanted, fixed * channel_blocks)));
    if (fixed * channel_blocks * parts < wanted)
      channel_blocks = std::min(std::max<int64_t>(panels.count(), 1), up(wanted, fixed * parts));
  }
  b.word[bands] = channel_blocks > 1 ? parts : std::min(rows, up(parts, b.workers) * b.workers);
  b.word[block_panels] = std::max<int64_t>(1, up(panels.count(), std::max<int64_t>(1, channel_blocks)));
  b.word[blocks] = up(panels.count(), b.word[block_panels]);
  return b;
}

cost predict(const quern_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry g = geometry_of(p);
  // Every panel reads the image again; beyond L2 that is 8 bytes a cycle.
  const double image = 4.0 * double(g.in[0] * g.in[1] * g.in[2] * g.c * g.n * g.groups);
  const double reads = double(up(std::max<int64_t>(g.k, 1), row.nr));
  const double weights = double(b.packed_bytes);
  const double traffic = (weights > double(m.l2) ? weights * b.word[bands] * double(g.n) / 8 : 0) +
                         (image / b.word[bands] > double(m.l2) / 2 ? image * reads / 8 : image / 8);
  return overlapped(row, b, traffic);
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry g = geometry_of(j.problem);
  pack_panels({g, j.row.nr, j.row.vector}, first, count, static_cast<const float*>(weights),
              reinterpret_cast<float*>(payload));
}

// One rectangle of one panel: its taps, chunk by chunk, over all its strips.
void rectangle(const job& j, const geometry& g, const phase& ph, int64_t d, range y, range x, gemm_f32 tile,
               const epilogue_f32& epilogue, char* workspace) {
  const range td = ph.d.taps_at(d), th = ph.h.taps_at(y.begin), tw = ph.w.taps_at(x.begin);
  const bool merged = rows_merge(g, ph);
  const int64_t run = merged ? tw.count() : 1;  // taps of x in one kernel tap
  const int64_t across = merged ? (tw.count() > 0) : tw.count();
  const int64_t total = td.count() * th.count() * across;
  const int64_t width = int64_t(tile.ldb);
  tile.k = run * g.c;
  const int64_t chunk = std::max<int64_t>(1, j.blocks.word[chunk_k] / std::max<int64_t>(1, run * g.c));
  const strip s = strip_of(g, ph, y, x, j.row.mr, tile.out.residual != nullptr);
  tile.lda = s.src, tile.out.ldc = s.dst, tile.out.ldr = s.residual;

  // Where the first tap of the first pixel is; taps count from there.
  if (total)
    tile.a += (ph.d.in_begin + d * ph.d.in_step + td.begin * ph.d.tap_step) * g.src[2] +
              (ph.h.in_begin + y.begin * ph.h.in_step + th.begin * ph.h.tap_step) * g.src[3] +
              (ph.w.in_begin + x.begin * ph.w.in_step + tw.begin * ph.w.tap_step) * g.src[4];
  const auto place = [&](const int64_t* stride) {
    return (ph.d.out_begin + d * ph.d.out_step) * stride[2] + (ph.h.out_begin + y.begin * ph.h.out_step) * stride[3] +
           (ph.w.out_begin + x.begin * ph.w.out_step) * stride[4];
  };
  tile.out.c += place(g.dst);
  if (tile.out.residual) tile.out.residual += place(g.residual);

  gemm_tap on_stack[stack_taps];
  gemm_tap* taps = g.filter_size() > stack_taps ? reinterpret_cast<gemm_tap*>(workspace) : on_stack;
  tile.tap = taps;
  const cut tiles(s.count, j.row.mr);
  int64_t done = 0;
  do {
    const int64_t count = std::min(chunk, total - done);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t index = done + i, u = index % across, v = index / across % th.count(),
                    t = index / (across * th.count());
      taps[i].a = t * ph.d.tap_step * g.src[2] + v * ph.h.tap_step * g.src[3] + u * ph.w.tap_step * g.src[4];
      taps[i].b = (((td.begin + t) * ph.h.taps + th.begin + v) * ph.w.taps + tw.begin + u) * g.c * width;
    }
    tile.taps = count;
    tile.accumulate = done > 0;
    done += count;
    tile.out.epilogue = done == total ? &epilogue : nullptr;
    for (int64_t line = 0; line < s.lines; ++line)
      for (int64_t i = 0; i < tiles.tiles; ++i) {
        gemm_f32 call = tile;
        const int64_t first = tiles.begin(i);
        call.m = tiles.rows(i);
        if (total) call.a += line * s.src_line + first * s.src;
        call.out.c += line * s.dst_line + first * s.dst;
        if (call.out.residual) call.out.residual += line * s.residual_line + first * s.residual;
        j.row.gemm(call);
      }
  } while (done < total);
}

void run(const job& j, const execution& e) {
  const geometry g = geometry_of(j.problem);
  const weight_panels panels = {g, j.row.nr, j.row.vector};
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t* word = j.blocks.word;
  const int64_t items = g.n * g.groups * g.phases() * word[bands] * word[blocks];
  for_each_item(j, e, items, [&](int64_t item, char* workspace) {
    const int64_t block = item % word[blocks], b = item / word[blocks] % word[bands];
    const int64_t rest = item / word[blocks] / word[bands];
    const int64_t f = rest % g.phases(), group = rest / g.phases() % g.groups, n = rest / g.phases() / g.groups;
    const phase ph = phase_of(g, f);
    const int64_t before = taps_before(g, f);
    const range band = part(ph.h.out_count, b, word[bands]);
    const int64_t last = std::min<int64_t>(panels.count(), (block + 1) * word[block_panels]);
    for (int64_t panel = block * word[block_panels]; panel < last; ++panel) {
      const int64_t channel = group * g.k + panel * j.row.nr;
      gemm_f32 tile = {};
      tile.n = std::min<int64_t>(j.row.nr, g.k - panel * j.row.nr);
      tile.a = static_cast<const float*>(e.args.src) + n * g.src[0] + group * g.c * g.src[1];
      tile.b = reinterpret_cast<const float*>(e.packed) + panels.phase(group, before) + panels.panel(panel, ph.taps());
      tile.ldb = panels.width(panel);
      tile.out.c = static_cast<float*>(e.args.dst) + n * g.dst[0] + channel * g.dst[1];
      tile.out.channel = channel;
      if (epilogue.residual)
        tile.out.residual = static_cast<const float*>(e.args.residual) + n * g.residual[0] + channel * g.residual[1];
      rectangles(ph, band,
                 [&](int64_t d, range y, range x) { rectangle(j, g, ph, d, y, x, tile, epilogue, workspace); });
    }
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_direct, .about = "sliding window without im2col, NHWC", .drives = kind::gemm_f32,
                .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32, .repeat = QUERN_REPEAT_ISA,
                .refuse = refuse, .choose_blocks = choose_blocks, .predict = predict, .error_bound = chain_bound,
                .pack = pack, .run = run)
