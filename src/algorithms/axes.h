// SPDX-License-Identifier: MIT
//
// Elements of several tensors that belong together, counted along axes of which neighbours that lie alike are one.
#pragma once

#include "driver.h"
#include "problem.h"

namespace quern {

// So many steps, and how far each goes; weights is the other operand of an elementwise operator, 0 where it stays.
struct element_axis {
  int64_t count, src, dst, residual, weights, channel;

  element_axis times(int64_t n) const { return {count, n * src, n * dst, n * residual, n * weights, n * channel}; }
  bool alike(const element_axis& o) const {
    return src == o.src && dst == o.dst && residual == o.residual && weights == o.weights && channel == o.channel;
  }
};

struct axes {
  int used = 0;
  element_axis list[7];  // n, blocks and channels, groups, d, h, w

  void add(const element_axis& a) {
    if (a.count != 1) list[used++] = a;
  }

  // Densest first by their distance in one of the tensors, last those along which it is the same; of those alike, one.
  void join(int64_t element_axis::*in = &element_axis::src) {
    const auto distance = [in](const element_axis& a) { return a.*in == 0 ? INT64_MAX : a.*in; };
    for (int i = 1; i < used; ++i)  // std::sort of so few makes g++ 12 warn of array bounds
      for (int k = i; k > 0 && distance(list[k]) < distance(list[k - 1]); --k) std::swap(list[k], list[k - 1]);
    int kept = 0;
    for (int i = 0; i < used; ++i) {
      if (kept > 0 && list[i].alike(list[kept - 1].times(list[kept - 1].count))) {
        list[kept - 1].count *= list[i].count;
      } else {
        list[kept++] = list[i];
      }
    }
    used = kept;
  }

  // Of all axes from `first` on, elements.
  int64_t count(int first = 0) const {
    int64_t n = 1;
    for (int i = first; i < used; ++i) n *= list[i].count;
    return n;
  }

  // Where element `item` of those from axis `first` on lies.
  element_axis at(int64_t item, int first = 0) const {
    element_axis sum = {};
    for (int i = first; i < used; ++i) {
      const element_axis step = list[i].times(digit(item, list[i].count));
      sum.src += step.src, sum.dst += step.dst, sum.residual += step.residual;
      sum.weights += step.weights, sum.channel += step.channel;
    }
    return sum;
  }
};

// Channels of all tensors lie in blocks of as many, or of none.  The last block may have fewer than the others: two
// runs of channels, whose items drivers have in one list.  Channels that all lie side by side may be parted likewise.
struct channel_run {
  int64_t first, count, block;
};

inline int channel_runs(const quern_problem& p, int64_t block, channel_run* runs) {
  const int64_t c = p.src.size[1], whole = c / block * block;
  int n = 0;
  if (whole > 0) runs[n++] = {0, whole, block};
  if (c > whole) runs[n++] = {whole, c - whole, c - whole};
  return n;
}
inline int channel_runs(const quern_problem& p, channel_run* runs) {
  return channel_runs(p, block_of(p.src.layout), runs);
}

}  // namespace quern
