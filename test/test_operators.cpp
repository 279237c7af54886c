// SPDX-License-Identifier: MIT
//
// Every candidate of many problems against the reference, exact on small integers, between guard pages: a
// fixed list, sizes around the register tiles, every order of a matrix product, nothing at all, and random
// problems.  A failure prints its problem as the line that `quern bench` replays.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "compare.h"
#include "fuzz.h"
#include "machine.h"
#include "shapes.h"

namespace quern::test {
namespace {

testing::AssertionResult every_candidate_agrees(const quern_problem& p, const operands& in, const way& how) {
  const solution want = expected(p, in);
  for (const quern_candidate& c : exact_candidates(p)) {
    auto result = agree(p, want, solve(p, in, c.algorithm, c.kernel, how));
    if (!result) return result;
  }
  return testing::Test::HasFailure() ? testing::AssertionFailure() : testing::AssertionSuccess();
}

testing::AssertionResult every_candidate_is_exact(const quern_problem& p, dice& d) {
  const way how = random_way(p, d);
  return every_candidate_agrees(p, small_integers(p, how.side, d), how);
}

class operators_of : public of_layout {};
INSTANTIATE_TEST_SUITE_P(operators, operators_of, testing::ValuesIn(all_layouts), layout_name);

TEST_P(operators_of, fixed_shapes_into_every_layout) {
  const quern_layout src = GetParam();
  dice d(1);
  int which = 0;
  for (const shape& s : fixed_shapes)
    for (quern_layout dst : all_layouts)
      for (int i = 0; i < (block_of(src) == 1 && block_of(dst) == 1 ? 3 : 1); ++i) {
        if (emulated && !d.one_in(4)) continue;
        quern_problem p = problem_of(s, src, dst);
        p.weights.layout = d.of(layouts);
        set_epilogue(p, i == 0 && block_of(src) == 1 ? 0 : which += 7);
        if (p.epilogue.residual) p.residual.layout = d.of(all_layouts);
        ASSERT_TRUE(every_candidate_is_exact(completed(p), d));
      }
}

// Input channels, output channels and pixels around every tile of the build.
TEST(operators, sizes_around_the_tiles) {
  dice d(2);
  int which = 0;
  const std::vector<int64_t> sizes = edge_sizes();
  for (int64_t k : sizes)
    for (int64_t pixels : {d.of(sizes), d.of(sizes), d.of(sizes)})
      for (quern_layout layout : all_layouts) {
        const int64_t filter = d.from(1, 3);
        const shape s = {.c = std::min<int64_t>(d.of(sizes), 40),
                         .k = k,
                         .image = {1, 1, pixels},
                         .filter = {1, 1, filter},
                         .end = {0, 0, filter - 1}};
        quern_problem p = problem_of(s, layout, layout);
        set_epilogue(p, which += 11);
        ASSERT_TRUE(every_candidate_is_exact(completed(p), d));
      }
}

// Rows or columns densest, or neither, for each of the matrices.
TEST(operators, matrices_in_every_order) {
  dice d(3);
  for (int order = 0; order < 81; ++order)
    for (int batch : {1, 2}) {
      quern_problem p = quern_gemm(QUERN_F32, d.from(1, 50), d.from(1, 70), d.from(1, 40));
      p.src.size[0] = batch;
      set_epilogue(p, static_cast<int>(d.from(0, 419)));
      p = completed(p);
      const auto turn = [](quern_tensor& t, int how) {
        t.stride[4] = how == 0 ? 1 : how == 1 ? t.size[3] + 1 : 2;
        t.stride[3] = how == 0 ? t.size[4] + 2 : how == 1 ? 1 : 2 * t.size[4] + 1;
        t.stride[0] = 3 * (t.size[3] + 1) * (t.size[4] + 1);
      };
      turn(p.src, order % 3), turn(p.weights, order / 3 % 3), turn(p.dst, order / 9 % 3);
      if (p.epilogue.residual) turn(p.residual, order / 27 % 3);
      ASSERT_TRUE(every_candidate_is_exact(completed(p), d));
    }
}

// Pixels of src that are neighbours only within a line, while those of dst are never.
TEST(operators, lines_with_gaps_into_scattered_outputs) {
  dice d(4);
  for (quern_layout residual : all_layouts)
    for (int64_t gap : {0, 1, 5}) {
      quern_problem p = problem_of({.c = 3, .k = 5, .image = {2, 5, 7}}, QUERN_NCHW, QUERN_NHWC);
      p.epilogue.residual = QUERN_RESIDUAL_BEFORE;
      p.residual.layout = residual;
      p = completed(p);
      p.src.stride[3] += gap, p.src.stride[2] += 5 * gap, p.src.stride[1] += 11 * gap;
      ASSERT_TRUE(every_candidate_is_exact(completed(p), d));
      p.dst.stride[4] *= 2, p.dst.stride[3] *= 2, p.dst.stride[2] *= 2, p.dst.stride[1] *= 2;
      ASSERT_TRUE(every_candidate_is_exact(completed(p), d));
    }
}

// Depthwise operands of every layout, turned in bands that meet in the middle of a filter, in classes of dilated lines
// and phases of transposed ones too, and spread where a channel has several outputs.
TEST(operators, bands_of_turned_depthwise_operands) {
  const shape shapes[] = {
      {.n = 2,
       .groups = 37,
       .image = {1, 23, 9},
       .filter = {1, 5, 5},
       .stride = {1, 3, 3},
       .begin = {0, 2, 2},
       .end = {0, 2, 2}},
      {.groups = 16,
       .image = {1, 29, 17},
       .filter = {1, 3, 3},
       .dilation = {1, 3, 2},
       .begin = {0, 3, 2},
       .end = {0, 3, 2}},
      {.groups = 5,
       .image = {3, 14, 8},
       .filter = {2, 13, 7},
       .stride = {1, 2, 1},
       .begin = {1, 6, 3},
       .end = {0, 6, 3}},
      {.op = QUERN_CONV_TRANSPOSED,
       .n = 2,
       .groups = 18,
       .image = {1, 21, 6},
       .filter = {1, 4, 3},
       .stride = {1, 2, 2}},
      // The first phase of lines has no taps, the second falls into classes.
      {.op = QUERN_CONV_TRANSPOSED,
       .groups = 18,
       .image = {1, 20, 6},
       .filter = {1, 3, 3},
       .stride = {1, 2, 3},
       .dilation = {1, 6, 2},
       .begin = {0, 1, 1},
       .output_padding = {0, 1, 2}},
      {.op = QUERN_CONV_TRANSPOSED,
       .k = 3,
       .groups = 7,
       .image = {2, 12, 9},
       .filter = {2, 5, 3},
       .stride = {2, 3, 1},
       .begin = {0, 2, 1},
       .end = {0, 1, 1}},
      {.n = 2, .k = 2, .groups = 21, .image = {1, 25, 12}, .filter = {1, 5, 5}, .begin = {0, 2, 2}, .end = {0, 2, 2}},
      {.k = 5,
       .groups = 9,
       .image = {1, 22, 15},
       .filter = {1, 3, 3},
       .stride = {1, 2, 2},
       .begin = {0, 1, 1},
       .end = {0, 1, 1}},
      {.k = 20, .image = {1, 19, 11}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}},
  };
  const int residuals[] = {QUERN_RESIDUAL_NONE, QUERN_RESIDUAL_BEFORE, QUERN_RESIDUAL_AFTER};
  dice d(6);
  for (const shape& s : shapes)
    for (quern_layout src : all_layouts)
      for (quern_layout dst : all_layouts) {
        quern_problem p = problem_of(s, src, dst);
        p.epilogue.bias = 1, p.epilogue.activation = QUERN_RELU;
        p.epilogue.residual = d.of(residuals);
        if (p.epilogue.residual) p.residual.layout = d.of(all_layouts);
        p = completed(p);
        way how;
        how.side = d.one_in(2) ? edge::front : edge::back;
        how.small_caches = true, how.slow_l3 = d.one_in(2);
        const operands in = small_integers(p, how.side, d);
        const solution want = expected(p, in);
        for (const quern_candidate& c : exact_candidates(p))
          if (strcmp(c.algorithm, "conv_depthwise") == 0) {
            ASSERT_TRUE(agree(p, want, solve(p, in, c.algorithm, c.kernel, how)));
          }
      }
}

// Channels last whose pixels share few sets of L1, in bands, the last channels fewer than go together.
TEST(operators, crowded_pixels_of_depthwise) {
  const shape shapes[] = {
      {.n = 2, .groups = 300, .image = {1, 33, 9}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}},
      {.groups = 137,
       .image = {1, 28, 16},
       .filter = {1, 5, 5},
       .stride = {1, 2, 2},
       .begin = {0, 2, 2},
       .end = {0, 1, 2}},
      {.groups = 80, .image = {1, 12, 7}, .filter = {1, 7, 3}, .dilation = {1, 1, 1}, .begin = {0, 6, 0}},
      {.op = QUERN_CONV_TRANSPOSED, .groups = 72, .image = {1, 10, 8}, .filter = {1, 3, 3}, .begin = {0, 1, 1}},
  };
  dice d(7);
  for (const shape& s : shapes)
    for (quern_layout dst : all_layouts) {
      quern_problem p = problem_of(s, QUERN_NHWC, dst);
      set_epilogue(p, static_cast<int>(d.from(0, 419)));
      p = completed(p);
      const int64_t pixel = 512, width = p.src.size[4];
      p.src.stride[4] = pixel, p.src.stride[3] = width * pixel;
      p.src.stride[2] = p.src.stride[0] = p.src.size[3] * width * pixel;
      p = completed(p);
      way how = random_way(p, d);
      how.small_caches = true, how.small_l1 = 32 << 10, how.model = amd;
      const operands in = small_integers(p, how.side, d);
      const solution want = expected(p, in);
      for (const quern_candidate& c : exact_candidates(p))
        if (strcmp(c.algorithm, "conv_depthwise") == 0) {
          const solution got = solve(p, in, c.algorithm, c.kernel, how);
          ASSERT_TRUE(agree(p, want, got));
          if (strstr(c.kernel, "x8_")) {
            EXPECT_GT(got.plan.workspace_bytes, 0u) << c.kernel;
          }
          // Without a workspace they stay as they lie.
          if (dst != QUERN_NHWC) continue;
          how.workspace_limit = 1;
          ASSERT_TRUE(agree(p, want, solve(p, in, c.algorithm, c.kernel, how)));
          how.workspace_limit = 0;
        }
    }
}

// dst may hold the residual, also where sums pause in dst.
TEST_P(operators_of, residual_in_place) {
  const quern_layout layout = GetParam();
  dice d(5);
  for (const shape& s : fixed_shapes)
    for (int32_t residual : {QUERN_RESIDUAL_BEFORE, QUERN_RESIDUAL_AFTER}) {
      if (emulated && !d.one_in(4)) continue;
      quern_problem p = problem_of(s, layout, layout);
      p.epilogue.residual = residual;
      p.epilogue.activation = QUERN_RELU;
      p = completed(p);
      way how = random_way(p, d);
      how.in_place = true;
      ASSERT_TRUE(every_candidate_agrees(p, small_integers(p, how.side, d), how));
    }
}

// dst is some channels of a larger tensor, rows are padded, src repeats one image, one line or one pixel.
TEST(operators, views) {
  dice d(6);
  for (quern_layout layout : all_layouts)
    for (int repeated = 0; repeated < 5; ++repeated) {
      quern_problem p = problem_of(
          {.n = 2, .c = 4, .k = 9, .image = {2, 5, 19}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}},
          layout, layout);
      p.epilogue.bias = 1;
      p = completed(p);
      if (layout == QUERN_NHWC) {
        for (int i : {4, 3, 2, 0}) p.dst.stride[i] = p.dst.stride[i] / 9 * 23;
      } else {
        p.dst.stride[0] += 14 * p.dst.stride[1];
      }
      ASSERT_TRUE(every_candidate_is_exact(p, d));
      p.src.stride[repeated] = 0;
      ASSERT_TRUE(every_candidate_is_exact(p, d));
    }
}

// Nothing to do is done without touching a byte; a sum over nothing is zero, and the epilogue runs.
TEST(operators, zero_sizes) {
  dice d(7);
  for (quern_op op : {QUERN_CONV, QUERN_CONV_TRANSPOSED})
    for (quern_layout src : all_layouts)
      for (quern_layout dst : all_layouts)
        for (int zero = 0; zero < 6; ++zero)
          for (int which : {0, 1, 3, 7, 10, 11}) {
            shape s = {.op = op,
                       .n = 2,
                       .c = 3,
                       .k = 5,
                       .image = {2, 3, 4},
                       .filter = {1, 3, 2},
                       .begin = {1, 2, 2},
                       .end = {1, 2, 2}};
            if (op == QUERN_CONV_TRANSPOSED) std::fill_n(s.begin, 3, 0), std::fill_n(s.end, 3, 0);
            (zero < 3 ? zero == 0 ? s.n : zero == 1 ? s.c : s.k : s.image[zero - 3]) = 0;
            quern_problem p = problem_of(s, src, dst);
            set_epilogue(p, which);
            ASSERT_TRUE(every_candidate_is_exact(completed(p), d));
          }
  for (int zero = 0; zero < 8; ++zero) {
    quern_problem p = quern_gemm(QUERN_F32, zero & 1 ? 0 : 5, zero & 2 ? 0 : 7, zero & 4 ? 0 : 3);
    p.epilogue.bias = 1;
    ASSERT_TRUE(every_candidate_is_exact(completed(p), d));
  }
}

// Without input channels there is neither src nor anything to multiply: their pointers may be NULL.
TEST(operators, no_channels_need_no_src) {
  for (quern_layout layout : layouts) {
    quern_problem p =
        problem_of({.n = 2, .c = 0, .k = 3, .image = {1, 4, 5}, .filter = {1, 3, 3}, .end = {0, 2, 2}}, layout, layout);
    p = completed(p);
    for (const quern_candidate& c : usable_candidates(p)) {
      quern_wish wish = {};
      wish.size = sizeof wish, wish.algorithm = c.algorithm, wish.kernel = c.kernel;
      quern_error error = {};
      quern_plan plan;
      ASSERT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_OK) << error.text;
      guarded<char> packed(plan.packed_bytes, edge::back, QUERN_ALIGN);
      guarded<char> workspace(plan.workspace_bytes, edge::back, QUERN_ALIGN);
      const float weights = 0;
      ASSERT_EQ(quern_pack(&plan, &weights, packed.data(), packed.size(), nullptr, &error), QUERN_OK) << error.text;
      std::vector<float> dst(static_cast<size_t>(extent(p.dst)), 5.0f);
      quern_args args = {};
      args.size = sizeof args, args.weights = packed.data(), args.dst = dst.data();
      quern_exec exec = {};
      exec.size = sizeof exec, exec.workspace = workspace.data(), exec.workspace_bytes = workspace.size();
      ASSERT_EQ(quern_run(&plan, &args, &exec, &error), QUERN_OK) << error.text;
      for (float x : dst) ASSERT_EQ(x, 0) << c.algorithm << " " << c.kernel;
    }
  }
}

// Packed in parts of any size and order, over memory that held anything, the blob is the same.
testing::AssertionResult parts_make_the_same_blob(const quern_problem& p, const operands& in, dice& d) {
  for (const quern_candidate& c : usable_candidates(p)) {
    const auto failed = [&](const std::string& why) {
      return testing::AssertionFailure() << c.algorithm << " " << c.kernel << ": " << why << "\n" << text(p);
    };
    quern_wish wish = {};
    wish.size = sizeof wish, wish.algorithm = c.algorithm, wish.kernel = c.kernel;
    quern_error error = {};
    quern_plan plan;
    if (quern_plan_make(&plan, nullptr, &p, &wish, &error)) return failed(error.text);
    if (plan.packed_bytes != c.packed_bytes) return failed("candidate and plan differ in packed_bytes");
    if (plan.workspace_bytes != c.workspace_bytes) return failed("candidate and plan differ in workspace_bytes");
    guarded<char> whole(plan.packed_bytes, edge::back, QUERN_ALIGN), parts(plan.packed_bytes, edge::back, QUERN_ALIGN);
    memset(whole.data(), 0x11, whole.size());
    memset(parts.data(), 0xee, parts.size());
    if (quern_pack(&plan, in.weights.data(), whole.data(), whole.size(), nullptr, &error)) return failed(error.text);

    const int64_t channels = channels_of(p), group = channels / p.groups;
    std::vector<int64_t> cuts = {0, channels};
    for (int64_t i = d.from(0, 4); i > 0; --i) cuts.push_back(d.from(0, channels));
    std::sort(cuts.begin(), cuts.end());
    std::vector<size_t> order(cuts.size() - 1);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), d.engine());
    for (size_t i : order) {
      const int64_t first = cuts[i], count = cuts[i + 1] - first;
      const int64_t* stride = p.weights.stride;
      const int64_t offset = p.op == QUERN_GEMM   ? first * stride[4]
                             : p.op == QUERN_CONV ? first * stride[0]
                             : group == 0
                                 ? 0
                                 : first / group * (p.src.size[1] / p.groups) * stride[0] + first % group * stride[1];
      if (quern_pack_part(&plan, first, count, in.weights.data() + (count ? offset : 0), parts.data(), parts.size(),
                          &error))
        return failed(error.text);
    }
    if (quern_packed_check(&plan, parts.data(), parts.size(), nullptr) == QUERN_OK)
      return failed("a blob passes unsealed");
    if (quern_pack_seal(&plan, parts.data(), parts.size(), &error)) return failed(error.text);
    if (memcmp(whole.data(), parts.data(), whole.size()) != 0) return failed("packed in parts the blob is another");
    if (!whole.intact() || !parts.intact()) return failed("packing wrote behind the blob");
  }
  return testing::AssertionSuccess();
}

TEST(operators, packing_in_parts) {
  dice d(8);
  for (const shape& s : fixed_shapes)
    for (quern_layout src : all_layouts)
      for (quern_layout dst : all_layouts) {
        const quern_problem p = completed(problem_of(s, src, dst));
        ASSERT_TRUE(parts_make_the_same_blob(p, small_integers(p, edge::back, d), d));
      }
  for (quern_op op : {QUERN_CONV, QUERN_CONV_TRANSPOSED})
    for (quern_layout layout : all_layouts)
      for (int64_t c : {0, 1, 3})
        for (int64_t groups : {1, 4}) {
          const shape without_outputs = {
              .op = op, .c = c, .k = 0, .groups = groups, .image = {1, 5, 5}, .filter = {1, 3, 3}};
          const quern_problem p = completed(problem_of(without_outputs, layout, layout));
          ASSERT_TRUE(parts_make_the_same_blob(p, small_integers(p, edge::back, d), d));
        }
}

// What no memory could hold is planned all the same: nothing overflows on the way to an answer.
TEST(operators, sizes_near_the_limits) {
  constexpr int64_t huge = int64_t{1} << 53, wide = int64_t{1} << 30;
  const shape shapes[] = {
      {.image = {1, 1, huge}, .filter = {1, 1, 9}},
      {.image = {1, 1, huge / 8}, .filter = {1, 60, 9}, .begin = {0, 60, 0}},
      {.k = huge},
      {.c = huge},
      {.groups = wide, .image = {1, 2, wide / 256}, .filter = {1, 5, 1}, .begin = {0, 5, 0}},
      {.c = wide, .image = {1, 1, wide / 256}, .stride = {1, wide, wide}},
      {.c = wide, .k = 2, .image = {1, 1 << 11, 1 << 11}, .stride = {1, wide, 1}},
      {.image = {1, 1, 1}, .filter = {1, 1 << 20, 1 << 20}, .begin = {0, 1 << 20, 1 << 20}},
      {.op = transposed, .image = {1, 2, 2}, .filter = {1, 3, 3}, .stride = {1, wide / 2048, wide / 2048}},
      {.op = transposed, .c = wide, .k = wide / 256, .image = {1, 1, 1}},
  };
  for (const shape& s : shapes)
    for (quern_layout layout : layouts) {
      const quern_problem p = completed(problem_of(s, layout, layout));
      if (HasFailure()) return;
      for (const quern_candidate& c : all_candidates(p)) {
        EXPECT_TRUE(std::isfinite(c.predicted_ns) && c.predicted_ns >= 0) << c.algorithm << " " << c.kernel << "\n"
                                                                          << text(p);
        if (c.verdict > QUERN_USABLE) continue;
        EXPECT_LE(c.workspace_bytes, uint64_t{INT64_MAX}) << c.algorithm << " " << c.kernel << "\n" << text(p);
        EXPECT_GE(c.packed_bytes, 4 * static_cast<uint64_t>(extent(p.weights)) * (s.op == QUERN_CONV)) << text(p);
      }
    }
}

TEST(operators, fuzz) {
  using clock = std::chrono::steady_clock;
  const auto end = clock::now() + std::chrono::seconds(5);
  int problems = 0;
  for (uint32_t first = seed(), i = 0; clock::now() < end; ++i, ++problems) {
    dice d(first + i);
    const quern_problem p = random_problem(d);
    const way how = random_way(p, d);
    const operands in = small_integers(p, how.side, d);
    ASSERT_TRUE(every_candidate_agrees(p, in, how)) << "QUERN_TEST_SEED=" << first + i;
    if (d.one_in(4)) {
      ASSERT_TRUE(parts_make_the_same_blob(p, in, d)) << "QUERN_TEST_SEED=" << first + i;
    }
  }
  printf("%d problems\n", problems);
}

}  // namespace
}  // namespace quern::test
