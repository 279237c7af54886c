// SPDX-License-Identifier: MIT
//
// An image of any layout and strides, channels last and dense, each pixel padded to 16 bytes: what the copy engine
// can read.  A block turns 32 pixels x 32 channels round in shared memory, between two barriers.
#pragma once

#include "kernel.h"
#include "layout.h"

namespace quern {
namespace {

// By value in the kernel's parameters.
struct pixels_last {
  int32_t size[2];  // h w
  int64_t pixels;   // of all images
  int32_t channels, padded;
  int32_t channel_tiles;
  int64_t stride[5];  // of src: n c d h w
  int64_t block;      // channels that lie side by side
  const float* src;
  float* dst;
};

constexpr int pixels_last_threads = 256, pixels_last_tile = 32, pixels_last_floats = 32 * 33;

// Lanes along pixels.
QUERN_INLINE void pixels_last_read(const pixels_last& a, int64_t block, int32_t thread, float* shared) {
  const int32_t lane = thread % 32;
  const int64_t pixel = block / a.channel_tiles * pixels_last_tile + lane;
  if (pixel >= a.pixels) return;
  const int64_t line = pixel / a.size[1], n = line / a.size[0];
  const float* from =
      a.src + n * a.stride[0] + (line - n * a.size[0]) * a.stride[3] + (pixel - line * a.size[1]) * a.stride[4];
  const int32_t first = static_cast<int32_t>(block % a.channel_tiles) * pixels_last_tile;
  QUERN_UNROLL
  for (int i = 0; i < 32; i += pixels_last_threads / 32) {
    const int32_t channel = first + i + thread / 32;
    if (channel < a.channels)
      shared[(i + thread / 32) * 33 + lane] = from[channel_offset(channel, a.stride[1], a.block)];
  }
}

// Lanes along channels.
QUERN_INLINE void pixels_last_write(const pixels_last& a, int64_t block, int32_t thread, const float* shared) {
  const int32_t channel = static_cast<int32_t>(block % a.channel_tiles) * pixels_last_tile + thread % 32;
  if (channel >= a.channels) return;
  QUERN_UNROLL
  for (int i = 0; i < 32; i += pixels_last_threads / 32) {
    const int64_t pixel = block / a.channel_tiles * pixels_last_tile + i + thread / 32;
    if (pixel < a.pixels) a.dst[pixel * a.padded + channel] = shared[thread % 32 * 33 + i + thread / 32];
  }
}

}  // namespace
}  // namespace quern
