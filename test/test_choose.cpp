// SPDX-License-Identifier: MIT
//
// The choice, on CPUs that are given as values: who is chosen, and why the others are not.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "prepared.h"
#include "registry.h"

namespace quern {
namespace {

constexpr uint64_t avx2 = QUERN_ISA_AVX2, avx512 = QUERN_ISA_AVX2 | QUERN_ISA_AVX512;

quern_cpu cpu_of(uint64_t isa, uint64_t l1, uint64_t l2, uint64_t l3) {
  return {sizeof(quern_cpu), 1, isa, l1 << 10, l2 << 10, l3 << 10};
}
quern_cpu cpu_of(uint64_t isa) { return cpu_of(isa, 32, 1024, 32 << 10); }

std::vector<quern_candidate> candidates(const quern_problem& p, const quern_wish& wish) {
  size_t count = 0;
  quern_error error = {};
  EXPECT_EQ(quern_candidates(nullptr, &p, &wish, nullptr, 0, &count, &error), QUERN_OK) << error.text;
  std::vector<quern_candidate> all(count);
  if (count) all[0].size = sizeof(quern_candidate);
  EXPECT_EQ(quern_candidates(nullptr, &p, &wish, all.data(), count, &count, &error), QUERN_OK) << error.text;
  EXPECT_EQ(count, all.size());
  return all;
}

std::string explained(const quern_candidate& c) {
  char text[300] = "";
  quern_error error = {};
  EXPECT_EQ(quern_candidate_explain(&c, text, sizeof text, nullptr, &error), QUERN_OK) << error.text;
  return text;
}

const quern_candidate* find(const std::vector<quern_candidate>& all, const char* algorithm, const char* kernel) {
  for (const quern_candidate& c : all)
    if (strcmp(c.algorithm, algorithm) == 0 && strcmp(c.kernel, kernel) == 0) return &c;
  return nullptr;
}

std::vector<quern_problem> problems() {
  std::vector<quern_problem> list;
  for (const quern_layout layout : {QUERN_NCHW, QUERN_NHWC}) {
    list.push_back(conv(layout, 1, 64, 56, 64));
    list.push_back(conv(layout, 1, 3, 224, 64, 7));
    list.push_back(conv(layout, 2, 512, 7, 512, 1));
    list.push_back(conv(layout, 1, 1, 1, 1, 1));
    list.push_back(conv(layout, 0, 16, 8, 16));
    quern_problem p = quern_conv2d_transposed(QUERN_F32, layout, 1, 32, 20, 20, 8, 4, 4);
    p.window.stride[1] = p.window.stride[2] = 2;
    list.push_back(p);
  }
  list.push_back(quern_gemm(QUERN_F32, 100, 200, 300));
  return list;
}

// ---- What is chosen ---------------------------------------------------------------------------------------

struct choice {
  const char* line;
  uint64_t isa;
  const char* algorithm;
  const char* kernel;  // NULL: several are about as good
};

// Where one choice is clearly right; a better cost model may move others, not these.
const choice choices[] = {
    {"nhwc mb1ic64ih56oc64oh56kh3ph1", avx2, "conv_direct", nullptr},
    {"nhwc mb1ic64ih56oc64oh56kh3ph1", avx512, "conv_direct", nullptr},
    {"nchw mb1ic64ih56oc64oh56kh3ph1", avx2, "conv_im2col", nullptr},
    {"nchw mb1ic64ih56oc64oh56kh3ph1", avx512, "conv_im2col", nullptr},
    // Channels that fill one tile and not the other.
    {"nhwc mb1ic64ih56oc8oh56kh3ph1", avx2, "conv_direct", "gemm_f32_6x16_avx2"},
    {"nhwc mb1ic64ih56oc24oh56kh3ph1", avx2, "conv_direct", "gemm_f32_4x24_avx2"},
    {"nhwc mb1ic64ih56oc32oh56kh3ph1", avx2, "conv_direct", "gemm_f32_6x16_avx2"},
    {"nhwc mb1ic64ih56oc8oh56kh3ph1", avx512, "conv_direct", "gemm_f32_14x32_avx512"},
    {"nhwc mb1ic64ih56oc16oh56kh3ph1", avx512, "conv_direct", "gemm_f32_14x32_avx512"},
    {"conv_transposed nhwc mb1ic256ih64oc3oh128kh4sh2ph1", avx512, "conv_direct", "gemm_f32_14x32_avx512"},
    {"nhwc g32mb1ic32ih112oc32oh112kh3ph1", avx2, "conv_depthwise", nullptr},
    {"nhwc g32mb1ic32ih112oc32oh112kh3ph1", avx512, "conv_depthwise", nullptr},
    {"gemm 512x512:512x512", avx2, "gemm", nullptr},
    {"gemm 512x512:512x512", avx512, "gemm", nullptr},
};

TEST(Choose, KnownChoices) {
  const uint64_t caches[][3] = {{0, 0, 0}, {32, 256, 8 << 10}, {32, 1024, 32 << 10}, {48, 2048, 105 << 10}};
  for (const choice& c : choices)
    for (const auto& cache : caches) {
      quern_problem p;
      quern_error error = {};
      ASSERT_EQ(quern_problem_parse(c.line, &p, &error), QUERN_OK) << error.text;
      const quern_cpu cpu = cpu_of(c.isa, cache[0], cache[1], cache[2]);
      quern_wish wish = wish_of();
      wish.cpu = &cpu;
      const quern_plan plan = plan_of(p, wish);
      EXPECT_STREQ(plan.algorithm, c.algorithm) << c.line << ", L2 of " << cache[1] << " KiB";
      if (c.kernel) {
        EXPECT_STREQ(plan.kernel, c.kernel) << c.line << ", L2 of " << cache[1] << " KiB";
      }
    }
}

// The widest instructions that the CPU has, whatever its caches; none that it lacks.
TEST(Choose, FollowsTheIsa) {
  const uint64_t caches[][3] = {{0, 0, 0}, {32, 256, 0}, {32, 512, 16 << 10}, {48, 2048, 105 << 10}, {64, 65536, 1}};
  for (const quern_problem& p : problems())
    for (const auto& cache : caches)
      for (const uint64_t isa : {avx2, avx512}) {
        const quern_cpu cpu = cpu_of(isa, cache[0], cache[1], cache[2]);
        quern_wish wish = wish_of();
        wish.cpu = &cpu;
        const quern_plan plan = plan_of(p, wish);
        ASSERT_NE(plan.kernel, nullptr);
        const std::string kernel = plan.kernel;
        if (isa == avx2) {
          EXPECT_EQ(kernel.substr(kernel.rfind('_')), "_avx2") << text_of(p);
        }
        // A single pixel is too little to tell.
        if (isa == avx512 && p.dst.size[0] != 0 && p.src.size[1] > 1) {
          EXPECT_EQ(kernel.substr(kernel.rfind('_')), "_avx512") << text_of(p);
        }
      }
}

TEST(Choose, NeverTheReferenceUnasked) {
  const quern_cpu cpu = cpu_of(0);
  for (const quern_problem& p : problems()) {
    quern_wish wish = wish_of();
    wish.cpu = &cpu;
    quern_plan plan = {};
    quern_error error = {};
    EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_UNSUPPORTED);
    EXPECT_NE(strstr(error.text, "needs avx2, which this CPU lacks"), nullptr) << error.text;
    EXPECT_STREQ(error.field, "cpu.isa");
    EXPECT_EQ(plan.algorithm, nullptr);
    const auto all = candidates(p, wish);
    EXPECT_TRUE(std::none_of(all.begin(), all.end(), [](auto& c) { return c.verdict == QUERN_CHOSEN; }));

    wish.algorithm = "reference";
    plan = plan_of(p, wish);
    EXPECT_STREQ(plan.algorithm, "reference");
    EXPECT_EQ(plan.repeat, QUERN_REPEAT_REF);
    EXPECT_EQ(plan.packed_bytes, 0u);
  }
}

TEST(Choose, ProcessorsWithOddBits) {
  const quern_problem p = conv(QUERN_NHWC, 1, 64, 14, 64);
  quern_wish wish = wish_of();
  // AVX-512 without AVX2, as a VM might mask it; unknown bits of the future; both known ones and those.
  quern_cpu cpu = cpu_of(QUERN_ISA_AVX512);
  wish.cpu = &cpu;
  EXPECT_STREQ(strrchr(plan_of(p, wish).kernel, '_'), "_avx512");
  cpu.isa = ~uint64_t{0} & ~avx512;
  quern_plan plan;
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, nullptr), QUERN_UNSUPPORTED);
  cpu.isa = ~uint64_t{0} & ~uint64_t{QUERN_ISA_AVX512};
  EXPECT_STREQ(strrchr(plan_of(p, wish).kernel, '_'), "_avx2");
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, UINT64_MAX, uint64_t{1} << 63}) {
    cpu = {sizeof cpu, 0, avx512, bytes, bytes, bytes};
    for (const quern_problem& q : problems()) plan_of(q, wish);
  }
}

TEST(Choose, PlanForAStrongerProcessorIsRefusedAtRun) {
  if (can_run(avx512)) GTEST_SKIP() << "this CPU has every instruction set";
  const quern_cpu cpu = cpu_of(avx512);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  prepared x(conv(QUERN_NHWC, 1, 64, 14, 64), wish);
  const std::string before = x.dst.copy();
  quern_error error = {};
  EXPECT_EQ(x.run(&error), QUERN_UNSUPPORTED);
  EXPECT_NE(strstr(error.text, "instruction set"), nullptr) << error.text;
  EXPECT_TRUE(x.dst.copy() == before);
}

// ---- Wishes -----------------------------------------------------------------------------------------------

TEST(Choose, MeetsTheWish) {
  const quern_cpu cpu = cpu_of(avx512);
  for (const quern_problem& p : problems()) {
    quern_wish wish = wish_of();
    wish.cpu = &cpu;
    for (const quern_candidate& c : candidates(p, wish)) {
      quern_wish one = wish;
      one.algorithm = c.algorithm, one.kernel = c.kernel;
      quern_plan plan = {};
      const quern_status status = quern_plan_make(&plan, nullptr, &p, &one, nullptr);
      if (c.verdict == QUERN_REFUSED && c.reason != QUERN_REASON_WISH) {
        EXPECT_EQ(status, QUERN_UNSUPPORTED) << c.algorithm << " " << c.kernel;
        continue;
      }
      ASSERT_EQ(status, QUERN_OK) << c.algorithm << " " << c.kernel;
      EXPECT_STREQ(plan.algorithm, c.algorithm);
      EXPECT_STREQ(plan.kernel, c.kernel);
    }
  }
}

TEST(Choose, DenyListsWithSpacesAndCommas) {
  const quern_problem p = conv(QUERN_NHWC, 1, 64, 56, 64);
  const quern_cpu cpu = cpu_of(avx512);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  std::string deny;
  // Denying the chosen one, again and again, visits every usable candidate in the order of their times.
  const auto all = candidates(p, wish);
  double last = 0;
  std::set<std::string> kernels;
  for (size_t round = 0;; ++round) {
    wish.deny = deny.c_str();
    quern_plan plan = {};
    if (quern_plan_make(&plan, nullptr, &p, &wish, nullptr) != QUERN_OK) break;
    EXPECT_GE(plan.predicted_ns, last);
    last = plan.predicted_ns;
    ASSERT_TRUE(kernels.insert(plan.kernel).second) << "denied, and chosen all the same";
    deny += (round % 2 ? " , " : ",") + std::string(plan.kernel);
  }
  std::set<std::string> usable;
  for (const quern_candidate& c : all)
    if (c.verdict == QUERN_CHOSEN || c.verdict == QUERN_USABLE) usable.insert(c.kernel);
  EXPECT_EQ(kernels, usable);
  for (const char* nothing : {"", ",", " , ,"}) {
    wish.deny = nothing;
    EXPECT_STREQ(plan_of(p, wish).kernel, all[0].kernel);
  }
}

TEST(Choose, WorkspaceLimits) {
  const quern_cpu cpu = cpu_of(avx512);
  const quern_problem p = conv(QUERN_NCHW, 4, 64, 56, 64);
  quern_wish wish = wish_of(8);
  wish.cpu = &cpu;
  const quern_plan free = plan_of(p, wish);
  ASSERT_GT(free.threads, 1u);
  ASSERT_GT(free.workspace_bytes, 0u);
  // One byte too little for all threads: fewer threads, or another kernel, within the limit.
  wish.workspace_limit = free.workspace_bytes - 1;
  const quern_plan tight = plan_of(p, wish);
  EXPECT_LE(tight.workspace_bytes, wish.workspace_limit);
  wish.workspace_limit = free.workspace_bytes;
  EXPECT_EQ(plan_of(p, wish).workspace_bytes, free.workspace_bytes);
  // None at all: 3x3 over NCHW needs some, and says how much; a pointwise one needs none.
  wish.workspace_limit = 1;
  quern_plan plan;
  quern_error error = {};
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_UNSUPPORTED);
  EXPECT_STREQ(error.field, "wish.workspace_limit");
  EXPECT_EQ(error.value, 1);
  EXPECT_GT(error.limit, 1);
  EXPECT_NE(strstr(error.text, std::to_string(error.limit).c_str()), nullptr) << error.text;
  wish.workspace_limit = static_cast<size_t>(error.limit);
  wish.kernel = nullptr;
  EXPECT_LE(plan_of(p, wish).workspace_bytes, wish.workspace_limit);
  wish.workspace_limit = 63;
  EXPECT_EQ(plan_of(conv(QUERN_NHWC, 1, 64, 56, 64, 1), wish).workspace_bytes, 0u);
}

TEST(Choose, AccuracyAndRepeat) {
  const quern_cpu cpu = cpu_of(avx512);
  quern_problem p = conv(QUERN_NCHW, 1, 64, 14, 64);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  quern_plan plan;
  quern_error error = {};
  p.accuracy = QUERN_ACCURACY_EXACT;
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_UNSUPPORTED);
  EXPECT_STREQ(error.field, "accuracy") << error.text;
  EXPECT_EQ(error.value, QUERN_ACCURACY_EXACT);
  p.accuracy = QUERN_ACCURACY_F32;
  EXPECT_EQ(plan_of(p, wish).accuracy, QUERN_ACCURACY_F32);
  p.accuracy = QUERN_ACCURACY_DEFAULT;
  for (int32_t repeat = QUERN_REPEAT_RUN; repeat <= QUERN_REPEAT_ISA; ++repeat) {
    wish.repeat = repeat;
    EXPECT_GE(plan_of(p, wish).repeat, repeat);
  }
  wish.repeat = QUERN_REPEAT_REF;
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_UNSUPPORTED);
  EXPECT_STREQ(error.field, "wish.repeat") << error.text;
  wish.algorithm = "reference";
  EXPECT_STREQ(plan_of(p, wish).algorithm, "reference");
}

TEST(Choose, DoublesAreForTheReference) {
  quern_problem p = quern_conv2d(QUERN_F64, QUERN_NCHW, 1, 4, 8, 8, 4, 3, 3);
  const quern_cpu cpu = cpu_of(avx512);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  quern_plan plan;
  quern_error error = {};
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_UNSUPPORTED);
  EXPECT_STREQ(error.field, "src.type") << error.text;
  EXPECT_NE(strstr(error.text, "f64"), nullptr) << error.text;
  wish.algorithm = "reference";
  EXPECT_STREQ(plan_of(p, wish).algorithm, "reference");
}

// The sentence is about the kernel that was asked for, not about a bystander.
TEST(Choose, UnsupportedNamesTheWishedKernel) {
  const quern_problem p = conv(QUERN_NCHW, 1, 64, 14, 64);
  const quern_cpu cpu = cpu_of(avx2);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  wish.kernel = "gemm_f32_8x48_avx512";
  quern_plan plan;
  quern_error error = {};
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_UNSUPPORTED);
  EXPECT_NE(strstr(error.text, "gemm_f32_8x48_avx512: needs avx512"), nullptr) << error.text;
  wish.kernel = nullptr, wish.algorithm = "conv_direct";
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_UNSUPPORTED);
  EXPECT_STREQ(error.field, "src.stride[1]") << error.text;
  EXPECT_NE(strstr(error.text, "conv_direct"), nullptr) << error.text;
}

// ---- Candidates -------------------------------------------------------------------------------------------

TEST(Candidates, EveryPairOnceChosenFirst) {
  for (const uint64_t isa : {uint64_t{0}, avx2, avx512})
    for (const uint32_t threads : {1u, 4u})
      for (const quern_problem& p : problems()) {
        SCOPED_TRACE(text_of(p));
        const quern_cpu cpu = cpu_of(isa);
        quern_wish wish = wish_of(threads);
        wish.cpu = &cpu;
        const auto all = candidates(p, wish);
        std::set<std::string> names, registered;
        for (size_t a = 0; a < algorithm_count(); ++a)
          for (size_t k = 0; k < kernel_count(); ++k)
            if (pairs(algorithm_at(a), kernel_at(k), p.op))
              registered.insert(std::string(algorithm_at(a).name) + " " + kernel_at(k).name);
        for (size_t i = 0; i < all.size(); ++i) {
          const quern_candidate& c = all[i];
          EXPECT_TRUE(names.insert(std::string(c.algorithm) + " " + c.kernel).second) << "twice";
          EXPECT_EQ(c.size, sizeof c);
          if (i) {
            EXPECT_LE(all[i - 1].verdict, c.verdict) << "order of verdicts";
            EXPECT_NE(c.verdict, QUERN_CHOSEN);
            if (c.verdict == QUERN_USABLE) {
              EXPECT_LE(all[i - 1].predicted_ns, c.predicted_ns);
            }
          }
          const bool runs = c.verdict <= QUERN_USABLE;
          EXPECT_EQ(c.reason == QUERN_REASON_NONE, runs) << c.kernel;
          EXPECT_EQ(c.field == nullptr, runs) << c.kernel;
          EXPECT_EQ(c.verdict == QUERN_UNAVAILABLE, c.reason == QUERN_REASON_ISA) << c.kernel;
          EXPECT_GT(c.error_bound, 0);
          EXPECT_GT(c.accuracy, 0);
          EXPECT_NE(c.predictor, nullptr);
          EXPECT_EQ(c.measured_by, nullptr);
          EXPECT_GT(explained(c).size(), 3u);
          if (!runs) {
            EXPECT_EQ(c.predicted_ns, 0);
          } else if (p.src.size[0] > 0) {
            EXPECT_GT(c.predicted_ns, 0);
            EXPECT_GT(c.flops, 0);
            EXPECT_GT(c.bytes, 0);
            EXPECT_GT(c.floor_percent, 0);
            EXPECT_LE(c.floor_percent, 101) << c.kernel << ": faster than the machine";
            EXPECT_GE(c.threads, 1u);
            EXPECT_LE(c.threads, threads);
          }
        }
        EXPECT_EQ(names, registered);
        quern_plan plan = {};
        const quern_status status = quern_plan_make(&plan, nullptr, &p, &wish, nullptr);
        if (isa == 0) {
          EXPECT_EQ(status, QUERN_UNSUPPORTED);
          continue;
        }
        ASSERT_EQ(status, QUERN_OK);
        ASSERT_EQ(all[0].verdict, QUERN_CHOSEN);
        EXPECT_STREQ(plan.algorithm, all[0].algorithm);
        EXPECT_STREQ(plan.kernel, all[0].kernel);
        EXPECT_EQ(plan.workspace_bytes, all[0].workspace_bytes);
        EXPECT_EQ(plan.packed_bytes, all[0].packed_bytes);
        EXPECT_EQ(plan.predicted_ns, all[0].predicted_ns);
        EXPECT_EQ(plan.threads, all[0].threads);
        EXPECT_EQ(plan.error_bound, all[0].error_bound);
      }
}

TEST(Candidates, AnyCapacityGetsTheBest) {
  const quern_cpu cpu = cpu_of(avx512);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  for (const quern_problem& p : problems()) {
    const auto all = candidates(p, wish);
    for (size_t capacity = 1; capacity <= all.size() + 2; ++capacity) {
      std::vector<quern_candidate> some(capacity + 1);
      memset(static_cast<void*>(some.data()), 0x5a, some.size() * sizeof some[0]);
      some[0].size = sizeof some[0];
      size_t count = 0;
      ASSERT_EQ(quern_candidates(nullptr, &p, &wish, some.data(), capacity, &count, nullptr), QUERN_OK);
      EXPECT_EQ(count, all.size());
      const size_t written = std::min(capacity, count);
      for (size_t i = 0; i < written; ++i)
        EXPECT_EQ(memcmp(&some[i], &all[i], sizeof some[i]), 0) << i << " of " << capacity;
      EXPECT_EQ(some[written].size, 0x5a5a5a5au) << "written past the capacity";
    }
  }
}

TEST(Candidates, StructsOfOtherVersions) {
  const quern_cpu cpu = cpu_of(avx512);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  const quern_problem p = conv(QUERN_NHWC, 1, 64, 56, 64);
  const auto all = candidates(p, wish);
  // As short as the fields that sort, and longer than this library knows.
  for (const size_t size : {offsetof(quern_candidate, predictor), sizeof(quern_candidate) + 16}) {
    std::vector<char> bytes(size * (all.size() + 1), 0x5a);
    const uint32_t given = static_cast<uint32_t>(size);
    memcpy(bytes.data(), &given, sizeof given);
    size_t count = 0;
    quern_error error = {};
    ASSERT_EQ(quern_candidates(nullptr, &p, &wish, reinterpret_cast<quern_candidate*>(bytes.data()), all.size(), &count,
                               &error),
              QUERN_OK)
        << error.text;
    for (size_t i = 0; i < all.size(); ++i) {
      quern_candidate c = {};
      memcpy(&c, bytes.data() + i * size, std::min(size, sizeof c));
      EXPECT_EQ(c.size, given);
      EXPECT_STREQ(c.kernel, all[i].kernel);
      EXPECT_STREQ(c.algorithm, all[i].algorithm);
      EXPECT_EQ(c.verdict, all[i].verdict);
    }
    for (size_t i = size * all.size(); i < bytes.size(); ++i) EXPECT_EQ(bytes[i], 0x5a) << "written past the end";
  }
  quern_candidate out = {};
  size_t count = 77;
  quern_error error = {};
  for (const uint32_t size :
       {0u, 3u, 8u, 44u, static_cast<uint32_t>(offsetof(quern_candidate, predicted_ns)), 1u << 20}) {
    out.size = size;
    EXPECT_EQ(quern_candidates(nullptr, &p, &wish, &out, 1, &count, &error), QUERN_INVALID) << size;
    EXPECT_STREQ(error.field, "out[0].size");
    EXPECT_EQ(error.value, size);
    EXPECT_EQ(out.algorithm, nullptr);
  }
  out.size = sizeof out;
  EXPECT_EQ(quern_candidates(nullptr, &p, &wish, nullptr, 1, &count, &error), QUERN_INVALID);
  EXPECT_EQ(quern_candidates(nullptr, &p, &wish, &out, 1, nullptr, &error), QUERN_INVALID);
  EXPECT_EQ(quern_candidates(nullptr, nullptr, &wish, &out, 1, &count, &error), QUERN_INVALID);
  EXPECT_EQ(quern_candidates(reinterpret_cast<quern_device*>(&out), &p, &wish, &out, 1, &count, &error), QUERN_INVALID);
  EXPECT_EQ(count, 77u);
  EXPECT_EQ(out.algorithm, nullptr);
}

TEST(Candidates, EveryReasonIsExplained) {
  const quern_cpu cpu = cpu_of(avx2);
  const auto check = [&](quern_problem p, auto change, const char* algorithm, const char* kernel, quern_reason reason,
                         const char* field, const char* sentence) {
    quern_wish wish = wish_of();
    wish.cpu = &cpu;
    change(p, wish);
    const auto all = candidates(p, wish);
    const quern_candidate* c = find(all, algorithm, kernel);
    ASSERT_NE(c, nullptr) << algorithm << " " << kernel;
    EXPECT_EQ(c->reason, reason) << sentence;
    EXPECT_STREQ(c->field ? c->field : "", field);
    EXPECT_NE(explained(*c).find(sentence), std::string::npos) << explained(*c);
  };
  const quern_problem p = conv(QUERN_NHWC, 1, 64, 14, 64), chw = conv(QUERN_NCHW, 1, 64, 14, 64);
  const char* small = "gemm_f32_6x16_avx2";
  const auto nothing = [](quern_problem&, quern_wish&) {};
  check(p, nothing, "conv_direct", "gemm_f32_14x32_avx512", QUERN_REASON_ISA, "cpu.isa",
        "needs avx512, which this CPU lacks");
  check(quern_conv2d(QUERN_F64, QUERN_NHWC, 1, 4, 4, 4, 4, 3, 3), nothing, "conv_im2col", small, QUERN_REASON_TYPE,
        "src.type", "src.type is f64, it computes f32");
  check(chw, nothing, "conv_direct", small, QUERN_REASON_LAYOUT, "src.stride[1]", "src.stride[1] is 196, it takes 1");
  check(
      p, [](quern_problem& q, quern_wish&) { q.accuracy = QUERN_ACCURACY_EXACT; }, "conv_im2col", small,
      QUERN_REASON_ACCURACY, "accuracy", "error class is 20, the problem accepts 10");
  check(
      p, [](quern_problem&, quern_wish& w) { w.repeat = QUERN_REPEAT_REF; }, "conv_im2col", small, QUERN_REASON_REPEAT,
      "wish.repeat", "repeats to level 3, the wish demands 4");
  check(
      chw, [](quern_problem&, quern_wish& w) { w.workspace_limit = 1; }, "conv_im2col", small, QUERN_REASON_WORKSPACE,
      "wish.workspace_limit", "bytes of workspace, the wish allows 1");
  check(
      p, [](quern_problem&, quern_wish& w) { w.deny = "gemm_f32_6x16_avx2"; }, "conv_im2col", small, QUERN_REASON_WISH,
      "wish.deny", "wish.deny names it");
  check(
      p, [](quern_problem&, quern_wish& w) { w.kernel = "gemm_f32_4x24_avx2"; }, "conv_im2col", small,
      QUERN_REASON_WISH, "wish.kernel", "wish.kernel names another kernel");
  check(
      p, [](quern_problem&, quern_wish& w) { w.algorithm = "conv_direct"; }, "conv_im2col", small, QUERN_REASON_WISH,
      "wish.algorithm", "wish.algorithm names another algorithm");
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  const auto all = candidates(p, wish);
  EXPECT_NE(explained(all[0]).find("chosen"), std::string::npos);
  ASSERT_EQ(all[1].verdict, QUERN_USABLE);
  EXPECT_EQ(explained(all[1]), "usable");
  int references = 0;
  for (const quern_candidate& c : all)
    if (strcmp(c.algorithm, "reference") == 0) {
      ++references;
      EXPECT_EQ(c.backend, QUERN_BACKEND_REF);
      EXPECT_EQ(explained(c), "runs only when wish.algorithm names it");
    }
  EXPECT_EQ(references, 1);
}

TEST(Candidates, ExplainTakesAnyCapacity) {
  const quern_problem p = conv(QUERN_NHWC, 1, 64, 14, 64);
  const auto all = candidates(p, wish_of());
  const std::string whole = explained(all.back());
  quern_error error = {};
  for (size_t capacity = 0; capacity <= whole.size() + 1; ++capacity) {
    char text[300];
    memset(text, 'z', sizeof text);
    size_t length = 0;
    const quern_status status =
        quern_candidate_explain(&all.back(), capacity ? text : nullptr, capacity, &length, &error);
    EXPECT_EQ(status, capacity > whole.size() ? QUERN_OK : QUERN_BUFFER);
    EXPECT_EQ(length, whole.size());
    EXPECT_EQ(text[capacity], 'z') << "written past the capacity";
  }
  EXPECT_EQ(error.limit, static_cast<int64_t>(whole.size()) + 1);
  char text[10];
  quern_candidate c = all[0];
  EXPECT_EQ(quern_candidate_explain(nullptr, text, sizeof text, nullptr, &error), QUERN_INVALID);
  EXPECT_EQ(quern_candidate_explain(&c, nullptr, 10, nullptr, &error), QUERN_INVALID);
  c.algorithm = nullptr;
  EXPECT_EQ(quern_candidate_explain(&c, text, sizeof text, nullptr, &error), QUERN_INVALID);
  c = all[0], c.size = 0;
  EXPECT_EQ(quern_candidate_explain(&c, text, sizeof text, nullptr, &error), QUERN_INVALID);
}

// ---- Verbose, and the environment -------------------------------------------------------------------------

struct lines {
  std::vector<std::string> all;
  static void log(void* self, const char* line) { static_cast<lines*>(self)->all.push_back(line); }
};

TEST(Verbose, LinesGoToTheCaller) {
  const quern_problem p = conv(QUERN_NCHW, 1, 64, 14, 64);
  const quern_cpu cpu = cpu_of(avx512);
  for (const int32_t level : {-1, 1, 2}) {
    lines out;
    quern_wish wish = wish_of();
    wish.cpu = &cpu, wish.verbose = level, wish.log = lines::log, wish.log_self = &out;
    const quern_plan plan = plan_of(p, wish);
    const auto all = candidates(p, wish);
    const size_t refused =
        static_cast<size_t>(std::count_if(all.begin(), all.end(), [](auto& c) { return c.verdict > QUERN_USABLE; }));
    ASSERT_GT(refused, 0u);
    ASSERT_EQ(out.all.size(), level < 0 ? 0 : level == 1 ? 1 : 1 + refused);
    if (level < 0) continue;
    const std::string& last = out.all.back();
    EXPECT_EQ(last.rfind("quern: chosen: ", 0), 0u) << last;
    EXPECT_NE(last.find(text_of(plan.problem)), std::string::npos) << last;
    EXPECT_NE(last.find(plan.kernel), std::string::npos) << last;
    EXPECT_NE(last.find(plan.algorithm), std::string::npos) << last;
    for (size_t i = 0; i + 1 < out.all.size(); ++i) EXPECT_EQ(out.all[i].rfind("quern: refused: ", 0), 0u);
  }
}

// Runs `body` in a child process with the variable set, and returns what it wrote to stderr; it exits 0.
template <class Body>
std::string child(const char* variable, const char* value, Body body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], 2);
    close(ends[0]), close(ends[1]);
    unsetenv("QUERN_ISA"), unsetenv("QUERN_VERBOSE");
    if (value) setenv(variable, value, 1);
    _exit(body() ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char part[512];
  for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) text.append(part, static_cast<size_t>(n));
  close(ends[0]);
  int status = -1;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0) << variable << "=" << (value ? value : "(unset)") << ": " << text;
  return text;
}

TEST(Environment, Verbose) {
  static const quern_problem p = conv(QUERN_NCHW, 1, 64, 14, 64);
  static const quern_cpu cpu = cpu_of(avx512);
  static int32_t level;
  const auto plan = [] {
    quern_wish wish = wish_of();
    wish.verbose = level, wish.cpu = &cpu;
    quern_plan made;
    return quern_plan_make(&made, nullptr, &p, &wish, nullptr) == QUERN_OK;
  };
  const auto count = [](const std::string& s) { return std::count(s.begin(), s.end(), '\n'); };
  level = 0;
  EXPECT_EQ(child("QUERN_VERBOSE", nullptr, plan), "");
  EXPECT_EQ(child("QUERN_VERBOSE", "0", plan), "");
  EXPECT_EQ(child("QUERN_VERBOSE", "", plan), "");
  EXPECT_EQ(count(child("QUERN_VERBOSE", "1", plan)), 1);
  EXPECT_GT(count(child("QUERN_VERBOSE", "2", plan)), 2);
  level = 1;
  EXPECT_EQ(count(child("QUERN_VERBOSE", nullptr, plan)), 1);
  EXPECT_EQ(count(child("QUERN_VERBOSE", "2", plan)), 1) << "the argument goes before the environment";
  level = -1;
  EXPECT_EQ(child("QUERN_VERBOSE", "2", plan), "");
}

TEST(Environment, Isa) {
  quern_cpu whole = {};
  whole.size = sizeof whole;
  child("QUERN_ISA", nullptr, [&] { return quern_cpu_get(&whole, nullptr) == QUERN_OK; });
  const auto isa_is = [](uint64_t isa) {
    return [isa] {
      quern_cpu cpu = {};
      cpu.size = sizeof cpu;
      if (quern_cpu_get(&cpu, nullptr) != QUERN_OK) return false;
      if (cpu.isa == isa) return true;
      fprintf(stderr, "isa is %llx", static_cast<unsigned long long>(cpu.isa));
      return false;
    };
  };
  uint64_t here = 0;
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) here |= QUERN_ISA_AVX2;
  if (here && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    here |= QUERN_ISA_AVX512;
  child("QUERN_ISA", nullptr, isa_is(here));
  child("QUERN_ISA", "", isa_is(here));
  child("QUERN_ISA", "ref", isa_is(0));
  child("QUERN_ISA", "avx2", isa_is(here & QUERN_ISA_AVX2));
  child("QUERN_ISA", "avx512", isa_is(here));

  child("QUERN_ISA", "ref", [] {
    const quern_problem p = conv(QUERN_NHWC, 1, 64, 14, 64);
    const quern_wish wish = wish_of();
    quern_plan plan;
    return quern_plan_make(&plan, nullptr, &p, &wish, nullptr) == QUERN_UNSUPPORTED;
  });
  // A name that does not exist is an error, not a silent full choice; a CPU given as argument is not capped.
  for (const char* bad : {"sse2", "AVX2", "avx", "avx2 ", "0"})
    child("QUERN_ISA", bad, [bad] {
      const quern_problem p = conv(QUERN_NHWC, 1, 64, 14, 64);
      quern_wish wish = wish_of();
      quern_plan plan;
      quern_error error = {};
      if (quern_plan_make(&plan, nullptr, &p, &wish, &error) != QUERN_INVALID) return false;
      if (strcmp(error.field, "QUERN_ISA") != 0 || !strstr(error.text, bad)) return false;
      const quern_cpu cpu = cpu_of(avx512);
      wish.cpu = &cpu;
      return quern_plan_make(&plan, nullptr, &p, &wish, &error) == QUERN_OK;
    });
}

}  // namespace
}  // namespace quern
