// SPDX-License-Identifier: MIT
//
// What geometry.h finds in closed form, against what its axes say one by one.
#include "geometry.h"

#include <gtest/gtest.h>

#include "fuzz.h"
#include "shapes.h"

namespace quern::test {
namespace {

TEST(Geometry, TapsBeforeAPhaseAreThoseOfAllBeforeIt) {
  dice d(1);
  for (int i = 0; i < 2000; ++i) {
    geometry g = {};
    g.transposed = !d.one_in(4);
    for (int axis = 0; axis < 3; ++axis) {
      g.in[axis] = d.from(1, 5), g.out[axis] = d.from(0, 12), g.filter[axis] = d.from(1, 9);
      g.stride[axis] = d.from(1, 7), g.dilation[axis] = d.from(1, 6), g.pad[axis] = d.from(0, 20);
    }
    int64_t taps = 0, tapped = 0, largest = 0;
    for (int64_t f = 0; f < g.phases(); ++f) {
      ASSERT_EQ(taps_before(g, f), taps);
      ASSERT_EQ(tapped_phases_before(g, f), tapped);
      const int64_t own = phase_of(g, f).taps();
      taps += own, tapped += own > 0, largest = std::max(largest, own);
    }
    EXPECT_EQ(taps_before(g, g.phases()), taps);
    EXPECT_EQ(tapped_phases_before(g, g.phases()), tapped);
    EXPECT_EQ(g.taps(), taps);
    EXPECT_GE(g.taps_of_largest_phase(), largest);
  }
}

TEST(Geometry, MatricesThatFollowEachOtherAreOne) {
  quern_problem p = quern_gemm(QUERN_F32, 1, 64, 48);
  p.src.size[0] = 128;
  const geometry many = geometry_of(completed(p)), one = geometry_of(completed(quern_gemm(QUERN_F32, 128, 64, 48)));
  EXPECT_EQ(many.n, 1);
  EXPECT_EQ(many.in[2], 128);
  EXPECT_EQ(many.src[4], one.src[4]);
  EXPECT_EQ(many.dst[4], one.dst[4]);
  p.src.size[3] = 2;
  EXPECT_EQ(geometry_of(completed(p)).in[2], 256);
  // Rows of dst that lie apart from matrix to matrix.
  p = completed(p);
  p.dst.stride[0] *= 2;
  EXPECT_EQ(geometry_of(p).n, 128);
}

}  // namespace
}  // namespace quern::test
