// SPDX-License-Identifier: MIT
//
// An image of any layout and strides, channels last and dense, each pixel padded to 16 bytes, each line to as many
// pixels as asked for, with zeros: what the copy engine can read.  A block turns 32 pixels x 128 bytes of channels
// round in shared memory, between two barriers; where a pixel is 16 bytes, a thread copies one.
#pragma once

#include "half.h"
#include "layout.h"

namespace quern {
namespace {

// By value in the kernel's parameters.
struct pixels_last {
  int32_t size[2];          // h w
  int32_t before, columns;  // pixels in front of a line, and of it altogether
  int64_t pixels;           // of all images, those of padding too
  int32_t channels, padded;
  int32_t channel_tiles;
  int64_t stride[5];  // of src: n c d h w
  int64_t block;      // channels that lie side by side
  int32_t element;    // bytes of one
  const void* src;
  void* dst;
};

// Elements of src before a pixel, or -1 where it is padding.
QUERN_INLINE int64_t pixels_last_place(const pixels_last& a, int64_t pixel) {
  const int64_t line = pixel / a.columns, n = line / a.size[0], w = pixel - line * a.columns - a.before;
  if (w < 0 || w >= a.size[1]) return -1;
  return n * a.stride[0] + (line - n * a.size[0]) * a.stride[3] + w * a.stride[4];
}

constexpr int pixels_last_threads = 256, pixels_last_tile = 32, pixels_last_pitch = pixels_last_tile + 1;
constexpr int pixels_last_channels(int64_t element) { return 128 / int(element); }

// Whether a thread copies a pixel, and a block as many as it has threads.
template <class T>
QUERN_INLINE bool pixels_last_whole(const pixels_last& a) {
  return a.padded * int(sizeof(T)) == 16;
}

template <class T>
QUERN_INLINE void pixels_last_copy(const pixels_last& a, int64_t block, int32_t thread) {
  constexpr int count = 16 / sizeof(T);
  struct alignas(16) chunk {
    T v[count];
  } x = {};
  const int64_t pixel = block * pixels_last_threads + thread;
  if (pixel >= a.pixels) return;
  if (const int64_t place = pixels_last_place(a, pixel); place >= 0) {
    QUERN_UNROLL
    for (int i = 0; i < count; ++i)
      if (i < a.channels) x.v[i] = static_cast<const T*>(a.src)[place + channel_offset(i, a.stride[1], a.block)];
  }
  static_cast<chunk*>(a.dst)[pixel] = x;
}

// Lanes along pixels.
template <class T>
QUERN_INLINE void pixels_last_read(const pixels_last& a, int64_t block, int32_t thread, T* shared) {
  constexpr int channels = pixels_last_channels(sizeof(T)), apart = pixels_last_threads / 32;
  const int64_t tile = block / a.channel_tiles, pixel = tile * pixels_last_tile + thread % 32;
  if (pixel >= a.pixels) return;
  const int64_t place = pixels_last_place(a, pixel);
  const int32_t first = static_cast<int32_t>(block - tile * a.channel_tiles) * channels + thread / 32;
  T x[channels / apart];  // all are asked for before one is waited for
  QUERN_UNROLL
  for (int i = 0; i < channels / apart; ++i) {
    const int32_t channel = first + i * apart;
    x[i] = place >= 0 && channel < a.channels
               ? static_cast<const T*>(a.src)[place + channel_offset(channel, a.stride[1], a.block)]
               : T{};
  }
  QUERN_UNROLL
  for (int i = 0; i < channels / apart; ++i) shared[(thread / 32 + i * apart) * pixels_last_pitch + thread % 32] = x[i];
}

// Lanes along channels, four bytes each: pixels are whole words.
template <class T>
QUERN_INLINE void pixels_last_write(const pixels_last& a, int64_t block, int32_t thread, const T* shared) {
  constexpr int channels = pixels_last_channels(sizeof(T)), count = 4 / sizeof(T);
  struct alignas(4) word {
    T v[count];
  };
  const int64_t tile = block / a.channel_tiles;
  const int32_t in = thread % 32 * count,
                channel = static_cast<int32_t>(block - tile * a.channel_tiles) * channels + in;
  if (channel >= a.padded) return;
  QUERN_UNROLL
  for (int i = 0; i < 32; i += pixels_last_threads / 32) {
    const int64_t pixel = tile * pixels_last_tile + i + thread / 32;
    word x;
    QUERN_UNROLL
    for (int v = 0; v < count; ++v) x.v[v] = shared[(in + v) * pixels_last_pitch + i + thread / 32];
    if (pixel < a.pixels) *reinterpret_cast<word*>(static_cast<T*>(a.dst) + pixel * a.padded + channel) = x;
  }
}

}  // namespace
}  // namespace quern

#ifdef __CUDACC__

template <class T>
__device__ __forceinline__ void run_pixels_last(const quern::pixels_last& a) {
  if (quern::pixels_last_whole<T>(a)) return quern::pixels_last_copy<T>(a, blockIdx.x, threadIdx.x);
  __shared__ T shared[quern::pixels_last_channels(sizeof(T)) * quern::pixels_last_pitch];
  quern::pixels_last_read(a, blockIdx.x, threadIdx.x, shared);
  __syncthreads();
  quern::pixels_last_write(a, blockIdx.x, threadIdx.x, shared);
}

extern "C" __global__ void __launch_bounds__(quern::pixels_last_threads)
    pixels_last_sm90a(const __grid_constant__ quern::pixels_last a) {
  if (a.element == 1) return run_pixels_last<uint8_t>(a);
  if (a.element == 2) return run_pixels_last<uint16_t>(a);
  run_pixels_last<float>(a);
}

#endif
