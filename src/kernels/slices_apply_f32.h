// SPDX-License-Identifier: MIT
//
// What becomes of the elements of a slice, once, over a vector type; the contract is slices_f32 in kernel.h.
//
// Scale, bias and what clamps are done in registers, with the operations of finish_f32.h; for the others a part of a
// row goes through L1.
#pragma once

#include <type_traits>

#include "epilogue.h"
#include "slices_f32.h"

namespace quern {
namespace {

// Of an epilogue, what is done here: nothing, or y = min(upper, max(lower, factor * x + bias)).
enum class ending { none, clamped, finished };

template <class V, apply_of WHAT>
QUERN_INLINE V applied(V x, V a, V b, V c) {
  switch (WHAT) {
    case apply_of::scaled: return V::fma(x - a, b, c);
    case apply_of::exponential: return exponential(x - a) * b;
    default: return x - a - b;
  }
}

template <class V, apply_of WHAT, bool DOWN, ending END>
void apply_rows(const slices_apply_f32& f) {
  constexpr size_t tile_floats = 512;
  const epilogue_f32& e = *f.out.epilogue;
  const bool rows = f.out.channels_are_rows;
  const V alpha = V::set1(e.alpha), lower = V::set1(e.lower), upper = V::set1(e.upper);
  const bool bounded = e.activation != QUERN_IDENTITY;
  const bool streams = f.out.stream && is_aligned<V>(f.out.c, f.out.ldc | size_t(f.dst_step));
  alignas(64) float tile[END == ending::finished ? tile_floats : 1];
  // Short rows are finished several at a time (group norm of 8 channels and SiLU, channels last: 1.8 times as fast,
  // Zen 3).
  const size_t wide = (f.n + V::width - 1) / V::width * V::width;
  const bool several = END == ending::finished && wide > 0 && wide < tile_floats && f.channel_row == ptrdiff_t(rows);
  const size_t together = several ? tile_floats / wide : 1;
  for (size_t s = 0; s < f.count; ++s) {
    const V a0 = V::set1(f.a[s]), b0 = V::set1(f.b[s]), c0 = V::set1(f.c[s]);
    for (size_t i = 0; i < f.m; i += together) {
      const float* const x = f.src + ptrdiff_t(s) * f.step + ptrdiff_t(i) * f.row;
      float* const y = f.out.c + ptrdiff_t(s) * f.dst_step + i * f.out.ldc;
      const size_t channel = f.out.channel + size_t(ptrdiff_t(s) * f.channel_step + ptrdiff_t(i) * f.channel_row);
      const auto value = [&](V v, size_t j) {
        if constexpr (DOWN) return applied<V, WHAT>(v, V::load(f.a + j), V::load(f.b + j), V::load(f.c + j));
        return applied<V, WHAT>(v, a0, b0, c0);
      };
      if constexpr (END == ending::finished) {
        const float* const residual =
            f.out.residual ? f.out.residual + ptrdiff_t(s) * f.residual_step + i * f.out.ldr : nullptr;
        for (size_t from = 0; from < f.n; from += tile_floats) {
          const size_t n = f.n - from < tile_floats ? f.n - from : tile_floats;
          const float* row = x + from;
          float* to = tile;
          const size_t count = f.m - i < together ? f.m - i : together;
          for (size_t r = 0; r < count; ++r, row += f.row, to += wide) {
            size_t j = 0;
            for (; j + V::width <= n; j += V::width) value(V::load(row + j), from + j).store(to + j);
            if (j < n) value(V::load_part(row + j, n - j), from + j).store(to + j);
          }
          output_f32 out = f.out;
          out.c = y + from, out.channel = channel + (rows ? 0 : from);
          if (residual) out.residual = residual + from;
          V::finish(out, count, n, tile, wide);
        }
      } else {
        const auto row = [&](auto along) {
          constexpr bool each = along.value;
          const V nothing = V::set1(-0.0f);
          const size_t n = f.n;
          const float *const scale = e.scale ? e.scale + channel : nullptr, *const biases =
                                                                                e.bias ? e.bias + channel : nullptr;
          const V factor0 = !each && e.scale ? alpha * V::set1(e.scale[channel]) : alpha,
                  bias0 = !each && e.bias ? V::set1(e.bias[channel]) : nothing;
          const auto ended = [&](V v, size_t j, const auto& load) {
            v = value(v, j);
            if constexpr (END == ending::none) return v;
            V factor = factor0, bias = bias0;
            if constexpr (each) {
              if (scale) factor = alpha * load(scale + j);
              if (biases) bias = load(biases + j);
            }
            v = V::fma(v, factor, bias);
            return bounded ? V::min(upper, V::max(lower, v)) : v;
          };
          const auto whole = [](const float* p) { return V::load(p); };
          size_t j = 0;
          if constexpr (WHAT == apply_of::exponential && !DOWN && END == ending::none)
            for (; j + 4 * V::width <= n; j += 4 * V::width) {
              V v[4];
              QUERN_UNROLL for (int g = 0; g < 4; ++g) v[g] = V::load(x + j + size_t(g) * V::width);
              exponentials4(v, a0);
              QUERN_UNROLL for (int g = 0; g < 4; ++g) {
                float* const to = y + j + size_t(g) * V::width;
                streams ? (v[g] * b0).stream(to) : (v[g] * b0).store(to);
              }
            }
          if (streams)
            for (; j + V::width <= n; j += V::width) ended(V::load(x + j), j, whole).stream(y + j);
          else
            for (; j + V::width <= n; j += V::width) ended(V::load(x + j), j, whole).store(y + j);
          const size_t rest = n - j;
          const auto part = [rest](const float* p) { return V::load_part(p, rest); };
          if (rest) ended(part(x + j), j, part).store_part(y + j, rest);
        };
        if (END == ending::none || rows)
          row(std::false_type());
        else
          row(std::true_type());
      }
    }
  }
}

// Down columns what belongs to a column is loaded once for some rows; channels run along them, or nothing depends on a
// channel.
template <class V, apply_of WHAT, bool CLAMPED>
void apply_columns(const slices_apply_f32& f) {
  constexpr size_t most_rows = 8;
  const epilogue_f32& e = *f.out.epilogue;
  const V alpha = V::set1(e.alpha), lower = V::set1(e.lower), upper = V::set1(e.upper), nothing = V::set1(-0.0f);
  const bool streams = f.out.stream && is_aligned<V>(f.out.c, f.out.ldc);
  for (size_t i = 0; i < f.m; i += most_rows) {
    const size_t rows = f.m - i < most_rows ? f.m - i : most_rows;
    const auto column = [&](size_t j, const auto& load, const auto& store) {
      const V a = V::load(f.a + j), b = V::load(f.b + j), c = V::load(f.c + j);
      const V factor = CLAMPED && e.scale ? alpha * load(e.scale + f.out.channel + j) : alpha,
              bias = CLAMPED && e.bias ? load(e.bias + f.out.channel + j) : nothing;
      const float* x = f.src + ptrdiff_t(i) * f.row + j;
      float* y = f.out.c + i * f.out.ldc + j;
      for (size_t r = 0; r < rows; ++r, x += f.row, y += f.out.ldc) {
        V v = applied<V, WHAT>(load(x), a, b, c);
        if constexpr (CLAMPED) v = V::min(upper, V::max(lower, V::fma(v, factor, bias)));
        store(v, y);
      }
    };
    const auto whole = [](const float* p) { return V::load(p); };
    size_t j = 0;
    if (streams)
      for (; j + V::width <= f.n; j += V::width) column(j, whole, [](V v, float* p) { v.stream(p); });
    else
      for (; j + V::width <= f.n; j += V::width) column(j, whole, [](V v, float* p) { v.store(p); });
    const size_t rest = f.n - j;
    if (rest)
      column(
          j, [rest](const float* p) { return V::load_part(p, rest); },
          [rest](V v, float* p) { v.store_part(p, rest); });
  }
}

template <class V, apply_of WHAT, bool DOWN>
void apply_ending(const slices_apply_f32& f) {
  const epilogue_f32& e = *f.out.epilogue;
  if constexpr (DOWN)
    if (e.plain) return apply_columns<V, WHAT, false>(f);
  if (e.plain) return apply_rows<V, WHAT, DOWN, ending::none>(f);
  const bool clamps = e.activation == QUERN_IDENTITY || e.activation == QUERN_RELU || e.activation == QUERN_CLAMP;
  if constexpr (DOWN)
    if (clamps && !f.out.residual && (!f.out.channels_are_rows || !(e.scale || e.bias)))
      return apply_columns<V, WHAT, true>(f);
  if (clamps && !f.out.residual) return apply_rows<V, WHAT, DOWN, ending::clamped>(f);
  apply_rows<V, WHAT, DOWN, ending::finished>(f);
}

template <class V, apply_of WHAT>
void apply_one(const slices_apply_f32& f) {
  f.down ? apply_ending<V, WHAT, true>(f) : apply_ending<V, WHAT, false>(f);
}

template <class V>
void apply_slices(const slices_apply_f32& f) {
  switch (f.what) {
    case apply_of::scaled: return apply_one<V, apply_of::scaled>(f);
    case apply_of::exponential: return apply_one<V, apply_of::exponential>(f);
    case apply_of::shifted: return apply_one<V, apply_of::shifted>(f);
  }
}

}  // namespace
}  // namespace quern
