// SPDX-License-Identifier: MIT
//
// Some elements that lie side by side, read and written at once, and the epilogue of as many results.
#pragma once

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

template <int V, class T>
QUERN_INLINE several<T, V> read(const T* p) {
  return *reinterpret_cast<const several<T, V>*>(p);
}

// dst = epilogue(y), of channels `channel`, channel + step, ...  `shared` is the thread's: 2 V floats, `apart` from
// each other, for activations that are not worth V copies of their code.
template <class T, int V>
QUERN_INLINE void write(const epilogue_f32& e, int32_t channel, int32_t step, float (&y)[V], const T* residual, T* dst,
                        float* shared, int32_t apart) {
  several<T, V> r = {};
  if (e.residual) r = read<V>(residual);
  if (only_clamps(e)) {
    QUERN_UNROLL
    for (int i = 0; i < V; ++i) y[i] = finished<true>(e, channel_of(e, channel + i * step), y[i], r.at(i));
  } else {
    QUERN_UNROLL
    for (int i = 0; i < V; ++i) shared[i * apart] = y[i], shared[(V + i) * apart] = r.at(i);
    QUERN_ROLL
    for (int i = 0; i < V; ++i)
      shared[i * apart] =
          finished<false>(e, channel_of(e, channel + i * step), shared[i * apart], shared[(V + i) * apart]);
    QUERN_UNROLL
    for (int i = 0; i < V; ++i) y[i] = shared[i * apart];
  }
  *reinterpret_cast<several<T, V>*>(dst) = several<T, V>::of(y);
}

}  // namespace
}  // namespace quern
