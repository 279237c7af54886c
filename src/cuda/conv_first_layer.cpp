// SPDX-License-Identifier: MIT
//
// Convolution of 1 to 4 input channels on a GPU, as networks begin: tensor cores read windows from the lines of the
// image itself (cuda/first_layer.h).
//
//   block: panels of output channels, whose weights it keeps in shared memory
//     tile of outputs, and the next one
//       lines of the image that are under it                  into shared memory, channels last
//       warp: 32 pixels x a panel                             sums in registers, then the epilogue
#include <math.h>

#include "cuda/first_drive.h"
#include "cuda/first_layer.h"
#include "problem.h"
#include "weights.h"

namespace quern {
namespace {

// Weights as a warp's lanes load them, panel by panel.
struct first_panels {
  const geometry& g;
  const kernel& row;
  bool halves = row.type != QUERN_F32;
  int64_t of_unit = halves ? 2 : 1, words = halves ? 1 : 2;  // of a unit's weight: high and low of f32
  int64_t line = g.filter[2] * g.c, line_units = up(line, of_unit);
  int64_t steps = up(g.filter[1] * line_units, first_units), count = up(g.k, row.nr);

  int64_t panel_words() const { return steps * first_units * row.nr * words; }
  int64_t bytes() const { return count * panel_words() * 4; }
  int64_t column_of(int64_t channel) const { return chunk_column(channel % row.nr, row.vector); }
  // The word of a unit in a panel; of f32 that of its high part, whose low part is two further on.
  int64_t word_of(int64_t column, int64_t unit) const {
    const int64_t tile = column / 8, lane = column % 8 * 4 + unit % 4;
    const int64_t four = halves ? tile / 2 : tile, fours = row.nr / (halves ? 16 : 8);
    return ((unit / first_units * fours + four) * 32 + lane) * 4 + (halves ? tile % 2 * 2 : 0) + unit % first_units / 4;
  }
};

// The kernel's parameters, but for what run() brings, for tiles of high x wide and so many panels a block.
first_conv tiling_of(const geometry& g, const kernel& row, int64_t high, int64_t wide, int64_t panels) {
  const first_panels w = {g, row};
  const axis y = g.axis_of(1, 0), x = g.axis_of(2, 0);
  first_conv a = {};
  a.h = {int32_t(y.in_begin), int32_t(y.in_step), int32_t(y.in_size)};
  a.w = {int32_t(x.in_begin), int32_t(x.in_step), int32_t(x.in_size)};
  a.channels = int32_t(g.c), a.taps_h = int32_t(y.taps), a.tap_step = int32_t(y.tap_step), a.line = int32_t(w.line);
  a.steps = int32_t(w.steps);
  a.high = int32_t(high), a.wide = int32_t(wide);
  a.lines = int32_t((high - 1) * y.in_step + (y.taps - 1) * y.tap_step + 1);
  a.elements = int32_t(((wide - 1) * x.in_step + x.taps) * g.c);
  a.copies = w.halves && x.in_step * g.c % 2 != 0 && wide > 1 ? 2 : 1;
  a.pitch = int32_t(w.halves ? a.elements / 2 + 2 : a.elements);
  // From channel to channel, or pixel to pixel, may be anything where there is one.
  const bool dense = (g.c == 1 || g.src[1] == 1) && (g.in[2] == 1 || g.src[4] == g.c);
  std::copy_n(g.src, 5, a.src_stride);
  a.runs = dense ? 1 : a.channels, a.run = a.elements / a.runs, a.run_step = dense ? 1 : g.src[4];
  a.run_pitch = !w.halves ? a.run : dense ? a.pitch + 1 : a.run / 2 + 2;
  a.tiles_h = int32_t(up(y.out_count, high)), a.tiles_w = int32_t(up(x.out_count, wide));
  a.tiles = int32_t(g.n) * a.tiles_h * a.tiles_w;
  a.all_panels = int32_t(w.count), a.panels = int32_t(panels), a.chunks = int32_t(up(w.count, panels));
  int64_t words = 0;
  const auto take = [&](int64_t count) {
    const int64_t at = words;
    words += up(count, 4) * 4;
    return int32_t(at);
  };
  take(panels * w.panel_words());
  a.channels_at = take(panels * row.nr * 2);
  a.units_at = take(w.steps * first_units * 2);
  a.pixels_at = take(int64_t{first_strips(a.high, a.wide)} * first_pixels * 2);
  a.runs_at = take(int64_t{a.runs} * a.lines * a.run_pitch);
  a.image_at = take(int64_t{a.copies} * a.lines * a.pitch);
  a.out_at = take(row.threads / 32 *
                  (w.halves ? first_f16_64::writer::warp_out::floats : first_f32_32::writer::warp_out::floats));
  a.words = int32_t(std::min(words, most_counted));
  return a;
}

bool fits(const first_conv& a, const kernel& row) { return int64_t{a.words} * 4 <= row.shared_bytes; }

refusal refuse(const full_problem& p, const kernel& row) {
  if (const refusal r = refuse_first(p, row, 256)) return r;
  const geometry& g = geometry_of(p);
  const first_conv least = tiling_of(g, row, 1, 1, 1);
  if (!fits(least, row))
    return {QUERN_REASON_SHAPE, "bytes of a panel's weights and a window", int64_t{least.words} * 4, row.shared_bytes};
  return {};
}

// Instructions of a warp for a tile: products and the epilogue of its pieces, lines of the image that it asks for and
// puts in order, and what comes between (counted on an H200).
double instructions_of(const geometry& g, const first_conv& a, const kernel& row) {
  const bool halves = row.type != QUERN_F32, wide = row.nr == 64;
  const int64_t warps = row.threads / 32, strips = first_strips(a.high, a.wide);
  const double step = halves ? (wide ? 54 : 36) : (wide ? 165 : 95), rest = (wide ? 520 : 330) * (halves ? 1 : 1.3);
  const double runs = double(up(int64_t{a.lines} * a.runs, warps));
  const double words = double(up(a.run, halves ? 64 : 32));
  const double line = 60 + words * (a.runs > 1 ? 40 : 18 + 7 * a.copies);
  // Where pixels do not lie in chunks, lanes write elements, and turn them round before that.
  const double out = g.dst[1] == 1 && g.k % row.vector == 0 ? 1 : 14;
  return double(up(strips * a.panels, warps)) * (a.steps * step + rest * out) + runs * line + 300;
}

// Blocks that run at the same time.
int64_t resident(const kernel& row, const machine& m) { return int64_t(m.gpu.multiprocessors) * fit_together(row, m); }

double ns_of(const geometry& g, const first_conv& a, const kernel& row, const machine& m) {
  const int64_t items = int64_t{a.tiles} * a.chunks, all = resident(row, m), blocks = std::min(items, all);
  // Of a warp from instruction to instruction: what it waits for, or its share of what a multiprocessor issues
  // (measured).
  const double warps = double(up(blocks, m.gpu.multiprocessors)) * row.threads / 32;
  const double clocks = double(up(items, all)) * instructions_of(g, a, row) * std::max(5.6, warps / 1.75);
  const double bytes = tensor_bytes(g, row.type, row.type) + double(blocks) * a.panels * a.steps * row.nr * 32;
  const double memory = bytes / (double(m.gpu.bandwidth) * 0.8e-9);
  return 2200 + std::max(1000 * clocks / m.gpu.clock_mhz, memory);
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  b.packed_bytes = uint64_t(first_panels{g, row}.bytes());
  b.workers = 1;
  double best = std::numeric_limits<double>::infinity();
  for (int64_t panels = first_panels{g, row}.count, last = 0; panels != last; last = panels, panels = up(panels, 2))
    for (const int64_t widest : {256, 128, 64, 32, 16, 8, 4, 1})
      for (const int64_t high : {1, 2, 4, 8, 16, 32}) {
        // Tiles of a line are of nearly the same width.
        const int64_t wide = up(g.out[2], up(g.out[2], widest));
        const first_conv a = tiling_of(g, row, std::min(high, g.out[1]), wide, panels);
        if (!fits(a, row)) break;
        const double ns = ns_of(g, a, row, m);
        if (ns >= best) continue;
        best = ns;
        b.word[0] = a.high, b.word[1] = a.wide, b.word[2] = a.panels;
        b.word[3] = std::max<int64_t>(1, resident(row, m) / a.chunks);
      }
  return b;
}

first_conv tiling_of(const geometry& g, const kernel& row, const blocking& b) {
  return tiling_of(g, row, b.word[0], b.word[1], b.word[2]);
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry& g = geometry_of(p);
  const first_conv a = tiling_of(g, row, b);
  const double pixels = double(a.tiles) * first_strips(a.high, a.wide) * first_pixels;
  const double products = pixels * double(a.all_panels * row.nr) * double(a.steps * first_units);
  return {ns_of(g, a, row, m), 2 * products * (row.type == QUERN_F32 ? 1 : 2)};
}

// As conv_tensor's, of steps of eight units: four of f32 are twelve additions to a sum from zero.
double error_bound(const full_problem& p) {
  const geometry& g = geometry_of(p);
  const bool halves = p.src.type != QUERN_F32;
  const double steps = double(g.filter[1]) * (double(g.filter[2]) * double(g.c) + 1) / (halves ? 16 : 8) + 1;
  const double n = (halves ? 2 * steps + 4 : 3 * 4 + 12 * 2 + steps / 4 + 2) * 0x1p-24;
  return n < 0.5 ? n / (1 - n) : std::numeric_limits<double>::infinity();
}

void put(uint32_t* to, int64_t, float x) {
  const tf32_pair two = split_tf32(x);
  to[0] = bits_of(two.high), to[2] = bits_of(to_tf32(two.low));
}
void put(uint32_t* to, int64_t e, uint16_t x) { memcpy(reinterpret_cast<char*>(to) + e % 2 * 2, &x, 2); }

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const first_panels panels = {g, j.row};
  const auto as = [&](auto element) {
    using T = decltype(element);
    pack_weights(g, first, count, static_cast<const T*>(weights), [&](const weight_run<T>& w) {
      uint32_t* const panel = reinterpret_cast<uint32_t*>(payload) + w.k / j.row.nr * panels.panel_words();
      // Zeros beside the weights, and for channels that do not exist.
      const int64_t end = w.k == g.k - 1 ? up(g.k, j.row.nr) * j.row.nr : w.k + 1;
      for (int64_t i = w.k; i < end && w.tap + w.begin == 0; ++i)
        for (int64_t unit = 0; unit < panels.steps * first_units; ++unit)
          for (int64_t word = 0; word < panels.words; ++word)
            panel[panels.word_of(panels.column_of(i), unit) + 2 * word] = 0;
      const int64_t line = w.tap / w.ph.w.taps * panels.line_units, column = panels.column_of(w.k);
      for (int64_t c = w.begin; c < w.end; ++c) {
        const int64_t e = w.tap % w.ph.w.taps * g.c + c;
        put(panel + panels.word_of(column, line + e / panels.of_unit), e, w[c]);
      }
    });
  };
  if (j.row.type == QUERN_F32) return as(float{});
  as(uint16_t{});
}

quern_status launch(const job& j, const launching& l) {
  const geometry& g = geometry_of(j.problem);
  first_conv a = tiling_of(g, j.row, j.blocks);
  a.src = l.args.src, a.weights = l.packed;
  a.out = output_of(j, g, phase_of(g, 0), l.args, j.row.vector);
  // Blocks of the same panels, all tiles among them.
  return launch_kernel(l, j.row, uint32_t(std::min<int64_t>(a.tiles, j.blocks.word[3]) * a.chunks), &a);
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_first_layer, .about = "1 to 4 input channels on tensor cores, windows read from the image itself",
                .drives = kind::first_layer, .op = {QUERN_CONV}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_BATCH, .pads = true, .splits = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .error_bound = error_bound, .pack = pack,
                .launch = launch)
