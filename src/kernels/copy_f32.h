// SPDX-License-Identifier: MIT
//
// Moving a strided block, the inside of every packing; the contract is copy_f32 in kernel.h.
#pragma once

#include "kernel.h"

namespace quern {
namespace {

// Blocks of channels: each is one move.
template <size_t COLS>
void copy_blocks(const copy_f32& c) {
  for (size_t i = 0; i < c.rows; ++i)
    __builtin_memcpy(c.dst + i * c.dst_row, c.src + i * c.src_row, COLS * sizeof(float));
}

// Rows as they are: whole vectors, then the rest of the row under a mask.
template <class V>
void copy_straight(const copy_f32& c) {
  constexpr size_t W = V::width;
  if (c.cols == 4) return copy_blocks<4>(c);
  if (c.cols == 8) return copy_blocks<8>(c);
  for (size_t i = 0; i < c.rows; ++i) {
    const float* src = c.src + i * c.src_row;
    float* dst = c.dst + i * c.dst_row;
    size_t j = 0;
    for (; j + W <= c.cols; j += W) V::load(src + j).store(dst + j);
    if (j < c.cols) V::load_part(src + j, c.cols - j).store_part(dst + j, c.cols - j);
  }
}

// Source rows run down the destination: squares of 8 by 8, so that both sides move whole cache lines.  The last
// square of a side lies over its neighbour; no side is shorter than one.
template <class V>
void copy_transposed(const copy_f32& c) {
  const auto after = [](size_t i, size_t n) { return i + 8 >= n ? n : i + 16 > n ? n - 8 : i + 8; };
  for (size_t i = 0; i < c.rows; i = after(i, c.rows))
    for (size_t j = 0; j < c.cols; j = after(j, c.cols))
      V::transpose8(c.src + i + j * c.src_col, c.src_col, c.dst + i * c.dst_row + j, c.dst_row);
}

// Strides that are common enough to let the compiler make shuffles of them.
template <size_t STRIDE>
void copy_every(const copy_f32& c) {
  for (size_t i = 0; i < c.rows; ++i) {
    const float* __restrict src = c.src + i * c.src_row;
    float* __restrict dst = c.dst + i * c.dst_row;
    for (size_t j = 0; j < c.cols; ++j) dst[j] = src[STRIDE * j];
  }
}

// A few planes into pixels of as many channels.
template <size_t COLS>
void interleave(const copy_f32& c) {
  const float* __restrict src = c.src;
  float* __restrict dst = c.dst;
  const size_t rows = c.rows, step = c.src_col;
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < COLS; ++j) dst[COLS * i + j] = src[i + j * step];
}

template <class V>
void copy(const copy_f32&);

// Columns several times, the last vector first: what others read of dst, where plain columns wait, lies before it.
template <class V>
void copy_spread(const copy_f32& c) {
  constexpr size_t W = V::width;
  copy_f32 plain = c;
  if (c.src_col != 1) {
    plain.cols = (c.skip + c.cols - 1) / c.times + 1, plain.times = 1;
    copy<V>(plain);
    plain.src = c.dst, plain.src_row = c.dst_row;
  }
  for (size_t j = (c.cols + W - 1) / W * W; j > 0;) {
    j -= W;
    const size_t count = c.cols - j < W ? c.cols - j : W, first = (j + c.skip) / c.times;
    const size_t columns = (j + count - 1 + c.skip) / c.times - first + 1;
    alignas(64) int32_t lane[W];
    for (size_t i = 0; i < W; ++i) lane[i] = i < count ? static_cast<int32_t>((j + i + c.skip) / c.times - first) : 0;
    const typename V::index index = V::load_index(lane);
    const float* src = plain.src + first;
    float* dst = c.dst + j;
    for (size_t i = 0; i < c.rows; ++i, src += plain.src_row, dst += c.dst_row) {
      const V out = V::permute(V::load_part(src, columns), index);
      if (count == W)
        out.store(dst);
      else
        out.store_part(dst, count);
    }
  }
}

template <class V>
void copy(const copy_f32& c) {
  if (c.times > 1 && c.cols > 0) return copy_spread<V>(c);
  if (c.src_col == 1) return copy_straight<V>(c);
  if (c.src_row == 1 && c.rows >= 8 && c.cols >= 8) return copy_transposed<V>(c);
  if (c.src_row == 1 && c.dst_row == c.cols && c.cols == 2) return interleave<2>(c);
  if (c.src_row == 1 && c.dst_row == c.cols && c.cols == 3) return interleave<3>(c);
  if (c.src_row == 1 && c.dst_row == c.cols && c.cols == 4) return interleave<4>(c);
  if (c.src_col == 2) return copy_every<2>(c);
  if (c.src_col == 3) return copy_every<3>(c);
  if (c.src_col == 4) return copy_every<4>(c);
  for (size_t i = 0; i < c.rows; ++i) {
    const float* src = c.src + i * c.src_row;
    float* dst = c.dst + i * c.dst_row;
    for (size_t j = 0; j < c.cols; ++j) dst[j] = src[j * c.src_col];
  }
}

}  // namespace
}  // namespace quern
