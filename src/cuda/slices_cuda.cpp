// SPDX-License-Identifier: MIT
//
// Reductions, norms and softmax on a GPU, along any axes (cuda/slices.h): one thread to a whole block have a slice.
// Memory is the limit.
#include "cuda/drive.h"
#include "cuda/slices.h"

namespace quern {
namespace {

// Axes of slices and of what lies in one, as problem and memory have them.
struct slice_axes {
  dims outer = {}, inner = {};
  int64_t slices = 1, elements = 1;

  explicit slice_axes(const quern_problem& p) {
    const quern_tensor &src = p.src, &dst = p.dst, &residual = p.residual;
    const bool reduces = is_reduction(p.op);
    for (const int i : {4, 3, 2, 1, 0}) {
      const bool in_slice = p.axes >> i & 1;
      const int64_t groups = i == 1 && in_slice ? p.groups : 1, count = src.size[i] / groups;
      const dim one = {int32_t(count), i == 1, src.stride[i], dst.stride[i], residual.stride[i], 0, {}};
      if (!in_slice) {
        add_axis(outer, one), slices *= count;
        continue;
      }
      add_axis(inner, reduces ? dim{one.count, 0, one.src, 0, 0, 0, {}} : one), elements *= count;
      if (groups == 1) continue;
      slices *= groups;
      add_axis(outer, {int32_t(groups), int32_t(count), count * src.stride[1], count * dst.stride[1],
                       count * residual.stride[1], 0, {}});
    }
    const quern_epilogue& e = p.epilogue;
    const bool channels = e.scale || e.bias || e.activation == QUERN_PRELU;
    for (dims* d : {&outer, &inner}) d->used = join_axes(d->axis, d->used, channels, &dim::src);
  }
};

refusal refuse(const full_problem& p, const kernel&) {
  if (block_of(p.src.layout) != 1) return {QUERN_REASON_LAYOUT, "src.layout", p.src.layout, 0};
  if (block_of(p.dst.layout) != 1) return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, 0};
  if (block_of(p.residual.layout) != 1) return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, 0};
  double slices = 1, elements = 1;
  for (int i = 0; i < 5; ++i) (p.axes >> i & 1 ? elements : slices) *= double(p.src.size[i]);
  if (p.axes & QUERN_AXIS_C) slices *= double(p.groups);
  return refuse_many(std::max(slices, elements), "slices, or elements of one");
}

enum word { lanes, parts, across, wide, held };

blocking choose_blocks(const full_problem& p, const kernel& row, const machine&, uint32_t) {
  const slice_axes a(p);
  const dim& densest = a.inner.axis[0];
  const bool along = densest.src == 1;
  const int64_t v = 16 / type_bytes(row.type);
  blocking b = {};
  b.workers = 1;
  // Neighbours in memory are neighbours in a warp.  What adds up how follows from the problem alone, not from where
  // memory lies.
  b.word[wide] = along && densest.count % v == 0;
  b.word[across] = !along;
  // A slice has as many lanes as keep it, and no more: what a thread does around its elements is most of its work, so
  // that a warp for 64 of them takes four times as long (measured on an H200).
  const int64_t chunks = b.word[wide] ? a.elements / v : a.elements, kept = b.word[wide] ? 4 : 16;
  b.word[lanes] = std::clamp<int64_t>(up(chunks, kept), 1, slice_threads);
  if (b.word[across]) b.word[lanes] = chunks > 512 ? 32 : std::min<int64_t>(b.word[lanes], 8);
  while (b.word[lanes] & (b.word[lanes] - 1)) ++b.word[lanes];  // a power of two
  // Those of each part, and then the parts, are added up: 16 at most.
  b.word[parts] = b.word[lanes] <= 16 ? 1 : std::min<int64_t>(b.word[lanes] / 8, 16);
  b.word[held] = chunks <= b.word[lanes] * kept;
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const slice_axes a(p);
  const double bytes = double(type_bytes(row.type)), elements = double(a.elements), slices = double(a.slices);
  const int reads = b.word[held] ? 1 : is_reduction(p.op) ? 1 : p.op == QUERN_RMS_NORM ? 2 : 3;
  const double again = (reads - 1) * elements * slices * bytes / (double(m.gpu.bandwidth) * 0.8e-9);
  // Bytes a nanosecond that a slice's threads have on their way (measured for none: 16 each in 600 ns).
  const double alone = 2 * reads * elements * bytes / (double(b.word[lanes]) * 16 / 600);
  const double waves = std::max(1.0, slices * double(b.word[lanes]) / (2048.0 * m.gpu.multiprocessors));
  return {3000 + std::max(moved_ns(p, m) + again, alone * waves), direct_flops(p)};
}

double error_bound(const full_problem& p) {
  const int64_t length = sum_length(p);
  if (p.op == QUERN_REDUCE_MAX || p.op == QUERN_REDUCE_MIN) return 0;
  if (is_norm(p.op)) return 8 * sum_bound(length);
  return sum_bound(is_softmax(p.op) ? length + 240 : length + 4);  // arguments of exponentials reach 110
}

quern_status launch(const job& j, const launching& l) {
  const quern_problem& p = j.problem;
  const slice_axes axes(p);
  slices a = {};
  a.src = l.args.src, a.residual = l.args.residual, a.dst = l.args.dst;
  a.epilogue = epilogue_of(p, l.args);
  a.outer = axes.outer, a.inner = axes.inner;
  a.op = p.op, a.count = float(axes.elements), a.epsilon = p.epsilon;
  a.slices = int32_t(axes.slices);
  const bool reduces = is_reduction(p.op);
  const int64_t v = 16 / type_bytes(j.row.type);
  a.across = j.blocks.word[across], a.wide = j.blocks.word[wide];
  a.lanes = int32_t(j.blocks.word[lanes]), a.parts = int32_t(j.blocks.word[parts]);
  const auto step_of = [&](const void* memory, int64_t dim::*stride) {
    const bool whole = in_wholes(a.outer, stride, memory, v, false) && in_wholes(a.inner, stride, memory, v, true);
    return whole || !a.wide ? at_once : a.inner.axis[0].*stride;
  };
  a.src_step = step_of(a.src, &dim::src);
  a.dst_step = reduces ? at_once : step_of(a.dst, &dim::dst);
  a.residual_step = reduces || !a.epilogue.residual ? at_once : step_of(a.residual, &dim::residual);
  a.held = j.blocks.word[held];
  a.chunks = int32_t(axes.elements / (a.wide ? v : 1));
  invert_counts(a.outer, 1), invert_counts(a.inner, a.wide ? v : 1);
  return launch_kernel(l, j.row, uint32_t(up(axes.slices, slice_threads / a.lanes)), &a);
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(slices_cuda, .about = "reductions, norms and softmax on a GPU, slices in shared memory where they fit",
                .drives = kind::slices,
                .op = {QUERN_REDUCE_SUM, QUERN_REDUCE_MEAN, QUERN_REDUCE_MAX, QUERN_REDUCE_MIN, QUERN_REDUCE_PROD,
                       QUERN_REDUCE_L1, QUERN_REDUCE_L2, QUERN_REDUCE_SUM_SQUARE, QUERN_NORM, QUERN_RMS_NORM,
                       QUERN_SOFTMAX, QUERN_LOG_SOFTMAX},
                .accuracy = QUERN_ACCURACY_F32, .repeat = QUERN_REPEAT_BATCH, .refuses_alike = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .error_bound = error_bound, .launch = launch)
