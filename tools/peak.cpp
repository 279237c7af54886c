// SPDX-License-Identifier: MIT
#include "peak.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 64")
#endif

namespace tools {
namespace {

using clock = std::chrono::steady_clock;

double seconds(clock::time_point from, clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Every loop keeps `chains` independent accumulators: more than latency times issue width of any core
// so far (4 x 2 or 5 x 2), few enough to leave registers for the two constants.  x = x / 2 + 1 stays in
// the normal range forever.  Returns a value that depends on all of it.
struct loop {
  double flops_per_round;
  float (*run)(int64_t rounds);
};

// Passes over the accumulators in one round, so that the loop's own instructions do not show.
constexpr int passes = 4;

// Out of the compiler's sight: it would drop the chain that starts at the fixed point.
volatile float factor = 0.5f, addend = 1;

typedef float vector4 __attribute__((vector_size(16)));

float plain(int64_t rounds) {
  constexpr int chains = 12;
  vector4 x[chains];
  const float a = factor, b = addend;
  const vector4 half = {a, a, a, a}, one = {b, b, b, b};
  UNROLL
  for (int i = 0; i < chains; ++i) x[i] = one * static_cast<float>(i);
  for (int64_t n = 0; n < rounds; ++n) {
    UNROLL
    for (int i = 0; i < passes * chains; ++i) x[i % chains] = x[i % chains] * half + one;
  }
  vector4 sum = x[0];
  UNROLL
  for (int i = 1; i < chains; ++i) sum += x[i];
  return sum[0];
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) float avx2(int64_t rounds) {
  constexpr int chains = 12;
  __m256 x[chains];
  const __m256 half = _mm256_set1_ps(factor), one = _mm256_set1_ps(addend);
  UNROLL
  for (int i = 0; i < chains; ++i) x[i] = _mm256_set1_ps(static_cast<float>(i));
  for (int64_t n = 0; n < rounds; ++n) {
    UNROLL
    for (int i = 0; i < passes * chains; ++i) x[i % chains] = _mm256_fmadd_ps(x[i % chains], half, one);
  }
  __m256 sum = x[0];
  UNROLL
  for (int i = 1; i < chains; ++i) sum = _mm256_add_ps(sum, x[i]);
  return _mm256_cvtss_f32(sum);
}

__attribute__((target("avx512f"))) float avx512(int64_t rounds) {
  constexpr int chains = 16;
  __m512 x[chains];
  const __m512 half = _mm512_set1_ps(factor), one = _mm512_set1_ps(addend);
  UNROLL
  for (int i = 0; i < chains; ++i) x[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t n = 0; n < rounds; ++n) {
    UNROLL
    for (int i = 0; i < passes * chains; ++i) x[i % chains] = _mm512_fmadd_ps(x[i % chains], half, one);
  }
  __m512 sum = x[0];
  UNROLL
  for (int i = 1; i < chains; ++i) sum = _mm512_add_ps(sum, x[i]);
  return _mm512_cvtss_f32(sum);
}
#endif

loop widest(int bits) {
  if (bits <= 0) bits = 512;
#if defined(__x86_64__)
  if (bits >= 512 && __builtin_cpu_supports("avx512f")) return {passes * 16 * 16 * 2, avx512};
  if (bits >= 256 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {passes * 12 * 8 * 2, avx2};
#endif
  return {passes * 12 * 4 * 2, plain};
}

// Keeps the compiler from dropping what computes `value`.
void use(float value) { asm volatile("" : : "r"(value)); }

// The shortest of some wall times in which all threads ran `rounds` each, from the moment that all of them
// were there.  They first spin for a while, side by side: a new thread may begin on its maker's core.
double shortest(const loop& what, int threads, int64_t rounds) {
  constexpr int samples = 5;
  std::vector<clock::time_point> begin(threads), end(threads);
  std::barrier together(threads);
  double best = 0;
  const auto body = [&](int id) {
    const auto start = clock::now();
    while (threads > 1 && seconds(start, clock::now()) < 2e-2) use(what.run(500));
    for (int sample = 0; sample < samples; ++sample) {
      together.arrive_and_wait();
      begin[id] = clock::now();
      use(what.run(rounds));
      end[id] = clock::now();
      together.arrive_and_wait();
      if (id != 0) continue;
      const double took =
          seconds(*std::min_element(begin.begin(), begin.end()), *std::max_element(end.begin(), end.end()));
      if (best == 0 || took < best) best = took;
    }
  };
  std::vector<std::thread> others;
  for (int id = 1; id < threads; ++id) others.emplace_back(body, id);
  body(0);
  for (std::thread& other : others) other.join();
  return best;
}

}  // namespace

double fma_peak_gflops(int threads, int bits) {
  threads = std::max(threads, 1);
  const loop what = widest(bits);
  // Warms the clock and the vector units up, and finds out how many rounds make a sample of 0.3 ms.
  int64_t rounds = 0;
  const auto begin = clock::now();
  while (seconds(begin, clock::now()) < 6e-4) rounds += 500, use(what.run(500));
  rounds = std::max<int64_t>(rounds / 2, 1000);
  return what.flops_per_round * static_cast<double>(rounds) * threads / shortest(what, threads, rounds) * 1e-9;
}

double copy_gbytes_per_second(size_t bytes) {
  const size_t half = std::max<size_t>(bytes / 2, 64) / 64 * 64;
  const std::unique_ptr<char, void (*)(void*)> memory(static_cast<char*>(std::aligned_alloc(64, 2 * half)), std::free);
  if (!memory) return 0;
  std::memset(memory.get(), 1, 2 * half);
  const auto sample = [&](int64_t runs) {
    const auto begin = clock::now();
    for (int64_t i = 0; i < runs; ++i) {
      std::memcpy(memory.get() + half, memory.get(), half);
      asm volatile("" : : : "memory");
    }
    return seconds(begin, clock::now());
  };
  int64_t runs = 1;
  while (sample(runs) < 5e-4) runs *= 2;
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    best = std::max(best, 2.0 * static_cast<double>(half) * static_cast<double>(runs) / sample(runs) * 1e-9);
  }
  return best;
}

}  // namespace tools
