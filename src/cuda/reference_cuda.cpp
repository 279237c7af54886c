// SPDX-License-Identifier: MIT
//
// The reference on a GPU: every operator as the mathematics reads, summed in float64, each output by a thread.
// Never chosen unless a wish names it.
#include "cuda/reference.h"
#include "cuda_device.h"
#include "driver.h"
#include "geometry.h"
#include "problem.h"

namespace quern {
namespace {

refusal refuse(const full_problem&, const kernel&) { return {}; }

blocking choose_blocks(const full_problem&, const kernel&, const machine&, uint32_t) {
  blocking b = {};
  b.workers = 1;
  return b;
}

// A thread waits some 500 cycles for every product, and a multiprocessor hides that with 2048 of them.
cost predict(const full_problem& p, const kernel&, const blocking&, const machine& m) {
  const double flops = direct_flops(p);
  // An output of a norm, or of a softmax, visits all of its slice.
  const bool slices = has_axes(p.op) && !is_reduction(p.op);
  const double visits = slices ? flops * double(sum_length(p)) : multiplies(p.op) ? flops / 2 : flops;
  return {5000 + visits / (4e-3 * m.gpu.multiprocessors * m.gpu.clock_mhz), flops};
}

double error_bound(const full_problem& p) {
  return roundoff(p.dst.type) + (static_cast<double>(sum_length(p)) + 1) * 0x1p-53;
}

uint32_t blocks_for(int64_t elements, const kernel& row) {
  return static_cast<uint32_t>(std::min<int64_t>(up(elements, row.threads), 1 << 30));
}

quern_status launch_friend(const job& j, const launching& l) {
  reference_friend r = {};
  r.p = j.problem;
  r.elements = 1;
  for (const int64_t size : r.p.dst.size) r.elements *= size;
  r.src = l.args.src, r.weights = l.packed, r.residual = l.args.residual, r.dst = l.args.dst;
  r.epilogue = epilogue_of(j.problem, l.args);
  return launch_kernel(l, j.row, blocks_for(r.elements, j.row), &r);
}

quern_status launch(const job& j, const launching& l) {
  if (!multiplies(j.problem.op)) return launch_friend(j, l);
  const geometry& g = geometry_of(j.problem);
  reference_cuda r = {};
  r.c = g.c, r.k = g.k, r.channels = g.k * g.groups;
  r.elements = g.n * r.channels * g.out[0] * g.out[1] * g.out[2];
  r.weights_group = g.weights_group;
  r.transposed = g.transposed;
  r.type = j.problem.dst.type;
  std::copy_n(g.src, 5, r.src_stride), std::copy_n(g.weights, 5, r.weights_stride);
  std::copy_n(g.dst, 5, r.dst_stride), std::copy_n(g.residual, 5, r.residual_stride);
  r.src_block = g.src_block, r.dst_block = g.dst_block, r.residual_block = g.residual_block;
  std::copy_n(g.in, 3, r.in), std::copy_n(g.out, 3, r.out), std::copy_n(g.filter, 3, r.filter);
  std::copy_n(g.stride, 3, r.stride), std::copy_n(g.dilation, 3, r.dilation), std::copy_n(g.pad, 3, r.pad);
  r.src = l.args.src, r.weights = l.packed, r.residual = l.args.residual, r.dst = l.args.dst;
  r.epilogue = epilogue_of(j.problem, l.args);
  return launch_kernel(l, j.row, blocks_for(r.elements, j.row), &r);
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(reference_cuda, .about = "the operator's formula in float64, one thread an output",
                .drives = kind::reference_cuda, .accuracy = QUERN_ACCURACY_F32, .repeat = QUERN_REPEAT_ISA,
                .on_request = true, .refuse = refuse, .choose_blocks = choose_blocks, .predict = predict,
                .error_bound = error_bound, .launch = launch)
