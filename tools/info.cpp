// SPDX-License-Identifier: MIT
//
// quern info and quern kernels.
#include <quern/host.h>

#include <algorithm>
#include <cstdio>

#include "commands.h"
#include "cpu_name.h"
#include "peak.h"
#include "stop.h"
#include "table.h"

namespace tools {
namespace {

void line(const char* what, const std::string& value) { std::printf("%-22s %s\n", what, value.c_str()); }

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
