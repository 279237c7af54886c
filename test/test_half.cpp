// SPDX-License-Identifier: MIT
//
// Values of 16 bits: every one of them, and rounding between all neighbours.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "half.h"

namespace quern {
namespace {

// From sign, exponent and mantissa, by the standard's formula.
double formula(uint32_t bits, int mantissa_bits, int bias) {
  const int exponent = static_cast<int>((bits & 0x7fff) >> mantissa_bits);
  const double mantissa = bits & ((1u << mantissa_bits) - 1), sign = bits >> 15 ? -1 : 1;
  const int highest = (1 << (15 - mantissa_bits)) - 1;
  if (exponent == highest)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  const double unit = std::ldexp(1.0, std::max(exponent, 1) - bias - mantissa_bits);
  return sign * (mantissa + (exponent ? std::ldexp(1.0, mantissa_bits) : 0)) * unit;
}

template <class T>
void every_value(int mantissa_bits, int bias) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const T x = {static_cast<uint16_t>(i)};
    const double want = formula(i, mantissa_bits, bias);
    const float got = value(x);
    if (want != want) {
      ASSERT_TRUE(got != got) << i;
      ASSERT_TRUE(value(rounded<T>(got)) != value(rounded<T>(got))) << i;
      continue;
    }
    ASSERT_EQ(static_cast<double>(got), want) << i;
    ASSERT_EQ(std::signbit(got), i >= 0x8000) << i;
    ASSERT_EQ(rounded<T>(got).bits, i);
    ASSERT_EQ(rounded<T>(want).bits, i);
  }
}

// Halfway goes to the even one, anything beside it to the nearer one.
template <class T>
void between_neighbours(uint32_t infinity) {
  for (uint32_t i = 0; i < infinity; ++i) {
    const auto bits = [](auto x) { return rounded<T>(x).bits; };
    const double below = static_cast<double>(value(T{static_cast<uint16_t>(i)}));
    const double above = i + 1 < infinity ? static_cast<double>(value(T{static_cast<uint16_t>(i + 1)}))
                                          : 2 * below - static_cast<double>(value(T{static_cast<uint16_t>(i - 1)}));
    const double middle = (below + above) / 2;
    const uint32_t even = i + (i & 1);
    ASSERT_EQ(bits(middle), even);
    ASSERT_EQ(bits(-middle), even | 0x8000);
    ASSERT_EQ(bits(std::nextafter(middle, 0)), i);
    ASSERT_EQ(bits(std::nextafter(middle, 1e300)), i + 1);
    ASSERT_EQ(bits(-std::nextafter(middle, 1e300)), (i + 1) | 0x8000);
    const float narrow = static_cast<float>(middle);
    if (std::isinf(narrow)) continue;
    ASSERT_EQ(bits(narrow), even);
    ASSERT_EQ(bits(std::nextafter(narrow, 0.0f)), i);
    ASSERT_EQ(bits(std::nextafter(narrow, std::numeric_limits<float>::infinity())), i + 1);
  }
  EXPECT_EQ(rounded<T>(1e300).bits, infinity);
  EXPECT_EQ(rounded<T>(-1e300).bits, infinity | 0x8000);
}

TEST(half, every_f16) { every_value<f16>(10, 15); }
TEST(half, every_bf16) { every_value<bf16>(7, 127); }
TEST(half, f16_rounds_to_nearest) { between_neighbours<f16>(0x7c00); }
TEST(half, bf16_rounds_to_nearest) { between_neighbours<bf16>(0x7f80); }

TEST(half, pairs) {
  EXPECT_EQ(rounded_pair<f16>(1, -2), 0xc0003c00u);
  EXPECT_EQ(rounded_pair<bf16>(1, -2), 0xc0003f80u);
}

}  // namespace
}  // namespace quern
