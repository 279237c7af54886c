// SPDX-License-Identifier: MIT
//
// What the library says about this CPU, against what cpuinfo and the system say.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "machine.h"
#include "prepared.h"

#if __has_include(<cpuinfo.h>)
#include <cpuinfo.h>
#define HAS_CPUINFO
#endif

namespace quern {
namespace {

TEST(Cpu, EqualsCpuinfo) {
#ifndef HAS_CPUINFO
  GTEST_SKIP() << "libcpuinfo-dev is not installed";
#elif defined(__x86_64__)
  if (!cpuinfo_initialize()) GTEST_SKIP() << "cpuinfo does not know this system";
  const quern_cpu cpu = this_cpu();
  EXPECT_EQ((cpu.isa & QUERN_ISA_AVX2) != 0, cpuinfo_has_x86_avx2() && cpuinfo_has_x86_fma3());
  EXPECT_EQ((cpu.isa & QUERN_ISA_AVX512) != 0, cpuinfo_has_x86_avx512f() && cpuinfo_has_x86_avx512bw() &&
                                                   cpuinfo_has_x86_avx512dq() && cpuinfo_has_x86_avx512vl());
  // Where both know a cache; a VM may hide it from either.
  const auto same = [](uint64_t ours, const cpuinfo_cache* theirs, const char* name) {
    if (ours && theirs && theirs->size) {
      EXPECT_EQ(ours, theirs->size) << name;
    }
  };
  same(cpu.l1_bytes, cpuinfo_get_l1d_cache(0), "L1");
  same(cpu.l2_bytes, cpuinfo_get_l2_cache(0), "L2");
#endif
}

// Of an L3 in parts a core reaches one.
TEST(Cpu, CachesAreThoseOfTheCore) {
#if defined(__x86_64__)
  const quern_cpu cpu = this_cpu();
  const uint64_t ours[] = {cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes};
  int known = 0;
  for (int i = 0; i < 8; ++i) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i) + "/";
    size_t level = 0;
    uint64_t kib = 0;
    std::string type;
    if (!(std::ifstream(folder + "level") >> level) || !(std::ifstream(folder + "size") >> kib) ||
        !(std::ifstream(folder + "type") >> type) || type == "Instruction" || level > 3)
      continue;
    EXPECT_EQ(ours[level - 1], kib << 10) << "L" << level;
    ++known;
  }
  if (!known) GTEST_SKIP() << "the system tells no caches";
#endif
}

// The system's list has what the kernel saves on a context switch, which CPUID alone does not tell.
TEST(Cpu, EqualsTheSystemsFlags) {
#if defined(__x86_64__)
  const char* const begin = "flags";
#else
  const char* const begin = "Features";
#endif
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && line.rfind(begin, 0) != 0) {
  }
  if (line.rfind(begin, 0) != 0) GTEST_SKIP() << "/proc/cpuinfo has no " << begin;
  std::istringstream words(line.substr(line.find(':') + 1));
  std::vector<std::string> flags;
  for (std::string word; words >> word;) flags.push_back(word);
  const auto all = [&](std::initializer_list<const char*> wanted) {
    for (const char* w : wanted)
      if (std::find(flags.begin(), flags.end(), w) == flags.end()) return false;
    return true;
  };
  const uint64_t isa = this_cpu().isa;
  EXPECT_EQ((isa & QUERN_ISA_AVX2) != 0, all({"avx2", "fma"}));
  EXPECT_EQ((isa & QUERN_ISA_AVX512) != 0, all({"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"}));
  EXPECT_EQ((isa & QUERN_ISA_NEON) != 0, all({"asimd"}) || all({"neon", "vfpv4"}));
  EXPECT_EQ(((isa | this_cpu().withheld_isa) & QUERN_ISA_AMX) != 0, all({"avx512bw", "amx_tile", "amx_bf16"}));
  EXPECT_EQ(isa & this_cpu().withheld_isa, 0u);
}

// By the system's name for the family; 25 is Zen 3, which has no AVX-512, and Zen 4.
TEST(Cpu, VectorsGoInHalvesOnZen4) {
  std::ifstream file("/proc/cpuinfo");
  bool amd = false, family = false;
  for (std::string line; std::getline(file, line);) {
    amd |= line.rfind("vendor_id", 0) == 0 && line.find("AuthenticAMD") != line.npos;
    family |= line.rfind("cpu family", 0) == 0 && line.find(": 25") != line.npos;
  }
  const bool halves = amd && family && (this_cpu().isa & QUERN_ISA_AVX512);
  EXPECT_EQ(this_cpu().vector_bits, halves ? 256u : 0u);
}

TEST(Cpu, RunsWhatItWasBuiltFor) {
#if defined(__aarch64__)
  EXPECT_EQ(this_cpu().isa, uint64_t{QUERN_ISA_NEON}) << "every 64-bit ARM has it";
#else
  EXPECT_EQ(this_cpu().isa & ~all_isas, 0u);
#endif
}

TEST(Cpu, CoresAreThoseOfTheAffinityMask) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) GTEST_SKIP() << "more CPUs than cpu_set_t holds";
  EXPECT_GE(this_cpu().cores, 1u);
  EXPECT_LE(this_cpu().cores, static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_CONF)));
}

TEST(Cpu, UnknownCachesAreAssumedSmall) {
  quern_cpu cpu = {};
  cpu.size = sizeof cpu;
  const machine m = machine_of(cpu);
  EXPECT_GT(m.l1, 0u);
  EXPECT_GT(m.l2, m.l1);
  EXPECT_GE(m.l3, m.l2);
  EXPECT_EQ(m.cores, 1u);
  EXPECT_GE(m.vector_bits, 512u);
  EXPECT_EQ(m.isa, 0u);
  cpu.l1_bytes = 48 << 10, cpu.l2_bytes = 2 << 20, cpu.l3_bytes = 1 << 20;  // an L3 smaller than L2 is a mistake
  EXPECT_EQ(machine_of(cpu).l1, 48u << 10);
  EXPECT_EQ(machine_of(cpu).l3, 2u << 20);
}

TEST(Cpu, GetTakesStructsOfOtherVersions) {
  quern_error error = {};
  for (const uint32_t size : {0u, 4u, 7u, 1u << 20}) {
    quern_cpu cpu = {};
    cpu.size = size;
    EXPECT_EQ(quern_cpu_get(&cpu, &error), QUERN_INVALID);
    EXPECT_STREQ(error.field, "out");
    EXPECT_EQ(error.value, size);
    EXPECT_EQ(cpu.cores, 0u);
  }
  EXPECT_EQ(quern_cpu_get(nullptr, &error), QUERN_INVALID);
  struct {
    quern_cpu cpu;
    uint64_t tail;
  } later = {{}, 5};
  later.cpu.size = sizeof later;
  ASSERT_EQ(quern_cpu_get(&later.cpu, &error), QUERN_OK) << error.text;
  EXPECT_EQ(later.tail, 0u);
  EXPECT_GE(later.cpu.cores, 1u);
  quern_cpu shorter = {};
  shorter.size = offsetof(quern_cpu, l2_bytes);
  shorter.l2_bytes = 77;
  ASSERT_EQ(quern_cpu_get(&shorter, &error), QUERN_OK) << error.text;
  EXPECT_EQ(shorter.l2_bytes, 77u) << "written past the caller's struct";
}

// A desktop's cores have the constants of their family, with the instruction sets that are left to them; a server that
// is known by its model alone says nothing of its family.
TEST(Cpu, ConstantsOfAFamily) {
  const auto of = [](uint64_t model, uint64_t isa) {
    quern_cpu cpu = {};
    cpu.size = sizeof cpu, cpu.model = model, cpu.isa = isa;
    return machine_of(cpu);
  };
  constexpr uint64_t amd = uint64_t{0x68747541} << 32, intel = uint64_t{0x756e6547} << 32;
  constexpr uint64_t avx2 = QUERN_ISA_AVX2, avx512 = avx2 | QUERN_ISA_AVX512;
  const machine epyc = of(amd | 0xa10f10, avx512), ryzen = of(amd | 0xa60f10, avx512), any = of(0x1234, avx512);
  EXPECT_EQ(ryzen.l3_rate, epyc.l3_rate);
  EXPECT_NE(ryzen.l3_rate, any.l3_rate);
  EXPECT_EQ(of(amd | 0xa60f10, avx2).l3_rate, of(amd | 0xa20f10, avx2).l3_rate);
  EXPECT_NE(of(amd | 0xa60f10, avx2).l3_rate, of(0x1234, avx2).l3_rate);
  EXPECT_NE(of(amd | 0xb40f40, avx512).flops, ryzen.flops);
  EXPECT_NE(of(intel | 0x0806f0, avx512).flops, of(intel | 0x0806a0, avx512).flops);
}

// Known models, any other, and what a caller measured; never zero, never nonsense.
TEST(Cpu, ConstantsOfTheTableOrTheCallers) {
  quern_cpu zen4 = {}, other = {};
  zen4.size = other.size = sizeof zen4;
  zen4.isa = other.isa = QUERN_ISA_AVX2 | QUERN_ISA_AVX512;
  zen4.model = 0x6874754100a10f10;
  other.model = 0x1234;
  const machine known = machine_of(zen4), any = machine_of(other);
  EXPECT_NE(known.flops, any.flops);
  for (const uint64_t isa : {uint64_t{0}, uint64_t{QUERN_ISA_AVX2}, uint64_t{QUERN_ISA_NEON}, ~uint64_t{0}}) {
    other.isa = isa;
    for (const double given : {0.0, -1.0, 1e300, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
      other.flops = other.l1_rate = other.l2_rate = other.l3_rate = other.memory_rate = other.fork_ns = given;
      quern_cpu filled = other;
      ASSERT_EQ(quern_cpu_constants(&filled, nullptr), QUERN_OK);
      for (const double c :
           {filled.flops, filled.l1_rate, filled.l2_rate, filled.l3_rate, filled.memory_rate, filled.fork_ns})
        EXPECT_TRUE(c >= 1 && c < 1e6) << c;
    }
  }
  other.flops = 77, other.fork_ns = 1234;
  EXPECT_EQ(machine_of(other).flops, 77);
  EXPECT_EQ(machine_of(other).fork_ns, 1234);
  EXPECT_EQ(quern_cpu_constants(nullptr, nullptr), QUERN_INVALID);
}

TEST(Cpu, MeasuresItsConstants) {
  if (!can_run(lowest_isa)) GTEST_SKIP() << "no kernel but the reference runs here";
  const memory workspace(QUERN_CPU_WORKSPACE);
  quern_exec exec = {};
  exec.size = sizeof exec;
  exec.workspace = workspace.get(), exec.workspace_bytes = workspace.bytes();
  exec.threads = 2;
  exec.parallel_for = [](void*, size_t count, void (*task)(void*, size_t), void* arg) {
    for (size_t i = 0; i < count; ++i) task(arg, i);
  };
  quern_cpu cpu = {};
  cpu.size = sizeof cpu;
  quern_error error = {};
  ASSERT_EQ(quern_cpu_measure(&cpu, &exec, &error), QUERN_OK) << error.text;
  quern_cpu plain = {};
  plain.size = sizeof plain;
  ASSERT_EQ(quern_cpu_get(&plain, nullptr), QUERN_OK);
  EXPECT_EQ(cpu.model, plain.model);
  EXPECT_EQ(cpu.l2_bytes, plain.l2_bytes);
  // What a plan takes, however slow an emulator is.
  for (const double c : {cpu.flops, cpu.l1_rate, cpu.l2_rate, cpu.l3_rate, cpu.memory_rate, cpu.fork_ns})
    EXPECT_TRUE(c >= 1e-3 && c <= 1e9) << c;
  // A plan takes it; without memory and pool only the arithmetic is measured.
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  plan_of(conv(QUERN_NHWC, 1, 64, 14, 64), wish);
  ASSERT_EQ(quern_cpu_measure(&plain, nullptr, &error), QUERN_OK) << error.text;
  EXPECT_EQ(plain.l1_rate, machine_of(this_cpu()).l1_rate);
}

TEST(Cpu, HasOnlyWhatIsWanted) {
  const quern_cpu all = this_cpu();
  for (const uint64_t wanted : {uint64_t{0}, uint64_t{QUERN_ISA_AVX2}, ~uint64_t{QUERN_ISA_AMX}, ~uint64_t{0}}) {
    const quern_cpu some = this_cpu(wanted);
    EXPECT_EQ(some.isa, all.isa & wanted);
    EXPECT_EQ(some.withheld_isa, all.withheld_isa & wanted) << "what nobody asks for, nobody withholds";
    EXPECT_EQ(some.model, all.model);
  }
}

TEST(Cpu, IsaNames) {
  EXPECT_STREQ(quern_isa_name(QUERN_ISA_AVX2), "avx2");
  EXPECT_STREQ(quern_isa_name(QUERN_ISA_AVX512), "avx512");
  EXPECT_STREQ(quern_isa_name(QUERN_ISA_NEON), "neon");
  for (const uint64_t none :
       {uint64_t{0}, uint64_t{QUERN_ISA_AVX2 | QUERN_ISA_AVX512}, uint64_t{1} << 63, ~uint64_t{0}})
    EXPECT_EQ(quern_isa_name(none), nullptr);
}

}  // namespace
}  // namespace quern
