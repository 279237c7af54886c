// SPDX-License-Identifier: MIT
//
// Every gemm_f32 microkernel of the table on its full tile, at depths of k that stay near L1, as GFLOP/s
// and as percent of the FMA peak that its ISA reaches in the same moment.  The reference rows are left
// out: they exist to be right, and nothing is gained by making them fast.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "peak.h"
#include "registry.h"

namespace {

using aligned = std::unique_ptr<float, void (*)(void*)>;

aligned floats(size_t count) {
  const size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
  aligned memory(static_cast<float*>(std::aligned_alloc(64, bytes)), std::free);
  if (!memory) std::abort();
  return memory;
}

// A packed row by row, B packed to the tile's width: as the drivers hand them over.
struct tile {
  tile(const quern::kernel& row, size_t k)
      : a(floats(row.mr * k)), b(floats(k * row.nr)), c(floats(static_cast<size_t>(row.mr) * row.nr)) {
    for (size_t i = 0; i < row.mr * k; ++i) a.get()[i] = static_cast<float>(i * 7 % 13) - 6;
    for (size_t i = 0; i < k * row.nr; ++i) b.get()[i] = static_cast<float>(i * 5 % 11) - 5;
    call.m = row.mr, call.n = row.nr, call.k = k;
    call.taps = 1, call.tap = &tap;
    call.a = a.get(), call.lda = k;
    call.b = b.get(), call.ldb = row.nr;
    call.c = c.get(), call.ldc = row.nr;
  }
  // Small integers: every order of summation gives the same.
  bool right() const {
    for (size_t i = 0; i < call.m; ++i)
      for (size_t j = 0; j < call.n; ++j) {
        float sum = 0;
        for (size_t p = 0; p < call.k; ++p) sum += call.a[i * call.lda + p] * call.b[p * call.ldb + j];
        if (sum != call.c[i * call.ldc + j]) return false;
      }
    return true;
  }

  aligned a, b, c;
  quern::gemm_tap tap = {0, 0};
  quern::gemm_f32 call = {};
};

int vector_bits(const quern::kernel& row) { return row.vector * 32; }

void run(benchmark::State& state, const quern::kernel& row, uint64_t isa) {
  if (row.isa & ~isa) {
    state.SkipWithError("this CPU lacks an instruction set that it needs");
    return;
  }
  tile t(row, static_cast<size_t>(state.range(0)));
  row.gemm(t.call);
  if (!t.right()) {
    state.SkipWithError("computes a wrong result");
    return;
  }
  const double before = tools::fma_peak_gflops(1, vector_bits(row));
  const auto begin = std::chrono::steady_clock::now();
  for (auto _ : state) {
    row.gemm(t.call);
    benchmark::ClobberMemory();
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  const double after = tools::fma_peak_gflops(1, vector_bits(row));
  const double flops = 2.0 * static_cast<double>(t.call.m * t.call.n * t.call.k);
  const double gflops = flops * static_cast<double>(state.iterations()) / took.count();
  state.counters["GFLOP/s"] = gflops;
  state.counters["peak%"] = 100 * gflops / ((before + after) / 2);
}

}  // namespace

int main(int argc, char** argv) {
  quern_cpu cpu = {};
  cpu.size = sizeof cpu;
  if (quern_cpu_get(&cpu, nullptr) != QUERN_OK) return 1;
  for (size_t i = 0; i < quern::kernel_count(); ++i) {
    const quern::kernel& row = quern::kernel_at(i);
    if (row.kind != quern::kind::gemm_f32) continue;
    benchmark::RegisterBenchmark(row.name, [&row, isa = cpu.isa](benchmark::State& state) { run(state, row, isa); })
        ->ArgName("k")
        ->Arg(64)
        ->Arg(128)
        ->Arg(256);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
