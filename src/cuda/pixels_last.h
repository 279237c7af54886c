// SPDX-License-Identifier: MIT
//
// An image of any layout and strides, channels last and dense, each pixel padded to 16 bytes, each line to as many
// pixels as asked for, with zeros: what the copy engine can read.  A block turns 64 pixels x 128 bytes of channels
// round: a thread makes words of neighbouring channels from words of neighbouring pixels, or from elements, and shared
// memory makes lines of them, between two barriers.  Where a pixel is 16 bytes, a thread copies one.
//
// It lasts as long as a thread waits for memory: many threads with a few words each are better than wide loads of few.
#pragma once

#include "cuda/chunks.h"

namespace quern {
namespace {

// By value in the kernel's parameters.
struct pixels_last {
  int32_t size[2];          // h w
  int32_t before, columns;  // pixels in front of a line, and of it altogether
  int32_t pixels;           // of all images, those of padding too
  int32_t channels, padded;
  int32_t channel_tiles;
  int64_t stride[5];  // of src: n c d h w
  int32_t block;      // channels that lie side by side
  int32_t element;    // bytes of one
  bool words;         // pixels of four bytes lie side by side, aligned, throughout
  const void* src;
  void* dst;
};

// Elements of src before a pixel, or -1 where it is padding.
QUERN_INLINE int64_t pixels_last_place(const pixels_last& a, int32_t pixel) {
  const int32_t line = pixel / a.columns, n = line / a.size[0], w = pixel - line * a.columns - a.before;
  if (w < 0 || w >= a.size[1]) return -1;
  return n * a.stride[0] + (line - n * a.size[0]) * a.stride[3] + w * a.stride[4];
}

QUERN_INLINE int64_t pixels_last_offset(const pixels_last& a, int32_t channel) {
  if (a.block == 1) return channel * a.stride[1];
  const int32_t before = channel / a.block;
  return before * a.stride[1] + (channel - before * a.block);
}

constexpr int pixels_last_threads = 256, pixels_last_tile = 64;
constexpr int pixels_last_words = 32, pixels_last_pitch = pixels_last_words + 1;  // of a pixel in shared memory
constexpr int pixels_last_channels(int64_t element) { return 128 / int(element); }

// Whether a thread copies a pixel, and a block as many as it has threads.
template <class T>
QUERN_INLINE bool pixels_last_whole(const pixels_last& a) {
  return a.padded * int(sizeof(T)) == 16;
}

template <class T>
QUERN_INLINE void pixels_last_copy(const pixels_last& a, int32_t block, int32_t thread) {
  constexpr int count = 16 / sizeof(T);
  struct alignas(16) chunk {
    T v[count];
  } x = {};
  const int32_t pixel = block * pixels_last_threads + thread;
  if (pixel >= a.pixels) return;
  if (const int64_t place = pixels_last_place(a, pixel); place >= 0) {
    QUERN_UNROLL
    for (int i = 0; i < count; ++i)
      if (i < a.channels) x.v[i] = static_cast<const T*>(a.src)[place + pixels_last_offset(a, i)];
  }
  static_cast<chunk*>(a.dst)[pixel] = x;
}

// A warp has 32 pixels by as many words of channels at a time as a thread reads pixels at once: no two lanes write to
// the same bank.  ready(): returns when src has been written and nobody reads dst any more.
template <class T, class Pixels, class Ready>
QUERN_INLINE void pixels_last_read(const pixels_last& a, int32_t block, int32_t thread, uint32_t* shared, Ready ready) {
  constexpr int in_word = 4 / sizeof(T), side = sizeof(Pixels) / sizeof(T), across = 32 / side;
  constexpr int beside = pixels_last_tile / 32, down = pixels_last_threads / 32 / beside * side;  // warps, words
  constexpr int ahead = 8 / in_word;  // words whose elements are asked for before one is waited for
  const int32_t tile = block / a.channel_tiles, warp = thread / 32, lane = thread % 32;
  const int32_t first = warp % beside * 32 + lane % across * side, pixel = tile * pixels_last_tile + first;
  const int64_t place = pixel < a.pixels ? pixels_last_place(a, pixel) : -1;
  const int32_t channels = (block - tile * a.channel_tiles) * pixels_last_channels(sizeof(T));
  ready();
  QUERN_ROLL
  for (int32_t word = warp / beside * side + lane / across; word < pixels_last_words; word += ahead * down) {
    Pixels x[ahead][in_word];
    QUERN_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int32_t channel = channels + (word + i / in_word * down) * in_word + i % in_word;
      const int64_t at = place + pixels_last_offset(a, channel);
      x[i / in_word][i % in_word] =
          place >= 0 && channel < a.channels ? *reinterpret_cast<const Pixels*>(static_cast<const T*>(a.src) + at) : 0;
    }
    QUERN_UNROLL
    for (int i = 0; i < ahead * side; ++i) {
      uint32_t y = 0;
      QUERN_UNROLL
      for (int k = 0; k < in_word; ++k)
        y |= uint32_t{static_cast<T>(x[i / side][k] >> i % side * sizeof(T) * 8)} << k * sizeof(T) * 8;
      shared[(first + i % side) * pixels_last_pitch + word + i / side * down] = y;
    }
  }
}
template <class T, class Ready>
QUERN_INLINE void pixels_last_read(const pixels_last& a, int32_t block, int32_t thread, uint32_t* shared, Ready ready) {
  if (a.words) return pixels_last_read<T, uint32_t>(a, block, thread, shared, ready);
  pixels_last_read<T, T>(a, block, thread, shared, ready);
}

// 16 bytes of a pixel a thread.
template <class T>
QUERN_INLINE void pixels_last_write(const pixels_last& a, int32_t block, int32_t thread, const uint32_t* shared) {
  const int32_t tile = block / a.channel_tiles, chunk = thread % 8;
  const int32_t channel =
      (block - tile * a.channel_tiles) * pixels_last_channels(sizeof(T)) + chunk * int32_t(16 / sizeof(T));
  if (channel >= a.padded) return;
  QUERN_UNROLL
  for (int i = 0; i < pixels_last_tile; i += pixels_last_threads / 8) {
    const int32_t in = i + thread / 8, pixel = tile * pixels_last_tile + in;
    four_words x;
    QUERN_UNROLL
    for (int k = 0; k < 4; ++k) x.v[k] = shared[in * pixels_last_pitch + chunk * 4 + k];
    if (pixel < a.pixels)
      *reinterpret_cast<four_words*>(static_cast<T*>(a.dst) + int64_t{pixel} * a.padded + channel) = x;
  }
}

}  // namespace
}  // namespace quern

#ifdef __CUDACC__

#include "cuda/hopper.h"

template <class T>
__device__ __forceinline__ void run_pixels_last(const quern::pixels_last& a) {
  if (quern::pixels_last_whole<T>(a)) {
    quern::wait_for_previous();
    return quern::pixels_last_copy<T>(a, blockIdx.x, threadIdx.x);
  }
  __shared__ uint32_t shared[quern::pixels_last_tile * quern::pixels_last_pitch];
  quern::pixels_last_read<T>(a, blockIdx.x, threadIdx.x, shared, [] { quern::wait_for_previous(); });
  __syncthreads();
  quern::pixels_last_write<T>(a, blockIdx.x, threadIdx.x, shared);
}

extern "C" __global__ void __launch_bounds__(quern::pixels_last_threads)
    pixels_last_sm90a(const __grid_constant__ quern::pixels_last a) {
  quern::let_next_start();
  if (a.element == 1) return run_pixels_last<uint8_t>(a);
  if (a.element == 2) return run_pixels_last<uint16_t>(a);
  run_pixels_last<uint32_t>(a);
}

#endif
