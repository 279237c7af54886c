// SPDX-License-Identifier: MIT
//
// What phases have together, found without walking over them, and problems in the words of geometry.h.
#include "geometry.h"

#include "quotients.h"

namespace quern {

int64_t geometry::taps_before(int i, int64_t phase, int64_t count) const {
  if (phase == 0) return 0;
  const int64_t period = stride[i];
  if (!transposed || phase >= period) return count;
  return count_residues(count, period, dilation[i] % period, (period - pad[i] % period) % period, phase);
}

int64_t geometry::taps() const {
  int64_t product = 1;
  for (int i = 0; i < 3; ++i) product *= taps_before(i, phases(i));
  return product;
}

namespace {

// The product of what an axis has, `before(i, f)` in the first f phases of axis i.
template <class Before>
int64_t sum_before(const geometry& g, int64_t index, Before before) {
  const int64_t w = digit(index, g.phases(2)), h = digit(index, g.phases(1)), at[3] = {index, h, w};
  int64_t sum = 0, same = 1;  // `same`: of phases that are this one on the axes so far
  for (int i = 0; i < 3; ++i) {
    const int64_t first = before(i, at[i]);
    sum = sum * before(i, g.phases(i)) + same * first;
    same *= before(i, at[i] + 1) - first;
  }
  return sum;
}

}  // namespace

int64_t taps_before(const geometry& g, int64_t index) {
  return sum_before(g, index, [&](int i, int64_t f) { return g.taps_before(i, f); });
}

int64_t tapped_phases_before(const geometry& g, int64_t index) {
  return sum_before(g, index, [&](int i, int64_t f) { return g.tapped_before(i, f); });
}

geometry geometry_of(const quern_problem& p) {
  geometry g = {};
  if (p.op == QUERN_GEMM) {
    g.n = p.src.size[0], g.c = p.src.size[4], g.k = p.dst.size[4], g.groups = 1;
    for (int i = 0; i < 3; ++i) g.in[i] = g.out[i] = g.filter[i] = g.stride[i] = g.dilation[i] = 1;
    g.in[2] = g.out[2] = p.src.size[3];
    const auto turn = [](const quern_tensor& t, int64_t* stride) {
      stride[0] = t.stride[0], stride[1] = t.stride[4], stride[4] = t.stride[3];
    };
    turn(p.src, g.src), turn(p.dst, g.dst), turn(p.residual, g.residual);
    g.src_block = g.dst_block = g.residual_block = 1;
    g.weights[0] = p.weights.stride[4], g.weights[1] = p.weights.stride[3];
    g.forget_empty(p);
    g.merge_matrices();
    return g;
  }
  g.transposed = p.op == QUERN_CONV_TRANSPOSED;
  g.groups = p.src.size[1] == 0 && p.dst.size[1] == 0 ? 1 : p.groups;  // of nothing there may be any number
  g.n = p.src.size[0], g.c = p.src.size[1] / p.groups, g.k = p.dst.size[1] / p.groups;
  for (int i = 0; i < 5; ++i)
    g.src[i] = p.src.stride[i], g.dst[i] = p.dst.stride[i], g.residual[i] = p.residual.stride[i];
  g.src_block = block_of(p.src.layout), g.dst_block = block_of(p.dst.layout);
  g.residual_block = block_of(p.residual.layout);
  for (int i = 0; i < 3; ++i) {
    g.in[i] = p.src.size[2 + i], g.out[i] = p.dst.size[2 + i], g.filter[i] = p.window.filter[i];
    g.stride[i] = p.window.stride[i], g.dilation[i] = p.window.dilation[i], g.pad[i] = p.window.pad_begin[i];
    g.weights[2 + i] = p.weights.stride[2 + i];
  }
  // Transposed weights are c (k/groups): groups follow each other along the input channels.
  g.weights[0] = p.weights.stride[g.transposed ? 1 : 0];
  g.weights[1] = p.weights.stride[g.transposed ? 0 : 1];
  g.weights_group = p.weights.stride[0] * (g.transposed ? g.c : g.k);
  g.forget_empty(p);
  g.merge_axes();
  return g;
}

}  // namespace quern
