// SPDX-License-Identifier: MIT
//
// What planning may cost: no allocation ever, thirty microseconds for a choice beside other programs, a hundred for all
// candidates.
#include <errno.h>
#include <malloc.h>
#include <time.h>

#include <algorithm>

#include "allocations.h"
#include "prepared.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif

#if defined(__GLIBC__) && !defined(SANITIZED)
namespace quern {
const bool allocations_counted = true;
static thread_local uint64_t count;
uint64_t allocations() { return count; }
}  // namespace quern

// In front of glibc's own: the program's definitions win, and operator new comes here too.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t bytes) noexcept { return ++quern::count, __libc_malloc(bytes); }
void* calloc(size_t n, size_t bytes) noexcept { return ++quern::count, __libc_calloc(n, bytes); }
void* realloc(void* p, size_t bytes) noexcept { return ++quern::count, __libc_realloc(p, bytes); }
void* memalign(size_t align, size_t bytes) noexcept { return ++quern::count, __libc_memalign(align, bytes); }
void* aligned_alloc(size_t align, size_t bytes) noexcept { return ++quern::count, __libc_memalign(align, bytes); }
int posix_memalign(void** p, size_t align, size_t bytes) noexcept {
  ++quern::count;
  *p = __libc_memalign(align, bytes);
  return *p ? 0 : ENOMEM;
}
void free(void* p) noexcept { __libc_free(p); }
}
#else
namespace quern {
const bool allocations_counted = false;
uint64_t allocations() { return 0; }
}  // namespace quern
#endif

namespace quern {
namespace {

TEST(Budget, TheCounterCounts) {
  if (!allocations_counted) GTEST_SKIP() << "a sanitizer has the allocator";
  const uint64_t before = allocations();
  delete new int(1);
  free(malloc(100));
  std::vector<int> v(100);
  const memory m(100);
  EXPECT_EQ(allocations() - before, 4u);
}

TEST(Budget, NoVerbAllocates) {
  if (!allocations_counted) GTEST_SKIP() << "a sanitizer has the allocator";
  if (!can_run(lowest_isa)) GTEST_SKIP() << "no kernel but the reference runs here";
  for (const quern_layout layout : {QUERN_NCHW, QUERN_NHWC}) {
    for (const int64_t filter : {1, 3, 5}) {
      quern_problem p = conv(layout, 2, 33, 20, 40, filter);
      p.epilogue.bias = 1, p.epilogue.activation = QUERN_MISH;
      const prepared x(p);
      std::vector<quern_candidate> all(1000);
      all[0].size = sizeof all[0];
      quern_error error = {};
      quern_plan plan;
      quern_problem complete;
      size_t count = 0;
      char text[1024];
      quern_wish nonsense = wish_of();
      nonsense.kernel = "nonsense";

      const uint64_t before = allocations();
      quern_status status[] = {
          quern_problem_complete(&p, &complete, &error),
          quern_problem_print(&p, text, sizeof text, nullptr, &error),
          quern_problem_parse(text, &complete, &error),
          quern_candidates(nullptr, &p, nullptr, all.data(), all.size(), &count, &error),
          quern_candidate_explain(&all[count - 1], text, sizeof text, nullptr, &error),
          quern_plan_make(&plan, nullptr, &p, nullptr, &error),
          quern_pack(&x.plan, x.weights.get(), x.packed.get(), x.packed.bytes(), nullptr, &error),
          quern_packed_check(&x.plan, x.packed.get(), x.packed.bytes(), &error),
          x.run(&error),
      };
      const quern_status refused = quern_plan_make(&plan, nullptr, &p, &nonsense, &error);
      const uint64_t after = allocations();
      EXPECT_EQ(after, before);
      for (const quern_status s : status) EXPECT_EQ(s, QUERN_OK) << &s - status << ": " << error.text;
      EXPECT_EQ(refused, QUERN_INVALID);
    }
  }
}

TEST(Budget, PlansAreSmall) { EXPECT_LE(sizeof(quern_plan), 2048u); }

double now_us() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

// The median of 31 calls; the best of several such rounds, because other programs use the machine too.
template <class Call>
double median_us(double budget, Call call) {
  double best = 1e9;
  for (int round = 0; round < 20 && best > budget; ++round) {
    double times[31];
    for (double& t : times) {
      const double begin = now_us();
      call();
      t = now_us() - begin;
    }
    std::nth_element(times, times + 15, times + 31);
    best = std::min(best, times[15]);
  }
  return best;
}

TEST(Budget, PlanningTime) {
#if !defined(NDEBUG) || !defined(__OPTIMIZE__)
  GTEST_SKIP() << "not an optimised build";
#elif defined(QUERN_EMULATED)
  GTEST_SKIP() << "an emulator's time says nothing";
#endif
  if (!allocations_counted) GTEST_SKIP() << "sanitizers slow everything down";
  std::vector<quern_problem> problems;
  for (const quern_layout layout : {QUERN_NCHW, QUERN_NHWC}) {
    problems.push_back(conv(layout, 1, 64, 56, 64));
    problems.push_back(conv(layout, 1, 3, 224, 64, 7));
    problems.push_back(conv(layout, 1, 512, 7, 2048, 1));
    problems.push_back(conv(layout, 1, 64, 56, 64, 11));
    quern_problem p = conv(layout, 8, 32, 1024, 32, 5);
    p.window.stride[1] = p.window.stride[2] = 2;
    problems.push_back(p);
    p = quern_conv2d_transposed(QUERN_F32, layout, 1, 256, 128, 128, 3, 4, 4);
    p.window.stride[1] = p.window.stride[2] = 2;
    problems.push_back(p);
    p = quern_conv2d_transposed(QUERN_F32, layout, 1, 21, 16, 16, 21, 64, 64);
    p.window.stride[1] = p.window.stride[2] = 32;
    problems.push_back(p);
  }
  problems.push_back(quern_gemm(QUERN_F32, 1000, 1000, 1000));
  const quern_cpu cpu = {sizeof cpu, 8, all_isas, 48 << 10, 2 << 20, 32 << 20, 0};
  for (const quern_problem& p : problems)
    for (const uint32_t threads : {1u, 8u}) {
      quern_wish wish = wish_of(threads);
      // A thousand phases are looked at where a few are elsewhere.  Almost twice what a core of its own takes: a busy
      // sibling leaves little more than half of a core (127 and 179 microseconds for the slowest, Emerald Rapids).
      const double one = p.window.stride[1] > 8 ? 220 : 50, any = 25 * one, all_of_them = one + 120;
      wish.cpu = &cpu;
      quern_plan plan;
      EXPECT_LT(median_us(one, [&] { quern_plan_make(&plan, nullptr, &p, &wish, nullptr); }), one)
          << "quern_plan_make, microseconds: " << text_of(p) << ", threads " << threads;
      // Every layout once for src and dst: as long as so many plans, and no more.
      quern_problem open = p;
      if (p.op != QUERN_GEMM) open.src.layout = open.dst.layout = QUERN_ANY;
      EXPECT_LT(median_us(any, [&] { quern_plan_make(&plan, nullptr, &open, &wish, nullptr); }), any)
          << "quern_plan_make in any layout, microseconds: " << text_of(open) << ", threads " << threads;
      quern_candidate all[32];
      all[0].size = sizeof all[0];
      size_t count = 0;
      EXPECT_LT(median_us(all_of_them, [&] { quern_candidates(nullptr, &p, &wish, all, 32, &count, nullptr); }),
                all_of_them)
          << "quern_candidates, microseconds: " << text_of(p) << ", threads " << threads;
    }
}

}  // namespace
}  // namespace quern
