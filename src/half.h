// SPDX-License-Identifier: MIT
//
// The element types of 16 bits and of 8: their values, and rounding to them, to nearest and ties to even.  By integers,
// so that no mode of the caller's (denormals as zero) comes in; a GPU has instructions for it.
#pragma once

#include <string.h>

#include "kernel.h"

namespace quern {
namespace {

struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};
struct s8 {
  int8_t bits;
};
struct e4m3 {
  uint8_t bits;
};

template <class T>
inline constexpr quern_type type_of = 0;
template <>
inline constexpr quern_type type_of<float> = QUERN_F32;
template <>
inline constexpr quern_type type_of<f16> = QUERN_F16;
template <>
inline constexpr quern_type type_of<bf16> = QUERN_BF16;
template <>
inline constexpr quern_type type_of<s8> = QUERN_S8;
template <>
inline constexpr quern_type type_of<e4m3> = QUERN_E4M3;

QUERN_INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
QUERN_INLINE float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

QUERN_INLINE float value(float x) { return x; }
QUERN_INLINE double value(double x) { return x; }
QUERN_INLINE float value(bf16 x) { return float_of(uint32_t{x.bits} << 16); }
QUERN_INLINE float value(f16 x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#else
  const uint32_t sign = uint32_t{x.bits} >> 15 << 31, rest = x.bits & 0x7fffu;
  if (rest >= 0x7c00) return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  if (rest < 0x400) return float_of(sign | bits_of(static_cast<float>(rest) * 0x1p-24f));
  return float_of(sign | ((rest << 13) + 0x38000000));
#endif
}

QUERN_INLINE float value(s8 x) { return x.bits; }
// Numbers below 2^-6 are steps of 2^-9.
QUERN_INLINE float value(e4m3 x) {
  const uint32_t sign = uint32_t{x.bits} >> 7 << 31, rest = x.bits & 0x7fu;
  if (rest == 0x7f) return float_of(sign | 0x7fc00000);
  if (rest < 8) return float_of(sign | bits_of(static_cast<float>(rest) * 0x1p-9f));
  return float_of(sign | ((rest << 20) + 0x3c000000));
}

template <class T>
QUERN_INLINE T rounded(float x);
template <>
QUERN_INLINE float rounded<float>(float x) {
  return x;
}
template <>
QUERN_INLINE bf16 rounded<bf16>(float x) {
  const uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
template <>
QUERN_INLINE f16 rounded<f16>(float x) {
#if defined(__CUDA_ARCH__)
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
#else
  const uint32_t sign = bits_of(x) >> 31 << 15, rest = bits_of(x) & 0x7fffffff;
  if (rest > 0x7f800000) return {static_cast<uint16_t>(sign | 0x7e00 | (rest >> 13 & 0x3ff))};
  if (rest >= 0x477ff000) return {static_cast<uint16_t>(sign | 0x7c00)};
  if (rest >= 0x38800000) return {static_cast<uint16_t>(sign | ((rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13))};
  // Denormal: whole steps of 2^-24, of a mantissa in steps of 2^(exponent - 150).
  const uint32_t exponent = rest >> 23;
  if (exponent < 102) return {static_cast<uint16_t>(sign)};
  const uint32_t shift = 126 - exponent, mantissa = (rest & 0x7fffff) | 0x800000;
  const uint32_t half = (1u << (shift - 1)) - 1 + (mantissa >> shift & 1);
  return {static_cast<uint16_t>(sign | ((mantissa + half) >> shift))};
#endif
}

// Ends at the ends of the range; NaN is 0.
template <>
QUERN_INLINE s8 rounded<s8>(float x) {
#if defined(__CUDA_ARCH__)
  int32_t y;
  asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(y) : "f"(x));
  return {static_cast<int8_t>(y)};
#else
  const float limited = x > 127.0f ? 127.0f : x < -128.0f ? -128.0f : x == x ? x : 0.0f;
  const int32_t whole = static_cast<int32_t>(limited);  // towards zero
  const float rest = limited - static_cast<float>(whole);
  const int32_t odd = whole & 1;
  return {
      static_cast<int8_t>(whole + (rest > 0.5f || (rest == 0.5f && odd)) - (rest < -0.5f || (rest == -0.5f && odd)))};
#endif
}
// Ends at 448, for infinities too.
template <>
QUERN_INLINE e4m3 rounded<e4m3>(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %1;" : "=h"(pair) : "f"(x));
  return {static_cast<uint8_t>(pair)};
#else
  const uint32_t sign = bits_of(x) >> 31 << 7, rest = bits_of(x) & 0x7fffffff;
  if (rest > 0x7f800000) return {0x7f};
  if (rest >= 0x43e00000) return {static_cast<uint8_t>(sign | 0x7e)};
  if (rest >= 0x3c800000)
    return {static_cast<uint8_t>(sign | ((rest - 0x3c000000 + 0x7ffff + (rest >> 20 & 1)) >> 20))};
  // Denormal: whole steps of 2^-9, of a mantissa in steps of 2^(exponent - 150).
  const uint32_t exponent = rest >> 23;
  if (exponent < 117) return {static_cast<uint8_t>(sign)};
  const uint32_t shift = 141 - exponent, mantissa = (rest & 0x7fffff) | 0x800000;
  const uint32_t half = (1u << (shift - 1)) - 1 + (mantissa >> shift & 1);
  return {static_cast<uint8_t>(sign | ((mantissa + half) >> shift))};
#endif
}

// Once: through a float whose last bit says that it is inexact (rounding to odd).
template <class T>
QUERN_INLINE T rounded(double x) {
  const float near = static_cast<float>(x);
  const double far = static_cast<double>(near);
  if (far == x || x != x || bits_of(near) & 1) return rounded<T>(near);
  const bool below = x < 0 ? far > x : far < x;
  return rounded<T>(float_of(bits_of(near) + (below ? 1u : ~0u)));
}
template <>
QUERN_INLINE float rounded<float>(double x) {
  return static_cast<float>(x);
}
template <>
QUERN_INLINE double rounded<double>(double x) {
  return x;
}

// f(x) for an x of the type that dst and residual have: T, but beside 8 bits it may be one of these.
template <class T, class F>
QUERN_INLINE auto with_output(quern_type type, F f) {
  if constexpr (sizeof(T) == 1) {
    switch (type) {
      case QUERN_F32: return f(float{});
      case QUERN_F16: return f(f16{});
      case QUERN_BF16: return f(bf16{});
      default: break;
    }
  }
  return f(T{});
}

QUERN_INLINE float floored(float x) { return x < 0 ? 0 : x; }

// Two neighbours as one word, the first one low.  Floor: at zero, which costs nothing.
template <class T, bool Floor = false>
QUERN_INLINE uint32_t rounded_pair(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t pair;
  if constexpr (type_of<T> == QUERN_F16 && Floor) {
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  } else if constexpr (type_of<T> == QUERN_F16) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  } else if constexpr (Floor) {
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  }
  return pair;
#else
  if (Floor) first = floored(first), second = floored(second);
  return rounded<T>(first).bits | uint32_t{rounded<T>(second).bits} << 16;
#endif
}

// Four of 8 bits, the first one lowest.  Floor: as above, of e4m3.
template <class T, bool Floor = false>
QUERN_INLINE uint32_t rounded_four(const float (&x)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  if constexpr (type_of<T> == QUERN_E4M3) {
    uint16_t low, high;
    if (Floor) {
      asm("cvt.rn.satfinite.relu.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(x[1]), "f"(x[0]));
      asm("cvt.rn.satfinite.relu.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(x[3]), "f"(x[2]));
    } else {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(x[1]), "f"(x[0]));
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(x[3]), "f"(x[2]));
    }
    return low | uint32_t{high} << 16;
  } else {
    int32_t whole[4];
    QUERN_UNROLL
    for (int i = 0; i < 4; ++i) asm("cvt.rni.s32.f32 %0, %1;" : "=r"(whole[i]) : "f"(x[i]));
    uint32_t y;
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(y) : "r"(whole[3]), "r"(whole[2]));
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %0;" : "+r"(y) : "r"(whole[1]), "r"(whole[0]));
    return y;
  }
#else
  uint32_t y = 0;
  QUERN_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float own = Floor ? floored(x[i]) : x[i];
    y |= uint32_t{static_cast<uint8_t>(rounded<T>(own).bits)} << 8 * i;
  }
  return y;
#endif
}
// Four of s8 that are so many 128ths of it, from 0 to 1: a float of that size ends in the whole number that it is
// rounded to.  Conversions to integers are of the slowest kind.
QUERN_INLINE uint32_t rounded_parts(const float (&x)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  constexpr float large = 0x1.8p23f;
  uint32_t whole[4], y;
  QUERN_UNROLL
  for (int i = 0; i < 4; ++i) whole[i] = bits_of(fmaf(x[i], 128, large)) - bits_of(large);
  asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(y) : "r"(whole[3]), "r"(whole[2]));
  asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %0;" : "+r"(y) : "r"(whole[1]), "r"(whole[0]));
  return y;
#else
  const float all[] = {128 * x[0], 128 * x[1], 128 * x[2], 128 * x[3]};
  return rounded_four<s8>(all);
#endif
}

}  // namespace
}  // namespace quern
