// SPDX-License-Identifier: MIT
//
// Every gemm_f32 row that this CPU runs, alone: exact on small integers for every m, n and edge of k, taps
// anywhere, no byte read or written beside the operands; the order of the sum, bit by bit; every copy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "compare.h"
#include "fuzz.h"
#include "guard.h"
#include "kernel_test.h"
#include "tile_activation.h"

namespace quern {
namespace {

using test::edge;

constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
constexpr float canary = -77.25f;
constexpr size_t ks[] = {0, 1, 2, 3, 4, 5, 7, 8, 64, 257}, tap_counts[] = {0, 1, 2, 5}, most_taps = 5;

// Memory that is used up to its last float, or from its first.
class arena {
 public:
  arena(size_t most, edge side) : memory_(most, side), side_(side) {}
  float* take(size_t count, float value) const {
    EXPECT_LE(count, memory_.size());
    float* const at = side_ == edge::front ? memory_.begin() : memory_.end() - count;
    std::fill_n(at, count, value);
    return at;
  }
  // The floats of the other side that no tile has, next to the `count` in use.
  void mark(size_t count) const { std::fill_n(beside(count), room(count), canary); }
  bool marked(size_t count) const {
    return std::all_of(beside(count), beside(count) + room(count), [](float x) { return x == canary; });
  }

 private:
  size_t room(size_t count) const { return std::min<size_t>(64, memory_.size() - count); }
  float* beside(size_t count) const {
    return side_ == edge::front ? memory_.begin() + count : memory_.end() - count - room(count);
  }
  test::guarded<float> memory_;
  edge side_;
};

// What varies beside m, n, k and the taps.
struct variant {
  bool accumulate, rows, scale, bias;
  int epilogue;  // 0 none, 1 clamp only, 2 whole
  int32_t residual;
  size_t gap_a, gap_b, gap_c, gap_r, channel;
  size_t block, residual_block;  // 0: columns side by side
  bool stream;
};

// Where column j is, as the contract says.
size_t column(size_t j, size_t block, size_t next) { return block ? j / block * next + j % block : j; }

class tile_bench {
 public:
  tile_bench(const kernel& row, edge side, uint32_t seed)
      : row_(row),
        dice_(seed),
        a_(most_taps * (1 + size_t(row.mr) * (257 + 3)), side),
        b_(most_taps * (1 + 257 * (size_t(row.nr) + 3)), side),
        c_(size_t(row.mr + 1) * size_t(2 * row.nr + 6) + 64, side),
        residual_(size_t(row.mr + 1) * size_t(2 * row.nr + 6), side),
        scale_(size_t(row.nr) + 3, side),
        bias_(size_t(row.nr) + 3, side),
        slope_(size_t(row.nr) + 3, side) {}

  testing::AssertionResult check(size_t m, size_t n, size_t k, size_t taps) {
    const variant v = {.accumulate = dice_.one_in(2),
                       .rows = dice_.one_in(2),
                       .scale = dice_.one_in(2),
                       .bias = !dice_.one_in(3),
                       .epilogue = static_cast<int>(dice_.from(0, 2)),
                       .residual = static_cast<int32_t>(dice_.from(0, 2)),
                       .gap_a = gap(),
                       .gap_b = gap(),
                       .gap_c = gap(),
                       .gap_r = gap(),
                       .channel = gap(),
                       .block = block(),
                       .residual_block = block(),
                       .stream = dice_.one_in(3)};
    gemm_f32 g = {};
    g.m = m, g.n = n, g.k = k, g.taps = taps;
    g.lda = k + v.gap_a, g.ldb = n + v.gap_b;
    g.out.block = v.block, g.out.ldc = v.block ? v.block + v.gap_c : n + v.gap_c;
    g.out.residual_block = v.residual_block, g.out.ldr = (v.residual_block ? v.residual_block : n) + v.gap_r;
    g.out.stream = v.stream;
    if (v.stream && v.gap_c != 0)
      g.out.ldc = (g.out.ldc + vector() - 1) / vector() * vector();  // else rows may be unaligned
    g.out.next = v.block ? m * g.out.ldc : 0, g.out.residual_next = m * g.out.ldr + v.gap_r;
    gemm_tap tap[most_taps];
    place_taps(g, tap);
    g.tap = tap;

    const auto at = [&](size_t i, size_t j) { return i * g.out.ldc + column(j, g.out.block, g.out.next); };
    const auto add_at = [&](size_t i, size_t j) {
      return i * g.out.ldr + column(j, g.out.residual_block, g.out.residual_next);
    };
    // The last element is in the last row, of the last whole block or what follows it.
    const size_t whole = v.block && n >= v.block ? n / v.block * v.block : n;
    const size_t c_count = std::max(at(m - 1, whole - 1), at(m - 1, n - 1)) + 1,
                 channels = v.channel + (v.rows ? m : n);
    float* const c = g.out.c = c_.take(c_count, canary);
    c_.mark(c_count);
    std::vector<float> want(m * n, 0.0f);
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j < n; ++j) {
        c[at(i, j)] = v.accumulate ? dice_.integer(-8, 8) : nan;
        if (v.accumulate) want[i * n + j] = c[at(i, j)];
      }
    for (size_t t = 0; t < taps; ++t)
      for (size_t i = 0; i < m; ++i)
        for (size_t p = 0; p < k; ++p) {
          const float x = g.a[static_cast<size_t>(tap[t].a) + i * g.lda + p];
          const float* y = g.b + static_cast<size_t>(tap[t].b) + p * g.ldb;
          for (size_t j = 0; j < n; ++j) want[i * n + j] += x * y[j];
        }
    const epilogue_f32 e = epilogue(v, channels);
    g.accumulate = v.accumulate;
    g.out.epilogue = v.epilogue ? &e : nullptr;
    g.out.channels_are_rows = v.rows, g.out.channel = v.channel;
    if (v.epilogue == 2 && v.residual) {
      const size_t whole_r = v.residual_block && n >= v.residual_block ? n / v.residual_block * v.residual_block : n;
      g.out.residual = fill(residual_, std::max(add_at(m - 1, whole_r - 1), add_at(m - 1, n - 1)) + 1);
    }
    for (size_t i = 0; v.epilogue && i < m; ++i)
      for (size_t j = 0; j < n; ++j)
        want[i * n + j] = finish(want[i * n + j], e, v.channel + (v.rows ? i : j),
                                 g.out.residual ? g.out.residual[add_at(i, j)] : 0.0f);

    row_.gemm(g);
    const auto wrong = [&](const char* what, size_t i, size_t j) {
      return testing::AssertionFailure() << row_.name << " m " << m << " n " << n << " k " << k << " taps " << taps
                                         << " epilogue " << v.epilogue << (v.rows ? " rows" : " columns")
                                         << (v.stream ? " streamed" : "") << " block " << v.block << ": " << what
                                         << " at " << i << ", " << j;
    };
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j < n; ++j) {
        if (c[at(i, j)] != want[i * n + j])
          return wrong("C", i, j) << " is " << c[at(i, j)] << ", must be " << want[i * n + j];
        c[at(i, j)] = canary;
      }
    for (size_t i = 0; i < c_count; ++i)
      if (c[i] != canary) return wrong("memory between rows was written", i, 0);
    if (!c_.marked(c_count)) return wrong("memory beside C was written", 0, 0);
    return testing::AssertionSuccess();
  }

 private:
  size_t vector() const { return static_cast<size_t>(row_.vector); }
  size_t block() { return dice_.one_in(3) ? vector() * static_cast<size_t>(dice_.from(1, 2)) : 0; }
  size_t gap() { return static_cast<size_t>(dice_.from(0, 3)); }

  float* fill(const arena& memory, size_t count) {
    float* at = memory.take(count, nan);
    for (size_t i = 0; i < count; ++i) at[i] = dice_.integer(-3, 3);
    return at;
  }

  // Taps lie behind each other in any order, those of A in another than those of B.
  void place_taps(gemm_f32& g, gemm_tap* tap) {
    const size_t span_a = g.k ? (g.m - 1) * g.lda + g.k : 0, span_b = g.k ? (g.k - 1) * g.ldb + g.n : 0;
    float* const a = a_.take(g.taps * span_a, nan);
    float* const b = b_.take(g.taps * span_b, nan);
    size_t order_a[] = {0, 1, 2, 3, 4}, order_b[] = {0, 1, 2, 3, 4};
    std::shuffle(order_a, order_a + g.taps, dice_.engine());
    std::shuffle(order_b, order_b + g.taps, dice_.engine());
    for (size_t t = 0; t < g.taps; ++t) {
      tap[t] = {static_cast<ptrdiff_t>(order_a[t] * span_a), static_cast<ptrdiff_t>(order_b[t] * span_b)};
      for (size_t i = 0; i < g.m; ++i)
        for (size_t p = 0; p < g.k; ++p) a[order_a[t] * span_a + i * g.lda + p] = dice_.integer(-4, 4);
      for (size_t p = 0; p < g.k; ++p)
        for (size_t j = 0; j < g.n; ++j) b[order_b[t] * span_b + p * g.ldb + j] = dice_.integer(-4, 4);
    }
    g.a = a, g.b = b;
  }

  epilogue_f32 epilogue(const variant& v, size_t channels) {
    epilogue_f32 e = test::plain_epilogue(QUERN_IDENTITY, 0, 0);
    e.bias = v.bias ? fill(bias_, channels) : nullptr;
    e.lower = dice_.one_in(3) ? -infinity : -5, e.upper = dice_.one_in(2) ? infinity : 60;
    e.clamp_only = v.epilogue == 1;
    e.plain = e.clamp_only && !e.bias && e.lower == -infinity && e.upper == infinity;
    if (e.clamp_only) return e;
    e.scale = v.scale ? fill(scale_, channels) : nullptr;
    e.slope = fill(slope_, channels);
    e.residual = v.residual;
    e.activation = dice_.one_in(2) ? QUERN_PRELU : QUERN_RELU;
    e.alpha = 2, e.beta = -1;
    return e;
  }

  static float finish(float x, const epilogue_f32& e, size_t channel, float add) {
    const float bias = e.bias ? e.bias[channel] : 0.0f;
    if (e.clamp_only) return std::min(e.upper, std::max(e.lower, x + bias));
    x = e.alpha * (e.scale ? e.scale[channel] : 1.0f) * x + bias;
    if (e.residual == QUERN_RESIDUAL_BEFORE) x += e.beta * add;
    if (x < 0) x *= e.activation == QUERN_PRELU ? e.slope[channel] : 0.0f;
    if (e.residual == QUERN_RESIDUAL_AFTER) x += e.beta * add;
    return x;
  }

  const kernel& row_;
  test::dice dice_;
  arena a_, b_, c_, residual_, scale_, bias_, slope_;
};

class kernels : public test::kernel_test {
 protected:
  size_t mr() const { return static_cast<size_t>(row().mr); }
  size_t nr() const { return static_cast<size_t>(row().nr); }
};

TEST_P(kernels, are_exact_on_small_integers_between_guard_pages) {
  for (edge side : {edge::back, edge::front}) {
    tile_bench bench(row(), side, 1);
    for (size_t m = 1; m <= mr(); ++m)
      for (size_t n = 1; n <= nr(); ++n)
        for (size_t k : ks) {
          // Long sums of several taps differ from long sums of one only at the edges of the tile.
          const bool corner = (m == 1 || m == mr()) && (n == 1 || n == nr());
          for (size_t taps : tap_counts)
            if (k * taps <= 64 || corner || taps == 1 + (m + n) % 5) {
              ASSERT_TRUE(bench.check(m, n, k, taps));
            }
        }
  }
}

TEST_P(kernels, take_every_epilogue_on_the_whole_tile) {
  for (edge side : {edge::back, edge::front}) {
    tile_bench bench(row(), side, 2);
    for (int i = 0; i < 400; ++i) {
      ASSERT_TRUE(bench.check(mr(), nr(), 3, 2));
      ASSERT_TRUE(bench.check(mr(), nr() - 1, 3, 1));
    }
  }
}

// One chain of fused multiply-adds in the order of (tap, k), whether or not it pauses in C.
TEST_P(kernels, sum_in_the_order_of_the_contract) {
  test::dice d(3);
  const size_t k = 37;
  for (size_t n = 1; n <= nr(); ++n) {
    const size_t m = 1 + n % mr();
    std::vector<float> a(2 * m * k), b(2 * k * n), c(m * n, nan);
    for (float& x : a) x = d.uniform(-1, 1);
    for (float& x : b) x = d.uniform(-1, 1);
    const gemm_tap tap[] = {{static_cast<ptrdiff_t>(m * k), static_cast<ptrdiff_t>(k * n)}, {0, 0}};
    gemm_f32 g = {};
    g.m = m, g.n = n, g.k = k, g.taps = 2, g.tap = tap;
    g.a = a.data(), g.lda = k, g.b = b.data(), g.ldb = n, g.out.c = c.data(), g.out.ldc = n;
    row().gemm(g);
    std::vector<float> once = c;
    g.taps = 1;
    row().gemm(g);
    g.tap = tap + 1, g.accumulate = true;
    row().gemm(g);
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j < n; ++j) {
        float sum = 0;
        for (const gemm_tap& t : tap)
          for (size_t p = 0; p < k; ++p)
            sum = std::fma(a[static_cast<size_t>(t.a) + i * k + p], b[static_cast<size_t>(t.b) + p * n + j], sum);
        ASSERT_PRED2(test::same_bits, once[i * n + j], sum) << m << " x " << n << " at " << i << ", " << j;
        ASSERT_PRED2(test::same_bits, c[i * n + j], sum) << m << " x " << n << " at " << i << ", " << j;
      }
  }
}

// A call for several tiles, below or beside each other, is as many calls for one, gaps and all.
TEST_P(kernels, take_tiles_behind_each_other) {
  test::dice d(5);
  for (int round = 0; round < 300; ++round) {
    const auto from = [&](size_t least, size_t most) { return size_t(d.from(int64_t(least), int64_t(most))); };
    const bool whole = d.one_in(2), below = d.one_in(2), rows = d.one_in(2);
    const size_t m = whole ? mr() : from(1, mr()), n = whole ? nr() : from(1, nr()), k = from(0, 9), tiles = from(2, 4);
    const size_t high = below ? tiles * m : m, wide = below ? n : tiles * n, channels = rows ? high : wide;
    const size_t lda = k + from(0, 2), ldc = wide + from(0, 2), ldr = wide + from(0, 2);
    const auto numbers = [&](size_t count) {
      std::vector<float> x(count);
      for (float& one : x) one = d.uniform(-1, 1);
      return x;
    };
    const std::vector<float> a = numbers(high * lda), b = numbers(k * wide), residual = numbers(high * ldr),
                             bias = numbers(channels), slope = numbers(channels);
    epilogue_f32 e = test::plain_epilogue(QUERN_PRELU, 0, 0);
    e.clamp_only = d.one_in(2);
    e.lower = d.one_in(2) ? -infinity : 0, e.upper = d.one_in(2) ? infinity : 0.5f;
    e.bias = d.one_in(2) ? bias.data() : nullptr, e.slope = slope.data();
    e.plain = e.clamp_only && !e.bias && e.lower == -infinity && e.upper == infinity;
    e.residual = e.clamp_only ? QUERN_RESIDUAL_NONE : QUERN_RESIDUAL_AFTER;
    const gemm_tap tap = {0, 0};
    gemm_f32 g = {};
    g.m = m, g.n = n, g.k = k, g.taps = 1, g.tap = &tap;
    g.a = a.data(), g.lda = lda, g.b = b.data(), g.ldb = n;
    g.accumulate = d.one_in(2), g.near = d.one_in(2), g.apart = d.one_in(2);
    if (d.one_in(2)) g.ahead = b.data(), g.pace = 16;
    g.out.epilogue = d.one_in(4) ? nullptr : &e, g.out.channels_are_rows = rows;
    g.out.ldc = ldc, g.out.residual = e.residual ? residual.data() : nullptr, g.out.ldr = ldr;
    if (below)
      g.step = {.a = ptrdiff_t(m * lda), .c = ptrdiff_t(m * ldc), .residual = ptrdiff_t(m * ldr)};
    else
      g.step = {.b = ptrdiff_t(k * n), .c = ptrdiff_t(n), .residual = ptrdiff_t(n)};
    g.step.channel = rows == below ? ptrdiff_t(rows ? m : n) : 0;

    const std::vector<float> before = numbers(high * ldc);
    std::vector<float> want = before, c = before;
    gemm_f32 one = g;
    for (size_t i = 0; i < tiles; ++i) {
      const auto at = ptrdiff_t(i);
      one.a = g.a + at * g.step.a, one.b = g.b + at * g.step.b, one.out.c = want.data() + at * g.step.c;
      if (g.out.residual) one.out.residual = g.out.residual + at * g.step.residual;
      one.out.channel = size_t(at * g.step.channel);
      row().gemm(one);
    }
    g.out.c = c.data(), g.more = tiles - 1;
    row().gemm(g);
    for (size_t i = 0; i < c.size(); ++i)
      ASSERT_PRED2(test::same_bits, c[i], want[i]) << tiles << " of " << m << " x " << n << " x " << k << " at " << i;
  }
}

// Strides of src from row to row and from column to column, for `rows` x `cols`.
struct copy_way {
  const char* name;
  size_t (*row)(size_t rows, size_t cols);
  size_t (*col)(size_t rows, size_t cols);
};
constexpr copy_way copy_ways[] = {
    {"straight", [](size_t, size_t cols) { return cols + 2; }, [](size_t, size_t) { return size_t{1}; }},
    {"packed", [](size_t, size_t cols) { return cols; }, [](size_t, size_t) { return size_t{1}; }},
    {"overlapping", [](size_t, size_t) { return size_t{1}; }, [](size_t, size_t) { return size_t{1}; }},
    {"transposed", [](size_t, size_t) { return size_t{1}; }, [](size_t rows, size_t) { return rows + 1; }},
    {"transposed, packed", [](size_t, size_t) { return size_t{1}; }, [](size_t rows, size_t) { return rows; }},
    {"every second", [](size_t, size_t cols) { return 2 * cols + 1; }, [](size_t, size_t) { return size_t{2}; }},
    {"every third", [](size_t, size_t cols) { return 3 * cols; }, [](size_t, size_t) { return size_t{3}; }},
    {"repeated", [](size_t, size_t) { return size_t{0}; }, [](size_t, size_t) { return size_t{5}; }},
};

TEST_P(kernels, copy_every_block_between_guard_pages) {
  test::dice d(4);
  constexpr size_t most = 41 * 130;
  for (edge side : {edge::back, edge::front}) {
    const arena src(most, side), dst(41 * 43 + 64, side);
    for (const copy_way& way : copy_ways)
      for (size_t rows = 0; rows <= 40; ++rows)
        for (size_t cols = 0; cols <= 40; ++cols) {
          const size_t src_row = way.row(rows, cols), src_col = way.col(rows, cols), dst_row = cols + (rows + cols) % 3;
          const bool none = rows == 0 || cols == 0;
          const size_t times = d.one_in(2) ? 1 : static_cast<size_t>(d.from(2, 20)), skip = d.from(0, times - 1);
          const size_t columns = (cols + skip + times - 1) / times;
          const size_t src_count = none ? 0 : (rows - 1) * src_row + (columns - 1) * src_col + 1;
          const size_t dst_count = none ? 0 : (rows - 1) * dst_row + cols;
          float* from = src.take(src_count, 0);
          for (size_t i = 0; i < src_count; ++i) from[i] = static_cast<float>(i);
          float* to = dst.take(dst_count, canary);
          dst.mark(dst_count);
          row().copy({rows, cols, from, src_row, src_col, to, dst_row, times, skip});
          for (size_t i = 0; i < rows; ++i)
            for (size_t j = 0; j < dst_row && i * dst_row + j < dst_count; ++j)
              ASSERT_EQ(to[i * dst_row + j],
                        j < cols ? static_cast<float>(i * src_row + (j + skip) / times * src_col) : canary)
                  << way.name << " " << rows << " x " << cols << " at " << i << ", " << j << ", " << times << " times";
          ASSERT_TRUE(dst.marked(dst_count)) << way.name << " " << rows << " x " << cols;
        }
  }
}

// A build of the reference alone has none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(kernels);
INSTANTIATE_TEST_SUITE_P(rows, kernels, testing::ValuesIn(test::rows_of(kind::gemm_f32)), test::name_of_row);

}  // namespace
}  // namespace quern
