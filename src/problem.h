// SPDX-License-Identifier: MIT
//
// What everything behind the API may ask about a problem.
#pragma once

#include <quern/quern.h>

#include <algorithm>

#include "layout.h"
#include "operators.h"

namespace quern {

// quern_problem_complete into a whole struct of this library.  What it lets through is safe to compute
// with in int64: every tensor spans at most 2^56 bytes (as many as a process can address) whether or not
// another of its sizes is zero, pads, window strides, dilations and groups are below 2^31, and there are
// at most 2^62 multiply-adds.  On failure `out` is untouched.
quern_status complete(const quern_problem*, quern_problem& out, quern_error*);

// The functions below take complete problems and tensors.

// Whether dst has no elements, so that there is nothing to do.
inline bool empty(const quern_problem& p) {
  for (int64_t size : p.dst.size) {
    if (size == 0) return true;
  }
  return false;
}

// Whether a layout is still to be chosen; then strides of that tensor are zero.
inline bool has_any(const quern_problem& p) { return p.src.layout == QUERN_ANY || p.dst.layout == QUERN_ANY; }

// Calls visit(problem) with every problem without QUERN_ANY that `p` stands for: once with itself when it has none.
template <class Visit>
void for_each_layout(const quern_problem& p, Visit visit);

// Bytes of one element.
inline int64_t type_bytes(quern_type type) {
  static constexpr int8_t bytes[] = {0, 4, 8, 2, 2, 1, 1, 4};
  return bytes[type];
}

// What rounding to it adds at most, relative to the number; integers are rounded from f32.
inline double roundoff(quern_type type) {
  static constexpr double least[] = {0, 0x1p-24, 0x1p-53, 0x1p-11, 0x1p-8, 0x1p-24, 0x1p-4, 0};
  return least[type];
}

// Integers of 8 bits have no other errors than the epilogue's: their sums are exact.
inline bool sums_exactly(const quern_problem& p) { return p.src.type == QUERN_S8; }

// The class that a problem accepts which asks for none.
inline quern_accuracy default_accuracy(quern_type src) {
  return src == QUERN_S8     ? QUERN_ACCURACY_EXACT
         : src == QUERN_E4M3 ? QUERN_ACCURACY_F16
         : src == QUERN_F64  ? QUERN_ACCURACY_F32
                             : QUERN_ACCURACY_F32_FAST;
}

// The type of scale, bias and slope.
inline quern_type vector_type(const quern_problem& p) { return p.src.type == QUERN_F64 ? QUERN_F64 : QUERN_F32; }

// Elements from the first to the last of a tensor, both included; 0 when a size is 0.
inline int64_t extent(const quern_tensor& t) {
  int64_t last = 0;
  for (int i = 0; i < 5; ++i) {
    if (t.size[i] == 0) return 0;
    if (i != 1) last += (t.size[i] - 1) * t.stride[i];
  }
  // The last channel, or that of the last whole block: the one after it may have few.
  const int64_t c = t.size[1], block = block_of(t.layout), whole = c / block * block;
  const auto offset = [&](int64_t channel) { return channel_offset(channel, t.stride[1], block); };
  return last + (whole > 0 ? std::max(offset(whole - 1), offset(c - 1)) : offset(c - 1)) + 1;
}

inline uint64_t bytes_of(const quern_tensor& t) { return static_cast<uint64_t>(extent(t) * type_bytes(t.type)); }

// Output channels, of all groups.
inline int64_t output_channels(const quern_problem& p) { return p.dst.size[p.op == QUERN_GEMM ? 4 : 1]; }

// The strides of a tensor of these sizes that lies dense in its layout; a size of zero counts as one.
void dense_strides(quern_layout, const int64_t size[5], int64_t stride[5]);

// Gives a tensor whose layout is QUERN_ANY this one, dense; false when it would pass the limit.
bool lay_out(quern_tensor&, quern_layout);

template <class Visit>
void for_each_layout(const quern_problem& p, Visit visit) {
  if (!has_any(p)) return visit(p);
  const auto last = [](const quern_tensor& t) { return t.layout == QUERN_ANY ? QUERN_NC16HW16 : QUERN_NCHW; };
  for (quern_layout src = QUERN_NCHW; src <= last(p.src); ++src)
    for (quern_layout dst = QUERN_NCHW; dst <= last(p.dst); ++dst) {
      quern_problem q = p;
      if (lay_out(q.src, src) && lay_out(q.dst, dst) && lay_out(q.residual, dst)) visit(q);
    }
}

// The most products, or elements, that one output sums up, padding included.
int64_t sum_length(const quern_problem&);

// Of pooling: one window has all of the image, and no padding.
bool is_whole_image(const quern_problem&);

// 2 for each multiply-add of the direct formula whose tap does not fall on padding, as benchdnn counts; without
// products 1 for each element that an output, or a slice, is made of.
double direct_flops(const quern_problem&);

// Of all operands.
double bytes_moved(const quern_problem&);

}  // namespace quern
