// SPDX-License-Identifier: MIT
//
// Every candidate for operators without products against the reference: exact where nothing rounds, between guard
// pages, NaN and infinities among the numbers, random problems and those that a network has.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compare.h"
#include "fuzz.h"
#include "shapes.h"

namespace quern::test {
namespace {

testing::AssertionResult all_agree(const quern_problem& p, const operands& in, const way& how) {
  const solution want = solve(p, in, "reference", nullptr, {.side = how.side, .in_place = how.in_place});
  for (const quern_candidate& c : all_candidates(p)) {
    if (c.verdict > QUERN_USABLE) continue;
    if (auto same = agree_as_friends(p, want, solve(p, in, c.algorithm, c.kernel, how)); !same) return same;
  }
  return testing::Test::HasFailure() ? testing::AssertionFailure() : testing::AssertionSuccess();
}

// As random_friendly; mostly all tensors have one layout, as kernels want it.
quern_problem random_of_one_layout(dice& d) {
  quern_problem p = random_friendly(d);
  if (p.op == QUERN_REORDER || d.one_in(5)) return p;
  for (quern_tensor* t : {&p.src, &p.weights, &p.dst, &p.residual}) {
    if (t->layout == 0) continue;  // there is none
    t->layout = p.src.layout;
    memset(t->stride, 0, sizeof t->stride);
  }
  return completed(p);
}

TEST(friend_kernels, agree_on_random_problems) {
  const uint32_t first = seed();
  for (uint32_t i = 0; i < (emulated ? 1500 : 6000); ++i) {
    dice d(first + i);
    const quern_problem p = random_of_one_layout(d);
    const way how = random_way(p, d);
    ASSERT_TRUE(all_agree(p, small_integers(p, how.side, d), how)) << "QUERN_TEST_SEED=" << first + i;
  }
}

// Where all tensors lie dense in one layout nobody is left with the reference.
TEST(friend_kernels, take_all_of_one_dense_layout) {
  const uint32_t first = seed();
  for (uint32_t i = 0; i < 2000; ++i) {
    dice d(first + i);
    quern_problem p = random_friendly(d);
    const bool dense_groups = block_of(p.src.layout) == 1 || p.groups == 1;
    if (p.op == QUERN_REORDER || !dense_groups) continue;
    for (quern_tensor* t : {&p.src, &p.weights, &p.dst, &p.residual}) {
      if (t->layout == 0) continue;
      t->layout = p.src.layout;
      memset(t->stride, 0, sizeof t->stride);
    }
    p = completed(p);
    ASSERT_NE(usable_candidates(p).size(), 0u) << "QUERN_TEST_SEED=" << first + i << ": " << text(p);
  }
}

// Blocks of channels that are the same memory, each with its own bias.
TEST(friend_kernels, tell_channels_of_repeated_blocks_apart) {
  dice d(seed());
  for (const char* line :
       {"reduce_sum nc4hw4:nhwc 3x9x4x5 axes=nw bias scale src_stride=240x0x80x20x4",
        "reduce_max nc8hw8 2x24x3x5 axes=hw bias act=prelu residual=after src_stride=120x0x120x40x8"}) {
    quern_problem p;
    quern_error error = {};
    ASSERT_EQ(quern_problem_parse(line, &p, &error), QUERN_OK) << line << ": " << error.text;
    p = completed(p);
    ASSERT_NE(usable_candidates(p).size(), 0u);
    ASSERT_TRUE(all_agree(p, small_integers(p, edge::back, d), {})) << line;
  }
}

// Images, lines or pixels that are the same memory, or share some: the densest axis is not the one of least stride
// then.
TEST(friend_kernels, slices_of_views_that_repeat) {
  const uint32_t first = seed();
  for (const char* line :
       {"rms_norm nc8hw8 3x12x2x6 axes=cdh groups=3 bias act=relu alpha=-2 src_stride=0x96x96x48x8",
        "norm nc8hw8 3x12x2x6 axes=chw groups=3 scale bias src_stride=0x96x96x48x8",
        "norm nc8hw8 2x12x5x6 axes=chw groups=3 src_stride=80x40x40x8x1",
        "norm nc16hw16 4x32x3x5 axes=chw groups=8 src_stride=0x0x0x0x16",
        "norm nhwc 3x12x2x6 axes=chw groups=3 bias src_stride=0x1x144x72x12",
        "norm nhwc 2x12x4x6 axes=chw groups=3 src_stride=20x1x20x4x1",
        "reduce_mean nchw 3x5x4x6 axes=hw scale src_stride=0x24x24x6x1",
        "reduce_max nhwc 3x20x4x6 axes=hw src_stride=0x1x0x0x20", "softmax nhwc 3x5x4x6 axes=c src_stride=0x1x120x30x5",
        "softmax nchw 3x5x4x6 axes=w src_stride=0x0x0x6x1"}) {
    quern_problem p;
    quern_error error = {};
    ASSERT_EQ(quern_problem_parse(line, &p, &error), QUERN_OK) << line << ": " << error.text;
    p = completed(p);
    dice d(first);
    ASSERT_TRUE(all_agree(p, small_integers(p, edge::back, d), {})) << line;
  }
}

// What is no number goes where the interface says, in few elements and in many.
TEST(friend_kernels, keep_what_is_no_number) {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const uint32_t first = seed();
  for (uint32_t i = 0; i < (emulated ? 500 : 3000); ++i) {
    dice d(first + i);
    const quern_problem p = random_of_one_layout(d);
    const way how = random_way(p, d);
    const int64_t rare = d.of(std::vector<int64_t>{3, 30, 300});
    const auto number = [&] {
      if (!d.one_in(rare)) return d.integer(-4, 4);
      const float special[] = {infinity, -infinity, nan, -nan, 0.0f, -0.0f};
      return d.of(special);
    };
    ASSERT_TRUE(all_agree(p, {p, how.side, number, [&] { return d.integer(-1, 2); }}, how))
        << "QUERN_TEST_SEED=" << first + i;
  }
}

// Lines, slices and planes longer than those of random problems.
TEST(friend_kernels, agree_on_large_problems) {
  dice d(seed());
  for (const char* line : {"pool_max nhwc mb2ic64ih56kh3sh2ph1",
                           "pool_max nchw mb2ic24ih57kh3sh2ph1",
                           "pool_max nc8hw8 ic24ih56kh3sh2ph1",
                           "pool_max nchw ic8ih30kh13ph6",
                           "pool_max nhwc ic40ih30kh9ph4",
                           "pool_max nc16hw16 ic20ih19kh5ph2",
                           "pool_avg nchw ic24ih40kh5ph2",
                           "pool_avg nc4hw4 ic24ih40kh2sh2",
                           "pool_avg nhwc ic512ih7kh7",
                           "pool_avg nchw mb2ic512ih7kh7",
                           "pool_avg_padded nhwc ic700ih17kh3ph1",
                           "pool_avg_padded nchw ic9ih35kh3ph1",
                           "pool_avg nc16hw16 ic500ih8kh8",
                           "pool_max nchw ic3ih65kh2sh2",
                           "pool_max nchw ic3ih65kh3sh3",
                           "pool_max nchw ic3ih64kh8sh8",
                           "pool_max nhwc ic64ih190kh3ph1",
                           "pool_max nchw ic3ih40kh3ph2 residual=after",
                           "pool_avg nchw ic5ih33kh3sh4ph1",
                           "pool_avg nchw ic4ih50kh7sh2ph3 bias act=relu",
                           "pool_avg nc4hw4 ic10ih40kh5sh3ph2",
                           "pool_avg nhwc ic3ih40kh7ph3 residual=before act=silu",
                           "pool_avg_padded nc8hw8 ic20ih33kh3sh2ph1 bias act=relu",
                           "softmax nchw 3x5000x1x2 axes=c",
                           "softmax nhwc 4x2000x1x3 axes=c",
                           "softmax nhwc 2x1000x1x1 axes=c",
                           "softmax nchw 2x8x50x60 axes=w",
                           "softmax nc8hw8 1x40x6x9 axes=c",
                           "softmax nchw 2x21x33x31 axes=c",
                           "log_softmax nhwc 2x12000x1x1 axes=c act=silu",
                           "log_softmax nchw 1x3x70x90 axes=hw",
                           "norm nchw 2x9x60x60 axes=hw scale bias act=relu",
                           "norm nhwc 2x64x30x30 axes=hw bias",
                           "norm nc8hw8 2x20x30x30 axes=hw scale bias",
                           "norm nhwc 2x64x30x30 axes=chw groups=8 scale bias act=silu",
                           "norm nchw 2x64x30x30 axes=chw groups=8 scale bias act=silu",
                           "norm nhwc 1x768x1x50 axes=c scale bias",
                           "norm nchw 1x96x20x21 axes=c scale bias",
                           "rms_norm nhwc 1x4096x1x20 axes=c scale",
                           "reduce_sum nchw 3x70x30x30 axes=chw",
                           "reduce_sum nchw 3x70x30x30 axes=nhw",
                           "reduce_max nhwc 3x70x30x30 axes=nhw",
                           "reduce_mean nhwc 2x96x28x28 axes=hw",
                           "reduce_mean nc16hw16 2x90x28x28 axes=hw",
                           "reduce_l2 nchw 2x3x100x100 axes=hw",
                           "reduce_l1 nhwc 2x3x100x100 axes=hw",
                           "reduce_min nchw 2x300x10x100 axes=c",
                           "unary nhwc 2x64x40x40 act=gelu",
                           "unary nchw 2x3x41x43 act=prelu bias",
                           "add nhwc 2x50x20x20:1x50x1x1 wei=nhwc act=relu",
                           "add nchw 2x50x20x20:1x50x1x1 act=relu",
                           "add nhwc 2x3x60x50:1x3x1x1 wei=nhwc bias",
                           "div nhwc 2x64x40x40:2x1x40x40 wei=nhwc",
                           "mul nchw 2x64x40x40:2x64x40x40 residual=after",
                           "mul nhwc 2x3x60x50:2x1x60x50 wei=nhwc",
                           "sub nhwc 1x7x50x50:1x1x50x50 wei=nhwc scale bias act=prelu",
                           "min nhwc 1x5x70x70:1x5x1x1 wei=nhwc scale bias act=prelu residual=after",
                           "add nc4hw4 2x15x40x40:1x15x1x1 wei=nc4hw4 bias act=relu",
                           "mul nc4hw4 1x10x50x50:1x1x50x50 wei=nc4hw4 bias",
                           "add nchw 1x3x150x150:1x3x150x150 bias act=relu",
                           "add nchw 1x3x150x150:1x3x1x1 scale bias residual=before act=relu",
                           "unary nc16hw16 2x24x40x40 act=silu",
                           "unary nhwc 1x30x40x40 scale bias act=relu",
                           "max nc8hw8 2x30x40x40:2x30x40x40 wei=nc8hw8 residual=before"}) {
    quern_problem p;
    quern_error error = {};
    ASSERT_EQ(quern_problem_parse(line, &p, &error), QUERN_OK) << line << ": " << error.text;
    const way how = random_way(completed(p), d);
    ASSERT_TRUE(all_agree(completed(p), small_integers(completed(p), how.side, d), how)) << line;
  }
}

}  // namespace
}  // namespace quern::test
