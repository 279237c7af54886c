// SPDX-License-Identifier: MIT
//
// Tuning results in a file: many processes at once, full disks, folders that cannot be written, damage.
#include <errno.h>
#include <quern/host.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "candidates.h"
#include "tuning.h"

namespace quern {
namespace {

struct close_tuning {
  void operator()(quern_host_tuning* t) const { quern_host_tuning_close(t); }
};
using tuning_pointer = std::unique_ptr<quern_host_tuning, close_tuning>;

class HostTuning : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/quern_tuning_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder = name, path = folder + "/table";
  }
  void TearDown() override {
    chmod(folder.c_str(), 0700);
    std::filesystem::remove_all(folder);
  }

  tuning_pointer open(uint32_t flags = 0, quern_status expected = QUERN_OK) const {
    quern_host_tuning* t = nullptr;
    quern_error error = {};
    EXPECT_EQ(quern_host_tuning_open(&t, path.c_str(), flags, &error), expected) << error.text;
    return tuning_pointer(t);
  }
  std::string contents() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
  size_t files() const { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {})); }

  std::string folder, path;
};

// Row number i, for some problem on some machine.
std::string row(int i, uint64_t ns = 70'000'000) {
  quern_problem p = conv(QUERN_NHWC, 1 + i, 8, 8, 8);
  EXPECT_EQ(quern_problem_complete(&p, &p, nullptr), QUERN_OK);
  const quern_cpu cpu = cpu_of(all_isas);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  resolved_wish w;
  EXPECT_EQ(resolve(nullptr, &wish, w, nullptr), QUERN_OK);
  tuned_row r = {};
  r.level = QUERN_TUNE_FAST, r.count = 1;
  r.candidate[0] = {"conv_im2col", a_gemm_kernel, 11, static_cast<uint32_t>(strlen(a_gemm_kernel)), ns, ns, 5,
                    {0, 0, 1}};
  char key[most_key];
  std::string table(most_line + tuning_header_bytes, 0);
  table.resize(print_tuned(key, tuning_key(p, w, false, key), r, table.data()));
  return table;
}

size_t rows_of(const std::string& table) {
  size_t rows = 0;
  quern_error error = {};
  EXPECT_EQ(quern_tuning_check(table.data(), table.size(), &rows, nullptr, &error), QUERN_OK) << error.text;
  return rows;
}

size_t rows_of(const quern_host_tuning* t) {
  quern_wish wish = wish_of();
  quern_host_tuning_attach(t, &wish);
  return rows_of(std::string(static_cast<const char*>(wish.tuning), wish.tuning_bytes));
}

void add(quern_host_tuning* t, const std::string& table) {
  quern_error error = {};
  EXPECT_EQ(quern_host_tuning_add(t, table.data(), table.size(), &error), QUERN_OK) << error.text;
}

quern_status save(quern_host_tuning* t, quern_error* error = nullptr) { return quern_host_tuning_save(t, error); }

TEST_F(HostTuning, KeepsRows) {
  const tuning_pointer t = open();
  EXPECT_EQ(rows_of(t.get()), 0u);
  EXPECT_EQ(save(t.get()), QUERN_OK);
  EXPECT_EQ(files(), 0u) << "nothing was added, nothing is to be written";
  add(t.get(), row(1));
  EXPECT_EQ(files(), 0u);
  EXPECT_EQ(save(t.get()), QUERN_OK);
  EXPECT_EQ(files(), 1u) << "only the table";
  EXPECT_EQ(rows_of(contents()), 1u);
  add(t.get(), row(2));
  EXPECT_EQ(save(t.get()), QUERN_OK);
  EXPECT_EQ(rows_of(open().get()), 2u);
  struct stat status;
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  const timespec before = status.st_mtim;
  const ino_t inode = status.st_ino;
  add(t.get(), row(2));
  EXPECT_EQ(save(t.get()), QUERN_OK);
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_TRUE(status.st_ino == inode && status.st_mtim.tv_nsec == before.tv_nsec) << "nothing new, not written";
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  add(t.get(), row(3));
  EXPECT_EQ(save(t.get()), QUERN_OK);
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST_F(HostTuning, TakesOverWhatOthersWrote) {
  const tuning_pointer a = open(), b = open();
  add(a.get(), row(1)), add(b.get(), row(2));
  EXPECT_EQ(save(a.get()), QUERN_OK);
  EXPECT_EQ(save(b.get()), QUERN_OK);
  EXPECT_EQ(rows_of(contents()), 2u);
  EXPECT_EQ(rows_of(b.get()), 2u);
  EXPECT_EQ(rows_of(a.get()), 1u) << "until it saves again";
}

// Twelve processes, each with a row at a time.
TEST_F(HostTuning, ManyProcessesLoseNothing) {
  constexpr int processes = 12, each = 8;
  std::vector<pid_t> children;
  for (int child = 0; child < processes; ++child) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(120);
      bool good = true;
      for (int i = 0; i < each; ++i) {
        quern_host_tuning* t = nullptr;
        good = good && quern_host_tuning_open(&t, path.c_str(), 0, nullptr) == QUERN_OK;
        const std::string table = row(child * each + i);
        good = good && quern_host_tuning_add(t, table.data(), table.size(), nullptr) == QUERN_OK &&
               quern_host_tuning_save(t, nullptr) == QUERN_OK;
        // A reader finds a whole table at any time.
        const std::string now = contents();
        good = good && quern_tuning_check(now.data(), now.size(), nullptr, nullptr, nullptr) == QUERN_OK;
        quern_host_tuning_close(t);
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(rows_of(contents()), static_cast<size_t>(processes * each));
  EXPECT_EQ(files(), 1u);
}

// A disk that is full in the middle of the writing: the old file stays, the rows stay in memory.
TEST_F(HostTuning, FullDisk) {
  const tuning_pointer t = open();
  for (int i = 0; i < 10; ++i) add(t.get(), row(i));
  ASSERT_EQ(save(t.get()), QUERN_OK);
  const std::string before = contents();
  add(t.get(), row(10));
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit tight = {before.size() / 2, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  quern_error error = {};
  const quern_status status = save(t.get(), &error);
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(status, QUERN_FILE);
  EXPECT_EQ(error.value, EFBIG);
  EXPECT_NE(strstr(error.text, path.c_str()), nullptr) << error.text;
  EXPECT_EQ(contents(), before);
  EXPECT_EQ(files(), 1u) << "no half-written file stays";
  EXPECT_EQ(rows_of(t.get()), 11u);
  EXPECT_EQ(save(t.get()), QUERN_OK) << "there is room again";
  EXPECT_EQ(rows_of(contents()), 11u);
}

TEST_F(HostTuning, ReadOnly) {
  write(row(1));
  const tuning_pointer t = open(QUERN_HOST_READ_ONLY);
  EXPECT_EQ(rows_of(t.get()), 1u);
  add(t.get(), row(2));
  EXPECT_EQ(rows_of(t.get()), 2u) << "in memory it grows";
  EXPECT_EQ(save(t.get()), QUERN_OK);
  EXPECT_EQ(contents(), row(1));
}

TEST_F(HostTuning, FolderThatCannotBeWritten) {
  write(row(1));
  ASSERT_EQ(chmod(folder.c_str(), 0555), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    // To root every folder can be written.
    if (geteuid() == 0 && (chmod(path.c_str(), 0644) != 0 || setuid(65534) != 0)) _exit(77);
    quern_host_tuning* t = nullptr;
    quern_error error = {};
    bool good = quern_host_tuning_open(&t, path.c_str(), 0, &error) == QUERN_OK;
    const std::string table = row(2);
    good = good && quern_host_tuning_add(t, table.data(), table.size(), nullptr) == QUERN_OK;
    good = good && quern_host_tuning_save(t, &error) == QUERN_FILE && error.value == EACCES;
    quern_wish wish = wish_of();
    quern_host_tuning_attach(t, &wish);
    size_t rows = 0;
    good = good && quern_tuning_check(wish.tuning, wish.tuning_bytes, &rows, nullptr, nullptr) == QUERN_OK && rows == 2;
    quern_host_tuning_close(t);
    _exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "cannot become another user";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(contents(), row(1));
}

TEST_F(HostTuning, WhatIsNoTableStaysAsItIs) {
  for (const std::string foreign : {"my diary\n", "# quern tuning 2\nrows\n", "{}"}) {
    write(foreign);
    EXPECT_EQ(open(0, QUERN_MISMATCH), nullptr);
    EXPECT_EQ(contents(), foreign);
  }
  // One that became foreign while it was open.
  write("");
  const tuning_pointer t = open();
  add(t.get(), row(1));
  write("my diary\n");
  quern_error error = {};
  EXPECT_EQ(save(t.get(), &error), QUERN_MISMATCH);
  EXPECT_EQ(contents(), "my diary\n");
  quern_host_tuning* none = nullptr;
  EXPECT_EQ(quern_host_tuning_open(&none, folder.c_str(), 0, &error), QUERN_FILE);
  EXPECT_EQ(error.value, EISDIR);
  EXPECT_EQ(quern_host_tuning_open(&none, (path + "/below").c_str(), 0, &error), QUERN_FILE);
  const std::string pipe = folder + "/pipe";  // nobody will ever write to it
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(quern_host_tuning_open(&none, pipe.c_str(), 0, &error), QUERN_FILE);
  EXPECT_EQ(error.value, EINVAL);
  EXPECT_EQ(quern_host_tuning_open(&none, "", 0, &error), QUERN_INVALID);
  EXPECT_EQ(quern_host_tuning_open(&none, path.c_str(), 2, &error), QUERN_INVALID);
  EXPECT_EQ(quern_host_tuning_open(nullptr, path.c_str(), 0, &error), QUERN_INVALID);
  EXPECT_EQ(quern_host_tuning_save(nullptr, &error), QUERN_INVALID);
  EXPECT_EQ(quern_host_tuning_add(nullptr, nullptr, 0, &error), QUERN_INVALID);
  EXPECT_EQ(none, nullptr);
}

TEST_F(HostTuning, DamagedLinesGoAndTheOthersStay) {
  const tuning_pointer t = open();
  for (int i = 0; i < 5; ++i) add(t.get(), row(i));
  ASSERT_EQ(save(t.get()), QUERN_OK);
  std::string damaged = contents();
  damaged[damaged.size() / 2] ^= 1;
  damaged.resize(damaged.size() - 20);
  write(damaged);
  const tuning_pointer again = open();
  EXPECT_EQ(rows_of(again.get()), 3u);
  add(again.get(), row(9));
  EXPECT_EQ(save(again.get()), QUERN_OK);
  EXPECT_EQ(rows_of(contents()), 4u);
}

TEST_F(HostTuning, InMemoryAlone) {
  quern_host_tuning* t = nullptr;
  ASSERT_EQ(quern_host_tuning_open(&t, nullptr, 0, nullptr), QUERN_OK);
  const tuning_pointer owner(t);
  add(t, row(1));
  EXPECT_EQ(save(t), QUERN_OK);
  EXPECT_EQ(rows_of(t), 1u);
  EXPECT_EQ(files(), 0u);
}

// The life of a program: the first process measures, the second one reads, and measures nothing at all.
TEST_F(HostTuning, SecondProcessMeasuresNothing) {
  if (!can_run(lowest_isa)) GTEST_SKIP() << "no kernel but the reference runs here";
  const auto process = [&](bool first) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(120);
      quern_host_tuning* t = nullptr;
      bool good = quern_host_tuning_open(&t, path.c_str(), first ? 0 : QUERN_HOST_READ_ONLY, nullptr) == QUERN_OK;
      for (const quern_layout layout : {QUERN_NCHW, QUERN_NHWC}) {
        const quern_problem p = conv(layout, 1, 16, 10, 16);
        quern_budget budget = {};
        budget.size = sizeof budget, budget.level = QUERN_TUNE_NORMAL;
        quern_tuned tuned = {};
        tuned.size = sizeof tuned;
        quern_wish wish = wish_of();
        good = good && quern_host_tune(nullptr, t, &p, &wish, &budget, &tuned, nullptr) == QUERN_OK;
        good = good && (tuned.launches > 0) == first;
        quern_host_tuning_attach(t, &wish);
        quern_plan plan;
        good = good && quern_plan_make(&plan, nullptr, &p, &wish, nullptr) == QUERN_OK &&
               strcmp(plan.kernel, tuned.kernel) == 0 && strcmp(plan.algorithm, tuned.algorithm) == 0;
      }
      good = good && quern_host_tuning_save(t, nullptr) == QUERN_OK;
      quern_host_tuning_close(t);
      _exit(good ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0) << (first ? "the first process" : "the second process");
  };
  process(true);
  EXPECT_EQ(rows_of(contents()), 2u);
  const std::string before = contents();
  process(false);
  EXPECT_EQ(contents(), before);
}

TEST_F(HostTuning, StructsOfOtherVersions) {
  quern_problem p = conv(QUERN_NHWC, 8, 8, 8, 8);
  ASSERT_EQ(quern_problem_complete(&p, &p, nullptr), QUERN_OK);
  quern_error error = {};
  const auto tune = [&](const void* wish, const void* budget) {
    return quern_host_tune(nullptr, nullptr, &p, static_cast<const quern_wish*>(wish),
                           static_cast<const quern_budget*>(budget), nullptr, &error);
  };
  quern_budget budget = {};
  budget.size = sizeof budget;
  quern_wish wish = {};
  wish.size = sizeof wish - 3;  // ends inside of a field
  EXPECT_EQ(tune(&wish, &budget), QUERN_INVALID);
  EXPECT_STREQ(error.field, "wish.size");
  struct alignas(8) newer {
    quern_wish wish;
    char tail[8192];
  };
  const auto longer = std::make_unique<newer>();
  longer->wish.size = sizeof(newer);
  EXPECT_EQ(tune(longer.get(), &budget), QUERN_OK) << error.text;
  longer->tail[8000] = 1;  // a field that this library does not know
  EXPECT_EQ(tune(longer.get(), &budget), QUERN_MISMATCH);
  EXPECT_STREQ(error.field, "wish.size");
  budget.size = 2;
  EXPECT_EQ(tune(nullptr, &budget), QUERN_INVALID);
  EXPECT_STREQ(error.field, "budget.size");
}

TEST_F(HostTuning, TunesWithThePool) {
  if (!can_run(lowest_isa)) GTEST_SKIP() << "no kernel but the reference runs here";
  quern_host* host = nullptr;
  ASSERT_EQ(quern_host_create(&host, 3, 0, nullptr), QUERN_OK);
  const tuning_pointer t = open();
  const quern_problem p = conv(QUERN_NHWC, 2, 32, 20, 48);
  std::string own;
  quern_budget budget = {};
  budget.size = sizeof budget, budget.level = QUERN_TUNE_WIDE, budget.self = &own;
  budget.row = [](void* self, const void* table, size_t bytes) {
    static_cast<std::string*>(self)->assign(static_cast<const char*>(table), bytes);
  };
  budget.progress = [](void* self, const quern_tuned*) { return static_cast<std::string*>(self)->empty() ? 0 : 1; };
  quern_tuned tuned = {};
  tuned.size = sizeof tuned;
  quern_error error = {};
  ASSERT_EQ(quern_host_tune(host, t.get(), &p, nullptr, &budget, &tuned, &error), QUERN_OK) << error.text;
  EXPECT_NE(own.find(" threads=3 "), std::string::npos) << own;
  EXPECT_EQ(rows_of(t.get()), 1u);
  EXPECT_EQ(rows_of(own), 1u);
  quern_wish wish = wish_of(3);
  quern_host_tuning_attach(t.get(), &wish);
  EXPECT_STREQ(plan_of(p, wish).kernel, tuned.kernel);
  EXPECT_EQ(quern_host_tune(host, t.get(), &p, nullptr, nullptr, &tuned, &error), QUERN_INVALID);
  quern_host_destroy(host);
}

}  // namespace
}  // namespace quern
