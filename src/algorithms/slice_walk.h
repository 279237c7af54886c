// SPDX-License-Identifier: MIT
//
// How slices, and the elements of one, lie in memory: as pieces that kernels of slices_f32 take.
#pragma once

#include "axes.h"

namespace quern {

// Axes of reductions, norms and softmax; a pooling whose windows are the whole image is a reduction, too.
inline int32_t axes_of_slices(const quern_problem& p) {
  return is_pooling(p.op) ? QUERN_AXIS_D | QUERN_AXIS_H | QUERN_AXIS_W : p.axes;
}

// Pieces of memory that neighbouring slices have: rows of n elements, `row` apart, from `at` on.  Down columns there
// are `copies` rows side by side in each; along them `repeats` short rows are one, and the channels begin again in it.
struct slice_piece {
  size_t m, n, copies, repeats;
  element_axis at, row;
  bool channels_along;
};

inline constexpr element_axis single_step = {1, 0, 0, 0, 0, 0};

// Slices that lie alike: whose elements lie side by side (along), or whose neighbours do (across).  With the channels
// in slices a ragged last block is a second part of each, else a family of its own.
struct slice_family {
  // Such pieces, and rows of them, decide the order of sums.
  static constexpr int64_t along_elements = 4096, across_rows = 512, narrow = 64, wide = 128;

  element_axis origin = {};
  axes outer;
  struct {
    axes inner;
    element_axis origin = {};
    int64_t repeats = 1;
  } part[2];
  int parts = 0;
  bool along = true;
  int64_t columns_of_slice = 1;  // side by side

  // What a call for several slices, or their columns, runs along; how many axes of `outer` that takes.
  int taken() const { return outer.used > 0 && (along || outer.list[0].src == 1); }
  element_axis side() const { return taken() ? outer.list[0] : single_step; }
  int64_t places() const { return outer.count(taken()); }

  // Of a part's inner axes, the one of columns if there is, and the next, which has rows.
  static element_axis axis_of(const axes& a, int i) { return i < a.used ? a.list[i] : single_step; }
  bool dense(int i) const { return along && part[i].inner.used > 0 && part[i].inner.list[0].src == 1; }
  element_axis column(int i) const { return dense(i) ? part[i].inner.list[0] : along ? single_step : side(); }

  // Whether rows of n elements follow each other in all memory there is, with the same channels again.
  static bool follows(const element_axis& row, int64_t n, bool writes, bool residual) {
    return row.src == n && row.channel == 0 && (!writes || row.dst == n) && (!residual || row.residual == n);
  }
  // Of so many columns, rows that are taken side by side.
  int64_t copies(int64_t columns, bool writes, bool residual) const {
    if (along || columns >= narrow || parts != 1 || part[0].inner.used == 0) return 1;
    const element_axis& row = part[0].inner.list[0];
    if (!follows(row, columns, writes, residual)) return 1;
    return std::clamp<int64_t>(row.count / 8, 1, wide / columns);  // eight are a tree
  }
  // Along them, of the lanes of a block, which are rows because each has a channel of its own.
  int64_t repeats_of(int i, bool writes, bool residual) const {
    const axes& inner = part[i].inner;
    if (!dense(i) || inner.used < 2 || inner.list[0].count >= narrow) return 1;
    const element_axis &lanes = inner.list[0], &row = inner.list[1];
    if (!follows(row, lanes.count, writes, residual)) return 1;
    if ((writes && lanes.dst != 1) || (residual && lanes.residual != 1)) return 1;
    return std::min(row.count, wide / lanes.count);
  }

  template <class Body>
  void each_piece(int64_t columns, int64_t copies, const Body& body) const {
    for (int i = 0; i < parts; ++i) {
      const axes& inner = part[i].inner;
      const int first = dense(i);
      const element_axis row = axis_of(inner, first), column = this->column(i);
      const int64_t n = along ? column.count : columns, most_n = along ? along_elements : n;
      const int64_t rest = inner.count(std::min(first + 1, inner.used));
      for (int64_t item = 0; item < rest; ++item) {
        const element_axis at = sum(part[i].origin, inner.at(item, std::min(first + 1, inner.used)));
        const auto rows = [&](int64_t from, int64_t to, int64_t side_by_side) {
          const element_axis step = row.times(side_by_side);
          const int64_t most = along ? std::max<int64_t>(1, along_elements / std::max<int64_t>(n * side_by_side, 1))
                                     : across_rows,
                        count = (to - from) / side_by_side;
          for (int64_t r = 0; r < count; r += most)
            for (int64_t c = 0; c < n; c += most_n) {
              const element_axis begin = sum(at, sum(sum(row.times(from), step.times(r)), column.times(c)));
              body(slice_piece{size_t(std::min(most, count - r)), size_t(std::min(most_n, n - c) * side_by_side),
                               size_t(along ? 1 : side_by_side), size_t(along ? side_by_side : 1), begin, step,
                               column.channel != 0});
            }
        };
        const int64_t together = along ? part[i].repeats : copies, whole = row.count / together * together;
        rows(0, whole, together);
        if (whole < row.count) rows(whole, row.count, 1);
      }
    }
  }

  static element_axis sum(const element_axis& a, const element_axis& b) {
    return {0, a.src + b.src, a.dst + b.dst, a.residual + b.residual, a.weights + b.weights, a.channel + b.channel};
  }
};

// All slices of a problem: in one family, or two.
struct slice_walk {
  slice_family family[2];
  int families = 0;
  int64_t block = 1, elements = 1, slices = 1;
  bool reduces, aligned = true;        // groups and blocks
  quern_layout blocked = QUERN_NCHW;   // the one with blocks
  const char* other_blocks = nullptr;  // the tensor that has others

  explicit slice_walk(const quern_problem& p) : reduces(is_reduction(p.op) || is_pooling(p.op)) {
    find_blocks(p);
    const int32_t in_slice = axes_of_slices(p);
    for (int i = 0; i < 5; ++i) (in_slice >> i & 1 ? elements : slices) *= p.src.size[i];
    const int64_t groups = in_slice & QUERN_AXIS_C ? std::max<int64_t>(p.groups, 1) : 1;
    slices *= groups, elements /= groups;
    add_channels(p, in_slice & QUERN_AXIS_C, groups);
    for (int i : {4, 3, 2, 0}) {
      const element_axis a = {p.src.size[i], p.src.stride[i], p.dst.stride[i], p.residual.stride[i], 0, 0};
      for (slice_family& f : family)
        if (in_slice >> i & 1)
          for (int k = 0; k < f.parts; ++k) add(f.part[k].inner, a, true);
        else
          f.outer.add(a);
    }
    for (slice_family& f : family) {
      join(f);
      for (int k = 0; k < f.parts; ++k) f.part[k].repeats = f.repeats_of(k, !reduces, !reduces && p.epilogue.residual);
    }
  }

 private:
  static int64_t own_block(const quern_tensor& t) { return t.size[1] > 1 ? block_of(t.layout) : 1; }

  void find_blocks(const quern_problem& p) {
    for (const quern_tensor* t : {&p.src, &p.dst, &p.residual}) {
      const int64_t b = own_block(*t);
      if (b == 1 || b == block || (t == &p.residual && !p.epilogue.residual)) continue;
      if (block != 1 && !other_blocks) other_blocks = t == &p.dst ? "dst.layout" : "residual.layout";
      if (block == 1) block = b, blocked = t->layout;
    }
  }

  // Of what is reduced there is one output.
  void add(axes& to, element_axis a, bool inner) const {
    if (inner && reduces) a.dst = a.residual = a.channel = 0;
    to.add(a);
  }

  // Channels as blocks and lanes; of layouts without blocks, blocks of one.  A ragged last block goes by itself.
  void add_channels(const quern_problem& p, bool in_slices, int64_t groups) {
    const int64_t channel = p.epilogue.scale || p.epilogue.bias || p.epilogue.activation == QUERN_PRELU;
    const int64_t c = p.src.size[1], own = c / groups, rest = c % block;
    const auto lane = [&](const quern_tensor& t) { return own_block(t) > 1 ? 1 : t.stride[1]; };
    const auto next = [&](const quern_tensor& t) { return own_block(t) > 1 ? t.stride[1] : block * t.stride[1]; };
    const element_axis lanes = {block, lane(p.src), lane(p.dst), lane(p.residual), 0, channel},
                       blocks = {c / block, next(p.src), next(p.dst), next(p.residual), 0, channel * block};
    const auto of = [](element_axis a, int64_t count) { return a.count = count, a; };
    const bool cuts = groups > 1 && own % block != 0;  // blocks into groups
    aligned = !cuts || block % std::max<int64_t>(own, 1) == 0;
    // Small groups of channels that are densest: few elements of a slice follow each other, whole pixels do.
    const bool side_by_side = groups > 1 && block == 1 && own <= 64 && own > 1 && p.src.stride[1] == 1;
    for (int run = 0; run < 2; ++run) {
      if (run == 0 ? blocks.count == 0 : rest == 0) continue;
      const int64_t width = run == 0 ? block : rest, count = run == 0 ? blocks.count : 1;
      const bool apart = !in_slices || cuts;
      if (apart || families == 0) ++families;
      slice_family& f = family[families - 1];
      auto& part = f.part[f.parts++];
      (apart ? f.origin : part.origin) = run == 0 ? element_axis{} : blocks.times(blocks.count);
      if (!in_slices) {
        add(f.outer, of(lanes, width), false), add(f.outer, of(blocks, count), false);
      } else if (side_by_side || cuts) {
        f.columns_of_slice = std::max<int64_t>(own, 1);
        add(f.outer, of(lanes, width), false), add(f.outer, of(blocks, count), false);
      } else {
        add(part.inner, of(lanes, width), true), add(part.inner, of(blocks, count / groups), true);
        if (groups > 1) add(f.outer, of(blocks.times(count / groups), groups), false);
      }
    }
    if (in_slices && families == 0 && groups == 1) families = 1;  // slices of nothing
  }

  // Axes that follow each other become one, and so it shows what lies side by side.
  static void join(slice_family& f) {
    f.outer.join();
    bool along = false;
    for (int k = 0; k < f.parts; ++k) {
      f.part[k].inner.join();
      along |= f.part[k].inner.used > 0 && f.part[k].inner.list[0].src == 1;
    }
    // Columns that make up a slice are the first of the outer axes, whatever else has a distance of one.
    f.along = f.columns_of_slice == 1 && (along || f.outer.used == 0 || f.outer.list[0].src != 1);
  }
};

}  // namespace quern
