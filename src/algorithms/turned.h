// SPDX-License-Identifier: MIT
//
// Operands whose channels do not lie in rows of vectors, or whose pixels share too few sets of L1, turned in the
// workspace: a band of lines of a few channels at a time, [depth][line][pixel][channel].
#pragma once

#include "driver.h"
#include "pixels.h"

namespace quern {

constexpr int64_t turned_channels = 16;  // a cache line of them

// One operand as it lies, the lines of its image, and how many channels of a pixel lie together in the workspace.
struct turned_side {
  const int64_t (&stride)[5];  // n c d h w
  int64_t block;
  const int64_t (&size)[3];  // d h w
  int64_t together = turned_channels;
};

// Elements of so many lines.
inline double turned_size(const int64_t (&size)[3], int64_t lines, int64_t together = turned_channels) {
  return double(size[0]) * double(lines) * double(size[2]) * double(together);
}

// The strides of so many lines in the workspace, where there is one image, and its first channel is the block's.
inline void set_turned(int64_t (&stride)[5], int64_t& block, const int64_t (&size)[3], int64_t lines,
                       int64_t together = turned_channels) {
  stride[0] = 0, stride[1] = 1, stride[4] = together;
  stride[3] = size[2] * together, stride[2] = lines * stride[3];
  block = 1;
}

// Calls visit(the operand's pixels in a row, elements in the workspace) for the lines within, of which the workspace
// has `lines` a depth.
template <class Float, class Visit>
void each_run(const turned_side& side, Float* image, range within, int64_t lines, const Visit& visit) {
  const int64_t wide = side.size[2];
  const bool dense = side.stride[3] == wide * side.stride[4];
  const int64_t together = dense ? std::max<int64_t>(within.count(), 1) : 1;
  for (int64_t d = 0; d < side.size[0]; ++d)
    for (int64_t y = within.begin; y < within.end; y += together)
      visit(pixel_run<Float>{image + d * side.stride[2] + y * side.stride[3], together * wide, side.stride[4],
                             side.stride[1], side.block},
            (d * lines + y - within.begin) * wide * side.together);
}

// Channels of the lines within, from a tensor's image into the workspace.  Of each channel that the tensor has there
// are so many.
inline void turn_in(const kernel& row, const turned_side& side, const float* image, range channels, int64_t times,
                    range within, int64_t lines, float* to) {
  const range real = {channels.begin / times, up(channels.end, times)};
  each_run(side, image, within, lines, [&](const pixel_run<const float>& pixels, int64_t at) {
    pixels.channels(real, [&](int64_t c, int64_t n, const float* from, int64_t step) {
      const int64_t first = (real.begin + c) * times, begin = std::max(channels.begin, first);
      row.copy({size_t(pixels.count), size_t(std::min(channels.end, first + n * times) - begin), from,
                size_t(pixels.pixel), size_t(step), to + at + begin - channels.begin, size_t(side.together),
                size_t(times), size_t(begin - first)});
    });
  });
}

// And back.
inline void turn_out(const kernel& row, const turned_side& side, float* image, range channels, range within,
                     int64_t lines, const float* from) {
  each_run(side, image, within, lines, [&](const pixel_run<float>& pixels, int64_t at) {
    scatter(row, from + at, turned_channels, 1, channels, pixels);
  });
}

}  // namespace quern
