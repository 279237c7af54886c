// SPDX-License-Identifier: MIT
//
// What comes before the first run of each layer of core.txt, in NCHW and NHWC: the best plan, by prediction and from a
// table of tuning that has all of them; all its candidates; and the plan's weights, packed.  And what comes around the
// kernels of every run: calls of problems so small that there is little else.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "jobs.h"
#include "measure.h"
#include "operands.h"
#include "peak.h"
#include "stop.h"
#include "tuning_file.h"

namespace {

void plan(benchmark::State& state, const quern_problem& problem, const quern_wish* wish) {
  quern_plan plan = {};
  quern_error error = {};
  for (auto _ : state) {
    if (quern_plan_make(&plan, nullptr, &problem, wish, &error)) return state.SkipWithError(error.text);
    benchmark::DoNotOptimize(plan);
  }
}

void best(benchmark::State& state, const quern_problem& problem, const quern_wish&) { plan(state, problem, nullptr); }
void tuned(benchmark::State& state, const quern_problem& problem, const quern_wish& wish) {
  plan(state, problem, &wish);
}

void all(benchmark::State& state, const quern_problem& problem, const quern_wish&) {
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

void pack(benchmark::State& state, const quern_problem& problem, const quern_wish&) {
  quern_plan plan = {};
  quern_error error = {};
  if (quern_plan_make(&plan, nullptr, &problem, nullptr, &error)) return state.SkipWithError(error.text);
  if (plan.packed_bytes == 0) return state.SkipWithError("packs nothing");
  const tools::operands data(plan.problem, tools::values::real, 1);
  const tools::buffer packed(plan.packed_bytes);
  for (auto _ : state) {
    if (quern_pack(&plan, data.weights.get(), packed.get(), plan.packed_bytes, nullptr, &error))
      return state.SkipWithError(error.text);
    benchmark::ClobberMemory();
  }
  const uint64_t bytes = data.weights.bytes() + plan.packed_bytes;
  state.counters["weights"] = static_cast<double>(data.weights.bytes() / sizeof(float));
  state.counters["bytes"] = static_cast<double>(bytes);
  state.counters["copied"] = tools::copy_gbytes_per_second(bytes);
  state.SetLabel(plan.algorithm);
}

void call(benchmark::State& state, const quern_plan& plan) {
  const tools::operands data(plan.problem, tools::values::real, 1);
  const tools::buffer packed(plan.packed_bytes), workspace(plan.workspace_bytes);
  quern_error error = {};
  if (plan.packed_bytes && quern_pack(&plan, data.weights.get(), packed.get(), plan.packed_bytes, nullptr, &error))
    return state.SkipWithError(error.text);
  const quern_args args = data.args(plan.packed_bytes ? packed.get() : data.weights.get());
  const quern_exec exec = tools::pool(1).exec(workspace);
  for (auto _ : state) {
    if (quern_run(&plan, &args, &exec, &error)) return state.SkipWithError(error.text);
    benchmark::ClobberMemory();
  }
}

// A vector of channels or two, 16 pixels; the epilogue of the layers.
constexpr const char* smallest[] = {"conv nhwc ic16ih4oc16kh1 bias act=relu",
                                    "conv nchw ic16ih4oc16kh1 bias act=relu",
                                    "conv nhwc g16ic16ih4oc16kh3ph1 bias act=relu",
                                    "conv nhwc g4ic16ih4oc16kh3ph1 bias act=relu",
                                    "gemm 16x16:16x16 bias act=relu",
                                    "reorder nchw:nhwc 1x16x4x4"};

struct question {
  const char* name;
  void (*ask)(benchmark::State&, const quern_problem&, const quern_wish& with_table);
};
constexpr question questions[] = {{"best", best}, {"tuned", tuned}, {"all", all}, {"pack", pack}};

}  // namespace

int main(int argc, char** argv) {
  std::vector<tools::job> jobs;
  std::vector<quern_plan> plans;
  std::optional<tools::tuning_file> table;
  quern_wish wish = {};
  wish.size = sizeof wish;
  try {
    jobs = tools::jobs_of({.layers = {QUERN_LAYERS}, .layouts = {"nchw", "nhwc"}});
    table.emplace("", false);
    quern_budget budget = {};
    budget.size = sizeof budget;
    budget.level = QUERN_TUNE_FAST;
    quern_error error = {};
    for (const tools::job& j : jobs)
      tools::need(quern_host_tune(nullptr, table->get(), &j.problem, &wish, &budget, nullptr, &error), error,
                  j.from.name);
    quern_host_tuning_attach(table->get(), &wish);
    for (const char* line : smallest) {
      quern_problem problem = {};
      problem.size = sizeof problem;
      tools::need(quern_problem_parse(line, &problem, &error), error, line);
      tools::need(quern_plan_make(&plans.emplace_back(), nullptr, &problem, nullptr, &error), error, line);
    }
  } catch (const tools::stop& s) {
    std::fprintf(stderr, "%s\n", s.text.c_str());
    return 1;
  }
  for (const tools::job& j : jobs) {
    const std::string name = j.from.name + "/" + tools::layout_text(j.problem);
    for (const question& q : questions) {
      benchmark::RegisterBenchmark((std::string(q.name) + "/" + name).c_str(), [&j, &q,
                                                                                &wish](benchmark::State& state) {
        q.ask(state, j.problem, wish);
      })->Unit(benchmark::kMicrosecond);
    }
  }
  for (const quern_plan& p : plans)
    benchmark::RegisterBenchmark((std::string("call/") + p.algorithm + "/" + tools::layout_text(p.problem)).c_str(),
                                 [&p](benchmark::State& state) { call(state, p); })
        ->Unit(benchmark::kMicrosecond);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
