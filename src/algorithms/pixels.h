// SPDX-License-Identifier: MIT
//
// Moving pixels between a tensor of any layout and a buffer.
#pragma once

#include "geometry.h"
#include "kernel.h"

namespace quern {

// Pixels of a tensor at one distance from each other; `at` is channel 0 of the first.
template <class Float>
struct pixel_run {
  Float* at;
  int64_t count, pixel;           // elements from pixel to pixel
  int64_t channel_stride, block;  // as in a tensor

  // Calls visit(first of them, how many, where, elements from channel to channel) for channels that lie at one
  // distance from each other.
  template <class Visit>
  void channels(range all, Visit visit) const {
    for (int64_t c = all.begin; c < all.end;) {
      const int64_t n = block == 1 ? all.end - c : std::min(all.end - c, block - c % block);
      visit(c - all.begin, n, at + channel_offset(c, channel_stride, block), block == 1 ? channel_stride : 1);
      c += n;
    }
  }
};

// to[i * to_pixel + c * to_channel] = from[i * from_pixel + c * from_channel], by the row's copy where one
// side of the destination is dense.
inline void copy_pixels(const kernel& row, int64_t pixels, int64_t channels, const float* from, int64_t from_pixel,
                        int64_t from_channel, float* to, int64_t to_pixel, int64_t to_channel) {
  if (to_channel == 1) {
    row.copy({size_t(pixels), size_t(channels), from, size_t(from_pixel), size_t(from_channel), to, size_t(to_pixel)});
  } else if (to_pixel == 1) {
    row.copy(
        {size_t(channels), size_t(pixels), from, size_t(from_channel), size_t(from_pixel), to, size_t(to_channel)});
  } else {
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = 0; i < pixels; ++i) to[i * to_pixel + c * to_channel] = from[i * from_pixel + c * from_channel];
  }
}

// Channels of a run of pixels into a buffer, and back.
inline void gather(const kernel& row, const pixel_run<const float>& from, range channels, float* to, int64_t to_pixel,
                   int64_t to_channel) {
  from.channels(channels, [&](int64_t c, int64_t n, const float* at, int64_t step) {
    copy_pixels(row, from.count, n, at, from.pixel, step, to + c * to_channel, to_pixel, to_channel);
  });
}
inline void scatter(const kernel& row, const float* from, int64_t from_pixel, int64_t from_channel, range channels,
                    const pixel_run<float>& to) {
  to.channels(channels, [&](int64_t c, int64_t n, float* at, int64_t step) {
    copy_pixels(row, to.count, n, from + c * from_channel, from_pixel, from_channel, at, to.pixel, step);
  });
}

// Asks for the lines of pixels that lie side by side, plane by plane: a scatter that waits for each of many planes
// takes two to four times as long (Granite Rapids, of planes beyond L2).
template <bool WRITES, class Float>
void ask_for(const pixel_run<Float>& pixels, range planes) {
  for (int64_t c = planes.begin; c < planes.end; ++c) {
    __asm__ volatile("");  // or the compiler sees a function without effects, and drops its calls
    const float* const at = pixels.at + c * pixels.channel_stride;
    for (int64_t i = 0; i < pixels.count; i += 16) __builtin_prefetch(at + i, WRITES, 3);
    __builtin_prefetch(at + pixels.count - 1, WRITES, 3);
  }
}

// Channels lie side by side for as many as there are.
inline bool channels_dense(const int64_t* stride, int64_t block) { return block == 1 && stride[1] == 1; }

}  // namespace quern
