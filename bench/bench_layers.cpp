// SPDX-License-Identifier: MIT
//
// The layers of core.txt with the plan that quern chooses, NCHW and NHWC, on one thread, with bias and
// ReLU.  `quern bench` is the instrument for comparisons; this one is for Google Benchmark's own tools.
#include <benchmark/benchmark.h>
#include <time.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "jobs.h"
#include "measure.h"
#include "peak.h"
#include "stop.h"
#include "wishes.h"

namespace {

// Of this thread: other programs on the machine do not count.
double cpu_seconds() {
  timespec t = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void run(benchmark::State& state, const quern_problem& problem) {
  try {
    const tools::operands data(problem, tools::values::real, 1);
    const tools::channel_check check(problem, data, 2);
    const tools::pool threads(1);
    const quern_wish wish = {.size = sizeof(quern_wish)};
    const std::vector<quern_candidate> all = tools::candidates(problem, wish);
    if (all.empty() || all[0].verdict != QUERN_CHOSEN) return state.SkipWithError("no kernel solves it");
    const tools::ready ready(problem, wish, all[0], data, threads);
    ready.run(data);
    if (!(check.relative_l2(problem, data) < 1e-4)) return state.SkipWithError("computes a wrong result");
    const double before = tools::fma_peak_gflops(1);
    const double begin = cpu_seconds();
    for (auto _ : state) ready.run(data);
    const double took = cpu_seconds() - begin;
    const double after = tools::fma_peak_gflops(1);
    const double flops = tools::direct_flops(problem) * static_cast<double>(state.iterations());
    const double gflops = flops / took * 1e-9;
    state.counters["GFLOP/s"] = gflops;
    state.counters["peak%"] = 100 * gflops / ((before + after) / 2);
    state.SetLabel(std::string(all[0].algorithm) + " " + all[0].kernel);
  } catch (const tools::stop& s) {
    state.SkipWithError(s.text.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<tools::job> jobs;
  try {
    jobs = tools::jobs_of({.layers = {QUERN_LAYERS}, .layouts = {"nchw", "nhwc"}});
  } catch (const tools::stop& s) {
    std::fprintf(stderr, "%s\n", s.text.c_str());
    return 1;
  }
  for (const tools::job& j : jobs) {
    benchmark::RegisterBenchmark((j.from.name + "/" + tools::layout_text(j.problem)).c_str(),
                                 [&j](benchmark::State& state) { run(state, j.problem); })
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
