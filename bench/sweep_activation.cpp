// SPDX-License-Identifier: MIT
//
//   sweep_activation [NAME...]
//
// Puts all 2^32 floats through activations, as the gemm_f32 kernels of this machine compute them, and prints
// the largest error against float64 and where it is.  Minutes for each; fails where kernels disagree.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "../test/activation_exact.h"
#include "../test/tile_activation.h"

namespace {

using namespace quern;

struct activation_row {
  const char* name;
  quern_activation activation;
  float alpha, beta;
};

constexpr activation_row table[] = {
    {"relu", QUERN_RELU, 0, 0},
    {"clamp", QUERN_CLAMP, 0, 6},
    {"leaky_relu", QUERN_LEAKY_RELU, 0.1f, 0},
    {"sigmoid", QUERN_SIGMOID, 0, 0},
    {"silu", QUERN_SILU, 0, 0},
    {"hard_sigmoid", QUERN_HARD_SIGMOID, 1.0f / 6, 0.5f},
    {"hard_swish", QUERN_HARD_SWISH, 1.0f / 6, 0.5f},
    {"tanh", QUERN_TANH, 0, 0},
    {"gelu", QUERN_GELU, 0, 0},
    {"mish", QUERN_MISH, 0, 0},
    {"gelu_tanh", QUERN_GELU_TANH, 0, 0},
    {"gelu_sigmoid", QUERN_GELU_SIGMOID, 0, 0},
};

// One kernel of each instruction set: those of one share their code.
std::vector<const kernel*> one_of_each_isa() {
  std::vector<const kernel*> rows;
  for (const kernel* row : test::gemm_rows()) {
    if (rows.empty() || rows.back()->isa != row->isa) rows.push_back(row);
  }
  return rows;
}

bool same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b); }

// Whether all kernels agree.
bool sweep(const activation_row& a, const std::vector<const kernel*>& rows) {
  constexpr uint64_t all = uint64_t{1} << 32, block = 1 << 16;
  const epilogue_f32 e = test::plain_epilogue(a.activation, a.alpha, a.beta);
  std::vector<float> x(block), y, other;
  double worst = 0;
  float at = 0;
  uint64_t differ = 0;
  for (uint64_t bits = 0; bits < all; bits += block) {
    for (uint64_t i = 0; i < block; ++i) x[i] = std::bit_cast<float>(static_cast<uint32_t>(bits + i));
    y = x;
    test::apply(*rows[0], e, y);
    for (uint64_t i = 0; i < block; ++i) {
      const double error = test::ulps(y[i], test::exact(a.activation, x[i], a.alpha, a.beta, 0));
      if (error > worst) worst = error, at = x[i];
    }
    for (size_t r = 1; r < rows.size(); ++r) {
      other = x;
      test::apply(*rows[r], e, other);
      for (uint64_t i = 0; i < block; ++i) differ += !same(y[i], other[i]);
    }
  }
  std::printf("%-14s %8.4f ulp at %.9g (%a)", a.name, worst, at, at);
  if (rows.size() > 1) std::printf("   %llu differ between ISAs", static_cast<unsigned long long>(differ));
  std::printf("\n");
  std::fflush(stdout);
  return differ == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<const kernel*> rows = one_of_each_isa();
  if (rows.empty()) {
    std::fprintf(stderr, "sweep_activation: this CPU runs no gemm_f32 kernel\n");
    return 1;
  }
  bool agree = true;
  if (argc == 1) {
    for (const activation_row& a : table) agree &= sweep(a, rows);
  }
  for (int i = 1; i < argc; ++i) {
    const activation_row* found = nullptr;
    for (const activation_row& a : table) {
      if (std::strcmp(a.name, argv[i]) == 0) found = &a;
    }
    if (!found) {
      std::fprintf(stderr, "sweep_activation: no activation called '%s'; there are", argv[i]);
      for (const activation_row& a : table) std::fprintf(stderr, " %s", a.name);
      std::fprintf(stderr, "\n");
      return 2;
    }
    agree &= sweep(*found, rows);
  }
  return agree ? 0 : 1;
}
