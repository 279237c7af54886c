// SPDX-License-Identifier: MIT
//
// Layout conversion: neither more nor less than every element, once.
//
//   item = line of pixels, part of it, part of the channels          one task of the parallel_for
//     row.reorder                                                    all that the part has
//
// Axes that follow each other in memory on both sides are one line: an image that is dense on both is one.
#include "driver.h"
#include "problem.h"

namespace quern {
namespace {

enum word { pixel_part, pixel_parts, channel_part, channel_parts, streams, halves, ways };

struct line_axis {
  int64_t count, src, dst;
};

struct layout_walk {
  int64_t channels, pixels;
  reorder_side from, to;
  line_axis line[3];  // what of n, d and h is no part of the run of pixels
  int64_t lines() const { return line[0].count * line[1].count * line[2].count; }
};

reorder_side side_of(const quern_tensor& t, int64_t pixel) {
  int64_t block = block_of(t.layout);
  // Channels densest: one block.
  if (block == 1 && t.stride[1] == 1 && t.size[1] > 1 && pixel != 1) block = up(t.size[1], 16) * 16;
  return {size_t(block), size_t(t.stride[1]), size_t(pixel)};
}

layout_walk walk_of(const quern_problem& p) {
  layout_walk w = {};
  w.channels = p.src.size[1], w.pixels = 1;
  for (line_axis& l : w.line) l = {1, 0, 0};
  int64_t src = 1, dst = 1;
  int lines = 0;
  for (int i : {4, 3, 2, 0}) {
    const line_axis a = {p.src.size[i], p.src.stride[i], p.dst.stride[i]};
    if (a.count == 1) continue;
    if (w.pixels == 1)
      w.pixels = a.count, src = a.src, dst = a.dst;
    else if (a.src == w.pixels * src && a.dst == w.pixels * dst)
      w.pixels *= a.count;
    else
      w.line[lines++] = a;
  }
  w.from = side_of(p.src, src), w.to = side_of(p.dst, dst);

  // Pieces of memory that are the same on both sides are rows without channels.
  const auto rows_of = [&](int64_t piece, int64_t pieces) {
    w.channels = pieces, w.pixels *= piece;
    w.from.block = w.to.block = w.from.pixel = w.to.pixel = 1;
  };
  const auto dense = [](const quern_tensor& t) { return t.stride[1] == block_of(t.layout); };
  const int64_t block = int64_t(w.from.block), piece = std::clamp<int64_t>(w.channels, 1, block);
  const bool alike = block > 1 && w.to.block == w.from.block && w.channels % piece == 0;
  if (w.pixels == 1 && dense(p.src) && dense(p.dst))
    rows_of(w.channels, 1);
  else if (alike && int64_t(w.from.pixel) == piece && w.to.pixel == w.from.pixel)
    rows_of(piece, w.channels / piece);
  return w;
}

refusal refuse(const full_problem&, const kernel&) { return {}; }

// With what is left of last blocks, which is in the same cache lines.
double bytes_of(const quern_problem& p) {
  double bytes = 0;
  for (const quern_tensor* t : {&p.src, &p.dst}) {
    const int64_t block = block_of(t->layout);
    bytes += 4 * double(up(t->size[1], block) * block) * double(t->size[0]) *
             (double(t->size[2]) * double(t->size[3]) * double(t->size[4]));
  }
  return bytes;
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const layout_walk w = walk_of(p);
  blocking b = {};
  const double elements = double(w.channels) * double(w.pixels) * double(w.lines());
  b.cycles = elements * (w.from.block == 1 && w.from.pixel != 1 ? 2 : 4.0 / row.vector);
  b.workers = useful_workers(m, b.cycles + bytes_of(p) / (copy_rate(m, bytes_of(p)) * m.cycle_ns), threads);
  // Kernels take some channels of all pixels before the next ones: the more pixels, the longer the runs of planes and
  // of blocks (1024x32x32 to blocks of 4, 1024 at a time: 0.75 of the time by 128).  Between blocks and all channels
  // side by side, as many as L1 keeps of the latter.  Parts have whole cache lines.
  const int64_t lines = std::max<int64_t>(1, w.lines());
  const bool between = w.from.block > 1 && w.to.block > 1 && std::max(w.from.block, w.to.block) > 16;
  int64_t pixels =
      std::max<int64_t>(between ? 128 : 4096, int64_t(m.l2) / 16 / std::max<int64_t>(1, w.channels) / 16 * 16);
  if (b.workers > 1) pixels = std::clamp<int64_t>(up(up(lines * w.pixels, 4 * b.workers), 16) * 16, 1024, pixels);
  b.word[pixel_part] = pixels;
  b.word[pixel_parts] = std::max<int64_t>(1, up(w.pixels, pixels));
  int64_t channel_parts_wanted = 1;
  if (b.workers > 1 && lines * b.word[pixel_parts] < 4 * b.workers)
    channel_parts_wanted = up(4 * b.workers, lines * b.word[pixel_parts]);
  b.word[channel_part] = up(up(std::max<int64_t>(1, w.channels), channel_parts_wanted), 16) * 16;
  b.word[channel_parts] = std::max<int64_t>(1, up(w.channels, b.word[channel_part]));
  b.word[streams] = streams_copies(bytes_of(p), m);
  b.word[halves] = in_halves(m);
  b.word[ways] = std::clamp<int64_t>(int64_t(m.l1 / 4096), 8, 12);
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const double bytes = bytes_of(p);
  return overlapped(row, m, b, bytes / (copy_rate(m, bytes) * m.cycle_ns));
}

double error_bound(const full_problem&) { return 0; }

// Whether all that a tile writes are whole lines of the cache, written at once.
bool whole_lines(const layout_walk& w, const kernel& row, const float* dst) {
  const auto fits = [](size_t elements) { return elements % 16 == 0; };
  if (reinterpret_cast<uintptr_t>(dst) % 64 != 0 || !fits(w.to.channel)) return false;
  for (const line_axis& l : w.line)
    if (!fits(size_t(l.dst))) return false;
  if (w.to.block > 1 && w.to.pixel == w.to.block && w.to.block <= size_t(row.vector)) return true;
  return row.vector == 16 && (w.to.block == 1 || fits(w.to.pixel));
}

void run(const job& j, const execution& e) {
  const layout_walk w = walk_of(j.problem);
  const int64_t* word = j.blocks.word;
  const float* const src = static_cast<const float*>(e.args.src);
  float* const dst = static_cast<float*>(e.args.dst);
  const bool stream = word[streams] && whole_lines(w, j.row, dst);
  const auto offset = [](const reorder_side& s, int64_t c) {
    return channel_offset(c, int64_t(s.channel), int64_t(s.block));
  };
  for_each_item(j, e, w.lines() * word[pixel_parts] * word[channel_parts], [&](int64_t item, char*) {
    const int64_t c = digit(item, word[channel_parts]) * word[channel_part],
                  x = digit(item, word[pixel_parts]) * word[pixel_part];
    reorder_f32 call = {};
    call.channels = size_t(std::min(word[channel_part], w.channels - c));
    call.pixels = size_t(std::min(word[pixel_part], w.pixels - x));
    call.src = src + offset(w.from, c) + x * int64_t(w.from.pixel);
    call.dst = dst + offset(w.to, c) + x * int64_t(w.to.pixel);
    for (const line_axis& l : w.line) {
      const int64_t i = digit(item, l.count);
      call.src += i * l.src, call.dst += i * l.dst;
    }
    call.from = w.from, call.to = w.to;
    call.stream = stream, call.halves = word[halves];
    call.ways = size_t(word[ways]);
    j.row.reorder(call);
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(reorder, .about = "layout conversion in registers, every element once", .drives = kind::reorder_f32,
                .op = {QUERN_REORDER}, .accuracy = QUERN_ACCURACY_EXACT, .repeat = QUERN_REPEAT_REF,
                .refuses_alike = true, .refuse = refuse, .choose_blocks = choose_blocks, .predict = predict,
                .error_bound = error_bound, .run = run)
