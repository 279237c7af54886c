// SPDX-License-Identifier: MIT
//
// Runs activations through the gemm_f32 kernels of this machine: a product without taps that starts from
// C leaves C to the epilogue.
#pragma once

#include <quern/quern.h>

#include <algorithm>
#include <vector>

#include "kernel_rows.h"

namespace quern::test {

// The rows of kind gemm_f32 that this CPU runs.
inline std::vector<const kernel*> gemm_rows() {
  std::vector<const kernel*> rows = rows_of(kind::gemm_f32);
  std::erase_if(rows, [](const kernel* row) { return missing_here(*row) != 0; });
  return rows;
}

inline epilogue_f32 plain_epilogue(quern_activation activation, float alpha, float beta) {
  epilogue_f32 e = {};
  e.alpha = e.beta = 1;
  e.activation = activation;
  e.activation_alpha = alpha;
  e.activation_beta = beta;
  return e;
}

// Replaces each value by its activation.  PReLU takes the slope of column 0 for every column.
inline void apply(const kernel& row, const epilogue_f32& e, std::vector<float>& values) {
  const size_t mr = static_cast<size_t>(row.mr), nr = static_cast<size_t>(row.nr);
  const std::vector<float> slope(nr, e.slope ? *e.slope : 0.0f);
  epilogue_f32 tile = e;
  tile.slope = slope.data();
  gemm_f32 g = {};
  g.accumulate = true;
  g.out.epilogue = &tile;
  for (size_t i = 0; i < values.size(); i += g.m * g.n) {
    const size_t rest = values.size() - i;
    g.m = std::clamp<size_t>(rest / nr, 1, mr);
    g.n = g.out.ldc = std::min(rest, nr);
    g.out.c = values.data() + i;
    row.gemm(g);
  }
}

}  // namespace quern::test
