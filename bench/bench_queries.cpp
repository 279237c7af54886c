// SPDX-License-Identifier: MIT
//
// What asking costs: the best plan of each layer of core.txt, and all its candidates, in NCHW and NHWC, by prediction.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>
#include <vector>

#include "jobs.h"
#include "stop.h"

namespace {

void best(benchmark::State& state, const quern_problem& problem) {
  quern_plan plan = {};
  quern_error error = {};
  for (auto _ : state) {
    if (quern_plan_make(&plan, nullptr, &problem, nullptr, &error)) return state.SkipWithError(error.text);
    benchmark::DoNotOptimize(plan);
  }
}

void all(benchmark::State& state, const quern_problem& problem) {
  quern_error error = {};
  size_t count = 0;
  quern_candidate size = {};
  size.size = sizeof size;
  if (quern_candidates(nullptr, &problem, nullptr, &size, 0, &count, &error)) return state.SkipWithError(error.text);
  std::vector<quern_candidate> rows(count, size);
  for (auto _ : state) {
    if (quern_candidates(nullptr, &problem, nullptr, rows.data(), rows.size(), &count, &error))
      return state.SkipWithError(error.text);
    benchmark::ClobberMemory();
  }
  state.counters["candidates"] = static_cast<double>(count);
}

struct question {
  const char* name;
  void (*ask)(benchmark::State&, const quern_problem&);
};
constexpr question questions[] = {{"best", best}, {"all", all}};

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
    const std::string name = j.from.name + "/" + tools::layout_text(j.problem);
    for (const question& q : questions) {
      benchmark::RegisterBenchmark((std::string(q.name) + "/" + name).c_str(), [&j, &q](benchmark::State& state) {
        q.ask(state, j.problem);
      })->Unit(benchmark::kMicrosecond);
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
