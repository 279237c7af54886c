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
#include "kernel_test.h"
#include "tile_activation.h"

namespace quern {
namespace {

using test::edge;
using test::guarded;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float canary = -77.25f;

// An axis of a call: `count` outputs, whose inputs exist from `first` on, `inputs` of them.
struct axis {
  size_t count, taps;
  ptrdiff_t step, first, inputs;
};

struct window {
  axis x, y;
  size_t planes, n, multiplier;
  size_t outside;  // the first planes, which lie on padding
  bool blocked;    // vectors of channels lie apart from each other
  bool dense;      // nothing lies between pixels, nor between vectors
  bool crowded;    // pixels of all operands share few sets of a cache
};

class depthwise : public test::kernel_test {
 protected:
  // Integers in pixels of `n` channels, NaN between them: side by side, or vector by vector.
  struct operand {
    guarded<float> memory;
    size_t n, pixel, vector;  // elements from pixel to pixel, from vector to vector
    size_t width;
    size_t at(size_t i, size_t c) const { return i * pixel + c / width * vector + c % width; }
  };
  // Whole: pixels and vectors begin at whole vectors, if memory does.
  operand fill(size_t count, size_t n, bool blocked, edge side, bool empty = false, bool whole = false) {
    const size_t w = static_cast<size_t>(row().vector), vectors = (n + w - 1) / w;
    const auto apart = [&](size_t least) { return whole ? (least + w - 1) / w * w : least + gap(); };
    const size_t pixel = crowded_ ? 128 : apart(blocked ? w : n), vector = blocked ? apart(count * pixel) : w;
    const size_t last = blocked ? (vectors - 1) * vector + n - (vectors - 1) * w : n;
    operand o{guarded<float>(count ? (count - 1) * pixel + last : 0, side), n, pixel, vector, w};
    std::fill(o.memory.begin(), o.memory.end(), empty ? canary : nan);
    for (size_t i = 0; i < count && !empty; ++i)
      for (size_t c = 0; c < n; ++c) o.memory[o.at(i, c)] = dice_.integer(-4, 4);
    return o;
  }
  size_t gap() { return static_cast<size_t>(dice_.from(0, most_gap_)); }

  static depthwise_axis of(const axis& a, size_t pixels) {
    return {a.count, a.taps, a.step, a.first, a.first + a.inputs, static_cast<ptrdiff_t>(pixels), 0, 0};
  }

  testing::AssertionResult check(const window& s, edge side) {
    most_gap_ = s.dense ? 0 : 3, crowded_ = s.crowded;
    const size_t w = static_cast<size_t>(row().vector), vectors = (s.n + w - 1) / w;
    const size_t wide = static_cast<size_t>(s.x.inputs), high = static_cast<size_t>(s.y.inputs);
    // The first channel of the call and of src.
    const size_t channel = s.multiplier > 1 ? gap() * w : gap(), input = channel / s.multiplier / w * w;
    const size_t inputs = (channel + s.n - 1) / s.multiplier - (s.multiplier > 1 ? input : channel) + 1;
    const operand src = fill(s.planes * high * wide, inputs, s.blocked, side);
    const operand weights = fill(s.planes * s.y.taps * s.x.taps * vectors, w, false, side);
    const size_t outputs = s.x.count * s.y.count;
    const operand residual = fill(outputs, s.n, s.blocked, side);
    const bool stream = dice_.one_in(3);
    operand dst = fill(outputs, s.n, s.blocked, side, true, stream && !dice_.one_in(3));
    const operand bias = fill(1, channel + s.n, false, side), scale = fill(1, channel + s.n, false, side);

    epilogue_f32 e = test::plain_epilogue(QUERN_CLAMP, -5, 60);
    e.bias = dice_.one_in(3) ? nullptr : bias.memory.data();
    e.clamp_only = dice_.one_in(2);
    e.lower = -5, e.upper = 60;
    if (!e.clamp_only) e.scale = scale.memory.data(), e.residual = QUERN_RESIDUAL_BEFORE;

    std::vector<gemm_tap> planes(s.planes);
    for (size_t t = 0; t < s.planes; ++t)
      planes[t] = {static_cast<ptrdiff_t>((s.planes - 1 - t) * high * wide * src.pixel),
                   static_cast<ptrdiff_t>(t * s.y.taps * s.x.taps)};
    depthwise_f32 d = {};
    d.x = of(s.x, src.pixel), d.y = of(s.y, wide * src.pixel);
    d.y.dst = s.x.count * dst.pixel, d.y.residual = s.x.count * residual.pixel;
    d.n = s.n, d.planes = s.planes - s.outside, d.plane = planes.data() + s.outside;
    d.src = src.memory.data(), d.src_vector = src.vector;
    d.origin = -s.x.first * static_cast<ptrdiff_t>(src.pixel) - s.y.first * static_cast<ptrdiff_t>(wide * src.pixel);
    d.input = s.multiplier > 1 ? input : channel, d.multiplier = s.multiplier;
    // Weights of a vector lie together: [vector][tap][lane].
    std::vector<float> packed(s.planes * s.y.taps * s.x.taps * vectors * w);
    const size_t taps = s.planes * s.y.taps * s.x.taps;
    for (size_t i = 0; i < taps * vectors; ++i)
      for (size_t c = 0; c < w; ++c) packed[i * w + c] = weights.memory[weights.at(i, c)];
    guarded<float> exact(packed.size(), side);
    std::copy(packed.begin(), packed.end(), exact.begin());
    d.weights = exact.data(), d.weights_vector = taps * w;
    d.out.c = dst.memory.data(), d.out.ldc = dst.pixel, d.dst_vector = dst.vector;
    d.out.epilogue = &e, d.out.channel = channel, d.out.stream = stream, d.fetches = dice_.one_in(2);
    d.out.residual = e.residual ? residual.memory.data() : nullptr;
    d.out.ldr = residual.pixel, d.residual_vector = residual.vector;
    d.bounded_below = d.bounded_above = true;
    row().depthwise(d);

    std::vector<float> want(dst.memory.size(), canary);
    for (size_t i = 0; i < outputs; ++i)
      for (size_t c = 0; c < s.n; ++c) {
        float sum = 0;
        const ptrdiff_t x0 = static_cast<ptrdiff_t>(i % s.x.count) * s.x.step - s.x.first,
                        y0 = static_cast<ptrdiff_t>(i / s.x.count) * s.y.step - s.y.first;
        for (size_t tap = 0; tap < taps; ++tap) {
          const size_t u = tap % s.x.taps, v = tap / s.x.taps % s.y.taps, t = tap / s.x.taps / s.y.taps;
          const ptrdiff_t x = x0 + static_cast<ptrdiff_t>(u), y = y0 + static_cast<ptrdiff_t>(v);
          if (t < s.outside || x < 0 || x >= s.x.inputs || y < 0 || y >= s.y.inputs) continue;
          const size_t pixel = ((s.planes - 1 - t) * high + static_cast<size_t>(y)) * wide + static_cast<size_t>(x);
          sum += src.memory[src.at(pixel, (channel + c) / s.multiplier - d.input)] *
                 packed[(c / w * taps + tap) * w + c % w];
        }
        if (e.scale) sum *= scale.memory[channel + c];
        if (e.bias) sum += bias.memory[channel + c];
        if (e.residual) sum += residual.memory[residual.at(i, c)];
        want[dst.at(i, c)] = std::min(e.upper, std::max(e.lower, sum));
      }
    for (size_t i = 0; i < want.size(); ++i)
      if (dst.memory[i] != want[i])
        return testing::AssertionFailure()
               << row().name << " x " << text(s.x) << " y " << text(s.y) << " planes " << s.outside << " to "
               << s.planes << " n " << s.n << " multiplier " << s.multiplier << (s.blocked ? " blocked" : "")
               << (s.dense ? " dense" : "") << (s.crowded ? " crowded" : "") << ": element " << i << " is "
               << dst.memory[i] << ", must be " << want[i];
    return testing::AssertionSuccess();
  }

  static std::string text(const axis& a) {
    return std::to_string(a.count) + " taps " + std::to_string(a.taps) + " step " + std::to_string(a.step) +
           " inputs " + std::to_string(a.first) + " + " + std::to_string(a.inputs);
  }

  // The image holds all inputs, or begins or ends among them, or both, or lies beside them.
  axis some(size_t count, size_t taps, ptrdiff_t step) {
    axis a = {count, taps, step, 0, 0};
    const ptrdiff_t last = static_cast<ptrdiff_t>(count - 1) * step + static_cast<ptrdiff_t>(taps ? taps - 1 : 0);
    a.first = dice_.one_in(2) ? 0 : dice_.from(-1, last + 2);
    // All, or all but one or two, or fewer.
    const ptrdiff_t all = last + 1 - a.first - (dice_.one_in(2) ? 0 : dice_.from(1, 2));
    a.inputs = dice_.one_in(3) ? dice_.from(0, last + 1) : std::max<ptrdiff_t>(0, all);
    return a;
  }

  test::dice dice_{1};
  int most_gap_ = 3;
  bool crowded_ = false;
};

TEST_P(depthwise, is_exact_on_small_integers_between_guard_pages) {
  const size_t w = static_cast<size_t>(row().vector), mr = static_cast<size_t>(row().mr);
  const bool last = row().channels_last;
  const std::vector<size_t> some_n = {1, w - 1, w, w + 1, 3 * w + 3}, vectors = {w, 2 * w, 3 * w, 16 * w, 19 * w};
  for (size_t m = 1; m <= (last ? 15 : 3 * mr + 1); ++m)
    for (size_t n : last ? vectors : some_n)
      for (int i = 0; i < 40; ++i) {
        window s = {.planes = static_cast<size_t>(dice_.from(0, last ? 1 : 2)), .n = n, .multiplier = 1};
        s.outside = s.planes && dice_.one_in(3) ? 1 : 0;
        s.x = some(m, static_cast<size_t>(row().taps ? row().taps : dice_.from(0, 9)),
                   row().taps ? row().step : dice_.from(1, 4));
        s.y = some(static_cast<size_t>(dice_.from(1, 6)), static_cast<size_t>(dice_.from(0, 4)), dice_.from(1, 3));
        // Squares are what has more than one kernel.
        const bool square = last || (row().taps && dice_.one_in(2));
        if (square) s.y = some(s.y.count, s.x.taps, row().step);
        if (square && !last) s.planes = 1, s.outside = 0;
        s.blocked = !last && dice_.one_in(2), s.dense = dice_.one_in(2);
        s.crowded = !s.blocked && n <= 128 && dice_.one_in(2);
        if (!row().taps && dice_.one_in(3)) s.multiplier = static_cast<size_t>(dice_.from(2, 5)), s.blocked = false;
        ASSERT_TRUE(check(s, dice_.one_in(2) ? edge::front : edge::back));
      }
}

// A build of one operator or ISA may have none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(depthwise);
INSTANTIATE_TEST_SUITE_P(rows, depthwise, testing::ValuesIn(test::rows_of(kind::depthwise_f32)), test::name_of_row);

}  // namespace
}  // namespace quern
