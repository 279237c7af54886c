// SPDX-License-Identifier: MIT
//
// Values of 16 bits and of 8: every one of them, and rounding between all neighbours.
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

// OCP's E4M3FN: the exponent of infinities is one more of numbers, but for one NaN.
TEST(half, every_e4m3) {
  for (uint32_t i = 0; i < 256; ++i) {
    const e4m3 x = {static_cast<uint8_t>(i)};
    const int exponent = static_cast<int>(i >> 3 & 15);
    const double sign = i >> 7 ? -1 : 1, fraction = (i & 7) / 8.0;
    const double want = exponent ? std::ldexp(1 + fraction, exponent - 7) : std::ldexp(fraction, -6);
    if ((i & 127) == 127) {
      EXPECT_TRUE(std::isnan(value(x)));
      EXPECT_EQ(rounded<e4m3>(value(x)).bits & 127, 127);
      continue;
    }
    ASSERT_EQ(static_cast<double>(value(x)), sign * want) << i;
    ASSERT_EQ(std::signbit(value(x)), i >= 128) << i;
    ASSERT_EQ(rounded<e4m3>(value(x)).bits, i);
  }
}

TEST(half, e4m3_rounds_to_nearest) {
  for (uint32_t i = 0; i < 126; ++i) {
    const auto at = [](uint32_t bits) { return static_cast<double>(value(e4m3{static_cast<uint8_t>(bits)})); };
    const auto bits = [](auto x) { return rounded<e4m3>(x).bits; };
    const double middle = (at(i) + at(i + 1)) / 2;
    const uint32_t even = i + (i & 1);
    ASSERT_EQ(bits(middle), even);
    ASSERT_EQ(bits(-middle), even | 128);
    ASSERT_EQ(bits(std::nextafter(middle, 0)), i);
    ASSERT_EQ(bits(std::nextafter(middle, 1e300)), i + 1);
    ASSERT_EQ(bits(std::nextafter(static_cast<float>(middle), 0.0f)), i);
    ASSERT_EQ(bits(std::nextafter(static_cast<float>(middle), 1e30f)), i + 1);
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {448.0f, 464.0f, 465.0f, 1e30f, infinity}) {
    EXPECT_EQ(rounded<e4m3>(x).bits, 0x7e);
    EXPECT_EQ(rounded<e4m3>(-x).bits, 0xfe);
  }
  EXPECT_EQ(rounded<e4m3>(1e-30f).bits, 0);
  EXPECT_EQ(rounded<e4m3>(-0.0f).bits, 0x80);
}

TEST(half, s8_rounds_to_nearest_and_ends) {
  for (int i = -130; i <= 130; ++i) {
    const int want = std::min(127, std::max(-128, i)), even = i + (i & 1), above = std::min(127, i + 1);
    const float x = static_cast<float>(i), middle = x + 0.5f;
    EXPECT_EQ(rounded<s8>(x).bits, want);
    EXPECT_EQ(rounded<s8>(middle).bits, std::min(127, std::max(-128, even)));
    EXPECT_EQ(rounded<s8>(std::nextafter(middle, -1000.0f)).bits, want);
    EXPECT_EQ(rounded<s8>(std::nextafter(middle, 1000.0f)).bits, std::max(-128, above));
    EXPECT_EQ(rounded<s8>(static_cast<double>(middle) + 1e-12).bits, std::max(-128, above));
  }
  EXPECT_EQ(rounded<s8>(1e30f).bits, 127);
  EXPECT_EQ(rounded<s8>(-std::numeric_limits<float>::infinity()).bits, -128);
  EXPECT_EQ(rounded<s8>(std::numeric_limits<float>::quiet_NaN()).bits, 0);
}

TEST(half, pairs) {
  EXPECT_EQ(rounded_pair<f16>(1, -2), 0xc0003c00u);
  EXPECT_EQ(rounded_pair<bf16>(1, -2), 0xc0003f80u);
}

}  // namespace
}  // namespace quern
