// SPDX-License-Identifier: MIT
//
// The epilogue of kernel.h on a tile of finished sums, for every kernel that writes f32: vec::finish.
//
//   f = alpha * scale[k]        rounded once a channel
//   y = f * acc + bias[k]       one fused multiply-add; without bias the product, rounded once
//   y = activation(beta * residual + y)       BEFORE, fused
//   y = beta * residual + activation(y)       AFTER, fused
#pragma once

#include "activation.h"
#include "epilogue.h"

namespace quern {
namespace {

// The loops of finish(); activate(y, slope) is inlined.
template <class V, class Activate>
[[gnu::always_inline]] inline void finish_rows(const output_f32& out, size_t m, size_t n, const float* tile,
                                               size_t tile_row, const Activate& activate) {
  const epilogue_f32& e = *out.epilogue;
  const V alpha = V::set1(e.alpha), beta = V::set1(e.beta);
  const V nothing = V::set1(-0.0f);  // y + nothing is y, signed zeros included
  const bool along = !out.channels_are_rows;
  const bool slopes = e.activation == QUERN_PRELU;
  const bool streams = out.stream && is_aligned<V>(out.c, out);
  for (size_t i = 0; i < m; ++i) {
    V factor = alpha, bias = nothing, slope = V::set1(e.activation_alpha);
    if (!along) {
      const size_t channel = out.channel + i;
      if (e.scale) factor = alpha * V::set1(e.scale[channel]);
      if (e.bias) bias = V::set1(e.bias[channel]);
      if (slopes) slope = V::set1(e.slope[channel]);
    }
    for (size_t j = 0; j < n; j += V::width) {
      const size_t count = n - j;
      const auto load = [count](const float* p) { return count >= V::width ? V::load(p) : V::load_part(p, count); };
      if (along) {
        const size_t channel = out.channel + j;
        if (e.scale) factor = alpha * load(e.scale + channel);
        if (e.bias) bias = load(e.bias + channel);
        if (slopes) slope = load(e.slope + channel);
      }
      const float* const residual =
          out.residual ? out.residual + i * out.ldr + column(j, out.residual_block, out.residual_next) : nullptr;
      V y = V::fma(V::load(tile + i * tile_row + j), factor, bias);
      if (e.residual == QUERN_RESIDUAL_BEFORE) y = V::fma(beta, load(residual), y);
      y = activate(y, slope);
      if (e.residual == QUERN_RESIDUAL_AFTER) y = V::fma(beta, load(residual), y);
      float* c = out.c + i * out.ldc + column(j, out.block, out.next);
      if (count >= V::width && streams) {
        y.stream(c);
      } else if (count >= V::width) {
        y.store(c);
      } else {
        y.store_part(c, count);
      }
    }
  }
}

// C[m x n] = epilogue(tile).  Rows of the tile are `tile_row` floats apart and padded to whole vectors;
// of C and the residual exactly m x n elements are touched.  out.epilogue is not NULL.
template <class V>
void finish(const output_f32& out, size_t m, size_t n, const float* tile, size_t tile_row) {
  const epilogue_f32& e = *out.epilogue;
  const V a = V::set1(e.activation_alpha), b = V::set1(e.activation_beta);
  const auto rows = [&](const auto& activate) { finish_rows<V>(out, m, n, tile, tile_row, activate); };
  switch (const quern_activation activation = e.activation; activation) {
    case QUERN_IDENTITY: return rows([](V x, V) { return x; });
    case QUERN_RELU: return rows([](V x, V) { return relu(x); });
    case QUERN_CLAMP: return rows([=](V x, V) { return clamp(x, a, b); });
    case QUERN_LEAKY_RELU:
    case QUERN_PRELU: return rows([](V x, V slope) { return leaky_relu(x, slope); });
    case QUERN_HARD_SIGMOID: return rows([=](V x, V) { return hard_sigmoid(x, a, b); });
    case QUERN_HARD_SWISH: return rows([=](V x, V) { return hard_swish(x, a, b); });
    case QUERN_SIGMOID: return rows([](V x, V) { return logistic_activation(x, QUERN_SIGMOID); });
    case QUERN_SILU: return rows([](V x, V) { return logistic_activation(x, QUERN_SILU); });
    case QUERN_TANH: return rows([](V x, V) { return tanh(x); });
    case QUERN_GELU: return rows([](V x, V) { return gelu(x); });
    default: return rows([=](V x, V) { return exponential_activation(x, activation); });
  }
}

}  // namespace
}  // namespace quern
