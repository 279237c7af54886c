// SPDX-License-Identifier: MIT
//
// Layout conversion between all pairs of layouts, on tensors that fit L2 and larger ones, as GB/s and as percent
// of what copies of as many bytes reach in the same moment in the same memory: memcpy, a loop of vectors, and the same
// vectors in the order in which a transposition meets them.
#include <benchmark/benchmark.h>
#include <quern/quern.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "problem.h"

namespace {

struct tensor {
  int64_t c, h, w;
};
constexpr tensor tensors[] = {{64, 56, 56},   {256, 14, 14}, {512, 7, 7},   {3, 224, 224}, {128, 28, 28},
                              {64, 112, 112}, {24, 56, 56},  {320, 64, 64}, {2048, 7, 7}};

struct layout {
  const char* name;
  quern_layout value;
};
constexpr layout layouts[] = {{"nchw", QUERN_NCHW},
                              {"nhwc", QUERN_NHWC},
                              {"nc4hw4", QUERN_NC4HW4},
                              {"nc8hw8", QUERN_NC8HW8},
                              {"nc16hw16", QUERN_NC16HW16}};

using memory = std::unique_ptr<void, void (*)(void*)>;

memory bytes(size_t count) {
  memory m(std::aligned_alloc(4096, (count + 4095) / 4096 * 4096), std::free);
  if (!m) std::abort();
  std::memset(m.get(), 1, count);
  return m;
}

// Of this thread: other programs on the machine do not count.
double cpu_seconds() {
  timespec t = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

using lanes = float __attribute__((vector_size(64), aligned(64)));

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void copy_vectors(void* to, const void* from, size_t count) {
  lanes* const dst = static_cast<lanes*>(to);
  const lanes* const src = static_cast<const lanes*>(from);
  for (size_t i = 0; i + 4 <= count / 64; i += 4) {
    const lanes a = src[i], b = src[i + 1], c = src[i + 2], d = src[i + 3];
    dst[i] = a, dst[i + 1] = b, dst[i + 2] = c, dst[i + 3] = d;
  }
}

// A line of each of up to 16 planes, then the next one: to one place after the other, as channels side by side lie.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void copy_tiles(void* to, const void* from, size_t planes, size_t lines) {
  lanes* dst = static_cast<lanes*>(to);
  const lanes* const src = static_cast<const lanes*>(from);
  for (size_t plane = 0; plane < planes; plane += 16) {
    const size_t rows = std::min<size_t>(16, planes - plane);
    for (size_t line = 0; line < lines; ++line)
      for (size_t row = 0; row < rows; ++row) *dst++ = src[(plane + row) * lines + line];
  }
}

// Seconds of one call, the least of some rounds.
template <class Call>
double shortest(size_t calls, Call call) {
  double best = 1e9;
  for (int round = 0; round < 7; ++round) {
    const double begin = cpu_seconds();
    for (size_t i = 0; i < calls; ++i) {
      call();
      benchmark::ClobberMemory();
    }
    best = std::min(best, (cpu_seconds() - begin) / static_cast<double>(calls));
  }
  return best;
}

void run(benchmark::State& state, tensor t, quern_layout from, quern_layout to) {
  const quern_problem p = quern_reorder(QUERN_F32, from, to, 1, t.c, t.h, t.w);
  quern_plan plan;
  quern_error error = {};
  if (quern_plan_make(&plan, nullptr, &p, nullptr, &error) != QUERN_OK) return state.SkipWithError(error.text);
  const size_t in = static_cast<size_t>(quern::extent(plan.problem.src)) * sizeof(float);
  const size_t out = static_cast<size_t>(quern::extent(plan.problem.dst)) * sizeof(float), half = (in + out) / 2;
  const memory src = bytes(std::max(in, half)), dst = bytes(std::max(out, half));
  quern_args args = {};
  args.size = sizeof args;
  args.src = src.get(), args.dst = dst.get();
  const size_t calls = std::max<size_t>(1, (size_t{4} << 20) / half);
  const auto reorder = [&] { quern_run(&plan, &args, nullptr, nullptr); };
  const size_t planes = static_cast<size_t>(t.c), lines = half / 64 / planes;
  double took = 1e9, copied = 1e9, looped = 1e9, tiled = 1e9;
  for (auto _ : state) {
    took = std::min(took, shortest(calls, reorder));
    copied = std::min(copied, shortest(calls, [&] { std::memcpy(dst.get(), src.get(), half); }));
    looped = std::min(looped, shortest(calls, [&] { copy_vectors(dst.get(), src.get(), half); }));
    tiled = std::min(tiled, shortest(calls, [&] { copy_tiles(dst.get(), src.get(), planes, lines); }));
  }
  tiled *= static_cast<double>(half) / static_cast<double>(planes * lines * 64);
  state.counters["GB/s"] = static_cast<double>(in + out) / took * 1e-9;
  state.counters["memcpy%"] = 100 * copied / took;
  state.counters["loop%"] = 100 * looped / took;
  state.counters["tiles%"] = 100 * tiled / took;
}

}  // namespace

int main(int argc, char** argv) {
  for (const tensor& t : tensors)
    for (const layout& from : layouts)
      for (const layout& to : layouts) {
        if (from.value == to.value) continue;
        const std::string name = std::string("reorder/") + from.name + ":" + to.name + "/" + std::to_string(t.c) + "x" +
                                 std::to_string(t.h) + "x" + std::to_string(t.w);
        benchmark::RegisterBenchmark(name.c_str(), run, t, from.value, to.value)->Iterations(3);
      }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
