// SPDX-License-Identifier: MIT
#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "peak.h"
#include "stop.h"

namespace tools {
namespace {

constexpr double shortest_sample = 50e-6;  // seconds
constexpr int fewest_rounds = 24, most_rounds = 1000, rounds_of_place = 3;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Weights that L2 does not keep come from memory first, and an L3 takes them in little by little: the fifth run is at
// full speed, the first takes twice as long (Granite Rapids, 37 MB).
int untimed_runs(const ready& r) { return r.plan().packed_bytes > uint64_t{1} << 20 ? 5 : 1; }

// After runs that are not timed: what others left in the caches is not this one's merit or fault.
double sample(const ready& r, const operands& data, int runs) {
  for (int i = untimed_runs(r); i > 0; --i) r.run(data);
  const double begin = now();
  for (int i = 0; i < runs; ++i) r.run(data);
  return (now() - begin) / runs;
}

// Whether round r is of the second half of the places.
bool second_half(size_t r) { return r / rounds_of_place % 2 != 0; }

// Of sample i over the best one's; samples[i][r] is of round r, and who left takes part in no later one.
double over_best(const std::vector<std::vector<double>>& samples, size_t i) {
  std::vector<double> found;
  for (const bool named_by : {false, true}) {
    size_t best = i;
    double least = INFINITY;
    for (size_t j = 0; j < samples.size(); ++j) {
      std::vector<double> of;
      for (size_t r = 0; r < samples[j].size(); ++r) {
        if (second_half(r) == named_by) of.push_back(samples[j][r]);
      }
      if (of.empty() || quantile(of, 0.5) >= least) continue;
      best = j, least = quantile(of, 0.5);
    }
    std::vector<double> ratios;
    for (size_t r = 0; r < std::min(samples[i].size(), samples[best].size()); ++r) {
      if (second_half(r) != named_by) ratios.push_back(samples[i][r] / samples[best][r]);
    }
    if (!ratios.empty()) found.push_back(quantile(ratios, 0.5));
  }
  return found.size() == 2 ? std::sqrt(found[0] * found[1]) : found[0];
}

}  // namespace

double quantile(std::vector<double> v, double share) {
  std::sort(v.begin(), v.end());
  const double at = share * static_cast<double>(v.size() - 1);
  const size_t below = static_cast<size_t>(at), above = std::min(below + 1, v.size() - 1);
  return v[below] + (at - static_cast<double>(below)) * (v[above] - v[below]);
}

pool::pool(uint32_t threads) : host_(nullptr, quern_host_destroy) {
  if (threads == 1) return;
  quern_host* host = nullptr;
  quern_error error = {};
  need(quern_host_create(&host, threads, QUERN_HOST_POLL, &error), error, "--threads");
  host_.reset(host);
}

quern_exec pool::exec(const buffer& workspace) const {
  quern_exec exec = {};
  exec.size = sizeof exec;
  exec.workspace = workspace.get();
  exec.workspace_bytes = workspace.bytes();
  if (host_) quern_host_attach(host_.get(), &exec);
  return exec;
}

ready::ready(const quern_problem& problem, quern_wish wish, const quern_candidate& candidate, const operands& data,
             const pool& threads)
    : plan_(), threads_(threads) {
  wish.algorithm = candidate.algorithm;
  wish.kernel = candidate.kernel;
  quern_error error = {};
  need(quern_plan_make(&plan_, nullptr, &problem, &wish, &error), error,
       std::string(candidate.algorithm) + " " + candidate.kernel);
  move(data);
}

void ready::move(const operands& data) {
  workspace_ = buffer(plan_.workspace_bytes);
  exec_ = threads_.exec(workspace_);
  if (plan_.packed_bytes == 0) return;
  packed_ = buffer(plan_.packed_bytes);
  quern_error error = {};
  need(quern_pack(&plan_, data.weights.get(), packed_.get(), plan_.packed_bytes, &exec_, &error), error, name());
}

std::string ready::name() const { return std::string(plan_.algorithm) + " " + plan_.kernel; }

void ready::run(const operands& data) const {
  const quern_args args = data.args(packed_.bytes() ? packed_.get() : data.weights.get());
  quern_error error = {};
  const quern_status status = quern_run(&plan_, &args, &exec_, &error);
  if (status != QUERN_OK) throw stop{failed, name() + ": " + error.text};
}

bool ready::same_plan(const ready& other) const {
  const quern_plan &a = plan_, &b = other.plan_;
  return std::strcmp(a.algorithm, b.algorithm) == 0 && std::strcmp(a.kernel, b.kernel) == 0 && a.threads == b.threads &&
         std::memcmp(a.opaque, b.opaque, sizeof a.opaque) == 0;
}

std::vector<timing> time_together(std::vector<ready>& all, const std::vector<bool>& stays, const operands& data,
                                  double budget_ms, int threads, int bits, double* peak_gflops) {
  // Warm-up: at least two runs and a few milliseconds of each; it says how many runs make a sample, and counts as the
  // first of the rounds by which slow ones leave.
  std::vector<int> runs;
  std::vector<double> fastest;
  for (const ready& r : all) {
    r.run(data);
    const double begin = now();
    int done = 0;
    while (done < 1 || (now() - begin < 3e-3 && done < 10000)) r.run(data), ++done;
    const double one = std::max((now() - begin) / done, 1e-9);
    runs.push_back(std::clamp(static_cast<int>(shortest_sample / one) + 1, 1, 10000));
    fastest.push_back(one);
  }
  std::vector<std::vector<double>> samples(all.size());
  std::vector<double> peaks;
  for (int round = 0, next_peak = 0, rounds = fewest_rounds; round < rounds; ++round) {
    if (round == next_peak) peaks.push_back(fma_peak_gflops(threads, bits)), next_peak += std::max(rounds / 4, 1);
    const double slowest = *std::min_element(fastest.begin(), fastest.end()) * (1 + 1.0 / (round + 1));
    double longest = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (fastest[i] > slowest && !stays[i]) continue;
      if (round > 0 && round % rounds_of_place == 0) all[i].move(data);
      samples[i].push_back(sample(all[i], data, runs[i]));
      fastest[i] = std::min(fastest[i], samples[i].back());
      longest = std::max(longest, fastest[i] * (runs[i] + untimed_runs(all[i])));
    }
    rounds = std::clamp(static_cast<int>(budget_ms * 1e-3 / longest), fewest_rounds, most_rounds);
  }
  peaks.push_back(fma_peak_gflops(threads, bits));
  *peak_gflops = quantile(peaks, 0.5);
  std::vector<timing> times;
  for (size_t i = 0; i < all.size(); ++i) {
    if (samples[i].empty()) samples[i] = {fastest[i]};
  }
  for (size_t i = 0; i < all.size(); ++i) {
    times.push_back({quantile(samples[i], 0.5) * 1e3, fastest[i] * 1e3, static_cast<int>(samples[i].size()),
                     over_best(samples, i)});
  }
  return times;
}

}  // namespace tools
