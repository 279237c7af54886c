// SPDX-License-Identifier: MIT
//
// Convolution and transposed convolution as the same thing: stride-1 walks over an output grid.
//
// Along each axis a transposed convolution with stride s splits its output into s phases; within one,
// neighbouring outputs read neighbouring inputs through every s-th tap.  A convolution has one phase,
// whose outputs read inputs s apart.  Drivers see phases only:
//
//   output j of a phase lies at out_begin + j * out_step            j < out_count
//   its tap u reads input in_begin + j * in_step + u * tap_step     u < taps, tap_step > 0
//   through filter index filter_begin + u * filter_step
#pragma once

#include <quern/quern.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "layout.h"
#include "refusal.h"

namespace quern {

struct range {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
  bool operator==(const range&) const = default;
};

// What is divided by is one, mostly, and 64 bits are slow to divide.

// a / b rounded up, a >= 0.
inline int64_t up(int64_t a, int64_t b) { return b == 1 ? a : (a + b - 1) / b; }

// The lowest digit of a number, taken off it: an item is what its driver counts, each thing to its own base.
inline int64_t digit(int64_t& number, int64_t base) {
  if (base == 1) return 0;
  const int64_t lowest = number % base;
  number /= base;
  return lowest;
}

struct axis {
  int64_t out_begin, out_step, out_count;
  int64_t in_begin, in_step, in_size;
  int64_t taps, tap_step, filter_begin, filter_step;

  // The taps of output j that fall on the image; empty ranges begin and end at 0.
  range taps_at(int64_t j) const {
    const int64_t first = in_begin + j * in_step;
    const int64_t lo = first >= 0 ? 0 : up(-first, tap_step);
    const int64_t hi = first >= in_size ? 0 : std::min(taps, up(in_size - first, tap_step));
    return lo < hi ? range{lo, hi} : range{0, 0};
  }

  // The outputs from j on, below `end`, that have the same taps as j.
  range span(int64_t j, int64_t end) const {
    const range same = taps_at(j);
    if (same.count() == 0) {
      const int64_t first = in_begin + j * in_step;
      if (taps == 0 || first >= 0) return {j, end};
      // To where the next tap enters the image.
      const int64_t u = std::min(taps - 1, (-first - 1) / tap_step);
      return {j, std::min(end, up(-u * tap_step - in_begin, in_step))};
    }
    // Both ends of the range fall as j rises: until the tap before it enters, or its last one leaves.
    int64_t last = std::min(end, up(in_size - in_begin - (same.end - 1) * tap_step, in_step));
    if (same.begin > 0) last = std::min(last, up(-in_begin - (same.begin - 1) * tap_step, in_step));
    return {j, last};
  }

  // The outputs in `within` whose tap u falls on the image.
  range outputs_of(int64_t u, range within) const {
    const int64_t offset = in_begin + u * tap_step;
    const int64_t lo = offset >= 0 ? 0 : up(-offset, in_step);
    const int64_t hi = offset >= in_size ? 0 : up(in_size - offset, in_step);
    const range r = {std::max(within.begin, lo), std::min(within.end, hi)};
    return r.begin < r.end ? r : range{within.begin, within.begin};
  }
};

inline axis forward_axis(int64_t in, int64_t out, int64_t filter, int64_t stride, int64_t dilation, int64_t pad) {
  // One output takes no step: a stride beyond the image is not to be multiplied with anything.
  return {0, 1, out, -pad, out > 1 ? stride : 1, in, filter, dilation, 0, 1};
}

// The inverse of a modulo m, to which a is coprime (Euclid's algorithm).
inline int64_t inverse(int64_t a, int64_t m) {
  int64_t x = 1, y = 0;
  for (int64_t b = m; b != 0;) {
    const int64_t q = a / b;
    a -= q * b, x -= q * y;
    std::swap(a, b), std::swap(x, y);
  }
  return (x % m + m) % m;
}

// The outputs of an axis that are a multiple of the stride behind the first one, with (o + pad) mod stride == rho.
// They take the taps t whose t * dilation has that residue too: t0, t0 + T, ... with T = stride / gcd(stride,
// dilation), or none.
inline axis transposed_axis(int64_t in, int64_t out, int64_t filter, int64_t stride, int64_t dilation, int64_t pad,
                            int64_t first) {
  // A convolution with the filter the other way round, found without a division.
  if (stride == 1) return {0, 1, out, pad - (filter - 1) * dilation, 1, in, filter, dilation, filter - 1, -1};
  axis a = {};
  const int64_t rho = (first + pad) % stride;
  a.out_begin = first;
  a.out_count = a.out_begin < out ? up(out - a.out_begin, stride) : 0;
  a.out_step = a.out_count > 1 ? stride : 1;
  a.in_step = 1;
  a.in_size = in;
  a.tap_step = 1;
  a.filter_step = 1;
  int64_t gcd = 1, T = stride, t0 = rho;
  if (dilation != 1) {
    gcd = std::gcd(stride, dilation), T = stride / gcd;
    if (rho % gcd != 0) return a;
    t0 = rho / gcd % T * inverse(dilation / gcd % T, T) % T;
  }
  if (t0 >= filter) return a;
  a.taps = (filter - t0 - 1) / T + 1;
  // Counted from the last tap back, so that the input index rises with u.
  a.tap_step = dilation / gcd;
  a.filter_step = -T;
  a.filter_begin = t0 + (a.taps - 1) * T;
  a.in_begin = (a.out_begin + pad - a.filter_begin * dilation) / stride;
  return a;
}

// Fields of a problem's window along d h w, as refusals name them.
inline constexpr const char* window_filter[] = {"window.filter[0]", "window.filter[1]", "window.filter[2]"};
inline constexpr const char* window_stride[] = {"window.stride[0]", "window.stride[1]", "window.stride[2]"};
inline constexpr const char* window_dilation[] = {"window.dilation[0]", "window.dilation[1]", "window.dilation[2]"};
inline constexpr const char* window_pad_begin[] = {"window.pad_begin[0]", "window.pad_begin[1]", "window.pad_begin[2]"};

// A problem's operands in the words of convolution: a GEMM is a pointwise one whose pixels are its rows, and axes that
// are only walked are merged.
struct geometry {
  int64_t n, c, k, groups;                       // c and k of one group
  int64_t src[5], dst[5], residual[5];           // strides, n c d h w; of the channels, see channel_offset()
  int64_t src_block, dst_block, residual_block;  // channels that lie side by side; 1: NCHW, NHWC
  int64_t weights[5];     // strides: output channel in the group, input channel in the group, t r s
  int64_t weights_group;  // stride from group to group
  int64_t in[3], out[3], filter[3], stride[3], dilation[3], pad[3];
  bool transposed;
  bool d_for_h, w_for_h;  // axes that changed places since the caller named them, in this order

  // What axis i is to the caller; of two that were merged the second.
  int named(int i) const {
    if (w_for_h && i > 0) i = 3 - i;
    return d_for_h && i < 2 ? 1 - i : i;
  }
  // An axis is not what a kernel takes; by the caller's name for it.  Out of line: drivers have many of them.
  [[gnu::noinline]] refusal refuse(const char* const (&field)[3], int i, int64_t value, int64_t limit) const {
    return {QUERN_REASON_SHAPE, field[named(i)], value, limit};
  }

  // Elements from the first channel of all to another.
  int64_t src_channel(int64_t channel) const { return channel_offset(channel, src[1], src_block); }
  int64_t dst_channel(int64_t channel) const { return channel_offset(channel, dst[1], dst_block); }
  int64_t residual_channel(int64_t channel) const { return channel_offset(channel, residual[1], residual_block); }

  // Memory that holds nothing may be NULL: no stride leads anywhere from there.
  void forget_empty(const quern_problem& p) {
    const auto holds_nothing = [](const quern_tensor& t) { return std::find(t.size, t.size + 5, 0) != t.size + 5; };
    if (holds_nothing(p.src)) std::fill_n(src, 5, 0), src_block = 1;
    if (holds_nothing(p.weights)) std::fill_n(weights, 5, 0), weights_group = 0;
  }

  // Axes without a filter that lie one behind the other are one axis, and a filter along d alone is one along h: of
  // three axes two are left where it can be, which is what kernels are made for.
  void merge_axes() {
    if (in[0] == 1 && out[0] == 1 && filter[0] == 1) return;
    const auto idle = [&](int i) { return filter[i] == 1 && stride[i] == 1 && pad[i] == 0 && in[i] == out[i]; };
    const auto follow = [&](int i) {  // the next axis
      return idle(i) && idle(i + 1) && src[2 + i] == in[i + 1] * src[3 + i] && dst[2 + i] == in[i + 1] * dst[3 + i] &&
             residual[2 + i] == in[i + 1] * residual[3 + i];
    };
    if (follow(0)) {
      in[1] *= in[0], out[1] = in[1];
    } else if (follow(1)) {
      in[2] *= in[1], out[2] = in[2];
      for (int64_t* each : {in, out, filter, stride, dilation, pad}) each[1] = each[0];
      for (int64_t* each : {src, dst, residual, weights}) each[3] = each[2];
      filter[0] = stride[0] = dilation[0] = 1, pad[0] = 0;
      d_for_h = true;
    } else {
      return;
    }
    in[0] = out[0] = 1;
  }

  // One B serves all matrices of a GEMM: where those follow each other row by row they are one.
  void merge_matrices() {
    const int64_t rows = in[2];
    if (n == 1) return;
    for (const int64_t* each : {src, dst, residual})
      if (rows != 1 && each[0] != rows * each[4]) return;
    if (rows == 1)
      for (int64_t* each : {src, dst, residual}) each[4] = each[0];
    in[2] = out[2] = rows * std::exchange(n, 1);
  }

  int64_t phases(int axis_index) const {
    return transposed ? std::min(stride[axis_index], std::max<int64_t>(out[axis_index], 1)) : 1;
  }
  int64_t phases() const { return phases(0) * phases(1) * phases(2); }
  // Loops over phases are short enough to plan with.
  refusal refuse_phases() const {
    int64_t most = 1024;
    for (int i = 0; i < 3; ++i) {
      if (phases(i) > most) return refuse(window_stride, i, stride[i], most);
      most /= phases(i);
    }
    return {};
  }
  axis axis_of(int i, int64_t phase) const {
    if (!transposed) return forward_axis(in[i], out[i], filter[i], stride[i], dilation[i], pad[i]);
    // Phases by where they begin in dst, so that those without outputs need not be counted.
    return transposed_axis(in[i], out[i], filter[i], stride[i], dilation[i], pad[i], phase);
  }
  // Of the first `count` taps of an axis, those of its phases before this one: their residue is one of theirs.
  int64_t taps_before(int i, int64_t phase, int64_t count) const;
  int64_t taps_before(int i, int64_t phase) const { return taps_before(i, phase, filter[i]); }
  // So many taps in a row belong to a phase each, then those come again; others have none.
  int64_t tapped_phases(int i) const { return transposed ? stride[i] / std::gcd(stride[i], dilation[i]) : 1; }
  int64_t tapped_before(int i, int64_t phase) const {
    return taps_before(i, phase, std::min(filter[i], tapped_phases(i)));
  }
  // Of all phases together: the whole filter, or less where dst has fewer outputs than there are phases.
  int64_t taps() const;
  // No phase has more.
  int64_t taps_of_largest_phase() const {
    int64_t product = 1;
    for (int i = 0; i < 3; ++i) product *= up(filter[i], tapped_phases(i));
    return product;
  }
  // Of the filter itself: as many as any phase has, and more than one phase of several has.
  int64_t filter_size() const { return filter[0] * filter[1] * filter[2]; }
};

// The three axes of one phase; phases are numbered with w fastest.
struct phase {
  axis d, h, w;
  int64_t outputs() const { return d.out_count * h.out_count * w.out_count; }
  int64_t taps() const { return d.taps * h.taps * w.taps; }
};

inline phase phase_of(const geometry& g, int64_t index) {
  const int64_t w = digit(index, g.phases(2)), h = digit(index, g.phases(1));
  return {g.axis_of(0, index), g.axis_of(1, h), g.axis_of(2, w)};
}

// Of the phases before this one together.
int64_t taps_before(const geometry&, int64_t index);
int64_t tapped_phases_before(const geometry&, int64_t index);

geometry geometry_of(const quern_problem&);

}  // namespace quern
