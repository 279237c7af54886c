// SPDX-License-Identifier: MIT
//
// Pooling on a GPU: a thread has one output, or those of 16 bytes of channels where they lie side by side and aligned
// throughout.  Taps on padding are left out; what neighbouring windows share, L1 has.  Written for any compiler, as a
// test runs it on this CPU.
#pragma once

#include "cuda/several.h"
#include "layout.h"

namespace quern {
namespace {

// By value in the kernel's parameters.
struct pooling {
  int32_t threads;          // one for each chunk of channels of each output
  int32_t inner, channels;  // chunks of channels that lie side by side in dst; channels altogether
  int32_t in[3], out[3], filter[3], stride[3], dilation[3], pad[3];
  int64_t src_stride[5], dst_stride[5], residual_stride[5];
  int64_t src_block, dst_block, residual_block;  // channels that lie side by side (layout.h)
  const void *src, *residual;
  void* dst;
  bool whole;    // chunks are of 16 bytes
  bool largest;  // else the mean
  float taps;    // to divide by; 0: those on the image
  epilogue_f32 epilogue;
};
constexpr int pooling_threads = 256;
template <class T>
inline constexpr int pooling_shared = 2 * whole<T>* pooling_threads * 4;

// Taps from `first` to before `end` are on the image; tap 0 is at `at`.
struct pooling_taps {
  int32_t at, first, end;
  QUERN_INLINE pooling_taps(const pooling& a, int axis, int32_t output) {
    const int32_t step = a.dilation[axis];
    at = output * a.stride[axis] - a.pad[axis];
    first = at < 0 ? (-at + step - 1) / step : 0;
    end = a.in[axis] > at ? (a.in[axis] - at + step - 1) / step : 0;
    if (end > a.filter[axis]) end = a.filter[axis];
    if (end < first) end = first;
  }
};

template <class T, int V>
QUERN_INLINE void pool(const pooling& a, int32_t index, float* shared) {
  int32_t rest = index;
  const auto take = [&](int32_t of) {
    const int32_t before = rest;
    rest /= of;
    return before - rest * of;
  };
  // Lanes along what lies side by side in dst.
  const int32_t inner = take(a.inner), q = take(a.out[2]), p = take(a.out[1]), o = take(a.out[0]);
  const int32_t blocks = (a.channels + a.inner * V - 1) / (a.inner * V), block = take(blocks), n = rest;
  const int32_t channel = (block * a.inner + inner) * V;
  if (channel >= a.channels) return;

  const T* const src =
      static_cast<const T*>(a.src) + n * a.src_stride[0] + channel_offset(channel, a.src_stride[1], a.src_block);
  const pooling_taps d(a, 0, o), h(a, 1, p), w(a, 2, q);
  float y[V];
  QUERN_UNROLL
  for (int i = 0; i < V; ++i) y[i] = a.largest ? -INFINITY : 0.0f;
  QUERN_ROLL
  for (int32_t t = d.first; t < d.end; ++t) {
    QUERN_ROLL
    for (int32_t r = h.first; r < h.end; ++r) {
      const T* const line =
          src + (d.at + t * a.dilation[0]) * a.src_stride[2] + (h.at + r * a.dilation[1]) * a.src_stride[3];
      // Some taps at a time, so that none is waited for alone.
      constexpr int ahead = 3;
      QUERN_ROLL
      for (int32_t s = w.first; s < w.end; s += ahead) {
        several<T, V> x[ahead] = {};
        QUERN_UNROLL
        for (int k = 0; k < ahead; ++k)
          if (s + k < w.end) x[k] = read<V>(line + (w.at + (s + k) * a.dilation[2]) * a.src_stride[4]);
        QUERN_UNROLL
        for (int k = 0; k < ahead * V; ++k) {
          if (s + k / V >= w.end) continue;
          const float v = x[k / V].at(k % V);
          float& sum = y[k % V];
          sum = !a.largest ? sum + v : v > sum || v != v ? v : sum;
        }
      }
    }
  }
  const float count =
      static_cast<float>(d.end - d.first) * static_cast<float>(h.end - h.first) * static_cast<float>(w.end - w.first);
  if (!a.largest && count > 0) {
    QUERN_UNROLL
    for (int i = 0; i < V; ++i) y[i] = y[i] / (a.taps > 0 ? a.taps : count);
  }
  const auto place = [&](const int64_t* stride, int64_t side) {
    return n * stride[0] + channel_offset(channel, stride[1], side) + o * stride[2] + p * stride[3] + q * stride[4];
  };
  const several_output<T> to = {channel,
                                1,
                                static_cast<const T*>(a.residual) + place(a.residual_stride, a.residual_block),
                                static_cast<T*>(a.dst) + place(a.dst_stride, a.dst_block),
                                at_once,
                                at_once};
  write(a.epilogue, to, y, shared, pooling_threads);
}

template <class T>
QUERN_INLINE void pool_thread(const pooling& a, int32_t index, float* shared) {
  if (index >= a.threads) return;
  if (a.whole) return pool<T, whole<T>>(a, index, shared);
  pool<T, 1>(a, index, shared);
}

}  // namespace
}  // namespace quern
