// SPDX-License-Identifier: MIT
//
// Layout conversion: every pair of layouts, every number of channels and pixels around the tiles, strides of
// every kind, exactly the bits of the reference and no float beside them, whatever the threads and the kernel.
#include <gtest/gtest.h>
#include <quern/quern.h>

#include <cstring>
#include <vector>

#include "compare.h"
#include "fuzz.h"
#include "geometry.h"
#include "shapes.h"

namespace quern::test {
namespace {

operands bits(const quern_problem& p, edge side, dice& d) {
  // Any pattern, signalling NaN too: a reorder computes nothing.  But for the one that says nothing was written.
  const auto number = [&] {
    auto pattern = static_cast<uint32_t>(d.engine()());
    if (pattern == elements::untouched(QUERN_F32)) pattern = 0;
    return std::bit_cast<float>(pattern);
  };
  return {p, side, number, number};
}

// Where an element of src must be, by the definition of the layouts alone.
void expect_moved(const quern_problem& p, dice& d, const way& how, const char* kernel) {
  const operands in = bits(p, how.side, d);
  const solution got = solve(p, in, kernel ? nullptr : "reference", kernel, how);
  ASSERT_EQ(got.failure, "");
  size_t i = 0;
  each(p.src, [&](size_t at) {
    ASSERT_TRUE(same_bits(in.src[at], got.dst[i])) << got.plan.kernel << ": " << place(p, i) << "\n" << text(p);
    ++i;
  });
}

std::vector<const char*> kernels_for(const quern_problem& p) {
  std::vector<const char*> names;
  for (const quern_candidate& c : usable_candidates(p)) names.push_back(c.kernel);
  return names;
}

quern_problem problem_of(quern_layout from, quern_layout to, int64_t n, int64_t c, int64_t d, int64_t h, int64_t w) {
  quern_problem p = quern_reorder(QUERN_F32, from, to, n, c, h, w);
  p.src.size[2] = d;
  return completed(p);
}

void threads(void* self, size_t count, void (*task)(void*, size_t), void* arg) {
  for (size_t i = count; i-- > 0;) task(arg, (i + *static_cast<size_t*>(self)) % count);
}

TEST(reorder, every_pair_at_every_edge) {
  dice d(seed());
  for (quern_layout from : all_layouts)
    for (quern_layout to : all_layouts)
      for (int64_t c : {1, 2, 3, 4, 5, 8, 9, 12, 13, 16, 17, 20, 24, 31, 33, 49})
        for (int64_t pixels : {1, 3, 7, 8, 9, 15, 16, 17, 35, 49}) {
          const quern_problem p = problem_of(from, to, 1, c, 1, 1, pixels);
          expect_moved(p, d, {}, nullptr);
          for (const char* kernel : kernels_for(p))
            for (edge side : {edge::front, edge::back}) {
              expect_moved(p, d, {.side = side}, kernel);
              if (HasFatalFailure()) return;
            }
        }
}

// Slices of channels, padded rows, axes in any order, and repetition of what is only read.
TEST(reorder, any_strides) {
  dice d(seed());
  for (int i = 0; i < 3000; ++i) {
    quern_problem p =
        problem_of(d.of(all_layouts), d.of(all_layouts), d.from(1, 3), random_channels(d),
                   d.one_in(3) ? d.from(1, 3) : 1, d.from(1, 9), d.one_in(3) ? d.from(10, 40) : d.from(1, 9));
    if (d.one_in(2)) spread(p.src, true, d);
    if (d.one_in(2)) spread(p.dst, false, d);
    p = completed(p);
    size_t turn = static_cast<size_t>(d.from(0, 9));
    for (const char* kernel : kernels_for(p)) {
      way how = {.side = d.one_in(2) ? edge::front : edge::back, .small_caches = d.one_in(2)};
      if (d.one_in(2)) how.threads = static_cast<uint32_t>(d.from(2, 9)), how.parallel_for = threads, how.self = &turn;
      expect_moved(p, d, how, kernel);
      if (HasFatalFailure()) return;
    }
  }
}

// Planes and pixels 1, 2 and 4 KiB apart on one side or on both, which share few sets of a cache, on cores of whole and
// of half vectors.
TEST(reorder, places_that_share_sets) {
  dice d(seed());
  const auto space = [](quern_tensor& t, int64_t apart) {
    t.stride[4] = t.layout == QUERN_NHWC ? apart : block_of(t.layout);
    t.stride[1] = t.layout == QUERN_NHWC ? 1 : up(t.size[4] * t.stride[4], apart) * apart;
    t.stride[0] = t.stride[2] = t.stride[3] =
        up(t.size[1], block_of(t.layout)) * std::max(t.stride[1], t.size[4] * t.stride[4]);
  };
  for (quern_layout from : all_layouts)
    for (quern_layout to : all_layouts)
      for (int64_t c : {16, 31, 48, 76})
        for (int64_t pixels : {1, 3, 9, 16, 35, 49, 290})
          for (int64_t apart : {256, 512, 1024}) {
            quern_problem p = problem_of(from, to, 1, c, 1, 1, pixels);
            const int64_t other = d.one_in(2) ? apart : 304, dense = d.from(0, 3);
            if (dense != 1) space(p.src, d.one_in(2) ? apart : other);
            if (dense != 2) space(p.dst, d.one_in(2) ? other : apart);
            p = completed(p);
            for (const char* kernel : kernels_for(p))
              for (const uint64_t vector_bits : {256, 512}) {
                expect_moved(p, d, {.side = d.one_in(2) ? edge::front : edge::back, .vector_bits = vector_bits},
                             kernel);
                if (HasFatalFailure()) return;
              }
          }
}

// More channels than go together, of planes that are whole lines, that are not, and that share sets.
TEST(reorder, many_channels) {
  dice d(seed());
  for (quern_layout from : all_layouts)
    for (quern_layout to : all_layouts)
      for (int64_t c : {128, 144, 330})
        for (int64_t pixels : {64, 65, 83, 112, 512}) {
          const quern_problem p = problem_of(from, to, 1, c, 1, 1, pixels);
          for (const char* kernel : kernels_for(p))
            for (const uint64_t vector_bits : {256, 512}) {
              expect_moved(p, d, {.side = d.one_in(2) ? edge::front : edge::back, .vector_bits = vector_bits}, kernel);
              if (HasFatalFailure()) return;
            }
        }
}

// Caches so small that dst passes them by, aligned to their lines or not; several parts of everything.
TEST(reorder, streams_past_the_caches) {
  dice d(seed());
  size_t turn = 3;
  for (quern_layout from : all_layouts)
    for (quern_layout to : all_layouts)
      for (int64_t c : {3, 16, 48, 70})
        for (int64_t pixels : {16 * 32, 16 * 33 + 5}) {
          const quern_problem p = problem_of(from, to, 1, c, 1, 1, pixels);
          for (const char* kernel : kernels_for(p))
            for (edge side : {edge::front, edge::back}) {
              way how = {.side = side, .small_caches = true};
              expect_moved(p, d, how, kernel);
              how.threads = 5, how.parallel_for = threads, how.self = &turn;
              expect_moved(p, d, how, kernel);
              if (HasFatalFailure()) return;
            }
        }
}

TEST(reorder, there_and_back_in_f64) {
  for (quern_layout from : all_layouts)
    for (quern_layout to : all_layouts) {
      quern_problem p = completed(quern_reorder(QUERN_F64, from, to, 2, 19, 3, 5));
      std::vector<double> src(static_cast<size_t>(extent(p.src))), dst(static_cast<size_t>(extent(p.dst)));
      for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<double>(i);
      quern_args args = {};
      args.size = sizeof args;
      args.src = src.data(), args.dst = dst.data();
      quern_error error = {};
      ASSERT_EQ(quern_compute(&p, &args, nullptr, &error), QUERN_OK) << error.text;
      for (int64_t at[5] = {1, 0, 0, 2, 3}; at[1] < 19; ++at[1])
        ASSERT_EQ(src[static_cast<size_t>(offset_of(p.src, at))], dst[static_cast<size_t>(offset_of(p.dst, at))]);
    }
}

TEST(reorder, is_refused_what_it_has_not) {
  const auto field_of = [](auto change) {
    quern_problem p = quern_reorder(QUERN_F32, QUERN_NCHW, QUERN_NC8HW8, 1, 5, 3, 3);
    change(p);
    quern_error error = {};
    EXPECT_EQ(quern_problem_complete(&p, &p, &error), QUERN_INVALID);
    return std::string(error.field) + ": " + error.text;
  };
  EXPECT_EQ(field_of([](auto& p) { p.weights = p.src; }), "weights: weights is described, but reorder has none");
  EXPECT_EQ(field_of([](auto& p) { p.epilogue.bias = 1; }), "epilogue.bias: epilogue.bias is 1, must be 0");
  EXPECT_EQ(field_of([](auto& p) { p.epilogue.activation = QUERN_RELU; }),
            "epilogue.activation: epilogue.activation is 1, must be 0");
  EXPECT_EQ(field_of([](auto& p) { p.epilogue.alpha = 2; }), "epilogue.alpha: epilogue.alpha is 2, must be 0 or 1");
  EXPECT_EQ(field_of([](auto& p) { p.window.stride[1] = 2; }), "window.stride[1]: window.stride[1] is 2, must be 1");
  EXPECT_EQ(field_of([](auto& p) { p.groups = 5; }), "groups: groups is 5, must be 1");
  EXPECT_EQ(field_of([](auto& p) { p.dst.size[0] = 1; }), "dst.size[1]: dst.size[1] is 0, must be 5");
}

}  // namespace
}  // namespace quern::test
