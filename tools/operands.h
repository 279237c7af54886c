// SPDX-License-Identifier: MIT
//
// Memory for a problem's operands, filled with random data, and what its dst should be in float64.
#pragma once

#include <quern/quern.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

namespace tools {

// Bytes aligned to QUERN_ALIGN; throws a stop when there are none left.
class buffer {
 public:
  explicit buffer(uint64_t bytes = 0);
  void* get() const { return memory_.get(); }
  float* floats() const { return static_cast<float*>(memory_.get()); }
  uint64_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<void, void (*)(void*)> memory_;
  uint64_t bytes_;
};

enum class values {
  real,     // src uniform in [-1, 1), weights so that sums have a variance of about 1/3
  integers  // small enough for every sum to be exact in f32
};

// Operands of a complete f32 problem.
struct operands {
  operands(const quern_problem&, values, uint64_t seed);
  quern_args args(const void* weights) const;  // dst is `dst`; weights plain or packed

  buffer src, weights, dst, residual, scale, bias, slope;
};

// Bytes that operands of this problem take.
uint64_t operand_bytes(const quern_problem&);

// Output channels of a complete problem, and of one group of it.
int64_t output_channels(const quern_problem&);
int64_t group_channels(const quern_problem&);

// Multiplications and additions of the plain formula.
double direct_flops(const quern_problem&);

// Output channels [first, first + count) of dst in float64, by the library's reference kernel, in the
// dense order n k d h w (GEMM: n m k).  count must be all channels, or stay within one group.  With
// `magnitude`, the sum of |src| * |weights| instead, without epilogue.
std::vector<double> reference(const quern_problem&, const operands&, int64_t first, int64_t count, bool magnitude);

// The same channels as they stand in dst.
std::vector<double> result(const quern_problem&, const operands&, int64_t first, int64_t count);

// Relative L2 error of dst on four output channels (first, last and two at random), all pixels: each is
// one small exact problem, so that large layers stay quick to check.
class channel_check {
 public:
  channel_check(const quern_problem&, const operands&, uint64_t seed);
  double relative_l2(const quern_problem&, const operands&) const;

 private:
  struct channel {
    int64_t index;
    std::vector<double> expected;
  };
  std::vector<channel> channels_;
};

}  // namespace tools
