// SPDX-License-Identifier: MIT
//
// quern_tune and its tables: what is measured, what it costs, how the choice follows it, and what damage does.
#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "candidates.h"
#include "guard.h"
#include "hash.h"
#include "registry.h"
#include "tuning.h"

namespace quern {
namespace {

struct tuner {
  explicit tuner(int32_t level) {
    budget.size = sizeof budget;
    budget.level = level;
    budget.self = this;
    budget.row = [](void* self, const void* table, size_t bytes) {
      static_cast<tuner*>(self)->rows.push_back({static_cast<const char*>(table), bytes});
    };
    tuned.size = sizeof tuned;
  }
  quern_status run(const quern_problem& p, quern_wish wish, uint64_t bytes = UINT64_MAX) {
    error = {};
    uint64_t needed = 0;
    if (const quern_status s = quern_tune_workspace(nullptr, &p, &wish, &budget, &needed, &error)) return s;
    const test::guarded<char> workspace(std::min(needed, bytes), test::edge::back, QUERN_ALIGN);
    quern_exec exec = {};
    exec.size = sizeof exec;
    exec.workspace = workspace.data(), exec.workspace_bytes = workspace.size();
    exec.threads = wish.threads;
    exec.parallel_for = [](void*, size_t count, void (*task)(void*, size_t), void* arg) {
      std::vector<std::thread> all;
      for (size_t i = 0; i < count; ++i) all.emplace_back(task, arg, i);
      for (std::thread& t : all) t.join();
    };
    return quern_tune(nullptr, &p, &wish, &budget, &exec, &tuned, &error);
  }
  quern_budget budget = {};
  quern_tuned tuned = {};
  quern_error error = {};
  std::vector<std::string> rows;
};

quern_wish with(quern_wish wish, const std::string& table) {
  wish.tuning = table.data(), wish.tuning_bytes = table.size();
  return wish;
}

quern_problem small(quern_layout layout = QUERN_NHWC) {
  quern_problem p = conv(layout, 1, 24, 14, 24);
  p.epilogue.bias = 1, p.epilogue.activation = QUERN_RELU;
  return p;
}

class Tune : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_run(lowest_isa)) GTEST_SKIP() << "no kernel but the reference runs here";
  }
};

// A row for this machine with these times, without measuring: what the choice makes of it is the same everywhere.
std::string row_of(const quern_problem& given, const quern_wish& wish, const std::vector<quern_candidate>& order,
                   const std::vector<uint64_t>& ns, int32_t level = QUERN_TUNE_NORMAL) {
  quern_problem p;
  resolved_wish w;
  EXPECT_EQ(complete(&given, p, nullptr), QUERN_OK);
  EXPECT_EQ(resolve(nullptr, &wish, w, nullptr), QUERN_OK);
  tuned_row row = {};
  row.level = level;
  for (size_t i = 0; i < order.size() && row.count < most_tuned; ++i) {
    tuned_candidate& c = row.candidate[row.count++];
    c = {order[i].algorithm, order[i].kernel, 0, 0, ns[i], ns[i], 5, {0, 0, std::max(1u, wish.threads)}};
    c.algorithm_length = static_cast<uint32_t>(strlen(c.algorithm));
    c.kernel_length = static_cast<uint32_t>(strlen(c.kernel));
  }
  char key[most_key];
  std::string table(most_line + tuning_header_bytes, 0);
  table.resize(print_tuned(key, tuning_key(p, w, has_demands(w.wish), key), row, table.data()));
  return table;
}

// A table of one row that was edited, with key and checksum of what it says now.
std::string resealed(const std::string& table) {
  constexpr size_t prefix = 34;
  const std::string row = table.substr(tuning_header_bytes + prefix, table.size() - tuning_header_bytes - prefix - 1);
  const uint64_t key = hash(row.data(), row.find(" | ", row.find(" | ") + 3), 0);
  char digits[prefix + 1];
  snprintf(digits, sizeof digits, "%016llx %016llx ", static_cast<unsigned long long>(key),
           static_cast<unsigned long long>(hash(row.data(), row.size(), key)));
  return tuning_header + std::string(digits) + row + "\n";
}

std::vector<quern_candidate> usable(const quern_problem& p, const quern_wish& wish) {
  std::vector<quern_candidate> all = candidates(p, wish);
  std::erase_if(all, [](const quern_candidate& c) { return c.verdict > QUERN_USABLE; });
  return all;
}

// ---- Measuring --------------------------------------------------------------------------------------------

TEST_F(Tune, MeasuresAndIsBelieved) {
  for (const quern_layout layout : {QUERN_NCHW, QUERN_NHWC}) {
    const quern_problem p = small(layout);
    tuner t(QUERN_TUNE_NORMAL);
    t.budget.milliseconds = 5000;
    ASSERT_EQ(t.run(p, wish_of()), QUERN_OK) << t.error.text;
    ASSERT_EQ(t.rows.size(), 1u);
    EXPECT_GT(t.tuned.launches, 0u);
    EXPECT_GT(t.tuned.candidates, 1u);
    EXPECT_GT(t.tuned.default_ns, 0);
    EXPECT_EQ(quern_tuning_check(t.rows[0].data(), t.rows[0].size(), nullptr, nullptr, &t.error), QUERN_OK)
        << t.error.text << "\n"
        << t.rows[0];

    const quern_wish wish = with(wish_of(), t.rows[0]);
    const quern_plan plan = plan_of(p, wish);
    EXPECT_STREQ(plan.algorithm, t.tuned.algorithm);
    EXPECT_STREQ(plan.kernel, t.tuned.kernel);
    const std::vector<quern_candidate> all = candidates(p, wish);
    EXPECT_STREQ(all[0].kernel, plan.kernel);
    EXPECT_STREQ(all[0].algorithm, plan.algorithm);
    EXPECT_STREQ(all[0].measured_by, "tuning");
    EXPECT_EQ(all[0].measured_ns, static_cast<double>(static_cast<uint64_t>(t.tuned.measured_ns)));
    EXPECT_NE(explained(all[0]).find("measured"), std::string::npos);
    uint32_t measured = 0;
    for (const quern_candidate& c : all) measured += c.measured_ns > 0;
    EXPECT_EQ(measured, t.tuned.candidates);

    // The second time nothing is run, nor for a lower level.
    for (const int32_t level : {QUERN_TUNE_NORMAL, QUERN_TUNE_FAST, QUERN_TUNE_NONE}) {
      tuner again(level);
      ASSERT_EQ(again.run(p, wish), QUERN_OK) << again.error.text;
      EXPECT_EQ(again.tuned.launches, 0u);
      EXPECT_TRUE(again.rows.empty());
      EXPECT_STREQ(again.tuned.kernel, plan.kernel);
    }
    tuner more(QUERN_TUNE_WIDE);
    ASSERT_EQ(more.run(p, wish), QUERN_OK) << more.error.text;
    EXPECT_GT(more.tuned.launches, 0u);
  }
}

TEST_F(Tune, LevelsMeasureMoreAndMore) {
  const quern_problem p = small();
  std::set<std::string> before;
  for (int32_t level = QUERN_TUNE_NONE; level <= QUERN_TUNE_HEAVY; ++level) {
    tuner t(level);
    t.budget.milliseconds = 60000;
    ASSERT_EQ(t.run(p, wish_of(2)), QUERN_OK) << t.error.text;
    EXPECT_EQ(t.tuned.launches > 0, level != QUERN_TUNE_NONE);
    ASSERT_EQ(t.rows.size(), level == QUERN_TUNE_NONE ? 0u : 1u);
    if (t.rows.empty()) continue;
    std::set<std::string> measured;
    for (const quern_candidate& c : candidates(p, with(wish_of(2), t.rows[0])))
      if (c.measured_ns > 0) measured.insert(std::string(c.algorithm) + " " + c.kernel);
    EXPECT_TRUE(std::includes(measured.begin(), measured.end(), before.begin(), before.end())) << level;
    EXPECT_EQ(measured.size(), t.tuned.candidates);
    before = measured;
  }
  // The highest leaves out no candidate that would run.
  EXPECT_EQ(before.size(), usable(p, wish_of(2)).size());
}

// A row, and a front of time and workspace, has room for all that is usable: of the problems that most kernels take.
TEST_F(Tune, ARowHasRoomForAllThatIsUsable) {
  const quern_cpu cpu = cpu_of(all_isas);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  for (const char* line :
       {"nhwc g8mb1ic64ih56oc64kh3ph1 accuracy=f32_loose", "any:any g8mb1ic64ih56oc64kh3ph1 accuracy=f32_loose",
        "any:any g2mb1ic16ih56oc16kh3ph1 accuracy=f32_loose", "nhwc mb1ic64ih56oc64kh3ph1 accuracy=f32_loose",
        "nchw g8mb1ic64ih56oc64kh3ph1 accuracy=f32_loose", "nhwc g64mb1ic64ih56oc64kh3ph1 accuracy=f32_loose",
        "nhwc mb1ic4ih56oc64kh3ph1 accuracy=f32_loose", "nhwc mb1ic64ih56oc64kh6ph1 accuracy=f32_loose"}) {
    quern_problem p;
    ASSERT_EQ(quern_problem_parse(line, &p, nullptr), QUERN_OK);
    EXPECT_LE(usable(p, wish).size(), size_t{most_tuned}) << line;
  }
}

TEST_F(Tune, KeepsToItsBudget) {
  const quern_problem p = small();
  for (const uint32_t launches : {1u, 2u, 7u, 40u}) {
    tuner t(QUERN_TUNE_HEAVY);
    t.budget.launches = launches;
    ASSERT_EQ(t.run(p, wish_of()), QUERN_OK) << t.error.text;
    EXPECT_LE(t.tuned.launches, launches);
    EXPECT_LE(t.rows.size(), 1u);
    for (const std::string& row : t.rows)
      EXPECT_EQ(quern_tuning_check(row.data(), row.size(), nullptr, nullptr, &t.error), QUERN_OK) << t.error.text;
  }
  // A row that the clock cut short answers for that much time, and not for more.
  tuner t(QUERN_TUNE_HEAVY);
  t.budget.milliseconds = 2;
  ASSERT_EQ(t.run(p, wish_of()), QUERN_OK) << t.error.text;
  EXPECT_LT(t.tuned.elapsed_ns, 1e9);
  if (t.rows.empty() || t.rows[0].find("ms=2 ") == std::string::npos) GTEST_SKIP() << "too fast or too slow to be cut";
  tuner same(QUERN_TUNE_HEAVY), longer(QUERN_TUNE_HEAVY);
  same.budget.milliseconds = 2, longer.budget.milliseconds = 50;
  ASSERT_EQ(same.run(p, with(wish_of(), t.rows[0])), QUERN_OK);
  EXPECT_EQ(same.tuned.launches, 0u);
  ASSERT_EQ(longer.run(p, with(wish_of(), t.rows[0])), QUERN_OK);
  EXPECT_GT(longer.tuned.launches, 0u);
}

// However many times it is asked: how often that is, the clock of the machine says, but at least once a candidate.
TEST_F(Tune, StopsWhenTheCallerSaysSo) {
  const quern_problem p = small();
  bool ended = false;
  uint32_t stops = 0;
  for (; !ended; ++stops) {
    struct counting : tuner {
      using tuner::tuner;
      uint32_t left = 0;
      bool stopped = false;
    } t(QUERN_TUNE_NORMAL);
    t.left = stops;
    t.budget.milliseconds = 10000;  // not ended by the clock of a busy machine
    t.budget.self = static_cast<tuner*>(&t);
    t.budget.progress = [](void* self, const quern_tuned* so_far) {
      EXPECT_EQ(so_far->size, sizeof *so_far);
      counting& of = *static_cast<counting*>(static_cast<tuner*>(self));
      EXPECT_FALSE(of.stopped) << "asked again after it was told to stop";
      of.stopped = of.left-- == 0;
      return of.stopped ? 1 : 0;
    };
    const quern_status status = t.run(p, wish_of());
    ended = !t.stopped;
    EXPECT_EQ(status, ended ? QUERN_OK : QUERN_CANCELLED);
    EXPECT_EQ(t.rows.size(), ended ? 1u : 0u);
    if (ended) {
      EXPECT_GE(stops, t.tuned.candidates);
    } else {
      EXPECT_EQ(t.error.status, QUERN_CANCELLED);
      EXPECT_STREQ(t.error.field, "progress");
    }
  }
}

// With less memory fewer candidates, never a byte beyond it; with too little a sentence that says how much.
TEST_F(Tune, KeepsToItsMemory) {
  const quern_problem p = small();
  tuner t(QUERN_TUNE_NORMAL);
  t.budget.milliseconds = 10000;
  uint64_t most = 0;
  quern_wish wish = wish_of();
  ASSERT_EQ(quern_tune_workspace(nullptr, &p, &wish, &t.budget, &most, nullptr), QUERN_OK);
  EXPECT_EQ(t.run(p, wish, 0), QUERN_BUFFER);
  EXPECT_STREQ(t.error.field, "exec.workspace_bytes");
  const uint64_t least = static_cast<uint64_t>(t.error.limit);
  EXPECT_LT(least, most);
  EXPECT_EQ(t.run(p, wish, least - 1), QUERN_BUFFER);
  uint32_t before = 0;
  for (const uint64_t bytes : {least, (least + most) / 2, most}) {
    ASSERT_EQ(t.run(p, wish, bytes), QUERN_OK) << t.error.text;
    EXPECT_GE(t.tuned.candidates, std::max(before, 1u));
    before = t.tuned.candidates;
  }
}

TEST_F(Tune, BadRequests) {
  quern_problem p = small();
  quern_wish wish = wish_of();
  tuner t(QUERN_TUNE_NORMAL);
  quern_exec exec = {};
  exec.size = sizeof exec;
  quern_error error = {};
  EXPECT_EQ(quern_tune(nullptr, &p, &wish, nullptr, &exec, nullptr, &error), QUERN_INVALID);
  EXPECT_STREQ(error.field, "budget");
  t.budget.level = 5;
  EXPECT_EQ(t.run(p, wish), QUERN_INVALID);
  EXPECT_STREQ(t.error.field, "budget.level");
  t.budget.level = QUERN_TUNE_FAST;
  wish.threads = 3;
  EXPECT_EQ(quern_tune(nullptr, &p, &wish, &t.budget, &exec, nullptr, &error), QUERN_INVALID);
  EXPECT_STREQ(error.field, "exec.threads");
  wish.threads = 1;
  const quern_cpu cpu = cpu_of(all_isas);
  wish.cpu = &cpu;
  EXPECT_EQ(t.run(p, wish), QUERN_INVALID);
  EXPECT_STREQ(t.error.field, "wish.cpu");
  wish.cpu = nullptr;
  p.src.layout = QUERN_ANY, memset(p.src.stride, 0, sizeof p.src.stride);
  EXPECT_EQ(t.run(p, wish), QUERN_UNSUPPORTED);
  EXPECT_STREQ(t.error.field, "src.layout");
  p = small();
  alignas(64) char odd[256];
  exec.workspace = odd + 8, exec.workspace_bytes = 200;
  EXPECT_EQ(quern_tune(nullptr, &p, &wish, &t.budget, &exec, nullptr, &error), QUERN_BUFFER);
  wish.kernel = "nothing";
  EXPECT_EQ(t.run(p, wish), QUERN_INVALID);
  EXPECT_TRUE(t.rows.empty());
}

TEST_F(Tune, EveryKindOfProblem) {
  std::vector<quern_problem> all = problems();
  all.push_back(quern_reorder(QUERN_F32, QUERN_NCHW, QUERN_NHWC, 2, 9, 11, 13));
  quern_problem p = small();
  p.epilogue.residual = QUERN_RESIDUAL_BEFORE, p.epilogue.scale = 1, p.epilogue.activation = QUERN_PRELU;
  all.push_back(p);
  p = conv(QUERN_NCHW, 1, 16, 9, 16);
  p.groups = 16, p.weights.size[1] = 1;
  all.push_back(p);
  for (const quern_type type : {QUERN_F64, QUERN_F16, QUERN_S8}) {
    p = quern_conv2d(type, QUERN_NHWC, 1, 3, 2, 2, 999, 1, 1);
    p.epilogue.scale = p.epilogue.bias = 1, p.epilogue.activation = QUERN_PRELU;
    all.push_back(p);
  }
  for (const quern_problem& q : all) {
    tuner t(QUERN_TUNE_WIDE);
    t.budget.milliseconds = 2000;  // a busy machine measures once in that time
    quern_wish plain = wish_of(2);
    if (q.src.type != QUERN_F32) plain.algorithm = "reference";
    ASSERT_EQ(t.run(q, plain), QUERN_OK) << t.error.text << "\n" << text_of(q);
    if (q.src.size[0] == 0) {
      EXPECT_TRUE(t.rows.empty());
      continue;
    }
    ASSERT_EQ(t.rows.size(), 1u) << text_of(q);
    EXPECT_EQ(quern_tuning_check(t.rows[0].data(), t.rows[0].size(), nullptr, nullptr, &t.error), QUERN_OK)
        << t.error.text << "\n"
        << t.rows[0];
    const quern_wish wish = with(plain, t.rows[0]);
    const quern_plan plan = plan_of(q, wish);
    EXPECT_STREQ(plan.kernel, t.tuned.kernel) << t.rows[0];
  }
}

// ---- The choice by a table ----------------------------------------------------------------------------------

TEST_F(Tune, OrderOfTheRowIsTheChoice) {
  const quern_problem p = small();
  const quern_wish plain = wish_of();
  std::vector<quern_candidate> order = usable(p, plain);
  ASSERT_GE(order.size(), 3u);
  std::reverse(order.begin(), order.end());
  // The first stays although the second is a little faster: that is what hysteresis left.
  std::vector<uint64_t> ns(order.size());
  for (size_t i = 0; i < ns.size(); ++i) ns[i] = 1'000'000 + 100'000 * i;
  ns[0] = 1'110'000;
  const std::string table = row_of(p, plain, order, ns);
  const quern_wish wish = with(plain, table);
  EXPECT_STREQ(plan_of(p, wish).kernel, order[0].kernel);
  EXPECT_STREQ(plan_of(p, wish).algorithm, order[0].algorithm);
  const std::vector<quern_candidate> all = candidates(p, wish);
  EXPECT_STREQ(all[0].kernel, order[0].kernel);
  EXPECT_EQ(all[0].verdict, QUERN_CHOSEN);
  ASSERT_LE(order.size(), size_t{most_tuned});
  for (size_t i = 1; i < order.size(); ++i) {
    EXPECT_STREQ(all[i].kernel, order[i].kernel) << i;
    EXPECT_EQ(all[i].measured_ns, static_cast<double>(ns[i]));
  }
  // A cut list has the same beginning.
  std::vector<quern_candidate> two(2);
  two[0].size = sizeof two[0];
  size_t count = 0;
  ASSERT_EQ(quern_candidates(nullptr, &p, &wish, two.data(), 2, &count, nullptr), QUERN_OK);
  EXPECT_STREQ(two[0].kernel, order[0].kernel);
  EXPECT_STREQ(two[1].kernel, order[1].kernel);
  // What the wish rules out is passed over, whatever was measured.
  quern_wish denying = wish;
  denying.deny = order[0].kernel;
  const quern_plan next = plan_of(p, denying);
  EXPECT_STRNE(next.kernel, order[0].kernel);
  const auto expected = std::find_if(order.begin(), order.end(),
                                     [&](const quern_candidate& c) { return strcmp(c.kernel, order[0].kernel) != 0; });
  EXPECT_STREQ(next.kernel, expected->kernel);
  EXPECT_STREQ(next.algorithm, expected->algorithm);
}

// Another problem, other threads, another machine, another build: not this row's business.
TEST_F(Tune, RowsAreForWhatTheyWereMeasuredOn) {
  const quern_problem p = small();
  quern_cpu cpu = {};
  cpu.size = sizeof cpu;
  ASSERT_EQ(quern_cpu_get(&cpu, nullptr), QUERN_OK);
  quern_wish plain = wish_of(2);
  plain.cpu = &cpu;
  std::vector<quern_candidate> order = usable(p, plain);
  ASSERT_GE(order.size(), 2u);
  std::rotate(order.begin(), order.end() - 1, order.end());
  const std::vector<uint64_t> ns(order.size(), 1'000'000);
  const std::string table = row_of(p, plain, order, ns);
  const auto heard = [&](const quern_problem& q, const quern_wish& w) {
    const auto all = candidates(q, with(w, table));
    return std::any_of(all.begin(), all.end(), [](const quern_candidate& c) { return c.measured_ns > 0; });
  };
  EXPECT_TRUE(heard(p, plain));
  for (int changed = 0; changed < 7; ++changed) {
    quern_problem q = p;
    quern_wish w = plain;
    quern_cpu other = cpu;
    w.cpu = &other;
    if (changed == 0) q.epilogue.activation = QUERN_TANH;
    if (changed == 1) w.threads = 1;
    if (changed == 2) other.l2_bytes += 4 << 20;
    if (changed == 3) other.model ^= 0x10000;
    if (changed == 4) q.src.size[0] = 2;
    if (changed == 5) other.l1_bytes += 1024;
    if (changed == 6) q.accuracy = QUERN_ACCURACY_F32;
    EXPECT_FALSE(heard(q, w)) << changed;
  }
  // The same problem said with more words.
  quern_problem whole;
  ASSERT_EQ(quern_problem_complete(&p, &whole, nullptr), QUERN_OK);
  EXPECT_TRUE(heard(whole, plain));
}

// Block sizes and threads of a row, whatever they say, give plans that compute the right thing.
TEST_F(Tune, VariedBlocksComputeTheSame) {
  const quern_problem p = small(QUERN_NCHW);
  const quern_wish plain = wish_of(4);
  for (const quern_candidate& c : usable(p, plain)) {
    std::string expected;
    std::set<uint64_t> workspaces;
    for (const variation& as : {variation{0, 0, 4}, variation{-4, -4, 1}, variation{4, 4, 9}, variation{1, -2, 2}}) {
      std::string table = row_of(p, plain, {c}, {1'000'000});
      const std::string own = " 0 0 4\n", varied = " " + std::to_string(as.l1) + " " + std::to_string(as.l2) + " " +
                                                   std::to_string(as.threads) + "\n";
      table.replace(table.size() - own.size(), own.size(), varied);
      table = resealed(table);
      quern_wish wish = with(plain, table);
      wish.algorithm = c.algorithm, wish.kernel = c.kernel;
      prepared x(p, wish);
      EXPECT_LE(x.plan.threads, 4u);
      workspaces.insert(x.plan.workspace_bytes);
      x.exec.threads = 4;
      x.exec.parallel_for = [](void*, size_t count, void (*task)(void*, size_t), void* arg) {
        for (size_t i = count; i-- > 0;) task(arg, i);
      };
      ASSERT_EQ(x.run(), QUERN_OK);
      if (expected.empty()) expected = x.dst.copy();
      EXPECT_TRUE(x.dst.copy() == expected) << c.algorithm << " " << c.kernel << varied;
    }
  }
}

TEST_F(Tune, RestrictedWishesHaveRowsOfTheirOwn) {
  const quern_problem p = small();
  const quern_wish plain = wish_of();
  const auto order = usable(p, plain);
  ASSERT_GE(order.size(), 2u);
  // All that the unrestricted row measured is denied: it has no answer, so the tuning measures.
  const std::string table = row_of(p, plain, {order[0]}, {1'000'000});
  quern_wish denying = plain;
  denying.deny = order[0].kernel;
  tuner t(QUERN_TUNE_FAST);
  ASSERT_EQ(t.run(p, with(denying, table)), QUERN_OK) << t.error.text;
  ASSERT_EQ(t.rows.size(), 1u);
  // Both stand in one table.
  std::string both(table.size() + t.rows[0].size() + 100, 0);
  size_t length = 0;
  ASSERT_EQ(quern_tuning_merge(table.data(), table.size(), t.rows[0].data(), t.rows[0].size(), both.data(), both.size(),
                               &length, nullptr),
            QUERN_OK);
  both.resize(length);
  size_t rows = 0;
  EXPECT_EQ(quern_tuning_check(both.data(), both.size(), &rows, nullptr, nullptr), QUERN_OK);
  EXPECT_EQ(rows, 2u);
  EXPECT_STREQ(plan_of(p, with(plain, both)).kernel, order[0].kernel);
  tuner again(QUERN_TUNE_FAST);
  ASSERT_EQ(again.run(p, with(denying, both)), QUERN_OK);
  EXPECT_EQ(again.tuned.launches, 0u);
}

// ---- Tables: damage, merging ---------------------------------------------------------------------------------

std::string merged(const std::string& a, const std::string& b) {
  size_t length = 0;
  quern_error error = {};
  EXPECT_EQ(quern_tuning_merge(a.data(), a.size(), b.data(), b.size(), nullptr, 0, &length, &error), QUERN_OK)
      << error.text;
  std::string out(length, '?');
  EXPECT_EQ(quern_tuning_merge(a.data(), a.size(), b.data(), b.size(), out.data(), out.size(), &length, &error),
            QUERN_OK)
      << error.text;
  out.resize(length);
  EXPECT_EQ(quern_tuning_check(out.data(), out.size(), nullptr, nullptr, &error), QUERN_OK) << error.text;
  return out;
}

std::vector<std::string> some_rows(int count) {
  std::vector<std::string> rows;
  for (int i = 0; i < count; ++i) {
    const quern_problem p = conv(i % 2 ? QUERN_NCHW : QUERN_NHWC, 1 + i / 2, 24, 14, 24);
    const quern_cpu cpu = cpu_of(all_isas);
    quern_wish wish = wish_of();
    wish.cpu = &cpu;
    const auto order = usable(p, wish);
    rows.push_back(row_of(p, wish, order, std::vector<uint64_t>(order.size(), 5'000'000)));
  }
  return rows;
}

TEST(TuningTable, MergesInAnyOrder) {
  const std::vector<std::string> rows = some_rows(20);
  std::string forward, backward, halves[2];
  for (size_t i = 0; i < rows.size(); ++i) {
    forward = merged(forward, rows[i]);
    backward = merged(rows[rows.size() - 1 - i], backward);
    halves[i % 2] = merged(halves[i % 2], rows[i]);
  }
  EXPECT_EQ(forward, backward);
  EXPECT_EQ(forward, merged(halves[0], halves[1]));
  EXPECT_EQ(forward, merged(forward, forward));
  EXPECT_EQ(forward, merged(forward, ""));
  // Lines in no order, as `cat` makes them: found nowhere, but mended by a merge.
  std::string heap(tuning_header);
  for (size_t i = rows.size(); i-- > 0;) heap += rows[i * 7 % rows.size()].substr(tuning_header_bytes);
  EXPECT_EQ(merged(heap, ""), forward);
  EXPECT_EQ(merged("", heap), forward);
  size_t count = 0;
  EXPECT_EQ(quern_tuning_check(forward.data(), forward.size(), &count, nullptr, nullptr), QUERN_OK);
  EXPECT_EQ(count, rows.size());
}

TEST(TuningTable, HigherLevelStaysElseTheNewer) {
  const quern_problem p = small();
  const quern_cpu cpu = cpu_of(all_isas);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  const std::vector<quern_candidate> one = {usable(p, wish)[0]};
  const std::string old = row_of(p, wish, one, {3'000'000}), newer = row_of(p, wish, one, {4'000'000}),
                    higher = row_of(p, wish, one, {5'000'000}, QUERN_TUNE_WIDE);
  EXPECT_EQ(merged(old, newer), newer);
  EXPECT_EQ(merged(newer, old), old);
  EXPECT_EQ(merged(higher, newer), higher);
  EXPECT_EQ(merged(newer, higher), higher);
}

TEST(TuningTable, SmallBufferIsRefused) {
  const std::vector<std::string> rows = some_rows(3);
  const std::string all = merged(merged(rows[0], rows[1]), rows[2]);
  for (size_t capacity : {size_t{0}, size_t{5}, tuning_header_bytes, all.size() - 1}) {
    std::string out(capacity, '?');
    size_t length = 0;
    quern_error error = {};
    EXPECT_EQ(quern_tuning_merge(all.data(), all.size(), nullptr, 0, out.data(), capacity, &length, &error),
              QUERN_BUFFER)
        << capacity;
    EXPECT_STREQ(error.field, "capacity");
  }
}

// Every byte changed, every length: other rows are still found, none is believed that is not as it was written.
TEST(TuningTable, DamageCostsItsOwnRow) {
  const std::vector<std::string> rows = some_rows(6);
  std::string table;
  for (const std::string& row : rows) table = merged(table, row);
  const auto found = [&](const std::string& damaged) {
    int count = 0;
    for (int i = 0; i < 6; ++i) {
      const quern_problem p = conv(i % 2 ? QUERN_NCHW : QUERN_NHWC, 1 + i / 2, 24, 14, 24);
      const quern_cpu cpu = cpu_of(all_isas);
      quern_wish wish = wish_of();
      wish.cpu = &cpu;
      const auto all = candidates(p, with(wish, damaged));
      bool measured = false;
      for (const quern_candidate& c : all)
        if (c.measured_ns > 0) {
          measured = true;
          EXPECT_EQ(c.measured_ns, 5e6);
        }
      count += measured;
    }
    return count;
  };
  EXPECT_EQ(found(table), 6);
  for (size_t at = 0; at < table.size(); at += at < 600 ? 7 : 61) {
    for (const char change : {'\x01', '\x20', '\xff'}) {
      std::string damaged = table;
      damaged[at] = static_cast<char>(damaged[at] ^ change);
      // A key that lies elsewhere in the order can hide rows behind it from the bisection; none comes out wrong.
      const int left = found(damaged);
      EXPECT_LE(left, 6);
      if (at < tuning_header_bytes) {
        EXPECT_EQ(left, 0);
      } else {
        size_t good = 0, bad = 0;
        quern_error error = {};
        EXPECT_EQ(quern_tuning_check(damaged.data(), damaged.size(), &good, &bad, &error), QUERN_MISMATCH) << at;
        EXPECT_GE(good, 4u);
        EXPECT_GE(bad, 1u);
        EXPECT_GT(error.value, 1);
        EXPECT_EQ(found(merged(damaged, "")), static_cast<int>(good));
      }
    }
  }
  for (size_t length = 0; length + 1 < table.size(); length += 37) {
    const std::string cut = table.substr(0, length);
    EXPECT_LE(found(cut), 5);
    merged(cut, "");
  }
}

TEST(TuningTable, ForeignBytesAreNone) {
  for (const std::string& foreign :
       {std::string("# quern tuning 2\n"), std::string("{\"rows\": []}"), std::string(1000, '\0'), std::string("#"),
        std::string("\n\n\n"), std::string("# quern tuning 10\n")}) {
    size_t length = 0;
    quern_error error = {};
    const bool prefix = foreign == "#";
    EXPECT_EQ(quern_tuning_merge(foreign.data(), foreign.size(), nullptr, 0, nullptr, 0, &length, &error),
              prefix ? QUERN_OK : QUERN_MISMATCH);
    EXPECT_EQ(quern_tuning_check(foreign.data(), foreign.size(), nullptr, nullptr, &error), QUERN_MISMATCH);
    EXPECT_NE(error.text[0], 0);
    const quern_cpu cpu = cpu_of(all_isas);
    quern_wish wish = wish_of();
    wish.cpu = &cpu;
    EXPECT_STREQ(plan_of(small(), with(wish, foreign)).kernel, plan_of(small(), wish).kernel);
  }
}

// What a checksum lets through because it was written so: figures that no machine has.
TEST(TuningTable, ImpossibleFiguresAreRefused) {
  const std::string good = some_rows(1)[0];
  EXPECT_EQ(resealed(good), good);
  const auto status = [](const std::string& table, const char* sentence) {
    quern_error error = {};
    EXPECT_EQ(quern_tuning_check(table.data(), table.size(), nullptr, nullptr, &error), QUERN_MISMATCH) << table;
    EXPECT_NE(strstr(error.text, sentence), nullptr) << error.text;
    EXPECT_EQ(merged(table, ""), tuning_header);
  };
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string table = good;
    const size_t at = table.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    table.replace(at, from.size(), to);
    return resealed(table);
  };
  status(changed(" 5000000 5000000 ", " 5000000 10 "), "no such machine can reach");
  status(changed(" 5000000 5000000 ", " 5000000 0 "), "figures");
  status(changed(" 5000000 5000000 ", " 4000000 5000000 "), "figures");
  status(changed(" 5000000 5000000 ", " -5 -5 "), "figures");
  status(changed(" 5000000 5000000 ", " 99999999999999999999 5000000 "), "figures");
  status(changed("level=2", "level=9"), "figures");
  status(changed("level=2", "level=0"), "figures");
  status(changed("mb1ic24", "mb1ix24"), "no problem");
  status(changed("threads=1", "strands=1"), "no machine");
  std::string other = good;
  other[tuning_header_bytes] = other[tuning_header_bytes] == '0' ? '1' : '0';
  EXPECT_EQ(quern_tuning_check(other.data(), other.size(), nullptr, nullptr, nullptr), QUERN_MISMATCH);
}

}  // namespace
}  // namespace quern
