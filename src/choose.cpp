// SPDX-License-Identifier: MIT
#include "choose.h"

#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <new>

#include "candidate.h"
#include "problem.h"
#include "problem_text.h"
#include "registry.h"
#include "tuning.h"
#include "versioned.h"

namespace quern {
namespace {

blocking blocks_of(const full_problem& p, const algorithm& a, const kernel& row, const machine& m, uint32_t threads,
                   const resolved_wish& w) {
  blocking b = a.choose_blocks(p, row, m, threads);
  if (output_channels(p) == 0) b.packed_bytes = 0;  // without a channel nobody packs
  b.src_limit = w.wish.src_limit;
  return b;
}

bool exceeds(const blocking& b, uint64_t limit) { return b.workspace_bytes > limit / b.workers; }

// What the products take at least, by all threads.
double least_ns(const full_problem& p, const algorithm& a, const kernel& row, const resolved_wish& w) {
  return a.least_cycles(p, row, w.machine) * w.machine.cycle_ns / std::max(1u, w.wish.threads);
}

// `tuned`: what was measured for this problem, or NULL.
// Blocks and cost are written for usable options alone: most pairs are none, and this runs for all.
void evaluate(const full_problem& p, const algorithm& a, const kernel& row, quern_backend backend,
              const resolved_wish& w, [[maybe_unused]] const tuned_row* tuned, option& o) {
  o.algorithm = &a, o.row = &row, o.backend = backend, o.verdict = QUERN_REFUSED;
  o.src_layout = p.src.layout, o.dst_layout = p.dst.layout;
  o.measured_ns = 0, o.rank = 0;
  if (const uint64_t missing = row.isa & ~w.runs_isa) {
    o.verdict = QUERN_UNAVAILABLE;
    const bool withheld = (missing & ~w.withheld_isa) == 0;
    o.why = {QUERN_REASON_ISA, withheld ? "cpu.withheld_isa" : "cpu.isa",
             static_cast<int64_t>(withheld ? w.withheld_isa : w.runs_isa), static_cast<int64_t>(missing & -missing)};
    return;
  }
  if (row.capability_alone ? row.capability != w.machine.gpu.capability : row.capability > w.machine.gpu.capability) {
    o.verdict = QUERN_UNAVAILABLE;
    o.why = {QUERN_REASON_ISA, "gpu.capability", w.machine.gpu.capability, row.capability};
    return;
  }
  // So much all have that run the row at all; those of one capability know what it has.
  constexpr uint64_t least_shared = 99 << 10;
  if (!row.capability_alone && row.shared_bytes > std::max(w.machine.gpu.shared_bytes, least_shared)) {
    o.verdict = QUERN_UNAVAILABLE;
    o.why = {QUERN_REASON_ISA, "gpu.shared_bytes", static_cast<int64_t>(w.machine.gpu.shared_bytes), row.shared_bytes};
    return;
  }
  if (row.type && row.type != p.src.type) {
    o.why = {QUERN_REASON_TYPE, "src.type", p.src.type, row.type};
    return;
  }
  // Made where it stays: a copy would wait for what has just been written, half of what all else here takes.
  if (*new (&o.why) refusal(a.refuse(p, row))) return;
  if (const quern_accuracy own = accuracy_of(a, row, p.src.type); own > p.accuracy) {
    o.why = {QUERN_REASON_ACCURACY, "accuracy", p.accuracy, own};
    return;
  }
  if ((o.why = ruled_out(a, row, w.wish))) return;
  if (a.bounded && w.wish.src_limit == 0) {
    o.why = {QUERN_REASON_WISH, "wish.src_limit", 0, 0};
    return;
  }
  if (const int32_t own = repeat_of(a, p); own < w.wish.repeat) {
    o.why = {QUERN_REASON_REPEAT, "wish.repeat", w.wish.repeat, own};
    return;
  }
#if !defined(QUERN_NO_TUNING)
  if (const tuned_candidate* c = tuned ? find_candidate(*tuned, a, row) : nullptr)
    if (vary(p, w, c->as, o)) {
      o.verdict = QUERN_USABLE;
      o.measured_ns = double(c->median_ns), o.rank = static_cast<int>(c - tuned->candidate);
      return;
    }
#endif
  new (&o.blocks) blocking(blocks_of(p, a, row, w.machine, std::max(1u, w.wish.threads), w));
  const uint64_t limit = w.machine.workspace;
  // Fewer threads need less: as many as there is room for, if blocks do not grow with it.
  while (exceeds(o.blocks, limit)) {
    const uint64_t workers = o.blocks.workers, fit = limit / o.blocks.workspace_bytes;
    if (workers == 1) {
      o.why = {QUERN_REASON_WORKSPACE, "wish.workspace_limit", static_cast<int64_t>(limit),
               static_cast<int64_t>(o.blocks.workspace_bytes)};
      return;
    }
    o.blocks = blocks_of(p, a, row, w.machine, uint32_t(std::clamp<uint64_t>(fit, 1, workers - 1)), w);
  }
  new (&o.cost) cost(a.predict(p, row, o.blocks, w.machine));
  // Whoever is not asked because something is known to be faster than it can be would not have won.
  if (a.least_cycles) o.cost.ns = std::max(o.cost.ns, least_ns(p, a, row, w));
  o.verdict = QUERN_USABLE;
}

// Whether the algorithm is refused with every other row too.
bool refuses_all(const algorithm& a, const refusal& why) {
  switch (why.reason) {
    case QUERN_REASON_ACCURACY:
    case QUERN_REASON_REPEAT: return true;
    case QUERN_REASON_LAYOUT:
    case QUERN_REASON_SHAPE:
    case QUERN_REASON_EPILOGUE: return a.refuses_alike;
    default: return false;
  }
}

// How far a refused option came.  Those that the wish rules out by name did not take part.
int distance_of(const option& o, const quern_wish& wish) {
  if (ruled_out(*o.algorithm, *o.row, wish)) return 0;
  switch (o.why.reason) {
    case QUERN_REASON_ISA: return 1;
    case QUERN_REASON_ACCURACY: return 3;
    case QUERN_REASON_REPEAT: return 4;
    case QUERN_REASON_WORKSPACE: return 5;
    default: return 2;  // the problem
  }
}

// For a problem that leaves layouts open, what comes of the pair in those that suit it best; where none does, what
// rules it out besides the layout.
void in_best_layouts(const full_problem& p, const algorithm& a, const kernel& row, quern_backend backend,
                     const resolved_wish& w, const tuned_row* tuned, option& best) {
  if (!has_any(p)) return evaluate(p, a, row, backend, w, tuned, best);
  option o;
  int furthest = INT_MIN;
  for_each_layout(p, [&](const quern_problem& q) {
    evaluate(full_problem(q), a, row, backend, w, nullptr, o);
    const bool usable = o.verdict == QUERN_USABLE;
    const int came = usable ? INT_MAX : 2 * distance_of(o, w.wish) - (o.why.reason == QUERN_REASON_LAYOUT);
    if (came > furthest || (usable && o.cost.ns < best.cost.ns)) best = o, furthest = came;
  });
}

[[gnu::format(printf, 2, 3)]] void say(const resolved_wish& w, const char* format, ...) {
  char line[1400];
  va_list list;
  va_start(list, format);
  vsnprintf(line, sizeof line, format, list);
  va_end(list);
  if (w.wish.log)
    w.wish.log(w.wish.log_self, line);
  else
    fprintf(stderr, "%s\n", line);
}

// Which of two usable candidates stands before the other.
bool before(const quern_candidate& a, const quern_candidate& b) {
  const bool measured = a.measured_ns > 0;
  if (measured != (b.measured_ns > 0)) return measured;
  return measured ? a.measured_ns < b.measured_ns : a.predicted_ns < b.predicted_ns;
}

// Which of two usable options to take: what was measured side by side has an order of its own.
bool better(const option& a, const option& b) {
  const bool measured = a.measured_ns > 0;
  if (measured != (b.measured_ns > 0)) return measured;
  return measured ? a.rank < b.rank : a.cost.ns < b.cost.ns;
}

// In the table.
bool stands_before(const option& a, const option& b) {
  if (a.algorithm != b.algorithm) {
    size_t i = 0;
    while (&algorithm_at(i) != a.algorithm && &algorithm_at(i) != b.algorithm) ++i;
    return &algorithm_at(i) == a.algorithm;
  }
  size_t files = 0;
  const kernel_file* const file = kernel_files(files);
  for (size_t f = 0; f < files; ++f)
    for (size_t i = 0; i < file[f].list->count; ++i)
      if (const kernel* const row = &file[f].list->rows[i]; row == a.row || row == b.row) return row == a.row;
  return false;
}

uint64_t workspace_of(const option& o) { return o.blocks.workspace_bytes * o.blocks.workers; }

// Every version of quern_candidate has what sorts.
quern_status check_out(uint32_t size, quern_error* error) {
  if (is_size<quern_candidate>(size) && size >= offsetof(quern_candidate, predictor)) return QUERN_OK;
  return fail(error, QUERN_INVALID, "out[0].size", size, sizeof(quern_candidate),
              "out[0].size is %u, must be sizeof(quern_candidate), here %zu", size, sizeof(quern_candidate));
}

// Which fields rule candidates out, and how many each.
struct refusal_tally {
  const char* field[16];
  int times[16];
  int count = 0;
  void add(const refusal& why) {
    if (!why.field) return;
    int i = 0;
    while (i < count && strcmp(field[i], why.field) != 0) ++i;
    if (i == 16) return;
    if (i == count) field[i] = why.field, times[i] = 0, ++count;
    ++times[i];
  }
  void print(char* out, size_t size) const {
    size_t length = 0;
    for (int i = 0; i < count && length < size; ++i)
      length +=
          static_cast<size_t>(snprintf(out + length, size - length, "%s%s %d", i ? ", " : "", field[i], times[i]));
  }
};

#if defined(QUERN_NO_TUNING)
struct looked_up {
  looked_up(const quern_problem&, const resolved_wish&) {}
  const tuned_row* row() const { return nullptr; }
};
void take_measured(const full_problem&, const files_of_kind&, const resolved_wish&, const tuned_row&, option&) {}
#else
// What the wish's table has for a problem.
class looked_up {
 public:
  looked_up(const quern_problem& p, const resolved_wish& w) : found_(!has_any(p) && find_tuned(p, w, row_)) {}
  const tuned_row* row() const { return found_ ? &row_ : nullptr; }

 private:
  tuned_row row_;
  bool found_;
};

// The first of those measured that is usable still.
void take_measured(const full_problem& p, const files_of_kind& files, const resolved_wish& w, const tuned_row& tuned,
                   option& best) {
  option o;
  for (int i = 0; i < tuned.count && !best.algorithm; ++i)
    for (size_t k = 0; k < algorithm_count(); ++k) {
      const algorithm& a = algorithm_at(k);
      if (!is_of(tuned.candidate[i], a)) continue;
      files.for_each_row(a, is_gpu(w.machine), p.op, [&](const kernel& row, quern_backend backend) {
        if (best.algorithm || !is_of(tuned.candidate[i], row)) return;
        evaluate(p, a, row, backend, w, &tuned, o);
        if (o.verdict == QUERN_USABLE && o.measured_ns > 0) best = o;
      });
    }
}
#endif

// First the kernels of their own, then transforms, plain products last, and in each turn first what is likely to be
// fast: forms of many outputs, wide vectors.  Where something is known to be faster than a row can be, the row is not
// asked.  Nor are other rows, where one says what all would.  `line`: the problem, for the log of who is refused.
void take_best(const full_problem& p, const files_of_kind& files, const resolved_wish& w, const tuned_row* tuned,
               const char* line, option& best) {
  option o;
  for (const int turn : {0, 1, 2})
    for (size_t i = algorithm_count(); i-- > 0;) {
      const algorithm& a = algorithm_at(i);
      if (turn != (a.drives != kind::gemm_f32 ? 0 : a.transforms ? 1 : 2)) continue;
      bool refused = false;
      files.for_each_row(a, is_gpu(w.machine), p.op, [&](const kernel& row, quern_backend backend) {
        if (refused) return;
        if (a.least_cycles && best.algorithm && !tuned && w.verbose <= 1 && least_ns(p, a, row, w) > best.cost.ns)
          return;
        in_best_layouts(p, a, row, backend, w, tuned, o);
        if (o.verdict == QUERN_USABLE) {
          // Of equals the first of the table, as in a query for all: those of no work take no time.
          if (!best.algorithm || better(o, best) || (!better(best, o) && stands_before(o, best))) best = o;
        } else if (w.verbose > 1) {
          char why[200];
          explain(candidate_of(p, work(p), o, w), why, sizeof why);
          say(w, "quern: refused: %s: %s %s: %s", line, a.name, row.name, why);
        } else {
          refused = refuses_all(a, o.why);
        }
      });
    }
}

// Why no option of the problem is usable, asked of all of them once more: a query that finds one does not pay for it.
quern_status none_usable(const full_problem& p, const resolved_wish& w, quern_error* error) {
  option o, nearest = {};  // the refusal to name: of who came furthest
  refusal_tally tally;
  int refused = 0, furthest = -1, own = 0;  // own: of this type, that need not be asked for by name
  const algorithm* to_ask_for = nullptr;
  for_each_pair(is_gpu(w.machine), p.op, [&](const algorithm& a, const kernel& row, quern_backend backend) {
    in_best_layouts(p, a, row, backend, w, nullptr, o);
    ++refused, own += !a.on_request && (!row.type || row.type == p.src.type);
    if (a.on_request && o.why.reason == QUERN_REASON_WISH) to_ask_for = &a;
    tally.add(o.why);
    if (const int distance = distance_of(o, w.wish); distance > furthest) nearest = o, furthest = distance;
  });
  if (!nearest.algorithm)
    return fail(error, QUERN_UNSUPPORTED, "op", p.op, 0, "no kernel of this build solves the operator %d", p.op);
  if (own == 0 && to_ask_for && !w.wish.algorithm)
    return fail(error, QUERN_UNSUPPORTED, "wish.algorithm", 0, 0,
                "only the reference computes %s of %s here, and it runs when it is asked for: wish.algorithm = \"%s\"",
                name_of(op_words, p.op), name_of(type_words, p.src.type), to_ask_for->name);
  char why[200], all[sizeof error->text] = "";
  explain(candidate_of(p, work(p), nearest, w), why, sizeof why);
  tally.print(all, sizeof all);
  return fail(error, QUERN_UNSUPPORTED, nearest.why.field ? nearest.why.field : "", nearest.why.value,
              nearest.why.limit, "none of %d kernels can run this; %s with %s: %s; ruled out by %s", refused,
              nearest.algorithm->name, nearest.row->name, why, all);
}

}  // namespace

quern_status choose(full_problem& p, const resolved_wish& w, option& best, quern_error* error) {
  best = {};
  char line[640] = "";
  if (w.verbose > 0) quern_problem_print(&p, line, sizeof line, nullptr, nullptr);
  const looked_up table(p, w);
  const files_of_kind files(files_of_kind::wide_first);
  if (table.row() && w.verbose <= 1) take_measured(p, files, w, *table.row(), best);
  if (!best.algorithm) take_best(p, files, w, table.row(), line, best);
  if (!best.algorithm) return none_usable(p, w, error);
  if (has_any(p)) {
    lay_out(p.src, best.src_layout), lay_out(p.dst, best.dst_layout), lay_out(p.residual, best.dst_layout);
    p = full_problem(p);
  }
  if (w.verbose > 0) {
    quern_problem_print(&p, line, sizeof line, nullptr, nullptr);
    const bool measured = best.measured_ns > 0;
    say(w, "quern: chosen: %s: %s %s, %u threads, %.1f us %s", line, best.algorithm->name, best.row->name,
        best.blocks.workers, (measured ? best.measured_ns : best.cost.ns) / 1000, measured ? "measured" : "predicted");
  }
  return QUERN_OK;
}

bool vary(const full_problem& p, const resolved_wish& w, const variation& as, option& o) {
  const auto scaled = [](uint64_t x, int32_t power) {
    return std::clamp<uint64_t>(power < 0 ? x >> -power : x << power, 1, uint64_t{1} << 40);
  };
  machine m = w.machine;
  m.l1 = scaled(m.l1, as.l1), m.l2 = scaled(m.l2, as.l2);
  m.gpu.clock_mhz = static_cast<uint32_t>(std::min<uint64_t>(scaled(m.gpu.clock_mhz, as.l1), INT32_MAX));
  m.gpu.multiprocessors = static_cast<uint32_t>(std::min<uint64_t>(scaled(m.gpu.multiprocessors, as.l2), 1 << 20));
  const uint32_t threads = std::clamp(as.threads, 1u, std::max(1u, w.wish.threads));
  const blocking b = blocks_of(p, *o.algorithm, *o.row, m, threads, w);
  if (exceeds(b, w.machine.workspace)) return false;
  o.blocks = b;
  o.cost = o.algorithm->predict(p, *o.row, b, w.machine);
  return true;
}

size_t usable_options(const quern_problem& p, const resolved_wish& w, option* out, size_t capacity) {
  const full_problem full(p);
  size_t kept = 0;
  option o;
  for_each_pair(is_gpu(w.machine), p.op, [&](const algorithm& a, const kernel& row, quern_backend backend) {
    evaluate(full, a, row, backend, w, nullptr, o);
    if (o.verdict != QUERN_USABLE) return;
    size_t place = kept;
    while (place > 0 && o.cost.ns < out[place - 1].cost.ns) --place;
    if (place == capacity) return;
    if (kept < capacity) ++kept;
    std::copy_backward(out + place, out + kept - 1, out + kept);
    out[place] = o;
  });
  return kept;
}

}  // namespace quern

using namespace quern;

extern "C" quern_status quern_candidates(const quern_device* device, const quern_problem* problem,
                                         const quern_wish* wish, quern_candidate* out, size_t capacity, size_t* count,
                                         quern_error* error) noexcept {
  if (capacity && !out) return fail(error, QUERN_INVALID, "out", 0, 0, "out is NULL while capacity is %zu", capacity);
  if (!count) return fail(error, QUERN_INVALID, "count", 0, 0, "count is NULL, must point to a size_t");
  quern_problem p;
  resolved_wish w;
  if (const quern_status s = complete(problem, p, error)) return s;
  if (const quern_status s = resolve(device, wish, w, error)) return s;
  const uint32_t size = capacity ? out->size : 0;
  if (const quern_status s = capacity ? check_out(size, error) : QUERN_OK) return s;
  // Sorted as they come: the caller's array is the only one.  The whole of a candidate may be longer than
  // the caller knows, so what sorts is remade from what every version has: verdict and time.
  char* const base = reinterpret_cast<char*>(out);
  const looked_up table(p, w);
  const full_problem full(p);
  const work common(full);
  const tuned_row* const tuned = table.row();
  option best = {};
  size_t found = 0, kept = 0;
  size_t end_of[QUERN_UNAVAILABLE + 1] = {};  // of the candidates up to each verdict
  option o;
  for_each_pair(is_gpu(w.machine), p.op, [&](const algorithm& a, const kernel& row, quern_backend backend) {
    ++found;
    if (!capacity) return;
    in_best_layouts(full, a, row, backend, w, tuned, o);
    const quern_candidate c = candidate_of(full, common, o, w);
    size_t place = end_of[o.verdict];
    if (o.verdict == QUERN_USABLE) {
      const bool first = !best.algorithm || better(o, best);
      if (first) best = o, place = 0;
      for (; place > 1; --place) {  // the first place is the best one's
        quern_candidate other = {};
        memcpy(&other, base + (place - 1) * size, std::min<size_t>(size, sizeof other));
        if (!before(c, other)) break;
      }
    }
    if (place >= capacity) return;
    if (kept < capacity) ++kept;
    memmove(base + (place + 1) * size, base + place * size, (kept - place - 1) * size);
    give(c, reinterpret_cast<quern_candidate*>(base + place * size), size);
    for (int32_t v = o.verdict; v <= QUERN_UNAVAILABLE; ++v) end_of[v] = std::min(end_of[v] + 1, capacity);
  });
  if (kept) {
    quern_candidate first = {};
    memcpy(&first, base, std::min<size_t>(size, sizeof first));
    if (first.verdict == QUERN_USABLE) {
      first.verdict = QUERN_CHOSEN;
      give(first, out, size);
    }
  }
  *count = found;
  return QUERN_OK;
}

extern "C" quern_status quern_front(const quern_device* device, const quern_problem* problem, const quern_wish* wish,
                                    quern_candidate* out, size_t capacity, size_t* count, quern_error* error) noexcept {
  if (capacity && !out) return fail(error, QUERN_INVALID, "out", 0, 0, "out is NULL while capacity is %zu", capacity);
  if (!count) return fail(error, QUERN_INVALID, "count", 0, 0, "count is NULL, must point to a size_t");
  quern_problem p;
  resolved_wish w;
  if (const quern_status s = complete(problem, p, error)) return s;
  if (const quern_status s = resolve(device, wish, w, error)) return s;
  const uint32_t size = capacity ? out->size : 0;
  if (const quern_status s = capacity ? check_out(size, error) : QUERN_OK) return s;
  const looked_up table(p, w);
  const full_problem full(p);
  const tuned_row* const tuned = table.row();
  constexpr size_t most = most_tuned;  // no more are usable
  option front[most];
  size_t kept = 0;
  option o;
  for_each_pair(is_gpu(w.machine), p.op, [&](const algorithm& a, const kernel& row, quern_backend backend) {
    in_best_layouts(full, a, row, backend, w, tuned, o);
    if (o.verdict != QUERN_USABLE) return;
    size_t place = 0;
    while (place < kept && !better(o, front[place])) ++place;
    if (place > 0 && workspace_of(front[place - 1]) <= workspace_of(o)) return;
    // Those after it that need as much are nothing any more.
    size_t rest = place;
    while (rest < kept && workspace_of(front[rest]) >= workspace_of(o)) ++rest;
    if (rest == place && kept == most) return;
    const size_t moved = kept - rest;
    if (rest == place)
      std::copy_backward(front + rest, front + kept, front + kept + 1);
    else
      std::copy(front + rest, front + kept, front + place + 1);
    front[place] = o, kept = place + 1 + moved;
  });
  for (size_t i = 0; i < std::min(kept, capacity); ++i) {
    quern_candidate c = candidate_of(full, work(full), front[i], w);
    if (i == 0) c.verdict = QUERN_CHOSEN;
    give(c, reinterpret_cast<quern_candidate*>(reinterpret_cast<char*>(out) + i * size), size);
  }
  *count = kept;
  return QUERN_OK;
}
