// SPDX-License-Identifier: MIT
//
// What conv_depthwise.cpp and conv_depthwise_cost.cpp share: the blocks, and what of the operands is turned.
#pragma once

#include "algorithm.h"
#include "turned.h"

namespace quern::depthwise_driver {

enum word { bands, block_channels, blocks, column, width, flags, src_lines, dst_lines };  // of blocking.word
enum flag { bands_ahead = 1, line_ahead = 2, streams = 4, crowded = 8 };

// Channels of pixels that share few sets, which are turned together.  A page holds few such pixels: of fewer channels
// finding pages takes longer than copying (1.2 to 1.3 times as fast as sixteen, Zen 3).
constexpr int64_t crowd = 64;

// The operands that do not lie in rows of vectors.  A src that is turned has a channel for each output, which kernels
// made for a filter want.
struct turned {
  bool src, dst, residual;
  int64_t together = turned_channels;  // of src

  bool any() const { return src || dst || residual; }
  // Elements of the workspace for so many lines of each.
  double size(const geometry& g, int64_t in_lines, int64_t out_lines) const {
    return double(src) * turned_size(g.in, in_lines, together) +
           (double(dst) + double(residual)) * turned_size(g.out, out_lines);
  }
};
turned turned_of(const quern_problem&, const geometry&, const kernel&);

// A band has whole groups of so many lines of outputs: a line of each phase, and of each class.
int64_t lines_together(const geometry&);

// Lines of the image that so many lines of outputs read, at most.
int64_t lines_under(const geometry&, int64_t lines);

// The most channels that lie side by side in every operand whose blocks are several vectors, 0 where none has such.
int64_t side_by_side(const geometry&, int64_t vector);

// The parts of a line that are so many pixels wide, and one of them; the last one has what is left, too.
inline int64_t parts_of(int64_t pixels, int64_t width) { return std::max<int64_t>(1, pixels / width); }
inline range part_of(int64_t pixels, int64_t width, int64_t i) {
  return {i * width, i + 1 < parts_of(pixels, width) ? (i + 1) * width : pixels};
}

blocking choose_blocks(const full_problem&, const kernel&, const machine&, uint32_t threads);
cost predict(const full_problem&, const kernel&, const blocking&, const machine&);

}  // namespace quern::depthwise_driver
