// SPDX-License-Identifier: MIT
//
// Four numbers of 8 bits in a word: their products with four others in one instruction, and words of bytes of two.
#pragma once

#include <stdint.h>

#include "kernel.h"

namespace quern {
namespace {

// sum + x[0] * y[0] + ... + x[3] * y[3], signed.
QUERN_INLINE int32_t dot4(uint32_t x, uint32_t y, int32_t sum) {
#if defined(__CUDA_ARCH__)
  return __dp4a(static_cast<int32_t>(x), static_cast<int32_t>(y), sum);
#else
  const auto byte = [](uint32_t word, int i) { return static_cast<int32_t>(static_cast<int8_t>(word >> 8 * i)); };
  for (int i = 0; i < 4; ++i) sum += byte(x, i) * byte(y, i);
  return sum;
#endif
}

// A byte of the eight of `low` and `high` for each digit of `which`, from the lowest.
QUERN_INLINE uint32_t bytes(uint32_t low, uint32_t high, uint32_t which) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(low, high, which);
#else
  const uint64_t both = low | uint64_t{high} << 32;
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word |= static_cast<uint32_t>(both >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
  return word;
#endif
}

// Four words of four bytes, byte i of word k to byte k of word i.
QUERN_INLINE void turn(uint32_t (&x)[4]) {
  const uint32_t even[] = {bytes(x[0], x[1], 0x5140), bytes(x[2], x[3], 0x5140)};
  const uint32_t odd[] = {bytes(x[0], x[1], 0x7362), bytes(x[2], x[3], 0x7362)};
  x[0] = bytes(even[0], even[1], 0x5410), x[1] = bytes(even[0], even[1], 0x7632);
  x[2] = bytes(odd[0], odd[1], 0x5410), x[3] = bytes(odd[0], odd[1], 0x7632);
}

}  // namespace
}  // namespace quern
