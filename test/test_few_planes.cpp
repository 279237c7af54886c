// SPDX-License-Identifier: MIT
//
// Every few_planes_f32 row that this CPU runs, alone: exact on small integers for all outputs, lines and pixels of a
// tile, any border and any filter, from nothing and on top of sums, no byte read or written beside the operands.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "axis.h"
#include "fuzz.h"
#include "guard.h"
#include "kernel_test.h"
#include "tile_activation.h"

namespace quern {
namespace {

using test::axis;
using test::edge;
using test::guarded;
using test::some_axis;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float canary = -77.25f;

struct tile {
  axis x, y;
  size_t m, channels;
  bool begins, ends;
};

class few_planes : public test::kernel_test {
 protected:
  size_t gap() { return static_cast<size_t>(dice_.from(0, 3)); }
  size_t rounded(size_t n) const {
    const size_t w = static_cast<size_t>(row().vector);
    return (n + w - 1) / w * w;
  }

  // `planes` planes of lines of pixels, NaN between them.
  struct operand {
    guarded<float> memory;
    size_t plane, line;
    size_t at(size_t p, size_t y, size_t x) const { return p * plane + y * line + x; }
  };
  operand fill(size_t planes, size_t lines, size_t pixels, edge side, bool empty = false) {
    const size_t line = pixels + gap(), plane = lines * line + gap();
    const bool any = planes && lines && pixels;
    operand o{guarded<float>(any ? (planes - 1) * plane + (lines - 1) * line + pixels : 0, side), plane, line};
    std::fill(o.memory.begin(), o.memory.end(), empty ? canary : nan);
    for (size_t p = 0; p < planes && !empty; ++p)
      for (size_t y = 0; y < lines; ++y)
        for (size_t x = 0; x < pixels; ++x) o.memory[o.at(p, y, x)] = dice_.integer(-4, 4);
    return o;
  }

  testing::AssertionResult check(const tile& t, edge side) {
    const size_t mr = static_cast<size_t>(row().mr), taps = t.x.taps * t.y.taps, lines = t.y.count;
    const operand src = fill(t.channels, static_cast<size_t>(t.y.inputs), static_cast<size_t>(t.x.inputs), side);
    const operand weights = fill(1, 1, t.channels * taps * mr, side);
    const auto weight = [&](size_t p, size_t r, size_t s, size_t o) {
      return weights.memory[((p * t.x.taps + s) * t.y.taps + r) * mr + o];
    };
    // Of a line all channels, then the next.
    const size_t pixels = rounded(t.x.count), sums_line = pixels + gap();
    guarded<float> sums((lines * mr - 1) * sums_line + pixels, side);
    for (float& sum : sums) sum = t.begins ? nan : dice_.integer(-9, 9);
    const std::vector<float> sums_in(sums.begin(), sums.end());
    const size_t channel = gap();
    const operand residual = fill(t.m, lines, t.x.count, side), bias = fill(1, 1, channel + t.m, side),
                  scale = fill(1, 1, channel + t.m, side);
    operand dst = fill(t.m, lines, t.x.count, side, true);

    epilogue_f32 e = test::plain_epilogue(QUERN_CLAMP, -5, 60);
    e.bias = dice_.one_in(3) ? nullptr : bias.memory.data();
    e.clamp_only = dice_.one_in(2);
    e.lower = -5, e.upper = 60;
    if (!e.clamp_only) e.scale = scale.memory.data(), e.residual = QUERN_RESIDUAL_BEFORE;

    few_planes_f32 f = {};
    f.m = t.m, f.n = t.x.count, f.lines = lines, f.channels = t.channels, f.taps_x = t.x.taps, f.taps_y = t.y.taps;
    f.src = src.memory.data() - t.y.first * static_cast<ptrdiff_t>(src.line) - t.x.first;
    f.src_plane = static_cast<ptrdiff_t>(src.plane), f.src_line = static_cast<ptrdiff_t>(src.line);
    f.apart = t.x.apart;
    f.top = t.y.first, f.bottom = t.y.first + t.y.inputs;
    f.left = t.x.first, f.right = t.x.first + t.x.inputs;
    f.weights = weights.memory.data();
    f.sums = sums.data(), f.sums_line = sums_line, f.begins = t.begins;
    f.out.channels_are_rows = true, f.out.epilogue = t.ends ? &e : nullptr, f.out.channel = channel;
    f.out.c = dst.memory.data(), f.out.ldc = dst.plane, f.dst_line = dst.line;
    f.out.residual = e.residual ? residual.memory.data() : nullptr, f.out.ldr = residual.plane;
    f.residual_line = residual.line;
    f.fetches = dice_.one_in(2);
    row().few_planes(f);

    std::vector<float> want(dst.memory.size(), canary);
    for (size_t y = 0; y < lines; ++y)
      for (size_t o = 0; o < t.m; ++o)
        for (size_t i = 0; i < t.x.count; ++i) {
          const size_t at = (y * mr + o) * sums_line + i;
          float sum = t.begins ? 0 : sums_in[at];
          for (size_t p = 0; p < t.channels; ++p)
            for (size_t r = 0; r < t.y.taps; ++r)
              for (size_t s = 0; s < t.x.taps; ++s) {
                const ptrdiff_t line = t.y.at(y, r), pixel = t.x.at(i, s);
                if (line < 0 || pixel < 0) continue;
                sum +=
                    src.memory[src.at(p, static_cast<size_t>(line), static_cast<size_t>(pixel))] * weight(p, r, s, o);
              }
          if (sums[at] != sum)
            return testing::AssertionFailure() << text(t) << ": the sum of output " << o << ", line " << y << ", pixel "
                                               << i << " is " << sums[at] << ", must be " << sum;
          if (!t.ends) continue;
          if (e.scale) sum *= scale.memory[channel + o];
          if (e.bias) sum += bias.memory[channel + o];
          if (e.residual) sum += residual.memory[residual.at(o, y, i)];
          want[dst.at(o, y, i)] = std::min(e.upper, std::max(e.lower, sum));
        }
    for (size_t i = 0; i < want.size(); ++i)
      if (dst.memory[i] != want[i])
        return testing::AssertionFailure()
               << text(t) << ": element " << i << " is " << dst.memory[i] << ", must be " << want[i];
    return testing::AssertionSuccess();
  }

  std::string text(const tile& t) const {
    return std::string(row().name) + " x " + t.x.text() + " y " + t.y.text() + " outputs " + std::to_string(t.m) +
           " channels " + std::to_string(t.channels) + (t.begins ? " begins" : "") + (t.ends ? " ends" : "");
  }

  test::dice dice_{1};
};

TEST_P(few_planes, are_exact_on_small_integers_between_guard_pages) {
  const auto most_taps = static_cast<int64_t>(few_planes_f32::most_taps_x);
  for (size_t n = 1; n <= static_cast<size_t>(row().nr); ++n)
    for (int i = 0; i < 40; ++i) {
      tile t = {};
      const bool all = dice_.one_in(2);
      t.m = all ? static_cast<size_t>(row().mr) : static_cast<size_t>(dice_.from(1, row().mr));
      t.channels = static_cast<size_t>(dice_.from(0, 5));
      t.begins = dice_.one_in(2), t.ends = dice_.one_in(2);
      const auto taps = [&](int64_t most) {
        return static_cast<size_t>(row().taps ? row().taps : dice_.from(0, most));
      };
      const int64_t most = dice_.one_in(4) ? most_taps : 5;
      t.x = some_axis(n, taps(most), 1, dice_.from(1, 3), dice_);
      t.y = some_axis(dice_.one_in(2) ? static_cast<size_t>(row().lines) : 1, taps(9), 1, 1, dice_);
      if (t.x.taps == 0 || t.y.taps == 0) t.x.taps = t.y.taps = 0;
      ASSERT_TRUE(check(t, dice_.one_in(2) ? edge::front : edge::back));
    }
}

// A build of one operator or ISA may have none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(few_planes);
INSTANTIATE_TEST_SUITE_P(rows, few_planes, testing::ValuesIn(test::rows_of(kind::few_planes_f32)), test::name_of_row);

}  // namespace
}  // namespace quern
