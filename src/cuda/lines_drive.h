// SPDX-License-Identifier: MIT
//
// What the drivers of lines.h share, how outputs are cut into pieces: blocks have strips along x, neighbouring
// channels, and a run of lines.
#pragma once

#include "cuda/few_drive.h"
#include "cuda/lines.h"

namespace quern {

// What of it a kernel has: `outputs` that follow each other share so many inputs.  A walk's are channels, threads each;
// a group's are jobs of a warp.
struct lines_work {
  int64_t unit_outputs, unit_inputs, outputs;
  int64_t scratch_bytes, pad;  // of shared memory; elements between pixels of the ring
  bool planes;                 // neighbouring threads along x, in lines of one channel
  // Clocks of a block, of which a multiprocessor has as many as it can: a line, what is around lines, and what a line
  // waits for, which blocks do together.
  double clocks, start, waits;
};

inline bool whole_pixels(const geometry& g, quern_type type, const void* src) {
  const int64_t count = 16 / type_bytes(type);
  return in_chunks(src, g.src, count, type) && g.c * g.groups % count == 0;
}

// The first phase that has outputs; the others have as many, or nearly so.
inline phase any_phase(const geometry& g) {
  for (int64_t f = 0; f < g.phases(); ++f)
    if (const phase ph = phase_of(g, f); ph.outputs() > 0) return ph;
  return phase_of(g, 0);
}

// Of shared memory.
inline int64_t lines_bytes(const lines_conv& a, const kernel& row, const lines_work& w) {
  return w.scratch_bytes + ring_lines(type_bytes(row.type)) * a.line_at * type_bytes(row.type);
}

// Words of a blocking: strips, wide, sets, lines, shared memory.
inline lines_conv lines_tiling(const geometry& g, const kernel& row, const lines_work& w, const phase& ph,
                               const int64_t* word, const void* src) {
  lines_conv a = {};
  const int64_t strips = word[0], each = word[1] * word[2], count = 16 / type_bytes(row.type);
  a.strips = int32_t(strips), a.wide = int32_t(word[1]), a.sets = int32_t(word[2]), a.lines = int32_t(word[3]);
  a.x = few_axis_of(ph.w, strips * row.nr), a.y = few_axis_of(ph.h, word[3]);
  a.chunks = int32_t(up(w.outputs, each));
  a.unit_outputs = int32_t(w.unit_outputs), a.unit_inputs = int32_t(w.unit_inputs);
  a.inputs = int32_t(g.c * g.groups), a.outputs = int32_t(w.outputs);
  // Units that a block's outputs may have a part of.
  const int64_t units = each % w.unit_outputs == 0   ? each / w.unit_outputs
                        : w.unit_outputs % each == 0 ? 1
                                                     : (each - 2) / w.unit_outputs + 2;
  a.columns = int32_t((strips * row.nr - 1) * row.step + row.taps), a.channels = int32_t(units * w.unit_inputs);
  // Copies of 16 bytes must begin where such a block's inputs do.
  const int64_t begins = w.unit_outputs % each == 0 || each % w.unit_outputs == 0
                             ? std::max(each / w.unit_outputs, int64_t{1}) * w.unit_inputs
                             : w.unit_inputs;
  a.whole = !w.planes && whole_pixels(g, row.type, src) && begins % count == 0;
  a.across = !a.whole && g.src[1] != 1;
  if (w.planes) {
    a.column_at = 1, a.channel_at = a.columns | 1;
    a.line_at = a.channels * a.channel_at;
  } else {
    a.column_at = int32_t(up(a.channels, w.pad) * w.pad + w.pad), a.channel_at = 1;
    a.line_at = a.columns * a.column_at;
    if (a.whole) a.channels = int32_t(up(a.channels, count) * count);
  }
  const int64_t inners = a.across ? a.columns : a.whole ? a.channels / count : a.channels;
  a.inner_step = int32_t(std::min<int64_t>(inners, row.threads)), a.outer_step = int32_t(row.threads / a.inner_step);
  a.src = src, a.src_image = g.src[0], a.src_channel = g.src[1];
  return a;
}

inline refusal refuse_lines(const geometry& g, const kernel& row, const lines_work& w) {
  // One strip of as few channels as go together.
  const bool walk = row.kind == kind::walk;
  const int64_t word[4] = {1, walk && !w.planes ? std::min<int64_t>(w.outputs, few_lanes) : 1, 1, 1};
  const int64_t bytes = lines_bytes(lines_tiling(g, row, w, any_phase(g), word, nullptr), row, w);
  if (bytes <= int64_t(row.shared_bytes)) return {};
  return {QUERN_REASON_SHAPE, "bytes of lines of a block's groups", bytes, row.shared_bytes};
}

inline uint32_t lines_blocks(const geometry& g, const lines_conv& a) {
  return uint32_t(g.n) * uint32_t(a.y.classes * a.y.parts) * uint32_t(a.x.classes * a.x.parts) * uint32_t(a.chunks);
}

// Blocks that may share a multiprocessor.
inline int64_t lines_together(const kernel& row, const machine& m) {
  return std::max<int64_t>(1, std::min<int64_t>(row.tile, fit_together(row, m)));
}

inline double lines_ns(const geometry& g, const kernel& row, const lines_work& w, const machine& m,
                       const int64_t* word) {
  const lines_conv a = lines_tiling(g, row, w, any_phase(g), word, nullptr);
  const double blocks = double(lines_blocks(g, a));
  // Blocks that run at the same time, and clocks of one among them: a line takes at least what it waits for.
  const double processors = std::max(1u, m.gpu.multiprocessors), together = double(lines_together(row, m));
  const double lines = double((word[3] - 1) * row.step + row.taps);
  const double rounds = blocks / (processors * together), share = std::min(together, ceil(blocks / processors));
  // Pieces of pixels of less than 128 bytes are more to ask for.
  const bool narrow = row.kind == kind::group && a.channels * type_bytes(row.type) < 128;
  const double clocks = w.start + lines * std::max(share * w.clocks * (narrow ? 1.1 : 1), w.waits);
  const double compute = clocks * (rounds < 1 ? 1 : rounds < 4 ? ceil(rounds) : rounds + 0.5);
  // Inputs that neighbours share come from L2, at twice the rate of memory.
  const double halo = double(a.columns) / double(word[0] * row.nr * row.step) * lines / double(word[3] * row.step);
  const double bytes = tensor_bytes(g, row.type, row.type), again = double(g.n * a.inputs) * double(g.in[1] * g.in[2]) *
                                                                    double(type_bytes(row.type)) *
                                                                    std::max(0.0, halo - 1) / 2;
  // Multiprocessors that have more blocks than others keep the memory waiting in the end, and parts of pixels are more
  // pieces of it.
  const double each = std::max(rounds < 1 ? blocks / processors : rounds, 1.0);
  const double uneven = rounds < 4 ? ceil(each) / each : 1, pieces = !w.planes && a.channels < a.inputs ? 1.05 : 1;
  const double memory = (bytes + again) / (double(m.gpu.bandwidth) * 0.8e-9) * uneven * pieces;
  return 2000 + std::max(1000 * compute / std::max(1u, m.gpu.clock_mhz), memory);
}

// Words that take the least time; the last is the shared memory of a block.
inline void choose_lines(const geometry& g, const kernel& row, const lines_work& w, const machine& m, int64_t* word) {
  const phase ph = any_phase(g);
  const int64_t columns = up(of_class(ph.w), row.nr), lines = of_class(ph.h);
  const bool walk = row.kind == kind::walk;
  const int64_t threads = walk ? row.threads : row.threads / 32;  // that strips and channels are shared by
  const int64_t widest = walk && !w.planes ? std::min<int64_t>(w.outputs, few_lanes) : 1;
  double best = std::numeric_limits<double>::infinity();
  // Pairs of channels may be fewer, where all of a pixel are no multiple of so many.
  for (int64_t wide = widest; wide == widest || (walk && row.mr > 1 && wide >= few_lanes / 2); wide -= few_lanes / 4)
    for (int64_t strips = std::min(columns, threads / wide); strips > 0; strips = strips > 4 ? strips / 2 : strips - 1)
      for (int64_t parts = 1; parts <= 32 && parts <= lines; ++parts) {
        // Threads are sets of neighbouring channels, jobs neighbours of each other; fewer, where groups have many
        // inputs.
        int64_t next[4] = {strips, wide, 1, up(lines, parts)}, &together = next[walk ? 2 : 1];
        const auto fits = [&] {
          return lines_bytes(lines_tiling(g, row, w, ph, next, nullptr), row, w) <= int64_t(row.shared_bytes);
        };
        together = std::min(threads / strips / wide, up(w.outputs, wide));
        while (together > 1 && !fits()) together = up(together, 2);
        if (!fits()) break;
        const double ns = lines_ns(g, row, w, m, next);
        if (ns >= best) continue;
        best = ns;
        std::copy_n(next, 4, word);
      }
  word[4] = shared_of(lines_blocks(g, lines_tiling(g, row, w, ph, word, nullptr)), lines_together(row, m), m);
}

}  // namespace quern
