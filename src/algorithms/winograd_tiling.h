// SPDX-License-Identifier: MIT
//
// The tiles of a Winograd problem, where they lie, and what a group of them takes in memory.
#pragma once

#include <algorithm>

#include "conv_winograd.h"
#include "geometry.h"
#include "weights.h"

namespace quern::winograd_driver {

// Of blocking.word.
enum word { tile_groups, block_panels, blocks, image_ahead, weights_ahead };

constexpr int64_t buffer_channels = 16, buffer_tiles = 8;  // of a line of tiles between layouts

// Channels of a pixel that the transforms take at once: as many as lie side by side in whole vectors, 0: none.
inline int64_t run_of(const geometry& g, const kernel& row, int64_t channels, const int64_t* stride, int64_t block) {
  if (channels <= 1 || (block == 1 && stride[1] == 1)) return std::max<int64_t>(channels, 1);
  return block % row.vector == 0 && (g.groups == 1 || channels % block == 0) ? block : 0;
}
inline int64_t source_run(const geometry& g, const kernel& row) { return run_of(g, row, g.c, g.src, g.src_block); }
inline int64_t destination_run(const quern_problem& p, const geometry& g, const kernel& row) {
  const int64_t dst = run_of(g, row, g.k, g.dst, g.dst_block);
  return p.epilogue.residual ? std::min(dst, run_of(g, row, g.k, g.residual, g.residual_block)) : dst;
}
inline bool through_buffer(const quern_problem& p, const geometry& g, const kernel& row) {
  return !source_run(g, row) || !destination_run(p, g, row);
}

// Whether it is h that a form of one axis transforms.
inline bool is_upright(const geometry& g) { return g.filter[2] == 1 && g.filter[1] > 1; }

// A walk of tiles along two axes: x is the transformed one, y the other or also transformed.
struct tiling {
  const geometry& g;
  bool square, upright;  // both axes; y and x are the problem's w and h
  axis y, x;
  int64_t d_out;
  int64_t src[2], dst[2], residual[2];  // strides along y, x
  int64_t my, mx, ay, ax;
  int64_t step[2];    // outputs from one of a tile to the next, along y and x
  int64_t apart[2];   // inputs from one of a tile to the next
  int64_t stride[2];  // of a transformed axis
  // Parts of the filter, each a filter of its own: every other tap at stride 2, whose inputs are an interleaved image,
  // or neighbouring taps; and the taps from one part to the next.
  int64_t parts[2], part_taps[2];
  bool fewer[2];      // the last part has a tap less than the form: its product at infinity is zero
  int64_t images[2];  // interleaved images of outputs: the dilation
  int64_t count[2];   // tiles of one of those
  int64_t few[2];     // points of the last tile of an image where it has fewer outputs than m: less than all
  int64_t tiles;

  int64_t points() const { return ay * ax; }
  int64_t all_parts() const { return parts[0] * parts[1]; }
  // Of a point of an axis, the parts whose products may not be zero.
  int64_t parts_at(int axis_index, int64_t point) const {
    const int64_t a = axis_index ? ax : ay;
    return parts[axis_index] - (fewer[axis_index] && a % 2 == 0 && point == a - 1);
  }
  // Of an axis, the points where a part has products.
  int64_t points_of(int axis_index, int64_t part) const {
    const int64_t a = axis_index ? ax : ay;
    return a - (part >= parts_at(axis_index, a - 1));
  }
  // Taps of the filter that part i is made of: from `begin` on, every stride-th.
  range taps_of(int axis_index, int64_t part) const {
    const int64_t taps = axis_index ? x.taps : y.taps, r = axis_index ? ax - mx + 1 : ay - my + 1;
    const int64_t begin = part * part_taps[axis_index];
    return {begin, std::min(taps, begin + r * stride[axis_index])};
  }
  // Inputs from part 0 to another.
  int64_t offset(int axis_index, int64_t part) const {
    return part * part_taps[axis_index] * (axis_index ? x : y).tap_step;
  }
  int64_t parts_at(int64_t point) const { return parts_at(0, point / ax) * parts_at(1, point % ax); }
  // Of all points together.
  int64_t products() const { return products(0) * products(1); }
  int64_t products(int axis_index) const {
    const int64_t a = axis_index ? ax : ay;
    return a * parts[axis_index] - (fewer[axis_index] && a % 2 == 0);
  }
};

inline tiling tiling_of(const form& f, const geometry& g) {
  const phase ph = phase_of(g, 0);
  const bool upright = is_upright(g);
  const int iy = upright ? 4 : 3, ix = upright ? 3 : 4;
  tiling t = {.g = g,
              .square = g.filter[1] > 1 && g.filter[2] > 1,
              .upright = upright,
              .y = upright ? ph.w : ph.h,
              .x = upright ? ph.h : ph.w,
              .d_out = ph.d.out_count,
              .src = {g.src[iy], g.src[ix]},
              .dst = {g.dst[iy], g.dst[ix]},
              .residual = {g.residual[iy], g.residual[ix]}};
  t.mx = f.axis[1]->m, t.ax = f.axis[1]->a;
  t.my = t.square ? f.axis[0]->m : 1, t.ay = t.square ? f.axis[0]->a : 1;
  const auto split = [&](int i, const axis& a, bool transformed, int64_t m) {
    t.stride[i] = transformed && !g.transposed ? g.stride[(i == 1) != upright ? 2 : 1] : 1;
    t.step[i] = transformed && t.stride[i] == 1 ? a.tap_step : 1;
    t.apart[i] = std::max(t.stride[i], t.step[i]);
    t.parts[i] = !transformed ? 1 : t.stride[i] > 1 ? t.stride[i] : f.parts;
    t.part_taps[i] = t.stride[i] > 1 ? 1 : f.r;
    t.fewer[i] = a.taps < t.parts[i] * f.r && transformed;
    t.images[i] = std::clamp<int64_t>(a.out_count, 1, t.step[i]);
    t.count[i] = up(up(a.out_count, t.images[i]), m);
    const int64_t all = t.few[i] = i ? t.ax : t.ay;
    // Outputs of that tile, in the first images and in the others.
    const int64_t last = up(a.out_count, t.images[i]) - (t.count[i] - 1) * m;
    for (const int64_t n : {a.out_count / t.images[i] - (t.count[i] - 1) * m, last})
      if (n < m && transformed && t.count[i]) t.few[i] = points_for(int(all), int(std::max<int64_t>(n, 1) + f.r - 1));
  };
  split(0, t.y, t.square, t.my), split(1, t.x, true, t.mx);
  t.tiles = g.n * t.d_out * t.images[0] * t.images[1] * t.count[0] * t.count[1];
  return t;
}

// How many of a tile's m outputs from `first` on there are.  Nearly every tile has all of them, and a division takes as
// long as transforming half a row.
inline int64_t outputs(const axis& a, int64_t first, int64_t step, int64_t m) {
  const int64_t left = a.out_count - first;
  return left > (m - 1) * step ? m : up(std::max<int64_t>(left, 0), step);
}

// Where one tile is.
struct place {
  int64_t n, d;
  int64_t image[2], tile[2];

  place(const tiling& t, int64_t index) {
    for (int i = 1; i >= 0; --i) tile[i] = digit(index, t.count[i]);
    for (int i = 1; i >= 0; --i) image[i] = digit(index, t.images[i]);
    d = digit(index, t.d_out), n = index;
  }
  void next(const tiling& t) {
    if (++tile[1] < t.count[1]) return;
    tile[1] = 0;
    if (++tile[0] < t.count[0]) return;
    tile[0] = 0;
    if (++image[1] < t.images[1]) return;
    image[1] = 0;
    if (++image[0] < t.images[0]) return;
    image[0] = 0;
    if (++d < t.d_out) return;
    d = 0, ++n;
  }
  // How many the tile takes along an axis.
  int points(const tiling& t, int i) const {
    const int64_t a = i ? t.ax : t.ay, m = i ? t.mx : t.my, few = t.few[i];
    return int(few < a && outputs(i ? t.x : t.y, output(t, i, m), t.step[i], m) + a - m <= few ? few : a);
  }
  // The first output along an axis.
  int64_t output(const tiling& t, int i, int64_t m) const { return image[i] + tile[i] * m * t.step[i]; }
};

// Bit i: input first + i * step lies on the image.
inline uint32_t on_image(const axis& a, int64_t first, int64_t step, int64_t count) {
  if (first >= 0 && first + (count - 1) * step < a.in_size) return (1u << count) - 1;
  uint32_t bits = 0;
  for (int64_t i = 0; i < count; ++i) bits |= uint32_t(first + i * step >= 0 && first + i * step < a.in_size) << i;
  return bits;
}

// The rows of V and M that a group's tiles take: those that take part in a point's products are neighbours, as tiles
// which leave out points of x stand first, of y last, of both before all.
class tile_rows {
 public:
  tile_rows(const tiling& t, int64_t first, int64_t last) : t_(t) {
    place at(t, first);
    for (int64_t i = first; i < last; ++i, at.next(t)) ++begin_[kind_of(at) + 1];
    for (int i = 0; i < 4; ++i) begin_[i + 1] += begin_[i], next_[i] = begin_[i];
  }
  // Asked once for each tile, in their order.
  int64_t next(const place& at) { return next_[kind_of(at)]++; }
  // Of a point that tiles with fewer outputs along y, and along x, take as well, or leave out.
  range of(bool all_y, bool all_x) const {
    return {begin_[!all_x ? inner : all_y ? corner : end_of_x], begin_[all_y ? 4 : end_of_y]};
  }

 private:
  enum { corner, end_of_x, inner, end_of_y };
  int kind_of(const place& at) const {
    const bool y = at.points(t_, 0) < t_.ay, x = at.points(t_, 1) < t_.ax;
    return x ? y ? corner : end_of_x : y ? end_of_y : inner;
  }
  const tiling& t_;
  int64_t begin_[5] = {}, next_[4];
};

// Rows a multiple of 1 KiB apart would share a few sets of L1: they get a line in between.
inline int64_t padded(int64_t channels, int64_t vector) {
  const int64_t whole = up(channels, vector) * vector;
  return whole % 256 == 0 && whole > 0 ? whole + 16 : whole;
}

// Floats of one of the buffers between layouts.
inline int64_t buffer_floats(const tiling& t) { return t.ay * ((buffer_tiles - 1) * t.mx + t.ax) * buffer_channels; }

// A group of tiles in the workspace: V, the transformed pixels, [point + 1][part][tile][channels], and M, the products,
// [point][tile][channels].  Those of a point lie where the pixels of the one before it were, which nothing asks for any
// longer and L1 still has: half the room, so L2 has it for as many tiles again, or for weights.
struct sizes {
  int64_t tiles, parts, v_row, v, m_row, point, buffer;  // floats; of v from part to part
  int64_t buffers;
  sizes(const tiling& t, const kernel& row, const weight_panels& panels, int64_t group_tiles, int64_t panel_count,
        bool through_buffer)
      : tiles(group_tiles),
        parts(t.all_parts()),
        v_row(padded(t.g.c, row.vector)),
        v(tiles * v_row + 16),
        m_row(padded(std::min(panel_count * row.nr, panels.columns()), row.vector)),
        point(std::max(parts * v, tiles * m_row + 16)),
        buffer(through_buffer ? buffer_floats(t) : 0),
        buffers(through_buffer ? 2 : 0) {}
  uint64_t bytes(int64_t points) const {
    return uint64_t(up(((points + 1) * point + buffers * buffer) * 4, QUERN_ALIGN) * QUERN_ALIGN);
  }
};

}  // namespace quern::winograd_driver
