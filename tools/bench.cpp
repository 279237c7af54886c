// SPDX-License-Identifier: MIT
//
// quern bench: how fast each layer runs, and how exactly.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>

#include "commands.h"
#include "lines.h"
#include "measure.h"
#include "peak.h"
#include "report.h"
#include "stop.h"
#include "table.h"

namespace tools {
namespace {

// A relative L2 error beyond this is no rounding: the result is wrong.
constexpr double wrong_result = 1e-4;

struct job {
  const layer* from;
  quern_problem problem;  // complete, in the layout to run
};

quern_layout parse_layout(const std::string& name) {
  for (quern_layout l = QUERN_NCHW; l <= QUERN_ANY; ++l) {
    if (name == layouts_text(l, l)) return l;
  }
  throw stop{bad_input,
             "--layout is '" + name +
                 "', must be nchw, nhwc, nc4hw4, nc8hw8, nc16hw16, any, SRC:DST of these, or several with commas"};
}

std::string layout_text(const quern_problem& p) {
  return p.op == QUERN_GEMM ? "rows" : layouts_text(p.src.layout, p.dst.layout);
}

quern_accuracy parse_accuracy(const std::string& name) {
  for (quern_accuracy a : {QUERN_ACCURACY_DEFAULT, QUERN_ACCURACY_EXACT, QUERN_ACCURACY_F32, QUERN_ACCURACY_F32_FAST,
                           QUERN_ACCURACY_F32_LOOSE}) {
    if (name == accuracy_text(a)) return a;
  }
  throw stop{bad_input, "--accuracy is '" + name + "', must be default, exact, f32, f32_fast or f32_loose"};
}

void relayout(quern_tensor& t, quern_layout layout) {
  if (t.layout == layout) return;
  t.layout = layout;
  std::memset(t.stride, 0, sizeof t.stride);
}

// Weights stay as the line has them: they are packed anyway.
quern_problem with_layout(quern_problem p, const std::string& layouts) {
  if (p.op == QUERN_GEMM) return p;  // has rows and columns only
  const size_t colon = layouts.find(':');
  const quern_layout src = parse_layout(layouts.substr(0, colon));
  const quern_layout dst = colon == std::string::npos ? src : parse_layout(layouts.substr(colon + 1));
  relayout(p.src, src);
  relayout(p.dst, dst);
  if (p.epilogue.residual) relayout(p.residual, dst);
  return p;
}

std::vector<job> jobs_of(const std::vector<layer>& layers, const bench_options& options) {
  const uint64_t memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<job> jobs;
  for (const layer& l : layers) {
    if (l.name.find(options.filter) == std::string::npos && l.line.find(options.filter) == std::string::npos) continue;
    std::vector<std::string> layouts = options.layouts;
    if (layouts.empty() || l.problem.op == QUERN_GEMM || l.problem.op == QUERN_REORDER) layouts = {""};
    for (const std::string& layout : layouts) {
      quern_problem p = layout.empty() ? l.problem : with_layout(l.problem, layout);
      if (!options.accuracy.empty()) p.accuracy = parse_accuracy(options.accuracy);
      quern_error error = {};
      need(quern_problem_complete(&p, &p, &error), error, l.name);
      if (p.src.layout == QUERN_ANY || p.dst.layout == QUERN_ANY) {
        quern_plan plan;
        need(quern_plan_make(&plan, nullptr, &p, nullptr, &error), error, l.name);
        p = plan.problem;
      }
      if (p.src.type != QUERN_F32)
        throw stop{bad_input, l.name + ": only f32 can be timed, the reference alone has f64"};
      if (operand_bytes(p) > memory / 2) {
        throw stop{bad_input, l.name + ": its tensors take " + bytes_text(operand_bytes(p)) + ", this machine has " +
                                  bytes_text(memory)};
      }
      jobs.push_back({&l, p});
    }
  }
  if (jobs.empty()) {
    throw stop{bad_input, layers.empty() ? "no layers: the input has no problem line"
                                         : "no layer's name or line contains '" + options.filter + "'"};
  }
  return jobs;
}

// Wipes the line that it last wrote; silent unless stderr is a terminal.
struct progress {
  bool shown = isatty(STDERR_FILENO) == 1;
  void show(const std::string& line) const {
    if (shown) std::fprintf(stderr, "\r\033[K%s", line.c_str());
  }
};

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
  all.reserve(list.size());
  for (const quern_candidate& c : list) {
    all.emplace_back(j.problem, w.wish, c, data, threads);
    std::memset(data.dst.get(), 0xff, data.dst.bytes());
    all.back().run(data);
    errors.push_back(check.relative_l2(j.problem, data));
  }
  double peak = 0;
  const int bits = w.cpu.isa & QUERN_ISA_AVX512 ? 512 : w.cpu.isa & QUERN_ISA_AVX2 ? 256 : 128;
  const std::vector<timing> times =
      time_together(all, data, options.budget_ms, static_cast<int>(w.wish.threads), bits, &peak);

  // What a run has to move at least, and how fast that much is copied now.
  const uint64_t least = operand_bytes(j.problem);
  const double copied = copy_gbytes_per_second(least);

  std::vector<measurement> rows;
  for (size_t i = 0; i < list.size(); ++i) {
    const quern_plan& plan = all[i].plan();
    measurement m = {};
    m.layer = j.from->name;
    m.problem = problem_text(plan.problem);
    m.kernel = plan.kernel;
    m.algorithm = plan.algorithm;
    m.layout = layout_text(plan.problem);
    m.type = "f32";
    m.threads = plan.threads;
    m.chosen = list[i].verdict == QUERN_CHOSEN;
    m.ms_median = times[i].median_ms;
    m.ms_min = times[i].min_ms;
    m.gflops = direct_flops(j.problem) / times[i].median_ms * 1e-6;
    m.percent_of_peak = 100 * m.gflops / peak;
    if (copied > 0) m.percent_of_copy = 100 * static_cast<double>(least) / (times[i].median_ms * 1e6) / copied;
    m.rel_l2_error = errors[i];
    m.workspace_bytes = plan.workspace_bytes;
    m.packed_bytes = plan.packed_bytes;
    rows.push_back(m);
  }
  return rows;
}

struct summary {
  double chosen_ms = 0, log_regret = 0, worst_regret = 1;
  size_t layers = 0;
  std::string worst_layer = "none";

  void add(const std::vector<measurement>& rows) {
    double chosen = 0, best = INFINITY;
    for (const measurement& m : rows) {
      if (m.chosen) chosen = m.ms_median;
      best = std::min(best, m.ms_median);
    }
    if (chosen == 0) return;
    ++layers;
    chosen_ms += chosen;
    log_regret += std::log(chosen / best);
    if (chosen / best > worst_regret) worst_regret = chosen / best, worst_layer = rows[0].layer + " " + rows[0].layout;
  }

  void print(bool all) const {
    if (layers == 0) return;
    std::printf("\n%zu layers, %.4g ms in all for the chosen kernels\n", layers, chosen_ms);
    if (!all) return;
    std::printf("regret (chosen over best): %.3f in the geometric mean, %.3f at worst (%s)\n",
                std::exp(log_regret / static_cast<double>(layers)), worst_regret, worst_layer.c_str());
  }
};

table results_table(const std::vector<job>& jobs) {
  size_t name = 5, kernel = 6;
  for (const job& j : jobs) name = std::max(name, std::min<size_t>(j.from->name.size(), 48));
  for (size_t i = 0; i < quern_kernel_count(); ++i) {
    quern_kernel_info info = {};
    info.size = sizeof info;
    if (quern_kernel_get(i, &info, nullptr) == QUERN_OK) kernel = std::max(kernel, std::strlen(info.name));
  }
  return table({{"layer", false, name},
                {"layout", false, 6},
                {" ", false, 1},
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
  if (!options.type.empty() && options.type != "f32") {
    throw stop{bad_input, "--type is '" + options.type + "', must be f32"};
  }
  const std::vector<layer> layers = read_layers(options.layers, options.epilogue);
  const wishes w(options.wishes);
  const std::vector<job> jobs = jobs_of(layers, options);
  for (const job& j : jobs) candidates(j.problem, w.wish);  // wishes that make no sense end it here
  std::optional<output_file> json, csv;
  if (!options.json.empty()) json.emplace("--json", options.json);
  if (!options.csv.empty()) csv.emplace("--csv", options.csv);
  const bool quiet = options.json == "-" || options.csv == "-";
  const pool threads(w.wish.threads);

  table results = results_table(jobs);
  const progress shown;
  std::vector<measurement> rows;
  summary sum;
  int status = 0;
  if (!quiet) results.header(stdout);
  for (size_t i = 0; i < jobs.size(); ++i) {
    shown.show(text("%zu/%zu %s", i + 1, jobs.size(), jobs[i].from->name.substr(0, 60).c_str()));
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
      std::fprintf(stderr, "quern bench: %s: %s\n", jobs[i].from->name.c_str(), trouble.c_str());
      status = failed;
    }
    for (const measurement& m : found) {
      if (!quiet) {
        results.row(stdout, {m.layer, m.layout, m.chosen ? "*" : "", m.algorithm, m.kernel, text("%u", m.threads),
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
