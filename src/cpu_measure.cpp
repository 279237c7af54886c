// SPDX-License-Identifier: MIT
//
// quern_cpu_measure: the constants of the cost model, in some tens of milliseconds.
#include <string.h>

#include <algorithm>

#include "clock.h"
#include "exec.h"
#include "machine.h"
#include "registry.h"

namespace quern {
namespace {

constexpr double sample_ns = 4e5;  // of each of five
constexpr int samples = 5;

// Least time of one call, over samples of as many as take sample_ns.  How many those are comes from the least time too:
// a sample in which another process had the core says nothing.
template <class Call>
double least_ns(Call call) {
  call();
  double best = 1e9;
  const auto sample = [&](int calls) {
    const double begin = now_ns();
    for (int i = 0; i < calls; ++i) call();
    best = std::min(best, (now_ns() - begin) / calls);
  };
  int calls = 1;
  for (; calls <= 1 << 20; calls *= 2) {
    sample(calls);
    if (best * calls >= sample_ns / 2) sample(calls);
    if (best * calls >= sample_ns / 2) break;
  }
  for (int s = 1; s < samples && best * calls < 4 * sample_ns; ++s) sample(calls);
  return std::max(best, 1e-3);
}

// Least time of one call by itself, of some at least: what others take of the machine in between is no part of it, nor
// is what the first one waits for threads that sleep.
template <class Call>
double least_single_ns(Call call) {
  call();
  double best = 1e9, begin = now_ns();
  const double end = begin + samples * sample_ns;
  for (int calls = 0; begin < end || calls < 9; ++calls) {
    call();
    const double then = now_ns();
    best = std::min(best, then - begin);
    begin = then;
  }
  return std::max(best, 1e-3);
}

void be_busy(void*, size_t) {
  constexpr double long_enough_ns = 8e6;
  for (const double end = now_ns() + long_enough_ns; now_ns() < end;) {
  }
}

// Of the widest instructions, by the largest tile of theirs on operands in L1: within a few percent of the peak.
double measure_flops(uint64_t isa) {
  const kernel* row = nullptr;
  for (size_t i = 0; i < kernel_count(); ++i) {
    const kernel& k = kernel_at(i);
    if (k.kind != kind::gemm_f32 || (k.isa & ~isa)) continue;
    if (!row || k.vector > row->vector || (k.vector == row->vector && k.mr * k.nr > row->mr * row->nr)) row = &k;
  }
  if (!row) return 0;
  constexpr int depth = 128;
  alignas(QUERN_ALIGN) float a[16 * depth], b[depth * 64], c[16 * 64];
  if (row->mr > 16 || row->nr > 64) return 0;
  std::fill_n(a, 16 * depth, 0.5f), std::fill_n(b, depth * 64, 0.25f);
  const gemm_tap tap = {0, 0};
  gemm_f32 g = {};
  g.m = size_t(row->mr), g.n = size_t(row->nr), g.k = depth, g.taps = 1, g.tap = &tap;
  g.a = a, g.lda = depth, g.b = b, g.ldb = g.n;
  g.out.c = c, g.out.ldc = g.n;
  return 2.0 * row->mr * row->nr * depth / least_ns([&] { row->gemm(g); });
}

double measure_copy(char* memory, uint64_t bytes) {
  const uint64_t half = bytes / 2;
  memset(memory, 1, bytes);
  return 2 * double(half) / least_ns([&] {
           memcpy(memory + half, memory, half);
           __asm__ volatile("" : : : "memory");
         });
}

}  // namespace
}  // namespace quern

using namespace quern;

extern "C" quern_status quern_cpu_measure(quern_cpu* out, const quern_exec* exec, quern_error* error) noexcept {
  quern_exec e;
  quern_cpu cpu = {};
  if (const quern_status s = take_exec(exec, e, error)) return s;
  if (const quern_status s = quern_cpu_get(out, error)) return s;
  const uint32_t size = out->size;
  if (const quern_status s = take(out, cpu, "out", error)) return s;
  const machine m = machine_of(cpu);
  cpu.flops = measure_flops(cpu.isa);
  if (cpu.flops == 0)
    return fail(error, QUERN_UNSUPPORTED, "cpu.isa", static_cast<int64_t>(cpu.isa), 0,
                "no kernel of this build that could be measured runs on this CPU");
  if (e.parallel_for && cpu.cores > 1) {
    const uint32_t threads = std::min(cpu.cores, e.threads);
    // A thread that wakes on the core of who woke it, and sleeps again at once, is left there, and each call would take
    // milliseconds.  Threads that stay busy are moved apart.
    e.parallel_for(e.self, threads, be_busy, nullptr);
    cpu.fork_ns = least_single_ns([&] {
      e.parallel_for(
          e.self, threads, [](void*, size_t) {}, nullptr);
    });
  }
  // Half of each cache, so that nothing else pushes it out; of memory as much as there is, at least twice the last
  // cache.
  char* const memory = static_cast<char*>(e.workspace);
  const uint64_t room = memory ? std::min<uint64_t>(e.workspace_bytes, QUERN_CPU_WORKSPACE) : 0;
  const struct {
    uint64_t cache;
    double quern_cpu::*rate;
  } levels[] = {{m.l1, &quern_cpu::l1_rate}, {m.l2, &quern_cpu::l2_rate}, {m.l3, &quern_cpu::l3_rate}};
  uint64_t below = 0;
  for (const auto& l : levels) {
    // Of L3 what L2 does not hold, and no more than that: others use it too.
    const uint64_t bytes = (below ? std::min(l.cache / 2, 4 * below) : l.cache / 2) / 128 * 128;
    if (l.cache > below && bytes > below && bytes <= room && bytes > 0) cpu.*l.rate = measure_copy(memory, bytes);
    below = l.cache;
  }
  if (room >= 2 * m.l3) cpu.memory_rate = measure_copy(memory, room / 128 * 128);
  give(cpu, out, size);
  return quern_cpu_constants(out, error);
}
