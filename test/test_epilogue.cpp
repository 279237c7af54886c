// SPDX-License-Identifier: MIT
//
// The epilogue of every gemm_f32 kernel, bit by bit: the order of operations that epilogue.h states, on every
// m and n of the tile, without touching a byte beside it.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "build_isas.h"
#include "tile_activation.h"

namespace quern {
namespace {

constexpr size_t channel = 3;  // of the first row or column
constexpr float canary = -77.25f;

struct combination {
  quern_activation activation;
  int32_t residual;
  bool scale, bias, rows;
  float alpha, beta;
};

bool same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b); }

// One tile with random operands against scalar arithmetic.
void check(const kernel& row, const combination& k, size_t m, size_t n, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 2);
  const auto numbers = [&](size_t count) {
    std::vector<float> v(count);
    for (float& x : v) x = normal(random);
    return v;
  };
  const size_t ldc = n + 5, ldr = n + 2, channels = channel + (k.rows ? m : n);
  const std::vector<float> scale = numbers(channels), bias = numbers(channels), slope = numbers(channels);
  const std::vector<float> residual = numbers((m - 1) * ldr + n);
  std::vector<float> c = numbers((m - 1) * ldc + n);
  for (size_t i = 0; i + 1 < m; ++i) std::fill_n(&c[i * ldc + n], ldc - n, canary);

  epilogue_f32 e = test::plain_epilogue(k.activation, k.activation == QUERN_CLAMP ? -1 : 0.25f, 0.5f);
  e.alpha = k.alpha;
  e.beta = k.beta;
  e.scale = k.scale ? scale.data() : nullptr;
  e.bias = k.bias ? bias.data() : nullptr;
  e.slope = k.activation == QUERN_PRELU ? slope.data() : nullptr;
  e.residual = k.residual;

  std::vector<float> want = c;
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      const size_t at = channel + (k.rows ? i : j);
      const float add = residual[i * ldr + j];
      float& y = want[i * ldc + j];
      const float factor = k.scale ? k.alpha * scale[at] : k.alpha;
      y = k.bias ? std::fma(y, factor, bias[at]) : y * factor;
      if (k.residual == QUERN_RESIDUAL_BEFORE) y = std::fma(k.beta, add, y);
      std::vector<float> one = {y};
      epilogue_f32 activation = test::plain_epilogue(k.activation, e.activation_alpha, e.activation_beta);
      activation.slope = &slope[at];
      test::apply(row, activation, one);
      y = one[0];
      if (k.residual == QUERN_RESIDUAL_AFTER) y = std::fma(k.beta, add, y);
    }
  }

  gemm_f32 g = {};
  g.m = m, g.n = n;
  g.out.c = c.data(), g.out.ldc = ldc;
  g.accumulate = true;
  g.out.epilogue = &e;
  g.out.channels_are_rows = k.rows;
  g.out.channel = channel;
  g.out.residual = k.residual ? residual.data() : nullptr, g.out.ldr = ldr;
  row.gemm(g);
  for (size_t i = 0; i < c.size(); ++i) {
    ASSERT_TRUE(same(c[i], want[i])) << row.name << " m " << m << " n " << n << " element " << i << " is " << c[i]
                                     << ", must be " << want[i] << "; activation " << k.activation << " residual "
                                     << k.residual << " scale " << k.scale << " bias " << k.bias << " rows " << k.rows;
  }
}

TEST(epilogue, follows_the_stated_order_on_every_tile) {
  std::mt19937 random(7);
  for (const kernel* row : test::gemm_rows()) {
    const size_t mr = static_cast<size_t>(row->mr), nr = static_cast<size_t>(row->nr);
    uint32_t turn = 0;
    for (size_t m = 1; m <= mr; ++m) {
      for (size_t n = 1; n <= nr; ++n, ++turn) {
        const combination k = {.activation = static_cast<quern_activation>(turn % (QUERN_GELU_SIGMOID + 1)),
                               .residual = static_cast<int32_t>(turn / 12 % 3),
                               .scale = (random() & 1) != 0,
                               .bias = (random() & 1) != 0,
                               .rows = (random() & 1) != 0,
                               .alpha = random() & 1 ? 1.0f : 0.75f,
                               .beta = random() & 1 ? 1.0f : -1.5f};
        ASSERT_NO_FATAL_FAILURE(check(*row, k, m, n, random));
      }
    }
  }
}

TEST(epilogue, has_every_combination) {
  std::mt19937 random(8);
  for (const kernel* row : test::gemm_rows()) {
    const size_t n = static_cast<size_t>(row->nr) - 1;
    for (quern_activation activation = QUERN_IDENTITY; activation <= QUERN_GELU_SIGMOID; ++activation) {
      for (int32_t residual = QUERN_RESIDUAL_NONE; residual <= QUERN_RESIDUAL_AFTER; ++residual) {
        for (uint32_t bits = 0; bits < 16; ++bits) {
          const combination k = {
              activation, residual, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, bits & 8 ? 2.5f : 1.0f, 0.5f};
          ASSERT_NO_FATAL_FAILURE(check(*row, k, 2, n, random));
        }
      }
    }
  }
}

TEST(epilogue, clamps_in_registers_as_in_general) {
  using limits = std::numeric_limits<float>;
  const float infinity = limits::infinity(), nan = limits::quiet_NaN();
  for (const kernel* row : test::gemm_rows()) {
    std::vector<float> x(static_cast<size_t>(row->mr) * static_cast<size_t>(row->nr) + 5);
    const float least = keeps_denormals ? limits::denorm_min() : limits::min();
    const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, 7.0f, -7.0f, infinity, -infinity, nan, least, -least};
    for (size_t i = 0; i < x.size(); ++i) x[i] = special[i % std::size(special)];
    struct {
      quern_activation activation;
      float lower, upper;
    } const cases[] = {
        {QUERN_IDENTITY, -infinity, infinity}, {QUERN_RELU, 0, infinity}, {QUERN_CLAMP, -2, 6}, {QUERN_CLAMP, 0, 6}};
    for (const auto& c : cases) {
      epilogue_f32 e = test::plain_epilogue(c.activation, c.lower, c.upper);
      std::vector<float> general = x, registers = x;
      test::apply(*row, e, general);
      e.clamp_only = true, e.lower = c.lower, e.upper = c.upper;
      test::apply(*row, e, registers);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_TRUE(same(general[i], registers[i])) << row->name << " activation " << c.activation << " of " << x[i]
                                                    << ": " << general[i] << " and " << registers[i];
      }
    }
  }
}

}  // namespace
}  // namespace quern
