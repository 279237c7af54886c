// SPDX-License-Identifier: MIT
//
// What the numbers are: the error that every candidate states, every activation to a few units in the last
// place, NaN, infinities, signed zeros and denormals, and the floating-point mode, which is the caller's.
#include <fenv.h>
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "build_isas.h"
#include "compare.h"
#include "errors.h"
#include "fuzz.h"
#include "shapes.h"

namespace quern::test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

const shape sums[] = {
    {.n = 2, .c = 33, .k = 17, .image = {1, 7, 9}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}},
    {.c = 700, .k = 40, .image = {1, 3, 7}},
    {.c = 1, .k = 1, .groups = 40, .image = {1, 9, 9}, .filter = {1, 5, 5}, .begin = {0, 2, 2}, .end = {0, 2, 2}},
    {.c = 8, .k = 20, .groups = 2, .image = {3, 5, 6}, .filter = {3, 2, 3}, .stride = {1, 2, 1}, .dilation = {1, 1, 2}},
    {.op = QUERN_CONV_TRANSPOSED,
     .c = 40,
     .k = 9,
     .image = {1, 5, 6},
     .filter = {1, 4, 4},
     .stride = {1, 2, 2},
     .begin = {0, 1, 1},
     .end = {0, 1, 1}},
};

std::vector<quern_problem> sum_problems() {
  std::vector<quern_problem> list;
  for (const shape& s : sums)
    for (quern_layout layout : all_layouts) list.push_back(completed(problem_of(s, layout, layout)));
  list.push_back(completed(quern_gemm(QUERN_F32, 30, 70, 1500)));
  return list;
}

TEST(numerics, errors_stay_within_the_stated_bound) {
  dice d(1);
  int sign = 1;
  const struct {
    const char* name;
    numbers next;
  } data[] = {
      {"uniform", [&] { return d.uniform(-1, 1); }},
      {"positive", [&] { return d.uniform(0.5f, 1); }},
      {"wide", [&] { return std::ldexp(d.uniform(-1, 1), static_cast<int>(d.from(-12, 12))); }},
      {"cancelling", [&] { return static_cast<float>(sign = -sign) * (1000 + d.uniform(0, 1e-3f)); }},
  };
  for (const quern_problem& p : sum_problems())
    for (const auto& kind : data) {
      const operands in(p, edge::back, kind.next, kind.next);
      const std::vector<double> want = in_double(p, in, false), size = in_double(p, in, true);
      double largest = 0;
      for (const quern_candidate& c : exact_candidates(p)) {
        const solution got = solve(p, in, c.algorithm, c.kernel);
        ASSERT_EQ(got.failure, "");
        EXPECT_EQ(got.plan.error_bound, c.error_bound);
        EXPECT_LE(c.error_bound, (static_cast<double>(sum_length(p)) * 16 + 1) * 0x1p-24);
        for (size_t i = 0; i < want.size(); ++i) {
          const double error = std::fabs(static_cast<double>(got.dst[i]) - want[i]);
          ASSERT_LE(error, c.error_bound * size[i])
              << kind.name << ", " << c.algorithm << " " << c.kernel << ", " << place(p, i) << "\n"
              << text(p);
          largest = std::max(largest, error);
        }
      }
      EXPECT_GT(largest, 0) << "nothing was rounded: " << kind.name;
    }
}

// Sums are exact here, so that what differs is the epilogue alone.
TEST(numerics, activations_are_exact_to_a_few_units_in_the_last_place) {
  dice d(2);
  for (int activation = QUERN_IDENTITY; activation <= QUERN_GELU_SIGMOID; ++activation)
    for (int32_t residual = QUERN_RESIDUAL_NONE; residual <= QUERN_RESIDUAL_AFTER; ++residual)
      for (quern_layout layout : all_layouts)
        for (const shape& s : {shape{.c = 3, .k = 19, .image = {1, 5, 11}, .filter = {1, 1, 3}},
                               shape{.c = 1, .k = 1, .groups = 37, .image = {1, 5, 11}, .filter = {1, 3, 3}}}) {
          quern_problem p = problem_of(s, layout, layout);
          p.epilogue.activation = activation;
          p.epilogue.residual = residual;
          p.epilogue.bias = 1;
          if (activation == QUERN_CLAMP) p.epilogue.activation_alpha = -1, p.epilogue.activation_beta = 2;
          if (activation == QUERN_LEAKY_RELU) p.epilogue.activation_alpha = 0.3f;
          p = completed(p);
          const operands in(
              p, edge::back, [&] { return d.integer(-8, 8) / 16; }, [&] { return d.uniform(-1, 1); });
          const std::vector<double> want = in_double(p, in, false);
          for (const quern_candidate& c : exact_candidates(p)) {
            const solution got = solve(p, in, c.algorithm, c.kernel);
            ASSERT_EQ(got.failure, "");
            for (size_t i = 0; i < want.size(); ++i) {
              // A residual added afterwards may cancel the activation, which is at most 4 here.
              const float size = residual == QUERN_RESIDUAL_AFTER ? 4 : static_cast<float>(std::fabs(want[i]));
              const double ulp = std::nextafter(size, infinity) - size;
              // As activation.h has them; of an exponent of 7 what is rounded counts as often.
              const double most = activation == QUERN_GELU ? 6 : activation >= QUERN_GELU_TANH ? 32 : 4;
              ASSERT_LE(std::fabs(static_cast<double>(got.dst[i]) - want[i]), most * ulp)
                  << c.algorithm << " " << c.kernel << ", " << place(p, i) << " is " << got.dst[i] << ", must be "
                  << want[i] << "\n"
                  << text(p);
            }
          }
        }
}

// Small integers, except that every `every`-th number is one of `special`.
numbers spiced(dice& d, std::vector<float> special, int64_t every) {
  return [&d, special, every] { return d.one_in(every) ? d.of(special) : d.integer(-3, 3); };
}

testing::AssertionResult all_agree_in_bits(const quern_problem& p, const operands& in) {
  const solution want = expected(p, in);
  for (const quern_candidate& c : faithful_candidates(p)) {
    auto result = agree(p, want, solve(p, in, c.algorithm, c.kernel),
                        [](float a, float b, size_t) { return same_bits(a, b) || (a != a && b != b); });
    if (!result) return result;
  }
  return testing::AssertionSuccess();
}

std::vector<quern_problem> special_problems(bool padding) {
  std::vector<quern_problem> list;
  for (quern_layout layout : all_layouts)
    for (int which : {0, 1, 6 + 1, 2, 3, 4}) {
      for (shape s : {sums[0], sums[2], sums[3], sums[4]}) {
        s.c = std::min<int64_t>(s.c, 9);
        if (!padding) std::fill_n(s.begin, 3, 0), std::fill_n(s.end, 3, 0);
        if (!padding && s.op == QUERN_CONV_TRANSPOSED) continue;
        quern_problem p = problem_of(s, layout, layout);
        set_epilogue(p, which);
        list.push_back(completed(p));
      }
      quern_problem p = quern_gemm(QUERN_F32, 9, 35, 7);
      set_epilogue(p, which);
      list.push_back(completed(p));
    }
  return list;
}

// A NaN, an infinity or a zero of any sign comes out where the mathematics has it and nowhere else.
TEST(numerics, special_values_of_src) {
  dice d(3);
  for (const quern_problem& p : special_problems(true)) {
    operands in(p, edge::back, spiced(d, {1, -0.0f}, 4), spiced(d, {0.5f}, 2));
    operands special(p, edge::back, spiced(d, {nan, infinity, -infinity, -0.0f}, 40), spiced(d, {0.5f}, 2));
    std::swap(in.src, special.src);
    ASSERT_TRUE(all_agree_in_bits(p, in));
  }
}

TEST(numerics, special_values_of_weights_and_vectors) {
  dice d(4);
  for (const quern_problem& p : special_problems(false)) {
    operands in(p, edge::back, spiced(d, {1, -0.0f}, 4), spiced(d, {0.5f}, 2));
    operands special(p, edge::back, spiced(d, {nan, infinity, -infinity, -0.0f}, 40), spiced(d, {0.5f}, 2));
    std::swap(in.weights, special.weights);
    ASSERT_TRUE(all_agree_in_bits(p, in));
    std::swap(in.bias, special.bias);
    std::swap(in.scale, special.scale);
    std::swap(in.residual, special.residual);
    ASSERT_TRUE(all_agree_in_bits(p, in));
  }
}

// Where taps on padding are left out, infinite weights do not meet it.
TEST(numerics, infinite_weights_beside_padding) {
  dice d(5);
  for (const quern_problem& p : special_problems(true)) {
    operands in(
        p, edge::back, [&] { return d.integer(1, 3); }, [] { return 1.0f; });
    operands special(p, edge::back, spiced(d, {infinity}, 20), [] { return 1.0f; });
    std::swap(in.weights, special.weights);
    const solution want = expected(p, in);
    for (const quern_candidate& c : faithful_candidates(p)) {
      // These multiply the zeros of padding.
      if (std::set<std::string>{"conv_im2col", "conv_band", "conv_planar", "conv_few_planes", "conv_depthwise_planar"}
              .count(c.algorithm))
        continue;
      ASSERT_TRUE(agree(p, want, solve(p, in, c.algorithm, c.kernel)));
    }
  }
}

// Multiples of the smallest float: sums are exact, and nothing is flushed to zero.
TEST(numerics, denormals_are_numbers) {
  if (!keeps_denormals) GTEST_SKIP() << "32-bit NEON takes denormals for zero";
  dice d(6);
  for (const quern_problem& p : special_problems(true)) {
    operands in(
        p, edge::back, [&] { return d.integer(-3, 3); }, [] { return 1.0f; });
    operands tiny(
        p, edge::back, [&] { return d.integer(-9, 9) * 0x1p-149f; }, [] { return 1.0f; });
    std::swap(in.src, tiny.src);
    std::swap(in.bias, tiny.bias);
    std::swap(in.residual, tiny.residual);
    const solution want = expected(p, in);
    if (p.epilogue.activation == QUERN_IDENTITY) {
      EXPECT_TRUE(
          std::any_of(want.dst.begin(), want.dst.end(), [](float x) { return std::fpclassify(x) == FP_SUBNORMAL; }));
    }
    ASSERT_TRUE(all_agree_in_bits(p, in));
  }
}

// Products that are denormal although no operand is.
TEST(numerics, denormal_products_are_kept) {
  if (!keeps_denormals) GTEST_SKIP() << "32-bit NEON makes no denormals";
  dice d(7);
  for (const quern_problem& p : special_problems(true)) {
    if (p.epilogue.bias || p.epilogue.residual || p.epilogue.scale) continue;
    const operands in(
        p, edge::back, [&] { return d.integer(-3, 3) * 0x1p-72f; }, [] { return 1.0f; });
    ASSERT_TRUE(all_agree_in_bits(p, in));
  }
}

#if defined(__x86_64__)
// What the caller sets: the control bits of both units, without the six that say what has happened.
struct control {
  uint32_t sse;
  uint16_t x87;
  bool operator==(const control&) const = default;
};

control mode() {
  fenv_t now;
  EXPECT_EQ(fegetenv(&now), 0);
  return {_mm_getcsr() & ~0x3fu, now.__control_word};
}

class floating_point_mode : public testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override {
    ASSERT_EQ(fegetenv(&before_), 0);
    _mm_setcsr((_mm_getcsr() & ~0x3fu & ~uint32_t{_MM_ROUND_MASK}) | GetParam());
  }
  void TearDown() override { ASSERT_EQ(fesetenv(&before_), 0); }
  fenv_t before_;
};

TEST_P(floating_point_mode, is_left_as_the_caller_has_set_it) {
  dice d(8);
  for (const quern_problem& p : special_problems(true)) {
    const operands in = small_integers(p, edge::back, d);
    const control here = mode();
    ASSERT_EQ(here.sse & GetParam(), GetParam());
    std::vector<quern_candidate> list = usable_candidates(p);
    ASSERT_TRUE(mode() == here);
    quern_candidate reference = {};
    reference.algorithm = "reference";
    list.push_back(reference);
    for (const quern_candidate& c : list) {
      ASSERT_EQ(solve(p, in, c.algorithm, c.kernel).failure, "");
      ASSERT_TRUE(mode() == here) << c.algorithm << " " << (c.kernel ? c.kernel : "");
    }
  }
}

// Flush to zero, denormals are zero, and the four directions.
INSTANTIATE_TEST_SUITE_P(modes, floating_point_mode,
                         testing::Values(0u, uint32_t{_MM_FLUSH_ZERO_ON} | 0x40u, uint32_t{_MM_ROUND_UP},
                                         uint32_t{_MM_ROUND_DOWN}, uint32_t{_MM_ROUND_TOWARD_ZERO}));

#endif

// A caller that traps exceptions meets none on ordinary numbers: no lane that is thrown away divides by zero or
// makes a NaN.
TEST(numerics, nothing_traps_on_ordinary_numbers) {
  dice d(9);
  fenv_t before;
  ASSERT_EQ(fegetenv(&before), 0);
  for (int activation = QUERN_IDENTITY; activation <= QUERN_GELU_SIGMOID; ++activation) {
    quern_problem p = problem_of({.c = 3, .k = 19, .image = {1, 5, 11}, .filter = {1, 3, 3}, .begin = {0, 1, 1}},
                                 d.of(all_layouts), d.of(all_layouts));
    p.epilogue.activation = activation;
    p = completed(p);
    const operands in(
        p, edge::back, [&] { return d.uniform(-2, 2); }, [] { return 0.25f; });
    const std::vector<quern_candidate> list = usable_candidates(p);
    feclearexcept(FE_ALL_EXCEPT);
    for (const quern_candidate& c : list) {
      const solution got = solve(p, in, c.algorithm, c.kernel);
      ASSERT_EQ(got.failure, "");
      ASSERT_EQ(fetestexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW), 0) << c.algorithm << " " << c.kernel << "\n"
                                                                          << text(p);
    }
  }
  ASSERT_EQ(fesetenv(&before), 0);
}

}  // namespace
}  // namespace quern::test
