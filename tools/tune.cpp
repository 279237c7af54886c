// SPDX-License-Identifier: MIT
//
// quern tune: which kernel is the fastest here, and a file that remembers.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

#include "commands.h"
#include "gpu.h"
#include "measure.h"
#include "stop.h"
#include "table.h"
#include "tuning_file.h"

namespace tools {
namespace {

volatile std::sig_atomic_t interrupted = 0;

// quern_host_tune on a GPU: memory there for the length of the call, the row into the same file.
quern_status tune_there(const gpu& there, quern_host_tuning* file, const quern_problem& p, quern_wish wish,
                        quern_budget budget, quern_tuned& out, quern_error& error) {
  quern_host_tuning_attach(file, &wish);
  uint64_t bytes = 0;
  if (const quern_status s = quern_tune_workspace(there.device(), &p, &wish, &budget, &bytes, &error)) return s;
  const gpu::memory workspace = there.allocate(bytes);
  quern_exec exec = {};
  exec.size = sizeof exec;
  exec.queue = there.stream(), exec.workspace = workspace.get(), exec.workspace_bytes = bytes;
  std::string row;
  budget.self = &row;
  budget.row = [](void* self, const void* table, size_t length) {
    static_cast<std::string*>(self)->assign(static_cast<const char*>(table), length);
  };
  const quern_status s = quern_tune(there.device(), &p, &wish, &budget, &exec, &out, &error);
  return s || row.empty() ? s : quern_host_tuning_add(file, row.data(), row.size(), &error);
}

// Lines of foreign tables one by one, so that each that is refused is named.
int merge(const tune_options& options) {
  if (options.file.empty()) throw stop{bad_input, "--merge needs --file, the table to add to"};
  const tuning_file file(options.file, options.read_only);
  const std::string header = "# quern tuning 1\n";
  size_t good = 0, bad = 0;
  for (const std::string& name : options.layers) {
    std::ifstream in(name, std::ios::binary);
    if (!in) throw stop{bad_input, name + ": cannot be opened: " + std::strerror(errno)};
    const std::string all{std::istreambuf_iterator<char>(in), {}};
    quern_error error = {};
    size_t rows = 0, damaged = 0;
    if (quern_tuning_check(all.data(), all.size(), &rows, &damaged, &error) != QUERN_OK && damaged == 0)
      throw stop{bad_input, name + ": " + error.text};
    size_t number = 2;
    for (size_t at = header.size(); damaged > 0 && at < all.size(); ++number) {
      const size_t end = std::min(all.find('\n', at), all.size());
      const std::string row = header + all.substr(at, end - at) + "\n";
      if (quern_tuning_check(row.data(), row.size(), nullptr, nullptr, &error) != QUERN_OK)
        std::fprintf(stderr, "%s:%zu: this row is refused: it %s\n", name.c_str(), number, error.text + 7);
      at = end + 1;
    }
    need(quern_host_tuning_add(file.get(), all.data(), all.size(), &error), error, name);
    good += rows, bad += damaged;
  }
  file.save();
  std::printf("%zu rows merged into %s, %zu refused\n", good, options.file.c_str(), bad);
  return bad ? failed : 0;
}

}  // namespace

int run_tune(const tune_options& options) {
  if (options.merge) return merge(options);
  const int32_t level = parse_level(options.level);
  const wishes w(options.wishes);
  const std::unique_ptr<gpu> there = gpu_of(options.device);
  const std::vector<job> jobs = jobs_of(options, there ? there->device() : nullptr);
  const tuning_file file(options.file, options.read_only);
  const pool threads(w.wish.threads);
  quern_budget budget = {};
  budget.size = sizeof budget;
  budget.level = level;
  budget.milliseconds = options.ms;
  budget.launches = options.launches;
  budget.progress = [](void*, const quern_tuned*) { return static_cast<int>(interrupted); };
  std::signal(SIGINT, [](int) { interrupted = 1; });

  size_t name = 5;
  for (const job& j : jobs) name = std::max(name, std::min<size_t>(j.from.name.size(), 48));
  table results({{"layer", false, name},
                 {"layout", false, 6},
                 {"algorithm", false, 24},
                 {"kernel", false, 40},
                 {"time", true, 8},
                 {"untuned", true, 8},
                 {"gain %", true, 6},
                 {"measured", true, 8},
                 {"runs", true, 6},
                 {"took", true, 8}});
  results.header(stdout);
  double took_ms = 0, tuned_ns = 0, untuned_ns = 0, log_regret = 0, worst = 1;
  int count = 0;
  uint64_t launches = 0;
  size_t fresh = 0;
  const progress shown;
  int status = 0;
  for (size_t i = 0; i < jobs.size() && !interrupted; ++i) {
    shown.show(text("%zu/%zu %s", i + 1, jobs.size(), jobs[i].from.name.substr(0, 60).c_str()));
    quern_wish wish = w.wish;
    wish.cpu = nullptr;  // the one at hand
    quern_tuned t = {};
    t.size = sizeof t;
    quern_error error = {};
    const quern_status s =
        there ? tune_there(*there, file.get(), jobs[i].problem, wish, budget, t, error)
              : quern_host_tune(threads.host(), file.get(), &jobs[i].problem, &wish, &budget, &t, &error);
    shown.show("");
    if (s != QUERN_OK) {
      std::fprintf(stderr, "quern tune: %s: %s\n", jobs[i].from.name.c_str(), error.text);
      status = failed;
      continue;
    }
    const bool compared = t.default_ns > 0 && t.measured_ns > 0;
    results.row(stdout,
                {jobs[i].from.name, layout_text(jobs[i].problem), t.algorithm, t.kernel, time_text(t.measured_ns),
                 time_text(t.default_ns), compared ? text("%.1f", 100 * (t.default_ns / t.measured_ns - 1)) : "-",
                 text("%u", t.candidates), text("%llu", static_cast<unsigned long long>(t.launches)),
                 t.launches ? time_text(t.elapsed_ns) : "-"});
    std::fflush(stdout);
    fresh += t.launches > 0;
    launches += t.launches;
    took_ms += t.launches ? t.elapsed_ns * 1e-6 : 0;
    if (compared) {
      const double ratio = t.default_ns / t.measured_ns;
      tuned_ns += t.measured_ns, untuned_ns += t.default_ns;
      log_regret += std::log(ratio), worst = std::max(worst, ratio), ++count;
    }
    if (t.launches) file.save();
  }
  std::signal(SIGINT, SIG_DFL);
  std::printf("\n%zu layers, %zu measured now: %llu runs of kernels in %.3g s\n", jobs.size(), fresh,
              static_cast<unsigned long long>(launches), took_ms * 1e-3);
  if (count)
    std::printf(
        "%.4g ms as tuned, %.4g ms untuned; regret (untuned over tuned): %.3f in the geometric mean, %.3f at worst\n",
        tuned_ns * 1e-6, untuned_ns * 1e-6, std::exp(log_regret / count), worst);
  return interrupted ? failed : status;
}

}  // namespace tools
