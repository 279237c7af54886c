// SPDX-License-Identifier: MIT
//
// Results against float64, as error bounds and classes speak of them.
#pragma once

#include <cmath>
#include <vector>

#include "compare.h"

namespace quern::test {

// The problem in double, from the same operands or from their magnitudes: in the order n k o p q.
inline std::vector<double> in_double(quern_problem p, const operands& in, bool magnitudes = false) {
  const auto wide = [magnitudes](const auto& from) {
    std::vector<double> to(from.begin(), from.end());
    for (double& x : to) x = magnitudes ? std::fabs(x) : x;
    return to;
  };
  const std::vector<double> src = wide(in.src), weights = wide(in.weights), residual = wide(in.residual),
                            scale = wide(in.scale), bias = wide(in.bias), slope = wide(in.slope);
  for (quern_tensor* t : {&p.src, &p.weights, &p.dst, &p.residual})
    if (t->type) t->type = QUERN_F64;
  p.accuracy = QUERN_ACCURACY_DEFAULT;
  std::vector<double> dst(static_cast<size_t>(extent(p.dst)));
  quern_args args = {};
  args.size = sizeof args;
  args.src = src.data(), args.weights = weights.data(), args.residual = residual.data();
  args.scale = scale.data(), args.bias = bias.data(), args.slope = slope.data(), args.dst = dst.data();
  quern_error error = {};
  EXPECT_EQ(quern_compute(&p, &args, nullptr, &error), QUERN_OK) << error.text;
  std::vector<double> list;
  each(p.dst, [&](size_t at) { list.push_back(dst[at]); });
  return list;
}

struct errors {
  double largest = 0;   // over the largest input times the sum of the weights' magnitudes
  double relative = 0;  // L2
};

// Of a candidate of a convolution without epilogue, against double.
inline errors errors_of(const quern_problem& p, const operands& in, const std::vector<double>& want,
                        const quern_candidate& c, const way& how = {}) {
  const solution got = solve(p, in, c.algorithm, c.kernel, how);
  EXPECT_EQ(got.failure, "");
  double input = 0, above = 0, below = 0;
  for (float x : in.src) input = std::max(input, std::fabs(double(x)));
  errors e;
  const size_t pixels = got.dst.size() / static_cast<size_t>(p.dst.size[0] * p.dst.size[1]);
  for (size_t i = 0; i < got.dst.size(); ++i) {
    const int64_t k = static_cast<int64_t>(i / pixels) % p.dst.size[1];
    double weights = 0;
    const int64_t* size = p.weights.size;
    const int64_t* stride = p.weights.stride;
    for (int64_t ch = 0; ch < size[1]; ++ch)
      for (int64_t r = 0; r < size[3]; ++r)
        for (int64_t s = 0; s < size[4]; ++s)
          weights += std::fabs(
              double(in.weights[static_cast<size_t>(k * stride[0] + ch * stride[1] + r * stride[3] + s * stride[4])]));
    const double error = double(got.dst[i]) - want[i];
    e.largest = std::max(e.largest, std::fabs(error) / (input * weights));
    above += error * error, below += want[i] * want[i];
  }
  e.relative = std::sqrt(above / below);
  return e;
}

}  // namespace quern::test
