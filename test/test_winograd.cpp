// SPDX-License-Identifier: MIT
//
// Winograd: the matrices in exact arithmetic, every transform of the table against them, the algorithms against
// the reference between guard pages, the error that they state, their class, and what NaN and infinity do.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "errors.h"
#include "fuzz.h"
#include "kernel_test.h"
#include "shapes.h"
#include "tile_activation.h"
#include "winograd_points.h"

namespace quern::test {
namespace {

// ---- The matrices -----------------------------------------------------------------------------------------

// (p + r sqrt 2) / q
struct exact {
  int64_t p = 0, r = 0, q = 1;

  exact(int64_t p_ = 0, int64_t r_ = 0, int64_t q_ = 1) : p(p_), r(r_), q(q_) {
    const int64_t d = std::gcd(std::gcd(p, r), q) * (q < 0 ? -1 : 1);
    if (d) p /= d, r /= d, q /= d;
  }
  friend exact operator+(exact a, exact b) { return {a.p * b.q + b.p * a.q, a.r * b.q + b.r * a.q, a.q * b.q}; }
  friend exact operator-(exact a, exact b) { return a + exact(-1) * b; }
  friend exact operator*(exact a, exact b) { return {a.p * b.p + 2 * a.r * b.r, a.p * b.r + a.r * b.p, a.q * b.q}; }
  friend exact operator/(exact a, exact b) { return a * exact(b.p * b.q, -b.r * b.q, b.p * b.p - 2 * b.r * b.r); }
  bool operator==(const exact&) const = default;
  double value() const { return (double(p) + double(r) * std::sqrt(2.0)) / double(q); }
};

struct exact_matrices {
  int m, r, a;
  exact g[most_points][most_taps], at[most_points][most_points], bt[most_points][most_points];

  exact_matrices(int m_, int r_) : m(m_), r(r_), a(m + r - 1) {
    const std::vector<exact> integers = {0, 1, -1}, roots = {0, {0, 1, 2}, {0, -1, 2}, {0, 1}, {0, -1}},
                             halves = {0, 1, -1, 2, -2, {1, 0, 2}, {-1, 0, 2}};
    const std::vector<exact>& point = a <= 4 ? integers : a <= 6 ? roots : halves;
    const int finite = int(point.size());
    for (int i = 0; i < a; ++i) {
      const bool infinite = i == finite;
      std::vector<exact> poly = {1};
      exact scale = 1;
      for (int j = 0; j < finite; ++j) {
        if (j == i) continue;
        poly.insert(poly.begin(), 0);
        for (size_t k = 0; k + 1 < poly.size(); ++k) poly[k] = poly[k] - point[size_t(j)] * poly[k + 1];
        if (!infinite) scale = scale * (point[size_t(i)] - point[size_t(j)]);
      }
      const exact sign = i == 0 && scale.value() < 0 ? -1 : 1;
      for (size_t k = 0; k < poly.size(); ++k) bt[i][k] = sign * poly[k];
      exact power = 1;
      for (int k = 0; k < std::max(m, r); ++k) {
        if (k < r) g[i][k] = infinite ? exact(k == r - 1) : sign * power / scale;
        if (k < m) at[k][i] = infinite ? exact(k == m - 1) : power;
        if (!infinite) power = power * point[size_t(i)];
      }
    }
  }
};

// Output y of the form, from inputs d and a filter g, is the sum of d[y + k] g[k]: for all of both, exactly.
TEST(winograd, the_matrices_are_a_convolution_in_exact_arithmetic) {
  for (const kernel* row : rows_of(kind::winograd_f32)) {
    const exact_matrices e(row->nr, row->taps);
    const winograd_matrices w(row->nr, row->taps);
    for (int y = 0; y < e.m; ++y)
      for (int k = 0; k < e.r; ++k)
        for (int x = 0; x < e.a; ++x) {
          exact sum = 0;
          for (int i = 0; i < e.a; ++i) sum = sum + e.at[y][i] * e.g[i][k] * e.bt[i][x];
          ASSERT_TRUE(sum == exact(x == y + k)) << row->name << " " << y << " " << k << " " << x;
        }
    for (int i = 0; i < e.a; ++i) {
      for (int k = 0; k < e.r; ++k) EXPECT_NEAR(w.g[i][k], e.g[i][k].value(), 1e-15) << row->name;
      for (int k = 0; k < e.m; ++k) EXPECT_NEAR(w.at[k][i], e.at[k][i].value(), 4e-15) << row->name;
      for (int k = 0; k < e.a; ++k) EXPECT_NEAR(w.bt[i][k], e.bt[i][k].value(), 4e-15) << row->name;
    }
  }
}

// Inputs from the n-th on, as a tile of n points has them.
template <class T, class Coefficient>
void extend(int a, int n, T* d, Coefficient coefficient) {
  for (int s = n; s < a; ++s) {
    d[s] = 0;
    for (int k = 0; k < n; ++k) d[s] = d[s] - coefficient(recurrence(a, n).at[k]) * d[s - n + k];
  }
}

// Fewer outputs from fewer points, with the same matrices: exactly, and what is left out would have been zero.
TEST(winograd, fewer_points_suffice_for_fewer_outputs_in_exact_arithmetic) {
  for (const kernel* row : rows_of(kind::winograd_f32)) {
    const exact_matrices e(row->nr, row->taps);
    for (int outputs = 1; outputs < e.m; ++outputs) {
      const int n = points_for(e.a, outputs + e.r - 1);
      ASSERT_GE(n, outputs + e.r - 1);
      int kept = 0;
      for (int i = 0; i < e.a; ++i) kept += is_kept(e.a, n, i);
      EXPECT_EQ(kept, n) << row->name;
      for (int x = 0; x < n; ++x) {
        exact d[most_points], v[most_points];
        d[x] = 1;
        extend(e.a, n, d, [](double c) { return exact(int64_t(c * 16), 0, 16); });
        for (int i = 0; i < e.a; ++i) {
          for (int k = 0; k < e.a; ++k) v[i] = v[i] + e.bt[i][k] * d[k];
          const bool infinite = e.a % 2 == 0 && i == e.a - 1;
          EXPECT_TRUE(is_kept(e.a, n, i) || infinite || v[i] == exact(0)) << row->name << " " << n << " " << i;
        }
        for (int y = 0; y < outputs; ++y)
          for (int k = 0; k < e.r; ++k) {
            exact sum = 0;
            for (int i = 0; i < e.a; ++i)
              if (is_kept(e.a, n, i)) sum = sum + e.at[y][i] * e.g[i][k] * v[i];
            ASSERT_TRUE(sum == exact(x == y + k)) << row->name << " outputs " << outputs << ": " << y << " " << k;
          }
      }
    }
  }
}

// ---- The transforms alone ---------------------------------------------------------------------------------

class winograd_rows : public kernel_test {
 protected:
  std::vector<size_t> channels() const {
    const size_t w = static_cast<size_t>(row().vector);
    return {1, w - 1, w, w + 1, 2 * w + 3};
  }
  dice dice_{1};
};

TEST_P(winograd_rows, input_is_bt_d_b_between_guard_pages) {
  const winograd_matrices wy(row().mr, row().taps), w(row().nr, row().taps);
  const size_t width = static_cast<size_t>(row().vector);
  for (const bool square : {false, true})
    for (const size_t n : channels())
      for (int round = 0; round < 20; ++round) {
        const int ay = square ? wy.a : 1, ax = w.a;
        const edge side = round % 2 ? edge::front : edge::back;
        // From the twelfth round on, fewer points.
        const auto points = [&](int a) { return round < 12 || a == 1 ? a : points_for(a, int(dice_.from(w.r, a))); };
        const int py = points(ay), px = points(ax);
        // The rows and columns on the image, in memory that holds no other; sometimes none.
        const int64_t y0 = round < 4 ? 0 : dice_.from(0, py - 1), y1 = round < 4 ? ay : dice_.from(y0, py);
        const int64_t x0 = round < 4 ? 0 : dice_.from(0, px - 1), x1 = round < 4 ? ax : dice_.from(x0, px);
        const int64_t column = static_cast<int64_t>(n) + dice_.from(0, 2), line = column * ax + dice_.from(0, 3);
        const int64_t size = y1 > y0 && x1 > x0 ? (y1 - y0 - 1) * line + (x1 - x0 - 1) * column + int64_t(n) : 0;
        guarded<float> src(static_cast<size_t>(size), side);
        for (float& x : src) x = dice_.uniform(-1, 1);
        src.protect();
        const size_t whole = (n + width - 1) / width * width, matrix = whole + 16;
        guarded<float> v(static_cast<size_t>(ay * ax - 1) * matrix + whole, side);
        winograd_input_f32 call = {};
        call.n = n;
        for (int64_t y = y0; y < y1; ++y) call.rows |= 1u << y;
        for (int64_t x = x0; x < x1; ++x) call.columns |= 1u << x;
        call.points[0] = py, call.points[1] = px;
        call.src = src.data(), call.origin = -y0 * line - x0 * column, call.row = line, call.column = column;
        call.v = v.data(), call.matrix = matrix;
        row().winograd_input[square](call);
        for (size_t c = 0; c < whole; ++c) {
          // The tile's pixels, and those that follow from them; what those are made of.
          double d[most_points][most_points] = {}, made[most_points][most_points] = {};
          for (int64_t y = y0; y < y1 && c < n; ++y)
            for (int64_t x = x0; x < x1; ++x) {
              d[y][x] = double(src[static_cast<size_t>((y - y0) * line + (x - x0) * column) + c]);
              made[y][x] = std::fabs(d[y][x]);
            }
          const auto plain = [](double x) { return x; };
          const auto sized = [](double x) { return -std::fabs(x); };
          for (int x = 0; x < px; ++x) {
            double down[most_points], all[most_points];
            for (int y = 0; y < py; ++y) down[y] = d[y][x], all[y] = made[y][x];
            extend(ay, py, down, plain), extend(ay, py, all, sized);
            for (int y = 0; y < ay; ++y) d[y][x] = down[y], made[y][x] = all[y];
          }
          for (int y = 0; y < ay; ++y) extend(ax, px, d[y], plain), extend(ax, px, made[y], sized);
          for (int i = 0; i < ay; ++i)
            for (int j = 0; j < ax; ++j) {
              double want = 0, magnitude = 0;
              for (int y = 0; y < ay; ++y)
                for (int x = 0; x < ax; ++x) {
                  const double factor = (square ? wy.bt[i][y] : 1) * w.bt[j][x];
                  want += factor * d[y][x], magnitude += std::fabs(factor) * made[y][x];
                }
              if (!is_kept(ay, py, i) || !is_kept(ax, px, j)) continue;
              ASSERT_NEAR(v[static_cast<size_t>(i * ax + j) * matrix + c], want, 12 * 0x1p-24 * magnitude)
                  << row().name << " square " << square << " n " << n << " points " << py << " " << px << ": " << i
                  << " " << j << " channel " << c;
            }
        }
        ASSERT_TRUE(v.intact());
      }
}

TEST_P(winograd_rows, output_is_at_m_a_between_guard_pages) {
  const winograd_matrices wy(row().mr, row().taps), w(row().nr, row().taps);
  const size_t width = static_cast<size_t>(row().vector);
  for (const bool square : {false, true})
    for (const size_t n : channels())
      for (int round = 0; round < 12; ++round) {
        const int ay = square ? wy.a : 1, ax = w.a;
        const edge side = round % 2 ? edge::front : edge::back;
        const size_t whole = (n + width - 1) / width * width, matrix = whole + 16;
        guarded<float> m(static_cast<size_t>(ay * ax - 1) * matrix + whole, side);
        for (float& x : m) x = dice_.uniform(-1, 1);
        m.protect();
        winograd_output_f32 call = {};
        call.n = n, call.m = m.data(), call.matrix = matrix;
        call.rows = static_cast<size_t>(square ? dice_.from(1, wy.m) : 1);
        call.columns = static_cast<size_t>(dice_.from(1, w.m));
        const size_t pixel = n + static_cast<size_t>(dice_.from(0, 2));
        call.out.ldc = call.out.ldr = pixel;
        call.dst_row = call.residual_row = pixel * call.columns + static_cast<size_t>(dice_.from(0, 2));
        const size_t size = (call.rows - 1) * call.dst_row + (call.columns - 1) * pixel + n;
        guarded<float> dst(size, side), residual(size, side), bias(n + 2, side);
        constexpr float canary = -77.25f;
        std::fill(dst.begin(), dst.end(), canary);
        for (float& x : residual) x = dice_.uniform(-1, 1);
        for (float& x : bias) x = dice_.uniform(-1, 1);
        epilogue_f32 e = plain_epilogue(QUERN_RELU, 0, 0);
        e.bias = bias.data();
        e.clamp_only = round % 3 != 0;
        e.lower = 0, e.upper = std::numeric_limits<float>::infinity();
        if (!e.clamp_only) e.residual = QUERN_RESIDUAL_BEFORE;
        call.out.epilogue = &e, call.out.channel = 2;
        call.out.c = dst.data(), call.out.residual = e.residual ? residual.data() : nullptr;
        row().winograd_output[square](call);
        for (size_t at = 0; at < size; ++at) {
          const size_t y = at / call.dst_row, x = at % call.dst_row / pixel, c = at % call.dst_row % pixel;
          double want = canary, magnitude = 0;
          if (x < call.columns && c < n) {
            want = bias[2 + c] + (e.residual ? residual[at] : 0);
            magnitude = 2;
            for (int i = 0; i < ay; ++i)
              for (int j = 0; j < ax; ++j) {
                const double term =
                    (square ? wy.at[y][i] : 1) * w.at[x][j] * double(m[static_cast<size_t>(i * ax + j) * matrix + c]);
                want += term, magnitude += std::fabs(term);
              }
            want = std::max(want, 0.0);
          }
          ASSERT_NEAR(dst[at], want, 12 * 0x1p-24 * magnitude)
              << row().name << " square " << square << " n " << n << ": " << y << " " << x << " " << c;
        }
        ASSERT_TRUE(dst.intact());
      }
}

TEST_P(winograd_rows, take_tiles_behind_each_other) {
  const winograd_matrices wy(row().mr, row().taps), w(row().nr, row().taps);
  const auto numbers = [&](size_t count) {
    std::vector<float> x(count);
    for (float& one : x) one = dice_.uniform(-1, 1);
    return x;
  };
  for (const bool square : {false, true})
    for (const size_t n : channels())
      for (int round = 0; round < 8; ++round) {
        const int ay = square ? wy.a : 1;
        const size_t tiles = size_t(dice_.from(2, 4)), points = size_t(ay * w.a), v_tile = n + 16 - n % 16;
        const size_t pixel = n + size_t(dice_.from(0, 2)), step = size_t(w.m) * pixel;
        const size_t high = square ? size_t(wy.m) : 1, line = tiles * step + size_t(dice_.from(0, 3));
        const auto mask = [&](int a) { return round % 2 ? (1u << a) - 1 : uint32_t(dice_.from(0, (1 << a) - 1)); };
        const std::vector<float> src = numbers(size_t(ay) * (line + size_t(w.r) * pixel));
        winograd_input_f32 in = {};
        in.n = n, in.rows = mask(ay), in.columns = mask(w.a), in.points[0] = ay, in.points[1] = w.a;
        in.src = src.data(), in.row = ptrdiff_t(line), in.column = ptrdiff_t(pixel), in.matrix = tiles * v_tile;
        in.step = {.src = ptrdiff_t(step), .v = ptrdiff_t(v_tile)};
        std::vector<float> v = numbers(points * tiles * v_tile), same_v = v;
        for (size_t i = 0; i < tiles; ++i) {
          winograd_input_f32 one = in;
          one.origin = ptrdiff_t(i * step), one.v = v.data() + i * v_tile;
          row().winograd_input[square](one);
        }
        in.v = same_v.data(), in.more = tiles - 1;
        row().winograd_input[square](in);
        ASSERT_EQ(memcmp(v.data(), same_v.data(), v.size() * sizeof(float)), 0) << tiles << " inputs of " << n;

        const std::vector<float> residual = numbers(high * line), bias = numbers(n);
        epilogue_f32 e = plain_epilogue(QUERN_RELU, 0, 0);
        e.bias = bias.data(), e.clamp_only = !dice_.one_in(3), e.lower = 0;
        if (!e.clamp_only) e.residual = QUERN_RESIDUAL_AFTER;
        winograd_output_f32 out = {};
        out.n = n, out.m = v.data(), out.matrix = in.matrix;
        out.rows = round % 2 ? high : size_t(dice_.from(1, int64_t(high)));
        out.columns = round % 2 ? size_t(w.m) : size_t(dice_.from(1, w.m));
        out.out.epilogue = &e, out.out.ldc = out.out.ldr = pixel, out.dst_row = out.residual_row = line;
        out.out.residual = e.residual ? residual.data() : nullptr;
        out.step = {.m = in.step.v, .c = in.step.src, .residual = in.step.src};
        std::vector<float> c = numbers(high * line), same_c = c;
        for (size_t i = 0; i < tiles; ++i) {
          winograd_output_f32 one = out;
          one.m += i * v_tile, one.out.c = c.data() + i * step;
          if (one.out.residual) one.out.residual += i * step;
          row().winograd_output[square](one);
        }
        out.out.c = same_c.data(), out.more = tiles - 1;
        row().winograd_output[square](out);
        ASSERT_EQ(memcmp(c.data(), same_c.data(), c.size() * sizeof(float)), 0) << tiles << " outputs of " << n;
      }
}

// A build of one operator or ISA may have none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(winograd_rows);
INSTANTIATE_TEST_SUITE_P(rows, winograd_rows, testing::ValuesIn(rows_of(kind::winograd_f32)), name_of_row);

// ---- The algorithms ---------------------------------------------------------------------------------------

std::vector<quern_candidate> winograd_candidates(quern_problem p) {
  std::vector<quern_candidate> list = usable_candidates(p);
  std::erase_if(list, [](const quern_candidate& c) {
    return strncmp(c.algorithm, "conv_winograd", 13) != 0 && !strstr(c.algorithm, "split3_winograd");
  });
  return list;
}

struct filter_size {
  int64_t r, s, stride = 1;
};

// Random problems that some form takes: any image, padding, dilation, groups, batch, strides and epilogue.
quern_problem random_winograd(dice& d) {
  static constexpr filter_size filters[] = {{3, 3},    {3, 3},    {3, 3},    {1, 3},    {3, 1},    {5, 5},    {1, 5},
                                            {5, 1},    {7, 7},    {1, 7},    {7, 1},    {2, 2},    {1, 2},    {6, 6},
                                            {6, 1},    {1, 8},    {8, 1},    {3, 3, 2}, {3, 3, 2}, {4, 4, 2}, {1, 3, 2},
                                            {3, 1, 2}, {5, 5, 2}, {6, 5, 2}, {1, 7, 2}, {7, 7, 2}};
  for (;;) {
    const auto [r, s, stride] = d.of(filters);
    shape f = {.op = stride == 1 && d.one_in(5) ? QUERN_CONV_TRANSPOSED : QUERN_CONV};
    f.n = d.one_in(3) ? d.from(2, 3) : 1, f.groups = d.one_in(4) ? d.from(2, 3) : 1;
    f.c = d.from(1, 36), f.k = d.one_in(4) ? d.from(65, 150) : d.from(1, 70);
    f.image[1] = d.from(1, 17), f.image[2] = d.from(1, 17);
    f.filter[1] = r, f.filter[2] = s;
    for (int i = 1; i < 3; ++i) {
      if (f.filter[i] > 1) f.stride[i] = stride;
      f.dilation[i] = stride == 1 && d.one_in(4) ? d.from(2, 5) : 1;
      const int64_t reach = (f.filter[i] - 1) * f.dilation[i];
      f.begin[i] = d.from(0, reach), f.end[i] = d.from(0, reach);
      if (f.filter[i] == 1 && f.op == QUERN_CONV) f.stride[i] = d.from(1, 2);
    }
    if (f.op == QUERN_CONV && d.one_in(4))
      f.image[0] = d.from(1, 3), f.begin[0] = d.from(0, 1), f.stride[0] = d.from(1, 2);
    quern_problem p = problem_of(f, d.of(layouts), d.of(layouts));
    p.accuracy = QUERN_ACCURACY_F32_LOOSE;
    set_epilogue(p, static_cast<int>(d.from(0, 419)));
    if (quern_problem_complete(&p, &p, nullptr) != QUERN_OK || direct_flops(p) > 4e6) continue;
    random_strides(p, d);
    if (quern_problem_complete(&p, &p, nullptr) == QUERN_OK && !winograd_candidates(p).empty()) return p;
  }
}

// F(2, 3) has weights that are quarters of integers: exact.  The others round.
TEST(winograd, agrees_with_the_reference_between_guard_pages) {
  for (uint32_t first = seed(), i = 0; i < 250; ++i) {
    dice d(first + i);
    const quern_problem p = random_winograd(d);
    const way how = random_way(p, d);
    const operands in = small_integers(p, how.side, d);
    const solution want = expected(p, in);
    for (const quern_candidate& c : winograd_candidates(p)) {
      const double allowed = strstr(c.algorithm, "winograd_f23") ? 0 : allowed_error(p, c.error_bound);
      ASSERT_TRUE(agree_within(p, allowed, want, solve(p, in, c.algorithm, c.kernel, how)))
          << "QUERN_TEST_SEED=" << first + i;
    }
  }
}

// Of F32_FAST, with bias, and bounds or the slope that the activation needs.
quern_problem activated(quern_problem p, int32_t activation) {
  p.accuracy = QUERN_ACCURACY_F32_FAST;
  p.epilogue.bias = 1, p.epilogue.activation = activation;
  p.epilogue.activation_alpha = activation == QUERN_CLAMP ? -3 : activation == QUERN_RELU ? 0 : 0.5f;
  p.epilogue.activation_beta = activation == QUERN_CLAMP ? 6 : 0;
  return completed(p);
}

// Weights that are sums of integers are exact.  Lines of any length, whose last tiles begin where so many end with
// them, with padding and without, which leaves pixels in the image, and panels whose last vectors are a pair, one, or a
// part of one.
TEST(winograd, three_taps_at_stride_2_are_exact) {
  dice d(6);
  for (const quern_layout layout : {QUERN_NHWC, QUERN_NC16HW16, QUERN_NCHW})
    for (const int64_t k : {16, 32, 37, 48, 80})
      for (const int64_t width : {1, 2, 7, 14, 15, 16, 17, 30, 31, 32, 33, 50, 63, 97, 160})
        for (const int32_t activation : {QUERN_RELU, QUERN_CLAMP, QUERN_LEAKY_RELU}) {
          const shape s = {.c = d.from(1, 9),
                           .k = k,
                           .image = {1, d.from(1, 8), width},
                           .filter = {1, d.from(1, 4), 3},
                           .stride = {1, d.from(1, 2), 2},
                           .begin = {0, 0, d.from(0, 3)},
                           .end = {0, 3, d.from(width < 3 ? 2 : 0, 3)}};
          const quern_problem p =
              activated(problem_of(s, layout, layout == QUERN_NCHW ? QUERN_NHWC : layout), activation);
          const operands in = small_integers(p, edge::back, d);
          const solution want = expected(p, in);
          for (const quern_candidate& c : winograd_candidates(p)) {
            if (!strstr(c.kernel, "_s2_")) continue;
            for (const way& how : {way{}, way{.small_caches = true, .slow_l3 = true}})
              ASSERT_TRUE(agree_within(p, 0, want, solve(p, in, c.algorithm, c.kernel, how))) << text(p);
          }
        }
}

// Lines of any length, at whose end tiles are cut or written twice, in cache and past it.
TEST(winograd, few_channels_agree_in_lines_of_any_length) {
  dice d(7);
  for (const quern_layout layout : {QUERN_NHWC, QUERN_NC16HW16})
    for (const int64_t k : {16, 32, 37, 48, 80})
      for (const int64_t width : {1, 3, 4, 7, 8, 9, 15, 16, 17, 30, 32, 63, 97, 160})
        for (const int64_t taps : {3, 5})
          for (const int32_t activation : {QUERN_RELU, QUERN_CLAMP, QUERN_LEAKY_RELU}) {
            const shape s = {.c = d.from(1, 4),
                             .k = k,
                             .image = {1, d.from(4, 9), width},
                             .filter = {1, d.from(1, 4), taps},
                             .begin = {0, 0, d.from(1, 2)},
                             .end = {0, 3, taps - 1}};
            const quern_problem p = activated(problem_of(s, layout, layout), activation);
            const operands in = small_integers(p, edge::back, d);
            const solution want = expected(p, in);
            for (const quern_candidate& c : winograd_candidates(p)) {
              if (strcmp(c.algorithm, "conv_winograd_line") != 0) continue;
              for (const way& how : {way{}, way{.small_caches = true, .slow_l3 = true}})
                ASSERT_TRUE(
                    agree_within(p, allowed_error(p, c.error_bound), want, solve(p, in, c.algorithm, c.kernel, how)));
            }
          }
}

// Panels of channels, and the blocks in which they are stored.
TEST(winograd, few_channels_agree_in_blocks_of_any_size) {
  dice d(5);
  for (const quern_layout layout : {QUERN_NC4HW4, QUERN_NC8HW8, QUERN_NC16HW16})
    for (const int64_t k : {5, 12, 19, 33, 40, 65, 72}) {
      const shape s = {.c = 3, .k = k, .image = {1, 6, 13}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}};
      quern_problem p = problem_of(s, QUERN_NHWC, layout);
      p.accuracy = QUERN_ACCURACY_F32_FAST;
      p = completed(p);
      const operands in = small_integers(p, edge::back, d);
      const solution want = expected(p, in);
      for (const quern_candidate& c : winograd_candidates(p))
        EXPECT_TRUE(agree_within(p, allowed_error(p, c.error_bound), want, solve(p, in, c.algorithm, c.kernel)))
            << layout << ", k " << k;
    }
}

// ---- Errors -----------------------------------------------------------------------------------------------

constexpr filter_size form_filters[] = {{3, 3}, {1, 3}, {5, 5}, {1, 5},    {6, 6},    {1, 6},    {7, 7},
                                        {1, 7}, {1, 8}, {2, 2}, {3, 3, 2}, {1, 3, 2}, {5, 5, 2}, {7, 7, 2}};

quern_problem error_problem(filter_size f, int64_t c) {
  const shape s = {.c = c,
                   .k = 5,
                   .image = {1, f.r == 1 ? 3 : 13, 26},
                   .filter = {1, f.r, f.s},
                   .stride = {1, f.r == 1 ? 1 : f.stride, f.stride}};
  quern_problem p = problem_of(s, QUERN_NHWC, QUERN_NHWC);
  p.accuracy = QUERN_ACCURACY_F32_LOOSE;
  return completed(p);
}

TEST(winograd, errors_stay_within_the_stated_bound) {
  dice d(2);
  int64_t at = 0;
  const struct {
    const char* name;
    numbers next;
  } data[] = {
      {"uniform", [&] { return d.uniform(-1, 1); }},
      {"positive", [&] { return d.uniform(0.5f, 1); }},
      {"wide", [&] { return std::ldexp(d.uniform(-1, 1), static_cast<int>(d.from(-12, 12))); }},
      // Signs that alternate from channel to channel and fall on the even rows of B^T's largest sums.
      {"alternating", [&] { return static_cast<float>(++at % 2 ? 1 : -1) * (1 - d.uniform(0, 1e-3f)); }},
  };
  for (const filter_size f : form_filters)
    for (const int64_t c : {1, 17, 300})
      for (const auto& kind : data) {
        const quern_problem p = error_problem(f, c);
        const operands in(p, edge::back, kind.next, kind.next);
        const std::vector<double> want = in_double(p, in);
        for (const quern_candidate& candidate : winograd_candidates(p)) {
          const errors e = errors_of(p, in, want, candidate);
          EXPECT_GT(e.largest, 0) << "nothing was rounded";
          EXPECT_LE(e.largest, candidate.error_bound) << candidate.algorithm << " " << kind.name << "\n" << text(p);
          // The bound is no empty phrase: not more than the worst way through a product for every channel.
          EXPECT_LE(candidate.error_bound, 3e4 * 0x1p-24 * (static_cast<double>(c) + 21)) << candidate.algorithm;
        }
      }
}

// F32_FAST: at most four times the error of a chain of multiply-adds on the same data; F32_LOOSE: 1e-5.
TEST(winograd, classes_hold_up_to_1024_channels) {
  dice d(3);
  for (const filter_size f : form_filters)
    for (const int64_t c : {1, 2, 4, 16, 64, 256, 640, 1024})
      for (const bool positive : {false, true}) {
        const quern_problem p = error_problem(f, c);
        const operands in(
            p, edge::back, [&] { return d.uniform(positive ? 0 : -1, 1); }, [] { return 0.0f; });
        operands weights(
            p, edge::back, [&] { return d.uniform(-1, 1); }, [] { return 0.0f; });
        operands both = operands(
            p, edge::back, [] { return 0.0f; }, [] { return 0.0f; });
        std::swap(both.weights, weights.weights);
        both.src = elements(p.src.type, in.src.size(), edge::back);
        std::copy(in.src.begin(), in.src.end(), both.src.begin());
        const std::vector<double> want = in_double(p, both);
        quern_candidate direct = {};
        direct.algorithm = "conv_direct";
        const double chain = errors_of(p, both, want, direct).relative;
        const char* last = "";
        for (const quern_candidate& candidate : winograd_candidates(p)) {
          if (strcmp(last, candidate.algorithm) == 0) continue;
          last = candidate.algorithm;
          const double error = errors_of(p, both, want, candidate).relative;
          EXPECT_LE(error, candidate.accuracy == QUERN_ACCURACY_F32_FAST ? 4 * chain : 1e-5)
              << candidate.algorithm << ", c " << c << ", direct has " << chain;
        }
      }
}

// ---- What is not finite -----------------------------------------------------------------------------------

// One NaN or infinity makes every output that reads it NaN or infinite, and may make NaN of others as far from those as
// quern_accuracy says; outputs further away keep their bits, and so do other groups.
TEST(winograd, what_is_not_finite_stays_within_its_tiles) {
  dice d(4);
  for (const float special : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const int64_t groups : {1, 4})
      for (const quern_layout layout : {QUERN_NHWC, QUERN_NCHW}) {
        const int64_t channels = groups == 1 ? 9 : 4;
        const shape s = {.c = channels,
                         .k = channels,
                         .groups = groups,
                         .image = {1, 23, 27},
                         .filter = {1, 3, 3},
                         .begin = {0, 1, 1},
                         .end = {0, 1, 1}};
        quern_problem p = problem_of(s, layout, layout);
        p.accuracy = QUERN_ACCURACY_F32_LOOSE;
        p = completed(p);
        operands in(
            p, edge::back, [&] { return d.uniform(0.5f, 1); }, [] { return 0.0f; });
        const int64_t y0 = 11, x0 = 13;
        for (const quern_candidate& c : winograd_candidates(p)) {
          const solution before = solve(p, in, c.algorithm, c.kernel);
          elements src(p.src.type, in.src.size(), edge::back);
          std::copy(in.src.begin(), in.src.end(), src.begin());
          src.set(static_cast<size_t>(2 * p.src.stride[1] + y0 * p.src.stride[3] + x0 * p.src.stride[4]), special);
          std::swap(in.src, src);
          const solution after = solve(p, in, c.algorithm, c.kernel);
          std::swap(in.src, src);
          ASSERT_EQ(after.failure, "");
          const char* const form = strstr(c.algorithm, "winograd_f");
          const int64_t m = form ? form[strlen("winograd_f")] - '0' : 4;
          const bool line = strcmp(c.algorithm, "conv_winograd_line") == 0;
          const int64_t down = 1 + (line ? 0 : m), across = 1 + (line || form ? m : 0);
          for (size_t i = 0; i < after.dst.size(); ++i) {
            const int64_t at = static_cast<int64_t>(i), k = at / (27 * 23), y = at / 27 % 23, x = at % 27;
            const int64_t dy = std::abs(y - y0), dx = std::abs(x - x0);
            if (k < channels && dy <= 1 && dx <= 1) {
              ASSERT_FALSE(std::isfinite(after.dst[i])) << c.algorithm << " " << place(p, i);
            } else if (k >= channels || dy > down || dx > across) {
              ASSERT_TRUE(same_bits(before.dst[i], after.dst[i])) << c.algorithm << " " << place(p, i);
            }
          }
        }
      }
  }
}

}  // namespace
}  // namespace quern::test
