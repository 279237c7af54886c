// SPDX-License-Identifier: MIT
//
// Moving a strided block, the inside of every packing; the contract is copy_f32 in kernel.h.
#pragma once

#include "kernel.h"

namespace quern {
namespace {

// Rows as they are: whole vectors, then the rest of the row under a mask.
template <class V>
void copy_straight(const copy_f32& c) {
  constexpr size_t W = V::width;
  for (size_t i = 0; i < c.rows; ++i) {
    const float* src = c.src + i * c.src_row;
    float* dst = c.dst + i * c.dst_row;
    size_t j = 0;
    for (; j + W <= c.cols; j += W) V::load(src + j).store(dst + j);
    if (j < c.cols) V::load_part(src + j, c.cols - j).store_part(dst + j, c.cols - j);
  }
}

// Source rows run down the destination: squares of 8 by 8, so that both sides move whole cache lines.
template <class V>
void copy_transposed(const copy_f32& c) {
  size_t i = 0;
  for (; i + 8 <= c.rows; i += 8) {
    size_t j = 0;
    for (; j + 8 <= c.cols; j += 8)
      V::transpose8(c.src + i + j * c.src_col, c.src_col, c.dst + i * c.dst_row + j, c.dst_row);
    for (; j < c.cols; ++j)
      for (size_t r = 0; r < 8; ++r) c.dst[(i + r) * c.dst_row + j] = c.src[i + r + j * c.src_col];
  }
  for (; i < c.rows; ++i)
    for (size_t j = 0; j < c.cols; ++j) c.dst[i * c.dst_row + j] = c.src[i + j * c.src_col];
}

template <class V>
void copy(const copy_f32& c) {
  if (c.src_col == 1) return copy_straight<V>(c);
  if (c.src_row == 1 && c.rows >= 8) return copy_transposed<V>(c);
  // Stride 2 is common enough to let the compiler make shuffles of it.
  for (size_t i = 0; i < c.rows; ++i) {
    const float* src = c.src + i * c.src_row;
    float* dst = c.dst + i * c.dst_row;
    if (c.src_col == 2)
      for (size_t j = 0; j < c.cols; ++j) dst[j] = src[2 * j];
    else
      for (size_t j = 0; j < c.cols; ++j) dst[j] = src[j * c.src_col];
  }
}

}  // namespace
}  // namespace quern
