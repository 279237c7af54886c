// SPDX-License-Identifier: MIT
//
// What the drivers of convolution of 1 to 4 input channels share: what neither takes.
#pragma once

#include "cuda/drive.h"

namespace quern {

// Of an image, with padding and a filter beside it.
inline double first_lines(const geometry& g) {
  return double(g.in[1]) + double(g.pad[1]) + double(g.filter[1]) * double(g.dilation[1]);
}
inline double first_columns(const geometry& g) { return double(g.in[2]) + double(g.pad[2]) + double(g.filter[2]); }

// Of tiles at most so many outputs wide.
inline refusal refuse_first(const full_problem& p, const kernel& row, double widest) {
  constexpr int64_t most_channels = 4;
  if (const refusal r = refuse_short_sums(p)) return r;
  const geometry& g = geometry_of(p);
  if (g.groups != 1) return {QUERN_REASON_SHAPE, "groups", g.groups, 1};
  if (g.c > most_channels) return {QUERN_REASON_SHAPE, "src.size[1]", g.c, most_channels};
  if (g.src_block != 1) return {QUERN_REASON_LAYOUT, "src.layout", p.src.layout, 0};
  if (g.dst_block != 1) return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, 0};
  if (p.epilogue.residual && g.residual_block != 1)
    return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, 0};
  if (extent(p.src) == 0 || extent(p.dst) == 0) return {QUERN_REASON_SHAPE, "elements of src or dst", 0, 1};
  if (g.in[0] != 1 || g.out[0] != 1 || g.filter[0] != 1 || g.pad[0] != 0)
    return {QUERN_REASON_SHAPE, "src.size[2] or window along d", std::max(g.in[0], g.filter[0]), 1};
  if (g.filter[2] > 1 && g.dilation[2] != 1) return g.refuse(window_dilation, 2, g.dilation[2], 1);
  return refuse_many(
      std::max({double(g.n) * (double(g.out[1]) + 64) * (double(g.out[2]) + widest) * (double(g.k) / row.nr + 1),
                (first_lines(g) + 64 * double(g.stride[1])) * 64,
                (first_columns(g) + widest * double(g.stride[2])) * double(g.c) * 64,
                double(g.k) * double(g.filter[1]) * double(g.filter[2]) * 64}),
      "outputs, weights or elements of a line");
}

}  // namespace quern
