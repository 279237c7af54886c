// SPDX-License-Identifier: MIT
//
// The life of a process: fork after threads have run, the shared library loaded and unloaded again and again,
// thousands of shapes without growing.
#include <dlfcn.h>
#include <quern/host.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "allocations.h"
#include "prepared.h"

namespace quern {
namespace {

class Process : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_run(lowest_isa)) GTEST_SKIP() << "no kernel but the reference runs here";
  }
};

TEST_F(Process, RunsInTheChildOfAFork) {
  quern_host* host = nullptr;
  ASSERT_EQ(quern_host_create(&host, 3, 0, nullptr), QUERN_OK);
  prepared x(conv(QUERN_NHWC, 2, 32, 40, 48), wish_of(3));
  ASSERT_GT(x.plan.threads, 1u);
  quern_host_attach(host, &x.exec);
  ASSERT_EQ(x.run(), QUERN_OK);
  const std::string expected = x.dst.copy();
  for (int round = 0; round < 3; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      // The parent's plan, weights and pool; then a plan of its own.
      bool good = true;
      for (int i = 0; i < 2; ++i) {
        memset(x.dst.get(), 0xff, x.dst.bytes());
        good = good && x.run() == QUERN_OK && memcmp(x.dst.get(), expected.data(), expected.size()) == 0;
        const quern_wish wish = wish_of(3);
        good = good && quern_plan_make(&x.plan, nullptr, &x.plan.problem, &wish, nullptr) == QUERN_OK;
      }
      _exit(good ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    // The parent goes on as before.
    memset(x.dst.get(), 0xff, x.dst.bytes());
    ASSERT_EQ(x.run(), QUERN_OK);
    EXPECT_TRUE(x.dst.copy() == expected);
  }
  quern_host_destroy(host);
}

// Pages that only this process has.
uint64_t private_bytes() {
  uint64_t pages = 0, resident = 0, shared = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident >> shared;
  return (resident - shared) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

TEST_F(Process, LibraryComesAndGoes) {
  const prepared x(conv(QUERN_NHWC, 1, 16, 12, 24));
  ASSERT_EQ(x.run(), QUERN_OK);
  const std::string expected = x.dst.copy();
  uint64_t before = 0;
  for (int round = 0; round < 200; ++round) {
    void* library = dlopen(QUERN_SHARED_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto function = [&](auto* like, const char* name) {
      auto* f = reinterpret_cast<decltype(like)>(dlsym(library, name));
      EXPECT_NE(f, nullptr) << name;
      return f;
    };
    const auto check = function(&quern_check, "quern_check");
    const auto make = function(&quern_plan_make, "quern_plan_make");
    const auto pack = function(&quern_pack, "quern_pack");
    const auto run = function(&quern_run, "quern_run");
    const auto explain = function(&quern_status_name, "quern_status_name");
    ASSERT_TRUE(check && make && pack && run && explain);
    ASSERT_NE(reinterpret_cast<void*>(run), reinterpret_cast<void*>(&quern_run)) << "not the library's own";
    ASSERT_EQ(check(QUERN_VERSION, nullptr), QUERN_OK);
    const quern_wish wish = wish_of();
    quern_plan plan;
    quern_error error = {};
    ASSERT_EQ(make(&plan, nullptr, &x.plan.problem, &wish, &error), QUERN_OK) << error.text;
    ASSERT_EQ(pack(&plan, x.weights.get(), x.packed.get(), x.packed.bytes(), nullptr, &error), QUERN_OK);
    memset(x.dst.get(), 0xff, x.dst.bytes());
    ASSERT_EQ(run(&plan, &x.args, &x.exec, &error), QUERN_OK) << error.text;
    ASSERT_TRUE(x.dst.copy() == expected);
    // A plan of another copy of the library is foreign here: its kernels go with that copy.
    EXPECT_EQ(quern_run(&plan, &x.args, &x.exec, &error), QUERN_MISMATCH);
    ASSERT_EQ(dlclose(library), 0);
    EXPECT_EQ(dlopen(QUERN_SHARED_LIBRARY, RTLD_NOW | RTLD_NOLOAD), nullptr) << "it stayed";
    if (round == 20) before = private_bytes();
  }
  if (allocations_counted) {
    EXPECT_LT(private_bytes(), before + (1 << 20));
  }
}

TEST_F(Process, ManyShapesDoNotGrow) {
  std::mt19937 random(11);
  const auto upto = [&](uint32_t n) { return 1 + static_cast<int64_t>(random() % n); };
  uint64_t before = 0;
  for (int i = 0; i < 3000; ++i) {
    quern_problem p = conv(random() % 2 ? QUERN_NCHW : QUERN_NHWC, upto(2), upto(20), upto(16), upto(40),
                           1 + 2 * static_cast<int64_t>(random() % 3));
    p.epilogue.bias = random() % 2;
    if (random() % 4 == 0) p.op = QUERN_CONV_TRANSPOSED, std::swap(p.weights.size[0], p.weights.size[1]);
    const prepared x(p, wish_of(static_cast<uint32_t>(upto(4))), random());
    quern_error error = {};
    ASSERT_EQ(x.run(&error), QUERN_OK) << error.text << ": " << text_of(p);
    if (i == 500) before = private_bytes();
  }
  if (allocations_counted) {
    EXPECT_LT(private_bytes(), before + (4 << 20));
  }
}

}  // namespace
}  // namespace quern
