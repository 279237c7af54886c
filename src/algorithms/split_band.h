// SPDX-License-Identifier: MIT
//
// A band of the image as parts of bf16 (split_f32 in kernel.h): what it takes in memory, the tiles of its outputs, and
// the workspace behind it.
#pragma once

#include "band.h"
#include "driver.h"

namespace quern::split_driver {

constexpr int64_t tile = split_rows, panel = split_columns, depth = split_channels;

// Axes so that a filter along one axis alone is one along rows.
template <class Problem>
geometry split_geometry(const Problem& p) {
  geometry g = band_geometry(p);
  if (g.filter[1] != 1 || g.filter[2] == 1) return g;
  for (int64_t* of : {g.in, g.out, g.filter, g.stride, g.dilation, g.pad}) std::swap(of[1], of[2]);
  for (int64_t* stride : {g.src, g.dst, g.residual, g.weights}) std::swap(stride[3], stride[4]);
  g.w_for_h = true;
  return g;
}

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

// The parts of a line: two tiles, the most that split_line_tiles() asks for.
inline band_sizes line_parts(const geometry& g, int parts) { return {g, parts, 1, tile, 1}; }

// Bytes of the largest one of so many rows and columns, over all phases.
inline double band_bytes(const geometry& g, int parts, int64_t rows, int64_t row_columns) {
  const band_extent x(g);
  const double width = x.columns - double(std::max<int64_t>(0, g.out[2] - row_columns)) * (g.transposed ? 0 : x.split);
  const double places = x.depth * x.places(rows) * std::max(width, 1.0) + double(tile) * std::max(1.0, x.split);
  return (places * parts * depth * 2 + 64) * double(up(g.c, depth));
}

// Tiles of a band of outputs, pieces of rows or of all of them as they follow each other.
struct band_tiles {
  int64_t count, rows;  // rows of each
  band_tiles(bool as_flat, int64_t lines, int64_t width, int64_t pitch) : count(0), rows(1) {
    if (lines <= 0 || width <= 0) return;
    const int64_t run = as_flat ? (lines - 1) * pitch + width : width, pieces = up(run, tile);
    rows = up(run, pieces), count = as_flat ? pieces : pieces * lines;
  }
};

// Products of parts, for one of f32.
constexpr int products_of(int parts) { return parts == 3 ? 6 : 3; }

// Cycles of a product with so many rows of pixels: of real data a fifth more than of zeros (Sapphire Rapids).
inline double product_cycles(double rows) { return 1.2 * std::max(9.4, 4.5 + 0.745 * rows); }

// 16 channels side by side, and where the next 16 are.
inline bool in_runs(const geometry& g, int64_t channels, const int64_t* stride, int64_t block) {
  return channels <= 1 || (block == 1 ? stride[1] == 1 : block == 16 && (g.groups == 1 || channels % 16 == 0));
}
inline int64_t next_run(const int64_t* stride, int64_t block) { return block == 1 ? 16 : stride[1]; }

struct layouts {
  bool src, dst, residual;  // in runs
  layouts(const quern_problem& p, const geometry& g)
      : src(in_runs(g, g.c, g.src, g.src_block)),
        dst(in_runs(g, g.k, g.dst, g.dst_block)),
        residual(!p.epilogue.residual || in_runs(g, g.k, g.residual, g.residual_block)) {}
};

// Pixels in, pixels out, all of a plane at one distance from each other: a line, and no band to keep.
inline bool is_line(const geometry& g, const layouts& in, bool residual) {
  const auto dense = [&](const int64_t* stride) { return g.out[1] <= 1 || stride[3] == g.out[2] * stride[4]; };
  bool line = !g.transposed && in.src && in.dst && in.residual && g.c > 0 && dense(g.src) && dense(g.dst) &&
              (!residual || dense(g.residual));
  for (int axis = 0; axis < 3; ++axis)
    line = line && g.filter[axis] == 1 && g.stride[axis] == 1 && g.pad[axis] == 0 && g.in[axis] == g.out[axis];
  return line;
}

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

}  // namespace quern::split_driver
