// SPDX-License-Identifier: MIT
//
// Every candidate, why it is not chosen, and what the library says about it: to the caller, to stderr, and at
// the word of the environment.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "candidates.h"
#include "machine.h"
#include "problem_text.h"
#include "registry.h"
#include "shapes.h"

namespace quern {
namespace {

// ---- Candidates -------------------------------------------------------------------------------------------

TEST(Candidates, AFileIsOfOneKind) {
  size_t files;
  const kernel_file* const file = kernel_files(files);
  for (size_t f = 0; f < files; ++f) {
    const kernel_list& list = *file[f].list;
    ASSERT_GT(list.count, 0u);
    for (size_t k = 1; k < list.count; ++k) EXPECT_EQ(list.rows[k].kind, list.rows->kind) << list.rows[k].name;
  }
}

TEST(Candidates, OfNothing) {
  for (const uint64_t isa : {lowest_isa, vector_isas, all_isas})
    for (const quern_problem& p : test::problems_of_nothing()) {
      SCOPED_TRACE(text_of(p));
      const quern_cpu cpu = cpu_of(isa);
      quern_wish wish = wish_of(1);
      wish.cpu = &cpu;
      EXPECT_EQ(candidates(p, wish).at(0).verdict, QUERN_CHOSEN);
    }
}

// Sizes that no memory has, but which the validator lets through: blocks and costs are to survive them.
TEST(Candidates, OfHostileSizes) {
  std::vector<quern_problem> list;
  // A row of the image times rows of outputs is 2^64.
  quern_problem p = quern_conv2d(QUERN_F32, QUERN_NHWC, 1, 2048, 1, 1 << 20, 1024, 1, 1);
  p.window.stride[2] = 1 << 20, p.window.pad_begin[1] = 1 << 30, p.window.pad_end[1] = (1 << 30) - 1;
  list.push_back(p);
  // Weights that Winograd's transform makes more than 2^63 bytes of.
  p = quern_conv2d(QUERN_F32, QUERN_NHWC, 1, (INT64_C(1) << 54) / 9, 1, 1, 1, 3, 3);
  p.window.stride[1] = p.window.stride[2] = 2;
  for (int i = 1; i < 3; ++i) p.window.pad_begin[i] = p.window.pad_end[i] = 1;
  list.push_back(p);
  // Groups of nothing, more than images have pixels.
  p = quern_conv2d(QUERN_F32, QUERN_NHWC, INT64_C(1) << 40, 0, 1, 1, 0, 3, 3);
  for (int i = 1; i < 3; ++i) p.window.pad_begin[i] = p.window.pad_end[i] = 1;
  p.groups = 1 << 30;
  list.push_back(p);
  // A line of channels without a pixel.
  p = quern_conv2d(QUERN_F32, QUERN_NHWC, 1, 1, 1, 1, 1, 1, 1);
  p.src.size[3] = INT64_C(1) << 53, p.src.size[4] = 0;
  list.push_back(p);
  for (quern_problem& each : list) {
    quern_error error = {};
    ASSERT_EQ(quern_problem_complete(&each, &each, &error), QUERN_OK) << error.text;
    for (const uint64_t isa : {lowest_isa, vector_isas, all_isas}) {
      SCOPED_TRACE(text_of(each));
      const quern_cpu cpu = cpu_of(isa);
      quern_wish wish = wish_of(1);
      wish.cpu = &cpu;
      EXPECT_EQ(candidates(each, wish).at(0).verdict, QUERN_CHOSEN);
      quern_plan plan;
      EXPECT_EQ(quern_plan_make(&plan, nullptr, &each, &wish, &error), QUERN_OK) << error.text;
    }
  }
}

TEST(Candidates, EveryPairOnceChosenFirst) {
  for (const uint64_t isa : {uint64_t{0}, lowest_isa, vector_isas, all_isas})
    for (const uint32_t threads : {1u, 4u})
      for (const quern_problem& p : problems()) {
        SCOPED_TRACE(text_of(p));
        const quern_cpu cpu = cpu_of(isa);
        quern_wish wish = wish_of(threads);
        wish.cpu = &cpu;
        const auto all = candidates(p, wish);
        std::set<std::string> names, registered;
        for (size_t i = 0; i < algorithm_count(); ++i)
          for (size_t k = 0; k < kernel_count(); ++k) {
            const algorithm& a = algorithm_at(i);
            const kernel& row = kernel_at(k);
            if (row.image) continue;  // a GPU's are not asked for
            if (row.kind == a.drives && solves(a, p.op) && serves(row, a, p.op))
              registered.insert(std::string(a.name) + " " + row.name);
          }
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
            // Only algorithms of a faster class leave multiplications out.
            if (c.accuracy <= QUERN_ACCURACY_F32) {
              EXPECT_LE(c.floor_percent, 101) << c.kernel << ": faster than the machine";
            }
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
  const quern_cpu cpu = cpu_of(all_isas);
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

// A refusal names the caller's own field and says its value, though a filter along d alone is solved as one along h.
TEST(Candidates, RefusalsSayTheFieldsValue) {
  int checked = 0;
  for (const char* line : {"ic64id16ih14oc64kd5kh1kw1pd2", "ic64id16ih14oc64kd3kh1kw1sd2", "ic3id9ih40oc64kd7kh1kw1sd2",
                           "g32ic256id16ih14oc256kd3kh1kw1pd1dd1", "g64ic64id16ih14oc64kd5kh1kw1pd2",
                           "g64ic64id16ih14oc64kd9kh1kw1pd4sd3", "ic64ih14oc64kh5ph2sh2", "ic8ih20iw9oc8kh5kw1ph2"})
    for (const char* op : {"conv", "conv_transposed"})
      for (const char* layout : {"nhwc", "nchw", "nchw:nhwc"}) {
        const std::string text = std::string(op) + " " + layout + " " + line;
        SCOPED_TRACE(text);
        quern_problem p;
        quern_error error = {};
        ASSERT_EQ(quern_problem_parse(text.c_str(), &p, &error), QUERN_OK) << error.text;
        ASSERT_EQ(quern_problem_complete(&p, &p, &error), QUERN_OK) << error.text;
        const quern_cpu cpu = cpu_of(all_isas);
        quern_wish wish = wish_of();
        wish.cpu = &cpu;
        const std::pair<const char*, const int64_t*> fields[] = {{"window.filter[", p.window.filter},
                                                                 {"window.stride[", p.window.stride},
                                                                 {"window.dilation[", p.window.dilation},
                                                                 {"src.size[", p.src.size},
                                                                 {"dst.size[", p.dst.size}};
        for (const quern_candidate& c : candidates(p, wish))
          for (const auto& [name, values] : fields)
            if (const size_t length = strlen(name);
                c.field && strncmp(c.field, name, length) == 0 && strcmp(c.field + length + 1, "]") == 0) {
              EXPECT_EQ(c.value, values[c.field[length] - '0']) << c.algorithm << ": " << explained(c);
              EXPECT_NE(c.value, c.limit) << c.algorithm << ": " << explained(c);
              ++checked;
            }
      }
  EXPECT_GT(checked, 100);
}

TEST(Candidates, StructsOfOtherVersions) {
  const quern_cpu cpu = cpu_of(all_isas);
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

// Types that a CPU has no kernel of.
TEST(Candidates, TheReferenceMustBeAskedFor) {
  for (const quern_type type : {QUERN_S8, QUERN_E4M3, QUERN_F16}) {
    const quern_problem p = quern_conv2d(type, QUERN_NHWC, 1, 4, 4, 4, 4, 3, 3);
    quern_wish wish = wish_of();
    quern_plan plan;
    quern_error error = {};
    EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_UNSUPPORTED);
    EXPECT_EQ(std::string(error.text), std::string("only the reference computes conv of ") + name_of(type_words, type) +
                                           " here, and it runs when it is asked for: wish.algorithm = \"reference\"");
    wish.algorithm = "reference";
    ASSERT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_OK) << error.text;
    EXPECT_EQ(plan.accuracy, type == QUERN_S8 ? QUERN_ACCURACY_EXACT : QUERN_ACCURACY_F32);
    EXPECT_EQ(plan.error_bound == 0, type == QUERN_S8);
    EXPECT_EQ(plan.repeat, QUERN_REPEAT_REF);
  }
}

TEST(Candidates, EveryReasonIsExplained) {
  const quern_cpu cpu = cpu_of(lowest_isa);
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
  const char* small = a_gemm_kernel;
  const auto nothing = [](quern_problem&, quern_wish&) {};
  if (all_isas != lowest_isa)
    check(p, nothing, "conv_direct", "gemm_f32_14x32_avx512", QUERN_REASON_ISA, "cpu.isa",
          "needs avx512, which this CPU lacks");
  check(quern_conv2d(QUERN_F64, QUERN_NHWC, 1, 4, 4, 4, 4, 3, 3), nothing, "conv_im2col", small, QUERN_REASON_TYPE,
        "src.type", "src.type is f64, it computes f32");
  check(chw, nothing, "conv_direct", small, QUERN_REASON_LAYOUT, "src.stride[1]", "src.stride[1] is 196, it takes 1");
#if defined(__x86_64__)  // ARM has vectors of four
  check(
      p, [](quern_problem& q, quern_wish&) { q.dst.layout = QUERN_NC4HW4; }, "conv_direct", small, QUERN_REASON_LAYOUT,
      "dst.layout", "dst.layout is nc4hw4, it takes nhwc");
#endif
  check(
      chw, [](quern_problem& q, quern_wish&) { q.groups = 32, q.weights.size[1] = 2; }, "conv_depthwise",
      a_depthwise_kernel, QUERN_REASON_SHAPE, "src.size[1] / groups", "src.size[1] / groups is 2, it takes 1");
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
      p, [](quern_problem&, quern_wish& w) { w.deny = a_gemm_kernel; }, "conv_im2col", small, QUERN_REASON_WISH,
      "wish.deny", "wish.deny has it");
  check(
      p, [](quern_problem&, quern_wish& w) { w.kernel = a_depthwise_kernel; }, "conv_im2col", small, QUERN_REASON_WISH,
      "wish.kernel", "wish.kernel names another kernel");
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
  const quern_cpu cpu = cpu_of(all_isas);
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
  static const quern_cpu cpu = cpu_of(all_isas);
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

// What an earlier call was not allowed to use, a later one has: on a CPU with AMX that is asked for then.
TEST(Environment, IsaIsReadOnEveryCall) {
  const auto says = [] {
    quern_cpu cpu = {};
    cpu.size = sizeof cpu;
    if (quern_cpu_get(&cpu, nullptr) != QUERN_OK) return false;
    fprintf(stderr, "%llx and %llx withheld", static_cast<unsigned long long>(cpu.isa),
            static_cast<unsigned long long>(cpu.withheld_isa));
    return true;
  };
  const std::string whole = child("QUERN_ISA", nullptr, says);
  for (const char* first : {"ref", lowest_isa_name, "amx"})
    EXPECT_EQ(child("QUERN_ISA", first,
                    [&] {
                      quern_cpu cpu = {};
                      cpu.size = sizeof cpu;
                      if (quern_cpu_get(&cpu, nullptr) != QUERN_OK) return false;
                      unsetenv("QUERN_ISA");
                      return says();
                    }),
              whole)
        << "after " << first;
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
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) here |= QUERN_ISA_AVX2;
  if (here && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    here |= QUERN_ISA_AVX512 | (this_cpu().isa & QUERN_ISA_AMX);
#else
  here = this_cpu().isa;
#endif
  child("QUERN_ISA", nullptr, isa_is(here));
  child("QUERN_ISA", "", isa_is(here));
  child("QUERN_ISA", "ref", isa_is(0));
  child("QUERN_ISA", "avx2", isa_is(here & QUERN_ISA_AVX2));
  child("QUERN_ISA", "avx512", isa_is(here & avx512));
  child("QUERN_ISA", "amx", isa_is(here & (avx512 | amx)));
  child("QUERN_ISA", "neon", isa_is(here & neon));
  // Tiles that are capped away are no affair of the system's.
  child("QUERN_ISA", "avx512", [] {
    quern_cpu cpu = {};
    cpu.size = sizeof cpu;
    return quern_cpu_get(&cpu, nullptr) == QUERN_OK && cpu.withheld_isa == 0;
  });

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
      const quern_cpu cpu = cpu_of(all_isas);
      wish.cpu = &cpu;
      return quern_plan_make(&plan, nullptr, &p, &wish, &error) == QUERN_OK;
    });
}

}  // namespace
}  // namespace quern
