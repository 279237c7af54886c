// SPDX-License-Identifier: MIT
//
// quern_tune: a race of candidates, in two stages.
//
//   first   options by prediction, with their own blocks
//   second  the fastest of them with other block sizes and threads
//
// Each stage is successive halving (Karnin, Koren, Somekh 2013): rounds in which all that are left give one sample in
// turn, then half of them leave.  Who is clearly behind leaves at once; a race with one runner is over.
#include <math.h>
#include <stddef.h>
#include <string.h>

#include <algorithm>

#include "clock.h"
#include "exec.h"
#include "problem.h"
#include "tune_stand.h"
#include "tuning.h"
#include "versioned.h"

namespace quern {
namespace {

constexpr double hysteresis = 0.97;       // of the choice's time, which another must pass below
constexpr double shortest_sample = 60e3;  // ns; shorter runs are repeated
constexpr double longest_warm_up = 5e6;   // ns
constexpr double behind = 1.5;            // times the best: not worth a second look
constexpr int most_entrants = most_tuned;

struct level_row {
  uint32_t milliseconds;
  int most, each;     // options beside those of the level below, and of one algorithm
  double ratio;       // of the best prediction, beyond which none is measured
  int samples;        // of who stays to the end
  int again;          // of the fastest with other blocks
  int l1, l2, split;  // how far those go: powers of two of the caches, halvings of the threads
  // Of the first stage: larger caches give larger blocks.
  race_size size_of(const option* options, int count) const { return {options, count, again > 0, again ? 4u : 1u}; }
};
constexpr level_row levels[] = {{0, 0, 0, 0, 0, 0, 0, 0, 0},
                                {60, 4, 2, 1.25, 9, 0, 0, 0, 0},
                                {1500, 14, 6, 1.6, 23, 0, 0, 0, 0},
                                {4000, 24, 12, 3, 35, 2, 0, 1, 1},
                                {20000, most_entrants, most_entrants, 1e30, 47, 4, 1, 2, 10}};

uint32_t milliseconds_of(const quern_budget& b) {
  return b.milliseconds ? b.milliseconds : levels[b.level].milliseconds;
}

// The options that a level measures: those of the level below, then by prediction the best of each algorithm before
// second ones.
int entrants(const quern_problem& p, const resolved_wish& w, int32_t level, option* out) {
  option all[most_entrants];
  const int usable = static_cast<int>(usable_options(p, w, all, most_entrants));
  bool in[most_entrants] = {};
  int count = 0;
  for (int32_t l = QUERN_TUNE_FAST; l <= level; ++l) {
    const int most = std::min(count + levels[l].most, most_entrants);
    for (int turn = 0; turn < levels[l].each; ++turn)
      for (int i = 0; i < usable && count < most; ++i) {
        if (all[i].cost.ns > levels[l].ratio * all[0].cost.ns) break;
        int before = 0;
        for (int j = 0; j < i; ++j) before += all[j].algorithm == all[i].algorithm;
        if (before == turn && !in[i]) out[count++] = all[i], in[i] = true;
      }
  }
  return count;
}

template <class Stand>
class race {
 public:
  race(const full_problem& p, const resolved_wish& w, const quern_budget& budget, Stand& stand)
      : p_(p), w_(w), budget_(budget), level_(levels[budget.level]), stand_(stand), begin_(now_ns()) {
    deadline_ = begin_ + milliseconds_of(budget) * 1e6;
    tuned_.size = sizeof tuned_;
  }

  // QUERN_BUFFER, QUERN_CANCELLED, what the stand says, or QUERN_OK.
  quern_status run(uint64_t memory, const tuned_row* before, quern_error* error) {
    option first[most_entrants];
    int count = entrants(p_, w_, budget_.level, first);
    const auto bytes = [&] { return Stand::bytes(p_, w_, level_.size_of(first, count)); };
    while (count > 1 && bytes() > memory) --count;
    if (bytes() > memory)
      return fail(error, QUERN_BUFFER, "exec.workspace_bytes", static_cast<int64_t>(memory),
                  static_cast<int64_t>(bytes()),
                  "exec.workspace_bytes is %llu, must be at least %llu for one candidate",
                  static_cast<unsigned long long>(memory), static_cast<unsigned long long>(bytes()));
    trials_ = stand_.begin(level_.size_of(first, count));
    if (!trials_) return stand_.status();
    for (int i = 0; i < count; ++i) enter(first[i], {0, 0, std::max(1u, w_.wish.threads)});
    incumbent_ = 0;
    if (before)
      for (int i = 0; i < count; ++i)
        if (find_candidate(*before, *first[i].algorithm, *first[i].row) == before->candidate) incumbent_ = i;
    warm_up();
    quern_status status = heat(0, count, 0);
    if (status == QUERN_OK && level_.again && !over_) status = again();
    if (const quern_status s = stand_.status()) return s;
    if (status != QUERN_OK)
      return fail(error, status, "progress", 0, 0, "the caller's progress callback ended the tuning");
    return QUERN_OK;
  }

  // What was found, best first; false: nothing.
  bool result(tuned_row& row) {
    int order[most_trials];
    const int count = ranking(order);
    if (count == 0) return false;
    // The choice stays unless another is clearly faster.
    int* const stays = std::find(order, order + count, incumbent_);
    if (stays != order + count && over(trials_[order[0]], trials_[incumbent_]) > hysteresis)
      std::rotate(order, stays, stays + 1);
    row.level = budget_.level;
    row.ms = over_ || left_out_ ? milliseconds_of(budget_) : 0;
    row.count = 0;
    for (int i = 0; i < count && row.count < most_tuned; ++i) {
      const trial& t = trials_[order[i]];
      if (find_candidate(row, *t.o.algorithm, *t.o.row)) continue;  // its best blocks are there
      const char *algorithm = t.o.algorithm->name, *kernel = t.o.row->name;
      row.candidate[row.count++] = {algorithm,
                                    kernel,
                                    static_cast<uint32_t>(strlen(algorithm)),
                                    static_cast<uint32_t>(strlen(kernel)),
                                    static_cast<uint64_t>(std::max(1.0, t.median)),
                                    static_cast<uint64_t>(std::max(1.0, t.least)),
                                    static_cast<uint64_t>(t.samples),
                                    t.as};
    }
    note(trials_[order[0]]);
    tuned_.candidates = static_cast<uint32_t>(row.count);
    return true;
  }

  const quern_tuned& tuned() {
    tuned_.elapsed_ns = now_ns() - begin_;
    return tuned_;
  }

 private:
  void enter(const option& o, const variation& as) {
    trial& t = trials_[count_++];
    memset(static_cast<void*>(&t), 0, offsetof(trial, sample));
    t.o = o, t.as = as;
    t.samples = 0, t.runs = 0, t.left = 0;
    t.median = t.least = 0;
  }

  // Pages, caches and the clock settle at nobody's expense: runs of the incumbent until they get no faster.
  void warm_up() {
    trial& t = trials_[incumbent_];
    if (!ready(t)) return;
    const double until = now_ns() + std::min(longest_warm_up, (deadline_ - now_ns()) / 8);
    const uint64_t most = budget_.launches ? budget_.launches / 8 : 10000;
    double least = INFINITY;
    for (int idle = 0; idle < 4 && tuned_.launches < most && now_ns() < until; ++idle) {
      const double one = measured(t, 1);
      if (one < 0.99 * least) least = one, idle = 0;
    }
  }

  bool ready(trial& t) {
    const bool is = stand_.can_run(t) && stand_.make_ready(t, trials_, count_);
    over_ |= stand_.status() != QUERN_OK;
    return is;
  }

  double measured(const trial& t, int runs) {
    tuned_.launches += static_cast<uint64_t>(runs + Stand::untimed_runs(t));
    const double ns = stand_.time(t, runs);
    over_ |= stand_.status() != QUERN_OK;
    return ns;
  }

  // Time of `runs` runs, each.  0 when the budget has no room for them.
  double time(const trial& t, int runs, double expected_ns) {
    const int all = runs + Stand::untimed_runs(t);
    if (now_ns() + expected_ns * all > deadline_ ||
        (budget_.launches && tuned_.launches + static_cast<uint64_t>(all) > budget_.launches)) {
      over_ = true;
      return 0;
    }
    return measured(t, runs);
  }

  static double median_of(double* v, int count) {
    double* const middle = v + count / 2;
    std::nth_element(v, middle, v + count);
    return count % 2 ? *middle : (*middle + *std::max_element(v, middle)) / 2;
  }

  void add_sample(trial& t, double ns) {
    if (t.samples < most_samples) t.sample[t.samples++] = ns;
    double v[most_samples] = {};
    std::copy(t.sample, t.sample + t.samples, v);
    t.median = median_of(v, t.samples), t.least = t.samples == 1 ? ns : std::min(t.least, ns);
  }

  // The time of one over another's, round by round: the memory's speed changes from one to the next.
  static double over(const trial& t, const trial& other) {
    double ratio[most_samples] = {};
    const int rounds = std::min(t.samples, other.samples);
    for (int i = 0; i < rounds; ++i) ratio[i] = t.sample[i] / other.sample[i];
    return median_of(ratio, rounds);
  }

  // Those that were measured, best first.
  int ranking(int* order) const {
    int count = 0;
    for (int i = 0; i < count_; ++i)
      if (trials_[i].samples > 0) order[count++] = i;
    std::sort(order, order + count, [&](int a, int b) {
      const trial &x = trials_[a], &y = trials_[b];
      return x.left != y.left ? x.left > y.left : x.median != y.median ? x.median < y.median : a < b;
    });
    return count;
  }

  void note(const trial& t) {
    tuned_.algorithm = t.o.algorithm->name, tuned_.kernel = t.o.row->name;
    tuned_.measured_ns = t.median;
    tuned_.default_ns = trials_[default_].samples ? trials_[default_].median : 0;
  }

  bool cancelled() {
    if (!budget_.progress) return false;
    uint32_t measured = 0;
    for (int i = 0; i < count_; ++i) measured += trials_[i].samples > 0;
    tuned_.candidates = measured;
    return budget_.progress(budget_.self, &tuned()) != 0;
  }

  // Trials [first, last) against each other.
  quern_status heat(int first, int last, int stage) {
    int in[most_trials], count = 0;
    double best = INFINITY;
    // Of few runs each candidate is to have some.
    const double most_runs = budget_.launches ? std::max(1.0, double(budget_.launches) / (8 * (last - first))) : 1000;
    // The first look: pack, warm up, and one sample, which most bad candidates do not survive.  Packing many large
    // weights can take all of the time: half is for the rounds, and the least promising come last.
    const double half = (now_ns() + deadline_) / 2;
    for (int i = first; i < last && !over_; ++i) {
      trial& t = trials_[i];
      if (count > 1 && now_ns() > half) {
        left_out_ = true;
        break;
      }
      if (cancelled()) return QUERN_CANCELLED;
      if (now_ns() > deadline_ || !ready(t)) continue;
      const double one = time(t, 1, std::min(t.o.cost.ns, 2 * best));
      if (one == 0) break;
      t.runs = static_cast<int>(std::clamp(shortest_sample / one + 1, 1.0, most_runs));
      double sample = t.runs > 1 ? time(t, t.runs, one) : one;
      if (sample == 0) break;
      // One slow sample may be the machine's fault.
      if (sample > 1.1 * best)
        if (const double second = time(t, t.runs, sample); second > 0) sample = std::min(sample, second);
      add_sample(t, sample);
      if (sample < best) best = sample, note(t);
      in[count++] = i;
    }
    const auto drop = [&](double limit, int stays) {
      int kept = 0;
      for (int i = 0; i < count; ++i)
        if (trials_[in[i]].least <= limit || in[i] == stays) in[kept++] = in[i];
      count = kept;
    };
    const auto sort = [&](double trial::*by) {
      std::sort(in, in + count, [&](int a, int b) {
        const double x = trials_[a].*by, y = trials_[b].*by;
        return x != y ? x < y : a < b;
      });
    };
    drop(behind * best, incumbent_);  // whom nobody replaces on the word of one sample
    int rounds = 1;
    for (int rung = 1; count > 1 && !over_; ++rung) {
      const int until = std::min(rounds + (1 << rung), level_.samples);
      for (; rounds < until && !over_; ++rounds)
        for (int j = 0; j < count && !over_; ++j) {
          trial& t = trials_[in[(j + rounds) % count]];  // who goes first changes
          if (cancelled()) return QUERN_CANCELLED;
          if (const double ns = time(t, t.runs, t.least); ns > 0) add_sample(t, ns);
        }
      sort(&trial::least);  // of few samples half may have been disturbed
      for (int j = 0; j < count; ++j) trials_[in[j]].left = 2 * (stage * 100 + rung);
      note(trials_[in[0]]);
      if (rounds >= level_.samples) break;
      // Half of them go, but nobody who is within a hair of the first; who never came near its median goes too.  The
      // choice stays: a table is not to make anything slower.
      const double leader = trials_[in[0]].median;
      const int stays = trials_[incumbent_].median < behind * leader ? incumbent_ : -1;
      int keep = std::max(2, (count + 1) / 2);
      while (keep < count && trials_[in[keep]].least < 1.02 * trials_[in[0]].least) ++keep;
      int* const choice = std::find(in + keep, in + count, stays);
      if (choice != in + count) std::swap(in[keep++], *choice);
      count = keep;
      drop(leader * 1.04, stays);
    }
    if (count > 0) {
      sort(&trial::median);
      trials_[in[0]].left |= 1;
      note(trials_[in[0]]);
    }
    return QUERN_OK;
  }

  // The fastest so far against themselves with other block sizes and threads.
  quern_status again() {
    int order[most_trials];
    const int first = count_, all = ranking(order);
    int count = std::min(level_.again, all);
    int* const choice = std::find(order + count, order + all, incumbent_);
    if (choice != order + all) std::swap(order[count++], *choice);
    for (int i = 0; i < count && count_ < most_trials; ++i) {
      const trial& from = trials_[order[i]];
      const int own = count_;
      if (order[i] == incumbent_) incumbent_ = own;
      if (order[i] == default_) default_ = own;  // measured beside the others
      enter(from.o, from.as);
      trials_[own].packed = from.packed;
      for (int l1 = -level_.l1; l1 <= level_.l1; ++l1)
        for (int l2 = -level_.l2; l2 <= level_.l2; ++l2) {
          uint32_t threads = std::max(1u, w_.wish.threads);
          for (int split = 0; split <= level_.split && threads > 0; ++split, threads /= 2) {
            option o = from.o;
            if (count_ == most_trials || !vary(p_, w_, {l1, l2, threads}, o)) continue;
            bool known = false;
            for (int j = own; j < count_; ++j) known |= memcmp(&trials_[j].o.blocks, &o.blocks, sizeof o.blocks) == 0;
            if (known) continue;
            enter(o, {l1, l2, threads});
          }
        }
    }
    return heat(first, count_, 1);
  }

  const full_problem& p_;
  const resolved_wish& w_;
  const quern_budget& budget_;
  const level_row& level_;
  Stand& stand_;
  double begin_, deadline_;
  bool over_ = false;      // the budget ended it, or an error
  bool left_out_ = false;  // some were not measured for want of time
  trial* trials_ = nullptr;
  int count_ = 0, incumbent_ = 0, default_ = 0;  // default_: what is chosen without tuning
  quern_tuned tuned_ = {};
};

quern_status take_budget(const quern_budget* given, quern_budget& out, quern_error* error) {
  out = {};
  if (!given) return fail(error, QUERN_INVALID, "budget", 0, 0, "budget is NULL, must point to a quern_budget");
  if (const quern_status s = take(given, out, "budget", error)) return s;
  if (out.level < QUERN_TUNE_NONE || out.level > QUERN_TUNE_HEAVY)
    return fail(error, QUERN_INVALID, "budget.level", out.level, QUERN_TUNE_HEAVY,
                "budget.level is %d, must be 0 to %d", out.level, QUERN_TUNE_HEAVY);
  return QUERN_OK;
}

// What both calls ask first.
quern_status prepare(const quern_device* device, const quern_problem* problem, const quern_wish* wish,
                     const quern_budget* budget, quern_problem& p, resolved_wish& w, quern_budget& b,
                     quern_error* error) {
  if (const quern_status s = complete(problem, p, error)) return s;
  if (const quern_status s = resolve(device, wish, w, error)) return s;
  if (const quern_status s = take_budget(budget, b, error)) return s;
  if (w.wish.gpu)
    return fail(error, QUERN_INVALID, "wish.gpu", 1, 0,
                "wish.gpu must be NULL: only the device's own GPU can be measured");
  if (w.wish.cpu)
    return fail(error, QUERN_INVALID, "wish.cpu", 1, 0, "wish.cpu must be NULL: only the CPU at hand can be measured");
  if (has_any(p))
    return fail(error, QUERN_UNSUPPORTED, p.src.layout == QUERN_ANY ? "src.layout" : "dst.layout", QUERN_ANY, 0,
                "a layout is QUERN_ANY, but layouts are tuned one at a time");
  return QUERN_OK;
}

}  // namespace
}  // namespace quern

using namespace quern;

extern "C" {

quern_status quern_tune_workspace(const quern_device* device, const quern_problem* problem, const quern_wish* wish,
                                  const quern_budget* budget, uint64_t* bytes, quern_error* error) noexcept {
  if (!bytes) return fail(error, QUERN_INVALID, "bytes", 0, 0, "bytes is NULL, must point to a uint64_t");
  quern_problem p;
  resolved_wish w;
  quern_budget b;
  if (const quern_status s = prepare(device, problem, wish, budget, p, w, b, error)) return s;
  option options[most_entrants];
  const int count = entrants(p, w, b.level, options);
  const race_size size = levels[b.level].size_of(options, count);
  const full_problem full(p);
  *bytes = !count ? 0 : device ? gpu_stand::bytes(full, w, size) : cpu_stand::bytes(full, w, size);
  return QUERN_OK;
}

quern_status quern_tune(const quern_device* device, const quern_problem* problem, const quern_wish* wish,
                        const quern_budget* budget, const quern_exec* exec, quern_tuned* out,
                        quern_error* error) noexcept {
  if (out && !is_size<quern_tuned>(out->size))
    return fail(error, QUERN_INVALID, "out->size", out->size, sizeof(quern_tuned),
                "out->size is %u, must be sizeof(quern_tuned), here %zu", out->size, sizeof(quern_tuned));
  quern_problem p;
  resolved_wish w;
  quern_budget b;
  quern_exec e;
  if (const quern_status s = prepare(device, problem, wish, budget, p, w, b, error)) return s;
  if (const quern_status s = take_exec(exec, e, error, device)) return s;
  if (e.threads < w.wish.threads)
    return fail(error, QUERN_INVALID, "exec.threads", e.threads, w.wish.threads,
                "exec.threads is %u, must be at least wish.threads = %u", e.threads, w.wish.threads);
  if (reinterpret_cast<uintptr_t>(e.workspace) % QUERN_ALIGN)
    return fail(error, QUERN_BUFFER, "exec.workspace", 0, QUERN_ALIGN, "exec.workspace is not aligned to %d bytes",
                QUERN_ALIGN);
  if (!e.workspace) e.workspace_bytes = 0;

  quern_tuned tuned = {};
  tuned.size = sizeof tuned;
  const auto reply = [&] {
    if (out) give(tuned, out, out->size);
    return QUERN_OK;
  };
  option chosen;
  full_problem full(p);
  if (const quern_status s = choose(full, w, chosen, error)) return s;
  tuned.algorithm = chosen.algorithm->name, tuned.kernel = chosen.row->name;
  tuned.measured_ns = chosen.measured_ns;
  if (b.level == QUERN_TUNE_NONE || empty(p)) return reply();

  // A row for exactly this wish answers, and so does one for any wish that has something for this one.
  char key[most_key];
  tuned_row before;
  const bool known = find_tuned(p, w, before);
  if (known && chosen.measured_ns > 0 &&
      (before.level > b.level || (before.level == b.level && (before.ms == 0 || before.ms >= milliseconds_of(b))))) {
    tuned.candidates = static_cast<uint32_t>(before.count);
    return reply();
  }
  const size_t key_length = tuning_key(p, w, has_demands(w.wish), key);
  if (!key_length)
    return fail(error, QUERN_UNSUPPORTED, "problem", 0, most_key, "the problem's text is too long for a tuning row");

  // The race itself is without the table.
  resolved_wish plain = w;
  plain.wish.tuning = nullptr, plain.wish.tuning_bytes = 0;
  tuned_row row;
  bool found = false;
  const auto measure = [&](auto& stand) -> quern_status {
    race r(full, plain, b, stand);
    if (const quern_status s = r.run(e.workspace_bytes, known ? &before : nullptr, error)) return s;
    found = r.result(row);
    tuned = r.tuned();
    return QUERN_OK;
  };
  if (device) {
    gpu_stand stand(full, plain, e, *device, error);
    if (const quern_status s = measure(stand)) return s;
  } else {
    cpu_stand stand(full, plain, e);
    if (const quern_status s = measure(stand)) return s;
  }
  if (found && b.row) {
    char table[most_line + tuning_header_bytes];
    b.row(b.self, table, print_tuned(key, key_length, row, table));
  }
  return reply();
}

}  // extern "C"
