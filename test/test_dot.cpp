// SPDX-License-Identifier: MIT
//
// Dot products over channels: every dot_f32 row that this CPU runs, exact on small integers for every number of pixels,
// outputs and channels, between guard pages; the bits that the contract says on any numbers; and convolutions to few
// outputs in every layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "fuzz.h"
#include "guard.h"
#include "kernel_test.h"
#include "tile_activation.h"

namespace quern::test {
namespace {

constexpr float canary = -77.25f;

class dot : public kernel_test {
 protected:
  size_t gap() { return static_cast<size_t>(dice_.from(0, 5)); }

  // m pixels by n outputs, k channels a tap: sixteens of channels apart, pixels apart, outputs in another order.
  testing::AssertionResult check(size_t m, size_t n, size_t k, size_t taps, bool integers, edge side) {
    const auto draw = [&] {
      return integers ? dice_.integer(-4, 4)
                      : std::ldexp(dice_.integer(-4000000, 4000000), static_cast<int>(dice_.from(-26, -18)));
    };
    const size_t blocks = (k + 15) / 16, apart = 16 + gap(), held = k ? (blocks - 1) * apart + (k - 1) % 16 + 1 : 0,
                 pixel = held + gap(), tap_apart = m * pixel + gap();
    guarded<float> a(taps && k ? (taps - 1) * tap_apart + (m - 1) * pixel + held : 0, side);
    std::fill(a.begin(), a.end(), std::numeric_limits<float>::quiet_NaN());
    const size_t ldb = taps * blocks * 16 + gap();
    guarded<float> b((n - 1) * ldb + taps * blocks * 16, side);
    std::fill(b.begin(), b.end(), 0.0f);
    std::vector<gemm_tap> tap(taps);
    for (size_t t = 0; t < taps; ++t) {
      // Taps lie the other way round in A.
      tap[t] = {static_cast<ptrdiff_t>((taps - 1 - t) * tap_apart), static_cast<ptrdiff_t>(t * blocks * 16)};
      for (size_t p = 0; p < k; ++p) {
        for (size_t i = 0; i < m; ++i)
          a[static_cast<size_t>(tap[t].a) + i * pixel + p / 16 * apart + p % 16] = static_cast<float>(draw());
        for (size_t j = 0; j < n; ++j) b[j * ldb + static_cast<size_t>(tap[t].b) + p] = static_cast<float>(draw());
      }
    }
    a.protect(), b.protect();

    const size_t channel = gap(), out_pixel = n + gap(), residual_pixel = n + gap();
    std::vector<size_t> column(n), residual_column(n);
    for (size_t j = 0; j < n; ++j) column[j] = n - 1 - j, residual_column[j] = j;
    std::vector<float> bias(channel + n), scale(channel + n), residual((m - 1) * residual_pixel + n);
    for (std::vector<float>* v : {&bias, &scale, &residual})
      for (float& x : *v) x = static_cast<float>(dice_.integer(-4, 4));
    guarded<float> dst((m - 1) * out_pixel + n, side);
    std::fill(dst.begin(), dst.end(), canary);
    epilogue_f32 e = plain_epilogue(QUERN_CLAMP, -50, 60);
    if (integers) {
      e.bias = dice_.one_in(3) ? nullptr : bias.data();
      if (dice_.one_in(2)) e.scale = scale.data(), e.residual = QUERN_RESIDUAL_BEFORE;
    } else {
      e.activation = QUERN_IDENTITY;
    }
    dot_f32 d = {};
    d.m = m, d.n = n, d.k = k, d.taps = taps;
    d.tap = tap.data();
    d.a = a.data(), d.lda = pixel, d.next = apart;
    d.b = b.data(), d.ldb = ldb;
    d.out.c = dst.data(), d.out.ldc = out_pixel, d.out.epilogue = &e, d.out.channel = channel;
    if (e.residual) d.out.residual = residual.data(), d.out.ldr = residual_pixel;
    d.column = column.data(), d.residual_column = residual_column.data();
    row().dot(d);

    std::vector<float> want(dst.size(), canary);
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j < n; ++j) {
        float lane[16] = {};
        for (const gemm_tap& t : tap)
          for (size_t p = 0; p < k; ++p)
            lane[p % 16] = std::fma(a[static_cast<size_t>(t.a) + i * pixel + p / 16 * apart + p % 16],
                                    b[j * ldb + static_cast<size_t>(t.b) + p], lane[p % 16]);
        for (size_t l = 0; l < 8; ++l) lane[l] += lane[l + 8];
        for (size_t l = 0; l < 4; ++l) lane[l] += lane[l + 4];
        float y = (lane[0] + lane[1]) + (lane[2] + lane[3]);
        if (e.scale) y *= scale[channel + j];
        if (e.bias) y += bias[channel + j];
        if (e.residual) y += residual[i * residual_pixel + residual_column[j]];
        want[i * out_pixel + column[j]] = e.activation == QUERN_CLAMP ? std::min(60.0f, std::max(-50.0f, y)) : y;
      }
    for (size_t i = 0; i < want.size(); ++i)
      if (dst[i] != want[i])
        return testing::AssertionFailure()
               << row().name << " m " << m << " n " << n << " k " << k << " taps " << taps << ": pixel "
               << i / out_pixel << " column " << i % out_pixel << " is " << dst[i] << ", must be " << want[i];
    return testing::AssertionSuccess();
  }

  dice dice_{seed()};
};

TEST_P(dot, is_exact_on_small_integers_between_guard_pages) {
  for (const edge side : {edge::front, edge::back})
    for (size_t n = 1; n <= static_cast<size_t>(row().nr); ++n)
      for (const size_t m : {1, 2, 3, 5, 8, 9, 31, 63, 64})
        for (const size_t k : {1, 7, 15, 16, 17, 32, 47, 64})
          for (const size_t taps : {0, 1, 3}) ASSERT_TRUE(check(m, n, k, taps, true, side));
}

TEST_P(dot, sums_lanes_in_the_order_of_the_contract) {
  for (size_t n = 1; n <= static_cast<size_t>(row().nr); ++n)
    for (const size_t m : {1, 7, 64})
      for (const size_t k : {5, 16, 100}) ASSERT_TRUE(check(m, n, k, 3, false, edge::back));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(dot);
INSTANTIATE_TEST_SUITE_P(rows, dot, testing::ValuesIn(rows_of(kind::dot_f32)), name_of_row);

}  // namespace
}  // namespace quern::test
