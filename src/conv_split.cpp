// SPDX-License-Identifier: MIT
//
// Convolution, forward and transposed, and GEMM with f32 as products of bf16 parts (split_f32 in kernel.h): a band of
// the image is split once, into the workspace, and stays in L2; a filter tap of 16 pixels is a tile load at an offset.
//
//   item = image, group, phase, depth, band of rows, band of columns, block of panels     a task of the parallel_for
//     split the band                                          padding is there as zeros
//     for chunk of panels of 32 output channels               weights stay in L2, the next ones are fetched
//       for two tiles of 16 pixels: for panel of the chunk
//         row.split->products                                all of k; and the epilogue of the block before
//
// Tiles are pieces of a row of outputs, or of all rows as they follow each other in the band, with what lies between
// rows thrown away: whichever takes less.  A filter along x alone runs with its axes changed, so that padding lies
// before and behind whole rows.  k is never cut: it runs over taps along d, 32 channels at a time, taps along h and w.
#include "conv_split.h"

#include <cmath>
#include <cstring>

#include "band.h"
#include "driver.h"
#include "weights.h"

namespace quern::split_driver {
namespace {

enum word { bands, columns, block_panels, blocks, chunk, flat };

constexpr int64_t tile = split_rows, panel = split_columns, depth = split_channels;

// Axes so that a filter along one axis alone is one along rows.
geometry split_geometry(const quern_problem& p) {
  geometry g = band_geometry(p);
  if (g.filter[1] != 1 || g.filter[2] == 1) return g;
  for (int64_t* of : {g.in, g.out, g.filter, g.stride, g.dilation, g.pad}) std::swap(of[1], of[2]);
  for (int64_t* stride : {g.src, g.dst, g.residual, g.weights}) std::swap(stride[3], stride[4]);
  return g;
}

// ---- Weights: [group][phase][panel][tap along d, channels, taps along h and w][part][columns / 16][16][16][2]

struct packed_steps {
  const geometry& g;
  int64_t parts;
  int64_t taps = g.taps();

  int64_t blocks() const { return up(g.c, depth); }  // of channels
  int64_t count() const { return up(g.k, panel); }   // of panels
  int64_t halves() const { return up(g.k, tile); }
  int64_t tile_bytes() const { return tile * depth * 2 * parts; }
  int64_t phase(int64_t group, int64_t taps_before) const {
    return (group * taps + taps_before) * blocks() * halves() * tile_bytes();
  }
  int64_t panel_bytes(int64_t phase_taps) const { return phase_taps * blocks() * 2 * tile_bytes(); }
  int64_t width(int64_t index) const { return std::min<int64_t>(2, halves() - 2 * index); }  // in tiles
  int64_t size() const { return phase(g.groups, 0); }
};

// ---- What a band is ------------------------------------------------------------------------------------------

struct band_sizes {
  int64_t pitch, places, pixel, block, bytes;  // places of a row and of the band; bytes of a pixel, a block, all

  band_sizes(const geometry& g, int parts, int64_t rows_of_planes, int64_t row_places, int64_t step_places)
      : pitch(row_places), places(rows_of_planes * row_places), pixel(parts * depth * 2) {
    // Tiles that are not full read on.
    block = (places + tile * std::max<int64_t>(1, step_places)) * pixel;
    if (block % 512 == 0) block += 64;
    bytes = block * up(g.c, depth);
  }
};

// Bytes of the largest band of so many rows and columns, over all phases.
double band_bytes(const geometry& g, int parts, int64_t rows, int64_t row_columns) {
  const band_extent x(g);
  const double width = x.columns - double(std::max<int64_t>(0, g.out[2] - row_columns)) * (g.transposed ? 0 : x.split);
  const double places = x.depth * x.places(rows) * std::max(width, 1.0) + double(tile) * std::max(1.0, x.split);
  return (places * parts * depth * 2 + 64) * double(up(g.c, depth));
}

// Cycles of a product with so many rows of pixels: of real data a fifth more than of zeros (Sapphire Rapids).
double product_cycles(double rows) { return 1.2 * std::max(9.4, 4.5 + 0.745 * rows); }

// Products' cycles of a band of outputs, in tiles of rows or in flat ones.
struct band_tiles {
  int64_t count, rows;  // tiles, and rows of each
  band_tiles(bool as_flat, int64_t lines, int64_t width, int64_t pitch) : count(0), rows(1) {
    if (lines <= 0 || width <= 0) return;
    const int64_t run = as_flat ? (lines - 1) * pitch + width : width, pieces = up(run, tile);
    rows = up(run, pieces), count = as_flat ? pieces : pieces * lines;
  }
  double cycles() const { return double(count) * product_cycles(double(rows)); }
};

bool may_be_flat(const band_axis& h, const band_axis& w) { return h.pixel == 1 && w.pixel == 1; }

double compute_cycles(const geometry& g, const blocking& b, int parts, bool gathers, bool sows) {
  double cycles = 0;
  const packed_steps steps = {g, parts};
  const int64_t phases = std::min<int64_t>(g.phases(), 64);
  const double products = parts == 3 ? 6 : 3;
  for (int64_t f = 0; f < phases; ++f) {
    const phase ph = phase_of(g, f);
    const band_axis h(ph.h), w(ph.w);
    const int64_t lines = up(ph.h.out_count, b.word[bands]), width = up(ph.w.out_count, b.word[columns]);
    const double items =
        double(ph.d.out_count) * double(ph.h.out_count) / double(std::max<int64_t>(1, lines)) * double(b.word[columns]);
    const band_tiles tiles(b.word[flat], lines, width, w.places(width));
    cycles += items * tiles.cycles() * products * double(ph.taps() * steps.blocks()) * double(steps.halves());
    // Around a block: sums zeroed and stored, and the unit drained.
    const double block_count = items * double(up(tiles.count, 2)) * double(steps.count());
    cycles += block_count * 250;
    const double places = items * double(ph.d.taps * h.places(lines) * w.places(width)) * double(b.word[blocks]);
    cycles += places * double(steps.blocks()) * (parts * 4 + 3 + (gathers ? 25 : 0)) + items * 2000;
    if (sows) cycles += 0.7 * double(ph.outputs()) * double(g.k) + 60 * block_count;
  }
  return cycles * double(g.phases()) / double(phases) * double(g.n) * double(g.groups);
}

// 16 channels side by side, and where the next 16 are.
bool in_runs(const geometry& g, int64_t channels, const int64_t* stride, int64_t block) {
  return channels <= 1 || (block == 1 ? stride[1] == 1 : block == 16 && (g.groups == 1 || channels % 16 == 0));
}
int64_t next_run(const int64_t* stride, int64_t block) { return block == 1 ? 16 : stride[1]; }

struct layouts {
  bool src, dst, residual;  // in runs
  layouts(const quern_problem& p, const geometry& g)
      : src(in_runs(g, g.c, g.src, g.src_block)),
        dst(in_runs(g, g.k, g.dst, g.dst_block)),
        residual(!p.epilogue.residual || in_runs(g, g.k, g.residual, g.residual_block)) {}
};

constexpr int64_t gathered_pixels = 64, block_floats = 2 * tile * panel;

// The workspace of an item behind the band: sums of two blocks, outputs and residuals of two, pixels on their way to
// the band, offsets of steps.
struct buffers {
  float *sums, *out, *residual, *pixels;
  ptrdiff_t* step;
  explicit buffers(char* at)
      : sums(reinterpret_cast<float*>(at)),
        out(sums + 2 * block_floats),
        residual(out + 2 * block_floats),
        pixels(residual + 2 * block_floats),
        step(reinterpret_cast<ptrdiff_t*>(pixels + gathered_pixels * depth)) {}
  static int64_t bytes(int64_t steps) {
    return (6 * block_floats + gathered_pixels * depth) * 4 + steps * int64_t(sizeof(ptrdiff_t));
  }
};

}  // namespace

refusal refuse(const quern_problem& p, const kernel&, int parts) {
  if (p.src.type != QUERN_F32) return {QUERN_REASON_TYPE, "src.type", p.src.type, QUERN_F32};
  const geometry g = split_geometry(p);
  if (const refusal why = g.refuse_phases()) return why;
  if (g.groups > 1 && g.c < 8) return {QUERN_REASON_SHAPE, "src.size[1] / groups", g.c, 8};
  return refuse_band(g, up(g.c, depth) * depth * parts / 2,
                     [&](const band_extent&) { return band_bytes(g, parts, 1, 1) / 4; });
}

blocking choose_blocks(const quern_problem& p, const kernel&, const machine& m, uint32_t threads, int parts) {
  const geometry g = split_geometry(p);
  const packed_steps steps = {g, parts};
  const layouts in(p, g);
  blocking b = {};
  b.packed_bytes = uint64_t(steps.size());
  const phase ph = phase_of(g, 0);
  const int64_t rows = std::max<int64_t>(1, ph.h.out_count), width = std::max<int64_t>(1, ph.w.out_count);
  // More of L2 where weights pass by once a band.
  const double room = double(m.l2) * (b.packed_bytes > m.l2 / 2 ? 0.45 : 0.3);

  // As many rows as there is room for; where one row is too long, pieces of it.
  b.word[columns] = 1;
  while (!g.transposed && b.word[columns] < width && band_bytes(g, parts, 1, up(width, b.word[columns])) > room &&
         up(width, b.word[columns]) > 2 * tile)
    b.word[columns] *= 2;
  b.word[columns] = std::min(b.word[columns], width);
  const int64_t piece = up(width, b.word[columns]);
  const double one = band_bytes(g, parts, 1, piece), two = std::max(one, band_bytes(g, parts, 2, piece));
  int64_t most = two > one ? std::clamp<int64_t>(int64_t((room - one) / (two - one)) + 1, 1, rows) : rows;
  // Rows that two bands split: at most as many as a band has itself.
  const band_axis h(ph.h), w(ph.w);
  if (most * h.pixel < (h.taps - 1) * h.tap)
    most = std::clamp<int64_t>(int64_t((0.9 * double(m.l2) - one) / std::max(1.0, two - one)) + 1, most, rows);
  b.word[bands] = up(rows, most);
  b.word[block_panels] = std::max<int64_t>(1, steps.count()), b.word[blocks] = 1;
  const auto as_flat = [&] {
    const int64_t lines = up(rows, b.word[bands]);
    b.word[flat] = may_be_flat(h, w) && band_tiles(true, lines, piece, w.places(piece)).cycles() <
                                            band_tiles(false, lines, piece, w.places(piece)).cycles();
  };
  as_flat();
  b.cycles = compute_cycles(g, b, parts, !in.src, !in.dst);
  b.workers = useful_workers(m, b.cycles, threads);

  // Threads share bands while each has two, else weights.
  const int64_t fixed = std::max<int64_t>(1, g.n * g.groups * g.phases() * std::max<int64_t>(1, ph.d.out_count));
  const int64_t wanted = b.workers > 1 ? 2 * int64_t(b.workers) : 1;
  int64_t shares = fixed * b.word[bands] * b.word[columns];
  if (shares < wanted) {
    const int64_t least = std::max<int64_t>(1, up(4 * tile, piece));  // rows of a band
    b.word[bands] = std::max(b.word[bands], std::min(up(rows, least), up(wanted, fixed * b.word[columns])));
    shares = fixed * b.word[bands] * b.word[columns];
    if (shares < wanted) b.word[block_panels] = up(steps.count(), std::min(steps.count(), up(wanted, shares)));
    as_flat();
    b.word[block_panels] = std::max<int64_t>(1, b.word[block_panels]);
    b.word[blocks] = std::max<int64_t>(1, up(steps.count(), b.word[block_panels]));
    b.cycles = compute_cycles(g, b, parts, !in.src, !in.dst);
  }

  // Weights that L2 does not keep beside the band pass in chunks.
  const int64_t panel_bytes = std::max<int64_t>(1, steps.panel_bytes(ph.taps()));
  const bool stays = panel_bytes * b.word[block_panels] <= int64_t(m.l2) / 2;
  b.word[chunk] = stays ? b.word[block_panels] : std::max<int64_t>(1, int64_t(m.l2) / 8 / panel_bytes);
  const double band = band_bytes(g, parts, up(rows, b.word[bands]), piece);
  const double all = band + double(buffers::bytes(g.filter_size() * steps.blocks())) + 4 * QUERN_ALIGN;
  b.workspace_bytes = uint64_t(std::min(all, 0x1p62)) / QUERN_ALIGN * QUERN_ALIGN;
  return b;
}

cost predict(const quern_problem& p, const kernel&, const blocking& b, const machine& m, int parts) {
  const geometry g = split_geometry(p);
  const double image = 4.0 * double(g.in[0] * g.in[1] * g.in[2] * g.c * g.n * g.groups);
  const double output = 8.0 * double(g.out[0] * g.out[1] * g.out[2] * g.k * g.n * g.groups);
  const double weights = double(b.packed_bytes);
  const double streamed =
      weights > double(m.l2) / 2 ? weights * double(b.word[bands] * b.word[columns] * g.n) : weights;
  // A band beyond L2 comes from L3 for every chunk of panels.
  const double rows = double(up(std::max<int64_t>(1, g.out[1]), b.word[bands]));
  const double band = band_bytes(g, parts, int64_t(rows), up(std::max<int64_t>(1, g.out[2]), b.word[columns]));
  const double reread = band > 0.6 * double(m.l2) ? band * double(b.word[bands] * b.word[columns] * g.n * g.groups) *
                                                        double(up(up(g.k, panel), std::max<int64_t>(1, b.word[chunk])))
                                                  : 0;
  const double traffic = (streamed + image + output) / 8 + reread / 6, compute = b.cycles;
  // The unit hides less than multiply-adds do.
  const double cycles = std::max(compute, traffic) + 0.4 * std::min(compute, traffic);
  const packed_steps steps = {g, parts};
  return {shared_ns(m, cycles, b.workers), 2.0 * (parts == 3 ? 6 : 3) * double(steps.taps * steps.blocks() * depth) *
                                               double(steps.halves() * tile) * double(g.out[0] * g.out[1] * g.out[2]) *
                                               double(g.n * g.groups) / double(std::max<int64_t>(1, g.phases()))};
}

// Of a product, what is left out and what rounding the weights' parts adds to the sum of magnitudes; then 16
// multiply-adds, a sum of two, and one for each product (SDM, TDPBF16PS).
double error_bound(const quern_problem& p, int parts) {
  const geometry g = geometry_of(p);
  const double steps = double(g.filter_size()) * std::ceil(double(g.c) / depth);
  const double left_out = parts == 3 ? 0x1.1p-22 : 0x1.9p-15;
  const double n = (17 + (parts == 3 ? 6 : 3) * steps) * 0x1p-24;
  return n < 0.5 ? left_out + 1.02 * n / (1 - n) : std::numeric_limits<double>::infinity();
}

namespace {

// The upper half of a float's bits, rounded to nearest; not to infinity.
uint16_t part_of(float x) {
  constexpr uint32_t infinite = 0x7f800000;
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7fffffff) > infinite) return 0x7fc0;
  const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  return uint16_t(((rounded & infinite) == infinite ? bits : rounded) >> 16);
}
float float_of(uint16_t part) {
  const uint32_t bits = uint32_t{part} << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload, int parts) {
  const geometry g = split_geometry(j.problem);
  const packed_steps steps = {g, parts};
  const auto place = [&](int64_t group, int64_t k, const phase& ph, int64_t before, int64_t tap, int64_t c, float w) {
    const int64_t plane = ph.h.taps * ph.w.taps, width = steps.width(k / panel), cb = c / depth;
    const int64_t step = (tap / plane * steps.blocks() + cb) * plane + tap % plane;
    char* to = payload + steps.phase(group, before) + k / panel * steps.panel_bytes(ph.taps()) +
               step * width * steps.tile_bytes();
    const int64_t at = k % panel / tile * tile * depth + c % tile * panel + k % tile * 2 + c % depth / tile;
    for (int part = 0; part < parts; ++part) {
      const uint16_t bits = part_of(w);
      w -= float_of(bits);
      memcpy(to + (part * width * tile * depth + at) * 2, &bits, sizeof bits);
    }
  };
  pack_weights(
      g, first, count, static_cast<const float*>(weights),
      [&](int64_t group, int64_t k, int64_t, const phase& ph, int64_t before, int64_t tap, int64_t c, float w) {
        place(group, k, ph, before, tap, c, w);
        // Who comes last fills up with zeros.
        const int64_t c_end = c == g.c - 1 ? up(g.c, depth) * depth : c + 1;
        const int64_t k_end = k == g.k - 1 ? up(g.k, tile) * tile : k + 1;
        for (int64_t z = c + 1; z < c_end; ++z) place(group, k, ph, before, tap, z, 0);
        for (int64_t y = k + 1; y < k_end; ++y)
          for (int64_t z = c; z < c_end; ++z) place(group, y, ph, before, tap, z, 0);
      });
}

namespace {

// What the loops of an item share.
struct work {
  const job& j;
  const geometry& g;
  const phase& ph;
  const layouts& in;
  const epilogue_f32& epilogue;
  int parts;
  band_axis h, w;
  range td, rows, cols;  // taps along d, rows and columns of outputs
  int64_t group;
  const float* image;     // of this batch element, channel 0
  float* dst;             // of this batch element, first pixel of the phase and depth, channel 0
  const float* residual;  // as dst
  band_sizes size;
  char* band;
  buffers buffer;

  int64_t places() const { return h.places(rows.count()); }
};

// `count` pixels that lie `step` elements apart into places that are `apart` bytes apart.
void split_run(const work& t, const float* pixels, int64_t count, int64_t step, char* to, int64_t apart) {
  const geometry& g = t.g;
  const auto image = t.j.row.split->image[t.parts - 2];
  split_image_f32 call = {};
  call.pixel = size_t(apart), call.block = size_t(t.size.block);
  if (t.in.src) {
    call.pixels = size_t(count), call.channels = size_t(g.c);
    call.src = pixels + g.src_channel(t.group * g.c);
    call.src_pixel = step, call.src_run = next_run(g.src, g.src_block);
    call.parts = to;
    return image(call);
  }
  call.src = t.buffer.pixels, call.src_pixel = depth, call.src_run = tile;
  for (int64_t x = 0; x < count; x += gathered_pixels)
    for (int64_t c = 0; c < g.c; c += depth) {
      const range channels = {t.group * g.c + c, t.group * g.c + std::min(g.c, c + depth)};
      call.pixels = size_t(std::min(gathered_pixels, count - x)), call.channels = size_t(channels.count());
      gather(t.j.row, {pixels + x * step, int64_t(call.pixels), step, g.src[1], g.src_block}, channels, t.buffer.pixels,
             depth, 1);
      call.parts = to + x * apart + c / depth * t.size.block;
      image(call);
    }
}

// Line by line, along the axis on which pixels lie closer to each other.
void split_band(const work& t, int64_t d) {
  const geometry& g = t.g;
  struct side {
    const band_axis& axis;
    int64_t first, count, src, apart;  // places, elements from input to input, bytes from place to place
  };
  side along = {t.w, t.cols.begin * t.w.pixel, t.size.pitch, g.src[4], t.size.pixel};
  side across = {t.h, t.rows.begin * t.h.pixel, t.h.places(t.rows.count()), g.src[3], t.size.pitch * t.size.pixel};
  const bool down = g.src[3] < g.src[4] && across.count > 1;
  const side &line = down ? across : along, &lines = down ? along : across;
  const range on = line.axis.inside({line.first, line.first + line.count});
  const auto clear = [&](char* to, int64_t count) {
    for (int64_t cb = 0; cb < up(g.c, depth); ++cb)
      for (int64_t i = 0; i < count; ++i) memset(to + cb * t.size.block + i * line.apart, 0, size_t(t.size.pixel));
  };
  for (int64_t u = t.td.begin; u < t.td.end; ++u) {
    const float* plane = t.image + (t.ph.d.in_begin + d * t.ph.d.in_step + u * t.ph.d.tap_step) * g.src[2];
    for (int64_t i = 0; i < lines.count; ++i) {
      const int64_t y = lines.axis.input(lines.first + i);
      char* to = t.band + (u - t.td.begin) * along.count * across.count * t.size.pixel + i * lines.apart;
      if (y < 0 || y >= lines.axis.in_size || on.count() == 0) {
        clear(to, line.count);
        continue;
      }
      clear(to, on.begin - line.first);
      clear(to + (on.end - line.first) * line.apart, line.first + line.count - on.end);
      split_run(t, plane + y * lines.src + line.axis.input(on.begin) * line.src, on.count(), line.axis.step * line.src,
                to + (on.begin - line.first) * line.apart, line.apart);
    }
  }
}

// Two tiles of outputs: where each row goes.
struct tile_pair {
  struct run {
    int64_t row, count, y, x;  // rows of a block that are pixels side by side
  };
  run runs[2 * tile];
  int64_t count = 0, rows = 0, tiles = 0;
  ptrdiff_t a, a_tile;  // bytes in the band
  float* dst[2 * tile];
  const float* residual[2 * tile];
};

class tile_walk {
 public:
  explicit tile_walk(const work& t)
      : t_(t),
        flat_(t.j.blocks.word[flat]),
        tiles_(flat_, t.rows.count(), t.cols.count(), t.size.pitch),
        run_(flat_ ? (t.rows.count() - 1) * t.size.pitch + t.cols.count() : t.cols.count()),
        pieces_(std::max<int64_t>(1, up(run_, tile))) {}

  int64_t tiles() const { return tiles_.count; }
  int64_t rows() const { return tiles_.rows; }

  // Tiles `index` and the one behind it.
  void pair(int64_t index, tile_pair& p) const {
    p.tiles = std::min<int64_t>(2, tiles_.count - index), p.rows = p.tiles * tiles_.rows, p.count = 0;
    ptrdiff_t at[2] = {};
    for (int64_t i = 0; i < p.tiles; ++i) {
      const int64_t line = (index + i) / pieces_;
      const range piece = part(run_, (index + i) % pieces_, pieces_);
      const int64_t place = line * t_.h.pixel * t_.size.pitch + piece.begin * t_.w.pixel;
      at[i] = place * t_.size.pixel;
      if (!flat_) {
        p.runs[p.count++] = {i * tiles_.rows, piece.count(), line, piece.begin};
        continue;
      }
      for (int64_t o = piece.begin; o < piece.end;) {
        const int64_t y = o / t_.size.pitch, x = o % t_.size.pitch;
        const int64_t inside = std::min(piece.end - o, t_.cols.count() - x);
        if (inside > 0) p.runs[p.count++] = {i * tiles_.rows + o - piece.begin, inside, y, x};
        o = (inside > 0 ? o + inside : std::min(piece.end, (y + 1) * t_.size.pitch));
      }
    }
    p.a = at[0], p.a_tile = at[1] - at[0];
  }

 private:
  const work& t_;
  bool flat_;
  band_tiles tiles_;
  int64_t run_, pieces_;
};

// Elements of a tensor to a run's first pixel.
int64_t offset_of(const work& t, const tile_pair::run& r, const int64_t* stride) {
  return (t.rows.begin + r.y) * t.ph.h.out_step * stride[3] + (t.cols.begin + r.x) * t.ph.w.out_step * stride[4];
}

// Where the rows of a block are in dst and the residual, from channel 0 on, or in buffers.
void aim(const work& t, tile_pair& p) {
  const geometry& g = t.g;
  std::fill_n(p.dst, p.rows, nullptr);
  for (int64_t i = 0; i < p.count; ++i) {
    const tile_pair::run& r = p.runs[i];
    float* const dst = t.in.dst ? t.dst + offset_of(t, r, g.dst) : t.buffer.out + r.row * panel;
    const int64_t step = t.in.dst ? t.ph.w.out_step * g.dst[4] : panel;
    for (int64_t x = 0; x < r.count; ++x) p.dst[r.row + x] = dst + x * step;
    if (!t.residual) continue;
    const float* const add =
        t.in.residual ? t.residual + offset_of(t, r, g.residual) : t.buffer.residual + r.row * panel;
    const int64_t apart = t.in.residual ? t.ph.w.out_step * g.residual[4] : panel;
    for (int64_t x = 0; x < r.count; ++x) p.residual[r.row + x] = add + x * apart;
  }
}

// A block on its way to dst.
struct outgoing {
  split_output_f32 call;
  const tile_pair* pair;
};

void address(const work& t, const tile_pair& p, int64_t slot, int64_t channel, int64_t n, outgoing& o) {
  const geometry& g = t.g;
  const int64_t buffered = slot * block_floats;
  o.pair = &p;
  o.call = {.rows = size_t(p.rows),
            .n = size_t(n),
            .sums = t.buffer.sums + buffered,
            .dst = p.dst,
            .residual = p.residual,
            .to = t.in.dst ? g.dst_channel(channel) : buffered,
            .from = t.in.residual ? g.residual_channel(channel) : buffered,
            .dst_half = t.in.dst ? next_run(g.dst, g.dst_block) : tile,
            .residual_half = t.in.residual ? next_run(g.residual, g.residual_block) : tile,
            .channel = size_t(channel),
            .epilogue = &t.epilogue};
  if (!t.residual || t.in.residual) return;
  for (int64_t i = 0; i < p.count; ++i) {
    const tile_pair::run& r = p.runs[i];
    gather(t.j.row,
           {t.residual + offset_of(t, r, g.residual), r.count, t.ph.w.out_step * g.residual[4], g.residual[1],
            g.residual_block},
           {channel, channel + n}, t.buffer.residual + buffered + r.row * panel, panel, 1);
  }
}

// What is finished, into layouts that the kernel does not write.
void sow(const work& t, const outgoing& o) {
  if (t.in.dst) return;
  const geometry& g = t.g;
  const range channels = {int64_t(o.call.channel), int64_t(o.call.channel + o.call.n)};
  for (int64_t i = 0; i < o.pair->count; ++i) {
    const tile_pair::run& r = o.pair->runs[i];
    scatter(t.j.row, o.pair->dst[r.row] + o.call.to, panel, 1, channels,
            {t.dst + offset_of(t, r, g.dst), r.count, t.ph.w.out_step * g.dst[4], g.dst[1], g.dst_block});
  }
}

// Panels [first, last) of the band; `weights` of panel 0.
void multiply(const work& t, const char* weights, int64_t first, int64_t last) {
  const geometry& g = t.g;
  const kernel& row = t.j.row;
  const packed_steps steps = {g, t.parts};
  const tile_walk walk(t);
  const int64_t plane = t.ph.h.taps * t.ph.w.taps, chunk_panels = t.j.blocks.word[chunk];
  const int64_t panel_bytes = steps.panel_bytes(t.ph.taps());
  split_products_f32 call = {};
  for (int64_t u = 0; u < t.td.count(); ++u)
    for (int64_t cb = 0; cb < steps.blocks(); ++cb)
      for (int64_t v = 0; v < t.ph.h.taps; ++v)
        for (int64_t s = 0; s < t.ph.w.taps; ++s)
          t.buffer.step[call.steps++] =
              cb * t.size.block + ((u * t.places() + v * t.h.tap) * t.size.pitch + s * t.w.tap) * t.size.pixel;
  call.rows = size_t(walk.rows()), call.step = t.buffer.step;
  call.a_row = t.w.pixel * t.size.pixel;
  tile_pair pairs[2];
  outgoing blocks[2] = {};
  int64_t turn = 0, slot = 0;
  outgoing* before = nullptr;
  row.split->begin(size_t(walk.rows()));
  for (int64_t from = first; from < last; from += chunk_panels) {
    const int64_t to = std::min(last, from + chunk_panels);
    // The next chunk, or the first again for the next band, a share of its lines with each call.
    const bool passes = chunk_panels < last - first;
    const int64_t next = to < last ? to : first, fetched = std::min(chunk_panels, last - next) * panel_bytes / 64;
    const int64_t calls = std::max<int64_t>(1, up(walk.tiles(), 2) * (to - from)), share = up(fetched, calls);
    const char* ahead = weights + next * panel_bytes;
    int64_t left = passes ? fetched : 0;
    for (int64_t index = 0; index < walk.tiles(); index += 2) {
      tile_pair& p = pairs[turn ^= 1];
      walk.pair(index, p);
      aim(t, p);
      call.tiles = size_t(p.tiles), call.a = t.band + p.a, call.a_tile = p.a_tile;
      for (int64_t k = from; k < to; ++k) {
        outgoing& o = blocks[slot ^= 1];
        const int64_t n = std::min(panel, g.k - k * panel);
        address(t, p, slot, t.group * g.k + k * panel, n, o);
        call.n = size_t(n), call.sums = t.buffer.sums + slot * block_floats;
        call.b = weights + k * panel_bytes + t.td.begin * plane * steps.blocks() * steps.width(k) * steps.tile_bytes();
        call.before = before ? &before->call : nullptr;
        call.ahead = ahead, call.lines = size_t(std::min(share, left));
        ahead += 64 * call.lines, left -= int64_t(call.lines);
        row.split->products[t.parts - 2](call);
        if (before) sow(t, *before);
        before = &o;
      }
    }
  }
  row.split->end();
  if (before) row.split->finish(before->call), sow(t, *before);
}

}  // namespace

void run(const job& j, const execution& e, int parts) {
  const geometry g = split_geometry(j.problem);
  const packed_steps steps = {g, parts};
  const layouts in(j.problem, g);
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t* word = j.blocks.word;
  const int64_t depths = phase_of(g, 0).d.out_count;
  const int64_t items = g.n * g.groups * g.phases() * depths * word[bands] * word[columns] * word[blocks];
  for_each_item(j, e, items, [&](int64_t item, char* workspace) {
    int64_t rest = item;
    const auto digit = [&](int64_t base) {
      const int64_t value = rest % base;
      rest /= base;
      return value;
    };
    const int64_t block = digit(word[blocks]), column = digit(word[columns]), band = digit(word[bands]);
    const int64_t d = digit(depths), f = digit(g.phases()), group = digit(g.groups), n = rest;
    const phase ph = phase_of(g, f);
    const range rows = part(ph.h.out_count, band, word[bands]), cols = part(ph.w.out_count, column, word[columns]);
    const int64_t first = block * word[block_panels], last = std::min(steps.count(), first + word[block_panels]);
    if (d >= ph.d.out_count || rows.count() == 0 || cols.count() == 0 || first >= last) return;
    const auto begin = [&](const int64_t* stride) {
      return n * stride[0] + (ph.d.out_begin + d * ph.d.out_step) * stride[2] + ph.h.out_begin * stride[3] +
             ph.w.out_begin * stride[4];
    };
    const band_axis h(ph.h), w(ph.w);
    const range td = ph.d.taps_at(d);
    const bool sums = td.count() * ph.h.taps * ph.w.taps * g.c > 0;  // over anything
    const band_sizes size(g, parts, sums ? td.count() * h.places(rows.count()) : 0,
                          sums ? w.places(cols.count()) : cols.count(), w.pixel);
    const work t = {
        .j = j,
        .g = g,
        .ph = ph,
        .in = in,
        .epilogue = epilogue,
        .parts = parts,
        .h = h,
        .w = w,
        .td = td,
        .rows = rows,
        .cols = cols,
        .group = group,
        .image = static_cast<const float*>(e.args.src) + n * g.src[0],
        .dst = static_cast<float*>(e.args.dst) + begin(g.dst),
        .residual = epilogue.residual ? static_cast<const float*>(e.args.residual) + begin(g.residual) : nullptr,
        .size = size,
        .band = workspace,
        .buffer = buffers(workspace + up(size.bytes, QUERN_ALIGN) * QUERN_ALIGN)};
    if (sums) split_band(t, d);
    multiply(t, e.packed + steps.phase(group, taps_before(g, f)), first, last);
  });
}

}  // namespace quern::split_driver
