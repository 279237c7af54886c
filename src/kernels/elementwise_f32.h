// SPDX-License-Identifier: MIT
//
// Operators of one element, or of two, once, over a vector type; the contract is elementwise_f32 in kernel.h.
//
// Where a bias and bounds are all that follows, rows go from registers to memory; else through a tile in L1, or, where
// there is nothing to compute before, from src itself.
#pragma once

#include "epilogue.h"
#include "kernel.h"

namespace quern {
namespace {

// Some vectors of a loop, of which each operand that is the same all along has as many in memory: loads are free beside
// a store, and no loop needs to know.
template <class V>
constexpr size_t element_step = 4 * V::width;

template <class V>
[[gnu::always_inline]] inline void fill(float* to, float x) {
  QUERN_UNROLL for (size_t i = 0; i < element_step<V>; i += V::width) V::set1(x).store(to + i);
}

struct element_row {
  const float *src, *other, *bias;
  size_t other_along, bias_along;  // 1: an element each, 0: one step of what is the same
  float* to;
  size_t n;
  bool streams;
};

// to[j] = finish(op(src[j], other[j]), bias[j])
template <class V, class Op, class Finish>
[[gnu::always_inline]] inline void take_row(element_row r, Op op, Finish finish) {
  constexpr size_t width = V::width;
  const auto pass = [&r](size_t count) {
    r.src += count, r.other += count * r.other_along, r.bias += count * r.bias_along, r.to += count, r.n -= count;
  };
  while (r.n >= element_step<V>) {
    V y[4];
    QUERN_UNROLL for (size_t i = 0; i < 4; ++i) y[i] =
        finish(op(V::load(r.src + i * width), V::load(r.other + i * width)), V::load(r.bias + i * width));
    if (r.streams)
      QUERN_UNROLL for (size_t i = 0; i < 4; ++i) y[i].stream(r.to + i * width);
    else
      QUERN_UNROLL for (size_t i = 0; i < 4; ++i) y[i].store(r.to + i * width);
    pass(element_step<V>);
  }
  QUERN_ROLL while (r.n >= width) {
    finish(op(V::load(r.src), V::load(r.other)), V::load(r.bias)).store(r.to);
    pass(width);
  }
  if (r.n > 0)
    finish(op(V::load_part(r.src, r.n), V::load_part(r.other, r.n)), V::load_part(r.bias, r.n)).store_part(r.to, r.n);
}

// Where finish(y, bias) is a few operations.
template <class V, class Op, class Finish>
void take_rows(const elementwise_f32& e, Op op, Finish finish) {
  alignas(64) float other[element_step<V>], bias[element_step<V>];
  const output_f32& out = e.out;
  const float* const biases = out.epilogue->bias;
  element_row r = {};
  r.other_along = !e.same, r.bias_along = biases && !out.channels_are_rows;
  r.streams = out.stream && is_aligned<V>(out.c, out);
  if (!biases || e.one_channel) fill<V>(bias, biases ? biases[out.channel] : -0.0f);  // y + -0 is y
  for (size_t i = 0; i < e.m; ++i) {
    r.src = r.other = e.src + i * e.src_row;  // where there is no other, it is not read
    if (e.op != QUERN_UNARY) r.other = e.other + i * e.other_row;
    if (e.same) fill<V>(other, *r.other), r.other = other;
    r.bias = r.bias_along ? biases + out.channel : bias;
    if (biases && !r.bias_along && !e.one_channel) fill<V>(bias, biases[out.channel + i]);
    r.to = out.c + i * out.ldc, r.n = e.n;
    take_row<V>(r, op, finish);
  }
}

// m rows of n elements from row i and column j on.
inline elementwise_f32 part_of(const elementwise_f32& e, size_t i, size_t j, size_t m, size_t n) {
  elementwise_f32 part = e;
  part.m = m, part.n = n;
  part.src += i * e.src_row + j;
  if (e.op != QUERN_UNARY) part.other += i * e.other_row + (e.same ? 0 : j);
  part.out.c += i * e.out.ldc + j;
  if (e.out.residual) part.out.residual += i * e.out.ldr + j;
  part.out.channel += !e.out.channels_are_rows ? j : e.one_channel ? 0 : i;
  return part;
}

// Any epilogue, from column `first` on; plain() has none.
template <class V>
[[gnu::noinline]] void take_tiles(const elementwise_f32& e, size_t first, void (*plain)(const elementwise_f32&)) {
  constexpr size_t most = 1024;
  alignas(64) float tile[most] = {};
  const epilogue_f32 nothing = {};
  for (size_t j = first; j < e.n; j += most) {
    const size_t n = e.n - j < most ? e.n - j : most, row = (n + V::width - 1) / V::width * V::width;
    const size_t rows = e.one_channel ? 1 : most / row;
    for (size_t i = 0; i < e.m; i += rows) {
      elementwise_f32 part = part_of(e, i, j, e.m - i < rows ? e.m - i : rows, n);
      const output_f32 out = part.out;
      part.out = output_f32();
      part.out.c = tile, part.out.ldc = row, part.out.epilogue = &nothing;
      plain(part);
      V::finish(out, part.m, n, tile, row);
    }
  }
}

// Whole vectors of src are a tile themselves.
template <class V>
void finish_src(const elementwise_f32& e, void (*plain)(const elementwise_f32&)) {
  const size_t whole = e.n / V::width * V::width, rows = e.one_channel ? 1 : e.m;
  for (size_t i = 0; i < e.m && whole; i += rows) {
    const elementwise_f32 part = part_of(e, i, 0, rows, whole);
    V::finish(part.out, rows, whole, part.src, e.src_row);
  }
  if (whole < e.n) take_tiles<V>(e, whole, plain);
}

template <class V, class Op>
void take(const elementwise_f32& e, Op op) {
  const epilogue_f32& f = *e.out.epilogue;
  const V lower = V::set1(f.lower), upper = V::set1(f.upper);
  const auto plain = [](const elementwise_f32& all) { take_rows<V>(all, Op(), [](V y, V) { return y; }); };
  if (f.plain) return plain(e);
  if (f.clamp_only && !f.bias && f.upper == __builtin_inff())
    return take_rows<V>(e, op, [=](V y, V) { return V::max(lower, y); });
  if (f.clamp_only) return take_rows<V>(e, op, [=](V y, V bias) { return V::min(upper, V::max(lower, y + bias)); });
  e.op == QUERN_UNARY ? finish_src<V>(e, plain) : take_tiles<V>(e, 0, plain);
}

template <class V>
void run_elementwise(const elementwise_f32& e) {
  switch (e.op) {
    case QUERN_ADD: return take<V>(e, [](V a, V b) { return a + b; });
    case QUERN_SUB: return take<V>(e, [](V a, V b) { return a - b; });
    case QUERN_MUL: return take<V>(e, [](V a, V b) { return a * b; });
    case QUERN_DIV: return take<V>(e, [](V a, V b) { return a / b; });
    // Either way round, as the second operand of a vector's is what it gives with a NaN: any bits of the other leave a
    // NaN one, and what are no NaN are the same twice.
    case QUERN_MAX: return take<V>(e, [](V a, V b) { return V::max(a, b) | V::max(b, a); });
    case QUERN_MIN: return take<V>(e, [](V a, V b) { return V::min(a, b) | V::min(b, a); });
    default: return take<V>(e, [](V a, V) { return a; });
  }
}

}  // namespace
}  // namespace quern
