// SPDX-License-Identifier: MIT
//
// The two orders of packed weights.  Both keep group by group and phase by phase (geometry.h), and k runs
// over taps, then input channels, so that every driver sums in the same order.
//
//   panels   [group][phase][k / nr][tap][c][nr]       weights are B: channels across, NHWC
//   rows     [group][phase][k][tap][c]                weights are A: channels down, NCHW
//
// The last panel is as wide as its channels need, rounded up to whole vectors and filled with zeros.
#pragma once

#include <algorithm>

#include "geometry.h"
#include "kernel.h"

namespace quern {

struct weight_panels {
  const geometry& g;
  int64_t nr, vector;
  int64_t taps = g.taps();
  int64_t count = up(g.k, nr);
  int64_t last = up(g.k - (count - 1) * nr, vector) * vector;  // columns of the last

  int64_t width(int64_t panel) const { return panel < count - 1 ? up(nr, vector) * vector : last; }
  int64_t columns() const { return g.k == 0 ? 0 : (count - 1) * nr + last; }
  // Elements before the phase whose predecessors have `taps_before` taps together.
  int64_t phase(int64_t group, int64_t taps_before) const { return (group * taps + taps_before) * g.c * columns(); }
  int64_t panel(int64_t panel_index, int64_t phase_taps) const { return panel_index * nr * phase_taps * g.c; }
  int64_t size() const { return phase(g.groups, 0); }
};

struct weight_rows {
  const geometry& g;
  bool one_phase = g.phases() == 1;
  bool long_rows = g.taps_of_largest_phase() * g.c >= 256;

  // Rows a multiple of 1 KiB apart would share a few sets of L1: they get a line in between, of several phases all that
  // may have such rows.
  int64_t room(int64_t k) const { return (one_phase ? k > 0 && k % 256 == 0 : long_rows) ? 16 : 0; }
  int64_t stride(int64_t taps) const { return taps > 0 ? taps * g.c + room(taps * g.c) : 0; }
  // Elements of a group before this phase.
  int64_t before(int64_t index) const {
    const int64_t taps = taps_before(g, index);
    return g.k * (g.c * taps + tapped_phases_before(g, index) * room(g.c * taps));
  }
  int64_t group() const { return before(g.phases()); }
  int64_t phase(int64_t group_index, int64_t index) const { return group_index * group() + before(index); }
  int64_t size() const { return g.groups * group(); }
};

// Both pack output channels [first, first + count) of all groups together; `weights` is where the element
// of channel `first` lies.
inline int64_t weight_offset(const geometry& g, int64_t channel) {
  return channel / g.k * g.weights_group + channel % g.k * g.weights[0];
}

// Elements that packing these reads, counted from there; groups may lie between each other's channels.
inline range weights_read(const geometry& g, int64_t first, int64_t count) {
  const int64_t last = first + count - 1, groups = last / g.k - first / g.k, base = weight_offset(g, first);
  range all = {base, weight_offset(g, last)};
  if (groups > 0) {
    all.begin = std::min(all.begin, weight_offset(g, (first / g.k + 1) * g.k));
    all.end = std::max(all.end, weight_offset(g, last / g.k * g.k - 1));
  }
  all.end += (g.c - 1) * g.weights[1] + 1;
  for (int i = 0; i < 3; ++i) all.end += (g.filter[i] - 1) * g.weights[2 + i];
  return {all.begin - base, all.end - base};
}

// Weights of neighbouring output and input channels for a tap.
struct weight_place {
  int64_t group, k, count;  // output channels k to k + count of a group
  int64_t f;                // the phase
  const phase& ph;
  int64_t before, tap;  // taps of earlier phases together; the tap of this one
  int64_t begin, end;   // input channels
  int64_t at, next_output, next_input;
};
template <class T>
struct weight_run : weight_place {
  const T* weights;
  T operator()(int64_t i, int64_t c) const { return weights[at + i * next_output + (c - begin) * next_input]; }
  T operator[](int64_t c) const { return (*this)(0, c); }
};

// Every weight of output channels [first, first + count), counted from that of the first, none of them together on both
// sides of a multiple of `panel`.  What some output channels have of some input channels passes before more of either,
// so that what is read and what is written wait in L1 for their neighbours; an output channel's first input channels
// and first tap come first.
void walk_weights(const geometry& g, int64_t panel, int64_t first, int64_t count,
                  void (*visit)(void* visitor, const weight_place&), void* visitor);

template <class T, class Place>  // place(weight_run)
void pack_weights(const geometry& g, int64_t first, int64_t count, const T* weights, Place place, int64_t panel = 1) {
  struct packing {
    Place& place;
    const T* weights;
  } p = {place, weights};
  const auto visit = [](void* visitor, const weight_place& at) {
    const packing& to = *static_cast<packing*>(visitor);
    to.place(weight_run<T>{at, to.weights});
  };
  walk_weights(g, panel, first, count, visit, &p);
}

// A weight in its lane of a row; where that is the last there is, zeros behind it up to `end`.
template <class T>
void put_lane(T* row, int64_t lane, int64_t end, T weight) {
  row[lane] = weight;
  for (int64_t i = lane + 1; i < end; ++i) row[i] = T{};
}

template <class T>
void pack_panels(const weight_panels& p, int64_t first, int64_t count, const T* weights, T* packed) {
  const geometry& g = p.g;
  const auto place = [&](const weight_run<T>& w) {
    const int64_t panel = w.k / p.nr, width = p.width(panel), lane = w.k % p.nr;
    const int64_t none = w.k + w.count == g.k ? width - lane - w.count : 0;
    T* row = packed + p.phase(w.group, w.before) + p.panel(panel, w.ph.taps()) + (w.tap * g.c + w.begin) * width + lane;
    for (int64_t c = w.begin; c < w.end; ++c, row += width) {
      for (int64_t i = 0; i < w.count; ++i) row[i] = w(i, c);
      std::fill_n(row + w.count, none, T{});
    }
  };
  pack_weights(g, first, count, weights, place, p.nr);
}

inline void pack_rows(const weight_rows& r, int64_t first, int64_t count, const float* weights, float* packed) {
  const geometry& g = r.g;
  const int64_t group_size = r.group();
  int64_t last_phase = -1, phase_begin = 0;
  pack_weights(g, first, count, weights, [&](const weight_run<float>& w) {
    if (w.f != last_phase) phase_begin = r.before(w.f), last_phase = w.f;
    const int64_t all = w.ph.taps() * g.c, stride = r.stride(w.ph.taps());
    float* const to = packed + w.group * group_size + phase_begin + w.k * stride;
    for (int64_t c = w.begin; c < w.end; ++c) to[w.tap * g.c + c] = w[c];
    if (w.tap == w.ph.taps() - 1 && w.end == g.c) std::fill(to + all, to + stride, 0.0f);
  });
}

}  // namespace quern
