// SPDX-License-Identifier: MIT
//
// Operators of one element, or of two that may repeat: every operand once, as fast as memory has it.
//
//   item = some rows of a plane, or part of one      one task of the parallel_for
//     row.elementwise                                all of it
//
// The axes of all operands are joined where they follow each other; a row is the densest, a plane has the next.
#include <cstring>
#include <numeric>

#include "axes.h"

namespace quern {
namespace {

enum word { piece, streams };

// Elements of a row from which on what is around its loop no longer counts.
constexpr int64_t long_row = 512, longest_period = 2 * long_row;
// And up to which what comes again, or the same for all of it, is written out.
constexpr int64_t longest_repeated = 256, longest_spread = 16, spread_piece = 4096;

bool has_vectors(const quern_problem& p) {
  return p.epilogue.scale || p.epilogue.bias || p.epilogue.activation == QUERN_PRELU;
}

// The layout that has blocks of channels differently, NULL: none.
const quern_tensor* other_block(const quern_problem& p) {
  const auto differs = [&](const quern_tensor& t) { return block_of(t.layout) != block_of(p.src.layout); };
  if (differs(p.dst)) return &p.dst;
  if (p.epilogue.residual && differs(p.residual)) return &p.residual;
  if (has_weights(p.op) && p.weights.size[1] == p.src.size[1] && differs(p.weights)) return &p.weights;
  return nullptr;
}

// Channels that lie side by side; of one channel alone what all say, else it is an axis like others.
int64_t block_of_all(const quern_problem& p) {
  return p.src.size[1] > 1 || !other_block(p) ? block_of(p.src.layout) : 1;
}

// What is walked for one run of channels.
struct element_walk {
  element_axis begin;  // where its first element lies
  element_axis run, rows;
  axes planes;
  // Not 0: rows of so many elements follow each other, and meet the same scale, bias and slope.  Those are written out
  // for a period, and all rows are one.
  int64_t repeats, period;
  // What they meet of other is the same, too, or follows as src does, or is one element for each row.
  enum { stays, follows, spreads } other;
  int64_t apart;  // such elements; they are written out for a piece

  int64_t row_parts, column_parts, columns, rows_of_part;
  int64_t items() const { return row_parts * column_parts * planes.count(); }
};

void repeat_rows(element_walk& w, bool residual) {
  const element_axis &run = w.run, &rows = w.rows;
  const int64_t n = run.count;
  const bool dense = rows.src == n && rows.dst == n && (!residual || rows.residual == n);
  if (!dense || rows.channel != 0 || rows.count < 2 || n == 0) return;
  const auto other = rows.weights == 0 ? w.stays : run.weights == 0 ? w.spreads : w.follows;
  if (other == w.follows && rows.weights != n) return;
  if (n > (other == w.spreads ? longest_spread : longest_repeated)) return;
  const int64_t whole = std::lcm(n, int64_t{16});  // vectors
  if (whole > longest_period) return;
  w.repeats = n, w.other = other, w.apart = rows.weights;
  w.period = std::max(whole, long_row / whole * whole);
  w.run.count *= rows.count, w.rows = {.count = 1};
}

element_walk walk_of(const quern_problem& p, const channel_run& channels, int64_t elements) {
  const auto stays = [&p](int i) { return p.weights.size[i] == 1; };
  const int64_t vectors = has_vectors(p), residual = p.epilogue.residual != QUERN_RESIDUAL_NONE,
                weights = has_weights(p.op) && !stays(1), block = block_of_all(p), first = channels.first / block;
  const element_axis blocks = {
      channels.count / channels.block, p.src.stride[1],         p.dst.stride[1], p.residual.stride[1],
      weights * p.weights.stride[1],   vectors * channels.block};
  element_walk w = {};
  w.begin = blocks.times(first), w.begin.channel = vectors * channels.first;
  axes all;
  if (block > 1) all.list[all.used++] = {channels.block, 1, 1, residual, weights, vectors};
  all.add(blocks);
  for (const int i : {0, 2, 3, 4})
    all.add(
        {p.src.size[i], p.src.stride[i], p.dst.stride[i], p.residual.stride[i], stays(i) ? 0 : p.weights.stride[i], 0});
  all.join(&element_axis::dst);

  // A plane's channels lie along its rows, or are its rows, or it has one.
  w.run = w.rows = {.count = 1};
  int used = 0;
  if (all.used > 0) w.run = all.list[used++];
  if (all.used > 1 && (w.run.channel == 0 ? all.list[1].channel <= 1 : all.list[1].channel == 0))
    w.rows = all.list[used++];
  for (int i = used; i < all.used; ++i) w.planes.add(all.list[i]);

  repeat_rows(w, residual);
  if (w.other == w.spreads) elements = std::min(elements, spread_piece);
  const int64_t whole = w.period ? w.period : 16;
  w.columns = std::max<int64_t>(1, elements / whole) * whole;
  w.rows_of_part = std::max<int64_t>(1, elements / std::max<int64_t>(1, w.run.count));
  w.column_parts = up(w.run.count, w.columns), w.row_parts = up(w.rows.count, w.rows_of_part);
  return w;
}

const char* stride_of(int tensor, int axis) {
  static constexpr const char* names[4][5] = {
      {"dst.stride[0]", "dst.stride[1]", "dst.stride[2]", "dst.stride[3]", "dst.stride[4]"},
      {"src.stride[0]", "src.stride[1]", "src.stride[2]", "src.stride[3]", "src.stride[4]"},
      {"residual.stride[0]", "residual.stride[1]", "residual.stride[2]", "residual.stride[3]", "residual.stride[4]"},
      {"weights.stride[0]", "weights.stride[1]", "weights.stride[2]", "weights.stride[3]", "weights.stride[4]"}};
  return names[tensor][axis];
}

refusal refuse(const full_problem& p, const kernel&) {
  if (const quern_tensor* const t = other_block(p); t && p.src.size[1] > 1) {
    const char* const field = t == &p.dst ? "dst.layout" : t == &p.residual ? "residual.layout" : "weights.layout";
    return {QUERN_REASON_LAYOUT, field, t->layout, p.src.layout};
  }
  if (block_of_all(p) > 1) return {};
  // Rows go along the densest axis of dst.
  int along = -1;
  for (int i = 0; i < 5; ++i)
    if (p.dst.size[i] > 1 && (along < 0 || p.dst.stride[i] < p.dst.stride[along])) along = i;
  if (along < 0) return {};
  const int64_t src = p.src.stride[along], dst = p.dst.stride[along], residual = p.residual.stride[along],
                weights = p.weights.size[along] == 1 ? 0 : p.weights.stride[along];
  if (dst != 1) return {QUERN_REASON_LAYOUT, stride_of(0, along), dst, 1};
  if (src != 1) return {QUERN_REASON_LAYOUT, stride_of(1, along), src, 1};
  if (p.epilogue.residual && residual != 1) return {QUERN_REASON_LAYOUT, stride_of(2, along), residual, 1};
  if (weights > 1) return {QUERN_REASON_LAYOUT, stride_of(3, along), weights, 1};
  return {};
}

// Of a vector's division, and of its epilogue where that is more than a bias and bounds.
double cycles_of(const quern_problem& p, const kernel& row) {
  const quern_activation a = p.epilogue.activation;
  const bool exponential = a == QUERN_SIGMOID || a == QUERN_SILU || (a >= QUERN_TANH && a <= QUERN_GELU_SIGMOID);
  const bool simple = !p.epilogue.scale && p.epilogue.alpha == 1 && !p.epilogue.residual && a <= QUERN_CLAMP;
  return 1.5 + (p.op == QUERN_DIV ? row.vector / 2 : 0) + (exponential ? 20 : simple ? 0 : 5);
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  blocking b = {};
  const double bytes = bytes_moved(p), elements = p.products * 2;
  b.cycles = cycles_of(p, row) * elements / row.vector * pace(row, m);
  b.workers = useful_workers(m, b.cycles + bytes / (copy_rate(m, bytes) * m.cycle_ns), threads);
  // A few for each worker, whose operands are in L1 or L2 while others follow.
  const double least = 1024, most = std::clamp(double(m.l2) / 32, least, 16384.0);
  b.word[piece] = int64_t(b.workers > 1 ? std::clamp(elements / (4 * b.workers), least, most) : most);
  b.word[streams] = streams_copies(bytes, m);
  channel_run runs[2];
  for (int i = channel_runs(p, runs); i-- > 0;) {
    const element_walk w = walk_of(p, runs[i], b.word[piece]);
    const int64_t floats = 4 * w.period + (w.other == w.spreads ? w.columns : 0);  // of other, scale, bias, slope
    b.workspace_bytes = std::max(b.workspace_bytes, sizeof(float) * uint64_t(floats));
  }
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const double bytes = bytes_moved(p);
  return overlapped(row, m, b, bytes / (copy_rate(m, bytes) * m.cycle_ns));
}

// Each is rounded once; the larger, the smaller, and src itself, not at all.
double error_bound(const full_problem& p) { return p.op >= QUERN_ADD && p.op <= QUERN_DIV ? 0x1p-24 : 0; }

// n numbers again and again, `period` in all.
const float* repeated(const float* from, int64_t n, int64_t period, float*& room) {
  float* const to = room;
  memcpy(to, from, size_t(n) * sizeof(float));
  for (int64_t have = n; have < period; have *= 2)
    memcpy(to + have, to, size_t(std::min(have, period - have)) * sizeof(float));
  room += period;
  return to;
}

// Whether all that a row writes but its ends are whole lines of the cache.
bool whole_lines(const element_walk& w, const float* dst) {
  const auto fits = [](int64_t elements) { return elements % 16 == 0; };
  bool all = reinterpret_cast<uintptr_t>(dst) % 64 == 0 && fits(w.rows.dst);
  for (int i = 0; i < w.planes.used; ++i) all &= fits(w.planes.list[i].dst);
  return all;
}

struct element_run {
  const job& j;
  const execution& e;
  const epilogue_f32& epilogue;

  void item(const element_walk& w, int64_t number, char* workspace) const {
    const element_axis &run = w.run, &rows = w.rows;
    const int64_t x = digit(number, w.column_parts) * w.columns, y = digit(number, w.row_parts) * w.rows_of_part;
    const int64_t n = std::min(w.columns, run.count - x), m = std::min(w.rows_of_part, rows.count - y);
    const element_axis plane = w.planes.at(number), row = rows.times(y);
    element_axis column = run.times(x);
    if (w.period) column.weights = x / w.repeats * w.apart, column.channel = 0;
    const auto offset = [&](int64_t element_axis::*in) { return w.begin.*in + plane.*in + row.*in + column.*in; };

    elementwise_f32 call = {};
    call.op = j.problem.op;
    call.m = size_t(m), call.n = size_t(n);
    call.src = static_cast<const float*>(e.args.src) + offset(&element_axis::src), call.src_row = size_t(rows.src);
    if (has_weights(call.op)) {
      call.other = reinterpret_cast<const float*>(e.packed) + offset(&element_axis::weights);
      call.other_row = size_t(rows.weights), call.same = run.weights == 0;
    }
    output_f32& out = call.out;
    out.c = static_cast<float*>(e.args.dst) + offset(&element_axis::dst), out.ldc = size_t(rows.dst);
    out.stream = j.blocks.word[streams] && whole_lines(w, out.c);
    out.epilogue = &epilogue;
    out.channels_are_rows = run.channel == 0, out.channel = size_t(offset(&element_axis::channel));
    call.one_channel = has_vectors(j.problem) && run.channel == 0 && rows.channel == 0;
    if (epilogue.residual)
      out.residual = static_cast<const float*>(e.args.residual) + offset(&element_axis::residual),
      out.ldr = size_t(rows.residual);
    if (w.repeats == 0)
      j.row.elementwise(call);
    else
      take_line(w, call, reinterpret_cast<float*>(workspace));
  }

  // One element for each of the rows, n in all; in lines of whole vectors, which are alike.
  void spread(const element_walk& w, elementwise_f32& call, float*& room) const {
    const size_t n = call.n, line = size_t(std::lcm(w.repeats, int64_t{16}));
    copy_f32 copy = {};
    copy.times = size_t(w.repeats);
    copy.src = call.other, copy.src_row = line / copy.times * size_t(w.apart), copy.src_col = size_t(w.apart);
    copy.dst = room, copy.dst_row = line;
    copy.rows = n / line, copy.cols = line;
    j.row.copy(copy);
    copy.src += copy.rows * copy.src_row, copy.dst += copy.rows * line;
    copy.rows = 1, copy.cols = n % line;
    if (copy.cols) j.row.copy(copy);
    call.other = room, call.same = false;
    room += n;
  }

  // A piece of a line of short rows, as rows of a period and what is left.
  void take_line(const element_walk& w, elementwise_f32 call, float* room) const {
    output_f32& out = call.out;
    const size_t n = call.n, period = std::min(n, size_t(w.period));
    const auto repeat = [&](const float*& from) { from = repeated(from, w.repeats, int64_t(period), room); };
    epilogue_f32 vectors = epilogue;
    if (w.other == w.spreads)
      spread(w, call, room);
    else if (w.other == w.stays && call.other && !call.same)
      repeat(call.other);
    if (!out.channels_are_rows) {
      for (const float** from : {&vectors.scale, &vectors.bias, &vectors.slope})
        if (*from) *from += out.channel, repeat(*from);
      out.channel = 0, out.epilogue = &vectors;
    }
    call.m = n / period, call.n = period, call.other_row = w.other == w.stays ? 0 : period;
    call.src_row = out.ldc = out.ldr = period;
    j.row.elementwise(call);
    const size_t done = call.m * period;
    if (done == n) return;
    call.m = 1, call.n = n - done;
    call.src += done, out.c += done;
    if (w.other != w.stays) call.other += done;
    if (out.residual) out.residual += done;
    j.row.elementwise(call);
  }
};

void run(const job& j, const execution& e) {
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  channel_run runs[2];
  const int count = channel_runs(j.problem, runs);
  element_walk walks[2] = {};
  int64_t items = 0;
  for (int i = 0; i < count; ++i)
    walks[i] = walk_of(j.problem, runs[i], j.blocks.word[piece]), items += walks[i].items();
  const element_run all = {j, e, epilogue};
  const int64_t first = walks[0].items();
  for_each_item(j, e, items, [&](int64_t item, char* workspace) {
    if (item < first)
      all.item(walks[0], item, workspace);
    else
      all.item(walks[1], item - first, workspace);
    if (j.blocks.word[streams]) finish_streams();
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(elementwise, .about = "element by element, short rows in periods that fill vectors",
                .drives = kind::elementwise_f32,
                .op = {QUERN_UNARY, QUERN_ADD, QUERN_SUB, QUERN_MUL, QUERN_DIV, QUERN_MAX, QUERN_MIN},
                .accuracy = QUERN_ACCURACY_EXACT, .repeat = QUERN_REPEAT_ISA, .refuses_alike = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .error_bound = error_bound, .run = run)
