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

#include "geometry.h"
#include "kernel.h"

namespace quern {

struct weight_panels {
  const geometry& g;
  int64_t nr, vector;
  int64_t taps = g.taps();

  int64_t count() const { return up(g.k, nr); }
  int64_t width(int64_t panel) const {
    const int64_t columns = std::min(nr, g.k - panel * nr);
    return up(columns, vector) * vector;
  }
  int64_t columns() const { return g.k == 0 ? 0 : (count() - 1) * nr + width(count() - 1); }
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

template <class T, class Place>  // Place(group, channel in group, phase, taps before, tap, input channel, weight)
void pack_weights(const geometry& g, int64_t first, int64_t count, const T* weights, Place place) {
  const int64_t base = weight_offset(g, first);
  for (int64_t channel = first; channel < first + count; ++channel) {
    const T* w = weights + (weight_offset(g, channel) - base);
    int64_t before = 0;
    for (int64_t f = 0; f < g.phases(); ++f) {
      const phase ph = phase_of(g, f);
      int64_t tap = 0;
      for (int64_t t = 0; t < ph.d.taps; ++t)
        for (int64_t r = 0; r < ph.h.taps; ++r)
          for (int64_t s = 0; s < ph.w.taps; ++s, ++tap) {
            const T* from = w + (ph.d.filter_begin + t * ph.d.filter_step) * g.weights[2] +
                            (ph.h.filter_begin + r * ph.h.filter_step) * g.weights[3] +
                            (ph.w.filter_begin + s * ph.w.filter_step) * g.weights[4];
            for (int64_t c = 0; c < g.c; ++c)
              place(channel / g.k, channel % g.k, f, ph, before, tap, c, from[c * g.weights[1]]);
          }
      before += ph.taps();
    }
  }
}

template <class T>
void pack_panels(const weight_panels& p, int64_t first, int64_t count, const T* weights, T* packed) {
  pack_weights(p.g, first, count, weights,
               [&](int64_t group, int64_t k, int64_t, const phase& ph, int64_t before, int64_t tap, int64_t c, T w) {
                 const int64_t panel = k / p.nr, width = p.width(panel);
                 T* row = packed + p.phase(group, before) + p.panel(panel, ph.taps()) + (tap * p.g.c + c) * width;
                 row[k % p.nr] = w;
                 if (k == p.g.k - 1)
                   for (int64_t j = k % p.nr + 1; j < width; ++j) row[j] = 0;
               });
}

inline void pack_rows(const weight_rows& r, int64_t first, int64_t count, const float* weights, float* packed) {
  const geometry& g = r.g;
  const int64_t group_size = r.group();
  int64_t last_phase = -1, phase_begin = 0;
  pack_weights(g, first, count, weights,
               [&](int64_t group, int64_t k, int64_t f, const phase& ph, int64_t, int64_t tap, int64_t c, float w) {
                 if (f != last_phase) {
                   phase_begin = r.before(f), last_phase = f;
                 }
                 const int64_t stride = r.stride(ph.taps());
                 float* row = packed + group * group_size + phase_begin + k * stride;
                 row[tap * g.c + c] = w;
                 if (tap * g.c + c == ph.taps() * g.c - 1)
                   for (int64_t j = ph.taps() * g.c; j < stride; ++j) row[j] = 0.0f;
               });
}

}  // namespace quern
