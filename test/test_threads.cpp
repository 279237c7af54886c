// SPDX-License-Identifier: MIT
//
// Threads: results that no parallel_for can change, however odd it is, and many callers at once.

#include <algorithm>
#include <atomic>
#include <thread>

#include "machine.h"
#include "prepared.h"

namespace quern {
namespace {

using task = void (*)(void*, size_t);

// What a caller's parallel_for may be: each calls every task once and returns when all are done.
struct loop {
  const char* name;
  void (*run)(void*, size_t, task, void*);
};

void on_threads(size_t n, size_t count, task t, void* arg) {
  std::atomic<size_t> next{0};
  std::vector<std::thread> list;
  for (size_t i = 0; i < n; ++i)
    list.emplace_back([&] {
      for (size_t k; (k = next++) < count;) t(arg, k);
    });
  for (std::thread& one : list) one.join();
}

constexpr uint32_t declared = 5;  // threads that the exec promises

const loop loops[] = {
    {"one thread, in order",
     [](void*, size_t count, task t, void* arg) {
       for (size_t i = 0; i < count; ++i) t(arg, i);
     }},
    {"one thread, backwards",
     [](void*, size_t count, task t, void* arg) {
       for (size_t i = count; i-- > 0;) t(arg, i);
     }},
    {"one thread, shuffled",
     [](void*, size_t count, task t, void* arg) {
       std::vector<size_t> order(count);
       for (size_t i = 0; i < count; ++i) order[i] = i;
       std::shuffle(order.begin(), order.end(), std::mt19937(5));
       for (const size_t i : order) t(arg, i);
     }},
    {"another thread",
     [](void*, size_t count, task t, void* arg) {
       std::thread([=] {
         for (size_t i = 0; i < count; ++i) t(arg, i);
       }).join();
     }},
    {"one thread fewer", [](void*, size_t count, task t, void* arg) { on_threads(declared - 1, count, t, arg); }},
    {"as many as promised", [](void*, size_t count, task t, void* arg) { on_threads(declared, count, t, arg); }},
    {"seven more", [](void*, size_t count, task t, void* arg) { on_threads(declared + 7, count, t, arg); }},
    {"a thread for each task",
     [](void*, size_t count, task t, void* arg) {
       std::vector<std::thread> list;
       for (size_t i = 0; i < count; ++i) list.emplace_back(t, arg, i);
       for (std::thread& one : list) one.join();
     }},
};

std::vector<quern_problem> problems() {
  std::vector<quern_problem> list;
  for (const quern_layout layout : {QUERN_NCHW, QUERN_NHWC}) {
    quern_problem p = conv(layout, 2, 32, 40, 48);
    p.epilogue.bias = 1, p.epilogue.residual = QUERN_RESIDUAL_AFTER;
    list.push_back(p);
    list.push_back(conv(layout, 1, 256, 7, 512, 1));
    p = quern_conv2d_transposed(QUERN_F32, layout, 1, 32, 24, 24, 16, 4, 4);
    p.window.stride[1] = p.window.stride[2] = 2;
    list.push_back(p);
    p = conv(layout, 1, 64, 48, 64, 5);
    p.groups = 64, p.weights.size[1] = 1;
    list.push_back(p);
  }
  list.push_back(quern_gemm(QUERN_F32, 130, 200, 300));
  return list;
}

class Threads : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_run(lowest_isa)) GTEST_SKIP() << "no kernel but the reference runs here";
  }
};

TEST_F(Threads, AnyLoopGivesTheSameBits) {
  int parallel = 0;
  for (const quern_problem& p : problems()) {
    const prepared one(p);
    ASSERT_EQ(one.run(), QUERN_OK);
    quern_wish wish = wish_of(declared);
    wish.algorithm = one.plan.algorithm, wish.kernel = one.plan.kernel;
    prepared many(p, wish);
    EXPECT_TRUE(one.packed.copy() == many.packed.copy()) << "packed weights follow the number of threads";
    parallel += many.plan.threads > 1;
    for (const loop& l : loops) {
      SCOPED_TRACE(text_of(p) + ": " + l.name);
      many.exec.threads = declared, many.exec.parallel_for = l.run;
      memset(many.workspace.get(), 0xff, many.workspace.bytes());
      memset(many.dst.get(), 0xff, many.dst.bytes());
      quern_error error = {};
      ASSERT_EQ(many.run(&error), QUERN_OK) << error.text;
      EXPECT_TRUE(one.dst.copy() == many.dst.copy());
    }
  }
  EXPECT_GT(parallel, 4) << "too few of these problems use threads";
}

// Workers that are really at work at the same time, each in its own part of the workspace.
TEST_F(Threads, WorkersDoNotMeetInTheWorkspace) {
  quern_wish wish = wish_of(declared);
  wish.algorithm = "conv_im2col";
  const quern_problem p = conv(QUERN_NCHW, 1, 64, 96, 64);
  quern_wish alone = wish_of();
  alone.algorithm = wish.algorithm;
  const prepared one(p, alone);
  ASSERT_EQ(one.run(), QUERN_OK);
  prepared many(p, wish);
  ASSERT_GT(many.plan.threads, 1u);
  many.exec.threads = declared;
  struct together {
    size_t count;
    task t;
    void* arg;
    std::atomic<size_t> ready{0};
    static void start(void* self, size_t i) {
      together& all = *static_cast<together*>(self);
      for (++all.ready; all.ready < all.count;) std::this_thread::yield();
      all.t(all.arg, i);
    }
  };
  many.exec.parallel_for = [](void*, size_t count, task t, void* arg) {
    together all = {count, t, arg};
    on_threads(count, count, together::start, &all);
  };
  for (int round = 0; round < 5; ++round) {
    memset(many.dst.get(), 0xff, many.dst.bytes());
    ASSERT_EQ(many.run(), QUERN_OK);
    EXPECT_TRUE(one.dst.copy() == many.dst.copy());
  }
}

// Never more tasks than the plan has workspace for, whatever the exec brings; one thread: no loop at all.
TEST_F(Threads, PlanLimitsTheTasks) {
  struct most {
    size_t count = 0;
    static void run(void* self, size_t count, task t, void* arg) {
      auto& m = *static_cast<most*>(self);
      m.count = std::max(m.count, count);
      for (size_t i = 0; i < count; ++i) t(arg, i);
    }
  };
  for (const quern_problem& p : problems())
    for (const uint32_t planned : {1u, 2u, 3u}) {
      prepared x(p, wish_of(planned));
      EXPECT_LE(x.plan.threads, planned);
      for (const uint32_t brought : {0u, 1u, 2u, 64u, UINT32_MAX}) {
        most m;
        x.exec.threads = brought, x.exec.parallel_for = most::run, x.exec.self = &m;
        ASSERT_EQ(x.run(), QUERN_OK);
        EXPECT_LE(m.count, std::min(x.plan.threads, brought));
        EXPECT_NE(m.count, 1u) << "a loop for one task";
      }
    }
}

// ctest gives every test a process of its own, so that these are really the first calls.
TEST(ThreadsFirst, CallersMeetInTheDetection) {
  std::atomic<int> ready{0}, wrong{0};
  std::vector<quern_cpu> seen(8);
  std::vector<std::thread> callers;
  for (quern_cpu& cpu : seen)
    callers.emplace_back([&] {
      for (++ready; ready < 8;) std::this_thread::yield();
      cpu = this_cpu();
      wrong += cpu.size != sizeof cpu || cpu.cores == 0;
    });
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(wrong, 0);
  for (const quern_cpu& cpu : seen) EXPECT_EQ(memcmp(&cpu, &seen[0], sizeof cpu), 0);
}

// A task of the caller's loop runs a plan of its own on the same loop.
TEST_F(Threads, NestedRuns) {
  struct nest {
    const prepared* inner;
    std::vector<std::unique_ptr<prepared>> each;
    static void run(void*, size_t count, task t, void* arg) { on_threads(3, count, t, arg); }
    static void outer(void* self, size_t i) {
      const prepared& x = *static_cast<nest*>(self)->each[i];
      EXPECT_EQ(x.run(), QUERN_OK);
    }
  } n;
  const prepared expected(problems()[0], wish_of(3));
  ASSERT_EQ(expected.run(), QUERN_OK);
  for (int i = 0; i < 4; ++i) {
    n.each.push_back(std::make_unique<prepared>(problems()[0], wish_of(3)));
    n.each.back()->exec.threads = 3, n.each.back()->exec.parallel_for = nest::run;
  }
  nest::run(nullptr, n.each.size(), nest::outer, &n);
  for (const auto& x : n.each) EXPECT_TRUE(x->dst.copy() == expected.dst.copy());
}

TEST_F(Threads, OnePlanManyCallers) {
  for (const quern_problem& p : problems()) {
    const prepared shared(p);
    ASSERT_EQ(shared.run(), QUERN_OK);
    const std::string expected = shared.dst.copy();
    std::atomic<int> wrong{0};
    std::vector<std::thread> callers;
    for (int i = 0; i < 8; ++i)
      callers.emplace_back([&] {
        const memory dst(shared.dst.bytes()), workspace(shared.plan.workspace_bytes);
        quern_args args = shared.args;
        quern_exec exec = shared.exec;
        args.dst = dst.get();
        exec.workspace = workspace.get();
        for (int round = 0; round < 3; ++round) {
          memset(dst.get(), 0xff, dst.bytes());
          wrong += quern_run(&shared.plan, &args, &exec, nullptr) != QUERN_OK;
          wrong += dst.copy() != expected;
        }
      });
    for (std::thread& t : callers) t.join();
    EXPECT_EQ(wrong, 0) << text_of(p);
  }
}

// Also the verbs that come first: nothing is set up on the way that callers could meet in.
TEST_F(Threads, PlanningAndPackingAtOnce) {
  const quern_problem p = problems()[0];
  const prepared expected(p);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i)
    callers.emplace_back([&] {
      quern_wish wish = wish_of();
      wish.algorithm = expected.plan.algorithm, wish.kernel = expected.plan.kernel;
      const quern_cpu cpu = this_cpu();
      wrong += cpu.size != sizeof cpu || cpu.cores == 0;
      quern_plan plan;
      wrong += quern_plan_make(&plan, nullptr, &p, &wish, nullptr) != QUERN_OK;
      const memory packed(plan.packed_bytes);
      wrong += quern_pack(&plan, expected.weights.get(), packed.get(), packed.bytes(), nullptr, nullptr) != QUERN_OK;
      wrong += packed.copy() != expected.packed.copy();
      char line[512];
      wrong += quern_problem_print(&p, line, sizeof line, nullptr, nullptr) != QUERN_OK;
    });
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace quern
