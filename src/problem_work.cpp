// SPDX-License-Identifier: MIT
//
// How much work a problem is.
#include <algorithm>
#include <numeric>

#include "problem.h"
#include "quotients.h"

namespace quern {

int64_t sum_length(const quern_problem& p) {
  if (p.op == QUERN_REORDER) return 0;
  if (p.op == QUERN_GEMM) return p.src.size[4];
  int64_t length = is_conv(p.op) || p.axes & QUERN_AXIS_C ? p.src.size[1] / p.groups : 1;
  for (int i : {0, 2, 3, 4})
    if (p.axes >> i & 1) length *= p.src.size[i];
  for (int i = 0; i < 3; ++i) {
    const quern_window& w = p.window;
    // One output of the transposed operator takes the taps t whose t * dilation has one residue mod stride.
    const int64_t every = p.op != QUERN_CONV_TRANSPOSED ? 1 : w.stride[i] / std::gcd(w.stride[i], w.dilation[i]);
    length *= (w.filter[i] - 1) / every + 1;
  }
  return length;
}

bool is_whole_image(const quern_problem& p) {
  const quern_window& w = p.window;
  for (int i = 0; i < 3; ++i)
    if (w.pad_begin[i] != 0 || w.pad_end[i] != 0 || w.filter[i] != p.src.size[2 + i] ||
        (w.dilation[i] != 1 && w.filter[i] > 1))
      return false;
  return true;
}

namespace {

// How many pairs of an output o < outputs and a tap t < taps have o * stride + t * dilation <= last.
int64_t pairs_until(int64_t last, int64_t outputs, int64_t taps, int64_t stride, int64_t dilation) {
  if (last < 0 || outputs == 0) return 0;
  // Taps below `full` take every output, those from `some` on none.
  const int64_t some = std::min(taps, last / dilation + 1);
  const int64_t rest = last - (outputs - 1) * stride;
  const int64_t full = rest < 0 ? 0 : std::min(some, rest / dilation + 1);
  const int64_t n = some - full;
  const uint64_t partial = n == 0 ? 0 : sum_of_quotients(n, stride, dilation, last - (some - 1) * dilation) + n;
  return full * outputs + static_cast<int64_t>(partial);
}

}  // namespace

double direct_flops(const quern_problem& p) {
  if (p.op == QUERN_REORDER) return 0;
  const double n = static_cast<double>(p.src.size[0]), two = 2;
  if (p.op == QUERN_GEMM) {
    return two * n * static_cast<double>(p.src.size[3]) * static_cast<double>(p.src.size[4]) *
           static_cast<double>(p.dst.size[4]);
  }
  const double channels = static_cast<double>(p.src.size[1]);
  if (!has_window(p.op)) {
    const int64_t* image = p.src.size + 2;
    return n * channels * static_cast<double>(image[0]) * static_cast<double>(image[1]) * static_cast<double>(image[2]);
  }
  double flops = n * channels;
  if (is_conv(p.op))
    flops = two * n * static_cast<double>(p.dst.size[1]) * static_cast<double>(p.src.size[1] / p.groups);
  for (int i = 0; i < 3; ++i) {
    const quern_window& w = p.window;
    const bool conv = p.op != QUERN_CONV_TRANSPOSED;
    // The transposed operator has the same products with the roles of src and dst exchanged.
    const int64_t image = conv ? p.src.size[2 + i] : p.dst.size[2 + i];
    const int64_t steps = conv ? p.dst.size[2 + i] : p.src.size[2 + i];
    const auto until = [&](int64_t last) { return pairs_until(last, steps, w.filter[i], w.stride[i], w.dilation[i]); };
    flops *= static_cast<double>(until(w.pad_begin[i] + image - 1) - until(w.pad_begin[i] - 1));
  }
  return flops;
}

double bytes_moved(const quern_problem& p) {
  double bytes = 0;
  for (const quern_tensor* t : {&p.src, &p.weights, &p.dst, &p.residual}) {
    if (t == &p.residual && p.epilogue.residual == QUERN_RESIDUAL_NONE) continue;
    double elements = 1;
    for (int64_t size : t->size) elements *= static_cast<double>(size);
    bytes += elements * static_cast<double>(type_bytes(t->type));
  }
  return bytes;
}

}  // namespace quern
