// SPDX-License-Identifier: MIT
//
// quern info and quern kernels.
#include <quern/host.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "commands.h"
#include "cpu_name.h"
#include "measure.h"
#include "peak.h"
#include "stop.h"
#include "table.h"

namespace tools {
namespace {

void line(const char* what, const std::string& value) { std::printf("%-22s %s\n", what, value.c_str()); }

std::string vendor_text(const quern_cpu& cpu) {
  std::string letters;
  for (int i = 0; i < 4; ++i)
    if (const char c = static_cast<char>(cpu.model >> (32 + 8 * i)); c >= ' ' && c <= '~') letters += c;
  return letters.empty() ? "unknown" : letters;
}

void copy_line(const char* what, uint64_t working_set) {
  line(what, text("%.1f GB/s read and written (memcpy over %s)", copy_gbytes_per_second(working_set),
                  bytes_text(working_set).c_str()));
}

}  // namespace

int run_info() {
  const quern_cpu cpu = this_cpu();
  line("quern", version_text(quern_version()) + text(", %zu kernels", quern_kernel_count()));
  line("CPU", cpu_name());
  line("instruction sets", isa_text(cpu.isa));
  line("CPUs of this process", text("%u", quern_host_cpus()));
  line("L1 data cache", bytes_text(cpu.l1_bytes) + " a core");
  line("L2 cache", bytes_text(cpu.l2_bytes) + " a core");
  line("L3 cache", bytes_text(cpu.l3_bytes) + " shared");
  std::fflush(stdout);
  const int widest = cpu.isa & QUERN_ISA_AVX512 ? 512 : cpu.isa & QUERN_ISA_AVX2 ? 256 : 128;
  for (int bits = widest; bits >= 128; bits /= 2) {
    line(text("f32 FMA, %d bits", bits).c_str(), text("%.1f GFLOP/s on one thread", fma_peak_gflops(1, bits)));
  }
  // What predictions are made with: of the library's table, and measured just now.
  quern_cpu measured = {}, known = cpu;
  measured.size = sizeof measured;
  quern_error error = {};
  need(quern_cpu_constants(&known, &error), error, "this CPU");
  const buffer workspace(QUERN_CPU_WORKSPACE);
  const pool threads(quern_host_cpus());
  const quern_exec exec = threads.exec(workspace);
  const auto begin = std::chrono::steady_clock::now();
  const bool runs = quern_cpu_measure(&measured, &exec, &error) == QUERN_OK;
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  line("model", text("%s %llx", vendor_text(cpu).c_str(), static_cast<unsigned long long>(cpu.model & UINT32_MAX)));
  if (!runs) measured = known;
  line("cost constants",
       runs ? text("measured in %.0f ms (by the library's table)", took * 1e3) : "of the library's table");
  const auto constant = [&](const char* what, double quern_cpu::*field, const char* unit) {
    line(what, text(runs ? "%.4g %s (%.4g)" : "%.4g %s", measured.*field, unit, known.*field));
  };
  constant("  f32 arithmetic", &quern_cpu::flops, "GFLOP/s a core");
  constant("  copy in L1", &quern_cpu::l1_rate, "GB/s");
  constant("  copy in L2", &quern_cpu::l2_rate, "GB/s");
  constant("  copy in L3", &quern_cpu::l3_rate, "GB/s");
  constant("  copy in memory", &quern_cpu::memory_rate, "GB/s");
  constant("  fork and join", &quern_cpu::fork_ns, "ns");
  // Working sets that fill half of L1 and of L2, and one beyond every cache that this process may count on.
  copy_line("copy in L1", cpu.l1_bytes ? cpu.l1_bytes / 2 : 16 << 10);
  copy_line("copy in L2", cpu.l2_bytes ? cpu.l2_bytes / 2 : 128 << 10);
  copy_line("copy in memory", std::clamp<uint64_t>(4 * cpu.l3_bytes, uint64_t{256} << 20, uint64_t{1} << 30));
  return 0;
}

int run_kernels() {
  table t(
      {{"kernel", false}, {"kind", false}, {"backend", false}, {"needs", false}, {"tile", false}, {"about", false}});
  const quern_cpu cpu = this_cpu();
  bool missing = false;
  for (size_t i = 0; i < quern_kernel_count(); ++i) {
    quern_kernel_info k = {};
    k.size = sizeof k;
    quern_error error = {};
    need(quern_kernel_get(i, &k, &error), error, "the kernel table");
    const bool lacks = (k.isa & ~cpu.isa) != 0;
    missing |= lacks;
    const std::string needs = k.isa ? isa_text(k.isa) : k.capability ? text("sm_%u", k.capability) : "-";
    t.add({k.name, k.kind,
           k.backend == QUERN_BACKEND_REF    ? "ref"
           : k.backend == QUERN_BACKEND_X86  ? "x86"
           : k.backend == QUERN_BACKEND_ARM  ? "arm"
           : k.backend == QUERN_BACKEND_CUDA ? "cuda"
                                             : "?",
           needs + (lacks ? " *" : ""), k.mr ? text("%dx%d", k.mr, k.nr) : "-", k.about});
  }
  t.print(stdout);
  if (missing) std::printf("* not on this CPU\n");
  return 0;
}

}  // namespace tools
