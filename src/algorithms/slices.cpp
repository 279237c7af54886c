// SPDX-License-Identifier: MIT
//
// Reductions, norms and softmax along any axes, and pooling of whole images.
//
//   item = some slices, or some columns of slices that lie side by side       one task of the parallel_for
//     each piece: row.slices->fold                                           statistics, merged in double
//     each piece: row.slices->apply                                          norms and softmax
#include "slice_item.h"

namespace quern {
namespace {

enum word { batch, columns, streams };

constexpr int64_t at_once = 4096;  // elements of neighbouring slices that L1 keeps beside what becomes of them

refusal refuse(const full_problem& p, const kernel&) {
  if (is_pooling(p.op) && !is_whole_image(p))
    return {QUERN_REASON_SHAPE, "window.filter[2]", p.window.filter[2], p.src.size[4]};
  const slice_walk w(p);
  const bool residual = p.epilogue.residual;
  if (w.other_blocks) {
    const bool dst = block_of(p.dst.layout) > 1 && p.dst.layout != w.blocked;
    return {QUERN_REASON_LAYOUT, w.other_blocks, dst ? p.dst.layout : p.residual.layout, w.blocked};
  }
  if (!w.aligned) return {QUERN_REASON_LAYOUT, "src.layout", p.src.layout, QUERN_NCHW};
  if (w.slices == 0 || w.elements == 0) return {};
  for (int k = 0; k < w.families; ++k) {
    const slice_family& f = w.family[k];
    for (int i = 0; i < f.parts; ++i) {
      const element_axis column = f.column(i);
      // A block of one channel, the last or the only one, has nothing side by side.
      const bool single = k + i > 0 || block_of(p.src.layout) > 1;
      if (column.src == 0 && !single && f.part[i].inner.used + f.outer.used > 0)
        return {QUERN_REASON_LAYOUT, "src.stride[4]", p.src.stride[4], 1};
      if (w.reduces || column.src == 0) continue;
      if (column.dst != 1) return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, p.src.layout};
      if (residual && column.residual != 1)
        return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, p.src.layout};
    }
  }
  return {};
}

double bytes_of(const slice_walk& w) {
  return 4.0 * double(w.slices) * (double(w.elements) * (w.reduces ? 1 : 2) + (w.reduces ? 1 : 0));
}

// Cycles of a vector of elements in L1, all passes.
double vector_cycles(const quern_problem& p) {
  switch (p.op) {
    case QUERN_SOFTMAX: return 11;
    case QUERN_LOG_SOFTMAX: return 11;
    case QUERN_NORM: return 4;
    case QUERN_RMS_NORM: return 3;
    case QUERN_REDUCE_PROD: return 16;  // in double, without the kernel
    default: return 1;
  }
}

// Of the memory that passes go to.
double traffic_cycles(const slice_walk& w, const machine& m) {
  const double bytes = bytes_of(w);
  double ns = bytes / copy_rate(m, bytes);
  // Read again from where a slice stays, or slices that lie side by side do.
  const double again = 4.0 * double(w.elements) * (w.families > 0 && w.family[0].along ? 1 : 64);
  if (!w.reduces) ns += 4.0 * double(w.slices * w.elements) / copy_rate(m, std::min(again, 4e18));
  return ns / m.cycle_ns;
}

// Slices of an item, or columns, of which all that one slice has are together.
int64_t most_of(const slice_family& f, const int64_t* word) {
  return f.along ? word[batch] : word[columns] / f.columns_of_slice * f.columns_of_slice;
}

struct family_items {
  int64_t of[2] = {};
  family_items(const slice_walk& w, const int64_t* word) {
    for (int i = 0; i < w.families; ++i)
      of[i] = up(w.family[i].side().count, most_of(w.family[i], word)) * w.family[i].places();
  }
  int64_t all() const { return of[0] + of[1]; }
};

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const slice_walk w(p);
  blocking b = {};
  const bool along = w.family[0].along;
  const double vectors = along ? double(w.slices) * double(up(w.elements, row.vector))
                               : double(w.slices) * double(w.elements) / row.vector;
  // Beside them, clocks of a slice, or of a column: what its lanes or parts come to.
  b.cycles = pace(row, m) * vectors * vector_cycles(p) + (along ? 35 : 8) * clock_cycles(m) * double(w.slices);
  b.workers = useful_workers(m, b.cycles + traffic_cycles(w, m), threads);
  // Slices of an item: as many as keep the call busy, fewer where workers would have none.
  const int64_t wanted = b.workers > 1 ? 4 * int64_t(b.workers) : 1;
  const int64_t share = std::max<int64_t>(1, w.slices / wanted);
  b.word[batch] = std::clamp<int64_t>(at_once / std::max<int64_t>(w.elements, 1), 1, std::min<int64_t>(share, 64));
  int64_t across = most_results, least = 64;
  if (is_softmax(p.op)) across = std::clamp<int64_t>(kept_along / std::max<int64_t>(w.elements, 1), least, across);
  // Where rows are taken side by side, they are whole ones on any number of threads.
  const slice_family& first = w.family[0];
  if (!first.along && first.side().count >= slice_family::narrow) least = up(first.columns_of_slice, 16) * 16;
  b.word[columns] = std::clamp<int64_t>(share / 16 * 16, least, across) / 16 * 16;
  b.workers = uint32_t(std::clamp<int64_t>(family_items(w, b.word).all(), 1, b.workers));
  b.word[streams] = !w.reduces && streams_copies(bytes_of(w), m);
  // The exponentials of an item.
  int64_t kept = 0;
  for (int i = 0; i < w.families; ++i)
    if (p.op == QUERN_SOFTMAX && keeps_exponentials(p, w.family[i], w))
      kept = std::max(kept, w.elements * (w.family[i].along ? b.word[batch] : b.word[columns]));
  if (kept) b.workspace_bytes = uint64_t(up(4 * (kept + padding), QUERN_ALIGN) * QUERN_ALIGN);
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  return overlapped(row, m, b, traffic_cycles(slice_walk(p), m));
}

double error_bound(const full_problem& p) {
  const int64_t length = sum_length(p);
  if (p.op == QUERN_REDUCE_MAX || p.op == QUERN_REDUCE_MIN || p.op == QUERN_POOL_MAX) return 0;
  if (is_norm(p.op)) return 8 * sum_bound(length);
  return sum_bound(is_softmax(p.op) ? length + 240 : length + 4);  // arguments of exponentials reach 110
}

void run(const job& j, const execution& e) {
  const slice_walk w(j.problem);
  if (w.slices == 0 || (w.elements == 0 && !w.reduces)) return;
  const int64_t* word = j.blocks.word;
  const family_items items(w, word);
  for_each_item(j, e, items.all(), [&](int64_t item, char* workspace) {
    const bool second = item >= items.of[0];
    if (second) item -= items.of[0];
    const slice_family& f = w.family[second];
    const element_axis side = f.side();
    const int64_t most = most_of(f, word);
    const int64_t first = digit(item, up(side.count, most)) * most;
    slice_memory memory;
    slice_item now = {j, e, w, f, {}, std::min(most, side.count - first), 1, nullptr, word[streams] != 0, memory};
    now.at = slice_family::sum(f.origin, slice_family::sum(f.outer.at(item, f.taken()), side.times(first)));
    if (now.results == side.count) now.copies = f.copies(side.count, !w.reduces, j.problem.epilogue.residual);
    if (j.problem.op == QUERN_SOFTMAX) now.keep = reinterpret_cast<float*>(workspace);
    now.run();
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(slices, .about = "reductions, norms and softmax, memory read once where slices fit a cache",
                .drives = kind::slices_f32,
                .op = {QUERN_POOL_MAX, QUERN_POOL_AVG, QUERN_POOL_AVG_PADDED, QUERN_REDUCE_SUM, QUERN_REDUCE_MEAN,
                       QUERN_REDUCE_MAX, QUERN_REDUCE_MIN, QUERN_REDUCE_PROD, QUERN_REDUCE_L1, QUERN_REDUCE_L2,
                       QUERN_REDUCE_SUM_SQUARE, QUERN_NORM, QUERN_RMS_NORM, QUERN_SOFTMAX, QUERN_LOG_SOFTMAX},
                .accuracy = QUERN_ACCURACY_F32, .repeat = QUERN_REPEAT_ISA, .refuses_alike = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .error_bound = error_bound, .run = run)
