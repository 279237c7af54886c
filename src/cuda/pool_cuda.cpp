// SPDX-License-Identifier: MIT
//
// Pooling on a GPU, of any window and layout (cuda/pooling.h).  Memory is the limit, and L1 where windows overlap.
#include "cuda/drive.h"
#include "cuda/pooling.h"

namespace quern {
namespace {

refusal refuse(const full_problem& p, const kernel&) {
  // 32 bits count outputs, and inputs from the first tap to the last.
  double most = 1;
  for (const int64_t size : p.dst.size) most *= double(size);
  for (int i = 0; i < 3; ++i) {
    const quern_window& w = p.window;
    const double steps = double(p.dst.size[2 + i]) * double(w.stride[i]) + double(w.filter[i]) * double(w.dilation[i]);
    most = std::max(most, steps + double(w.pad_begin[i]) + double(p.src.size[2 + i]));
  }
  return refuse_many(most, "elements of dst, or of src along an axis");
}

blocking choose_blocks(const full_problem&, const kernel&, const machine&, uint32_t) {
  blocking b = {};
  b.workers = 1;
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking&, const machine& m) {
  const double loads = direct_flops(p) * double(type_bytes(row.type));
  const bool together = whole_channels(nullptr, p.src, row.type) && whole_channels(nullptr, p.dst, row.type);
  // Bytes that a multiprocessor's L1 hands out in a clock, to loads of 16 bytes or of an element.
  const double l1_ns = 1000 * loads / ((together ? 64.0 : 16.0) * m.gpu.multiprocessors * m.gpu.clock_mhz);
  return {2000 + std::max(moved_ns(p, m), l1_ns), direct_flops(p)};
}

double error_bound(const full_problem& p) { return p.op == QUERN_POOL_MAX ? 0 : sum_bound(sum_length(p)); }

quern_status launch(const job& j, const launching& l) {
  const quern_problem& p = j.problem;
  pooling a = {};
  a.src = l.args.src, a.residual = l.args.residual, a.dst = l.args.dst;
  a.epilogue = epilogue_of(p, l.args);
  a.whole = whole_channels(a.src, p.src, j.row.type) && whole_channels(a.dst, p.dst, j.row.type) &&
            (!a.epilogue.residual || whole_channels(a.residual, p.residual, j.row.type));
  a.largest = p.op == QUERN_POOL_MAX;
  const int64_t chunk = a.whole ? 16 / type_bytes(j.row.type) : 1, channels = p.dst.size[1];
  const bool beside = block_of(p.dst.layout) == 1 && (a.whole || p.dst.layout == QUERN_NHWC);
  const int64_t side = beside ? channels : block_of(p.dst.layout);
  a.inner = int32_t(side / chunk), a.channels = int32_t(channels);
  int64_t threads = p.dst.size[0] * up(channels, side) * a.inner;
  double taps = 1;
  for (int i = 0; i < 3; ++i) {
    a.in[i] = int32_t(p.src.size[2 + i]), a.out[i] = int32_t(p.dst.size[2 + i]);
    a.filter[i] = int32_t(p.window.filter[i]), a.stride[i] = int32_t(p.window.stride[i]);
    a.dilation[i] = int32_t(p.window.dilation[i]), a.pad[i] = int32_t(p.window.pad_begin[i]);
    threads *= a.out[i], taps *= double(a.filter[i]);
  }
  a.threads = int32_t(threads);
  a.taps = p.op == QUERN_POOL_AVG_PADDED ? float(taps) : 0;
  std::copy_n(p.src.stride, 5, a.src_stride), std::copy_n(p.dst.stride, 5, a.dst_stride);
  std::copy_n(p.residual.stride, 5, a.residual_stride);
  a.src_block = block_of(p.src.layout), a.dst_block = block_of(p.dst.layout);
  a.residual_block = block_of(p.residual.layout);
  return launch_kernel(l, j.row, uint32_t(up(threads, pooling_threads)), &a);
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(pool_cuda, .about = "pooling on a GPU, an output or 16 bytes of channels a thread",
                .drives = kind::pooling, .op = {QUERN_POOL_MAX, QUERN_POOL_AVG, QUERN_POOL_AVG_PADDED},
                .accuracy = QUERN_ACCURACY_F32, .repeat = QUERN_REPEAT_ISA, .refuses_alike = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .error_bound = error_bound, .launch = launch)
