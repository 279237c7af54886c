// SPDX-License-Identifier: MIT
//
// Hostile arguments: every verb answers with the right status, a sentence that names field, value and limit,
// and touches nothing.
#include <functional>
#include <limits>
#include <vector>

#include "refusals.h"
#include "registry.h"

namespace quern {
namespace {

using Api = on_a_kernel;

// ---- quern_run ------------------------------------------------------------------------------------------

struct mutation {
  const char* name;
  std::function<void(prepared&)> damage;
  quern_status status;
  const char* field;
  int64_t value, limit;
};

constexpr int64_t any = INT64_MIN;

TEST_F(Api, RunRefusesHostileArguments) {
  quern_wish wish = wish_of();
  wish.algorithm = "conv_im2col";
  const prepared model(everything(), wish);
  ASSERT_GT(model.plan.workspace_bytes, 0u);
  const int64_t dst_bytes = static_cast<int64_t>(model.dst.bytes());
  const int64_t needed = static_cast<int64_t>(model.plan.workspace_bytes);
  const mutation mutations[] = {
      {"no src", [](prepared& x) { x.args.src = nullptr; }, QUERN_BUFFER, "args.src", 0, 8 * 12 * 12 * 4},
      {"no weights", [](prepared& x) { x.args.weights = nullptr; }, QUERN_BUFFER, "args.weights", 0, any},
      {"no dst", [](prepared& x) { x.args.dst = nullptr; }, QUERN_BUFFER, "args.dst", 0, dst_bytes},
      {"no residual", [](prepared& x) { x.args.residual = nullptr; }, QUERN_BUFFER, "args.residual", 0, dst_bytes},
      {"no scale", [](prepared& x) { x.args.scale = nullptr; }, QUERN_BUFFER, "args.scale", 0, 24 * 4},
      {"no bias", [](prepared& x) { x.args.bias = nullptr; }, QUERN_BUFFER, "args.bias", 0, 24 * 4},
      {"no slope", [](prepared& x) { x.args.slope = nullptr; }, QUERN_BUFFER, "args.slope", 0, 24 * 4},
      {"no workspace", [](prepared& x) { x.exec.workspace = nullptr; }, QUERN_BUFFER, "exec.workspace", 0, needed},
      {"src askew", [](prepared& x) { x.args.src = shifted<void>(x.args.src, 1); }, QUERN_BUFFER, "args.src", 1, 4},
      {"packed askew", [](prepared& x) { x.args.weights = shifted<void>(x.args.weights, 32); }, QUERN_BUFFER,
       "args.weights", 32, 64},
      {"dst askew", [](prepared& x) { x.args.dst = shifted<void>(x.args.dst, 2); }, QUERN_BUFFER, "args.dst", 2, 4},
      {"residual askew", [](prepared& x) { x.args.residual = shifted<void>(x.args.residual, 3); }, QUERN_BUFFER,
       "args.residual", 3, 4},
      {"scale askew", [](prepared& x) { x.args.scale = shifted<void>(x.args.scale, 2); }, QUERN_BUFFER, "args.scale", 2,
       4},
      {"bias askew", [](prepared& x) { x.args.bias = shifted<void>(x.args.bias, 2); }, QUERN_BUFFER, "args.bias", 2, 4},
      {"slope askew", [](prepared& x) { x.args.slope = shifted<void>(x.args.slope, 2); }, QUERN_BUFFER, "args.slope", 2,
       4},
      {"workspace askew", [](prepared& x) { x.exec.workspace = shifted<void>(x.exec.workspace, 4); }, QUERN_BUFFER,
       "exec.workspace", 4, 64},
      {"workspace a byte short", [](prepared& x) { --x.exec.workspace_bytes; }, QUERN_BUFFER, "exec.workspace_bytes",
       needed - 1, needed},
      {"src ends in dst", [](prepared& x) { x.args.src = shifted<void>(x.args.dst, 4 - 8 * 12 * 12 * 4); },
       QUERN_BUFFER, "args.src", any, any},
      {"src begins in dst", [=](prepared& x) { x.args.src = shifted<void>(x.args.dst, dst_bytes - 4); }, QUERN_BUFFER,
       "args.src", any, any},
      {"dst in packed", [](prepared& x) { x.args.dst = x.packed.get(); }, QUERN_BUFFER, "args.weights", any, any},
      {"dst is workspace", [](prepared& x) { x.args.dst = x.exec.workspace; }, QUERN_BUFFER, "exec.workspace", any,
       any},
      {"packed in workspace", [](prepared& x) { x.exec.workspace = x.packed.get(); }, QUERN_BUFFER, "args.weights", any,
       any},
      {"src in workspace", [](prepared& x) { x.args.src = x.exec.workspace; }, QUERN_BUFFER, "args.src", any, any},
      {"residual beside dst", [](prepared& x) { x.args.residual = shifted<void>(x.args.dst, 4); }, QUERN_BUFFER,
       "args.residual", any, any},
      {"bias in dst", [](prepared& x) { x.args.bias = x.args.dst; }, QUERN_BUFFER, "args.bias", any, any},
      {"scale in dst", [](prepared& x) { x.args.scale = x.args.dst; }, QUERN_BUFFER, "args.scale", any, any},
      {"slope in workspace", [](prepared& x) { x.args.slope = x.exec.workspace; }, QUERN_BUFFER, "args.slope", any,
       any},
      {"queue", [](prepared& x) { x.exec.queue = &x; }, QUERN_INVALID, "exec.queue", any, any},
      {"exec of no size", [](prepared& x) { x.exec.size = 0; }, QUERN_INVALID, "exec.size", 0, sizeof(quern_exec)},
      {"exec absurd", [](prepared& x) { x.exec.size = 0xffffffff; }, QUERN_INVALID, "exec.size", 0xffffffff,
       sizeof(quern_exec)},
      {"exec cut in a pointer", [](prepared& x) { x.exec.size = 20; }, QUERN_INVALID, "exec.size", 20,
       sizeof(quern_exec)},
      {"args of no size", [](prepared& x) { x.args.size = 0; }, QUERN_INVALID, "args.size", 0, sizeof(quern_args)},
      {"args absurd", [](prepared& x) { x.args.size = 1 << 20; }, QUERN_INVALID, "args.size", 1 << 20,
       sizeof(quern_args)},
      {"args reserved", [](prepared& x) { x.args.reserved = 1; }, QUERN_INVALID, "args.reserved", 1, 0},
      {"args before slope", [](prepared& x) { x.args.size = offsetof(quern_args, slope); }, QUERN_BUFFER, "args.slope",
       0, 24 * 4},
      {"plan of zeros", [](prepared& x) { x.plan = {}; }, QUERN_MISMATCH, "plan", any, any},
      {"plan of garbage", [](prepared& x) { memset(&x.plan, 0xa5, sizeof x.plan); }, QUERN_MISMATCH, "plan", any, any},
      {"plan of another header", [](prepared& x) { x.plan.size -= 8; }, QUERN_MISMATCH, "plan", any, any},
      {"plan cut short", [](prepared& x) { memset(x.plan.opaque, 0, sizeof x.plan.opaque); }, QUERN_MISMATCH, "plan",
       any, any},
      {"plan's problem edited", [](prepared& x) { x.plan.problem.dst.stride[1] += 1; }, QUERN_MISMATCH, "plan", any,
       any},
      {"plan's threads edited", [](prepared& x) { x.plan.threads = 64; }, QUERN_MISMATCH, "plan", any, any},
      {"plan's workspace edited", [](prepared& x) { x.plan.workspace_bytes = 0; }, QUERN_MISMATCH, "plan", any, any},
      {"plain weights", [](prepared& x) { x.args.weights = x.weights.get(); }, QUERN_MISMATCH, "packed", any, any},
  };
  for (const mutation& m : mutations) {
    SCOPED_TRACE(m.name);
    prepared x(everything(), wish);
    // Room on both sides of dst for what overlaps it.
    const memory room(3 * x.dst.bytes() + 3 * x.packed.bytes());
    x.args.dst = room.get() + x.dst.bytes() / 64 * 64 + 64;
    const memory work(std::max(x.plan.workspace_bytes, x.plan.packed_bytes) * 2);
    if (x.packed.bytes() < x.plan.workspace_bytes) {  // a blob with a workspace's room behind it
      memory longer(x.packed.bytes() + x.plan.workspace_bytes);
      memcpy(longer.get(), x.packed.get(), x.packed.bytes());
      x.packed = std::move(longer);
      x.args.weights = x.packed.get();
    }
    m.damage(x);
    const std::string before = room.copy(), packed = x.packed.copy(), src = x.src.copy();
    quern_error error = {};
    expect(x.run(&error), error, m.status, m.field);
    if (m.value != any) {
      EXPECT_EQ(error.value, m.value) << error.text;
    }
    if (m.limit != any) {
      EXPECT_EQ(error.limit, m.limit) << error.text;
    }
    for (const int64_t number : {m.value, m.limit})
      if (number != any && number != 0 && m.status == QUERN_BUFFER && m.limit > 64) {
        EXPECT_NE(std::string(error.text).find(std::to_string(number)), std::string::npos) << error.text;
      }
    EXPECT_EQ(x.run(nullptr), m.status) << "without an error to fill";
    EXPECT_TRUE(room.copy() == before && x.packed.copy() == packed && x.src.copy() == src) << "something was touched";
  }
}

TEST_F(Api, RunTakesWhatIsRight) {
  prepared x(everything());
  quern_error error = {};
  ASSERT_EQ(x.run(&error), QUERN_OK) << error.text;
  EXPECT_EQ(error.status, QUERN_OK) << "written on success";
  const std::string result = x.dst.copy();

  // A struct of a later version, whose unknown tail is zero; then one whose tail is set.
  struct {
    quern_args args;
    uint64_t tail[2];
  } later = {x.args, {}};
  later.args.size = sizeof later;
  memset(x.dst.get(), 0xff, x.dst.bytes());
  EXPECT_EQ(quern_run(&x.plan, &later.args, &x.exec, &error), QUERN_OK) << error.text;
  EXPECT_TRUE(x.dst.copy() == result);
  later.tail[1] = 1;
  expect(quern_run(&x.plan, &later.args, &x.exec, &error), error, QUERN_MISMATCH, "args.size");

  // A copy of the plan is as good as the plan.
  const quern_plan copy = x.plan;
  EXPECT_EQ(quern_run(&copy, &x.args, &x.exec, &error), QUERN_OK) << error.text;

  // In place, as far as the strides are those of dst.
  memcpy(x.dst.get(), x.residual.get(), x.dst.bytes());
  x.args.residual = x.dst.get();
  EXPECT_EQ(x.run(&error), QUERN_OK) << error.text;
  EXPECT_TRUE(x.dst.copy() == result);
}

TEST_F(Api, ResidualInPlaceNeedsTheStridesOfDst) {
  quern_problem p = everything();
  p.residual.layout = QUERN_NHWC;
  prepared x(p);
  x.args.residual = x.dst.get();
  quern_error error = {};
  expect(x.run(&error), error, QUERN_BUFFER, "args.residual");
}

TEST_F(Api, RunWithoutPlanArgsOrExec) {
  prepared x(everything());
  quern_error error = {};
  expect(quern_run(nullptr, &x.args, &x.exec, &error), error, QUERN_INVALID, "plan");
  expect(quern_run(&x.plan, nullptr, &x.exec, &error), error, QUERN_INVALID, "args");
  if (x.plan.workspace_bytes) {
    expect(quern_run(&x.plan, &x.args, nullptr, &error), error, QUERN_BUFFER, "exec.workspace");
  }
}

// Every byte of a plan is sealed but those at the end that the library does not use.
TEST_F(Api, APlanWithAChangedByteIsNone) {
  prepared x(everything());
  quern_error error = {};
  size_t used = 0;
  std::vector<bool> seen(sizeof x.plan);
  for (size_t i = 0; i < sizeof x.plan; ++i) {
    unsigned char& byte = reinterpret_cast<unsigned char*>(&x.plan)[i];
    byte ^= 0x10;
    seen[i] = x.run(&error) == QUERN_MISMATCH;
    byte ^= 0x10;
    if (seen[i]) used = i + 1;
  }
  EXPECT_GT(used, offsetof(quern_plan, opaque) + sizeof(uint64_t));
  for (size_t i = 0; i < used; ++i) EXPECT_TRUE(seen[i]) << "byte " << i;
  EXPECT_EQ(x.run(&error), QUERN_OK) << error.text;
}

TEST_F(Api, NothingToDoNeedsNothing) {
  quern_problem p = everything();
  p.src.size[0] = 0;
  const quern_plan plan = plan_of(p, wish_of());
  quern_args args = {};
  args.size = sizeof args;
  quern_error error = {};
  EXPECT_EQ(quern_run(&plan, &args, nullptr, &error), QUERN_OK) << error.text;
  EXPECT_EQ(quern_compute(&p, &args, nullptr, &error), QUERN_OK) << error.text;

  // A sum over nothing: no source, no weights, but an epilogue.
  p = conv(QUERN_NCHW, 1, 0, 4, 3);
  p.epilogue.bias = 1;
  float dst[3 * 4 * 4];
  const float bias[] = {1, 2, 3};
  args.dst = dst, args.bias = bias;
  ASSERT_EQ(quern_compute(&p, &args, nullptr, &error), QUERN_OK) << error.text;
  for (int i = 0; i < 48; ++i) EXPECT_EQ(dst[i], bias[i / 16]);
}

// ---- quern_plan_make -------------------------------------------------------------------------------------

TEST(ApiPlan, RefusesHostileArguments) {
  quern_problem p = conv(QUERN_NHWC, 1, 8, 12, 24);
  quern_plan plan;
  memset(&plan, 0x5a, sizeof plan);
  const std::string before(reinterpret_cast<const char*>(&plan), sizeof plan);
  quern_error error = {};
  expect(quern_plan_make(nullptr, nullptr, &p, nullptr, &error), error, QUERN_INVALID, "plan");
  expect(quern_plan_make(&plan, nullptr, nullptr, nullptr, &error), error, QUERN_INVALID, "problem");
  expect(quern_plan_make(&plan, reinterpret_cast<const quern_device*>(&p), &p, nullptr, &error), error, QUERN_INVALID,
         "device");

  const struct {
    std::function<void(quern_wish&)> damage;
    quern_status status;
    const char* field;
  } wishes[] = {
      {[](quern_wish& w) { w.size = 0; }, QUERN_INVALID, "wish.size"},
      {[](quern_wish& w) { w.size = 3; }, QUERN_INVALID, "wish.size"},
      {[](quern_wish& w) { w.size = 12; }, QUERN_INVALID, "wish.size"},
      {[](quern_wish& w) { w.size = 1u << 31; }, QUERN_INVALID, "wish.size"},
      {[](quern_wish& w) { w.algorithm = "conv_magic"; }, QUERN_INVALID, "wish.algorithm"},
      {[](quern_wish& w) { w.algorithm = ""; }, QUERN_INVALID, "wish.algorithm"},
      {[](quern_wish& w) { w.algorithm = "conv_im2co"; }, QUERN_INVALID, "wish.algorithm"},
      {[](quern_wish& w) { w.kernel = "gemm_f32_99x99_mmx"; }, QUERN_INVALID, "wish.kernel"},
      {[](quern_wish& w) { w.kernel = "conv_im2col"; }, QUERN_INVALID, "wish.kernel"},
      {[](quern_wish& w) { w.deny = "conv_direct,nonsense"; }, QUERN_INVALID, "wish.deny"},
      {[](quern_wish& w) { w.deny = "conv_directconv_im2col"; }, QUERN_INVALID, "wish.deny"},
      {[](quern_wish& w) { w.repeat = -1; }, QUERN_INVALID, "wish.repeat"},
      {[](quern_wish& w) { w.repeat = QUERN_REPEAT_REF + 1; }, QUERN_INVALID, "wish.repeat"},
      {[](quern_wish& w) { w.overlap = -1; }, QUERN_INVALID, "wish.overlap"},
      {[](quern_wish& w) { w.overlap = QUERN_OVERLAP_NONE + 1; }, QUERN_INVALID, "wish.overlap"},
      {[](quern_wish& w) { w.src_limit = -1; }, QUERN_INVALID, "wish.src_limit"},
      {[](quern_wish& w) { w.src_limit = std::numeric_limits<float>::infinity(); }, QUERN_INVALID, "wish.src_limit"},
      {[](quern_wish& w) { w.src_limit = std::numeric_limits<float>::quiet_NaN(); }, QUERN_INVALID, "wish.src_limit"},
      {[](quern_wish& w) { w.verbose = -2; }, QUERN_INVALID, "wish.verbose"},
      {[](quern_wish& w) { w.verbose = 3; }, QUERN_INVALID, "wish.verbose"},
      {[](quern_wish& w) { w.tuning_bytes = 1; }, QUERN_INVALID, "wish.tuning"},
      {[](quern_wish& w) {
         static quern_cpu cpu = {};
         w.cpu = &cpu;
       },
       QUERN_INVALID, "wish.cpu.size"},
      {[](quern_wish& w) {
         static const quern_cpu cpu = {sizeof cpu, 1, all_isas, 32 << 10, 1 << 20, 0};
         static quern_gpu gpu = {};
         gpu.size = sizeof gpu, gpu.capability = 90;
         w.cpu = &cpu, w.gpu = &gpu;
       },
       QUERN_INVALID, "wish.cpu"},
      {[](quern_wish& w) { w.algorithm = "gemm"; }, QUERN_UNSUPPORTED, nullptr},
      {[](quern_wish& w) { w.workspace_limit = 1, w.deny = "conv_direct,conv_strided"; }, QUERN_UNSUPPORTED, nullptr},
  };
  // The limit is the one that was passed.
  quern_wish early = wish_of();
  early.verbose = -2;
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &early, &error), QUERN_INVALID);
  EXPECT_EQ(error.value, -2);
  EXPECT_EQ(error.limit, -1);
  for (const auto& c : wishes) {
    quern_wish wish = wish_of();
    c.damage(wish);
    error = {};
    const quern_status got = quern_plan_make(&plan, nullptr, &p, &wish, &error);
    if (c.field) {
      expect(got, error, c.status, c.field);
    } else {
      EXPECT_EQ(got, c.status) << error.text;
    }
    size_t count = 77;
    quern_candidate row = {};
    row.size = sizeof row;
    if (c.status != QUERN_UNSUPPORTED) {
      EXPECT_EQ(quern_candidates(nullptr, &p, &wish, &row, 1, &count, &error), c.status);
      EXPECT_EQ(count, 77u) << "written though refused";
      EXPECT_EQ(row.algorithm, nullptr) << "written though refused";
    }
  }
  EXPECT_EQ(memcmp(&plan, before.data(), sizeof plan), 0) << "a plan was written though refused";
}

TEST(ApiPlan, AcceptsStructsOfOtherVersions) {
  const quern_problem p = conv(QUERN_NHWC, 1, 8, 12, 24);
  quern_wish wish = wish_of();
  wish.algorithm = "reference";
  struct {
    quern_wish wish;
    uint64_t tail;
  } later = {wish, 0};
  later.wish.size = sizeof later;
  quern_plan plan;
  quern_error error = {};
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &later.wish, &error), QUERN_OK) << error.text;
  later.tail = 1;
  expect(quern_plan_make(&plan, nullptr, &p, &later.wish, &error), error, QUERN_MISMATCH, "wish.size");
  // Cut behind algorithm, as a version without kernel would have it; what follows is not looked at.
  wish.size = offsetof(quern_wish, kernel);
  wish.kernel = reinterpret_cast<const char*>(8);
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_OK) << error.text;
}

// Sizes that are valid but absurd, whatever becomes of them: an answer, and soon.
TEST(ApiPlan, AbsurdSizesAreAnswered) {
  std::vector<quern_problem> problems;
  for (const quern_layout layout : {QUERN_NCHW, QUERN_NHWC}) {
    quern_problem p = conv(layout, 1, 1, 1, int64_t{1} << 37, 1);  // panels pass 32 bits
    problems.push_back(p);
    p = conv(layout, 1, int64_t{1} << 33, 1, 1, 1);
    problems.push_back(p);
    p = conv(layout, 1, 1, 1 << 24, 1, 1);
    problems.push_back(p);
    // Every pixel has taps of its own.
    p = quern_conv2d(QUERN_F32, layout, 1, 1, 1 << 16, 1 << 16, 1, 1 << 14, 1 << 14);
    for (int i = 1; i < 3; ++i) p.window.pad_begin[i] = p.window.pad_end[i] = 1 << 14;
    problems.push_back(p);
    p = quern_conv2d_transposed(QUERN_F32, layout, 1, 1, 3, 3, 1, 3, 3);
    for (int i = 1; i < 3; ++i) p.window.stride[i] = 1 << 20;
    problems.push_back(p);
    p.window.stride[1] = 1, p.window.stride[2] = INT32_MAX;
    problems.push_back(p);
    p.src.size[2] = 3, p.weights.size[2] = 1;
    for (int i = 0; i < 3; ++i) p.window.stride[i] = 1000, p.window.dilation[i] = 999;
    problems.push_back(p);
  }
  problems.push_back(quern_gemm(QUERN_F32, int64_t{1} << 36, 2, 2));
  problems.push_back(quern_gemm(QUERN_F32, 2, int64_t{1} << 36, 2));
  problems.push_back(quern_gemm(QUERN_F32, 2, 2, int64_t{1} << 36));
  // Little memory, but a workspace for each of very many threads that passes 64 bits.
  quern_problem p = quern_gemm(QUERN_F32, 2, 2, int64_t{1} << 50);
  p.src.stride[3] = p.weights.stride[4] = 1;
  p.dst.size[0] = p.dst.size[1] = p.dst.size[2] = 1, p.dst.size[3] = p.dst.size[4] = 2;
  p.dst.stride[3] = 2, p.dst.stride[4] = 4;
  problems.push_back(p);
  for (const quern_problem& q : problems)
    for (const uint32_t threads : {1u, 7u, UINT32_MAX}) {
      SCOPED_TRACE(text_of(q) + ", threads " + std::to_string(threads));
      const quern_cpu cpu = {sizeof cpu, 1, all_isas, 32 << 10, 1 << 20, 0};
      quern_wish wish = wish_of(threads);
      wish.cpu = &cpu;
      quern_plan plan;
      quern_error error = {};
      const timespec begin = [] {
        timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return t;
      }();
      const quern_status status = quern_plan_make(&plan, nullptr, &q, &wish, &error);
      timespec end;
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
      EXPECT_TRUE(status == QUERN_OK || status == QUERN_UNSUPPORTED || status == QUERN_INVALID) << error.text;
      if (status == QUERN_OK) {
        EXPECT_LT(plan.workspace_bytes, uint64_t{1} << 62);
      }
      EXPECT_LT(end.tv_sec - begin.tv_sec, 2) << "planning took seconds";
    }
}

// ---- The rest ---------------------------------------------------------------------------------------------

TEST_F(Api, ComputeRefusesHostileArguments) {
  prepared x(everything());
  const quern_problem p = everything();
  x.args.weights = x.weights.get();
  quern_error error = {};
  expect(quern_compute(nullptr, &x.args, nullptr, &error), error, QUERN_INVALID, "problem");
  expect(quern_compute(&p, nullptr, nullptr, &error), error, QUERN_INVALID, "args");
  const std::string before = x.dst.copy();
  quern_args args = x.args;
  args.size = 0;
  expect(quern_compute(&p, &args, nullptr, &error), error, QUERN_INVALID, "args.size");
  args = x.args, args.src = nullptr;
  expect(quern_compute(&p, &args, nullptr, &error), error, QUERN_BUFFER, "args.src");
  args = x.args, args.weights = nullptr;
  expect(quern_compute(&p, &args, nullptr, &error), error, QUERN_BUFFER, "args.weights");
  args = x.args, args.weights = x.dst.get();
  expect(quern_compute(&p, &args, nullptr, &error), error, QUERN_BUFFER, "args.weights");
  quern_exec exec = {};
  expect(quern_compute(&p, &x.args, &exec, &error), error, QUERN_INVALID, "exec.size");
  exec.size = sizeof exec, exec.queue = &exec;
  expect(quern_compute(&p, &x.args, &exec, &error), error, QUERN_INVALID, "exec.queue");
  EXPECT_TRUE(x.dst.copy() == before);

  struct {
    quern_args args;
    uint64_t tail;
  } later = {x.args, 0};
  later.args.size = sizeof later;
  ASSERT_EQ(quern_compute(&p, &later.args, nullptr, &error), QUERN_OK) << error.text;
  const std::string computed = x.dst.copy();
  memset(x.dst.get(), 0xff, x.dst.bytes());
  x.args.weights = x.packed.get();
  ASSERT_EQ(x.run(&error), QUERN_OK) << error.text;
  EXPECT_TRUE(x.dst.copy() == computed);
}

// The bits of a plan made without wishes, whatever the operator; on a CPU with AMX that is one that splits.
TEST_F(Api, ComputeChoosesAsAPlanDoes) {
  for (const quern_problem& p : {quern_gemm(QUERN_F32, 300, 200, 250), conv(QUERN_NHWC, 1, 64, 14, 64)}) {
    prepared x(p);
    quern_error error = {};
    ASSERT_EQ(x.run(&error), QUERN_OK) << error.text;
    const std::string planned = x.dst.copy();
    memset(x.dst.get(), 0xff, x.dst.bytes());
    x.args.weights = x.weights.get();
    ASSERT_EQ(quern_compute(&p, &x.args, nullptr, &error), QUERN_OK) << error.text;
    EXPECT_TRUE(x.dst.copy() == planned) << text_of(p) << " by " << x.plan.algorithm;
  }
}

TEST(ApiVersion, Check) {
  EXPECT_EQ(quern_version(), static_cast<uint32_t>(QUERN_VERSION));
  quern_error error = {};
  EXPECT_EQ(quern_check(QUERN_VERSION, &error), QUERN_OK) << error.text;
  EXPECT_EQ(quern_check(QUERN_VERSION, nullptr), QUERN_OK);
  for (const uint32_t other :
       {0u, QUERN_VERSION + 1u, QUERN_VERSION + 100u, QUERN_VERSION - 100u, 10000u, UINT32_MAX}) {
    EXPECT_EQ(quern_check(other, &error), QUERN_MISMATCH) << error.text;
    EXPECT_STREQ(error.field, "QUERN_VERSION");
    EXPECT_EQ(error.value, other);
    EXPECT_EQ(error.limit, QUERN_VERSION);
  }
  quern_check(10203, &error);
  EXPECT_NE(strstr(error.text, "1.2.3"), nullptr) << error.text;
  EXPECT_NE(strstr(error.text, "0.1.0"), nullptr) << error.text;
}

TEST(ApiStatus, EveryStatusHasAName) {
  for (quern_status s = QUERN_OK; s <= QUERN_FILE; ++s) EXPECT_STRNE(quern_status_name(s), "unknown status") << s;
  EXPECT_STREQ(quern_status_name(-1), "unknown status");
  EXPECT_STREQ(quern_status_name(QUERN_FILE + 1), "unknown status");
}

TEST(ApiKernels, TableWalk) {
  ASSERT_GT(quern_kernel_count(), 0u);
  quern_error error = {};
  for (size_t i = 0; i < quern_kernel_count(); ++i) {
    struct {
      quern_kernel_info info;
      uint64_t tail;
    } later;
    memset(&later, 0x5a, sizeof later);
    later.info.size = sizeof later;
    ASSERT_EQ(quern_kernel_get(i, &later.info, &error), QUERN_OK) << error.text;
    EXPECT_EQ(later.tail, 0u);
    EXPECT_STREQ(later.info.name, kernel_at(i).name);
    EXPECT_GT(strlen(later.info.about), 0u);
    EXPECT_TRUE(later.info.backend == QUERN_BACKEND_REF || later.info.isa != 0 || later.info.capability != 0)
        << later.info.name;
    for (size_t j = 0; j < i; ++j) EXPECT_STRNE(kernel_at(i).name, kernel_at(j).name);
    // An older caller's, shorter struct.
    quern_kernel_info shorter;
    memset(&shorter, 0x5a, sizeof shorter);
    shorter.size = offsetof(quern_kernel_info, about);
    ASSERT_EQ(quern_kernel_get(i, &shorter, &error), QUERN_OK) << error.text;
    EXPECT_EQ(shorter.name, later.info.name);
    EXPECT_EQ(memcmp(&shorter.isa, "ZZZZZZZZ", 8), 0) << "written past the end";
  }
  quern_kernel_info info = {};
  for (const uint32_t size : {0u, 4u, 21u, 1u << 20}) {
    info.size = size;
    expect(quern_kernel_get(0, &info, &error), error, QUERN_INVALID, "out");
  }
  info.size = sizeof info;
  expect(quern_kernel_get(0, nullptr, &error), error, QUERN_INVALID, "out");
  for (const size_t index : {quern_kernel_count(), SIZE_MAX}) {
    expect(quern_kernel_get(index, &info, &error), error, QUERN_INVALID, "index");
    EXPECT_EQ(error.limit, static_cast<int64_t>(quern_kernel_count()));
  }
  EXPECT_EQ(info.name, nullptr);
}

}  // namespace
}  // namespace quern
