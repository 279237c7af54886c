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

// Rows of whole vectors: to = activate(factor * from + bias, slope).  A vector of every row comes before the next
// columns, as tiles have many rows of one vector or two: what a row or a column begins with is felt beside that (1.2 to
// 1.7 times as fast, Zen 3).
struct finish_rows {
  const float* from;
  float* to;
  size_t from_row, to_row, block, next;  // blocks of `to` as in output_f32
  size_t rows, columns;
  float alpha;
  const float *scale, *bias, *slope;  // of the first row or column, or NULL
  bool down;                          // those run along the rows, each `channel_step` further on
  size_t channel_step;
};

template <class V, class Activate>
[[gnu::always_inline]] inline void activate_rows(const finish_rows& f, float constant_slope, const Activate& activate) {
  const V alpha = V::set1(f.alpha);
  for (size_t j = 0; j < f.columns; j += V::width) {
    const size_t count = f.columns - j;
    const auto load = [=](const float* p) { return count >= V::width ? V::load(p + j) : V::load_part(p + j, count); };
    V factor = alpha, bias = V::set1(-0.0f), slope = V::set1(constant_slope);  // y + -0 is y, signed zeros included
    if (!f.down) {
      if (f.scale) factor = alpha * load(f.scale);
      if (f.bias) bias = load(f.bias);
      if (f.slope) slope = load(f.slope);
    }
    const float* from = f.from + j;
    float* to = f.to + column(j, f.block, f.next);
    for (size_t i = 0, channel = 0; i < f.rows; ++i, channel += f.channel_step, from += f.from_row, to += f.to_row) {
      if (f.down) {
        if (f.scale) factor = alpha * V::set1(f.scale[channel]);
        if (f.bias) bias = V::set1(f.bias[channel]);
        if (f.slope) slope = V::set1(f.slope[channel]);
      }
      activate(V::fma(V::load(from), factor, bias), slope).store(to);
    }
  }
}

template <class V>
void activate_rows(const finish_rows& f, const epilogue_f32& e) {
  const V a = V::set1(e.activation_alpha), b = V::set1(e.activation_beta);
  const auto rows = [&](const auto& activate) { activate_rows<V>(f, e.activation_alpha, activate); };
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

// The residual of what is finished, from its first row and column on.
struct finish_residual {
  const float* at;
  size_t row, column, block, next;
  float beta;

  // x + beta * residual, of as many columns as there are.
  template <class V>
  [[gnu::always_inline]] V add_to(V x, size_t i, size_t j, size_t count) const {
    const float* const p = at + i * row + quern::column(column + j, block, next);
    return V::fma(V::set1(beta), count < V::width ? V::load_part(p, count) : V::load(p), x);
  }
};

// Sums in the room: what plain stores cannot do in one go.
constexpr size_t finish_room = 1024;

template <class V>
void add_residual(const finish_residual& residual, float* room, size_t row, size_t rows, size_t columns) {
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; j += V::width) {
      float* const sum = room + i * row + j;
      residual.add_to(V::load(sum), i, j, columns - j).store(sum);
    }
}

template <class V>
void leave_room(const finish_residual* residual, const float* room, size_t row, size_t rows, size_t columns,
                const output_f32& out, size_t y, size_t x, bool streams) {
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; j += V::width) {
      const size_t count = columns - j;
      V v = V::load(room + i * row + j);
      if (residual) v = residual->add_to(v, i, j, count);
      float* const c = out.c + (y + i) * out.ldc + column(x + j, out.block, out.next);
      if (count < V::width)
        v.store_part(c, count);
      else if (streams)
        v.stream(c);
      else
        v.store(c);
    }
}

// C[m x n] = epilogue(tile).  Rows of the tile are `tile_row` floats apart and padded to whole vectors;
// of C and the residual exactly m x n elements are touched.  out.epilogue is not NULL.
template <class V>
void finish(const output_f32& out, size_t m, size_t n, const float* tile, size_t tile_row) {
  constexpr size_t W = V::width;
  const epilogue_f32& e = *out.epilogue;
  const bool before = e.residual == QUERN_RESIDUAL_BEFORE, after = e.residual == QUERN_RESIDUAL_AFTER;
  const bool streams = out.stream && is_aligned<V>(out.c, out), down = out.channels_are_rows;
  alignas(64) float room[finish_room];
  const auto whole = [](size_t columns) { return (columns + W - 1) / W * W; };
  // All at once, mostly; else whole rows, or parts of one.
  const bool fits = m * whole(n) <= finish_room;
  const size_t wide = fits || n < finish_room ? n : finish_room, high = fits ? m : finish_room / whole(wide);
  for (size_t y = 0; y < m; y += high)
    for (size_t x = 0; x < n; x += wide) {
      const size_t rows = m - y < high ? m - y : high, columns = n - x < wide ? n - x : wide, row = whole(columns);
      const size_t channel = out.channel + (down ? y : x);
      const finish_residual residual = {out.residual + (before || after ? y * out.ldr : 0),
                                        out.ldr,
                                        x,
                                        out.residual_block,
                                        out.residual_next,
                                        e.beta};
      finish_rows f = {.from = tile + y * tile_row + x,
                       .to = room,
                       .from_row = tile_row,
                       .to_row = row,
                       .block = 0,
                       .next = 0,
                       .rows = rows,
                       .columns = columns,
                       .alpha = e.alpha,
                       .scale = e.scale ? e.scale + channel : nullptr,
                       .bias = e.bias ? e.bias + channel : nullptr,
                       .slope = e.activation == QUERN_PRELU ? e.slope + channel : nullptr,
                       .down = down,
                       .channel_step = 1};
      if (before) {
        epilogue_f32 sums = e;
        sums.activation = QUERN_IDENTITY;
        activate_rows<V>(f, sums);
        add_residual<V>(residual, room, row, rows, columns);
        f.from = room, f.from_row = row, f.alpha = 1, f.scale = f.bias = nullptr;
      }
      const bool waits = after || streams || columns != row;
      if (!waits) {
        f.to = out.c + y * out.ldc + column(x, out.block, out.next), f.to_row = out.ldc;
        f.block = out.block, f.next = out.next;
      }
      // A row of one channel is many short ones.
      if (rows == 1 && f.block == 0 && (down || !(f.scale || f.bias || f.slope)))
        f.rows = row / W, f.columns = f.from_row = f.to_row = W, f.channel_step = 0;
      activate_rows<V>(f, e);
      if (waits) leave_room<V>(after ? &residual : nullptr, room, row, rows, columns, out, y, x, streams);
    }
}

}  // namespace
}  // namespace quern
