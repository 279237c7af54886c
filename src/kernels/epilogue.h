// SPDX-License-Identifier: MIT
//
// Where sums go: what kernels ask of output_f32 before they store, or have finish_f32.h do it.
#pragma once

#include "kernel.h"

namespace quern {
namespace {

// Elements from column 0 to column j, which begins a vector.
[[gnu::always_inline]] inline size_t column(size_t j, size_t block, size_t next) {
  return block == 0 ? j : j / block * next + j % block;
}

// Asks for the lines of outputs that are stored when the sums are done.
[[gnu::always_inline]] inline void claim(const float* c, size_t rows, size_t step) {
  QUERN_ROLL for (size_t i = 0; i < rows; ++i) __builtin_prefetch(c + i * step, 1, 3);
}

// Whether whole vectors of every row may be streamed.  `apart`: the distances between them, joined by or.
template <class V>
[[gnu::always_inline]] inline bool is_aligned(const float* c, size_t apart) {
  return (reinterpret_cast<uintptr_t>(c) % (V::width * sizeof(float)) | apart % V::width) == 0;
}
template <class V>
[[gnu::always_inline]] inline bool is_aligned(const float* c, const output_f32& out) {
  return is_aligned<V>(c, out.ldc | out.next);
}

}  // namespace
}  // namespace quern
