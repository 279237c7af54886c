// SPDX-License-Identifier: MIT
//
// The pooling kernel, once, over a vector type; the contract is pool_f32 in kernel.h.
//
// A column is what the lines of one input come to.  Outputs are taken from columns in any way: sums have one order.
#pragma once

#include <type_traits>

#include "epilogue.h"
#include "kernel.h"

namespace quern {
namespace {

template <class V>
struct pool_largest {
  static constexpr bool any_order = true;
  [[gnu::always_inline]] static V nothing() { return V::set1(-__builtin_inff()); }
  [[gnu::always_inline]] static V add(V sum, V x) { return V::larger(sum, x); }
};

template <class V>
struct pool_sum {
  static constexpr bool any_order = false;
  [[gnu::always_inline]] static V nothing() { return V::zero(); }
  [[gnu::always_inline]] static V add(V sum, V x) { return sum + x; }
};

// What becomes of sums before the epilogue: of the largest nothing.
struct pool_divisor {
  float by, times;  // times: 1 / by where that is a power of two
  pool_divisor(float counted) : by(counted), times(0) {
    uint32_t bits;
    __builtin_memcpy(&bits, &counted, sizeof bits);
    if ((bits & 0x7fffff) == 0) times = 1 / counted;
  }
  // No sum is -0: padding may be added to it, or not.
  template <class V>
  [[gnu::always_inline]] V mean(V sum) const {
    sum = sum + V::zero();
    return times != 0 ? sum * V::set1(times) : sum / V::set1(by);
  }
};

// Where outputs go: to dst, within bounds, or to a tile for V::finish.
template <class V>
struct pool_target {
  float* to;
  size_t pixel;
  V lower, upper;
  bool streams;

  pool_target(const pool_f32& p) {
    const epilogue_f32& e = *p.out.epilogue;
    const bool straight = p.rows == 0 && is_straight(p);
    lower = V::set1(straight ? e.lower : -__builtin_inff()), upper = V::set1(straight ? e.upper : __builtin_inff());
    to = straight ? p.out.c : p.tile;
    pixel = !straight ? p.n : p.out.channels_are_rows ? 1 : p.out.ldc;
    streams = straight && p.out.stream && is_aligned<V>(to, p.across() ? 0 : pixel);
  }
  static bool is_straight(const pool_f32& p) {
    const epilogue_f32& e = *p.out.epilogue;
    return e.clamp_only && !e.bias && p.lies_as_dst();
  }
  [[gnu::always_inline]] void put(float* at, V x) const {
    x = V::min(upper, V::max(lower, x));
    if (streams)
      x.stream(at);
    else
      x.store(at);
  }
  [[gnu::always_inline]] void put_part(float* at, V x, size_t count) const {
    V::min(upper, V::max(lower, x)).store_part(at, count);
  }
  void finish(const pool_f32& p) const {
    if (p.rows > 0) return finish_rows(p);
    if (to != p.out.c) finish_row(p, p.out, p.count, p.tile);
  }

 private:
  static void finish_row(const pool_f32& p, const output_f32& out, size_t count, const float* tile) {
    if (p.out.channels_are_rows)
      V::finish(out, 1, count, tile, count);
    else
      V::finish(out, count, p.n, tile, p.n);
  }
  // Of a band.
  static void finish_rows(const pool_f32& p) {
    const epilogue_f32& e = *p.out.epilogue;
    const bool straight = is_straight(p);
    const pool_target bounds(V::set1(e.lower), V::set1(e.upper));
    output_f32 out = p.out;
    const float* tile = p.tile;
    for (size_t i = 0; i < p.rows; ++i, tile += p.tile_row, out.c += p.dst_row, out.residual += p.residual_row) {
      if (!straight) {
        finish_row(p, out, p.row_count, tile);
        continue;
      }
      const size_t floats = p.row_count * p.n;
      size_t f = 0;
      for (; f + V::width <= floats; f += V::width) bounds.put(out.c + f, V::load(tile + f));
      if (f < floats) bounds.put_part(out.c + f, V::load(tile + f), floats - f);
    }
  }
  pool_target(V below, V above) : to(nullptr), pixel(0), lower(below), upper(above), streams(false) {}
};

// The taps of output x that are no padding.
struct pool_taps {
  size_t begin, end;
  pool_taps(const pool_f32& p, size_t x) {
    const ptrdiff_t first = static_cast<ptrdiff_t>(x) * p.step - p.pad, left = p.width - first;
    const ptrdiff_t taps = static_cast<ptrdiff_t>(p.taps);
    const auto steps = [&](ptrdiff_t inputs) {
      const ptrdiff_t n = inputs <= 0 ? 0 : p.apart == 1 ? inputs : (inputs + p.apart - 1) / p.apart;
      return static_cast<size_t>(n < taps ? n : taps);
    };
    begin = steps(-first), end = steps(left);
    if (end < begin) end = begin;
  }
  size_t count() const { return end - begin; }
};

inline pool_divisor divisor_of(const pool_f32& p, size_t taps) {
  const float counted = static_cast<float>(p.lines * taps);
  return p.taps_counted != 0 ? p.taps_counted : counted != 0 ? counted : 1.0f;
}

// Lines as they are, or one of them that the others are folded to.
struct pool_lines {
  const float* src;
  const ptrdiff_t* line;
  size_t count;
  ptrdiff_t pixel;
};

// U vectors of one output; of a part, the first `rest` floats of a vector.
template <class V, template <class> class Op, int U, bool PART>
[[gnu::always_inline]] inline void pool_window(const pool_lines& in, ptrdiff_t first, ptrdiff_t apart, size_t taps,
                                               size_t c, size_t rest, V (&sum)[U]) {
  using op = Op<V>;
  const auto load = [&](const float* at, int u) { return PART ? V::load_part(at, rest) : V::load(at + u * V::width); };
  QUERN_UNROLL for (V& x : sum) x = op::nothing();
  if (in.count == 0) return;
  if constexpr (op::any_order) {
    for (size_t l = 0; l < in.count; ++l) {
      const float* at = in.src + in.line[l] + first + c;
      for (size_t s = 0; s < taps; ++s, at += apart)
        QUERN_UNROLL for (int u = 0; u < U; ++u) sum[u] = op::add(sum[u], load(at, u));
    }
  } else {
    for (size_t s = 0; s < taps; ++s, first += apart) {
      V column[U];
      const float* const at = in.src + first + c;
      QUERN_UNROLL for (int u = 0; u < U; ++u) column[u] = load(at + in.line[0], u);
      for (size_t l = 1; l < in.count; ++l)
        QUERN_UNROLL for (int u = 0; u < U; ++u) column[u] = op::add(column[u], load(at + in.line[l], u));
      QUERN_UNROLL for (int u = 0; u < U; ++u) sum[u] = op::add(sum[u], column[u]);
    }
  }
}

template <class V, template <class> class Op>
void pool_windows(const pool_f32& p, const pool_lines& in, const pool_target<V>& out, size_t begin, size_t end) {
  constexpr size_t U = 4, W = V::width;
  for (size_t x = begin; x < end; ++x) {
    const pool_taps taps(p, x);
    const ptrdiff_t apart = p.apart * in.pixel, first = (static_cast<ptrdiff_t>(x) * p.step - p.pad) * in.pixel +
                                                        static_cast<ptrdiff_t>(taps.begin) * apart;
    const pool_divisor divisor = divisor_of(p, taps.count());
    const auto value = [&](V sum) { return Op<V>::any_order ? sum : divisor.mean(sum); };
    float* const to = out.to + x * out.pixel;
    size_t c = 0;
    for (; c + U * W <= p.n; c += U * W) {
      V sum[U];
      pool_window<V, Op, U, false>(in, first, apart, taps.count(), c, W, sum);
      QUERN_UNROLL for (size_t u = 0; u < U; ++u) out.put(to + c + u * W, value(sum[u]));
    }
    for (; c + W <= p.n; c += W) {
      V sum[1];
      pool_window<V, Op, 1, false>(in, first, apart, taps.count(), c, W, sum);
      out.put(to + c, value(sum[0]));
    }
    if (c < p.n) {
      V sum[1];
      pool_window<V, Op, 1, true>(in, first, apart, taps.count(), c, p.n - c, sum);
      out.put_part(to + c, value(sum[0]), p.n - c);
    }
  }
}

// U vectors of outputs [begin, end), all of whose T taps are there: S new columns for each, T - S of the one before.
template <class V, template <class> class Op, int T, int S, int U, bool PART>
[[gnu::always_inline]] inline void pool_strip(const pool_f32& p, const pool_target<V>& out, size_t begin, size_t end,
                                              size_t c, size_t rest) {
  using op = Op<V>;
  static_assert(S <= T);
  constexpr int kept = T - S;
  const pool_divisor divisor = divisor_of(p, T);
  const float* at = p.src + (static_cast<ptrdiff_t>(begin) * S - p.pad) * p.pixel + c;
  const auto load = [&](const float* from, int u) {
    return PART ? V::load_part(from, rest) : V::load(from + u * V::width);
  };
  const auto fold = [&](V(&column)[U]) {
    QUERN_UNROLL for (int u = 0; u < U; ++u) column[u] = load(at + p.line[0], u);
    for (size_t l = 1; l < p.lines; ++l)
      QUERN_UNROLL for (int u = 0; u < U; ++u) column[u] = op::add(column[u], load(at + p.line[l], u));
    at += p.pixel;
  };
  V column[T][U];
  QUERN_UNROLL for (int s = 0; s < kept; ++s) fold(column[s]);
  float* to = out.to + begin * out.pixel + c;
  for (size_t x = begin; x < end; ++x, to += out.pixel) {
    QUERN_UNROLL for (int s = kept; s < T; ++s) fold(column[s]);
    QUERN_UNROLL for (int u = 0; u < U; ++u) {
      V sum = column[0][u];
      QUERN_UNROLL for (int s = 1; s < T; ++s) sum = op::add(sum, column[s][u]);
      if constexpr (!op::any_order) sum = divisor.mean(sum);
      if constexpr (PART)
        out.put_part(to, sum, rest);
      else
        out.put(to + u * V::width, sum);
      QUERN_UNROLL for (int s = 0; s < kept; ++s) column[s][u] = column[s + S][u];
    }
  }
}

template <class V, template <class> class Op, int T, int S>
void pool_columns(const pool_f32& p, const pool_target<V>& out, size_t begin, size_t end) {
  constexpr size_t U = V::registers == 32 ? 4 : 2, W = V::width;
  size_t c = 0;
  for (; c + U * W <= p.n; c += U * W) pool_strip<V, Op, T, S, U, false>(p, out, begin, end, c, W);
  for (; c + W <= p.n; c += W) pool_strip<V, Op, T, S, 1, false>(p, out, begin, end, c, W);
  if (c < p.n) pool_strip<V, Op, T, S, 1, true>(p, out, begin, end, c, p.n - c);
}

// body(taps, step) of ways that are made for some.
template <class Body>
void for_few_taps(const pool_f32& p, const Body& body) {
  const std::integral_constant<int, 1> one;
  const std::integral_constant<int, 2> two;
  const std::integral_constant<int, 3> three;
  if (p.taps == 3 && p.step == 1) return body(three, one);
  if (p.taps == 3) return body(three, two);
  if (p.step == 1) return body(two, one);
  body(two, two);
}

// Those in the middle by columns, those that meet padding by themselves.
template <class V, template <class> class Op>
void pool_by_columns(const pool_f32& p, const pool_lines& in, const pool_target<V>& out) {
  size_t begin = 0, end = p.count;
  const auto whole = [&](size_t x) { return pool_taps(p, x).count() == p.taps; };
  while (begin < end && !whole(begin)) ++begin;
  while (begin < end && !whole(end - 1)) --end;
  pool_windows<V, Op>(p, in, out, 0, begin);
  if (begin < end && p.lines > 0) {
    for_few_taps(p, [&](auto taps, auto step) { pool_columns<V, Op, taps.value, step.value>(p, out, begin, end); });
  } else {
    pool_windows<V, Op>(p, in, out, begin, end);
  }
  pool_windows<V, Op>(p, in, out, end, p.count);
}

// Columns of all inputs that windows reach.  Where the line is dense, it folds as if it were one pixel.
template <class V, template <class> class Op>
void pool_by_pixels(const pool_f32& p, const pool_target<V>& out) {
  using op = Op<V>;
  const ptrdiff_t n = static_cast<ptrdiff_t>(p.n), reach = static_cast<ptrdiff_t>(p.span()) - p.pad;
  const ptrdiff_t end = reach < p.width ? reach : p.width, inputs = end > 0 && p.lines > 0 ? end : 0;
  const bool dense = p.pixel == n;
  const ptrdiff_t pixel = dense ? n : static_cast<ptrdiff_t>(pool_f32::whole(p.n));
  const size_t floats = static_cast<size_t>(dense ? inputs * n : n);
  const auto fold = [&](const float* at, float* to, const auto& load) {
    V sum = load(at + p.line[0]);
    for (size_t l = 1; l < p.lines; ++l) sum = op::add(sum, load(at + p.line[l]));
    sum.store(to);
  };
  for (ptrdiff_t i = 0; i < (dense && inputs > 0 ? 1 : inputs); ++i) {
    const float* const at = p.src + i * p.pixel;
    float* const to = p.fold + i * pixel;
    size_t c = 0;
    for (; c + V::width <= floats; c += V::width) fold(at + c, to + c, [](const float* from) { return V::load(from); });
    const size_t rest = floats - c;
    if (rest) fold(at + c, to + c, [rest](const float* from) { return V::load_part(from, rest); });
  }
  const ptrdiff_t line = 0;
  pool_windows<V, Op>(p, {p.fold, &line, p.lines > 0, pixel}, out, 0, p.count);
}

// Lanes from `begin` to before `end` as they are loaded, others as what adds nothing.
template <class V, template <class> class Op>
struct pool_edge {
  static constexpr ptrdiff_t W = V::width;
  struct table {
    float lane[3 * W];
    constexpr table() : lane() {
      for (ptrdiff_t i = 0; i < W; ++i) lane[i] = lane[2 * W + i] = Op<V>::any_order ? -__builtin_inff() : 0.0f;
    }
  };
  typename V::lanes lanes;
  V others;

  pool_edge(ptrdiff_t begin, ptrdiff_t end) : lanes(V::range(begin, end)) {
    static constexpr table nothing;
    const float* const zeros = nothing.lane + W;
    others = V::load(zeros - (begin < 0 ? 0 : begin)) | V::load(zeros + W - (end > W ? W : end));
  }
  [[gnu::always_inline]] V load(const float* p) const { return V::load_mask(p, lanes) | others; }
};

// Of S vectors, phase f has pixels f, f + S ...: lane i is number lane[f][0][i] of the first two, or of what they came
// to and the third, fourth.
template <class V, int S>
struct pool_numbers {
  int32_t lane[S][S > 1 ? S - 1 : 1][V::width];
  constexpr pool_numbers(int n) : lane() {
    for (int f = 0; f < S; ++f)
      for (int i = 0; i < V::width; ++i) {
        const int from = (i / n * S + f) * n + i % n, vector = from / V::width, at = from % V::width;
        for (int k = 1; k < S; ++k) lane[f][k - 1][i] = vector == k ? V::width + at : k == 1 ? at : i;
      }
  }
};

// Columns of a dense line, vectors across pixels, parted into S phases.
template <class V, template <class> class Op, int S>
struct pool_phases_of {
  using op = Op<V>;
  static constexpr ptrdiff_t W = V::width;
  const pool_f32& p;
  const pool_numbers<V, S>& number;
  ptrdiff_t at, end;  // the next vector, and where lines do; 0: input 0

  pool_phases_of(const pool_f32& of, const pool_numbers<V, S>* numbers)
      : p(of), number(numbers[S == 1 ? 0 : __builtin_ctz(static_cast<unsigned>(of.n))]) {
    const ptrdiff_t n = static_cast<ptrdiff_t>(p.n), reach = static_cast<ptrdiff_t>(p.span()) - p.pad;
    at = -p.pad * n, end = p.lines == 0 ? at : (reach < p.width ? reach : p.width) * n;
  }
  template <class Load>
  [[gnu::always_inline]] V fold(const Load& load) const {
    V sum = load(p.src + p.line[0] + at);
    for (size_t l = 1; l < p.lines; ++l) sum = op::add(sum, load(p.src + p.line[l] + at));
    return sum;
  }
  // U vectors on the image; there is one more to load for all of them than for one.
  template <int U>
  [[gnu::always_inline]] void columns(V (&sum)[U]) {
    const float* const from = p.src + at;
    QUERN_UNROLL for (int u = 0; u < U; ++u) sum[u] = V::load(from + p.line[0] + u * W);
    for (size_t l = 1; l < p.lines; ++l) {
      const float* const line = from + p.line[l];
      QUERN_UNROLL for (int u = 0; u < U; ++u) sum[u] = op::add(sum[u], V::load(line + u * W));
    }
    at += U * W;
  }
  template <int U>
  bool has_columns() const {
    return at >= 0 && at + U * W <= end;
  }
  [[gnu::always_inline]] V column() const {
    if (__builtin_expect(at >= 0 && at + W <= end, 1)) return fold([](const float* from) { return V::load(from); });
    if (at + W <= 0 || at >= end) return op::nothing();
    const pool_edge<V, Op> edge(-at, end - at);
    return fold([&](const float* from) { return edge.load(from); });
  }
  // The next vector of each.
  [[gnu::always_inline]] void next(V (&phase)[S]) {
    V of[S];
    QUERN_UNROLL for (int k = 0; k < S; ++k, at += W) of[k] = column();
    QUERN_UNROLL for (int f = 0; f < S; ++f) {
      phase[f] = of[0];
      QUERN_UNROLL for (int k = 1; k < S; ++k) phase[f] =
          V::pick(phase[f], of[k], V::load_index(number.lane[f][k - 1]));
    }
  }
};

// A line of outputs, vectors across pixels: divided, and put where they go.
template <class V, template <class> class Op>
struct pool_flat_target {
  const pool_target<V>& out;
  size_t floats;
  pool_divisor divisor;
  V lines;
  const float* inside;

  pool_flat_target(const pool_f32& p, const pool_target<V>& to)
      : out(to),
        floats(p.count * p.n),
        divisor(divisor_of(p, p.taps)),
        lines(V::set1(static_cast<float>(p.lines > 0 && p.rows == 0 ? p.lines : 1))),
        inside(p.taps_counted == 0 ? p.inside : nullptr) {}
  [[gnu::always_inline]] void put(size_t f, V sum) const {
    const size_t count = floats - f < V::width ? floats - f : V::width;
    const bool whole = count == V::width;
    if constexpr (!Op<V>::any_order) {
      if (inside)
        sum = (sum + V::zero()) / (lines * (whole ? V::load(inside + f) : V::load_part(inside + f, count)));
      else
        sum = divisor.mean(sum);
    }
    if (whole)
      out.put(out.to + f, sum);
    else
      out.put_part(out.to + f, sum, count);
  }
};

template <class V, template <class> class Op, int S>
void pool_fold_flat(const pool_f32& p) {
  static constexpr pool_numbers<V, S> numbers[] = {1, 2, 4, 8, 16};
  pool_phases_of<V, Op, S> phases(p, numbers);
  const size_t apart = p.phase_floats();
  constexpr int U = 4;
  for (size_t f = 0; f < apart; f += V::width) {
    if constexpr (S == 1)
      for (; phases.template has_columns<U>() && f + U * V::width <= apart; f += U * V::width) {
        V sum[U];
        phases.columns(sum);
        QUERN_UNROLL for (int u = 0; u < U; ++u) sum[u].store(p.fold + f + u * V::width);
      }
    if (f >= apart) return;
    V phase[S];
    phases.next(phase);
    QUERN_UNROLL for (int i = 0; i < S; ++i) phase[i].store(p.fold + i * apart + f);
  }
}

// Windows of one tap become such of two, four ..., and two that lie over each other are one of any number: the largest
// of what both have is the same (sparse tables: Bender and Farach-Colton, The LCA problem revisited, 2000).
template <class V, template <class> class Op>
void pool_doubled(const pool_f32& p, const pool_flat_target<V, Op>& target) {
  const size_t tap = static_cast<size_t>(p.apart) * p.n, floats = target.floats + (p.taps - 1) * tap;
  size_t taps = 1;
  for (; 2 * taps < p.taps; taps *= 2)
    for (size_t f = 0; f + taps * tap < floats; f += V::width)
      Op<V>::add(V::load(p.fold + f), V::load(p.fold + f + taps * tap)).store(p.fold + f);
  for (size_t f = 0; f < target.floats; f += V::width)
    target.put(f, Op<V>::add(V::load(p.fold + f), V::load(p.fold + f + (p.taps - taps) * tap)));
}

template <class V, template <class> class Op>
void pool_flat(const pool_f32& p, const pool_target<V>& out) {
  using op = Op<V>;
  switch (p.step) {
    case 1: pool_fold_flat<V, Op, 1>(p); break;
    case 2: pool_fold_flat<V, Op, 2>(p); break;
    case 3: pool_fold_flat<V, Op, 3>(p); break;
    default: pool_fold_flat<V, Op, 4>(p); break;
  }
  const pool_flat_target<V, Op> target(p, out);
  if constexpr (op::any_order)
    if (p.doubles()) return pool_doubled<V, Op>(p, target);
  const size_t phase = p.phase_floats(), step = static_cast<size_t>(p.step), apart = static_cast<size_t>(p.apart);
  for (size_t f = 0; f < target.floats; f += V::width) {
    V sum = op::nothing();
    size_t input = 0, of_phase = 0;  // a tap's input is `input` of that phase
    for (size_t s = 0; s < p.taps; ++s) {
      sum = op::add(sum, V::load(p.fold + of_phase * phase + input * p.n + f));
      for (of_phase += apart; of_phase >= step; of_phase -= step) ++input;
    }
    target.put(f, sum);
  }
}

// T taps with a step of S: those that lie further on come from two vectors of their phase.
template <class V, template <class> class Op, int T, int S>
void pool_shifted(const pool_f32& p, const pool_target<V>& out) {
  constexpr int W = V::width, shifts = (T - 1) / S;
  static constexpr pool_numbers<V, S> numbers[] = {1, 2, 4, 8, 16};
  struct counted {
    int32_t lane[2 * W];
    constexpr counted() : lane() {
      for (int i = 0; i < 2 * W; ++i) lane[i] = i;
    }
  };
  static constexpr counted from;
  pool_phases_of<V, Op, S> phases(p, numbers);
  const pool_flat_target<V, Op> target(p, out);
  typename V::index shift[shifts + 1];
  QUERN_UNROLL for (int i = 0; i <= shifts; ++i) shift[i] = V::load_index(from.lane + static_cast<size_t>(i) * p.n);
  V now[S], next[S];
  phases.next(now);
  for (size_t f = 0; f < target.floats; f += W) {
    if constexpr (shifts > 0) phases.next(next);
    V sum = now[0];
    QUERN_UNROLL for (int s = 1; s < T; ++s) sum =
        Op<V>::add(sum, s < S ? now[s % S] : V::pick(now[s % S], next[s % S], shift[s / S]));
    target.put(f, sum);
    if constexpr (shifts > 0)
      QUERN_UNROLL for (int i = 0; i < S; ++i) now[i] = next[i];
    else if (f + W < target.floats)
      phases.next(now);
  }
}

template <class V, template <class> class Op>
[[gnu::noinline]] void pool_line(const pool_f32& p) {
  const pool_lines in = {p.src, p.line, p.lines, p.pixel};
  const pool_target<V> out(p);
  switch (p.way) {
    case pool_way::windows: pool_windows<V, Op>(p, in, out, 0, p.count); break;
    case pool_way::columns: pool_by_columns<V, Op>(p, in, out); break;
    case pool_way::pixels: pool_by_pixels<V, Op>(p, out); break;
    case pool_way::flat: pool_flat<V, Op>(p, out); break;
    case pool_way::shifted:
      for_few_taps(p, [&](auto taps, auto step) { pool_shifted<V, Op, taps.value, step.value>(p, out); });
      break;
  }
  out.finish(p);
}

template <class V>
void run_pool(const pool_f32& p) {
  if (p.largest)
    pool_line<V, pool_largest>(p);
  else
    pool_line<V, pool_sum>(p);
}

}  // namespace
}  // namespace quern
