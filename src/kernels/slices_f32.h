// SPDX-License-Identifier: MIT
//
// Reductions of pieces of slices, once, over a vector type; the contract is slices_f32 in kernel.h.
//
// Memory, or the loads of L1, are the limit: of many columns eight rows are read side by side, and what they fold to
// goes through L1 once; of a row there are lanes enough to hide what an addition takes.
#pragma once

#include <type_traits>

#include "activation.h"
#include "each_number.h"
#include "kernel.h"

namespace quern {
namespace {

inline constexpr float most_of_all = 0x1.fffffep+127f;

// e^x for x <= 0, -infinity included.  Denormal results are rounded once.
template <class V>
QUERN_INLINE V exponential(V x) {
  const power<V> p = power_of_e(V::max(V::set1(-110.0f), x));
  return scale(V::set1(1.0f) + p.t, p.n);
}

// Two vectors at once, or two of these: what depends on each other in one is hidden by the others, of which a core sees
// too few where they follow one after the other.
template <class V>
struct twin {
  V a, b;

  QUERN_INLINE static twin set1(float x) { return {V::set1(x), V::set1(x)}; }
  QUERN_INLINE friend twin operator+(twin x, twin y) { return {x.a + y.a, x.b + y.b}; }
  QUERN_INLINE friend twin operator-(twin x, twin y) { return {x.a - y.a, x.b - y.b}; }
  QUERN_INLINE friend twin operator*(twin x, twin y) { return {x.a * y.a, x.b * y.b}; }
  QUERN_INLINE static twin fma(twin x, twin y, twin z) { return {V::fma(x.a, y.a, z.a), V::fma(x.b, y.b, z.b)}; }
  QUERN_INLINE static twin fnma(twin x, twin y, twin z) { return {V::fnma(x.a, y.a, z.a), V::fnma(x.b, y.b, z.b)}; }
  QUERN_INLINE static twin max(twin x, twin y) { return {V::max(x.a, y.a), V::max(x.b, y.b)}; }
  QUERN_INLINE friend twin scale(twin y, twin n) { return {scale(y.a, n.a), scale(y.b, n.b)}; }
};

// x[i] = e^(x[i] - about)
template <class V>
QUERN_INLINE void exponentials4(V* x, V about) {
  using four = twin<twin<V>>;
  const four y = exponential(four{{x[0] - about, x[1] - about}, {x[2] - about, x[3] - about}});
  x[0] = y.a.a, x[1] = y.a.b, x[2] = y.b.a, x[3] = y.b.b;
}

// What becomes of an element, and of two results; of nothing.
template <class V, fold_of WHAT>
struct folding {
  static constexpr int results = WHAT == fold_of::deviations || WHAT == fold_of::sample ? 2 : 1;
  static constexpr bool from = WHAT == fold_of::deviations || WHAT == fold_of::exponentials;
  static constexpr bool adds = WHAT != fold_of::largest && WHAT != fold_of::smallest && WHAT != fold_of::peak;
  static constexpr float nothing = WHAT == fold_of::largest    ? -__builtin_inff()
                                   : WHAT == fold_of::smallest ? __builtin_inff()
                                   : WHAT == fold_of::peak     ? -most_of_all
                                                               : 0.0f;
  QUERN_INLINE static V value(V x, V about) {
    switch (WHAT) {
      case fold_of::magnitudes: return magnitude(x);
      case fold_of::squares: return x * x;
      case fold_of::deviations: return x - about;
      case fold_of::exponentials: return exponential(x - about);
      default: return x;
    }
  }
  // The second result with one more value.
  QUERN_INLINE static V also(V sum, V value) {
    return WHAT == fold_of::sample ? sum + magnitude(value) : V::fma(value, value, sum);
  }
  QUERN_INLINE static V joined(V a, V b) {
    switch (WHAT) {
      case fold_of::largest: return kept(a, V::max(a, b));
      case fold_of::smallest: return kept(a, V::min(a, b));
      case fold_of::peak: return V::max(b, a);
      default: return a + b;
    }
  }
  // A NaN in b is in the result already.
  QUERN_INLINE static V kept(V a, V result) { return V::select(a == a, result, a); }
};

// Lane i + 8, 4, 2, 1 for lane i.
alignas(64) inline constexpr int32_t lanes_on[4][16] = {{8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7},
                                                        {4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3},
                                                        {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1},
                                                        {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0}};
alignas(64) inline constexpr float lane_numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// All lanes into lane 0 of the first vector.
template <class V, class F, int L>
QUERN_INLINE V joined_lanes(V* lanes) {
  if constexpr (L > 1) {
    QUERN_UNROLL for (int l = 0; l < L / 2; ++l) lanes[l] = F::joined(lanes[l], lanes[l + L / 2]);
    return joined_lanes<V, F, L / 2>(lanes);
  }
  V x = lanes[0];
  each_number<0, 4>([&]<int i>() {
    if constexpr ((8 >> i) < V::width) x = F::joined(x, V::permute(x, V::load_index(lanes_on[i])));
  });
  return x;
}

template <class V, fold_of WHAT>
void fold_along(const slices_fold_f32& f) {
  using F = folding<V, WHAT>;
  constexpr bool twice = F::results == 2;
  constexpr int L = (twice ? 32 : 64) / V::width;
  constexpr int G = L < 4 ? L : 4;
  constexpr size_t chunk = L * V::width;
  const V numbers = V::load(lane_numbers), nothing = V::set1(F::nothing);
  const size_t n = f.n, whole = n / chunk * chunk;
  for (size_t s = 0; s < f.count; ++s) {
    const float* row = f.src + ptrdiff_t(s) * f.step;
    float* keep = f.keep ? f.keep + ptrdiff_t(s) * f.keep_step : nullptr;
    const V about = F::from ? V::set1(f.from[s]) : nothing;
    V acc[L], also[twice ? L : 1];
    QUERN_UNROLL for (V& x : acc) x = nothing;
    QUERN_UNROLL for (V& x : also) x = nothing;
    const auto add = [&](int l, V x) {
      acc[l] = F::joined(acc[l], x);
      if constexpr (twice) also[l] = F::also(also[l], x);
    };
    for (size_t i = 0; i < f.m; ++i, row += f.row) {
      size_t j = 0;
      for (; j < whole; j += chunk)
        each_number<0, L / G>([&]<int g>() {
          const size_t at = j + size_t(g) * G * V::width;
          V x[G];
          QUERN_UNROLL for (int l = 0; l < G; ++l) x[l] = V::load(row + at + size_t(l) * V::width);
          if constexpr (WHAT == fold_of::exponentials) {
            exponentials4(x, about);
            if (keep) QUERN_UNROLL for (int l = 0; l < G; ++l) x[l].store(keep + at + size_t(l) * V::width);
          } else {
            QUERN_UNROLL for (V& v : x) v = F::value(v, about);
          }
          QUERN_UNROLL for (int l = 0; l < G; ++l) add(g * G + l, x[l]);
        });
      if (j < n)
        each_number<0, L>([&]<int l>() {
          const size_t at = j + size_t(l) * V::width;
          if (at + V::width <= n) {
            const V x = F::value(V::load(row + at), about);
            if constexpr (WHAT == fold_of::exponentials)
              if (keep) x.store(keep + at);
            add(l, x);
          } else if (at < n) {
            const size_t rest = n - at;
            const V x = F::value(V::load_part(row + at, rest), about);
            if constexpr (WHAT == fold_of::exponentials)
              if (keep) x.store_part(keep + at, rest);
            add(l, V::select(numbers < V::set1(static_cast<float>(rest)), x, nothing));
          }
        });
      if (keep) keep += n;
    }
    joined_lanes<V, F, L>(acc).store_part(f.to + s, 1);
    if constexpr (twice) joined_lanes<V, F, L>(also).store_part(f.also + s, 1);
  }
}

template <class V>
struct column_sums {
  V x, square;
};

// ROWS rows from row i on of a vector of columns, as a tree.
template <class V, fold_of WHAT, int ROWS, class Load>
QUERN_INLINE column_sums<V> rows_down(const slices_fold_f32& f, const float* row, size_t i, size_t j, V about,
                                      const Load& load) {
  using F = folding<V, WHAT>;
  const auto keep = [&](V x, size_t r) {
    if (!f.keep) return;
    float* const to = f.keep + (i + r) * f.n + j;
    f.n - j >= V::width ? x.store(to) : x.store_part(to, f.n - j);
  };
  if constexpr (WHAT == fold_of::exponentials && ROWS == 4) {
    V x[4];
    QUERN_UNROLL for (int r = 0; r < 4; ++r) x[r] = load(row + r * f.row + j);
    exponentials4(x, about);
    QUERN_UNROLL for (int r = 0; r < 4; ++r) keep(x[r], size_t(r));
    const V sum = (x[0] + x[1]) + (x[2] + x[3]);
    return {sum, sum};
  } else if constexpr (ROWS == 1) {
    const V x = F::value(load(row + j), about);
    if constexpr (WHAT == fold_of::exponentials) keep(x, 0);
    if constexpr (F::results == 2) return {x, F::also(V::set1(F::nothing), x)};
    return {x, x};
  } else {
    const column_sums<V> a = rows_down<V, WHAT, ROWS / 2>(f, row, i, j, about, load),
                         b = rows_down<V, WHAT, ROWS / 2>(f, row + ROWS / 2 * f.row, i + ROWS / 2, j, about, load);
    return {F::joined(a.x, b.x), a.square + b.square};
  }
}

// Rows that are one tree.
template <fold_of WHAT>
constexpr int tree_rows = WHAT == fold_of::exponentials ? 4 : 8;

template <class V, fold_of WHAT>
void fold_down(const slices_fold_f32& f) {
  using F = folding<V, WHAT>;
  const V nothing = V::set1(F::nothing);
  float *const to = f.to, *const also = f.also;  // a store of a vector may be of anything, to a compiler
  const float* const from = f.from;
  const size_t n = f.n;
  for (size_t j = 0; j < n; j += V::width) {
    nothing.store(to + j);
    if constexpr (F::results == 2) nothing.store(also + j);
  }
  const auto columns = [&](auto step, const float* row, size_t i, size_t j, const auto& load) {
    const V about = F::from ? V::load(from + j) : nothing;
    const column_sums<V> sum = rows_down<V, WHAT, step.value>(f, row, i, j, about, load);
    F::joined(V::load(to + j), sum.x).store(to + j);
    if constexpr (F::results == 2) (V::load(also + j) + sum.square).store(also + j);
  };
  const auto rows = [&](auto step, const float* row, size_t i) {
    size_t j = 0;
    for (; j + V::width <= n; j += V::width) columns(step, row, i, j, [](const float* p) { return V::load(p); });
    const size_t rest = n - j;
    if (rest) columns(step, row, i, j, [rest](const float* p) { return V::load_part(p, rest); });
  };
  const float* row = f.src;
  size_t i = 0;
  constexpr int tree = tree_rows<WHAT>;
  for (; i + tree <= f.m; i += tree, row += tree * f.row) rows(std::integral_constant<int, tree>(), row, i);
  for (; i < f.m; ++i, row += f.row) rows(std::integral_constant<int, 1>(), row, i);
}

template <class V, fold_of WHAT>
void fold_one(const slices_fold_f32& f) {
  f.down ? fold_down<V, WHAT>(f) : fold_along<V, WHAT>(f);
}

template <class V>
void fold_slices(const slices_fold_f32& f) {
  switch (f.what) {
    case fold_of::sum: return fold_one<V, fold_of::sum>(f);
    case fold_of::magnitudes: return fold_one<V, fold_of::magnitudes>(f);
    case fold_of::squares: return fold_one<V, fold_of::squares>(f);
    case fold_of::sample: return fold_one<V, fold_of::sample>(f);
    case fold_of::deviations: return fold_one<V, fold_of::deviations>(f);
    case fold_of::largest: return fold_one<V, fold_of::largest>(f);
    case fold_of::smallest: return fold_one<V, fold_of::smallest>(f);
    case fold_of::peak: return fold_one<V, fold_of::peak>(f);
    case fold_of::exponentials: return fold_one<V, fold_of::exponentials>(f);
  }
}

}  // namespace
}  // namespace quern
