// SPDX-License-Identifier: MIT
//
// A band of the image, copied once into the workspace where every tap of a filter then finds its pixels:
// padding is there as zeros, along x, and inputs that no tap reads are left out.
#pragma once

#include <string.h>

#include "driver.h"
#include "pixels.h"

namespace quern {

// One axis as a band keeps it: places, each an input `step` after the one before.
struct band_axis {
  int64_t begin, step, in_size;  // input of place 0, which may be padding; inputs from place to place
  int64_t pixel, tap;            // places from output to output, and from tap to tap
  int64_t taps;

  explicit band_axis(const axis& a) : begin(a.in_begin), step(0), in_size(a.in_size), taps(a.taps) {
    if (a.out_count > 1) step = a.in_step;
    if (taps > 1) step = std::gcd(step, a.tap_step);
    step = std::max<int64_t>(step, 1);
    pixel = a.out_count > 1 ? a.in_step / step : 1;
    tap = taps > 1 ? a.tap_step / step : 1;
  }

  int64_t places(int64_t outputs) const {
    return taps > 0 && outputs > 0 ? (outputs - 1) * pixel + (taps - 1) * tap + 1 : 0;
  }
  int64_t input(int64_t place) const { return begin + place * step; }
  // Of the places in `within`, those on the image.
  range inside(range within) const {
    const int64_t lo = begin >= 0 ? 0 : up(-begin, step);
    const int64_t hi = begin >= in_size ? 0 : up(in_size - begin, step);
    const range r = {std::max(within.begin, lo), std::min(within.end, hi)};
    return r.begin < r.end ? r : range{within.begin, within.begin};
  }
};

// Places of the largest phase along each axis.
struct band_extent {
  double depth = 0;    // taps along d
  double rows = 0;     // that one row of outputs reads
  double more = 0;     // and each further one
  double columns = 0;  // of a line
  double split = 0;    // columns from output to output

  explicit band_extent(const geometry& g) {
    for (int64_t f = 0; f < g.phases(0); ++f) depth = std::max(depth, double(g.axis_of(0, f).taps));
    for (int64_t f = 0; f < g.phases(1); ++f) {
      const band_axis h(g.axis_of(1, f));
      rows = std::max(rows, double(h.places(1))), more = std::max(more, double(h.pixel));
    }
    for (int64_t f = 0; f < g.phases(2); ++f) {
      const axis a = g.axis_of(2, f);
      const band_axis w(a);
      columns = std::max(columns, double(w.places(a.out_count))), split = std::max(split, double(w.pixel));
    }
  }
  double places(int64_t outputs) const { return rows > 0 ? rows + double(outputs - 1) * more : 0; }
};

// Padding and dilation can make one row's band larger than any image.  `floats` counts it for channels that are
// `pitch` apart; most problems are far from the limit, and need no look at their phases.
template <class Floats>
refusal refuse_band(const geometry& g, int64_t pitch, Floats floats) {
  constexpr int64_t most = int64_t{1} << 26;
  const auto reach = [&](int i) { return double(g.filter[i]) * double(g.dilation[i]) + double(g.stride[i]); };
  const double bound = double(g.filter[0]) * (reach(1) + double(g.stride[1])) *
                       (double(g.out[2]) * double(g.stride[2]) + reach(2)) * double(pitch);
  if (bound <= double(most / 2)) return {};
  const double exact = floats(band_extent(g));
  if (exact <= double(most)) return {};
  return {QUERN_REASON_SHAPE, "filter rows * padded row * src.size[1]", int64_t(std::min(exact, 1e18)), most};
}

// A tiny image of a pointwise convolution is one line where it lies dense: its rows would be short tiles.
template <class Problem>
geometry band_geometry(const Problem& p) {
  geometry g = geometry_of(p);
  for (int i = 2; i > 0; --i)
    if (g.filter[i] != 1 || g.filter[i - 1] != 1 || g.stride[i] != 1 || g.stride[i - 1] != 1 || g.pad[i] != 0 ||
        g.pad[i - 1] != 0 || g.in[i] != g.out[i] || g.in[i - 1] != g.out[i - 1])
      return g;
  const int64_t pixels = g.in[0] * g.in[1] * g.in[2];
  if (pixels > 256) return g;
  const auto dense = [&](const int64_t* stride) {
    return (g.in[1] == 1 || stride[3] == g.in[2] * stride[4]) &&
           (g.in[0] == 1 || stride[2] == g.in[1] * g.in[2] * stride[4]);
  };
  if (!dense(g.src) || !dense(g.dst) || (p.epilogue.residual && !dense(g.residual))) return g;
  g.in[2] = g.out[2] = pixels;
  g.in[0] = g.out[0] = g.in[1] = g.out[1] = 1;
  return g;
}

// What one task works on: a block of output channels, and of a phase's outputs at one depth some rows and columns.
struct band_task {
  int64_t block, d, f, group, n;
  phase ph;
  range rows, cols;

  // Elements from the first one of a tensor, whose strides these are, to the phase's first output at that depth.
  int64_t begin(const int64_t* stride) const {
    return n * stride[0] + (ph.d.out_begin + d * ph.d.out_step) * stride[2] + ph.h.out_begin * stride[3] +
           ph.w.out_begin * stride[4];
  }
};

// Calls run(task, workspace) for all that there are of so many blocks, columns and bands of rows.
template <class Run>
void for_each_band(const job& j, const execution& e, const geometry& g, int64_t blocks, int64_t columns, int64_t bands,
                   const Run& run) {
  const int64_t depths = phase_of(g, 0).d.out_count;
  const int64_t items = g.n * g.groups * g.phases() * depths * bands * columns * blocks;
  for_each_item(j, e, items, [&](int64_t item, char* workspace) {
    const int64_t block = digit(item, blocks), column = digit(item, columns), band = digit(item, bands);
    const int64_t d = digit(item, depths), f = digit(item, g.phases()), group = digit(item, g.groups);
    const phase ph = phase_of(g, f);
    const range rows = part(ph.h.out_count, band, bands), cols = part(ph.w.out_count, column, columns);
    if (d >= ph.d.out_count || rows.count() == 0 || cols.count() == 0) return;
    run(band_task{block, d, f, group, item, ph, rows, cols}, workspace);
  });
}

}  // namespace quern
