// SPDX-License-Identifier: MIT
//
// Pointers at equal distances, in few registers.
#pragma once

#include <stddef.h>

namespace quern {
namespace {

// Number 0, 1, 2 ... of them: every fourth from a pointer of its own.  The empty asm hides how they are related, or
// the compiler makes a register for every one and spills.
struct pointers {
  const char* at;
  ptrdiff_t s1, s3;
  [[gnu::always_inline]] pointers(const float* p, ptrdiff_t step)
      : at(reinterpret_cast<const char*>(p)), s1(step * ptrdiff_t(sizeof(float))), s3(3 * s1) {
    __asm__("" : "+r"(s1), "+r"(s3));
  }
  [[gnu::always_inline]] const float* get(int x) const {
    return reinterpret_cast<const float*>(at + (x % 4 == 3 ? s3 : x % 4 * s1));
  }
  [[gnu::always_inline]] void next(int x) {
    if (x % 4 == 3) {
      at += 4 * s1;
      __asm__("" : "+r"(at));
    }
  }
};

// Those of vectors one after the other.
template <class V>
struct vectors_in_a_row {
  const char* at;
  [[gnu::always_inline]] vectors_in_a_row(const float* p, ptrdiff_t) : at(reinterpret_cast<const char*>(p)) {}
  [[gnu::always_inline]] const float* get(int x) const {
    return reinterpret_cast<const float*>(at) + x * static_cast<int>(V::width);
  }
  [[gnu::always_inline]] void next(int) {}
};

}  // namespace
}  // namespace quern
