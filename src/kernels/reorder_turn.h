// SPDX-License-Identifier: MIT
//
// From view to view in registers.
//
// How a layout puts W pixels into registers of W floats is its view: 1 where a register holds a row of pixels of one
// channel (NCHW); 4, 8 or W where it holds so many channels of W / view pixels.  From view to view it is two steps at
// most: R::quads transposes four rows in every 128-bit lane, R::lanes transposes W / 4 registers of such lanes; both
// are their own inverse.
#pragma once

#include "reorder_view.h"

namespace quern {
namespace {

template <class R, int from, int to>
[[gnu::always_inline]] inline void turn(typename R::vector* a) {
  constexpr int W = R::width, L = W / 4, T = from > to ? from : to;
  typename R::vector b[T], x[L];
  if constexpr (from == 1 || to == 1) {
    constexpr int pixels = W / T, groups = T / 4;
    if constexpr (from == 1) QUERN_UNROLL for (int g = 0; g < groups; ++g) R::quads(a + 4 * g);
    // Lane k of row 4 g + p is pixel 4 k + p: in a register of the other view, `pixels` of those meet.
    QUERN_UNROLL for (int s = 0; s < 4 / pixels; ++s) {
      QUERN_UNROLL for (int i = 0; i < L; ++i) {
        const int row = 4 * (i % groups) + pixels * s + i / groups, other = 4 * i / pixels + s;
        x[i] = a[from == 1 ? row : other];
      }
      R::lanes(x);
      QUERN_UNROLL for (int i = 0; i < L; ++i) {
        const int row = 4 * (i % groups) + pixels * s + i / groups, other = 4 * i / pixels + s;
        b[from == 1 ? other : row] = x[i];
      }
    }
    if constexpr (to == 1) QUERN_UNROLL for (int g = 0; g < groups; ++g) R::quads(b + 4 * g);
  } else if constexpr (from + to == 4 + W) {
    QUERN_UNROLL for (int r = 0; r < 4; ++r) {
      QUERN_UNROLL for (int i = 0; i < L; ++i) x[i] = a[from == 4 ? 4 * i + r : L * r + i];
      R::lanes(x);
      QUERN_UNROLL for (int i = 0; i < L; ++i) b[from == 4 ? L * r + i : 4 * i + r] = x[i];
    }
  } else if constexpr (from == 4) {
    QUERN_UNROLL for (int r = 0; r < 4; ++r) R::zip4(a[r], a[4 + r], b[2 * r], b[2 * r + 1]);
  } else if constexpr (to == 4) {
    QUERN_UNROLL for (int r = 0; r < 4; ++r) R::unzip4(a[2 * r], a[2 * r + 1], b[r], b[4 + r]);
  } else if constexpr (from == 8) {
    QUERN_UNROLL for (int r = 0; r < 8; ++r) R::zip8(a[r], a[8 + r], b[2 * r], b[2 * r + 1]);
  } else {
    QUERN_UNROLL for (int r = 0; r < 8; ++r) R::zip8(a[2 * r], a[2 * r + 1], b[r], b[8 + r]);
  }
  QUERN_UNROLL for (int i = 0; i < T; ++i) a[i] = b[i];
}

// Calls visit(i, where register i of a whole tile lies).
template <int W, int view, class Float, class Visit>
[[gnu::always_inline]] inline void each_register(const reorder_view<Float>& v, int registers, Visit visit) {
  Float* group = v.at;
  if (view == 1 || view == W) {
    QUERN_UNROLL for (int i = 0; i < registers; ++i, group += view == 1 ? v.group : v.pixel) visit(i, group);
  } else {
    QUERN_UNROLL for (int i = 0; i < registers; i += view, group += v.group) QUERN_UNROLL for (int r = 0; r < view; ++r)
        visit(i + r, group + r * W);
  }
}

}  // namespace
}  // namespace quern
