// SPDX-License-Identifier: MIT
//
// Operators of one element, or of two, and layout conversion on a GPU (cuda/elementwise.h).  Memory is the limit.
#include "cuda/drive.h"
#include "cuda/elementwise.h"

namespace quern {
namespace {

// The axes of all tensors, densest in dst first.  A block of channels is an axis of its own; where blocks differ,
// channels are counted by digits, whose steps are the same throughout in every layout.
struct element_axes {
  dim axis[8];
  int32_t used = 0;
  double elements = 1;  // that are counted: those of channels, too, that the last block lacks
  bool lacks = false;

  explicit element_axes(const quern_problem& p) {
    const auto add = [&](int64_t steps, int64_t channel, const auto& stride) {
      elements *= double(steps);
      const auto of = [&](const quern_tensor& t) { return stride(t); };
      if (steps != 1)
        axis[used++] = {int32_t(steps), int32_t(channel), of(p.src), of(p.dst), of(p.residual), of(p.weights)};
    };
    for (const int i : {4, 3, 2, 0})
      add(p.src.size[i], 0, [=](const quern_tensor& t) { return t.size[i] == 1 ? 0 : t.stride[i]; });
    const auto digit = [&](int64_t first, int64_t steps) {
      add(steps, first, [=](const quern_tensor& t) {
        return t.size[1] == 1 ? 0 : channel_offset(first, t.stride[1], block_of(t.layout));
      });
    };
    const int64_t channels = p.src.size[1];
    int64_t first = 1;
    for (const int64_t block : {4, 8, 16}) {
      bool has = false;
      for (const quern_tensor* t : {&p.src, &p.dst, &p.residual, &p.weights}) has |= block_of(t->layout) == block;
      if (!has || channels <= first) continue;
      digit(first, std::min(block, channels) / first + (std::min(block, channels) % first != 0));
      first = block;
    }
    if (channels > first || first == 1) digit(first, up(channels, first));
    double existing = 1;
    for (const int64_t size : p.src.size) existing *= double(size);
    lacks = elements != existing;
    const quern_epilogue& e = p.epilogue;
    used = join_axes(axis, used, lacks || e.scale || e.bias || e.activation == QUERN_PRELU, &dim::dst);
  }
};

refusal refuse(const full_problem& p, const kernel&) {
  double most = 1;  // blocks that are not full count
  for (int i = 0; i < 5; ++i) most *= double(i == 1 ? up(p.src.size[1], 16) * 16 : p.src.size[i]);
  if (const refusal r = refuse_many(most, "elements")) return r;
  const element_axes axes(p);
  constexpr int32_t most_axes = sizeof(dims::axis) / sizeof(dim);
  if (axes.used > most_axes) return {QUERN_REASON_SHAPE, "axes that lie apart", axes.used, most_axes};
  return {};
}

blocking choose_blocks(const full_problem&, const kernel&, const machine&, uint32_t) {
  blocking b = {};
  b.workers = 1;
  return b;
}

// The kernel's parameters but for memory.
elementwise plan_of(const quern_problem& p) {
  const element_axes axes(p);
  elementwise a = {};
  a.op = p.op;
  a.axes.used = axes.used;
  std::copy_n(axes.axis, std::max(axes.used, 1), a.axes.axis);
  a.channels = axes.lacks ? int32_t(p.src.size[1]) : INT32_MAX;
  a.chunks = int32_t(axes.elements);
  dim* const axis = a.axes.axis;
  int32_t densest = 0;
  for (int32_t i = 1; i < axes.used; ++i)
    if (axis[i].src < axis[densest].src) densest = i;
  // Short axes leave a tile empty.
  constexpr int32_t least = 8;
  a.turned = densest > 0 && axis[0].src >= least && axis[0].count >= least && axis[densest].count >= least;
  if (!a.turned) return a;
  std::swap(axis[1], axis[densest]);
  for (int i = 0; i < 2; ++i) a.tiles[i] = int32_t(up(axis[i].count, element_tile));
  return a;
}

bool in_chunks_of(const elementwise& a, const quern_problem& p, int64_t v) {
  const dim& along = a.axes.axis[0];
  const bool residual = p.epilogue.residual != QUERN_RESIDUAL_NONE;
  if (a.turned || along.count % v != 0 || (a.channels % v != 0 && along.channel != 0 && a.channels != INT32_MAX))
    return false;
  if (along.src != 1 || along.dst != 1 || (residual && along.residual != 1)) return false;
  if (has_weights(p.op) && along.weights > 1) return false;
  for (int32_t i = 1; i < a.axes.used; ++i) {
    const dim& x = a.axes.axis[i];
    if (x.src % v != 0 || x.dst % v != 0 || x.residual % v != 0 || (along.weights == 1 && x.weights % v != 0))
      return false;
  }
  return true;
}

cost predict(const full_problem& p, const kernel& row, const blocking&, const machine& m) {
  const elementwise a = plan_of(p);
  const bool whole = in_chunks_of(a, p, 16 / type_bytes(row.type));
  return {2500 + moved_ns(p, m) * (whole ? 1 : a.turned ? 1.5 : 8.0 / double(type_bytes(row.type))), direct_flops(p)};
}

// Each is rounded once; the larger, the smaller, and what is moved, not at all.
double error_bound(const full_problem& p) { return p.op >= QUERN_ADD && p.op <= QUERN_DIV ? 0x1p-24 : 0; }

quern_status launch(const job& j, const launching& l) {
  const quern_problem& p = j.problem;
  const int64_t v = 16 / type_bytes(j.row.type);
  elementwise a = plan_of(p);
  a.src = l.args.src, a.weights = l.packed, a.residual = l.args.residual, a.dst = l.args.dst;
  a.epilogue = epilogue_of(p, l.args);
  const auto aligned = [](const void* memory) { return reinterpret_cast<uintptr_t>(memory) % 16 == 0; };
  a.whole = in_chunks_of(a, p, v) && aligned(a.src) && aligned(a.dst) &&
            (!a.epilogue.residual || aligned(a.residual)) &&
            (!has_weights(p.op) || a.axes.axis[0].weights == 0 || aligned(a.weights));
  if (a.whole) a.chunks /= int32_t(v);
  invert_counts(a.axes, a.whole ? v : 1);
  int64_t blocks = up(a.chunks, element_threads);
  if (a.turned) {
    blocks = int64_t{a.tiles[0]} * a.tiles[1];
    for (int32_t i = 2; i < a.axes.used; ++i) blocks *= a.axes.axis[i].count;
  }
  return launch_kernel(l, j.row, uint32_t(blocks), &a);
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(elementwise_cuda, .about = "element by element on a GPU, 16 bytes a thread, or tiles turned round",
                .drives = kind::elementwise,
                .op = {QUERN_REORDER, QUERN_UNARY, QUERN_ADD, QUERN_SUB, QUERN_MUL, QUERN_DIV, QUERN_MAX, QUERN_MIN},
                .accuracy = QUERN_ACCURACY_EXACT, .repeat = QUERN_REPEAT_ISA, .refuses_alike = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .error_bound = error_bound, .launch = launch)
