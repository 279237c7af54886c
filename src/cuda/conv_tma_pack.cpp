// SPDX-License-Identifier: MIT
//
// Weights as they lie in the stages of the kernels that conv_tma.h drives.
#include <math.h>

#include "cuda/conv_tma.h"
#include "cuda/tma_f16x3.h"
#include "weights.h"

namespace quern::tma_driver {
namespace {

// The weight of output channel k and a channel of a chunk to where it lies in a stage.
template <class T>
struct put_whole {
  void operator()(T* stage, const tma_panels& t, int64_t, int64_t k, int64_t channel, T x) const {
    const int32_t row = int32_t(k % t.nr);
    stage[tma_swizzled<16 / sizeof(T)>(sizeof(T) == 1 ? tma_packed_row(row) : row, int32_t(channel))] = x;
  }
};
struct put_tf32 {
  void operator()(float* stage, const tma_panels& t, int64_t, int64_t k, int64_t channel, float x) const {
    float* const to = stage + tma_swizzled<4>(int32_t(k % t.nr), tma_tf32::column(int32_t(channel)));
    const tf32_pair two = split_tf32(x);
    *to = two.high, to[t.nr * t.chunk] = to_tf32(two.low);
  }
};
struct put_f16x3 {
  const int32_t* exponents;

  void operator()(float* stage, const tma_panels& t, int64_t group, int64_t k, int64_t channel, float x) const {
    f16* const to = reinterpret_cast<f16*>(stage);
    const int32_t row = int32_t(k % t.nr), column = tma_f16x3::column(int32_t(channel));
    const float whole = x * power_of_two(exponents[t.exponent(group, k)]);
    const f16 high = rounded<f16>(whole);
    to[tma_swizzled<8>(row, column)] = high;
    to[tma_swizzled<8>(row, tma_f32_chunk + column)] = rounded<f16>(whole - value(high));
  }
};

template <class T, class Put>
void pack_as(const tma_panels& t, const view& v, const geometry& g, int64_t first, int64_t count, const T* weights,
             T* packed, Put put) {
  pack_weights(g, first, count, weights, [&](const weight_run<T>& w) {
    // The channels of the walk from `begin` to `end` are this tap's, zeros behind the last.
    int64_t taps = w.ph.taps(), at = w.tap, begin = 0, end = t.chunks * t.chunk;
    if (v.folded) {
      taps = t.taps, at = w.tap / v.folded, begin = w.tap % v.folded * v.pixel;
      if (w.tap % v.folded != v.folded - 1) end = begin + v.pixel;
    }
    T* const panel = packed + t.phase(w.group, w.before) + t.panel(w.k / t.nr, taps);
    const auto place = [&](int64_t of, int64_t channel, T x) {
      put(panel + t.block_at(at, channel / t.chunk) * t.block(), t, w.group, of, channel % t.chunk, x);
    };
    for (int64_t c = w.begin; c < w.end; ++c) place(w.k, begin + c, w[c]);
    if (w.end < g.c) return;
    for (int64_t i = begin + g.c; i < end; ++i) place(w.k, i, 0);
    if (w.k < g.k - 1) return;
    for (int64_t none = w.k + 1; none % t.nr != 0; ++none)
      for (int64_t i = begin; i < end; ++i) place(none, i, 0);
  });
}

// Of channels [first, first + count): what their largest finite weight asks for.
void pack_exponents(const tma_panels& t, const geometry& g, int64_t first, int64_t count, const float* weights,
                    int32_t* exponents) {
  for (int64_t channel = first; channel < first + count; ++channel) {
    const int64_t at = t.exponent(channel / g.k, channel % g.k);
    const int64_t end = channel % g.k == g.k - 1 ? t.exponent(channel / g.k + 1, 0) : at + 1;
    std::fill(exponents + at, exponents + end, f16x3_exponent(0));
  }
  pack_weights(g, first, count, weights, [&](const weight_run<float>& w) {
    int32_t& e = exponents[t.exponent(w.group, w.k)];
    for (int64_t c = w.begin; c < w.end; ++c)
      if (isfinite(w[c])) e = std::min(e, f16x3_exponent(w[c]));
  });
}

}  // namespace

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const view v = view_of(g, j.row.type);
  const tma_panels t = {v.g, j.row};
  const auto as = [&](auto element, const auto& put) {
    using T = decltype(element);
    pack_as(t, v, g, first, count, static_cast<const T*>(weights), reinterpret_cast<T*>(payload), put);
  };
  if (t.scaled) {
    int32_t* const exponents = reinterpret_cast<int32_t*>(payload + t.weights_bytes());
    pack_exponents(t, g, first, count, static_cast<const float*>(weights), exponents);
    return as(float{}, put_f16x3{exponents});
  }
  switch (type_bytes(j.row.type)) {
    case 1: return as(uint8_t{}, put_whole<uint8_t>{});
    case 2: return as(uint16_t{}, put_whole<uint16_t>{});
    default: return as(float{}, put_tf32{});
  }
}

}  // namespace quern::tma_driver
