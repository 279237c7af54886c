// SPDX-License-Identifier: MIT
//
// What this CPU has.  On x86 the compiler's own detection checks CPUID together with what the OS saves (XCR0), AMX is
// asked for, and CPUID knows the caches.  On ARM the kernel says in the auxiliary vector what it has and saves; nothing
// but files tells a process the caches, so they stay unknown.  A system that tells nothing (masked bits) gets less, not
// a failure.
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#elif defined(__aarch64__) || defined(__arm__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <atomic>

#include "error.h"
#include "machine.h"
#include "versioned.h"

namespace quern {
namespace {

struct isa_name {
  uint64_t bit;
  const char* name;
};
// From the lowest to the highest of each family; QUERN_ISA caps by this order.
constexpr isa_name isa_names[] = {
    {QUERN_ISA_AVX2, "avx2"}, {QUERN_ISA_AVX512, "avx512"}, {QUERN_ISA_AMX, "amx"}, {QUERN_ISA_NEON, "neon"}};

// Bits 0 to 15 are those of x86, 16 to 31 those of ARM.
constexpr uint64_t family_of(uint64_t bit) { return bit < QUERN_ISA_NEON ? 0xffff : 0xffff0000; }

#if defined(__x86_64__)
bool has_amx() {
  unsigned eax, ebx, ecx, edx;
  constexpr unsigned bf16 = 1 << 22, tile = 1 << 24;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & bf16) && (edx & tile);
}

#endif

// Tiles are what Linux lets a process use when it asks: the state of its threads takes more room from then on.
bool request_tiles() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr unsigned long get_permission = 0x1022, request_permission = 0x1023, tile_data = 18;
  unsigned long permitted = 0;
  if (syscall(SYS_arch_prctl, get_permission, &permitted) == 0 && (permitted >> tile_data & 1)) return true;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

// The system's word is asked for once, by whoever wants tiles first.
bool may_use_tiles() {
  static std::atomic<int> answer{0};  // 0 not asked, 1 yes, 2 no
  int known = answer.load(std::memory_order_relaxed);
  if (known == 0) answer.store(known = request_tiles() ? 1 : 2, std::memory_order_relaxed);
  return known == 1;
}

// What the CPU has, and the system saves without being asked.
uint64_t detect_isa() {
  uint64_t isa = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    isa |= QUERN_ISA_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      isa |= QUERN_ISA_AVX512;
      if (has_amx()) isa |= QUERN_ISA_AMX;
    }
  }
#elif defined(__aarch64__)
  if (getauxval(AT_HWCAP) & HWCAP_ASIMD) isa |= QUERN_ISA_NEON;
#elif defined(__arm__)
  constexpr unsigned long all = HWCAP_NEON | HWCAP_VFPv4;  // the fused multiply-add came with VFPv4
  if ((getauxval(AT_HWCAP) & all) == all) isa |= QUERN_ISA_NEON;
#endif
  return isa;
}

uint64_t detect_model() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d)) {
    const uint64_t vendor = b;
    constexpr unsigned family_and_model = 0x0fff0ff0;
    if (__get_cpuid(1, &a, &b, &c, &d)) return vendor << 32 | (a & family_and_model);
  }
#endif
  return 0;
}

// Family 0x19 of AMD's is Zen 3, without AVX-512, and Zen 4, which runs what has 512 bits as two halves.
uint64_t vector_bits_of(uint64_t model, uint64_t isa) {
  const uint64_t family = (model >> 8 & 0xf) + (model >> 20 & 0xff);
  return is_model_of(model, amd) && family == 0x19 && (isa & QUERN_ISA_AVX512) ? 256 : 0;
}

// The data cache of a level that this core has a part in.  Not the C library's word: of AMD's L3 it knows the sum over
// the package, of which a core reaches one (glibc 2.36, sysconf).
uint64_t cache_bytes(unsigned level) {
#if defined(__x86_64__)
  enum { data = 1, unified = 3 };
  for (const unsigned leaf : {4u, 0x8000001du}) {  // Intel's, AMD's
    unsigned a = 0, b = 0, c = 0, d = 0;
    for (unsigned i = 0; __get_cpuid_count(leaf, i, &a, &b, &c, &d) && (a & 31); ++i)
      if ((a >> 5 & 7) == level && ((a & 31) == data || (a & 31) == unified))
        return uint64_t{(b >> 22) + 1} * ((b >> 12 & 0x3ff) + 1) * ((b & 0xfff) + 1) * (uint64_t{c} + 1);
  }
#endif
  (void)level;
  return 0;
}

uint32_t detect_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<uint32_t>(CPU_COUNT(&set));
  const long n = sysconf(_SC_NPROCESSORS_ONLN);  // more CPUs than cpu_set_t holds
  return n > 0 ? static_cast<uint32_t>(n) : 1;
}

quern_cpu detect() {
  quern_cpu cpu = {};
  cpu.size = sizeof cpu;
  cpu.isa = detect_isa();
  cpu.cores = detect_cores();
  cpu.l1_bytes = cache_bytes(1);
  cpu.l2_bytes = cache_bytes(2);
  cpu.l3_bytes = cache_bytes(3);
  cpu.model = detect_model();
  cpu.vector_bits = vector_bits_of(cpu.model, cpu.isa);
  return cpu;
}

// CPUID traps in virtual machines and costs microseconds there, so the first answer is kept.  Whoever
// comes while it is being written detects for himself: no lock, nothing to break in a fork.
quern_cpu detect_once() {
  static quern_cpu kept;
  static std::atomic<int> state{0};  // 0 empty, 1 being written, 2 kept
  if (state.load(std::memory_order_acquire) == 2) return kept;
  const quern_cpu cpu = detect();
  int empty = 0;
  if (state.compare_exchange_strong(empty, 1, std::memory_order_relaxed)) {
    kept = cpu;
    state.store(2, std::memory_order_release);
  }
  return cpu;
}

}  // namespace

quern_cpu this_cpu(uint64_t wanted) {
  quern_cpu cpu = detect_once();
  cpu.isa &= wanted;
  if ((cpu.isa & QUERN_ISA_AMX) && !may_use_tiles())
    cpu.isa &= ~uint64_t{QUERN_ISA_AMX}, cpu.withheld_isa = QUERN_ISA_AMX;
  return cpu;
}

namespace {

// The bits of quern_cpu.model that tell the models of a family apart.
constexpr uint64_t models = 0xf00f0;

struct known_cpu {
  uint64_t model;  // with none of `models`, all of the family; 0: any with these instruction sets
  uint64_t isa;
  double flops, l1_rate, l2_rate, l3_rate, memory_rate, fork_ns;

  bool fits(const quern_cpu& cpu) const {
    return (model == 0 || model == (model & models ? cpu.model : cpu.model & ~models)) && !(isa & ~cpu.isa);
  }
};

// The first row that fits is taken.  Zen 3, Zen 4 and Emerald Rapids as `quern info` measured them, one core busy;
// Sapphire Rapids' arithmetic and L3 likewise; the rest are estimates.  What AMD's cores of a family share, most of all
// an L3 that answers in time, says more than their clocks.  Rows without a model are at the low end of what is in use.
constexpr known_cpu known_cpus[] = {
    {amd | 0xb00f00, QUERN_ISA_AVX512, 240, 400, 150, 80, 30, 4000},    // Zen 5 (EPYC 9005)
    {amd | 0xa00f00, QUERN_ISA_AVX512, 116, 170, 110, 84, 17, 4000},    // Zen 4 (EPYC 9004)
    {amd | 0xa00f00, QUERN_ISA_AVX2, 99, 180, 100, 52, 18, 4000},       // Zen 3 (EPYC 7003)
    {amd | 0x800f00, QUERN_ISA_AVX2, 90, 160, 90, 45, 15, 4000},        // Zen 2
    {intel | 0x0806f0, QUERN_ISA_AVX512, 215, 367, 114, 30, 30, 4000},  // Sapphire Rapids
    {intel | 0x0c06f0, QUERN_ISA_AVX512, 171, 330, 78, 22, 20, 1000},   // Emerald Rapids
    {0, QUERN_ISA_AVX512, 150, 200, 90, 25, 20, 6000},
    {0, QUERN_ISA_AVX2, 100, 120, 60, 25, 16, 6000},
    {0, QUERN_ISA_NEON, 40, 60, 30, 15, 10, 8000},
    {0, 0, 12, 40, 20, 10, 8, 8000},
};

// Floats of the widest vector.
double lanes_of(uint64_t isa) {
  return isa & QUERN_ISA_AVX512 ? 16 : isa & QUERN_ISA_AVX2 ? 8 : isa & QUERN_ISA_NEON ? 4 : 1;
}

// A figure of the caller's, within what keeps every cost finite; else the table's.
double given_or(double given, double known) { return given >= 1e-3 && given <= 1e9 ? given : known; }

}  // namespace

machine machine_of(const quern_cpu& cpu) {
  machine m = {};
  m.isa = cpu.isa;
  // Models multiply them: what no cache has is as good as that.
  const auto cache = [](uint64_t bytes) { return std::min(bytes, uint64_t{1} << 40); };
  m.l1 = cpu.l1_bytes ? cache(cpu.l1_bytes) : 32 << 10;
  m.l2 = cpu.l2_bytes ? cache(cpu.l2_bytes) : 256 << 10;
  m.l3 = std::max(cache(cpu.l3_bytes), m.l2);
  m.cores = cpu.cores ? cpu.cores : 1;
  m.vector_bits = cpu.vector_bits ? cpu.vector_bits : UINT64_MAX;
  m.model = cpu.model;
  const known_cpu* k = known_cpus;
  while (!k->fits(cpu)) ++k;
  m.flops = given_or(cpu.flops, k->flops);
  m.l1_rate = given_or(cpu.l1_rate, k->l1_rate), m.l2_rate = given_or(cpu.l2_rate, k->l2_rate);
  m.l3_rate = given_or(cpu.l3_rate, k->l3_rate), m.memory_rate = given_or(cpu.memory_rate, k->memory_rate);
  m.fork_ns = given_or(cpu.fork_ns, k->fork_ns);
  m.cycle_ns = 4 * lanes_of(cpu.isa) / m.flops;
  return m;
}

machine machine_of(const quern_gpu& gpu) {
  machine m = {};
  m.gpu = gpu;
  if (!gpu.multiprocessors) m.gpu.multiprocessors = 10;
  if (!gpu.clock_mhz) m.gpu.clock_mhz = 1000;
  if (!gpu.l2_bytes) m.gpu.l2_bytes = 1 << 20;
  if (!gpu.shared_bytes) m.gpu.shared_bytes = 48 << 10;
  if (!gpu.bandwidth) m.gpu.bandwidth = 100'000'000'000;
  return m;
}

double gpu_flops_a_ns(const quern_gpu& gpu) {
  const uint32_t c = gpu.capability;
  const int lanes = c < 86 ? 64 : 128;  // of a multiprocessor; 8.0 has half of what came after
  return 2e-3 * lanes * gpu.multiprocessors * gpu.clock_mhz;
}

double gpu_tf32_lanes(const quern_gpu& gpu) {
  // What came after 8.0 and is no server's has a quarter; 9.0 has twice as much for instructions of four warps.
  const uint32_t c = gpu.capability;
  return c < 80 ? 0 : c <= 80 || c == 90 || (c >= 100 && c < 110) ? 512 : 128;
}

}  // namespace quern

using namespace quern;

extern "C" const char* quern_isa_name(uint64_t bit) noexcept {
  for (const isa_name& isa : isa_names)
    if (isa.bit == bit) return isa.name;
  return nullptr;
}

extern "C" quern_status quern_cpu_get(quern_cpu* out, quern_error* error) noexcept {
  if (const quern_status s = check_out(out, "quern_cpu", error)) return s;
  uint64_t allowed = ~uint64_t{0};
  if (const char* cap = getenv("QUERN_ISA"); cap && *cap) {
    allowed = 0;
    bool known = strcmp(cap, "ref") == 0;
    for (const isa_name& isa : isa_names) {
      if (known) break;
      if (allowed & ~family_of(isa.bit)) allowed = 0;
      allowed |= isa.bit;
      known = strcmp(cap, isa.name) == 0;
    }
    if (!known)
      return fail(error, QUERN_INVALID, "QUERN_ISA", 0, 0,
                  "the environment variable QUERN_ISA is '%.40s', must be ref, avx2, avx512, amx or neon", cap);
  }
  give(this_cpu(allowed), out, out->size);
  return QUERN_OK;
}

extern "C" quern_status quern_cpu_constants(quern_cpu* cpu, quern_error* error) noexcept {
  if (!cpu) return fail(error, QUERN_INVALID, "cpu", 0, 0, "cpu is NULL, must point to a quern_cpu");
  quern_cpu c = {};
  if (const quern_status s = take(cpu, c, "cpu", error)) return s;
  const machine m = machine_of(c);
  c.flops = m.flops, c.fork_ns = m.fork_ns;
  c.l1_rate = m.l1_rate, c.l2_rate = m.l2_rate, c.l3_rate = m.l3_rate, c.memory_rate = m.memory_rate;
  give(c, cpu, cpu->size);
  return QUERN_OK;
}
