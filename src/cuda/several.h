// SPDX-License-Identifier: MIT
//
// Some elements that lie side by side, read and written at once, and the epilogue of as many results.
#pragma once

#include <string.h>

#include <type_traits>

#include "cuda/epilogue_cuda.h"
#include "half.h"

namespace quern {
namespace {

// Of 16 bytes: what one instruction of a thread moves at most.
template <class T>
inline constexpr int whole = 16 / sizeof(T);

template <class T, int V>
struct alignas(V * sizeof(T)) several {
  using word = std::conditional_t<sizeof(T) == 4, float, uint32_t>;
  word w[V * sizeof(T) / 4];

  QUERN_INLINE float at(int i) const {
    if constexpr (sizeof(T) == 4) {
      return w[i];
    } else {
      return value(T{static_cast<uint16_t>(w[i / 2] >> i % 2 * 16)});
    }
  }
  QUERN_INLINE static several of(const float (&x)[V]) {
    several s;
    QUERN_UNROLL
    for (int i = 0; i < V; i += 4 / sizeof(T)) {
      if constexpr (sizeof(T) == 4) {
        s.w[i] = x[i];
      } else {
        s.w[i / 2] = rounded_pair<T>(x[i], x[i + 1]);
      }
    }
    return s;
  }
};
template <class T>
struct several<T, 1> {
  T v;
  QUERN_INLINE float at(int) const { return value(v); }
  QUERN_INLINE static several of(const float (&x)[1]) { return {rounded<T>(x[0])}; }
};

// A step between elements: none, as they are read and written at once.
inline constexpr int64_t at_once = -1;

// One by one where there is a step.
template <int V, class T>
QUERN_INLINE several<T, V> read(const T* p, int64_t step = at_once) {
  if (V > 1 && step != at_once) {
    float x[V];
    QUERN_UNROLL
    for (int i = 0; i < V; ++i) x[i] = value(p[i * step]);
    return several<T, V>::of(x);
  }
  return *reinterpret_cast<const several<T, V>*>(p);
}
template <class T, int V>
QUERN_INLINE void put(T* p, const float (&x)[V], int64_t step) {
  if (V > 1 && step != at_once) {
    QUERN_UNROLL
    for (int i = 0; i < V; ++i) p[i * step] = rounded<T>(x[i]);
    return;
  }
  *reinterpret_cast<several<T, V>*>(p) = several<T, V>::of(x);
}

// 4 or 8 bytes at once, to memory that the kernel does not read: nvcc would write two words one by one, each to half of
// its sectors.
template <class T, class Words>
QUERN_INLINE void put_whole(T* p, const Words& words) {
  uint32_t word[sizeof words / 4];
  memcpy(word, &words, sizeof words);
  uint32_t* const to = reinterpret_cast<uint32_t*>(p);
  if constexpr (sizeof words == 4) {
    *to = word[0];
  } else {
#if defined(__CUDA_ARCH__)
    asm volatile("st.global.v2.b32 [%0], {%1,%2};" ::"l"(__cvta_generic_to_global(to)), "r"(word[0]), "r"(word[1]));
#else
    to[0] = word[0], to[1] = word[1];
#endif
  }
}

// Where results go: one of `channel`, those behind it `channel_step` further on each; steps as read() has them.
template <class T>
struct several_output {
  int32_t channel, channel_step;
  const T* residual;
  T* dst;
  int64_t residual_step, dst_step;
};

// What channels that lie so far apart bring: several at once where they are neighbours, and aligned.
template <int V>
QUERN_INLINE void load_channels(const epilogue_f32& e, int32_t channel, int32_t step, channel_f32 (&k)[V]) {
  if constexpr (V % 4 == 0) {
    const auto place = [&](const float* p) { return p ? reinterpret_cast<uintptr_t>(p + channel) : 0; };
    if (step == 1 && (place(e.scale) | place(e.bias)) % 16 == 0) {
      QUERN_UNROLL
      for (int v = 0; v < V; v += 4) {
        several<float, 4> scale = {}, bias = {};
        if (e.scale) scale = read<4>(e.scale + channel + v);
        if (e.bias) bias = read<4>(e.bias + channel + v);
        QUERN_UNROLL
        for (int i = 0; i < 4; ++i)
          k[v + i] = {e.scale ? e.alpha * scale.w[i] : e.alpha, e.bias ? bias.w[i] : -0.0f, 0};
      }
      return;
    }
  }
  QUERN_UNROLL
  for (int v = 0; v < V; ++v) k[v] = channel_of(e, channel + v * step);
}

// dst = epilogue(y), where only_clamps() holds.  Whole: load_channels(), for who has scales and biases most often.
template <bool Whole, class T, int V>
QUERN_INLINE void write_clamped(const epilogue_f32& e, const several_output<T>& to, float (&y)[V]) {
  several<T, V> r = {};
  if (e.residual) r = read<V>(to.residual, to.residual_step);
  channel_f32 k[V];
  if constexpr (Whole) load_channels(e, to.channel, to.channel_step, k);
  QUERN_UNROLL
  for (int i = 0; i < V; ++i) {
    if constexpr (!Whole) k[i] = channel_of(e, to.channel + i * to.channel_step);
    y[i] = finished<true>(e, k[i], y[i], r.at(i));
  }
  put(to.dst, y, to.dst_step);
}

// And with any epilogue.  `shared` is the thread's: 2 V floats, `apart` from each other, for activations that are not
// worth V copies of their code.
template <bool Whole = false, class T, int V>
QUERN_INLINE void write(const epilogue_f32& e, const several_output<T>& to, float (&y)[V], float* shared,
                        int32_t apart) {
  if (only_clamps(e)) return write_clamped<Whole>(e, to, y);
  several<T, V> r = {};
  if (e.residual) r = read<V>(to.residual, to.residual_step);
  QUERN_UNROLL
  for (int i = 0; i < V; ++i) shared[i * apart] = y[i], shared[(V + i) * apart] = r.at(i);
  QUERN_ROLL
  for (int i = 0; i < V; ++i)
    shared[i * apart] =
        finished<false>(e, channel_of(e, to.channel + i * to.channel_step), shared[i * apart], shared[(V + i) * apart]);
  QUERN_UNROLL
  for (int i = 0; i < V; ++i) y[i] = shared[i * apart];
  put(to.dst, y, to.dst_step);
}

}  // namespace
}  // namespace quern
