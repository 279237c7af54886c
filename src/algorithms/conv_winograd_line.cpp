// SPDX-License-Identifier: MIT
//
// Convolution of few channels, first layers above all, with Winograd's F(m, r) along x and sums along y: what is
// multiplied never leaves the registers.
//
//   item = image, band of output lines, block of tiles                      one task of the parallel_for
//     for output line
//       for input line that is new: V = transformed pixels                  a ring of as many lines as the filter has
//       for strip of tiles: for panel of channels
//         row.winograd_strip                                                writes the outputs of the strip before
//
// A block is a strip, one below the other, where V, sums and weights stay in L1.
//
// At stride 2 an NHWC line is half as many pixels of twice the channels; 7 taps are F(m, 4) of two interleaved images.
// Three taps, and sums of few steps, have rows that take a whole block at a time and write its outputs at once.
#include "conv_winograd.h"
#include "driver.h"
#include "epilogue.h"
#include "pixels.h"

namespace quern {
namespace {

enum word { bands, blocks, block_tiles, streams };

constexpr int64_t most_terms = 32;

// Three taps at stride 2: taps 0 and 2 are F(2, 2), of points 0, 1 and infinity, and tap 1 is as it is.  An output is
// (x0 - x2) w0 + x2 (w0 + w2) + x1 w1, and its neighbour as long.
constexpr winograd_driver::weight_transform paired_weights = {2, 3, 4, {{1, 0, 0}, {1, 0, 1}, {0, 0, 1}, {0, 1, 0}}};
constexpr winograd_driver::form paired = {{nullptr, &paired_weights}, 3, {0, 3}, 0, 0, 0, 1};

const winograd_driver::form* form_of(const geometry& g) {
  using winograd_driver::of;
  static constexpr const winograd_driver::form* forms[] = {&of<4, 3>::f, &of<4, 4>::f, &of<4, 5>::f};
  if (g.stride[2] == 2 && g.filter[2] == 3) return &paired;
  for (const auto* f : forms)
    if (f->r == up(g.filter[2], g.stride[2])) return f;
  return nullptr;
}

// Output channels in panels of whole vectors and whole blocks, as even as may be, of at most nr.
struct panel_sizes {
  int64_t count, vectors, channels, outputs;
  int64_t unit;  // channels whose weights stay together
  panel_sizes(const geometry& g, const kernel& row)
      : count(up(g.k, row.nr)), outputs(g.k), unit(row.step == 1 ? 2 * row.vector : row.vector) {
    const int64_t whole = std::max({unit, g.dst_block, g.residual_block});
    channels = std::max<int64_t>(1, up(up(g.k, whole), std::max<int64_t>(1, count))) * whole;
    vectors = channels / row.vector;
  }
  int64_t begin(int64_t panel) const { return panel * channels; }
  int64_t size(int64_t panel) const { return std::min(channels, outputs - begin(panel)); }
  int64_t padded(int64_t panel) const { return up(size(panel), unit) * unit; }
};

// Of a panel's weights, floats from point to point, step to step and pair of vectors to pair.
//
//   [point][line of the filter][term: channel, interleaved image][channels]
//   [pair][line of the filter][term][point][channels]                          rows for few steps
struct weight_steps {
  int64_t two, point, step, pair;
  weight_steps(const kernel& row, int64_t steps, int64_t points, int64_t channels) : two(2 * row.vector) {
    if (row.step == 1)
      point = two, step = points * point, pair = steps * step;
    else
      step = channels, point = steps * step, pair = two;
  }
  int64_t column(int64_t channel) const { return channel / two * pair + channel % two; }
};

// Where things lie for a block of `tiles`, in floats.  The lines of a point lie side by side, near for a core that
// foresees strides.
struct line_sizes {
  bool dense;    // channels of neighbouring pixels follow each other: a line is one plane
  bool held;     // sums stay in registers: a line of a block is one strip
  bool paired;   // taps 0 and 2 by F(2, 2), tap 1 as it is
  bool aligned;  // so are lines to cache lines: across them, loads of pairs cost 3 % of 32 outputs (Emerald Rapids)
  int64_t unit;  // tiles that stay together
  int64_t stride, m, a, matrices, reach;  // along x: points of weights, matrices of V, pixels that V is made of
  int64_t parts, terms, pointers, planes, pixel, positions, matrix, wide, source, lines, point, ring, sums;

  line_sizes(const geometry& g, const kernel& row, int64_t tiles)
      : dense(g.src_block == 1 && (g.c == 1 || g.src[1] == 1) && g.src[4] == g.c),
        held(row.step != 0),
        paired(row.step == 2),
        aligned(paired && dense && g.src[3] % 16 == 0),
        unit(held ? row.mr / row.tile : 1),
        stride(g.stride[2]),
        m(row.tile),
        a(paired ? paired_weights.a : m + row.taps - 1),
        matrices(paired ? 2 : a),
        reach(paired ? stride : (a - 1) * stride),
        parts(paired ? 1 : stride),
        terms(g.c * parts),
        pointers(paired ? 2 * terms : terms),
        planes(dense ? 1 : g.c),
        pixel(dense ? g.c : 1),
        positions((held ? up(tiles, unit) * unit * m : (tiles - 1) * m + 1) * stride * pixel),
        matrix(up(positions, 16) * 16 + 16),
        wide(up(up(positions, 16) * 16, pixel) + reach),
        source(dense ? 0 : up(wide, 16) * 16),
        lines(g.filter[1]),
        point(lines * matrix),
        ring(planes * matrices * point),
        sums(held ? 0 : a * line_sums * row.vector) {}
  int64_t bytes() const {
    return (2 * sums + ring + planes * source) * 4 + 2 * lines * pointers * int64_t(sizeof(float*));
  }
};

bool takes_channels(const int64_t* stride, int64_t block, int64_t channels, const kernel& row) {
  return channels <= 1 || (block == 1 ? stride[1] == 1 : block % row.vector == 0);
}

refusal refuse(const full_problem& p, const kernel& row) {
  const geometry& w = geometry_of(p);
  if (p.groups != 1) return {QUERN_REASON_SHAPE, "groups", p.groups, 1};
  if (w.filter[0] != 1) return w.refuse(window_filter, 0, w.filter[0], 1);
  if (w.stride[2] > 2) return w.refuse(window_stride, 2, w.stride[2], 2);
  if (row.step && w.stride[2] != row.step) return w.refuse(window_stride, 2, w.stride[2], row.step);
  const int64_t parts = row.step ? 1 : w.stride[2];
  if (up(w.filter[2], parts) != row.taps) return w.refuse(window_filter, 2, w.filter[2], parts * row.taps);
  if (w.filter[1] > 16) return w.refuse(window_filter, 1, w.filter[1], 16);
  if (w.dilation[1] != 1) return w.refuse(window_dilation, 1, w.dilation[1], 1);
  if (w.dilation[2] != 1) return w.refuse(window_dilation, 2, w.dilation[2], 1);
  // Eight points and fewer sums: more than four times the error of a chain of multiply-adds.
  const int64_t c = p.src.size[1], least = row.taps == 5 ? up(4, std::max<int64_t>(1, w.filter[1])) : 0;
  if (c < least) return {QUERN_REASON_SHAPE, "src.size[1]", c, least};
  if (c * w.stride[2] > most_terms) return {QUERN_REASON_SHAPE, "src.size[1]", c, most_terms / w.stride[2]};
  const geometry& g = geometry_of(p);
  if (!takes_channels(g.dst, g.dst_block, g.k, row))
    return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, QUERN_NHWC};
  if (p.epilogue.residual && !takes_channels(g.residual, g.residual_block, g.k, row))
    return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, QUERN_NHWC};
  return {};
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry& g = geometry_of(p);
  const panel_sizes panels(g, row);
  const int64_t most = line_tiles(int(panels.vectors)), tiles = std::max<int64_t>(1, up(g.out[2], row.tile));
  const line_sizes strip(g, row, std::min(most, tiles)), whole(g, row, tiles);
  blocking b = {};
  b.order = uint32_t(panels.channels);
  b.packed_bytes = uint64_t(up(g.k, panels.unit) * panels.unit * strip.a * strip.lines * strip.terms) * sizeof(float);
  const bool in_l1 = uint64_t(strip.bytes()) + b.packed_bytes <= m.l1;
  b.word[blocks] = strip.held ? std::clamp<int64_t>(up(2 * whole.bytes(), int64_t(m.l1)), 1, up(tiles, strip.unit))
                              : up(tiles, (in_l1 ? 1 : std::max<int64_t>(1, int64_t(m.l2) / 2 / strip.bytes())) * most);
  b.word[block_tiles] = up(up(tiles, strip.unit), b.word[blocks]) * strip.unit;
  const line_sizes s(g, row, b.word[block_tiles]);
  // Stores that wait for lines of a slow L3 hold up multiply-adds, however they are spread: what a core cannot count on
  // finding there again goes past it (a quarter to a third of such layers: Granite Rapids).
  b.word[streams] = (slow_l3(m) && operand_bytes(g, 0).output > l3_share(m)) || streams_outputs(g, m);
  // A step is a multiply-add a tile and vector, or its share of loads; a point is stored and read again.  Weights and V
  // that L1 does not keep come from L2, mostly while others are multiplied.
  const double out_lines = double(g.n * g.out[0] * g.out[1]), sums = double(most * panels.vectors);
  const double points = double(s.a), steps = double(s.lines * s.terms);
  const double step = 0.535 * std::max(1.0, 1.15 * double(most + panels.vectors) / sums);
  const double touched = in_l1 ? 0 : points * steps * double(panels.channels + most * s.m * s.stride) * 4;
  const double finish = g.k % row.vector ? 50 : 11;
  // Of an odd number of vectors the last one waits for loads.
  const int64_t vectors = up(g.k, row.vector);
  const double pairs = 5 * steps * (0.53 + 0.08 * double(vectors % 2) / double(vectors)) + finish / 3;
  // A load a multiply-add, of which whole vectors take longer (Emerald Rapids); what is cut goes through a buffer.
  const double cut = g.k % row.vector ? 1 : double(g.out[2] % s.m != 0) / double(tiles);
  const double few = points * (0.64 * steps + 1.3) + 4 + 40 * cut;
  const double through_l1 = points * (step * steps + 1.5) + finish + 0.2 * touched / sums / (m.l2_rate * m.cycle_ns);
  const double tile = s.paired ? pairs : s.held ? few : through_l1;
  const double position = s.paired && !s.aligned ? 4 : 2;
  const double line = 80 + double(s.planes * up(s.positions, 16)) * position * double(s.matrices);
  b.cycles = pace(row, m) * out_lines *
             (double(tiles * vectors) * tile + double(b.word[blocks] * std::min(g.stride[1], s.lines)) * line);
  b.workers = useful_workers(m, b.cycles, threads);
  // Who strides over the lines of a point is expected behind the last one too: the next worker would lose what he
  // writes there (two threads: 1.5 times as fast as one, with the gap 1.9; Zen 4).
  const int64_t gap = b.workers > 1 ? 8192 : 0;
  b.workspace_bytes = uint64_t(up(s.bytes(), QUERN_ALIGN) * QUERN_ALIGN + gap);
  const int64_t images = std::max<int64_t>(1, g.n * g.out[0] * b.word[blocks]);
  b.word[bands] = b.workers > 1 ? std::clamp<int64_t>(up(2 * b.workers, images), 1, std::max<int64_t>(1, g.out[1])) : 1;
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const operand_bytes o(geometry_of(p), b.packed_bytes);
  return overlapped(row, m, b, o.cycles(m, o.weights + o.image, b.word[streams]));
}

double error_bound(const full_problem& p) {
  const geometry& g = geometry_of(p);
  const winograd_driver::form* f = form_of(g);
  const double n = (double(g.c) * double(g.stride[2] * g.filter[1]) + 16) * 0x1p-24;
  return f && n < 0.5 ? f->growth[1] * n / (1 - n) : std::numeric_limits<double>::infinity();
}

// Panel after panel, each as weight_steps has it.
void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const line_sizes s(g, j.row, 1);
  const winograd_driver::form& f = *form_of(g);
  const float* from = static_cast<const float*>(weights);
  const panel_sizes panels(g, j.row);
  const int64_t steps = s.lines * s.terms;
  for (int64_t k = first; k < first + count; ++k) {
    const int64_t panel = k / panels.channels, column = k % panels.channels;
    const weight_steps w(j.row, steps, s.a, panels.padded(panel));
    const int64_t rest = panels.padded(panel) - column - 1;
    float* to = reinterpret_cast<float*>(payload) + panels.begin(panel) * s.a * steps + w.column(column);
    for (int64_t r = 0; r < s.lines; ++r)
      for (int64_t c = 0; c < g.c; ++c)
        for (int64_t part = 0; part < s.parts; ++part, to += w.step) {
          const float* tap = from + (k - first) * g.weights[0] + c * g.weights[1] + r * g.weights[3];
          for (int64_t i = 0; i < s.a; ++i) {
            double sum = 0;
            for (int64_t u = 0; u * s.parts + part < g.filter[2]; ++u)
              sum += f.axis[1]->g[i][u] * double(tap[(u * s.parts + part) * g.weights[4]]);
            float* const at = to + i * w.point;
            *at = float(sum);
            if (k == g.k - 1) std::fill_n(at + 1, rest, 0.0f);
          }
        }
  }
}

void run(const job& j, const execution& e) {
  const geometry& g = geometry_of(j.problem);
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const kernel& row = j.row;
  const int64_t* word = j.blocks.word;
  const line_sizes s(g, row, word[block_tiles]);
  const phase ph = phase_of(g, 0);
  const panel_sizes panels(g, row);
  const int64_t all_steps = s.lines * s.terms;
  const int64_t most = s.held ? word[block_tiles] : line_tiles(int(panels.vectors));
  const weight_steps in_panel(row, all_steps, s.a, panels.channels),
      in_last(row, all_steps, s.a, panels.padded(panels.count - 1));
  const float* const src = static_cast<const float*>(e.args.src);
  for_each_item(j, e, g.n * g.out[0] * word[bands] * word[blocks], [&](int64_t item, char* workspace) {
    const int64_t block = digit(item, word[blocks]), band = digit(item, word[bands]), d = digit(item, g.out[0]);
    const int64_t n = item;
    const range rows = part(g.out[1], band, word[bands]);
    const range units = part(up(g.out[2], s.m * s.unit), block, word[blocks]);
    const range tiles = {units.begin * s.unit, std::min(units.end * s.unit, up(g.out[2], s.m))};
    const int64_t first = tiles.begin * s.m, last = std::min(g.out[2], tiles.end * s.m);
    const cut strips(tiles.count(), most);
    float* const sums = reinterpret_cast<float*>(workspace);
    float* const ring = sums + 2 * s.sums;
    float* const source = ring + s.ring;

    // The block's pixels on the image; others are zeros.
    const int64_t x0 = ph.w.in_begin + first * ph.w.in_step;
    const range on = {std::clamp<int64_t>(x0, 0, g.in[2]), std::clamp<int64_t>(x0 + s.wide, 0, g.in[2])};
    const int64_t z = ph.d.in_begin + d * ph.d.in_step;
    const bool inside = z >= 0 && z < g.in[0];
    const float* const image = src + n * g.src[0] + z * g.src[2];
    // How far position 0 is behind the beginning of a cache line.
    const int64_t skew =
        s.aligned ? int64_t((reinterpret_cast<uintptr_t>(image) / sizeof(float) + uintptr_t(x0 * s.pixel)) % 16) : 0;
    // Of any line's first step on, as many lines as the ring has follow each other.
    const float** const steps = reinterpret_cast<const float**>(source + s.planes * s.source);
    const float** step = steps;
    for (int64_t place = 0; place < 2 * s.lines; ++place)
      for (int64_t c = 0; c < g.c; ++c)
        for (int64_t part = 0; part < s.parts; ++part) {
          const float* const v =
              ring + place % s.lines * s.matrix + skew + part * s.pixel + c * (s.dense ? 1 : s.matrices * s.point);
          *step++ = v;
          if (s.paired) *step++ = v + s.point;
        }
    // Of tiles by F(2, 2) the first pixel is in a difference alone: all others may be in the image.
    const bool copies = !(s.paired && s.dense && x0 >= -1 && x0 + s.positions / s.pixel <= g.in[2]);

    const auto transform = [&](int64_t y, int64_t slot) {
      const float* from = image + y * g.src[3] + on.begin * g.src[4];
      // Of one strip of several a line, the hardware does not see where the next ones lie (5 % of vgg16's first layer,
      // Granite Rapids).
      if (s.dense && !s.paired && word[blocks] > 1 && strips.tiles == 1 && y + 2 < g.in[1])
        for (int64_t i = 0; i < on.count() * s.pixel; i += 16) __builtin_prefetch(from + 2 * g.src[3] + i, 0, 3);
      if (!s.dense) {
        gather(row,
               {.at = from, .count = on.count(), .pixel = g.src[4], .channel_stride = g.src[1], .block = g.src_block},
               {0, g.c}, source, 1, s.source);
        from = source;
      }
      const int64_t begin = (on.begin - x0) * s.pixel + skew;
      for (int64_t plane = 0; plane < s.planes; ++plane)
        row.winograd_line({.n = s.positions + skew,
                           .begin = begin,
                           .end = begin + on.count() * s.pixel,
                           .src = from + plane * s.source - begin,
                           .apart = s.stride * s.pixel,
                           .v = ring + slot * s.matrix + plane * s.matrices * s.point,
                           .matrix = s.point,
                           .copies = copies});
      if (copies) return;
      const float** to = steps + slot * s.pointers;
      for (int64_t c = 0; c < g.c; ++c)
        to[2 * c] = to[s.lines * s.pointers + 2 * c] = image + y * g.src[3] + x0 * s.pixel + c;
    };

    winograd_strip_f32 call = {};
    call.matrix = size_t(s.point), call.tile = size_t(s.m * s.stride * s.pixel);
    winograd_sums_f32 two[2] = {}, *to = two;  // those of a strip, and of the one before
    to->out.epilogue = &epilogue;
    to->out.ldc = size_t(g.dst[4]), to->out.ldr = size_t(g.residual[4]);
    if (g.dst_block > 1) to->out.block = size_t(g.dst_block), to->out.next = size_t(g.dst[1]);
    if (g.residual_block > 1)
      to->out.residual_block = size_t(g.residual_block), to->out.residual_next = size_t(g.residual[1]);
    to->out.stream = word[streams];
    to->sums = sums;
    two[1] = two[0];
    two[1].sums = sums + s.sums;
    int64_t next = 0, slot = 0;  // line to transform, and its place in the ring
    range taps = {}, same = {};  // of lines of outputs that meet as many lines
    for (int64_t y = rows.begin; y < rows.end; ++y) {
      if (y >= same.end && inside && on.count() > 0) same = ph.h.span(y, rows.end), taps = ph.h.taps_at(y);
      const int64_t top = ph.h.in_begin + y * ph.h.in_step;
      for (next = std::max(next, top + taps.begin); next < top + taps.end; ++next) {
        transform(next, slot);
        slot = slot + 1 == s.lines ? 0 : slot + 1;
      }
      const int64_t oldest = slot - taps.count() + (slot < taps.count() ? s.lines : 0);
      call.step = steps + oldest * s.pointers, call.steps = size_t(taps.count() * s.terms);
      for (int64_t i = 0; i < strips.tiles; ++i)
        for (int64_t k = 0; k < panels.count; ++k) {
          const int64_t x = first + strips.begin(i) * s.m, channel = panels.begin(k);
          const weight_steps& w = k + 1 == panels.count ? in_last : in_panel;
          const auto place = [&](const int64_t* stride) {
            return n * stride[0] + d * stride[2] + y * stride[3] + x * stride[4];
          };
          to->tiles = size_t(strips.rows(i)), to->n = size_t(panels.size(k));
          to->pixels = size_t(std::min(strips.rows(i) * s.m, last - x));
          to->out.channel = size_t(channel);
          to->out.c = static_cast<float*>(e.args.dst) + place(g.dst) + g.dst_channel(channel);
          if (epilogue.residual)
            to->out.residual =
                static_cast<const float*>(e.args.residual) + place(g.residual) + g.residual_channel(channel);
          call.to = to;
          const bool fetches = k == 0 && s.paired && s.dense && inside;
          call.rows = fetches ? size_t(std::clamp<int64_t>(g.in[1] - next, 0, ph.h.in_step)) : 0;
          call.ahead = image + next * g.src[3] + on.begin * g.src[4], call.row = size_t(g.src[3]);
          call.first = size_t((x - first) * s.stride * s.pixel);
          call.w = {size_t(w.point), size_t(w.step), size_t(w.pair)};
          call.weights =
              reinterpret_cast<const float*>(e.packed) + channel * s.a * all_steps + taps.begin * s.terms * w.step;
          row.winograd_strip(call);
          call.before = to;
          to = to == two ? two + 1 : two;
        }
    }
    if (call.before && row.winograd_finish) row.winograd_finish(*call.before);
    if (word[streams]) finish_streams();
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_winograd_line, .about = "few channels: Winograd along x, summed along y in registers",
                .drives = kind::winograd_line_f32, .op = {QUERN_CONV}, .accuracy = QUERN_ACCURACY_F32_FAST,
                .repeat = QUERN_REPEAT_ISA, .pads = true, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict, .error_bound = error_bound, .pack = pack, .run = run)
