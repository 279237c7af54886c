// SPDX-License-Identifier: MIT
//
// Finished sums on their way from a warp to dst: some pixels by some channels, turned round in shared memory so
// that lanes write what lies side by side.
#pragma once

#include <type_traits>

#include "cuda/epilogue_cuda.h"
#include "half.h"

namespace quern {
namespace {

struct alignas(16) four_floats {
  float v[4];
};
struct alignas(8) two_floats {
  float v[2];
};

QUERN_INLINE four_floats load_four(const float* p) { return *reinterpret_cast<const four_floats*>(p); }
QUERN_INLINE void store_four(float* p, const four_floats& x) { *reinterpret_cast<four_floats*>(p) = x; }

// The same of 16 bits each, or of 8.
struct alignas(8) two_words {
  uint32_t v[2];
};
template <class T>
QUERN_INLINE four_floats load_four(const T* p) {
  four_floats x;
  if constexpr (sizeof(T) == 1) {
    const uint32_t w = *reinterpret_cast<const uint32_t*>(p);
    QUERN_UNROLL
    for (int i = 0; i < 4; ++i) x.v[i] = value(T{static_cast<decltype(T::bits)>(w >> 8 * i)});
  } else {
    const two_words w = *reinterpret_cast<const two_words*>(p);
    QUERN_UNROLL
    for (int i = 0; i < 4; ++i) x.v[i] = value(T{static_cast<uint16_t>(w.v[i / 2] >> i % 2 * 16)});
  }
  return x;
}
template <class T>
QUERN_INLINE void store_four(T* p, const four_floats& x) {
  if constexpr (sizeof(T) == 1) {
    uint32_t w = 0;
    QUERN_UNROLL
    for (int i = 0; i < 4; ++i) w |= uint32_t{static_cast<uint8_t>(rounded<T>(x.v[i]).bits)} << 8 * i;
    *reinterpret_cast<uint32_t*>(p) = w;
  } else {
    *reinterpret_cast<two_words*>(p) = {{rounded_pair<T>(x.v[0], x.v[1]), rounded_pair<T>(x.v[2], x.v[3])}};
  }
}

// What a sum of elements is kept in; integers pass through memory of floats as their bits.
template <class Element>
using sum_type = std::conditional_t<std::is_same_v<Element, s8>, int32_t, float>;
template <class Element>
QUERN_INLINE float sum_value(float x) {
  if constexpr (std::is_same_v<Element, s8>) return static_cast<float>(static_cast<int32_t>(bits_of(x)));
  return x;
}
// Their class where it is not the algorithm's.
template <class Element>
inline constexpr quern_accuracy sums_of = std::is_same_v<Element, e4m3> ? QUERN_ACCURACY_F16 : QUERN_ACCURACY_DEFAULT;
template <class Number>
QUERN_INLINE Number sum_of_bits(float x) {
  if constexpr (std::is_same_v<Number, int32_t>) return static_cast<int32_t>(bits_of(x));
  return static_cast<Number>(x);
}
// An element as a number that products are summed of, and a product added: in integers where those are exact.
template <class Element>
QUERN_INLINE sum_type<Element> number_of(Element x) {
  if constexpr (std::is_same_v<Element, s8>)
    return x.bits;
  else
    return value(x);
}
QUERN_INLINE float with_product(float x, float y, float sum) { return fmaf(x, y, sum); }
QUERN_INLINE int32_t with_product(int32_t x, int32_t y, int32_t sum) { return x * y + sum; }
QUERN_INLINE float sum_bits(float x) { return x; }
QUERN_INLINE float sum_bits(int32_t x) { return float_of(static_cast<uint32_t>(x)); }

// dst of one phase of a problem.
struct gpu_output {
  int32_t size[3], pixels, k;  // outputs along d h w, and of all images; channels of a group
  int64_t dst_stride[5], residual_stride[5];
  void* dst;
  const void* residual;
  bool vector;      // chunks of so many channels as a kernel writes at once are aligned
  bool even;        // pixels lie at the same distance throughout, dst_stride[4] and residual_stride[4]
  quern_type type;  // of dst and residual, where kernels take several: with_output()
  epilogue_f32 epilogue;

  // The first channel of a pixel.
  QUERN_INLINE int64_t place_of(int32_t pixel, const int64_t* stride) const {
    if (even) return pixel * stride[4];
    int64_t place = 0;
    QUERN_UNROLL
    for (int i = 2; i >= 0; --i) {
      const int32_t rest = pixel / size[i];
      place += (pixel - rest * size[i]) * stride[2 + i];
      pixel = rest;
    }
    return place + pixel * stride[0];
  }
};

// One sum, as its bits, on its way to an element of dst, which may have a residual.
template <class Element>
QUERN_INLINE void write_one(const gpu_output& out, const channel_f32& of, float sum, int64_t to, int64_t from) {
  if (std::is_same_v<Element, s8> && out.type == QUERN_S32) {
    static_cast<int32_t*>(out.dst)[to] = static_cast<int32_t>(bits_of(sum));
    return;
  }
  const auto load = [&](auto type) { return value(static_cast<const decltype(type)*>(out.residual)[from]); };
  const float r = out.epilogue.residual ? with_output<Element>(out.type, load) : 0.0f;
  const float y = finished<false>(out.epilogue, of, sum_value<Element>(sum), r);
  with_output<Element>(out.type,
                       [&](auto type) { static_cast<decltype(type)*>(out.dst)[to] = rounded<decltype(type)>(y); });
}

// Element: of src.
template <class Element, int Rows, int Pitch, int Columns = 32>
struct output_warp {
  static constexpr int columns = Columns, pitch = Pitch, floats = Rows * Pitch + 4 * Rows;

  const gpu_output& out;
  float* shared;
  int32_t lane;

  QUERN_INLINE float* at(int row, int column) const { return shared + row * pitch + column; }
  QUERN_INLINE int64_t* places() const { return reinterpret_cast<int64_t*>(shared + Rows * pitch); }

  // Where the lane's pixel goes; below zero: nowhere.
  QUERN_INLINE void find_place(int32_t pixel) const {
    if (lane >= Rows) return;
    places()[lane] = pixel >= 0 ? out.place_of(pixel, out.dst_stride) : -1;
    places()[Rows + lane] = pixel >= 0 ? out.place_of(pixel, out.residual_stride) : 0;
  }
  // Where the warp's pixels, from this one on, go; behind the last one: nowhere.
  QUERN_INLINE void find_places(int32_t pixel) const { find_place(pixel + lane < out.pixels ? pixel + lane : -1); }

  // The columns are channels of the group from `base` on.
  QUERN_INLINE void finish(int32_t group, int32_t base) const {
    const epilogue_f32& e = out.epilogue;
    const int64_t first = int64_t{group} * out.k + base;
    if (out.vector && base + columns <= out.k && only_clamps(e)) {
      const int64_t channel = first + lane % (columns / 4) * 4;
      channel_f32 of[4];
      QUERN_UNROLL
      for (int i = 0; i < 4; ++i) of[i] = channel_of(e, static_cast<int32_t>(channel) + i);
      for (int row = lane / (columns / 4); row < Rows; row += 128 / columns) {
        const int64_t to = places()[row];
        if (to < 0) continue;
        four_floats y = load_four(at(row, lane % (columns / 4) * 4));
        const int64_t from = places()[Rows + row] + channel;
        const auto load = [&](auto type) { return load_four(static_cast<const decltype(type)*>(out.residual) + from); };
        const four_floats r = e.residual ? with_output<Element>(out.type, load) : four_floats{};
        QUERN_UNROLL
        for (int i = 0; i < 4; ++i) y.v[i] = finished<true>(e, of[i], sum_value<Element>(y.v[i]), r.v[i]);
        with_output<Element>(out.type,
                             [&](auto type) { store_four(static_cast<decltype(type)*>(out.dst) + to + channel, y); });
      }
      return;
    }
    // Lanes along what lies side by side in dst.
    const bool along = out.dst_stride[1] == 1;
    for (int i = lane; i < Rows * columns; i += 32) {
      const int32_t row = along ? i / columns : i % Rows, column = along ? i % columns : i / Rows;
      const int64_t to = places()[row], channel = first + column;
      if (to < 0 || base + column >= out.k) continue;
      write_one<Element>(out, channel_of(e, static_cast<int32_t>(channel)), *at(row, column),
                         to + channel * out.dst_stride[1], places()[Rows + row] + channel * out.residual_stride[1]);
    }
  }
};

}  // namespace
}  // namespace quern
