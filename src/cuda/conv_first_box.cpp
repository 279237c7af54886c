// SPDX-License-Identifier: MIT
//
// Convolution of 1 to 4 input channels on capability 9.0: the copy engine brings the lines of an image that lies
// channels last and aligned, instructions of four warps multiply windows of them (cuda/first_box.h).  Any other image
// is conv_first_layer's.
//
//   block: panels of output channels, whose weights it keeps in shared memory
//     group of four warps: an item, a tile of outputs by a part of the panels, and the next one
//       engine: box of the lines under the tile                into shared memory, an item ahead
//       64 pixels x a panel                                    sums in registers, then the epilogue
#include <math.h>

#include <numeric>

#include "cuda/first_box.h"
#include "cuda/first_drive.h"
#include "problem.h"
#include "weights.h"

namespace quern {
namespace {

constexpr int64_t most_box = 256;  // of words and lines

// What windows and weights have in common, and weights as they lie in shared memory.
struct box_panels {
  const geometry& g;
  const kernel& row;
  axis y = g.axis_of(1, 0), x = g.axis_of(2, 0);
  int64_t element = type_bytes(row.type), of_unit = 4 / element, words = words_of_unit(row.type);
  int64_t line = g.filter[2] * g.c, pixel = x.in_step * g.c;
  int64_t kinds = g.out[2] > 1 ? of_unit / std::gcd(of_unit, pixel) : 1;
  int64_t begin = floor_to(x.in_begin * g.c, 16 / element), before = x.in_begin * g.c - begin;  // elements
  int64_t line_units = up(line + most_front(), of_unit);
  int64_t least_steps = up(g.filter[1] * line_units, box_units), most = box_together(row.type);
  int64_t rounds = up(least_steps, most), together = up(least_steps, rounds), steps = rounds * together;
  int64_t count = up(g.k, row.nr);

  static int64_t floor_to(int64_t x, int64_t step) { return x - ((x % step) + step) % step; }
  int64_t front(int64_t kind) const { return (before + kind * pixel) % of_unit; }
  int64_t most_front() const {
    int64_t widest = 0;
    for (int64_t kind = 0; kind < kinds; ++kind) widest = std::max(widest, front(kind));
    return widest;
  }
  int64_t image_words() const { return steps * words * row.nr * box_units; }
  int64_t panel_bytes() const { return kinds * image_words() * 4; }
  int64_t bytes() const { return count * panel_bytes(); }
  // The word of a unit in a panel's image; of f32 that of its high part, whose low part is so many further on.
  int64_t low() const { return row.nr * box_units; }
  int64_t word_of(int64_t channel, int64_t unit) const {
    return unit / box_units * words * low() + box_word(chunk_column(channel % row.nr, row.vector), unit % box_units);
  }
};

// How a problem is cut: a tile, the panels of a block, the parts of a tile's.
struct box_cut {
  int64_t high, eights, panels, parts;
};

// The kernel's parameters, but for what launch() brings.
first_box boxes_of(const geometry& g, const kernel& row, const box_cut& cut) {
  const box_panels w = {g, row};
  const int64_t element = type_bytes(row.type), wide = cut.eights * 8 * w.kinds;
  first_box a = {};
  a.taps_h = int32_t(w.y.taps), a.tap_step = int32_t(w.y.tap_step), a.line = int32_t(w.line);
  a.line_units = int32_t(w.line_units), a.steps = int32_t(w.steps), a.together = int32_t(w.together);
  a.high = int32_t(cut.high), a.eights = int32_t(cut.eights), a.strips = int32_t(up(cut.high * cut.eights, 8));
  a.kinds = int32_t(w.kinds);
  for (int64_t kind = 0; kind < w.kinds; ++kind) {
    a.front[kind] = int32_t(w.front(kind));
    a.kind_at[kind] = int32_t((w.before + kind * w.pixel - w.front(kind)) * element);
  }
  a.step_h = int32_t(w.y.in_step), a.pixel = int32_t(w.pixel * element);
  const int64_t line_bytes = w.before * element + (wide - 1) * a.pixel + (w.line_units + 1) * 4;
  const int64_t lines = (cut.high - 1) * w.y.in_step + (w.y.taps - 1) * w.y.tap_step + 1;
  a.pitch = int32_t(up(line_bytes, 16) * 16);
  a.box_bytes = int32_t(a.pitch * lines), a.stage_bytes = int32_t(up(a.box_bytes, 128) * 128);
  a.box_x = int32_t(w.begin * element / 4), a.tile_x = int32_t(wide * a.pixel / 4);
  a.box_y = int32_t(w.y.in_begin), a.tile_y = int32_t(cut.high * w.y.in_step);
  a.tiles_h = divisor_of(up(w.y.out_count, cut.high)), a.tiles_w = divisor_of(up(w.x.out_count, wide));
  a.tiles = int32_t(g.n) * a.tiles_h.by * a.tiles_w.by, a.wide = int32_t(wide);
  a.all_panels = int32_t(w.count), a.panels = int32_t(cut.panels), a.chunks = int32_t(up(w.count, cut.panels));
  a.parts = divisor_of(cut.parts), a.of_part = int32_t(up(cut.panels, cut.parts));
  int64_t bytes = 1024;  // aligned to as much by the kernel
  const auto take = [&](int64_t count, int64_t align = 16) {
    const int64_t at = up(bytes - 1024, align) * align;
    bytes = at + count + 1024;
    return int32_t(at);
  };
  const int64_t groups = row.threads / 128;
  a.weights_bytes = int32_t(cut.panels * w.panel_bytes());
  take(a.weights_bytes);
  a.channels_at = take(cut.panels * row.nr * 8);
  a.units_at = take(w.kinds * w.steps * box_units * int64_t(sizeof(box_unit)));
  a.eights_at = take(int64_t{a.strips} * 8 * int64_t(sizeof(box_eight)));
  a.out_at = take(groups * 4 * 4 * chunk_floats(row.vector));
  a.stages_at = take(groups * box_stages * a.stage_bytes, 128);
  a.barriers_at = take(8 * (1 + groups * box_stages));
  a.bytes = int32_t(std::min(bytes, most_counted));
  return a;
}

// Words and lines of a box.
int64_t box_width(const first_box& a) { return a.pitch / 4; }
int64_t box_lines(const first_box& a) { return a.box_bytes / a.pitch; }
bool fits(const first_box& a, const kernel& row) {
  return a.bytes <= int32_t(row.shared_bytes) && box_width(a) <= most_box && box_lines(a) <= most_box;
}

refusal refuse(const full_problem& p, const kernel& row) {
  if (const refusal r = refuse_first(p, row, 512)) return r;
  const geometry& g = geometry_of(p);
  // Lines are of whole 16 bytes, and begin at them.
  if (g.c > 1 && g.src[1] != 1) return {QUERN_REASON_SHAPE, "src.stride[1]", g.src[1], 1};
  if (g.in[2] > 1 && g.src[4] != g.c) return {QUERN_REASON_SHAPE, "src.stride[4]", g.src[4], g.c};
  const int64_t aligned = 16 / type_bytes(row.type);
  if (g.in[2] * g.c % aligned != 0)
    return {QUERN_REASON_SHAPE, "elements of a line modulo 16 bytes", g.in[2] * g.c % aligned, 0};
  const auto lies = [&](int64_t size, int64_t stride) {
    return size == 1 || (stride > 0 && stride % aligned == 0 && stride < int64_t{1} << 36);
  };
  static constexpr const char* stride[] = {"src.stride[2] modulo 16 bytes", "src.stride[3] modulo 16 bytes",
                                           "src.stride[4] modulo 16 bytes"};
  if (!lies(g.in[1], g.src[3])) return g.refuse(stride, 1, g.src[3] % aligned, 0);
  if (!lies(g.n, g.src[0])) return {QUERN_REASON_SHAPE, "src.stride[0] modulo 16 bytes", g.src[0] % aligned, 0};
  if (const refusal r = refuse_many(first_lines(g) * first_columns(g) * 4, "elements of an image")) return r;
  const first_box least = boxes_of(g, row, box_cut{1, 1, 1, 1});
  if (box_width(least) > most_box)
    return {QUERN_REASON_SHAPE, "words of a line under eight outputs", box_width(least), most_box};
  if (box_lines(least) > most_box) return {QUERN_REASON_SHAPE, "lines under a filter", box_lines(least), most_box};
  if (!fits(least, row))
    return {QUERN_REASON_SHAPE, "bytes of a panel's weights and a window", least.bytes, row.shared_bytes};
  return {};
}

// Blocks of each chunk of panels: one block a multiprocessor.
int64_t blocks_of(const first_box& a, const machine& m) {
  return std::min(std::max<int64_t>(1, int64_t(m.gpu.multiprocessors) / a.chunks), int64_t{a.tiles} * a.parts.by);
}

double ns_of(const geometry& g, const first_box& a, const kernel& row, const machine& m) {
  const bool whole = row.type != QUERN_F32;
  const double groups = row.threads / 128, blocks = double(blocks_of(a, m)), n = row.nr;
  const double items = double(a.tiles) * a.parts.by, rounds = ceil(items / (blocks * groups));
  const double strips = double(a.strips) * a.kinds, active = std::min(groups, ceil(items / blocks));
  // Clocks of a strip and panel, which groups share a multiprocessor for; of a strip that a group has to itself, which
  // waits most of the time; of an item (fitted on an H200).
  const double channel = row.type == QUERN_S8 ? 3.5 : row.type == QUERN_E4M3 ? 2.5 : 2.9;
  const double piece = whole ? 82 + channel * n + a.steps * (16 + 0.52 * n) : 280 + 5.6 * n + a.steps * (35 + 1.45 * n);
  const double alone = whole ? (type_bytes(row.type) == 1 ? 600 : 420) + 300.0 * a.of_part : 0;
  const double around = whole ? 136 * active : 900;
  const double strip = std::max(alone, active * a.of_part * piece);
  const double clocks = rounds * (strips * strip + around) + a.weights_bytes / 64.0;  // L2 has weights
  const double bytes = tensor_bytes(g, row.type, row.type);
  const double memory = bytes / (double(m.gpu.bandwidth) * 0.83e-9), work = 1000 * clocks / m.gpu.clock_mhz;
  return 2400 + std::max(work, memory) + 0.1 * std::min(work, memory);  // little of the shorter is not hidden
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t) {
  const geometry& g = geometry_of(p);
  const box_panels w = {g, row};
  blocking b = {};
  b.packed_bytes = uint64_t(w.bytes());
  b.workers = 1;
  double best = std::numeric_limits<double>::infinity();
  const int64_t all = up(g.out[2], 8 * w.kinds);
  for (int64_t panels = w.count, last = 0; panels != last; last = panels, panels = up(panels, 2))
    for (const int64_t most : {32, 16, 12, 8, 6, 4, 3, 2, 1})
      for (const int64_t high : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
        // Tiles of a line are of nearly the same width.
        const int64_t eights = up(all, up(all, most));
        if (high > 1 && high >= 2 * g.out[1]) break;
        for (int64_t parts = panels, before = 0; parts != before; before = parts, parts = up(parts, 2)) {
          const first_box a = boxes_of(g, row, box_cut{high, eights, panels, parts});
          if (!fits(a, row)) break;
          const double ns = ns_of(g, a, row, m);
          if (ns >= best) continue;
          best = ns;
          b.word[0] = high, b.word[1] = eights, b.word[2] = panels, b.word[3] = parts;
          b.word[4] = blocks_of(a, m);
        }
      }
  return b;
}

first_box boxes_of(const geometry& g, const kernel& row, const blocking& b) {
  return boxes_of(g, row, box_cut{b.word[0], b.word[1], b.word[2], b.word[3]});
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry& g = geometry_of(p);
  const first_box a = boxes_of(g, row, b);
  const double pixels = double(a.tiles) * a.strips * a.kinds * 64;
  const double products = pixels * double(a.all_panels * row.nr) * double(a.steps * box_units);
  return {ns_of(g, a, row, m), 2 * products * (4 / double(type_bytes(row.type)))};
}

// As conv_first_layer's; of e4m3 as conv_tma's.
double error_bound(const full_problem& p) {
  const geometry& g = geometry_of(p);
  const bool parts = p.src.type == QUERN_F32;
  const double of_step = 32 / double(type_bytes(p.src.type));
  const double steps = double(g.filter[1]) * (double(g.filter[2]) * double(g.c) + 6) / of_step + 4;
  if (p.src.type == QUERN_E4M3) return 4 * 33 * 0x1p-13 + (steps + 1) * 0x1p-24;
  const double n = (parts ? 3 * 4 + 12 * 2 + steps / 3 + 2 : 2 * steps + 4) * 0x1p-24;
  return n < 0.5 ? n / (1 - n) : std::numeric_limits<double>::infinity();
}

void put(uint32_t* to, int64_t low, int64_t, float x) {
  const tf32_pair two = split_tf32(x);
  to[0] = bits_of(two.high), to[low] = bits_of(to_tf32(two.low));
}
template <class T>
void put(uint32_t* to, int64_t, int64_t e, T x) {
  constexpr int64_t bytes = sizeof x;
  memcpy(reinterpret_cast<char*>(to) + e % (4 / bytes) * bytes, &x, bytes);
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const box_panels panels = {g, j.row};
  const auto as = [&](auto element) {
    using T = decltype(element);
    pack_weights(g, first, count, static_cast<const T*>(weights), [&](const weight_run<T>& w) {
      uint32_t* const panel = reinterpret_cast<uint32_t*>(payload + w.k / j.row.nr * panels.panel_bytes());
      const int64_t line = w.tap / w.ph.w.taps * panels.line_units;
      for (int64_t kind = 0; kind < panels.kinds; ++kind) {
        uint32_t* const image = panel + kind * panels.image_words();
        // Zeros beside the weights, and for channels that do not exist.
        const int64_t end = w.k == g.k - 1 ? up(g.k, j.row.nr) * j.row.nr : w.k + 1;
        for (int64_t i = w.k; i < end && w.tap + w.begin == 0; ++i)
          for (int64_t unit = 0; unit < panels.steps * box_units; ++unit)
            for (int64_t word = 0; word < panels.words; ++word)
              image[panels.word_of(i, unit) + word * panels.low()] = 0;
        for (int64_t c = w.begin; c < w.end; ++c) {
          const int64_t e = w.tap % w.ph.w.taps * g.c + c + panels.front(kind);
          put(image + panels.word_of(w.k, line + e / panels.of_unit), panels.low(), e, w[c]);
        }
      }
    });
  };
  switch (type_bytes(j.row.type)) {
    case 4: return as(float{});
    case 2: return as(uint16_t{});
    default: return as(uint8_t{});
  }
}

quern_status map_lines(const launching& l, const geometry& g, quern_type type, first_box& a) {
  const int64_t element = type_bytes(type), line = g.in[2] * g.c * element;
  const auto bytes = [&](int64_t count, int64_t apart) { return uint64_t(count > 1 ? apart * element : line); };
  const uint64_t size[] = {uint64_t(line / 4), uint64_t(g.in[1]), uint64_t(g.n)};
  const uint64_t stride[] = {bytes(g.in[1], g.src[3]), bytes(g.n, g.src[0])};
  const uint32_t box[] = {uint32_t(box_width(a)), uint32_t(box_lines(a)), 1};
  return encode_tiled(l, &a.src, {cuda_map_f32, cuda_map_swizzle_none, 3, l.args.src, size, stride, box});
}

quern_status launch(const job& j, const launching& l) {
  const geometry& g = geometry_of(j.problem);
  first_box a = boxes_of(g, j.row, j.blocks);
  a.weights = l.packed, a.ahead = l.loaded.ahead;
  a.out = output_of(j, g, phase_of(g, 0), l.args, std::min<int64_t>(j.row.vector, 16 / type_bytes(j.problem.dst.type)));
  if (a.out.even && a.out.dst_stride[4] < most_counted) a.apart = int32_t(a.out.dst_stride[4]);
  if (const quern_status s = map_lines(l, g, j.row.type, a)) return s;
  return launch_kernel(l, j.row, uint32_t(j.blocks.word[4] * a.chunks), &a);
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_first_box, .about = "1 to 4 input channels, lines of the image brought by the copy engine",
                .drives = kind::first_box, .op = {QUERN_CONV}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_BATCH, .pads = true, .splits = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .error_bound = error_bound, .pack = pack,
                .launch = launch)
