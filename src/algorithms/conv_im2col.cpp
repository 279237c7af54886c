// SPDX-License-Identifier: MIT
//
// Convolution, forward and transposed, as GEMM over the im2col matrix, blocked for L2, the matrix packed
// block by block straight from the image (im2col.h).  Any layout: where output channels are densest in
// dst they run across the tile and weights are B, otherwise pixels do and weights are A.
//
//   item = image, group, phase, block of pixels, block of channels          one task of the parallel_for
//     for kc of the taps and channels
//       pack the block of pixels, or read it where it lies                   stays in L2
//       for the weights of nr (or mr) output channels                        stay in L1
//         for the pixels of mr (or nr)
//           row.gemm
#include "conv_im2col.h"

#include "driver.h"
#include "im2col.h"
#include "weights.h"

namespace quern {
namespace {

enum word { k_block, pixel_block, pixel_blocks, channel_block, channel_blocks, flags, streams };
enum flag : uint32_t { channels_across = 1, in_place = 2, scattered = 4, asks_ahead = 8 };

constexpr int64_t padding = 16;  // between packed rows: a power of two would fall into few sets of L1

// Whether output channels run across the tile.
bool across_tiles(const geometry& g) { return channels_dense(g.dst, g.dst_block) || g.dst_block != 1; }

// The images of a batch as planes of depth: blocks of pixels reach from image to image, and weights pass once for all,
// however few pixels each has.  Planes of channels would break tiles at the end of each.
geometry batch_in_depth(geometry g) {
  if (!across_tiles(g) || g.in[0] != 1 || g.out[0] != 1 || g.filter[0] != 1 || g.pad[0] != 0) return g;
  g.in[0] = g.out[0] = std::exchange(g.n, 1);
  g.stride[0] = g.dilation[0] = 1;
  for (int64_t* stride : {g.src, g.dst, g.residual}) stride[2] = stride[0];
  return g;
}

// Pixels follow each other in memory with one stride for this many, counted in the phase's order.
int64_t line_length(const phase& ph, const int64_t* stride, bool input) {
  const auto step = [&](const axis& a, int i) { return (input ? a.in_step : a.out_step) * stride[i]; };
  int64_t length = ph.w.out_count;
  if (ph.h.out_count == 1 || step(ph.h, 3) == length * step(ph.w, 4)) {
    length *= ph.h.out_count;
    if (ph.d.out_count == 1 || step(ph.d, 2) == length * step(ph.w, 4)) length *= ph.d.out_count;
  }
  return length;
}

int64_t line_length(const geometry& g, const phase& ph, bool sown, bool residual, bool image) {
  int64_t length = sown ? ph.outputs() : line_length(ph, g.dst, false);
  if (residual && !sown) length = std::min(length, line_length(ph, g.residual, false));
  if (image) length = std::min(length, line_length(ph, g.src, true));
  return length;
}

// One tap, always on the image: the matrix is the image itself.
bool pointwise(const geometry& g) {
  if (g.transposed) return false;
  for (int i = 0; i < 3; ++i)
    if (g.filter[i] != 1 || g.pad[i] != 0 || (g.out[i] - 1) * g.stride[i] >= g.in[i]) return false;
  return true;
}

// How many times its size a row of channels takes of a cache, where it lies: rows a power of two apart leave the sets
// between them empty.
double room_of_rows(const geometry& g) {
  const int64_t pitch = g.stride[2] * g.src[4], apart = pitch & -pitch;
  return apart < 16 ? 1 : std::clamp(double(apart) / double(std::max<int64_t>(1, g.c)), 1.0, 8.0);
}

uint32_t flags_of(const quern_problem& p, const geometry& g) {
  uint32_t f = 0;
  const int64_t out_step = g.phases(2);
  // Tiles go straight to where they belong, and take the residual from there, where that is dense across them.
  const auto fits = [&](const int64_t* stride, int64_t block) {
    return f & channels_across ? channels_dense(stride, block) : block == 1 && out_step * stride[4] == 1;
  };
  if (across_tiles(g)) f |= channels_across;
  if (!fits(g.dst, g.dst_block) || (p.epilogue.residual && !fits(g.residual, g.residual_block))) f |= scattered;
  const bool image_fits =
      f & channels_across ? channels_dense(g.src, g.src_block) : g.src_block == 1 && g.src[4] == 1 && g.stride[2] == 1;
  // For so many outputs rows that waste half of the caches are worth a copy (1 to 17 % of strided layers, Zen 3).
  const bool copies = f & channels_across && g.k >= 512 && room_of_rows(g) >= 2;
  if (pointwise(g) && image_fits && !copies) f |= in_place;
  return f;
}

struct phase_extent {
  int64_t k, pixels, width;  // of the largest phase
};

phase_extent extent_of(const geometry& g) {
  const phase ph = phase_of(g, 0);
  return {g.taps_of_largest_phase() * g.c, ph.outputs(), ph.w.out_count};
}

}  // namespace

namespace im2col_driver {

refusal refuse(const full_problem& p, const kernel&) { return geometry_of(p).refuse_phases(); }

static double compute_cycles(const geometry& g, const kernel& row, const machine& on, const blocking& b) {
  const phase_extent x = extent_of(g);
  const bool across = b.word[flags] & channels_across;
  const int64_t rows = across ? x.pixels : g.k, columns = across ? g.k : x.pixels;
  const cut tiles(std::max<int64_t>(rows, 1), row.mr);
  const double m = double(tiles.count) / double(tiles.tiles);
  const double whole = double(columns / row.nr), tail = double(columns % row.nr);
  const double k = double(x.k), parts = double(std::max<int64_t>(1, up(x.k, std::max<int64_t>(1, b.word[k_block]))));
  // Pixels across the tile pass by all of the block's for each tile of channels.
  const double again = across ? 0 : k / parts * double(b.word[pixel_block]);
  const auto tiles_of = [&](double n) {
    return tile_cycles(row, on, m, n, k / parts) + refill_cycles(row, on, m, k / parts * n, again);
  };
  double cycles = whole * tiles_of(double(row.nr));
  if (tail > 0) cycles += tiles_of(tail);
  cycles += (whole + (tail > 0)) * row_cycles(m, k / parts);
  cycles *= parts * double(tiles.tiles);
  if (across && b.word[flags] & in_place) cycles *= row_clash(on, m, g.stride[2] * g.src[4]);
  // Packing writes every element once per block of channels: about a vector of four in two cycles, more
  // where layouts cross.
  if (!(b.word[flags] & in_place)) {
    const bool straight = across ? channels_dense(g.src, g.src_block) || g.src_block != 1
                                 : (g.src_block == 1 && g.src[4] == 1 && g.stride[2] == 1);
    // And what each piece of a line takes at every tap, or filter row where taps merge.
    const double piece = double(std::clamp<int64_t>(x.width, 1, across ? x.width + 1 : row.nr));
    const double taps = k / double(std::max<int64_t>(1, across && straight ? g.c * g.filter[2] : g.c));
    cycles += double(x.pixels) * double(b.word[channel_blocks]) * (k * (straight ? 0.25 : 0.75) + 70 * taps / piece);
  }
  if (b.word[flags] & scattered) cycles += double(rows * columns);
  return cycles * double(g.n * g.groups * g.phases());
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry g = batch_in_depth(geometry_of(p));
  blocking b = {};
  const uint32_t f = flags_of(p, g);
  b.word[flags] = f;
  const bool across = f & channels_across;
  b.order = f & channels_across;
  b.packed_bytes =
      sizeof(float) * uint64_t(across ? weight_panels{g, row.nr, row.vector}.size() : weight_rows{g}.size());
  const phase_extent x = extent_of(g);
  const int64_t pixel_tile = across ? row.mr : row.nr, channel_tile = across ? row.nr : row.mr;
  const int64_t l2 = int64_t(m.l2) / 4;  // elements

  // The panel of kc x nr is to stay near L1 while mr rows pass by it.  Sums wait in dst for the next block:
  // not where they would overwrite a residual that is read in place, nor where tiles are scattered.
  int64_t kc = std::max<int64_t>(1, x.k);
  if (!(f & scattered) && !p.epilogue.residual) kc = up(kc, up(kc, f & in_place ? 1024 : 576));
  const double room = double(kc) * (across && f & in_place ? room_of_rows(g) : 1);
  int64_t pixels = std::max<int64_t>(pixel_tile, int64_t(double(l2) / 2 / room) / pixel_tile * pixel_tile);
  pixels = std::min(pixels, up(std::max<int64_t>(x.pixels, 1), pixel_tile) * pixel_tile);

  b.word[streams] = streams_outputs(g, m);
  b.word[channel_blocks] = 1;
  b.word[channel_block] = up(std::max<int64_t>(g.k, 1), channel_tile);
  b.word[k_block] = kc, b.word[pixel_block] = pixels;
  b.cycles = compute_cycles(g, row, m, b) + (across ? 0 : weight_rows_cycles(b.packed_bytes, m.l2));
  b.workers = useful_workers(m, b.cycles, threads);

  const int64_t fixed = std::max<int64_t>(1, g.n * g.groups * g.phases());
  if (b.workers > 1 && fixed * up(x.pixels, pixels) < 4 * b.workers) {
    const int64_t wanted = up(4 * b.workers, fixed);
    // Where weights exceed L2, splitting channels lets every thread stream its share of them once.
    if (b.packed_bytes > m.l2) {
      const int64_t tiles = b.word[channel_block];
      const int64_t blocks = std::min<int64_t>(tiles, b.workers);
      b.word[channel_block] = up(tiles, blocks);
      b.word[channel_blocks] = up(tiles, b.word[channel_block]);
    }
    pixels =
        std::max(pixel_tile, std::min(pixels, x.pixels / up(wanted, b.word[channel_blocks]) / pixel_tile * pixel_tile));
  }
  // Blocks of nearly the same size.
  const int64_t blocks = std::max<int64_t>(1, up(x.pixels, pixels));
  pixels = up(up(std::max<int64_t>(x.pixels, 1), blocks), pixel_tile) * pixel_tile;
  b.word[pixel_block] = pixels;
  b.word[pixel_blocks] = up(x.pixels, b.word[pixel_block]);
  // The next panel has room beside this one and the pixels.
  if (across && double(pixels + 2 * row.nr) * double(kc) <= double(l2)) b.word[flags] |= asks_ahead;

  int64_t elements = f & in_place ? 0 : across ? pixels * (kc + padding) : pixels * kc;
  if (f & scattered) elements += 2 * row.mr * row.nr;
  b.workspace_bytes = uint64_t(up(elements * 4, QUERN_ALIGN) * QUERN_ALIGN);
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry g = batch_in_depth(geometry_of(p));
  const operand_bytes o(g, b.packed_bytes);
  const double passes = o.weights > double(m.l2) ? double(g.n) * double(b.word[pixel_blocks]) : 1;
  // Lines of planes lie in as many pages as a tile has channels: from a slow L3 each is waited for.
  const bool scattered_lines = !(b.word[flags] & channels_across) && o.all() > double(m.l2) && slow_l3(m);
  const double reads = o.weights * passes + o.image + (scattered_lines ? 0.5 * o.output : 0);
  return overlapped(row, m, b, o.cycles(m, reads, b.word[streams]));
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const float* from = static_cast<const float*>(weights);
  float* to = reinterpret_cast<float*>(payload);
  if (j.blocks.word[flags] & channels_across)
    pack_panels({g, j.row.nr, j.row.vector}, first, count, from, to);
  else
    pack_rows({g}, first, count, from, to);
}

namespace {

// What the loops of one item share.
struct block {
  const job& j;
  const geometry& g;
  const phase& ph;
  const im2col& matrix;
  const epilogue_f32& epilogue;
  const float* weights;  // of this group and phase
  float* dst;            // of this image, first pixel of the phase, channel 0
  const float* residual;
  int64_t channel;         // the group's first
  range pixels, channels;  // channels in tiles
  int64_t k, line;
  float* workspace;
};

int64_t pixel_offset(const phase& ph, const int64_t* stride, int64_t p) {
  const int64_t x = p % ph.w.out_count, y = p / ph.w.out_count % ph.h.out_count,
                d = p / ph.w.out_count / ph.h.out_count;
  return d * ph.d.out_step * stride[2] + y * ph.h.out_step * stride[3] + x * ph.w.out_step * stride[4];
}

int64_t image_offset(const phase& ph, const int64_t* stride, int64_t p) {
  const int64_t x = p % ph.w.out_count, y = p / ph.w.out_count % ph.h.out_count,
                d = p / ph.w.out_count / ph.h.out_count;
  return d * ph.d.in_step * stride[2] + y * ph.h.in_step * stride[3] + x * ph.w.in_step * stride[4];
}

// Calls visit(first of them, run) for the pixels [pixel, pixel + count) of a tensor, line by line.
template <class Float, class Visit>
void pixel_runs(const phase& ph, Float* base, const int64_t* stride, int64_t channel_block, int64_t pixel,
                int64_t count, Visit visit) {
  for (int64_t p = pixel; p < pixel + count;) {
    const int64_t n = std::min(pixel + count, (p / ph.w.out_count + 1) * ph.w.out_count) - p;
    const pixel_run<Float> run = {base + pixel_offset(ph, stride, p), n, ph.w.out_step * stride[4], stride[1],
                                  channel_block};
    visit(p - pixel, run);
    p += n;
  }
}

// A tile that does not lie dense in dst is made in the workspace and sown from there.
void gemm_scattered(const block& b, const gemm_f32& call, int64_t pixel) {
  const kernel& row = b.j.row;
  const bool down = call.out.channels_are_rows;
  const int64_t pixels = int64_t(down ? call.n : call.m), first = int64_t(call.out.channel);
  const range channels = {first, first + int64_t(down ? call.m : call.n)};
  const int64_t to_pixel = down ? 1 : row.nr, to_channel = down ? row.nr : 1;
  float* sums = b.workspace + (b.j.blocks.workspace_bytes / 4 - uint64_t(2 * row.mr * row.nr)) / 16 * 16;
  float* addends = sums + row.mr * row.nr;
  gemm_f32 tile = call;
  tile.out.c = sums, tile.out.ldc = row.nr, tile.out.stream = false;
  if (b.residual) {
    pixel_runs(b.ph, b.residual, b.g.residual, b.g.residual_block, pixel, pixels,
               [&](int64_t i, const pixel_run<const float>& run) {
                 gather(row, run, channels, addends + i * to_pixel, to_pixel, to_channel);
               });
    tile.out.residual = addends, tile.out.ldr = row.nr;
  }
  row.gemm(tile);
  pixel_runs(b.ph, b.dst, b.g.dst, b.g.dst_block, pixel, pixels, [&](int64_t i, const pixel_run<float>& run) {
    scatter(row, sums + i * to_pixel, to_pixel, to_channel, channels, run);
  });
}

void run_across(const block& b) {
  const kernel& row = b.j.row;
  const weight_panels panels = {b.g, row.nr, row.vector};
  const int64_t f = b.j.blocks.word[flags];
  const bool reads_image = f & in_place;
  const int64_t kc = b.j.blocks.word[k_block];
  const size_t pace = size_t(up(row.nr, up(b.pixels.count(), row.mr)));  // of a panel, over those of its tiles
  const gemm_tap tap = {0, 0};
  int64_t k0 = 0;
  do {
    const range ks = {k0, std::min(b.k, k0 + kc)};
    const int64_t lda = reads_image ? b.ph.w.in_step * b.g.src[4] : ks.count() + padding;
    if (!reads_image && ks.count()) b.matrix.pack(b.pixels, ks, b.workspace, lda, 1);
    for (int64_t panel = b.channels.begin; panel < b.channels.end; ++panel) {
      gemm_f32 tile = {};
      tile.n = std::min<int64_t>(row.nr, b.g.k - panel * row.nr);
      tile.k = ks.count();
      tile.taps = 1, tile.tap = &tap;
      tile.lda = lda;
      tile.ldb = panels.width(panel);
      tile.b = b.weights + panel * row.nr * b.k + ks.begin * panels.width(panel);
      tile.out.ldc = b.ph.w.out_step * b.g.dst[4];
      tile.out.ldr = b.ph.w.out_step * b.g.residual[4];
      tile.accumulate = k0 > 0;
      tile.out.epilogue = ks.end == b.k ? &b.epilogue : nullptr;
      set_stream(tile, b.j.blocks.word[streams]);
      tile.out.channel = b.channel + panel * row.nr;
      // The next panel is fetched meanwhile, a share in each step of k: its first tile would wait for L3 (5 to 7 % of
      // layers whose weights exceed L2, Zen 3).
      const float* ahead = nullptr;
      if (f & asks_ahead && panel + 1 < b.channels.end)
        ahead = b.weights + (panel + 1) * row.nr * b.k + ks.begin * panels.width(panel + 1);
      tile.pace = pace;
      for (int64_t p = b.pixels.begin; p < b.pixels.end;) {
        const int64_t end = std::min(b.pixels.end, (p / b.line + 1) * b.line);
        const cut tiles(end - p, row.mr);
        const int64_t to = pixel_offset(b.ph, b.g.dst, p), from = reads_image ? image_offset(b.ph, b.g.src, p) : 0;
        const int64_t add = b.residual ? pixel_offset(b.ph, b.g.residual, p) : 0;
        for (int64_t i = 0; i < tiles.tiles; i += 1 + int64_t(tile.more)) {
          const int64_t first = tiles.begin(i);
          if (f & scattered)
            tile.m = tiles.rows(i);
          else
            take_rows(tile, tiles, i);
          tile.a = reads_image ? b.matrix.group_image() + from + first * lda + ks.begin
                               : b.workspace + (p - b.pixels.begin + first) * lda;
          if (f & scattered) {
            gemm_scattered(b, tile, p + first);
            continue;
          }
          tile.ahead = ahead;
          if (ahead) ahead += (1 + tile.more) * tile.k * tile.pace;
          tile.out.c = b.dst + to + first * int64_t(tile.out.ldc) + tile.out.channel;
          if (b.residual) tile.out.residual = b.residual + add + first * int64_t(tile.out.ldr) + tile.out.channel;
          row.gemm(tile);
        }
        p = end;
      }
    }
    k0 += kc;
  } while (k0 < b.k);
}

void run_down(const block& b) {
  const kernel& row = b.j.row;
  const int64_t f = b.j.blocks.word[flags];
  const bool reads_image = f & in_place;
  const int64_t kc = b.j.blocks.word[k_block];
  const int64_t weight_stride = weight_rows{b.g}.stride(b.k / std::max<int64_t>(b.g.c, 1));
  const gemm_tap tap = {0, 0};
  int64_t k0 = 0;
  do {
    const range ks = {k0, std::min(b.k, k0 + kc)};
    if (!reads_image && ks.count())
      for (int64_t p = b.pixels.begin; p < b.pixels.end; p += row.nr)
        b.matrix.pack({p, std::min(b.pixels.end, p + row.nr)}, ks, b.workspace + (p - b.pixels.begin) * ks.count(), 1,
                      row.nr);
    gemm_f32 tile = {};
    tile.k = ks.count();
    tile.taps = 1, tile.tap = &tap;
    tile.lda = weight_stride;
    tile.ldb = reads_image ? b.g.src[1] : row.nr;
    tile.out.ldc = b.g.dst[1];
    tile.out.ldr = b.g.residual[1];
    tile.accumulate = k0 > 0;
    tile.out.epilogue = ks.end == b.k ? &b.epilogue : nullptr;
    tile.out.channels_are_rows = true;
    set_stream(tile, b.j.blocks.word[streams]);
    tile.step = {.b = reads_image ? row.nr : row.nr * ks.count(), .c = row.nr, .residual = row.nr};
    const cut tiles(b.g.k, row.mr);
    for (int64_t i = b.channels.begin; i < std::min(b.channels.end, tiles.tiles); ++i) {
      const int64_t channel = tiles.begin(i);
      tile.m = tiles.rows(i);
      tile.a = b.weights + channel * weight_stride + ks.begin;
      tile.out.channel = b.channel + channel;
      for (int64_t p = b.pixels.begin; p < b.pixels.end;) {
        const int64_t panel = (p - b.pixels.begin) / row.nr, inside = (p - b.pixels.begin) % row.nr;
        // Whole panels of a line are one call, unless each is scattered.
        const int64_t line_end = std::min(b.pixels.end, (p / b.line + 1) * b.line);
        const int64_t whole = inside == 0 && !(f & scattered) ? (line_end - p) / row.nr : 0;
        tile.more = whole > 1 ? whole - 1 : 0;
        tile.n = std::min<int64_t>(row.nr - inside, line_end - p);
        const int64_t end = p + int64_t(tile.n * (1 + tile.more));
        tile.b = reads_image ? b.matrix.group_image() + image_offset(b.ph, b.g.src, p) + ks.begin * b.g.src[1]
                             : b.workspace + panel * row.nr * ks.count() + inside;
        if (f & scattered) {
          gemm_scattered(b, tile, p);
        } else {
          tile.out.c = b.dst + pixel_offset(b.ph, b.g.dst, p) + int64_t(tile.out.channel) * b.g.dst[1];
          if (b.residual)
            tile.out.residual =
                b.residual + pixel_offset(b.ph, b.g.residual, p) + int64_t(tile.out.channel) * b.g.residual[1];
          row.gemm(tile);
        }
        p = end;
      }
    }
    k0 += kc;
  } while (k0 < b.k);
}

}  // namespace

void run(const job& j, const execution& e) {
  const geometry g = batch_in_depth(geometry_of(j.problem));
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t* word = j.blocks.word;
  const bool across = word[flags] & channels_across;
  const weight_panels panels = {g, j.row.nr, j.row.vector};
  const weight_rows rows = {g};
  const int64_t items = g.n * g.groups * g.phases() * word[pixel_blocks] * word[channel_blocks];
  for_each_item(j, e, items, [&](int64_t item, char* workspace) {
    // Neighbouring items share their channels, so that threads meet in the same weights.
    const int64_t pixel = digit(item, word[pixel_blocks]), channels = digit(item, word[channel_blocks]);
    const int64_t f = digit(item, g.phases()), group = digit(item, g.groups), n = item;
    const phase ph = phase_of(g, f);
    const range pixels = {pixel * word[pixel_block], std::min<int64_t>(ph.outputs(), (pixel + 1) * word[pixel_block])};
    if (pixels.begin >= pixels.end) return;
    const im2col matrix = {g, ph, j.row, static_cast<const float*>(e.args.src) + n * g.src[0], group * g.c};
    const auto begin = [&](const int64_t* stride) {
      return n * stride[0] + ph.d.out_begin * stride[2] + ph.h.out_begin * stride[3] + ph.w.out_begin * stride[4];
    };
    const block b = {
        .j = j,
        .g = g,
        .ph = ph,
        .matrix = matrix,
        .epilogue = epilogue,
        .weights = reinterpret_cast<const float*>(e.packed) +
                   (across ? panels.phase(group, taps_before(g, f)) : rows.phase(group, f)),
        .dst = static_cast<float*>(e.args.dst) + begin(g.dst),
        .residual = epilogue.residual ? static_cast<const float*>(e.args.residual) + begin(g.residual) : nullptr,
        .channel = group * g.k,
        .pixels = pixels,
        .channels = {channels * word[channel_block],
                     std::min<int64_t>(up(g.k, across ? j.row.nr : j.row.mr), (channels + 1) * word[channel_block])},
        .k = ph.taps() * g.c,
        .line = line_length(g, ph, word[flags] & scattered, epilogue.residual, word[flags] & in_place),
        .workspace = reinterpret_cast<float*>(workspace)};
    if (across)
      run_across(b);
    else
      run_down(b);
    if (word[streams]) finish_streams();
  });
}

}  // namespace im2col_driver
}  // namespace quern

QUERN_ALGORITHM(conv_im2col, .about = "GEMM over the im2col matrix, packed from the image block by block",
                .drives = kind::gemm_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_ISA, .pads = true, .refuses_alike = true, .refuse = im2col_driver::refuse,
                .choose_blocks = im2col_driver::choose_blocks, .predict = im2col_driver::predict,
                .least_cycles = least_by_pixels, .error_bound = chain_bound, .pack = im2col_driver::pack,
                .run = im2col_driver::run)
