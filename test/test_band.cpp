// SPDX-License-Identifier: MIT
//
// The drivers that copy bands of the image: what they refuse, and shapes that meet their corners.  The operator
// tests walk them as every other candidate.
#include <gtest/gtest.h>

#include <string>

#include "candidates.h"
#include "fuzz.h"

namespace quern::test {
namespace {

const quern_candidate* of(const std::vector<quern_candidate>& all, const char* algorithm) {
  for (const quern_candidate& c : all)
    if (std::string(c.algorithm) == algorithm && c.verdict != QUERN_UNAVAILABLE) return &c;
  return nullptr;
}

// Padding is memory to these: a little image that is spread over much of it is not theirs.
TEST(band, refuses_bands_that_no_memory_holds) {
  quern_problem p = problem_of({.c = 3,
                                .k = 20,
                                .image = {1, 3, 3},
                                .filter = {1, 1, 2},
                                .dilation = {1, 1, int64_t{1} << 30},
                                .begin = {0, 0, int64_t{1} << 30}},
                               QUERN_NCHW, QUERN_NCHW);
  p = completed(p);
  const quern_cpu cpu = cpu_of(all_isas);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  const auto all = candidates(p, wish);
  for (const char* name : {"conv_band", "conv_planar"}) {
    const quern_candidate* c = of(all, name);
    ASSERT_NE(c, nullptr);
    EXPECT_EQ(c->verdict, QUERN_REFUSED) << name;
    EXPECT_EQ(c->reason, QUERN_REASON_SHAPE) << name;
    EXPECT_GT(c->value, c->limit) << name;
  }
  EXPECT_STREQ(all[0].algorithm, "conv_im2col");
}

// Strides with and without overlap, dilation by the stride, filters of one row or column, tiny pointwise
// images that are one line, and sums in several chunks with a residual in another layout.
TEST(band, corners) {
  const shape shapes[] = {
      {.c = 3, .k = 20, .image = {1, 19, 37}, .filter = {1, 4, 4}, .stride = {1, 4, 4}},
      {.c = 2,
       .k = 15,
       .image = {1, 11, 40},
       .filter = {1, 3, 7},
       .stride = {1, 2, 3},
       .begin = {0, 1, 3},
       .end = {0, 1, 3}},
      {.c = 4,
       .k = 5,
       .image = {1, 9, 50},
       .filter = {1, 3, 3},
       .stride = {1, 2, 2},
       .dilation = {1, 4, 2},
       .begin = {0, 4, 2},
       .end = {0, 4, 2}},
      {.c = 5, .k = 33, .image = {1, 30, 6}, .filter = {1, 7, 1}, .begin = {0, 3, 0}, .end = {0, 3, 0}},
      {.n = 2, .c = 24, .k = 40, .image = {1, 7, 7}},
      {.c = 256, .k = 17, .image = {1, 5, 9}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}},
      {.c = 9, .k = 8, .groups = 3, .image = {1, 6, 20}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}},
  };
  dice d(11);
  for (const shape& s : shapes)
    for (quern_layout src : all_layouts)
      for (quern_layout dst : all_layouts)
        for (quern_layout residual : {QUERN_NCHW, QUERN_NC4HW4}) {
          quern_problem p = problem_of(s, src, dst);
          p.epilogue.bias = 1, p.epilogue.activation = QUERN_RELU;
          p.epilogue.residual = d.one_in(2) ? QUERN_RESIDUAL_BEFORE : QUERN_RESIDUAL_AFTER;
          p.residual.layout = residual;
          p = completed(p);
          way how;
          how.side = d.one_in(2) ? edge::front : edge::back;
          how.small_caches = d.one_in(2);
          const operands in = small_integers(p, how.side, d);
          const solution want = expected(p, in);
          for (const char* name : {"conv_band", "conv_planar", "conv_im2col"})
            for (const quern_candidate& c : exact_candidates(p))
              if (std::string(c.algorithm) == name) {
                ASSERT_TRUE(agree(p, want, solve(p, in, c.algorithm, c.kernel, how)));
              }
        }
}

// Phases of a transposed convolution differ in their taps, and in whether these are neighbours in x: sums that any of
// them cuts are not to wait in dst over a residual that lies there.
TEST(band, every_phase_leaves_a_residual_in_place) {
  dice d(12);
  for (int i = 0; i < 200; ++i) {
    shape s = {.op = transposed, .c = d.from(20, 300), .k = d.from(1, 40)};
    for (int axis = 1; axis < 3; ++axis) {
      s.image[axis] = d.from(1, axis == 1 ? 3 : 12), s.filter[axis] = d.from(1, axis == 1 ? 3 : 5);
      s.stride[axis] = d.from(1, 4), s.dilation[axis] = d.from(1, 4), s.begin[axis] = d.from(0, 2);
      s.output_padding[axis] = d.from(0, s.stride[axis] - 1);
    }
    quern_problem p = problem_of(s, d.of(all_layouts), d.of(layouts));
    p.epilogue.activation = QUERN_RELU;
    p.epilogue.residual = d.one_in(2) ? QUERN_RESIDUAL_BEFORE : QUERN_RESIDUAL_AFTER;
    if (quern_problem_complete(&p, &p, nullptr) != QUERN_OK || empty(p)) continue;
    const operands in = small_integers(p, edge::back, d);
    const solution want = expected(p, in);
    for (const bool small_caches : {false, true})
      for (const quern_candidate& c : exact_candidates(p)) {
        const way how = {.in_place = true, .small_caches = small_caches};
        ASSERT_TRUE(agree(p, want, solve(p, in, c.algorithm, c.kernel, how)));
      }
  }
}

}  // namespace
}  // namespace quern::test
