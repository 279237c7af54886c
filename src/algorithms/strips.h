// SPDX-License-Identifier: MIT
//
// The outputs of a phase as boxes of pixels that have the same taps on the image (one inside, a few along the
// border), and a box as strips that a kernel takes at once.
#pragma once

#include "geometry.h"

namespace quern {

// One axis of a box: how many outputs, and the elements from one to the next.
struct side {
  int64_t count, src, dst, residual;
};

struct box {
  int64_t images;
  range d, y, x;
};

// Lines of pixels at the same distances, so that one kernel call takes any run of them; the three other axes,
// the outermost first, lead from line to line.
struct strips {
  side line, others[3];

  int64_t lines() const { return others[0].count * others[1].count * others[2].count; }
};

// Along the axis that gives the fewest strips of mr pixels; axes that lie behind each other are one.
inline strips strips_of(const geometry& g, const phase& ph, const box& b, int64_t mr, bool residual) {
  const auto along = [&](int64_t count, int64_t in_step, int64_t out_step, int i) {
    return side{count, in_step * g.src[i], out_step * g.dst[i], out_step * g.residual[i]};
  };
  side s[4] = {along(b.images, 1, 1, 0), along(b.d.count(), ph.d.in_step, ph.d.out_step, 2),
               along(b.y.count(), ph.h.in_step, ph.h.out_step, 3), along(b.x.count(), ph.w.in_step, ph.w.out_step, 4)};
  int inner = 3;
  for (int i = 2; i >= 0; --i) {
    if (s[i].count == 1) continue;
    side& in = s[inner];
    if (in.count == 1) {
      in = s[i], s[i].count = 1;
    } else if (s[i].src == in.src * in.count && s[i].dst == in.dst * in.count &&
               (!residual || s[i].residual == in.residual * in.count)) {
      in.count *= s[i].count, s[i].count = 1;
    } else {
      inner = i;
    }
  }
  // How many strips the axis takes for what one would hold if it were divisible.
  const auto waste = [&](int i) { return double(up(s[i].count, mr)) / double(s[i].count); };
  int best = 3;
  double least = s[3].count < 16 * mr ? waste(3) : 0;  // long lines waste next to nothing
  for (int i = 2; i >= 0 && least > 0; --i)
    if (s[i].count > 1)
      if (const double w = waste(i); w < least) best = i, least = w;
  strips all = {s[best], {}};
  for (int i = 0, to = 0; i < 4; ++i)
    if (i != best) all.others[to++] = s[i];
  return all;
}

// Calls visit(d range, y range, x range) for every box of the band of rows.
template <class Visit>
void boxes(const phase& ph, range band, Visit visit) {
  for (range d = {0, 0}; d.begin < ph.d.out_count; d.begin = d.end) {
    d = ph.d.span(d.begin, ph.d.out_count);
    for (range y = {band.begin, band.begin}; y.begin < band.end; y.begin = y.end) {
      y = ph.h.span(y.begin, band.end);
      for (range x = {0, 0}; x.begin < ph.w.out_count; x.begin = x.end) {
        x = ph.w.span(x.begin, ph.w.out_count);
        visit(d, y, x);
      }
    }
  }
}

// The outputs of an axis for a cost: what lies on the border before, all inside, and on the border behind, each as so
// many parts of outputs with as many taps in the mean; where the filter is longer than the image, the middle of both
// borders.  A choice must not take longer for a larger filter.
struct axis_parts {
  struct {
    int64_t outputs;  // of one part
    double taps, parts;
  } part[3];
  int count = 0;

  explicit axis_parts(const axis& a) {
    // The first output whose first tap is on the image, and the first whose last one is not.
    const auto first = [&](int64_t offset) {
      return std::min(up(std::max<int64_t>(offset, 0), a.in_step), a.out_count);
    };
    int64_t cuts[] = {first(-a.in_begin), first(a.in_size - a.in_begin - (a.taps - 1) * a.tap_step)};
    if (cuts[0] > cuts[1]) std::swap(cuts[0], cuts[1]);
    int64_t begin = 0;
    for (const int64_t end : {cuts[0], cuts[1], a.out_count}) {
      if (begin == end) continue;
      const int64_t all = end - begin;
      const range front = a.taps_at(begin), middle = a.taps_at(begin + all / 2), back = a.taps_at(end - 1);
      const int64_t changes = std::max(front.begin - back.begin, front.end - back.end);
      const int64_t each = up(all, std::clamp<int64_t>(changes + 1, 1, all));
      part[count++] = {each, double(front.count() + middle.count() + back.count()) / 3, double(all) / double(each)};
      begin = end;
    }
  }
};

// Of the taps of an axis those that lie on the image, over all outputs.
inline double share_inside(const axis& a) {
  const axis_parts all(a);
  double taps = 0;
  for (int i = 0; i < all.count; ++i) taps += all.part[i].taps * all.part[i].parts * double(all.part[i].outputs);
  return taps > 0 ? taps / (double(a.out_count) * double(a.taps)) : 1;
}

}  // namespace quern
