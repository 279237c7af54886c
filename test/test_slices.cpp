// SPDX-License-Identifier: MIT
//
// Reductions, norms and softmax: within their bounds, far from zero too, and the same bits whoever adds up.
#include <gtest/gtest.h>

#include <cmath>

#include "compare.h"
#include "fuzz.h"
#include "shapes.h"

namespace quern::test {
namespace {

// Of one slice of src, in double: what becomes of it, once for all (the reference visits it for every element).
struct exact_slice {
  std::vector<double> x;
  double sum = 0, magnitudes = 0, squares = 0, product = 1, mean = 0, variance = 0, largest = 0, top = -HUGE_VAL,
         bottom = HUGE_VAL, exponentials = 0;

  explicit exact_slice(std::vector<double> elements) : x(std::move(elements)) {
    for (const double v : x)
      sum += v, magnitudes += std::abs(v), squares += v * v, product *= v, top = std::max(top, v),
                                                                           bottom = std::min(bottom, v);
    mean = sum / count(), largest = std::max(top, -bottom);
    for (const double v : x) variance += (v - mean) * (v - mean) / count(), exponentials += std::exp(v - top);
  }
  double count() const { return double(x.size()); }

  double output(quern_op op, size_t i, double epsilon) const {
    switch (op) {
      case QUERN_REDUCE_SUM: return sum;
      case QUERN_REDUCE_MEAN: return mean;
      case QUERN_REDUCE_MAX: return top;
      case QUERN_REDUCE_MIN: return bottom;
      case QUERN_REDUCE_PROD: return product;
      case QUERN_REDUCE_L1: return magnitudes;
      case QUERN_REDUCE_L2: return std::sqrt(squares);
      case QUERN_REDUCE_SUM_SQUARE: return squares;
      case QUERN_NORM: return (x[i] - mean) / std::sqrt(variance + epsilon);
      case QUERN_RMS_NORM: return x[i] / std::sqrt(squares / count() + epsilon);
      case QUERN_SOFTMAX: return std::exp(x[i] - top) / exponentials;
      default: return x[i] - top - std::log(exponentials);
    }
  }
  // What error_bound of quern.h is over.
  double scale(quern_op op, double must) const {
    switch (op) {
      case QUERN_REDUCE_SUM:
      case QUERN_REDUCE_L1: return magnitudes;
      case QUERN_REDUCE_MEAN: return magnitudes / count();
      case QUERN_REDUCE_SUM_SQUARE: return squares;
      case QUERN_NORM: return largest / std::sqrt(variance + 1e-5);
      case QUERN_RMS_NORM: return largest / std::sqrt(squares / count());
      case QUERN_LOG_SOFTMAX: return 1 + top - bottom;
      default: return std::abs(must);
    }
  }
};

// visit(is, slice, number of the element) for every output of random numbers around `middle`, in slices along rows or
// across them.
template <class Visit>
void each_output(const quern_problem& p, float middle, const Visit& visit) {
  const bool along = p.axes == QUERN_AXIS_W;
  const int64_t length = p.src.size[along ? 4 : 3], rows = along ? p.src.size[3] : p.src.size[1],
                columns = along ? 1 : p.src.size[4];
  dice d(static_cast<uint32_t>(length));
  std::normal_distribution<float> normal(middle);
  const operands in(
      p, edge::back, [&] { return normal(d.engine()); }, [] { return 0.0f; });
  const solution got = solve(p, in, "slices", nullptr);
  ASSERT_EQ(got.failure, "") << text(p);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      std::vector<double> elements;
      for (int64_t i = 0; i < length; ++i) {
        const int64_t at[5] = {0, along ? 0 : r, 0, along ? r : i, along ? i : c};
        elements.push_back(double(in.src[static_cast<size_t>(offset_of(p.src, at))]));
      }
      const exact_slice slice(std::move(elements));
      const int64_t outputs = is_reduction(p.op) ? 1 : length;
      for (int64_t i = 0; i < outputs; ++i)
        visit(double(got.dst[static_cast<size_t>((r * outputs + i) * columns + c)]), slice, static_cast<size_t>(i));
    }
}

const int64_t lengths[] = {1, 7, 64, 100, 1000, 5000, 17000};

quern_problem slices_of(quern_op op, int64_t length, bool along) {
  return completed(along ? quern_over_axes(op, QUERN_F32, QUERN_NCHW, 1, 1, 2, length, QUERN_AXIS_W)
                         : quern_over_axes(op, QUERN_F32, QUERN_NHWC, 1, 3, length, 5, QUERN_AXIS_H));
}

TEST(slices, stay_within_their_bounds) {
  for (quern_op op = QUERN_REDUCE_SUM; op <= QUERN_LOG_SOFTMAX; ++op)
    for (const int64_t length : lengths)
      for (const float middle : {0.0f, 1000.0f})
        for (const bool along : {true, false}) {
          if (op == QUERN_REDUCE_PROD && length > (middle == 0 ? 100 : 7)) continue;
          const quern_problem p = slices_of(op, length, along);
          const double bound = all_candidates(p)[0].error_bound;
          each_output(p, middle, [&](double is, const exact_slice& slice, size_t i) {
            const double must = slice.output(op, i, double(p.epsilon));
            ASSERT_LE(std::abs(is - must), bound * slice.scale(op, must) + 0x1p-23 * std::abs(must) + 0x1p-149)
                << text(p) << " around " << middle << " at " << i;
          });
          if (HasFatalFailure()) return;
        }
}

// With a mean of a thousand standard deviations the variance has its digits, and the mean, too.
TEST(slices, know_variances_far_from_zero) {
  for (const int64_t length : {64, 1000, 5000, 50000})
    for (const bool along : {true, false}) {
      const quern_problem p = slices_of(QUERN_NORM, length, along);
      each_output(p, 1000, [&](double is, const exact_slice& slice, size_t i) {
        const double must = slice.output(p.op, i, double(p.epsilon));
        ASSERT_NEAR(is, must, 1e-5 * (0.1 + std::abs(must))) << text(p) << " at " << i;
      });
      if (HasFatalFailure()) return;
    }
}

// Squares of large and small numbers are none of f32.
TEST(slices, know_squares_of_large_and_small_numbers) {
  for (const quern_op op : {QUERN_REDUCE_L2, QUERN_NORM, QUERN_RMS_NORM})
    for (const float size : {1e-30f, 1e25f, 1e36f})
      for (const bool along : {true, false}) {
        quern_problem p = slices_of(op, 300, along);
        if (is_norm(op)) p.epsilon = 1e-37f;
        if (op != QUERN_REDUCE_L2 && size < 1) continue;  // epsilon is more
        dice d(1);
        const operands in(
            p, edge::back, [&] { return size * d.uniform(-1, 1); }, [] { return 0.0f; });
        const solution want = solve(p, in, "reference", nullptr), got = solve(p, in, "slices", nullptr);
        ASSERT_EQ(got.failure, "");
        for (size_t i = 0; i < want.dst.size(); ++i)
          ASSERT_NEAR(double(got.dst[i]), double(want.dst[i]), 1e-5 * std::abs(double(want.dst[i])) + 1e-5 * (size > 1))
              << text(p) << " of " << size << " at " << i;
      }
}

// What takes numbers in turn.
solution folded(const quern_problem& p, std::vector<float> numbers, const char* algorithm) {
  size_t i = 0;
  const operands in(
      p, edge::back, [&] { return numbers[i++ % numbers.size()]; }, [] { return 0.0f; });
  return solve(p, in, algorithm, nullptr);
}

// Means far below epsilon are means, and squares need not be known.
TEST(slices, center_small_numbers) {
  for (const float size : {1e-12f, 1e-20f, 1e-30f})
    for (const bool along : {true, false}) {
      const quern_problem p = slices_of(QUERN_NORM, 300, along);
      const std::vector<float> numbers = {size, 2 * size, 3 * size};
      const solution want = folded(p, numbers, "reference"), got = folded(p, numbers, "slices");
      ASSERT_EQ(got.failure, "");
      for (size_t i = 0; i < want.dst.size(); ++i)
        ASSERT_NEAR(double(got.dst[i]), double(want.dst[i]), 1e-5 * 300 * double(size)) << text(p) << " of " << size;
    }
}

// Products and sums whose parts f32 does not hold.
TEST(slices, go_beyond_f32_on_the_way) {
  const float most = std::numeric_limits<float>::max();
  for (const quern_op op : {QUERN_REDUCE_PROD, QUERN_REDUCE_SUM, QUERN_REDUCE_MEAN})
    for (const bool along : {true, false})
      for (const std::vector<float>& numbers : {std::vector<float>{1e30f, 1e-30f, 1e30f, 1e-30f},
                                                {1e-22f, 1e-22f, 1e22f, 1e22f},
                                                {most, most, -most, -most},
                                                {most}}) {
        if (numbers[0] == most && (op == QUERN_REDUCE_PROD || (op == QUERN_REDUCE_SUM && numbers.size() == 1)))
          continue;
        const quern_problem p = slices_of(op, 64, along);
        const solution want = folded(p, numbers, "reference"), got = folded(p, numbers, "slices");
        ASSERT_EQ(got.failure, "");
        for (size_t i = 0; i < want.dst.size(); ++i)
          ASSERT_NEAR(double(got.dst[i]), double(want.dst[i]), 1e-5 * std::abs(double(want.dst[i])))
              << text(p) << " of " << numbers[0] << " at " << i;
      }
}

// Small exponentials down to the last denormal, and none beyond.
TEST(slices, have_small_exponentials) {
  for (const bool along : {true, false}) {
    const quern_problem p = slices_of(QUERN_SOFTMAX, 130, along);
    float x = 0;
    const operands in(
        p, edge::back, [&] { return -(x = x > 120 ? 0 : x + 0.37f); }, [] { return 0.0f; });
    const solution want = solve(p, in, "reference", nullptr), got = solve(p, in, "slices", nullptr);
    ASSERT_EQ(got.failure, "");
    for (size_t i = 0; i < want.dst.size(); ++i)
      ASSERT_NEAR(double(got.dst[i]), double(want.dst[i]), 2e-5 * std::abs(double(want.dst[i])) + 0x1p-148) << i;
  }
}

// On any number of threads and any ISA.
TEST(slices, have_the_same_bits) {
  const uint32_t first = seed();
  const char* lines[] = {"reduce_sum nchw 1x1x1000x400 axes=h",
                         "softmax nchw 3x500x1x2 axes=c",
                         "softmax nhwc 4x2000x1x3 axes=c",
                         "softmax nhwc 1x20000x1x3 axes=c",
                         "log_softmax nchw 2x21x33x31 axes=c",
                         "norm nhwc 2x64x30x30 axes=hw",
                         "norm nhwc 1x64x40x40 axes=chw groups=8",
                         "norm nc8hw8 2x20x30x30 axes=hw",
                         "norm nhwc 1x768x1x50 axes=c",
                         "reduce_sum nchw 3x70x30x30 axes=chw",
                         "reduce_mean nc16hw16 2x90x28x28 axes=hw",
                         "rms_norm nchw 1x96x20x21 axes=c",
                         "reduce_l2 nchw 2x300x10x100 axes=n"};
  for (uint32_t i = 0; i < (emulated ? 300 : 2000) + std::size(lines); ++i) {
    dice d(first + i);
    quern_problem p;
    if (i < std::size(lines)) {
      ASSERT_EQ(quern_problem_parse(lines[i], &p, nullptr), QUERN_OK) << lines[i];
      p = completed(p);
      if (i == 0) p.src.stride[3] = 16;  // slices that lie on each other
    } else {
      do p = random_friendly(d);
      while (!has_axes(p.op));
    }
    const operands in(
        p, edge::back, [&] { return d.uniform(-2, 2); }, [&] { return d.uniform(-1, 1); });
    solution want = {};
    for (const quern_candidate& c : all_candidates(p)) {
      if (c.verdict > QUERN_USABLE || std::string(c.algorithm) != "slices") continue;
      for (const bool small : {false, true}) {
        way how = random_way(p, d);
        how.side = edge::back, how.in_place = false, how.small_caches = small;
        const solution got = solve(p, in, c.algorithm, c.kernel, how);
        if (want.dst.empty()) want = got;
        ASSERT_TRUE(agree_in_bits(p, want, got)) << "QUERN_TEST_SEED=" << first + i;
      }
    }
  }
}

}  // namespace
}  // namespace quern::test
