// SPDX-License-Identifier: MIT
//
// QUERN_ANY: the plan takes the layouts in which the best candidate is predicted to be fastest, says so, and runs
// in them; nobody else takes it.
#include <gtest/gtest.h>
#include <quern/quern.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "candidates.h"
#include "compare.h"
#include "fuzz.h"

namespace quern {
namespace {

using test::all_layouts;

std::vector<quern_problem> open_problems() {
  std::vector<quern_problem> list;
  for (quern_layout src : {QUERN_ANY, QUERN_NHWC, QUERN_NC8HW8})
    for (quern_layout dst : {QUERN_ANY, QUERN_NCHW}) {
      if (src != QUERN_ANY && dst != QUERN_ANY) continue;
      quern_problem p = conv(src, 1, 20, 9, 35);
      p.dst.layout = dst;
      list.push_back(p);
      p.epilogue.residual = QUERN_RESIDUAL_AFTER, p.epilogue.bias = 1;
      list.push_back(p);
      p = conv(src, 2, 24, 11, 24, 5);
      p.groups = 24, p.weights.size[1] = 1, p.dst.layout = dst;
      list.push_back(p);
      p = quern_conv2d_transposed(QUERN_F32, src, 1, 9, 6, 5, 17, 3, 3);
      p.window.stride[1] = p.window.stride[2] = 2, p.dst.layout = dst;
      list.push_back(p);
    }
  return list;
}

std::vector<quern_problem> concrete(const quern_problem& p) {
  std::vector<quern_problem> list;
  for (quern_layout src : all_layouts)
    for (quern_layout dst : all_layouts) {
      quern_problem q = p;
      if (q.src.layout == QUERN_ANY) q.src.layout = src;
      if (q.dst.layout == QUERN_ANY) q.dst.layout = dst;
      if (q.src.layout == src && q.dst.layout == dst) list.push_back(q);
    }
  return list;
}

TEST(AnyLayout, ThePlanIsTheBestOfAllLayouts) {
  for (const quern_problem& p : open_problems()) {
    const quern_plan plan = plan_of(p, wish_of());
    double best = std::numeric_limits<double>::infinity();
    for (const quern_problem& q : concrete(p)) best = std::min(best, plan_of(q, wish_of()).predicted_ns);
    EXPECT_EQ(plan.predicted_ns, best) << text_of(p);
    EXPECT_LT(plan.problem.src.layout, QUERN_ANY);
    EXPECT_LT(plan.problem.dst.layout, QUERN_ANY);
    if (p.src.layout != QUERN_ANY) {
      EXPECT_EQ(plan.problem.src.layout, p.src.layout);
    }
    if (p.dst.layout != QUERN_ANY) {
      EXPECT_EQ(plan.problem.dst.layout, p.dst.layout);
    }
    if (p.epilogue.residual) {
      EXPECT_EQ(plan.problem.residual.layout, plan.problem.dst.layout);
    }
    // The same problem, asked for by name.
    quern_problem q = p;
    q.src.layout = plan.problem.src.layout, q.dst.layout = plan.problem.dst.layout;
    const quern_plan named = plan_of(q, wish_of());
    EXPECT_STREQ(named.kernel, plan.kernel);
    EXPECT_EQ(memcmp(&named.problem, &plan.problem, sizeof named.problem), 0) << text_of(named.problem);
  }
}

TEST(AnyLayout, EachCandidateIsInItsBestLayouts) {
  for (const quern_problem& p : open_problems()) {
    const auto all = candidates(p, wish_of());
    ASSERT_FALSE(all.empty());
    const quern_plan plan = plan_of(p, wish_of());
    EXPECT_STREQ(all[0].kernel, plan.kernel);
    EXPECT_EQ(all[0].src_layout, plan.problem.src.layout);
    EXPECT_EQ(all[0].dst_layout, plan.problem.dst.layout);
    for (const quern_candidate& c : all) {
      double best = std::numeric_limits<double>::infinity();
      for (const quern_problem& q : concrete(p)) {
        const auto named = candidates(q, wish_of());
        ASSERT_EQ(named.size(), all.size());
        const quern_candidate* same = find(named, c.algorithm, c.kernel);
        ASSERT_NE(same, nullptr);
        EXPECT_EQ(same->src_layout, q.src.layout);
        EXPECT_EQ(same->dst_layout, q.dst.layout);
        if (same->verdict > QUERN_USABLE) continue;
        best = std::min(best, same->predicted_ns);
        if (q.src.layout == c.src_layout && q.dst.layout == c.dst_layout) {
          EXPECT_EQ(same->predicted_ns, c.predicted_ns);
        }
      }
      EXPECT_EQ(c.verdict <= QUERN_USABLE, best < std::numeric_limits<double>::infinity());
      if (c.verdict <= QUERN_USABLE) {
        EXPECT_EQ(c.predicted_ns, best) << c.algorithm << " " << c.kernel;
      }
    }
  }
}

TEST(AnyLayout, PlansRun) {
  test::dice d(test::seed());
  for (quern_problem p : open_problems()) {
    p.accuracy = QUERN_ACCURACY_F32;  // exact on integers
    const quern_problem chosen = plan_of(p, wish_of()).problem;
    const test::operands in = test::small_integers(chosen, test::edge::back, d);
    EXPECT_TRUE(test::agree(chosen, test::expected(chosen, in), test::solve(p, in, nullptr, nullptr)));
  }
}

TEST(AnyLayout, IsForPlansAlone) {
  quern_problem p = conv(QUERN_NHWC, 1, 8, 5, 8);
  p.dst.layout = QUERN_ANY;
  float memory[1];
  quern_args args = {};
  args.size = sizeof args;
  args.src = args.weights = memory, args.dst = memory;
  quern_error error = {};
  EXPECT_EQ(quern_compute(&p, &args, nullptr, &error), QUERN_INVALID);
  EXPECT_STREQ(error.text,
               "dst.layout is QUERN_ANY, must be a layout: only a plan can choose one, before the tensors are there");
  p = quern_reorder(QUERN_F32, QUERN_NCHW, QUERN_ANY, 1, 2, 3, 4);
  quern_plan plan;
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, nullptr, &error), QUERN_INVALID);
  EXPECT_STREQ(error.field, "dst.layout");
}

}  // namespace
}  // namespace quern
