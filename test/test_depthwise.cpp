// SPDX-License-Identifier: MIT
//
// Every depthwise_f32 row that this CPU runs, alone: exact on small integers for every number of pixels,
// channels around whole vectors, any border, no byte read or written beside the operands.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "fuzz.h"
#include "guard.h"
#include "registry.h"
#include "tile_activation.h"

namespace quern {
namespace {

using test::edge;
using test::guarded;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float canary = -77.25f;

// A strip of pixels along x: m outputs, whose inputs exist from `first` on, `count` of them.
struct strip {
  size_t m, n, rows, taps;
  ptrdiff_t step, dilation, first, count;
};

class depthwise : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    quern_cpu cpu = {};
    cpu.size = sizeof cpu;
    ASSERT_EQ(quern_cpu_get(&cpu, nullptr), QUERN_OK);
    if (const uint64_t missing = row().isa & ~cpu.isa)
      GTEST_SKIP() << row().name << " needs " << quern_isa_name(missing & -missing);
  }
  const kernel& row() const { return kernel_at(GetParam()); }

  // Integers, `count` runs of n, `stride` apart, NaN between them.
  guarded<float> fill(size_t count, size_t n, size_t stride, edge side) {
    guarded<float> memory(count ? (count - 1) * stride + n : 0, side);
    std::fill(memory.begin(), memory.end(), nan);
    for (size_t i = 0; i < count; ++i)
      for (size_t j = 0; j < n; ++j) memory[i * stride + j] = dice_.integer(-4, 4);
    return memory;
  }
  size_t gap() { return static_cast<size_t>(dice_.from(0, 3)); }

  testing::AssertionResult check(const strip& s, edge side) {
    const size_t inputs = static_cast<size_t>(s.count), pixel = s.n + gap(), channels = s.n + gap();
    const guarded<float> src = fill(s.rows * inputs, s.n, pixel, side);
    const guarded<float> weights = fill(s.rows * s.taps, s.n, channels, side);
    const size_t dst_pixel = s.n + gap(), residual_pixel = s.n + gap(), channel = gap();
    const guarded<float> residual = fill(s.m, s.n, residual_pixel, side);
    const guarded<float> bias = fill(1, channel + s.n, 0, side), scale = fill(1, channel + s.n, 0, side);
    guarded<float> dst((s.m - 1) * dst_pixel + s.n, side);
    std::fill(dst.begin(), dst.end(), canary);

    epilogue_f32 e = test::plain_epilogue(QUERN_RELU, 0, 0);
    e.bias = dice_.one_in(3) ? nullptr : bias.data();
    e.clamp_only = dice_.one_in(2);
    e.lower = -5, e.upper = 60;
    if (!e.clamp_only) e.scale = scale.data(), e.residual = QUERN_RESIDUAL_BEFORE;

    std::vector<gemm_tap> rows(s.rows);
    for (size_t r = 0; r < s.rows; ++r)
      rows[r] = {static_cast<ptrdiff_t>((s.rows - 1 - r) * inputs * pixel),
                 static_cast<ptrdiff_t>(r * s.taps * channels)};
    depthwise_f32 d = {};
    d.m = s.m, d.n = s.n, d.rows = s.rows, d.taps = s.taps, d.row = rows.data();
    d.step = s.step, d.dilation = s.dilation, d.begin = s.first, d.end = s.first + s.count;
    d.src = src.data(), d.origin = -s.first * static_cast<ptrdiff_t>(pixel), d.src_pixel = pixel;
    d.weights = weights.data(), d.channels = channels;
    d.out.c = dst.data(), d.out.ldc = dst_pixel;
    d.out.epilogue = &e, d.out.channel = channel;
    d.out.residual = e.residual ? residual.data() : nullptr, d.out.ldr = residual_pixel;
    row().depthwise(d);

    for (size_t i = 0; i < s.m; ++i)
      for (size_t c = 0; c < dst_pixel && i * dst_pixel + c < dst.size(); ++c) {
        float want = canary;
        if (c < s.n) {
          want = 0;
          for (size_t r = 0; r < s.rows; ++r)
            for (size_t t = 0; t < s.taps; ++t) {
              const ptrdiff_t x = static_cast<ptrdiff_t>(i) * s.step + static_cast<ptrdiff_t>(t) * s.dilation - s.first;
              if (x >= 0 && x < s.count)
                want += src[static_cast<size_t>(rows[r].a) + static_cast<size_t>(x) * pixel + c] *
                        weights[static_cast<size_t>(rows[r].b) + t * channels + c];
            }
          if (e.scale) want *= scale[channel + c];
          if (e.bias) want += bias[channel + c];
          if (e.residual) want += residual[i * residual_pixel + c];
          want = e.clamp_only ? std::min(e.upper, std::max(e.lower, want)) : std::max(0.0f, want);
        }
        if (dst[i * dst_pixel + c] != want)
          return testing::AssertionFailure()
                 << row().name << " m " << s.m << " n " << s.n << " rows " << s.rows << " taps " << s.taps << " step "
                 << s.step << " dilation " << s.dilation << " inputs " << s.first << " + " << s.count << ": pixel " << i
                 << " channel " << c << " is " << dst[i * dst_pixel + c] << ", must be " << want;
      }
    return testing::AssertionSuccess();
  }

  test::dice dice_{1};
};

TEST_P(depthwise, is_exact_on_small_integers_between_guard_pages) {
  const size_t w = static_cast<size_t>(row().vector), nr = static_cast<size_t>(row().nr);
  for (size_t m = 1; m <= static_cast<size_t>(row().mr); ++m)
    for (size_t n : {size_t{1}, w - 1, w, w + 1, nr - 1, nr, nr + 1, nr + w, 2 * nr + w + 3})
      for (int i = 0; i < 40; ++i) {
        strip s = {.m = m, .n = n, .rows = static_cast<size_t>(dice_.from(0, 3))};
        s.taps = static_cast<size_t>(row().taps ? row().taps : dice_.from(0, 6));
        s.step = row().taps ? row().step : dice_.from(1, 3);
        s.dilation = row().taps ? 1 : dice_.from(1, 3);
        const ptrdiff_t last = static_cast<ptrdiff_t>(m - 1) * s.step +
                               std::max<ptrdiff_t>(0, static_cast<ptrdiff_t>(s.taps) - 1) * s.dilation;
        // The image holds all inputs, or begins or ends among them, or both, or lies beside them.
        s.first = dice_.one_in(2) ? 0 : dice_.from(-1, last + 2);
        s.count = dice_.one_in(2) ? std::max<ptrdiff_t>(0, last + 1 - s.first) : dice_.from(0, last + 1);
        ASSERT_TRUE(check(s, dice_.one_in(2) ? edge::front : edge::back));
      }
}

std::vector<size_t> rows_of_kind() {
  std::vector<size_t> list;
  for (size_t i = 0; i < kernel_count(); ++i)
    if (kernel_at(i).kind == kind::depthwise_f32) list.push_back(i);
  return list;
}

// A build of one operator or ISA may have none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(depthwise);
INSTANTIATE_TEST_SUITE_P(rows, depthwise, testing::ValuesIn(rows_of_kind()),
                         [](const testing::TestParamInfo<size_t>& i) { return std::string(kernel_at(i.param).name); });

}  // namespace
}  // namespace quern
