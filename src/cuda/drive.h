// SPDX-License-Identifier: MIT
//
// What the drivers of a GPU's kernels share on this side.
#pragma once

#include "cuda/dims.h"
#include "cuda/output.h"
#include "cuda_device.h"
#include "driver.h"
#include "problem.h"

namespace quern {

// Whether chunks of so many channels are aligned, in all pixels.
inline bool in_chunks(const void* p, const int64_t* stride, int64_t channels, quern_type type) {
  return reinterpret_cast<uintptr_t>(p) % uintptr_t(channels * type_bytes(type)) == 0 && stride[0] % channels == 0 &&
         stride[1] == 1 && stride[2] % channels == 0 && stride[3] % channels == 0 && stride[4] % channels == 0;
}

// Elements as the copy engine's maps are told of them.
inline int map_type(quern_type type) {
  return type == QUERN_F32    ? cuda_map_f32
         : type == QUERN_F16  ? cuda_map_f16
         : type == QUERN_BF16 ? cuda_map_bf16
                              : cuda_map_bytes;
}

// Products of TF32 have errors that a chain of a few multiply-adds stays below.
inline refusal refuse_short_sums(const quern_problem& p) {
  if (p.src.type != QUERN_F32 || sum_length(p) >= 64 || p.accuracy >= QUERN_ACCURACY_F32_FAST) return {};
  return {QUERN_REASON_ACCURACY, "accuracy", p.accuracy, QUERN_ACCURACY_F32_FAST};
}

// All images in and out, once through memory.
inline double tensor_bytes(const geometry& g, quern_type src, quern_type dst) {
  return double(g.n * g.groups) * (double(type_bytes(src)) * double(g.c) * double(g.in[0] * g.in[1] * g.in[2]) +
                                   double(type_bytes(dst)) * double(g.k) * double(g.out[0] * g.out[1] * g.out[2]));
}

// Whether channels of 16 bytes lie side by side, aligned, throughout; NULL is.
inline bool whole_channels(const void* p, const quern_tensor& t, quern_type type) {
  const int64_t v = 16 / type_bytes(type), block = block_of(t.layout);
  if (reinterpret_cast<uintptr_t>(p) % 16 != 0 || t.size[1] % v != 0) return false;
  if (block == 1 ? t.stride[1] != 1 : block % v != 0 || (t.size[1] > block && t.stride[1] % v != 0)) return false;
  for (const int i : {0, 2, 3, 4})
    if (t.size[i] > 1 && t.stride[i] % v != 0) return false;
  return true;
}

// Another axis, where it has more steps than one.
inline void add_axis(dims& d, const dim& axis) {
  if (axis.count != 1) d.axis[d.used++] = axis;
}

// By their distance in one tensor, densest first; those that follow each other in all are one.  `channels`: where
// channels are told apart.  Returns how many are left.
inline int32_t join_axes(dim* axis, int32_t count, bool channels, int64_t dim::*by) {
  std::sort(axis, axis + count, [=](const dim& a, const dim& b) { return a.*by < b.*by; });
  int32_t used = 0;
  for (int32_t i = 0; i < count; ++i) {
    const dim next = axis[i];
    dim* const before = axis + used - 1;
    const auto follows = [&](auto stride) { return next.*stride == before->count * before->*stride; };
    if (used > 0 && follows(&dim::src) && follows(&dim::dst) && follows(&dim::residual) && follows(&dim::weights) &&
        (!channels || follows(&dim::channel))) {
      before->count *= next.count;
    } else {
      axis[used++] = next;
    }
  }
  if (used == 0) axis[0] = {1, 0, 1, 1, 1, 1, {}};  // for who looks at the densest
  return used;
}

// For chunks of v elements along the densest.
inline void invert_counts(dims& d, int64_t v) {
  for (int32_t i = 0; i < d.used; ++i) d.axis[i].steps = divisor_of(d.axis[i].count / (i == 0 ? v : 1));
}

// Whether chunks of v elements are aligned: `first`: they lie along the densest axis.
inline bool in_wholes(const dims& d, int64_t dim::*stride, const void* memory, int64_t v, bool first) {
  if (reinterpret_cast<uintptr_t>(memory) % 16 != 0) return false;
  for (int32_t i = 0; i < d.used; ++i)
    if (first && i == 0 ? d.axis[0].*stride != 1 : d.axis[i].*stride % v != 0) return false;
  return true;
}

// Blocks whose shared memory fits on a multiprocessor; each takes a kilobyte more than it asks for.
inline int64_t fit_together(const kernel& row, const machine& m) {
  return std::max<int64_t>(1, int64_t(m.gpu.shared_bytes) / int64_t(row.shared_bytes + 1024));
}

// Shared memory of a block, so much that no multiprocessor has more of so many blocks than its share: those of the next
// kernel start beside them, and would leave others their places.  `together`: that may be on one.
inline int64_t shared_of(int64_t blocks, int64_t together, const machine& m) {
  const int64_t share = up(blocks, std::max(1u, m.gpu.multiprocessors));
  return share <= together ? int64_t(m.gpu.shared_bytes) / share / 1024 * 1024 - 1024 : 0;
}

// Of anything that a kernel counts in 32 bits.
inline constexpr int64_t most_counted = int64_t{1} << 30;
inline refusal refuse_many(double count, const char* what) {
  if (count <= double(most_counted)) return {};
  return {QUERN_REASON_SHAPE, what, int64_t(std::min(count, 1e18)), most_counted};
}

// All operands once through memory, at the part of its rate that kernels reach.
inline double moved_ns(const quern_problem& p, const machine& m) {
  return bytes_moved(p) / (double(m.gpu.bandwidth) * 0.8e-9);
}

// dst of a phase, which has outputs, for a kernel that writes so many channels at once.
inline gpu_output output_of(const job& j, const geometry& g, const phase& ph, const quern_args& args, int64_t chunk) {
  gpu_output out = {};
  const axis* axes[] = {&ph.d, &ph.h, &ph.w};
  int64_t to = 0, from = 0;
  std::copy_n(g.dst, 2, out.dst_stride), std::copy_n(g.residual, 2, out.residual_stride);
  for (int i = 0; i < 3; ++i) {
    out.size[i] = int32_t(axes[i]->out_count);
    out.dst_stride[2 + i] = axes[i]->out_step * g.dst[2 + i];
    out.residual_stride[2 + i] = axes[i]->out_step * g.residual[2 + i];
    to += axes[i]->out_begin * g.dst[2 + i], from += axes[i]->out_begin * g.residual[2 + i];
  }
  out.pixels = int32_t(g.n * ph.outputs()), out.k = int32_t(g.k);
  out.epilogue = epilogue_of(j.problem, args);
  const quern_type type = out.type = j.problem.dst.type;
  out.dst = static_cast<char*>(args.dst) + to * type_bytes(type);
  out.residual = out.epilogue.residual ? static_cast<const char*>(args.residual) + from * type_bytes(type) : nullptr;
  out.vector = type != QUERN_S32 && in_chunks(out.dst, out.dst_stride, chunk, type) && g.k % chunk == 0 &&
               (!out.residual || in_chunks(out.residual, out.residual_stride, chunk, type));
  const auto even = [&](const int64_t* stride) {
    int64_t pixels = 1;
    for (const int axis : {2, 1, 0}) {
      if (out.size[axis] > 1 && stride[2 + axis] != pixels * stride[4]) return false;
      pixels *= out.size[axis];
    }
    return g.n == 1 || stride[0] == pixels * stride[4];
  };
  out.even = even(out.dst_stride) && (!out.residual || even(out.residual_stride));
  return out;
}

}  // namespace quern
