// SPDX-License-Identifier: MIT
//
// quern_tune on a GPU that is none, whose time is what a test says: what is measured, what it costs, how the choice
// follows it, and that whatever a row says of blocks computes the right thing.
#include <set>
#include <string>
#include <vector>

#include "choose.h"
#include "fake_gpu.h"
#include "fuzz.h"
#include "prepared.h"
#include "tuning.h"

namespace quern::test {
namespace {

std::string fastest;  // the kernel that takes half the time of all others

class CudaTuning : public testing::Test {
 protected:
  CudaTuning() {
    fake = &gpu;
    gpu.ns = [](const kernel& row) { return fastest == row.name ? 20000.0 : 40000.0; };
    budget.size = sizeof budget;
    budget.level = QUERN_TUNE_HEAVY;
    budget.self = this;
    budget.row = [](void* self, const void* table, size_t bytes) {
      static_cast<CudaTuning*>(self)->rows.push_back({static_cast<const char*>(table), bytes});
    };
    tuned.size = sizeof tuned;
  }
  ~CudaTuning() override {
    for (quern_device* d : devices) quern_device_close(d);
    EXPECT_EQ(gpu.events, 0);
    EXPECT_EQ(gpu.graphs, 0);
    EXPECT_FALSE(gpu.capturing);
    EXPECT_EQ(current_context, nullptr);
    fake = nullptr;
  }
  quern_device* open() {
    quern_device* device = nullptr;
    EXPECT_EQ(open_cuda(fake_driver(), reinterpret_cast<void*>(1), device, &error), QUERN_OK) << error.text;
    devices.push_back(device);
    return device;
  }
  quern_status tune(const quern_device* device, const quern_problem& p, const quern_wish& wish,
                    uint64_t most = UINT64_MAX) {
    error = {};
    uint64_t bytes = 0;
    if (const quern_status s = quern_tune_workspace(device, &p, &wish, &budget, &bytes, &error)) return s;
    const memory workspace(std::min(bytes, most));
    quern_exec exec = {};
    exec.size = sizeof exec;
    exec.queue = &gpu, exec.workspace = workspace.get(), exec.workspace_bytes = workspace.bytes();
    return quern_tune(device, &p, &wish, &budget, &exec, &tuned, &error);
  }
  static quern_wish with(const std::string& table) {
    quern_wish wish = wish_of();
    wish.tuning = table.data(), wish.tuning_bytes = table.size();
    return wish;
  }
  static std::vector<quern_candidate> usable(const quern_problem& p, const quern_device* device) {
    std::vector<quern_candidate> all = all_candidates(p, nullptr, device);
    std::erase_if(all, [](const quern_candidate& c) { return c.verdict > QUERN_USABLE; });
    return all;
  }

  fake_gpu gpu;
  quern_budget budget = {};
  quern_tuned tuned = {};
  quern_error error = {};
  std::vector<std::string> rows;
  std::vector<quern_device*> devices;
};

TEST_F(CudaTuning, FindsTheFastestAndIsBelieved) {
  const quern_device* const device = open();
  gpu.idle = true;
  for (const char* line : {"f16 nhwc mb2ic64ih14oc64oh14kh3ph1", "nhwc mb1ic24ih14oc24oh14kh3ph1 bias act=relu",
                           "nchw mb1ic3ih32oc32oh16kh3sh2ph1", "nhwc g32mb1ic32ih20oc32oh20kh3ph1",
                           "s8 nhwc mb1ic64ih7oc64oh7kh1", "softmax nhwc 4x100x1x3 axes=c"}) {
    quern_problem p;
    ASSERT_EQ(quern_problem_parse(line, &p, &error), QUERN_OK) << error.text;
    p = completed(p);
    const std::vector<quern_candidate> all = usable(p, device);
    ASSERT_FALSE(all.empty());
    fastest = all.back().kernel;
    rows.clear();
    ASSERT_EQ(tune(device, p, wish_of()), QUERN_OK) << error.text;
    EXPECT_EQ(tuned.kernel, fastest) << line;
    EXPECT_EQ(tuned.candidates, all.size());
    EXPECT_NEAR(tuned.measured_ns, 20000, 1) << line;
    EXPECT_NEAR(tuned.default_ns, all.size() > 1 ? 40000 : 20000, 1) << line;
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(quern_tuning_check(rows[0].data(), rows[0].size(), nullptr, nullptr, &error), QUERN_OK)
        << error.text << rows[0];

    const std::string row = rows[0];
    const quern_wish wish = with(row);
    quern_plan plan;
    ASSERT_EQ(quern_plan_make(&plan, device, &p, &wish, &error), QUERN_OK) << error.text;
    EXPECT_EQ(plan.kernel, fastest);
    // The same GPU as a value finds it too.
    quern_gpu value = {};
    value.size = sizeof value;
    ASSERT_EQ(quern_gpu_get(device, &value, &error), QUERN_OK);
    EXPECT_EQ(value.driver, 13000u);
    quern_wish other = wish;
    other.gpu = &value;
    ASSERT_EQ(quern_plan_make(&plan, nullptr, &p, &other, &error), QUERN_OK) << error.text;
    EXPECT_EQ(plan.kernel, fastest);
    // The second time nothing is run.
    ASSERT_EQ(tune(device, p, wish), QUERN_OK) << error.text;
    EXPECT_EQ(tuned.launches, 0u);
    EXPECT_EQ(tuned.kernel, fastest);
    EXPECT_EQ(rows.size(), 1u);
    // Another GPU or driver does not.
    if (all.size() == 1) continue;
    for (int changed = 0; changed < 4; ++changed) {
      quern_gpu its = value;
      if (changed == 0) its.driver += 10;
      if (changed == 1) its.multiprocessors -= 18;
      if (changed == 2) its.clock_mhz -= 200;
      if (changed == 3) its.bandwidth /= 2;
      other.gpu = &its;
      ASSERT_EQ(quern_plan_make(&plan, nullptr, &p, &other, &error), QUERN_OK) << error.text;
      const std::string without = plan.kernel;
      other.tuning = nullptr, other.tuning_bytes = 0;
      ASSERT_EQ(quern_plan_make(&plan, nullptr, &p, &other, &error), QUERN_OK) << error.text;
      EXPECT_EQ(plan.kernel, without);
      other.tuning = row.data(), other.tuning_bytes = row.size();
    }
  }
}

// Kernels do run, in no more memory than was said, with operands that are there.
// Which limit it is does not matter.
TEST_F(CudaTuning, LimitedInputsHaveRowsOfTheirOwn) {
  const quern_device* const device = open();
  gpu.idle = true;
  quern_problem p;
  ASSERT_EQ(quern_problem_parse("nhwc ic64ih14oc64oh14kh3ph1 accuracy=f32_loose", &p, &error), QUERN_OK) << error.text;
  p = completed(p);
  quern_wish wish = wish_of();
  wish.src_limit = 1;
  fastest = "tma_f16x3_f32_192x64_sm90a";
  ASSERT_EQ(tune(device, p, wish), QUERN_OK) << error.text;
  EXPECT_EQ(tuned.kernel, fastest);
  ASSERT_EQ(rows.size(), 1u);
  const std::string row = rows[0];
  wish = with(row);
  quern_plan plan, untuned;
  for (const float limit : {2.0f, 0.0f}) {
    wish.src_limit = limit;
    ASSERT_EQ(quern_plan_make(&plan, device, &p, &wish, &error), QUERN_OK) << error.text;
    EXPECT_EQ(plan.kernel == fastest, limit > 0) << plan.kernel;
  }
  const quern_wish none = wish_of();
  ASSERT_EQ(quern_plan_make(&untuned, device, &p, &none, &error), QUERN_OK) << error.text;
  EXPECT_STREQ(plan.kernel, untuned.kernel);
}

TEST_F(CudaTuning, KeepsToItsMemoryAndBudget) {
  const quern_device* const device = open();
  const quern_problem p = completed(of_type(conv(QUERN_NHWC, 1, 8, 5, 8), QUERN_F16));
  budget.launches = 30;
  ASSERT_EQ(tune(device, p, wish_of()), QUERN_OK) << error.text;
  EXPECT_LE(tuned.launches, 30u);
  EXPECT_GT(tuned.launches, 0u);
  EXPECT_LE(tuned.launches, static_cast<uint64_t>(gpu.launches));  // some copy their image first
  EXPECT_GT(tuned.candidates, 0u);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(gpu.stream, &gpu);
  EXPECT_EQ(tune(device, p, wish_of(), 4096), QUERN_BUFFER);
  EXPECT_STREQ(error.field, "exec.workspace_bytes");
  EXPECT_EQ(rows.size(), 1u);
}

TEST_F(CudaTuning, StopsWhenItMust) {
  const quern_device* const device = open();
  gpu.idle = true;
  const quern_problem p = completed(of_type(conv(QUERN_NHWC, 1, 64, 12, 64), QUERN_F16));
  static int calls;
  calls = 0;
  budget.progress = [](void*, const quern_tuned*) { return int(++calls == 5); };
  EXPECT_EQ(tune(device, p, wish_of()), QUERN_CANCELLED);
  EXPECT_TRUE(rows.empty());
  // A kernel that fails.
  calls = 0;
  budget.progress = [](void*, const quern_tuned*) {
    if (++calls == 3) fake->ns = [](const kernel&) { return fake->fails = 719, 0.0; };
    return 0;
  };
  EXPECT_EQ(tune(device, p, wish_of()), QUERN_DRIVER);
  EXPECT_EQ(error.value, 719);
  EXPECT_TRUE(rows.empty());
  gpu.fails = 0, gpu.events = 0, gpu.graphs = 0, gpu.capturing = false;  // nothing can be destroyed then
}

TEST_F(CudaTuning, BadRequests) {
  const quern_device* const device = open();
  quern_problem p = completed(conv(QUERN_NHWC, 1, 8, 5, 8));
  quern_wish wish = wish_of();
  quern_gpu value = {};
  value.size = sizeof value;
  ASSERT_EQ(quern_gpu_get(device, &value, &error), QUERN_OK);
  wish.gpu = &value;
  EXPECT_EQ(tune(device, p, wish), QUERN_INVALID);
  EXPECT_STREQ(error.field, "wish.gpu");
  quern_exec exec = {};
  exec.size = sizeof exec;
  wish.gpu = nullptr;
  EXPECT_EQ(quern_tune(device, &p, &wish, &budget, &exec, nullptr, &error), QUERN_INVALID);
  EXPECT_STREQ(error.field, "exec.queue");
  exec.queue = &gpu;
  EXPECT_EQ(quern_tune(nullptr, &p, &wish, &budget, &exec, nullptr, &error), QUERN_INVALID);
  EXPECT_STREQ(error.field, "exec.queue");
  EXPECT_EQ(quern_tune(device, &p, &wish, &budget, &exec, nullptr, &error), QUERN_BUFFER);
  EXPECT_STREQ(error.field, "exec.workspace_bytes");
}

// A row for this candidate and device with other blocks.
std::string row_of(const quern_problem& p, const quern_device* device, const quern_candidate& c, const variation& as) {
  resolved_wish w;
  const quern_wish plain = wish_of();
  EXPECT_EQ(resolve(device, &plain, w, nullptr), QUERN_OK);
  tuned_row row = {};
  row.level = QUERN_TUNE_HEAVY, row.count = 1;
  row.candidate[0] = {
      c.algorithm, c.kernel, uint32_t(strlen(c.algorithm)), uint32_t(strlen(c.kernel)), 1000000, 1000000, 5, as};
  char key[most_key];
  std::string table(most_line + tuning_header_bytes, 0);
  table.resize(print_tuned(key, tuning_key(p, w, false, key), row, table.data()));
  return table;
}

TEST_F(CudaTuning, VariedBlocksComputeTheSame) {
  const quern_device* const device = open();
  way how;
  how.device = device, how.queue = &gpu;
  std::set<std::string> varied;
  const auto try_all = [&](const quern_problem& p, dice& d, const std::vector<variation>& all) {
    const operands in = small_integers(p, edge::back, d);
    const solution want = solve(p, in, "reference", nullptr);
    for (const quern_candidate& c : usable(p, device)) {
      how.tuning.clear();
      ASSERT_TRUE(agree_by_class(p, c, want, solve(p, in, c.algorithm, c.kernel, how)));
      const unsigned blocks = gpu.blocks;
      for (const variation& as : all) {
        how.tuning = row_of(p, device, c, as);
        ASSERT_TRUE(agree_by_class(p, c, want, solve(p, in, c.algorithm, c.kernel, how))) << as.l1 << " " << as.l2;
        if (gpu.blocks != blocks) varied.insert(c.algorithm);
      }
    }
  };
  for (const char* line : {"nhwc g32mb16ic32ih16oc32oh16kh3ph1", "f16 nhwc mb1ic3ih40oc32oh20kh3sh2ph1"}) {
    quern_problem p;
    ASSERT_EQ(quern_problem_parse(line, &p, &error), QUERN_OK) << error.text;
    dice d(5);
    try_all(completed(p), d, {{0, -4, 1}, {0, 4, 1}, {-4, -2, 1}, {4, 2, 1}});
  }
  for (const char* algorithm : {"conv_walk", "conv_first_layer", "conv_first_box"})
    EXPECT_TRUE(varied.count(algorithm)) << algorithm;
  const uint32_t first = seed();
  for (uint32_t i = 0; i < 20 && !HasFatalFailure(); ++i) {
    SCOPED_TRACE("QUERN_TEST_SEED=" + std::to_string(first + i));
    dice d(first + i);
    const int32_t l1 = d.from(-most_shift, most_shift), l2 = d.from(-most_shift, most_shift);
    try_all(of_type(random_few_channels(d), d.of(gpu_types)), d, {{l1, l2, 1}});
  }
}

}  // namespace
}  // namespace quern::test
