// SPDX-License-Identifier: MIT
//
// quern bench: how fast each layer runs, and how exactly.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>

#include "commands.h"
#include "jobs.h"
#include "measure.h"
#include "peak.h"
#include "report.h"
#include "stop.h"
#include "table.h"

namespace tools {
namespace {

// A relative L2 error beyond this is no rounding: the result is wrong.
constexpr double wrong_result = 1e-4;

// Sets the wish's table to what this level finds, which lies in `table`.
quern_tuned tune(const quern_problem& problem, quern_wish& wish, const std::string& level, const pool& threads,
                 std::string& table) {
  quern_budget budget = {};
  budget.size = sizeof budget;
  budget.level = parse_level(level);
  budget.self = &table;
  budget.row = [](void* self, const void* row, size_t bytes) {
    static_cast<std::string*>(self)->assign(static_cast<const char*>(row), bytes);
  };
  quern_wish here = wish;
  here.cpu = nullptr;
  quern_tuned tuned = {};
  tuned.size = sizeof tuned;
  quern_error error = {};
  need(quern_host_tune(threads.host(), nullptr, &problem, &here, &budget, &tuned, &error), error, "tuning");
  wish.tuning = table.data(), wish.tuning_bytes = table.size();
  return tuned;
}

std::vector<measurement> measure(const job& j, const bench_options& options, const wishes& w, const pool& threads) {
  std::vector<quern_candidate> list = candidates(j.problem, w.wish);
  const auto last = std::find_if(list.begin(), list.end(), [&](const quern_candidate& c) {
    return c.verdict != QUERN_CHOSEN && !(options.all && c.verdict == QUERN_USABLE);
  });
  list.erase(last, list.end());
  if (list.empty()) return {};

  const operands data(j.problem, values::real, 1);
  const channel_check check(j.problem, data, 2);
  std::vector<ready> all;
  std::vector<double> errors;
  std::vector<size_t> plan_of;  // list[i] is all[plan_of[i]]: one plan is timed once, whoever asks for it
  all.reserve(list.size() + options.tune.size());
  const auto add = [&](const quern_wish& wish, const quern_candidate& c) {
    all.emplace_back(j.problem, wish, c, data, threads);
    const auto first = std::find_if(all.begin(), all.end(), [&](const ready& r) { return r.same_plan(all.back()); });
    plan_of.push_back(static_cast<size_t>(first - all.begin()));
    if (plan_of.back() + 1 < all.size()) return all.pop_back();
    std::memset(data.dst.get(), 0xff, data.dst.bytes());
    all.back().run(data);
    errors.push_back(check.relative_l2(j.problem, data));
  };
  for (const quern_candidate& c : list) add(w.wish, c);
  std::vector<quern_tuned> tuned;
  for (const std::string& level : options.tune) {
    std::string table;
    quern_wish wish = w.wish;
    tuned.push_back(tune(j.problem, wish, level, threads, table));
    list.push_back(candidates(j.problem, wish).front());
    add(wish, list.back());
  }
  const size_t untuned = list.size() - tuned.size();
  double peak = 0;
  const int bits = w.cpu.isa & QUERN_ISA_AVX512 ? 512 : w.cpu.isa & QUERN_ISA_AVX2 ? 256 : 128;
  std::vector<bool> stays(all.size());
  for (size_t i = 0; i < list.size(); ++i) {
    if (i >= untuned || list[i].verdict == QUERN_CHOSEN) stays[plan_of[i]] = true;
  }
  const std::vector<timing> times =
      time_together(all, stays, data, options.budget_ms, static_cast<int>(w.wish.threads), bits, &peak);

  // What a run has to move at least, and how fast that much is copied now.
  const uint64_t least = operand_bytes(j.problem);
  const double copied = copy_gbytes_per_second(least);

  std::vector<measurement> rows;
  for (size_t i = 0; i < list.size(); ++i) {
    const quern_plan& plan = all[plan_of[i]].plan();
    const timing& t = times[plan_of[i]];
    measurement m = {};
    m.layer = j.from.name;
    m.problem = problem_text(plan.problem);
    m.kernel = plan.kernel;
    m.algorithm = plan.algorithm;
    m.layout = layout_text(plan.problem);
    m.threads = plan.threads;
    m.chosen = i < untuned && list[i].verdict == QUERN_CHOSEN;
    if (i >= untuned) m.tuning = options.tune[i - untuned], m.tuning_ms = tuned[i - untuned].elapsed_ns * 1e-6;
    m.ms_median = t.median_ms;
    m.ms_min = t.min_ms;
    m.samples = t.samples;
    m.over_best = t.over_best;
    m.gflops = direct_flops(j.problem) / t.median_ms * 1e-6;
    m.percent_of_peak = 100 * m.gflops / peak;
    if (copied > 0) m.percent_of_copy = 100 * static_cast<double>(least) / (t.median_ms * 1e6) / copied;
    m.rel_l2_error = errors[plan_of[i]];
    m.workspace_bytes = plan.workspace_bytes;
    m.packed_bytes = plan.packed_bytes;
    rows.push_back(m);
  }
  return rows;
}

// How far the choice is from the best candidate: the prediction's, and that of each level of tuning.
struct regret {
  double log_sum = 0, worst = 0, tuning_ms = 0;
  std::string worst_layer = "none";
};

struct summary {
  double chosen_ms = 0;
  size_t layers = 0;
  std::vector<std::pair<std::string, regret>> choices;

  void add(const std::vector<measurement>& rows) {
    double chosen = 0;
    for (const measurement& m : rows) {
      if (m.chosen) chosen = m.ms_median;
    }
    if (chosen == 0) return;
    ++layers;
    chosen_ms += chosen;
    for (const measurement& m : rows) {
      if (!m.chosen && m.tuning.empty()) continue;
      const auto same = [&](const auto& choice) { return choice.first == m.tuning; };
      if (std::none_of(choices.begin(), choices.end(), same)) choices.push_back({m.tuning, {}});
      regret& r = std::find_if(choices.begin(), choices.end(), same)->second;
      r.log_sum += std::log(m.over_best);
      r.tuning_ms += m.tuning_ms;
      if (m.over_best > r.worst) r.worst = m.over_best, r.worst_layer = m.layer + " " + m.layout;
    }
  }

  void print(bool all) const {
    if (layers == 0) return;
    std::printf("\n%zu layers, %.4g ms in all for the chosen kernels\n", layers, chosen_ms);
    if (!all) return;
    for (const auto& [level, r] : choices) {
      const std::string cost = level.empty() ? "" : text("; tuning %s took %.3g s", level.c_str(), r.tuning_ms * 1e-3);
      std::printf("regret (%s over best): %.3f in the geometric mean, %.3f at worst (%s)%s\n",
                  level.empty() ? "chosen" : level.c_str(), std::exp(r.log_sum / static_cast<double>(layers)), r.worst,
                  r.worst_layer.c_str(), cost.c_str());
    }
  }
};

table results_table(const std::vector<job>& jobs, bool tuned) {
  size_t name = 5, kernel = 6;
  for (const job& j : jobs) name = std::max(name, std::min<size_t>(j.from.name.size(), 48));
  for (size_t i = 0; i < quern_kernel_count(); ++i) {
    quern_kernel_info info = {};
    info.size = sizeof info;
    if (quern_kernel_get(i, &info, nullptr) == QUERN_OK) kernel = std::max(kernel, std::strlen(info.name));
  }
  return table({{"layer", false, name},
                {"layout", false, 6},
                {" ", false, tuned ? 6u : 1u},
                {"algorithm", false, 16},
                {"kernel", false, kernel},
                {"thr", true, 3},
                {"ms", true, 9},
                {"min ms", true, 9},
                {"GFLOP/s", true, 8},
                {"% peak", true, 6},
                {"% copy", true, 6},
                {"error", true, 7},
                {"workspace", true, 9},
                {"packed", true, 9}});
}

}  // namespace

int run_bench(const bench_options& options) {
  for (const std::string& level : options.tune) parse_level(level);
  const wishes w(options.wishes);
  const std::vector<job> jobs = jobs_of(options);
  for (const job& j : jobs) candidates(j.problem, w.wish);  // wishes that make no sense end it here
  std::optional<output_file> json, csv;
  if (!options.json.empty()) json.emplace("--json", options.json);
  if (!options.csv.empty()) csv.emplace("--csv", options.csv);
  const bool quiet = options.json == "-" || options.csv == "-";
  const pool threads(w.wish.threads);

  table results = results_table(jobs, !options.tune.empty());
  const progress shown;
  std::vector<measurement> rows;
  summary sum;
  int status = 0;
  if (!quiet) results.header(stdout);
  for (size_t i = 0; i < jobs.size(); ++i) {
    shown.show(text("%zu/%zu %s", i + 1, jobs.size(), jobs[i].from.name.substr(0, 60).c_str()));
    std::vector<measurement> found;
    std::string trouble;
    try {
      found = measure(jobs[i], options, w, threads);
      if (found.empty()) trouble = "no kernel solves it under these wishes (quern explain says why)";
    } catch (const stop& s) {  // one layer that fails does not cost the others' results
      trouble = s.text;
    }
    shown.show("");
    if (!trouble.empty()) {
      std::fprintf(stderr, "quern bench: %s: %s\n", jobs[i].from.name.c_str(), trouble.c_str());
      status = failed;
    }
    for (const measurement& m : found) {
      if (!quiet) {
        results.row(stdout, {m.layer, m.layout, m.chosen ? "*" : m.tuning, m.algorithm, m.kernel, text("%u", m.threads),
                             text("%.4g", m.ms_median), text("%.4g", m.ms_min), text("%.1f", m.gflops),
                             text("%.1f", m.percent_of_peak), text("%.1f", m.percent_of_copy),
                             text("%.1e", m.rel_l2_error), bytes_text(m.workspace_bytes), bytes_text(m.packed_bytes)});
        std::fflush(stdout);
      }
      if (!(m.rel_l2_error <= wrong_result)) {
        std::fprintf(stderr, "quern bench: %s: %s %s computes a wrong result (relative L2 error %.3g)\n",
                     m.layer.c_str(), m.algorithm.c_str(), m.kernel.c_str(), m.rel_l2_error);
        status = failed;
      }
    }
    sum.add(found);
    rows.insert(rows.end(), found.begin(), found.end());
  }
  if (!quiet) sum.print(options.all);
  if (json) json->write(json_text(rows, w.cpu));
  if (csv) csv->write(csv_text(rows));
  return status;
}

}  // namespace tools
