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
// Pixels that become as many pixels need no band, unless weights are many: row.split->line splits a tile of them beside
// the products of the one before, and takes an item at once.
//
// Tiles are pieces of a row of outputs, or of all rows as they follow each other in the band, with what lies between
// rows thrown away: whichever takes less.  A filter along x alone runs with its axes changed, so that padding lies
// before and behind whole rows.  k is never cut: it runs over taps along d, 32 channels at a time, taps along h and w.
#include "conv_split.h"

#include <string.h>

#include "split_weights.h"

namespace quern::split_driver {
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
  // Weights that L2 does not keep are asked for ahead, and the first again for the next band: with each call as many
  // lines as all calls read, so far ahead that the first pair of tiles finds what it reads of a chunk, and no farther,
  // as L2 is to keep the chunk too.
  const int64_t calls_of_panel = std::max<int64_t>(1, up(walk.tiles(), 2)), panel_lines = panel_bytes / 64;
  const int64_t all_lines = (last - first) * panel_lines, share = up(panel_lines, calls_of_panel);
  const bool passes = chunk_panels < last - first;
  int64_t line = std::min(all_lines, chunk_panels * (panel_lines - share) + 512);
  for (int64_t from = first; from < last; from += chunk_panels) {
    const int64_t to = std::min(last, from + chunk_panels);
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
        if (line == all_lines) line = 0;
        call.ahead = weights + first * panel_bytes + 64 * line;
        call.lines = passes ? size_t(std::min(share, all_lines - line)) : 0;
        line += int64_t(call.lines);
        row.split->products[t.parts - 2](call);
        if (before) sow(t, *before);
        before = &o;
      }
    }
  }
  row.split->end();
  if (before) row.split->finish(before->call), sow(t, *before);
}

// A piece of a line, without a band.
void pass_line(const work& t, int64_t d, const char* weights, int64_t first, int64_t last) {
  const geometry& g = t.g;
  const int64_t panel_bytes = packed_steps{g, t.parts}.panel_bytes(1), channel = t.group * g.k + first * panel;
  const int64_t count = t.rows.count() * t.cols.count(), tiles = up(count, tile), rows = up(count, tiles);
  const auto begin = [&](const int64_t* stride) { return t.rows.begin * stride[3] + t.cols.begin * stride[4]; };
  split_line_f32 call = {};
  call.image = {.pixels = size_t(count),
                .channels = size_t(g.c),
                .src = t.image + d * g.src[2] + begin(g.src) + g.src_channel(t.group * g.c),
                .src_pixel = g.src[4],
                .src_run = next_run(g.src, g.src_block),
                .parts = t.band,
                .pixel = size_t(t.size.pixel),
                .block = size_t(rows * t.size.pixel)};
  call.tiles = size_t(tiles), call.rows = size_t(rows), call.n = size_t(std::min(last * panel, g.k) - first * panel);
  call.b = weights + first * panel_bytes, call.panel = size_t(panel_bytes), call.passes = t.j.blocks.word[weights_pass];
  call.sums = t.buffer.sums;
  call.dst = t.dst + begin(g.dst) + g.dst_channel(channel);
  call.dst_pixel = g.dst[4], call.dst_half = next_run(g.dst, g.dst_block);
  if (t.residual) {
    call.residual = t.residual + begin(g.residual) + g.residual_channel(channel);
    call.residual_pixel = g.residual[4], call.residual_half = next_run(g.residual, g.residual_block);
  }
  call.channel = size_t(channel), call.epilogue = &t.epilogue;
  t.j.row.split->line[t.parts - 2](call);
}

}  // namespace

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload, int parts) {
  const geometry g = split_geometry(j.problem);
  pack_steps({g, parts}, first, count, static_cast<const float*>(weights), payload);
}

void run(const job& j, const execution& e, int parts) {
  const geometry g = split_geometry(j.problem);
  const packed_steps steps = {g, parts};
  const layouts in(j.problem, g);
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t* word = j.blocks.word;
  for_each_band(j, e, g, word[blocks], word[columns], word[bands], [&](const band_task& at, char* workspace) {
    const int64_t first = at.block * word[block_panels], last = std::min(steps.count(), first + word[block_panels]);
    if (first >= last) return;
    const phase& ph = at.ph;
    const band_axis h(ph.h), w(ph.w);
    const range td = ph.d.taps_at(at.d);
    const bool sums = td.count() * ph.h.taps * ph.w.taps * g.c > 0;  // over anything
    const band_sizes size = word[line] ? line_parts(g, parts)
                                       : band_sizes(g, parts, sums ? td.count() * h.places(at.rows.count()) : 0,
                                                    sums ? w.places(at.cols.count()) : at.cols.count(), w.pixel);
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
        .rows = at.rows,
        .cols = at.cols,
        .group = at.group,
        .image = static_cast<const float*>(e.args.src) + at.n * g.src[0],
        .dst = static_cast<float*>(e.args.dst) + at.begin(g.dst),
        .residual = epilogue.residual ? static_cast<const float*>(e.args.residual) + at.begin(g.residual) : nullptr,
        .size = size,
        .band = workspace,
        .buffer = buffers(workspace + up(size.bytes, QUERN_ALIGN) * QUERN_ALIGN)};
    const char* const weights = e.packed + steps.phase(at.group, taps_before(g, at.f));
    if (word[line]) return pass_line(t, at.d, weights, first, last);
    if (sums) split_band(t, at.d);
    multiply(t, weights, first, last);
  });
}

}  // namespace quern::split_driver
