// SPDX-License-Identifier: MIT
//
// Grouped convolution: every grouped_f32 row that this CPU runs, alone, exact on small integers for every number
// of pixels, lines and channels, any border, no byte read or written beside the operands; and problems with few
// channels a group in every layout, those of planes (NCHW) included, exact, with the bits of all that sum in one chain;
// or, those that transform, with an error of their class.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "fuzz.h"
#include "guard.h"
#include "kernel_test.h"
#include "tile_activation.h"

namespace quern::test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float canary = -77.25f;

// Pixels along x of some lines; `inputs` exist from `first` on.
struct strip {
  size_t m, n, lines, rows;
  ptrdiff_t first, inputs;
  bool halves;           // of a vector's outputs lie apart
  size_t channels, run;  // in, of a group; as many side by side
  size_t outputs;        // of a group, where a vector holds several
};

class grouped : public kernel_test {
 protected:
  guarded<float> integers(size_t count, edge side) {
    guarded<float> memory(count, side);
    for (float& x : memory) x = dice_.integer(-4, 4);
    return memory;
  }

  // Channel o of a pixel lies at o, or its second half comes before the first.
  testing::AssertionResult check(const strip& s, edge side) {
    const size_t w = static_cast<size_t>(row().vector), half = w / 2,
                 taps = static_cast<size_t>(std::max<int16_t>(1, row().taps)),
                 step = static_cast<size_t>(std::max<int16_t>(1, row().step));
    const bool apart = s.halves && s.n == w;
    const size_t c = s.channels, apart_run = s.run + gap(), groups = s.n / s.outputs,
                 held = row().group            ? s.n
                        : row().several_groups ? groups * c
                                               : (c / s.run - 1) * apart_run + s.run;
    const size_t pixel = held + gap(), out = s.n + gap(), residual_pixel = s.n + gap();
    const auto at = [&](size_t o) { return !apart ? o : o < half ? o + half : o - half; };
    // Where input channel p of the group of output o lies.
    const auto from = [&](size_t o, size_t p) {
      return row().group            ? at(o / c * c + p)
             : row().several_groups ? o / s.outputs * c + p
                                    : p / s.run * apart_run + p % s.run;
    };
    std::vector<int32_t> lanes(c * w);
    for (size_t i = 0; i < c * w; ++i) lanes[i] = static_cast<int32_t>(from(i % w, i / w) % held);
    const size_t inputs = static_cast<size_t>(s.inputs), line = s.rows * inputs * pixel, dst_line = s.m * out + gap(),
                 residual_line = s.m * residual_pixel + gap(), channel = gap();
    guarded<float> src(inputs > 0 && s.rows > 0 ? (s.lines * s.rows * inputs - 1) * pixel + held : 0, side);
    std::fill(src.begin(), src.end(), nan);
    for (size_t i = 0; i < s.lines * s.rows * inputs; ++i)
      for (size_t o = 0; o < (row().group || row().several_groups ? s.n : 1); ++o)
        for (size_t p = 0; p < c; ++p) src[i * pixel + from(o, p)] = dice_.integer(-4, 4);
    src.protect();
    const guarded<float> weights = integers(s.rows * taps * c * w, side);
    const guarded<float> bias = integers(channel + s.n, side), scale = integers(channel + s.n, side);
    guarded<float> dst((s.lines - 1) * dst_line + (s.m - 1) * out + s.n, side);
    std::fill(dst.begin(), dst.end(), canary);
    const guarded<float> residual = integers((s.lines - 1) * residual_line + (s.m - 1) * residual_pixel + s.n, side);

    epilogue_f32 e = plain_epilogue(QUERN_CLAMP, -5, 60);
    e.bias = dice_.one_in(3) ? nullptr : bias.data();
    e.clamp_only = dice_.one_in(2);
    e.lower = -5, e.upper = 60;
    if (!e.clamp_only) e.scale = scale.data(), e.residual = QUERN_RESIDUAL_BEFORE;

    uint32_t inside = 0;
    for (size_t x = 0; x < (s.m - 1) * step + taps; ++x)
      if (const ptrdiff_t i = static_cast<ptrdiff_t>(x) - s.first; i >= 0 && i < s.inputs) inside |= uint32_t{1} << x;
    std::vector<grouped_row> rows(s.rows);
    for (size_t r = 0; r < s.rows; ++r)
      rows[r] = {static_cast<ptrdiff_t>((s.rows - 1 - r) * inputs * pixel) - s.first * static_cast<ptrdiff_t>(pixel),
                 static_cast<ptrdiff_t>(r * taps * c * w), &inside};
    const ptrdiff_t apart_by = apart ? -static_cast<ptrdiff_t>(half) : static_cast<ptrdiff_t>(half);
    grouped_f32 g = {};
    g.m = s.m, g.n = s.n, g.lines = s.lines, g.rows = s.rows, g.row = rows.data();
    g.src = src.data() + (row().group ? at(0) : 0);
    g.src_pixel = static_cast<ptrdiff_t>(pixel), g.src_line = static_cast<ptrdiff_t>(line);
    g.channels = c, g.run = row().group ? half : s.run;
    g.inputs = held, g.lanes = lanes.data();
    g.src_run = row().group ? apart_by : static_cast<ptrdiff_t>(apart_run);
    g.weights = weights.data();
    g.out.c = dst.data() + at(0), g.out.ldc = out, g.out.epilogue = &e, g.out.channel = channel;
    g.out.residual = e.residual ? residual.data() + at(0) : nullptr, g.out.ldr = residual_pixel;
    g.dst_line = static_cast<ptrdiff_t>(dst_line), g.dst_half = apart_by;
    g.residual_line = static_cast<ptrdiff_t>(residual_line), g.residual_half = apart_by;
    const auto some = [&](int64_t most) { return static_cast<size_t>(dice_.from(1, most)); };
    if (dice_.one_in(3))
      for (lines_ahead& hint : g.ahead) hint = {src.data(), some(200), some(9), some(9), some(9), 64};
    row().grouped(g);

    std::vector<float> want(dst.size(), canary);
    for (size_t l = 0; l < s.lines; ++l)
      for (size_t i = 0; i < s.m; ++i)
        for (size_t o = 0; o < s.n; ++o) {
          float y = 0;
          for (size_t r = 0; r < s.rows; ++r)
            for (size_t t = 0; t < taps; ++t)
              for (size_t p = 0; p < c; ++p)
                if (const size_t x = i * step + t; inside >> x & 1) {
                  const ptrdiff_t pixel_at =
                      static_cast<ptrdiff_t>(l * line) + rows[r].a + static_cast<ptrdiff_t>(x * pixel);
                  y += src[static_cast<size_t>(pixel_at) + from(o, p)] *
                       weights[static_cast<size_t>(rows[r].b) + (p * taps + t) * w + o];
                }
          if (e.scale) y *= scale[channel + o];
          if (e.bias) y += bias[channel + o];
          if (e.residual) y += residual[l * residual_line + i * residual_pixel + at(o)];
          want[l * dst_line + i * out + at(o)] = std::min(e.upper, std::max(e.lower, y));
        }
    for (size_t i = 0; i < want.size(); ++i)
      if (dst[i] != want[i])
        return testing::AssertionFailure()
               << row().name << " m " << s.m << " n " << s.n << " lines " << s.lines << " rows " << s.rows << " c " << c
               << " inputs " << s.first << " + " << s.inputs << (apart ? " halves apart" : "") << ": line "
               << i / dst_line << " pixel " << i % dst_line / out << " channel " << i % dst_line % out << " is "
               << dst[i] << ", must be " << want[i];
    return testing::AssertionSuccess();
  }
  size_t gap() { return static_cast<size_t>(dice_.from(0, 5)); }

  dice dice_{1};
};

TEST_P(grouped, is_exact_on_small_integers_between_guard_pages) {
  const size_t w = static_cast<size_t>(row().vector), group = static_cast<size_t>(row().group);
  for (size_t m = 1; m <= static_cast<size_t>(row().mr); ++m)
    for (size_t lines = 1; lines <= static_cast<size_t>(row().lines); ++lines)
      for (int i = 0; i < 60; ++i) {
        strip s = {};
        s.m = m, s.lines = lines, s.rows = static_cast<size_t>(dice_.from(0, 3));
        s.run = group ? group : static_cast<size_t>(dice_.from(1, row().several_groups ? row().vector / 2 : 19));
        s.channels = group || row().several_groups ? s.run : s.run * static_cast<size_t>(dice_.from(1, 3));
        s.outputs = std::max<size_t>(1, group);  // that a call takes together
        if (row().several_groups) s.outputs = static_cast<size_t>(dice_.from(1, row().vector / 2));
        const size_t most = row().several_groups ? w / std::max(s.channels, s.outputs) : w / s.outputs;
        s.n = s.outputs * (dice_.one_in(2) ? most : static_cast<size_t>(dice_.from(1, static_cast<int64_t>(most))));
        s.halves = dice_.one_in(3);
        const int64_t last = static_cast<int64_t>((m - 1) * static_cast<size_t>(std::max<int16_t>(1, row().step))) +
                             std::max<int16_t>(1, row().taps) - 1;
        // The image holds all inputs, or begins or ends among them, or both, or lies beside them.
        s.first = dice_.one_in(2) ? 0 : dice_.from(0, last + 2);
        s.inputs = dice_.one_in(2) ? std::max<int64_t>(0, last + 1 - s.first) : dice_.from(0, last + 1);
        ASSERT_TRUE(check(s, dice_.one_in(2) ? edge::front : edge::back));
      }
}

// A build of one operator or ISA may have none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(grouped);
INSTANTIATE_TEST_SUITE_P(rows, grouped, testing::ValuesIn(rows_of(kind::grouped_f32)), name_of_row);

// ---- Problems ---------------------------------------------------------------------------------------------

quern_problem few_channels_a_group(dice& d) {
  static constexpr int64_t sizes[] = {2, 3, 4, 4, 8, 8, 12, 16, 16, 24, 32};
  for (;;) {
    shape s = {.op = d.one_in(5) ? QUERN_CONV_TRANSPOSED : QUERN_CONV};
    s.n = d.one_in(4) ? 2 : 1;
    s.groups = d.from(2, 9);
    s.c = d.of(sizes), s.k = d.one_in(4) ? d.of(sizes) : s.c;
    for (int i = d.one_in(6) ? 0 : 1; i < 3; ++i) {
      s.image[i] = d.one_in(6) ? d.from(15, 24) : d.from(1, 12);
      s.filter[i] = d.one_in(2) ? 3 : d.one_in(15) ? 9 : d.from(1, 5);
      s.stride[i] = d.one_in(2) ? 1 : d.from(2, 3);
      s.dilation[i] = d.one_in(3) ? d.from(2, 6) : 1;
      const int64_t reach = (s.filter[i] - 1) * s.dilation[i];
      s.begin[i] = d.one_in(2) ? reach / 2 : d.from(0, reach + 1);
      s.end[i] = d.one_in(2) ? reach / 2 : d.from(0, reach + 1);
      if (s.op == QUERN_CONV_TRANSPOSED) s.output_padding[i] = d.from(0, s.stride[i] - 1);
    }
    if (d.one_in(4)) {  // what the transforms take
      s.c = s.k = d.one_in(2) ? 4 : 8;
      s.image[0] = s.filter[0] = s.stride[0] = s.dilation[0] = 1, s.begin[0] = s.end[0] = 0;
      s.image[2] = d.one_in(6) ? d.from(50, 120) : s.image[2];
      for (int i = 1; i < 3; ++i) s.filter[i] = 3, s.stride[i] = s.dilation[i] = 1;
      std::fill_n(s.output_padding, 3, 0);
    }
    const quern_layout src = d.of(all_layouts);
    quern_problem p = problem_of(s, src, d.one_in(3) ? d.of(all_layouts) : src);
    p.weights.layout = d.of(layouts);
    set_epilogue(p, static_cast<int>(d.from(0, 419)));
    if (quern_problem_complete(&p, &p, nullptr) != QUERN_OK) continue;
    if (direct_flops(p) > 2e6 || extent(p.dst) > 60000 || extent(p.src) > 60000) continue;
    if (d.one_in(3)) random_strides(p, d);
    if (quern_problem_complete(&p, &p, nullptr) == QUERN_OK) return p;
  }
}

TEST(grouped_problems, are_exact_in_every_layout) {
  dice d(seed());
  std::map<std::string, int> solved;  // by kernel
  // However many kernels a build has, none goes without problems.
  std::vector<const kernel*> rows;
  for (const kind k :
       {kind::grouped_f32, kind::grouped_planes_f32, kind::grouped_winograd_f32, kind::grouped_planes_winograd_f32})
    for (const kernel* row : rows_of(k))
      if (missing_here(*row) == 0) rows.push_back(row);
  const auto waits = [&](const kernel* row) { return solved[row->name] == 0; };
  for (int i = 0; i < 400 || (i < 4000 && std::any_of(rows.begin(), rows.end(), waits)); ++i) {
    const quern_problem p = few_channels_a_group(d);
    const way how = random_way(p, d);
    const operands in = small_integers(p, how.side, d);
    const solution want = expected(p, in);
    for (const char* algorithm :
         {"conv_grouped", "conv_grouped_planes", "conv_grouped_winograd", "conv_grouped_planes_winograd"})
      for (const quern_candidate& c : all_candidates(p, algorithm)) {
        if (c.verdict > QUERN_USABLE) continue;
        ++solved[c.kernel];
        const double allowed = c.accuracy == QUERN_ACCURACY_F32 ? 0 : allowed_error(p, c.error_bound);
        ASSERT_TRUE(agree_within(p, allowed, want, solve(p, in, c.algorithm, c.kernel, how)));
      }
  }
  for (const kernel* row : rows) EXPECT_GE(solved[row->name], 1) << row->name;
}

TEST(grouped_problems, have_the_bits_of_all_other_chains) {
  dice d(2);
  for (int i = 0; i < 60; ++i) {
    const quern_problem p = few_channels_a_group(d);
    const operands in(
        p, edge::back, [&] { return d.uniform(-1, 1); }, [] { return 0.5f; });
    const std::vector<quern_candidate> list = chained_candidates(p);
    if (list.empty()) continue;
    const solution first = solve(p, in, list[0].algorithm, list[0].kernel);
    for (const quern_candidate& c : list)
      ASSERT_TRUE(agree_in_bits(p, first, solve(p, in, c.algorithm, c.kernel))) << c.algorithm << " " << c.kernel;
  }
}

// F32_FAST: at most four times the error of a chain of multiply-adds on the same data.
TEST(grouped_problems, winograd_keeps_to_its_class) {
  dice d(3);
  for (const quern_layout layout : {QUERN_NHWC, QUERN_NCHW})
    for (const int64_t c : {4, 8, 16})
      for (const bool positive : {false, true}) {
        const shape s = {.c = c, .k = c, .groups = 8, .image = {1, 29, 61}, .filter = {1, 3, 3}};
        const quern_problem p = completed(problem_of(s, layout, layout));
        const operands in(
            p, edge::back, [&] { return d.uniform(positive ? 0 : -1, 1); }, [] { return 0.0f; });
        const solution want = expected(p, in);
        const auto error = [&](const char* algorithm, const char* kernel) {
          const solution got = solve(p, in, algorithm, kernel);
          EXPECT_EQ(got.failure, "");
          double above = 0, below = 0;
          for (size_t i = 0; i < want.dst.size(); ++i) {
            const double wrong = double(got.dst[i]) - double(want.dst[i]);
            EXPECT_LE(std::fabs(wrong), (got.plan.error_bound + 0x1p-24) * 9 * double(c));  // no operand is above 1
            above += wrong * wrong, below += double(want.dst[i]) * double(want.dst[i]);
          }
          return std::sqrt(above / below);
        };
        const quern_candidate first = chained_candidates(p)[0];
        const double chain = error(first.algorithm, first.kernel);
        for (const quern_candidate& candidate : usable_candidates(p))
          if (strncmp(candidate.algorithm, "conv_grouped", 12) == 0 && candidate.accuracy == QUERN_ACCURACY_F32_FAST) {
            EXPECT_LE(error(candidate.algorithm, candidate.kernel), 4 * chain) << candidate.kernel << ", c " << c;
          }
      }
}

}  // namespace
}  // namespace quern::test
