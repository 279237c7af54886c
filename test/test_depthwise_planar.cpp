// SPDX-License-Identifier: MIT
//
// Every depthwise_planar_f32 row that this CPU runs, alone: exact on small integers for every block, several of them,
// lines around whole vectors and tiles, any border, no byte read or written beside the operands, none of a channel
// that is not there.
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

struct window {
  axis x, y;
  size_t planes, block, n, multiplier;
};

class depthwise_planar : public test::kernel_test {
 protected:
  size_t gap() { return static_cast<size_t>(dice_.from(0, 3)); }

  // n channels in blocks of `lines` lines of `pixels` pixels: integers, and NaN between them.
  struct operand {
    guarded<float> memory;
    size_t block, pixel, line, next;  // channels of a block; elements from pixel to pixel, line to line, block to block
    size_t at(size_t y, size_t x, size_t c) const { return c / block * next + y * line + x * pixel + c % block; }
  };
  // Whole: lines begin at whole vectors, if memory does.
  operand fill(size_t lines, size_t pixels, size_t n, size_t block, size_t pixel, edge side, bool empty = false,
               bool whole = false) {
    const size_t w = whole ? static_cast<size_t>(row().vector) : 1;
    const size_t line = (pixels * pixel + gap() + w - 1) / w * w, next = (lines * line + gap() + w - 1) / w * w;
    const size_t last = (n - 1) / block * next + (lines - 1) * line + (pixels - 1) * pixel + (n - 1) % block;
    operand o{guarded<float>(lines && pixels ? last + 1 : 0, side), block, pixel, line, next};
    std::fill(o.memory.begin(), o.memory.end(), empty ? canary : nan);
    for (size_t i = 0; i < lines * pixels && !empty; ++i)
      for (size_t c = 0; c < n; ++c) o.memory[o.at(i / pixels, i % pixels, c)] = dice_.integer(-4, 4);
    return o;
  }

  testing::AssertionResult check(const window& s, edge side) {
    const size_t wide = static_cast<size_t>(s.x.inputs), high = static_cast<size_t>(s.y.inputs);
    const size_t taps = s.planes * s.y.taps * s.x.taps, channel = gap() * s.block;
    const size_t inputs = (channel + s.n - 1) / s.multiplier - channel / s.multiplier + 1;
    const operand src = fill(s.planes * high, wide, inputs, s.block, s.block, side);
    const size_t apart = dice_.one_in(2) ? gap() : 0;
    const operand residual = fill(s.y.count, s.x.count, s.n, s.block, s.block + apart, side);
    const bool stream = dice_.one_in(3);
    operand dst = fill(s.y.count, s.x.count, s.n, s.block, s.block + (dice_.one_in(3) ? gap() : 0), side, true,
                       stream && dice_.one_in(2));
    const operand bias = fill(1, 1, channel + s.n, channel + s.n, 0, side),
                  scale = fill(1, 1, channel + s.n, channel + s.n, 0, side);
    // Those of several channels fill a vector, again and again, zeros where there is no channel.
    const size_t lanes = s.block == 1 ? 1 : static_cast<size_t>(row().vector);
    const auto place = [&](size_t tap, size_t c) { return (c / s.block * taps + tap) * lanes + c % s.block; };
    guarded<float> weights((s.n + s.block - 1) / s.block * taps * lanes, side);
    std::fill(weights.begin(), weights.end(), 0.0f);
    for (size_t c = 0; c < s.n; ++c)
      for (size_t tap = 0; tap < taps; ++tap) {
        const float w = dice_.integer(-4, 4);
        for (size_t i = 0; i < lanes; i += s.block) weights[place(tap, c) + i] = w;
      }

    epilogue_f32 e = test::plain_epilogue(QUERN_CLAMP, -5, 60);
    e.bias = dice_.one_in(3) ? nullptr : bias.memory.data();
    e.clamp_only = dice_.one_in(2);
    e.lower = -5, e.upper = 60;
    if (!e.clamp_only) e.scale = scale.memory.data(), e.residual = QUERN_RESIDUAL_BEFORE;

    std::vector<gemm_tap> planes(s.planes);
    for (size_t t = 0; t < s.planes; ++t)
      planes[t] = {static_cast<ptrdiff_t>((s.planes - 1 - t) * high * src.line),
                   static_cast<ptrdiff_t>(t * s.y.taps * s.x.taps)};
    depthwise_planar_f32 d = {};
    d.x = {s.x.count, s.x.taps, s.x.step, s.x.first, s.x.first + s.x.inputs, 0, 0, 0};
    d.y = {s.y.count, s.y.taps,     s.y.step, s.y.first, s.y.first + s.y.inputs, static_cast<ptrdiff_t>(src.line),
           dst.line,  residual.line};
    d.apart = s.x.apart, d.block = s.block, d.n = s.n, d.multiplier = s.multiplier, d.planes = s.planes,
    d.plane = planes.data();
    d.src = src.memory.data();
    d.origin = -s.x.first * static_cast<ptrdiff_t>(s.block) - s.y.first * static_cast<ptrdiff_t>(src.line);
    d.weights = weights.data(), d.weights_block = taps * lanes;
    d.src_block = src.next, d.dst_block = dst.next, d.residual_block = residual.next;
    d.out.c = dst.memory.data(), d.out.ldc = dst.pixel, d.out.epilogue = &e, d.out.channel = channel;
    d.out.stream = stream, d.fetches = dice_.one_in(2);
    d.out.residual = e.residual ? residual.memory.data() : nullptr, d.out.ldr = residual.pixel;
    row().depthwise_planar(d);

    std::vector<float> want(dst.memory.size(), canary);
    for (size_t y = 0; y < s.y.count; ++y)
      for (size_t x = 0; x < s.x.count; ++x)
        for (size_t c = 0; c < s.n; ++c) {
          float sum = 0;
          for (size_t tap = 0; tap < taps; ++tap) {
            const size_t t = tap / s.x.taps / s.y.taps;
            const ptrdiff_t i = s.x.at(x, tap % s.x.taps), j = s.y.at(y, tap / s.x.taps % s.y.taps);
            if (i < 0 || j < 0) continue;
            const size_t line = (s.planes - 1 - t) * high + static_cast<size_t>(j);
            const size_t from = (channel + c) / s.multiplier - channel / s.multiplier;
            sum += src.memory[src.at(line, static_cast<size_t>(i), from)] * weights[place(tap, c)];
          }
          if (e.scale) sum *= scale.memory[channel + c];
          if (e.bias) sum += bias.memory[channel + c];
          if (e.residual) sum += residual.memory[residual.at(y, x, c)];
          want[dst.at(y, x, c)] = std::min(e.upper, std::max(e.lower, sum));
        }
    for (size_t i = 0; i < want.size(); ++i)
      if (dst.memory[i] != want[i])
        return testing::AssertionFailure()
               << row().name << " x " << s.x.text() << " y " << s.y.text() << " planes " << s.planes << " block "
               << s.block << " n " << s.n << " multiplier " << s.multiplier << ": element " << i << " is "
               << dst.memory[i] << ", must be " << want[i];
    return testing::AssertionSuccess();
  }

  test::dice dice_{1};
};

TEST_P(depthwise_planar, is_exact_on_small_integers_between_guard_pages) {
  const size_t w = static_cast<size_t>(row().vector), mr = static_cast<size_t>(row().mr);
  for (size_t block : {1, 4, 8}) {
    if (block >= w) continue;
    const size_t most = 3 * w / block + 1;
    for (size_t width = 1; width <= most + 3; ++width)
      for (int i = 0; i < 8; ++i) {
        // And more columns than are found at once: from 16 to 64.
        const size_t m = width <= most ? width : (size_t{16} << dice_.from(0, 3)) * w / block + width - most;
        window s = {.planes = static_cast<size_t>(dice_.from(0, 1)), .block = block};
        s.n = dice_.one_in(2) ? block : static_cast<size_t>(dice_.from(1, static_cast<int64_t>(3 * block)));
        s.multiplier = block == 1 && dice_.one_in(3) ? static_cast<size_t>(dice_.from(2, 3)) : 1;
        const size_t lines = static_cast<size_t>(dice_.from(1, static_cast<int64_t>(2 * mr + 1)));
        if (row().taps) {
          s.x =
              some_axis(m, static_cast<size_t>(row().taps), row().step, row().step == 1 ? dice_.from(1, 3) : 1, dice_);
          s.y = some_axis(lines, static_cast<size_t>(row().taps), row().step, 1, dice_);
        } else {
          s.planes = static_cast<size_t>(dice_.from(0, 2));
          s.x = some_axis(m, static_cast<size_t>(dice_.from(0, 9)), dice_.from(1, 4), dice_.from(1, 3), dice_);
          s.y = some_axis(lines, static_cast<size_t>(dice_.from(0, 9)), dice_.from(1, 3), 1, dice_);
        }
        ASSERT_TRUE(check(s, dice_.one_in(2) ? edge::front : edge::back));
      }
  }
}

// Whole vectors of one line are a tile of their own.
TEST_P(depthwise_planar, filters_of_one_row_are_exact) {
  if (row().taps) GTEST_SKIP() << "square filters";
  const size_t w = static_cast<size_t>(row().vector);
  for (size_t block : {1, 4, 8}) {
    if (block >= w) continue;
    for (size_t m = 1; m <= 20 * w / block; m += static_cast<size_t>(dice_.from(1, static_cast<int64_t>(w)))) {
      window s = {.planes = 1, .block = block};
      s.n = block * static_cast<size_t>(dice_.from(1, 3));
      s.multiplier = block == 1 && dice_.one_in(3) ? 2 : 1;
      const size_t taps = static_cast<size_t>(dice_.from(1, 5));
      s.x = some_axis(m, taps, 1, dice_.from(1, 4), dice_);
      // All of the image and some padding, as a network has it.
      const ptrdiff_t reach = static_cast<ptrdiff_t>(taps - 1) * s.x.apart;
      if (!dice_.one_in(4)) s.x.first = dice_.from(0, reach), s.x.inputs = static_cast<ptrdiff_t>(m);
      s.y = {static_cast<size_t>(dice_.from(1, 3)), 1, dice_.from(1, 2), 1, 0, 6};
      ASSERT_TRUE(check(s, dice_.one_in(2) ? edge::front : edge::back));
    }
  }
}

// A build of one operator or ISA may have none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(depthwise_planar);
INSTANTIATE_TEST_SUITE_P(rows, depthwise_planar, testing::ValuesIn(test::rows_of(kind::depthwise_planar_f32)),
                         test::name_of_row);

}  // namespace
}  // namespace quern
