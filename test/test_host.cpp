// SPDX-License-Identifier: MIT
//
// quern_host: every task once, whoever calls; results of the CPU quota; life after fork.
#include <gtest/gtest.h>
#include <quern/host.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "prepared.h"
#include "quota.h"

namespace {

struct destroy {
  void operator()(quern_host* host) const { quern_host_destroy(host); }
};
using host_pointer = std::unique_ptr<quern_host, destroy>;

host_pointer make_host(uint32_t threads, uint32_t flags = 0) {
  quern_host* host = nullptr;
  quern_error error{};
  EXPECT_EQ(quern_host_create(&host, threads, flags, &error), QUERN_OK) << error.text;
  return host_pointer(host);
}

quern_exec attach(const host_pointer& host) {
  quern_exec exec{};
  exec.size = sizeof exec;
  quern_host_attach(host.get(), &exec);
  return exec;
}

// How often each index was seen.
struct tally {
  explicit tally(size_t count) : seen(count) {}
  std::vector<std::atomic<int>> seen;
  static void task(void* self, size_t i) { ++static_cast<tally*>(self)->seen[i]; }
  bool each(int times) const {
    for (const auto& s : seen)
      if (s != times) return false;
    return true;
  }
};

TEST(Host, RunsEveryTaskOnce) {
  for (uint32_t threads : {1u, 2u, 5u}) {
    for (uint32_t flags : {0u, uint32_t{QUERN_HOST_POLL}}) {
      const host_pointer host = make_host(threads, flags);
      const quern_exec exec = attach(host);
      EXPECT_EQ(exec.threads, threads);
      EXPECT_EQ(quern_host_threads(host.get()), threads);
      for (size_t count : {0u, 1u, 2u, 7u, 1000u}) {
        tally t(count);
        exec.parallel_for(exec.self, count, tally::task, &t);
        EXPECT_TRUE(t.each(1)) << threads << " threads, " << count << " tasks";
      }
    }
  }
}

TEST(Host, BringsItsThreads) {
  const host_pointer host = make_host(3);
  const quern_exec exec = attach(host);
  // Three tasks that wait for each other end only when three threads have one each.
  std::atomic<int> waiting{0};
  exec.parallel_for(
      exec.self, 3,
      [](void* arg, size_t) {
        auto& count = *static_cast<std::atomic<int>*>(arg);
        for (++count; count < 3;) std::this_thread::yield();
      },
      &waiting);
  EXPECT_EQ(waiting, 3);
}

TEST(Host, TakesCallersAtTheSameTime) {
  const host_pointer host = make_host(3);
  const quern_exec exec = attach(host);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        tally t(20);
        exec.parallel_for(exec.self, t.seen.size(), tally::task, &t);
        wrong += !t.each(1);
      }
    });
  for (auto& c : callers) c.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Host, NestedLoopRunsAlone) {
  const host_pointer host = make_host(2);
  quern_exec exec = attach(host);
  struct both {
    quern_exec* exec;
    tally t{10};
  } b{&exec};
  exec.parallel_for(
      exec.self, 4,
      [](void* arg, size_t) {
        both& inner = *static_cast<both*>(arg);
        inner.exec->parallel_for(inner.exec->self, inner.t.seen.size(), tally::task, &inner.t);
      },
      &b);
  EXPECT_TRUE(b.t.each(4));
}

// The innermost loop asks a pool that waits two loops further out.
TEST(Host, LoopWithinAnotherPoolsLoopRunsAlone) {
  const host_pointer outer = make_host(2), middle = make_host(2);
  struct three {
    quern_exec outer, middle;
    tally t{10};
  } all{attach(outer), attach(middle)};
  all.outer.parallel_for(
      all.outer.self, 4,
      [](void* arg, size_t) {
        quern_exec& exec = static_cast<three*>(arg)->middle;
        exec.parallel_for(
            exec.self, 3,
            [](void* same, size_t) {
              three& inner = *static_cast<three*>(same);
              inner.outer.parallel_for(inner.outer.self, inner.t.seen.size(), tally::task, &inner.t);
            },
            arg);
      },
      &all);
  EXPECT_TRUE(all.t.each(12));
}

TEST(Host, WorksInTheChildAfterFork) {
  const host_pointer host = make_host(2);
  const quern_exec exec = attach(host);
  tally t(100);
  exec.parallel_for(exec.self, t.seen.size(), tally::task, &t);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    exec.parallel_for(exec.self, t.seen.size(), tally::task, &t);
    quern_host_destroy(exec.self ? static_cast<quern_host*>(exec.self) : nullptr);
    _exit(t.each(2) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  exec.parallel_for(exec.self, t.seen.size(), tally::task, &t);
  EXPECT_TRUE(t.each(2));
}

TEST(Host, RefusesBadArguments) {
  quern_host* host = nullptr;
  quern_error error{};
  EXPECT_EQ(quern_host_create(&host, 1025, 0, &error), QUERN_INVALID);
  EXPECT_STREQ(error.text, "threads is 1025, must be at most 1024");
  EXPECT_STREQ(error.field, "threads");
  EXPECT_EQ(host, nullptr);
  EXPECT_EQ(quern_host_create(&host, 1, 6, &error), QUERN_INVALID);
  EXPECT_STREQ(error.text, "flags is 6, must be 0 or 1");
  EXPECT_EQ(quern_host_create(nullptr, 1, 0, &error), QUERN_INVALID);
  EXPECT_EQ(quern_host_create(&host, 1025, 0, nullptr), QUERN_INVALID);
  quern_host_destroy(nullptr);
}

TEST(Host, ZeroThreadsMeansTheCpusAllowed) {
  EXPECT_GE(quern_host_cpus(), 1u);
  EXPECT_LE(quern_host_cpus(), std::max(1u, std::thread::hardware_concurrency()));
  EXPECT_EQ(quern_host_threads(make_host(0).get()), quern_host_cpus());
}

class Quota : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "quern_quota_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root = pattern;
    mkdir((root + "/outer").c_str(), 0700);
    mkdir((root + "/outer/inner").c_str(), 0700);
  }
  void TearDown() override {
    for (const char* name : {"/outer/inner/cpu.max", "/outer/cpu.max", "/cpu.max", "/membership"})
      unlink((root + name).c_str());
    for (const char* name : {"/outer/inner", "/outer", ""}) rmdir((root + name).c_str());
  }
  void write(const char* name, const char* text) { std::ofstream(root + name) << text; }
  uint32_t cpus(const char* membership) {
    write("/membership", membership);
    return quern::cpus_of_quota((root + "/membership").c_str(), root.c_str());
  }
  std::string root;
};

TEST_F(Quota, SmallestOfTheGroupAndThoseAboveIt) {
  write("/outer/inner/cpu.max", "400000 100000\n");
  EXPECT_EQ(cpus("4:memory:/x\n0::/outer/inner\n"), 4u);
  write("/outer/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpus("0::/outer/inner\n"), 2u);  // one and a half, rounded up
  write("/cpu.max", "1 100000\n");
  EXPECT_EQ(cpus("0::/outer/inner\n"), 1u);
  EXPECT_EQ(cpus("0::/\n"), 1u);
}

TEST_F(Quota, NoLimit) {
  EXPECT_EQ(cpus("0::/outer/inner\n"), 0u);
  write("/outer/inner/cpu.max", "max 100000\n");
  EXPECT_EQ(cpus("0::/outer/inner\n"), 0u);
  EXPECT_EQ(quern::cpus_of_quota("/no/such/file", root.c_str()), 0u);
}

TEST_F(Quota, DamagedFilesAreNoLimit) {
  for (const char* text : {"", "100000", "0 100000", "5 0", "a b", "18446744073709551615 1"}) {
    write("/outer/cpu.max", text);
    EXPECT_EQ(cpus("0::/outer\n"), 0u) << text;
  }
  EXPECT_EQ(cpus("1:cpu:/outer\n"), 0u);
  EXPECT_EQ(cpus(""), 0u);
  EXPECT_EQ(cpus(("0::/" + std::string(5000, 'x') + "\n").c_str()), 0u);
}

TEST(Host, NoPoolIsThisThread) {
  EXPECT_EQ(quern_host_threads(nullptr), 1u);
  quern_exec exec = {};
  exec.size = sizeof exec;
  exec.threads = 7, exec.parallel_for = [](void*, size_t, void (*)(void*, size_t), void*) {}, exec.self = &exec,
  exec.workspace_bytes = 5;
  quern_host_attach(nullptr, &exec);
  EXPECT_EQ(exec.threads, 1u);
  EXPECT_EQ(exec.parallel_for, nullptr);
  EXPECT_EQ(exec.self, nullptr);
  EXPECT_EQ(exec.workspace_bytes, 5u) << "more than the threads was touched";
  quern_host_destroy(nullptr);
}

TEST(Host, ManyCallersRunOnOnePool) {
  if (!quern::can_run(quern::lowest_isa)) GTEST_SKIP() << "no kernel but the reference runs here";
  quern_host* host = nullptr;
  ASSERT_EQ(quern_host_create(&host, 3, 0, nullptr), QUERN_OK);
  const quern::prepared shared(quern::conv(QUERN_NHWC, 2, 32, 40, 48), quern::wish_of(3));
  ASSERT_EQ(shared.run(), QUERN_OK);
  const std::string expected = shared.dst.copy();
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 6; ++i)
    callers.emplace_back([&] {
      const quern::memory dst(shared.dst.bytes()), workspace(shared.plan.workspace_bytes);
      quern_args args = shared.args;
      quern_exec exec = shared.exec;
      quern_host_attach(host, &exec);
      args.dst = dst.get();
      exec.workspace = workspace.get();
      for (int round = 0; round < 3; ++round) {
        memset(dst.get(), 0xff, dst.bytes());
        wrong += quern_run(&shared.plan, &args, &exec, nullptr) != QUERN_OK;
        wrong += dst.copy() != expected;
      }
    });
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(wrong, 0);
  quern_host_destroy(host);
}

}  // namespace
