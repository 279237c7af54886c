// SPDX-License-Identifier: MIT
//
// What the drivers of a GPU's kernels share on this side.
#pragma once

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

// Products of TF32 have errors that a chain of a few multiply-adds stays below.
inline refusal refuse_short_sums(const quern_problem& p) {
  if (p.src.type != QUERN_F32 || sum_length(p) >= 64 || p.accuracy >= QUERN_ACCURACY_F32_FAST) return {};
  return {QUERN_REASON_ACCURACY, "accuracy", p.accuracy, QUERN_ACCURACY_F32_FAST};
}

// All images in and out, once through memory.
inline double tensor_bytes(const geometry& g, quern_type type) {
  return double(type_bytes(type)) * (double(g.n * g.groups) * (double(g.c) * double(g.in[0] * g.in[1] * g.in[2]) +
                                                               double(g.k) * double(g.out[0] * g.out[1] * g.out[2])));
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
  const quern_type type = j.row.type;
  out.dst = static_cast<char*>(args.dst) + to * type_bytes(type);
  out.residual = out.epilogue.residual ? static_cast<const char*>(args.residual) + from * type_bytes(type) : nullptr;
  out.vector = in_chunks(out.dst, out.dst_stride, chunk, type) && g.k % chunk == 0 &&
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
