// SPDX-License-Identifier: MIT
//
//   compare [--only NAME[,NAME...]] [--rounds N] [--json FILE] [--list]
#include "compare.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>

#include "cpu_name.h"
#include "lines.h"
#include "measure.h"
#include "peak.h"
#include "stop.h"
#include "wishes.h"

namespace compare {
namespace {

struct entry {
  const char* name;
  int number;
  void (*play)(ring&);
  const char* about;
  bool gpu = false;  // when it is asked for alone
};

constexpr entry entries[] = {
    {"im2col_workspace", 4, im2col_workspace, "memory of a whole im2col matrix, and what each algorithm takes"},
    {"im2col_blocked", 6, im2col_blocked, "whole im2col and GEMM, or block by block"},
    {"fused_packing", 7, fused_packing, "im2col and then packing, or packing straight from the image"},
    {"winograd_tiled", 8, winograd_tiled, "Winograd of the whole image, or of groups of tiles"},
    {"winograd_reduction", 9, winograd_reduction, "multiplications that Winograd saves, and time"},
    {"layouts", 12, layouts, "the same layers in NCHW, NHWC and blocks of 4, 8, 16 channels"},
    {"aligned_reads", 13, aligned_reads, "rows of odd width in NCHW, or aligned blocks of channels"},
    {"profiled", 10, profiled, "the choice by prediction, by a tuning, and by one that leaves nothing out"},
    {"networks", 11, networks, "all layers of a network against whole im2col and GEMM in NCHW"},
    {"threads", 24, threads, "threads that help each other or have their share, and a slow CPU"},
    {"variance", 25, variance, "how the time of a layer varies, warm and cold"},
    {"sliding_window", 22, sliding_window, "sliding window or im2col, few input channels"},
    {"few_outputs", 26, few_outputs, "few output channels: planes copied, planes where they lie, channels across"},
    {"stored_outputs", 27, stored_outputs,
     "outputs beyond L2 stored through the caches, or past them, and who reads them"},
    {"gpu_indices", 3, gpu_indices, "on a GPU: implicit GEMM by division, by a table, by increments", true},
    {"gpu_reduction", 16, gpu_reduction, "on a GPU: sums by a thread, a warp or a block each", true},
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Standard deviation over mean.
double variation(const std::vector<double>& v) {
  double sum = 0, squares = 0;
  for (double x : v) sum += x;
  const double mean = sum / static_cast<double>(v.size());
  for (double x : v) squares += (x - mean) * (x - mean);
  return std::sqrt(squares / static_cast<double>(v.size())) / mean;
}

double largest(const std::vector<double>& v) {
  double most = 0;
  for (double x : v) most = std::max(most, std::abs(x));
  return most;
}

}  // namespace

task::task(const std::string& line) : task(tools::read_layer({line}).problem) {}

task::task(const quern_problem& p)
    : problem_(p),
      data_(p, tools::values::real, 1),
      first_(tools::reference(p, data_, 0, 1, false)),
      last_(tools::reference(p, data_, tools::output_channels(p) - 1, 1, false)) {}

double task::flops() const { return tools::direct_flops(problem_); }

double task::max_error() const {
  double worst = 0;
  for (const bool last : {false, true}) {
    const std::vector<double>& want = last ? last_ : first_;
    const int64_t channel = last ? tools::output_channels(problem_) - 1 : 0;
    const std::vector<double> got = tools::result(problem_, data_, channel, 1);
    for (size_t i = 0; i < want.size(); ++i) {
      const double error = std::abs(got[i] - want[i]);
      worst = error <= worst ? worst : error;  // a NaN comes through
    }
  }
  return worst / std::max(largest(first_), largest(last_));
}

arm planned(const std::shared_ptr<task>& t, const std::string& name, const char* algorithm, const char* kernel) {
  quern_wish wish = {};
  wish.size = sizeof wish;
  wish.algorithm = algorithm, wish.kernel = kernel;
  return planned(t, name, wish);
}

arm planned(const std::shared_ptr<task>& t, const std::string& name, const quern_wish& wish,
            const std::shared_ptr<tools::pool>& threads) {
  const std::vector<quern_candidate> all = tools::candidates(t->problem(), wish);
  if (all.empty() || all[0].verdict != QUERN_CHOSEN)
    throw tools::stop{tools::failed, name + ": no kernel solves " + tools::problem_text(t->problem())};
  const auto pool = threads ? threads : std::make_shared<tools::pool>(1);
  const auto ready = std::make_shared<tools::ready>(t->problem(), wish, all[0], t->data(), *pool);
  return {name, ready->plan().workspace_bytes, [t, ready, pool] { ready->run(t->data()); },
          [t] { return t->max_error(); }};
}

void ring::play(const std::string& of, double flops, const std::vector<arm>& arms) {
  constexpr double shortest_sample = 100e-6, wrong_result = 1e-4;
  std::vector<int> runs(arms.size(), 1);
  std::vector<row> found(arms.size());
  for (size_t i = 0; i < arms.size(); ++i) {
    found[i] = {comparison_, of, arms[i].name,      number_, arms[i].workspace_bytes, 0, 0, 0, 0, 0, 0, 0,
                0,           0,  arms[i].tuning_ms, gpu_};
    if (!arms[i].run) continue;
    arms[i].run();
    if (arms[i].error) found[i].max_error = arms[i].error();
    if (!(found[i].max_error < wrong_result))
      throw tools::stop{tools::failed, of + ", " + arms[i].name + ": computes a wrong result"};
    const double begin = now();
    int done = 0;
    while (done < 1 || (now() - begin < 3e-3 && done < 10000)) arms[i].run(), ++done;
    if (!arms[i].single) runs[i] = std::clamp(static_cast<int>(shortest_sample * done / (now() - begin)) + 1, 1, 10000);
  }
  std::vector<std::vector<double>> samples(arms.size());
  std::vector<double> peaks = {tools::fma_peak_gflops(1)};
  // A hundredth of the samples is to be more than one.
  const bool tails = std::any_of(arms.begin(), arms.end(), [](const arm& a) { return a.single; });
  const int rounds = tails ? 5 * rounds_ : rounds_;
  for (int round = 0; round < rounds; ++round)
    for (size_t j = 0; j < arms.size(); ++j) {
      const size_t i = (static_cast<size_t>(round) + j) % arms.size();  // who goes first changes
      if (arms[i].sample) samples[i].push_back(arms[i].sample());
      if (!arms[i].run) continue;
      if (arms[i].prepare)
        arms[i].prepare();
      else
        arms[i].run();  // so that it finds in the caches what it left there
      const double begin = now();
      for (int r = 0; r < runs[i]; ++r) arms[i].run();
      samples[i].push_back((now() - begin) / runs[i] * 1e3);
    }
  peaks.push_back(tools::fma_peak_gflops(1));
  for (size_t i = 0; i < arms.size(); ++i) {
    row& r = found[i];
    if (!samples[i].empty()) {
      r.samples = samples[i].size();
      r.ms_min = tools::quantile(samples[i], 0), r.ms_median = tools::quantile(samples[i], 0.5);
      r.ms_p95 = tools::quantile(samples[i], 0.95), r.ms_p99 = tools::quantile(samples[i], 0.99);
      r.variation = variation(samples[i]);
      r.gflops = flops / r.ms_median * 1e-6;
      if (arms[i].run) r.percent_of_peak = 100 * r.gflops / ((peaks[0] + peaks[1]) / 2);
    }
    std::printf("%-17s %-26s %-24s %9llu bytes", comparison_, of.c_str(), r.arm.c_str(),
                static_cast<unsigned long long>(r.workspace_bytes));
    if (r.samples > 0)
      std::printf("  %9.4f ms (%.4f to %.4f)  %5.1f %%  error %.1e", r.ms_median, r.ms_min, r.ms_p95, r.percent_of_peak,
                  r.max_error);
    std::printf("\n");
    std::fflush(stdout);
  }
  rows_.insert(rows_.end(), found.begin(), found.end());
}

namespace {

void write_json(const std::string& file, const std::vector<row>& rows) {
  std::ofstream out(file);
  const std::time_t t = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&t));
  cpu_set_t cpus;
  const int allowed = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 0;
  out << "{\"cpu\": \"" << tools::cpu_name() << "\", \"date\": \"" << date << "\", \"version\": \""
      << tools::version_text(quern_version()) << "\", \"threads\": 1, \"cpus_allowed\": " << allowed
      << ", \"l2_bytes\": " << tools::this_cpu().l2_bytes << ", \"rows\": [";
  const char* comma = "\n";
  for (const row& r : rows) {
    out << comma << "  {\"comparison\": \"" << r.comparison << "\", \"number\": " << r.number << ", \"case\": \""
        << r.of << "\", \"arm\": \"" << r.arm << "\", \"samples\": " << r.samples << ", \"ms_min\": " << r.ms_min
        << ", \"ms_median\": " << r.ms_median << ", \"ms_p95\": " << r.ms_p95 << ", \"ms_p99\": " << r.ms_p99
        << ", \"variation\": " << r.variation << ", \"tuning_ms\": " << r.tuning_ms << ", \"gflops\": " << r.gflops
        << ", \"percent_of_peak\": " << r.percent_of_peak << ", \"workspace_bytes\": " << r.workspace_bytes
        << ", \"max_error\": " << r.max_error;
    if (!r.gpu.empty()) out << ", \"gpu\": \"" << r.gpu << "\"";
    out << "}";
    comma = ",\n";
  }
  out << "\n]}\n";
  if (!out.flush()) throw tools::stop{tools::failed, "cannot write " + file};
}

int usage() {
  std::fprintf(stderr, "usage: compare [--only NAME[,NAME...]] [--rounds N] [--json FILE] [--list]\n");
  return tools::bad_input;
}

int run(int argc, char** argv) {
  std::string only, json;
  int rounds = 41;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--list") {
      for (const entry& e : entries) std::printf("%-18s %2d  %s\n", e.name, e.number, e.about);
      return 0;
    }
    if (i + 1 == argc) return usage();
    const char* value = argv[++i];
    if (option == "--only")
      only = std::string(",") + value + ",";
    else if (option == "--json")
      json = value;
    else if (option == "--rounds")
      rounds = std::max(1, std::atoi(value));
    else
      return usage();
  }
  ring r(rounds);
  for (const entry& e : entries) {
    if (only.empty() ? e.gpu : only.find(std::string(",") + e.name + ",") == std::string::npos) continue;
    r.begin(e.name, e.number);
    e.play(r);
  }
  if (r.rows().empty()) return usage();
  if (!json.empty()) write_json(json, r.rows());
  return 0;
}

}  // namespace
}  // namespace compare

int main(int argc, char** argv) {
  try {
    return compare::run(argc, argv);
  } catch (const tools::stop& s) {
    std::fprintf(stderr, "compare: %s\n", s.text.c_str());
    return s.status;
  }
}
