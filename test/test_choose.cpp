// SPDX-License-Identifier: MIT
//
// The choice, on CPUs that are given as values: who is chosen, and who is when the wish says otherwise.
#include <algorithm>
#include <map>
#include <set>

#include "candidates.h"
#include "fuzz.h"
#include "machine.h"
#include "registry.h"

namespace quern {
namespace {

// ---- What is chosen ---------------------------------------------------------------------------------------

struct choice {
  const char* line;
  uint64_t isa;
  const char* algorithm;
  const char* kernel;            // NULL: several are about as good
  bool of_known_caches = false;  // elsewhere another may be right
};

bool in_this_build(const char* name) {
  for (size_t i = 0; i < kernel_count(); ++i)
    if (strcmp(kernel_at(i).name, name) == 0) return true;
  return false;
}

// Where one choice is clearly right; a better cost model may move others, not these.
const choice choices[] = {
    {"nhwc mb1ic64ih56oc64oh56kh3ph1 accuracy=f32", avx2, "conv_direct", nullptr},
    {"nhwc mb1ic64ih56oc64oh56kh3ph1 accuracy=f32", avx512, "conv_direct", nullptr},
    {"nchw mb1ic64ih56oc64oh56kh3ph1 accuracy=f32", avx2, "conv_band", nullptr},
    {"nchw mb1ic64ih56oc64oh56kh3ph1 accuracy=f32", avx512, "conv_band", nullptr},
    {"nc16hw16 mb1ic64ih56oc64oh56kh3ph1 accuracy=f32", avx512, "conv_direct", nullptr},
    // A first layer, a tiny image, and one whose rows fill the tile as they lie.
    {"nchw mb1ic3ih224oc64oh224kh3ph1", avx512, "conv_planar", nullptr},
    {"nhwc mb1ic3ih224oc64oh224kh3ph1", avx512, "conv_winograd_line", nullptr},
    {"nhwc mb1ic3ih224oc64oh224kh3ph1", avx2, "conv_winograd_line", nullptr},
    {"nchw mb1ic512ih7oc2048oh7kh1", avx512, "conv_band", nullptr},
    {"nchw mb1ic144ih56oc24oh56kh1", avx512, "conv_im2col", nullptr},
    // A fully connected layer: its weights pass once for the batch.
    {"nchw mb64ic512ih7oc512kh7", avx512, "conv_im2col", nullptr},
    // Winograd, but where weights outweigh the image, with fewer products a weight; not for a few channels.
    {"nhwc mb1ic64ih56oc64oh56kh3ph1", avx2, "conv_winograd_f6x43", nullptr},
    {"nhwc mb1ic64ih56oc64oh56kh3ph1", avx512, "conv_winograd_f6x43", nullptr},
    {"nchw mb1ic64ih56oc64oh56kh3ph1", avx512, "conv_winograd_f6x43", nullptr},
    {"nhwc mb1ic256ih14oc256oh14kh3ph1", avx512, "conv_winograd_f43", nullptr},
    {"nhwc mb1ic48ih35oc64oh35kh5ph2", avx512, "conv_winograd_f4x25", nullptr},
    {"nhwc mb1ic512ih7oc512oh7kh3ph1", avx512, "conv_winograd_f23", nullptr, true},
    {"nhwc mb1ic256ih64oc256oh64kh3ph1 accuracy=f32_loose", avx512, "conv_winograd_f63", nullptr},
    {"nhwc mb1ic512ih1iw1000oc512oh1ow1000kh1kw3ph0pw1", avx512, "conv_winograd_f6x43", nullptr},
    {"nhwc mb1ic64ih4oc64oh4kh1kw1", avx512, "conv_direct", nullptr},
    // Channels that fill one tile and not the other.
    {"nhwc mb1ic64ih56oc16oh56kh3ph1 accuracy=f32", avx2, "conv_direct", "gemm_f32_6x16_avx2"},
    {"nhwc mb1ic64ih56oc24oh56kh3ph1 accuracy=f32", avx2, "conv_direct", "gemm_f32_4x24_avx2"},
    {"nhwc mb1ic64ih56oc32oh56kh3ph1 accuracy=f32", avx2, "conv_direct", "gemm_f32_6x16_avx2"},
    {"nhwc mb1ic64ih56oc16oh56kh3ph1 accuracy=f32", avx512, "conv_direct", "gemm_f32_14x32_avx512"},
    {"nhwc g32mb1ic32ih112oc32oh112kh3ph1", avx2, "conv_depthwise", "depthwise_last_f32_2x2x16_taps3s1_avx2"},
    {"nhwc g128mb1ic128ih56oc128oh28kh3sh2ph1", avx2, "conv_depthwise", "depthwise_last_f32_2x2x16_taps3s2_avx2"},
    {"nc8hw8 g128mb1ic128ih56oc128oh28kh3sh2ph1", avx2, "conv_depthwise", "depthwise_f32_7x8_taps3s2_avx2"},
    {"nhwc g32mb1ic32ih112oc32oh112kh3ph1", avx512, "conv_depthwise", "depthwise_f32_14x16_taps3s1_avx512"},
    {"nc16hw16 g96mb1ic96ih112oc96oh56kh3sh2ph1", avx512, "conv_depthwise", "depthwise_f32_14x16_taps3s2_avx512"},
    {"nc8hw8 g672mb1ic672ih14oc672oh14kh5ph2", avx2, "conv_depthwise", "depthwise_f32_7x8_taps5s1_avx2"},
    {"nchw g32mb1ic32ih112oc32oh112kh3ph1", avx2, "conv_depthwise_planar", "depthwise_planar_f32_7x8_taps3s1_avx2"},
    {"nchw g32mb1ic32ih112oc32oh112kh3ph1", avx512, "conv_depthwise_planar",
     "depthwise_planar_f32_7x16_taps3s1_avx512"},
    {"nc4hw4 g144mb1ic144ih56oc144oh28kh5sh2ph2", avx512, "conv_depthwise_planar",
     "depthwise_planar_f32_7x16_taps5s2_avx512"},
    {"nchw g3mb1ic3ih33oc3oh33kh31ph15", avx512, "conv_depthwise_planar", "depthwise_planar_f32_7x16_avx512"},
    // Few outputs: pixels across the tile, or channels.
    {"nchw mb1ic64ih128oc3oh128kh9ph4", avx512, "conv_few_planes", "few_planes_f32_3x3x48_avx512"},
    {"nchw mb1ic64ih256oc3oh256kh3ph1", avx2, "conv_few_planes", "few_planes_f32_3x2x16_taps3_avx2"},
    {"nchw mb1ic64ih256oc3oh256kh3ph1", avx512, "conv_few_planes", "few_planes_f32_3x3x48_taps3_avx512"},
    {"nchw mb1ic320ih64oc4oh64kh3ph1", avx512, "conv_few_planes", "few_planes_f32_4x2x48_taps3_avx512"},
    {"conv_transposed nhwc mb1ic256ih64oc3oh128kh4sh2ph1", avx2, "conv_dot", nullptr},
    {"conv_transposed nhwc mb1ic256ih64oc3oh128kh4sh2ph1", avx512, "conv_dot", nullptr},
    {"conv_transposed nchw mb1ic56ih128oc1kh9sh4ph4", avx512, "conv_planar", nullptr},
    {"nc16hw16 mb1ic64ih128oc4oh128kh3ph1 accuracy=f32", avx512, "conv_dot", nullptr},
    {"nhwc g32mb1ic128ih56oc128oh56kh3ph1", avx2, "conv_grouped_winograd", "grouped_winograd_f32_c4_f43_avx2"},
    {"nhwc g32mb1ic128ih56oc128oh56kh3ph1 accuracy=f32", avx2, "conv_grouped", "grouped_f32_c4_taps3_avx2"},
    {"nc8hw8 g32mb1ic256ih28oc256oh28kh3ph1", avx2, "conv_grouped_winograd", "grouped_winograd_f32_c8_f43_avx2"},
    {"nchw g32mb1ic128ih56oc128oh56kh3ph1", avx2, "conv_grouped_planes_winograd", nullptr},
    {"nhwc g32mb1ic128ih56oc128oh56kh3ph1", avx512, "conv_grouped_winograd", "grouped_winograd_f32_c4_f43_avx512"},
    {"nhwc g32mb1ic128ih56oc128oh56kh3ph1 accuracy=f32", avx512, "conv_grouped", "grouped_f32_c4_taps3_avx512"},
    {"nhwc g32mb1ic64ih56oc64oh56kh3ph1", avx2, "conv_grouped", "grouped_f32_few_taps3_avx2"},
    {"nhwc g32mb1ic64ih56oc64oh56kh3ph1", avx512, "conv_grouped", "grouped_f32_few_taps3_avx512"},
    {"nhwc g32mb1ic96ih56oc96oh28kh1sh2", avx512, "conv_grouped", "grouped_f32_few_avx512"},
    {"nchw g32mb1ic128ih56oc128oh56kh3ph1", avx512, "conv_grouped_planes_winograd", nullptr},
    {"nchw g32mb1ic256ih28oc256oh28kh3ph1", avx512, "conv_grouped_planes_winograd", nullptr},
    {"nchw g32mb1ic256ih28oc256oh28kh3ph1 accuracy=f32", avx512, "conv_grouped_planes", nullptr},
    {"nhwc g32mb1ic128ih56oc128oh28kh3sh2ph1", avx512, "conv_grouped", "grouped_f32_c4_taps3s2_avx512"},
    {"nhwc g32mb1ic256ih28oc256oh28kh3ph1", avx512, "conv_grouped_winograd", "grouped_winograd_f32_c8_f43_avx512"},
    {"nhwc g32mb1ic512ih14oc512oh14kh3ph1", avx512, "conv_grouped_winograd", "grouped_winograd_f32_c16_f43_avx512"},
    {"nc8hw8 g32mb1ic256ih28oc256oh28kh3ph1 accuracy=f32", avx512, "conv_grouped", "grouped_f32_c8_taps3_avx512"},
    {"nhwc g32mb1ic512ih14oc512oh14kh3ph1 accuracy=f32", avx512, "conv_grouped", "grouped_f32_c16_taps3_avx512"},
    {"nc16hw16 g32mb1ic512ih14oc512oh14kh3ph1 accuracy=f32", avx512, "conv_grouped", "grouped_f32_c16_taps3_avx512"},
    {"nchw g32mb1ic128ih56oc128oh28kh3sh2ph1", avx512, "conv_grouped_planes", nullptr},
    {"nc8hw8 g30mb1ic240ih28oc240oh28kh1", avx512, "conv_grouped", "grouped_f32_c8_avx512"},
    {"gemm 512x512:512x512", avx2, "gemm", nullptr},
    {"gemm 512x512:512x512", avx512, "gemm", nullptr},
    {"nhwc mb1ic64ih56oc64oh56kh3ph1", neon, "conv_winograd_f6x43", nullptr},
    {"nchw mb1ic64ih56oc64oh56kh3ph1", neon, "conv_winograd_f6x43", nullptr},
    {"nc4hw4 mb1ic64ih56oc64oh56kh3ph1", neon, "conv_winograd_f6x43", nullptr},
#if defined(__aarch64__)  // 4x8, all that 32-bit ARM has, is no faster than dot products
    {"nhwc mb1ic64ih56oc8oh55kh4ph1", neon, "conv_direct", "gemm_f32_8x8_neon"},
#endif
    {"conv_transposed nhwc mb1ic256ih64oc3oh128kh4sh2ph1", neon, "conv_dot", nullptr},
    {"nhwc g32mb1ic32ih112oc32oh112kh3ph1", neon, "conv_depthwise", nullptr},
    {"nchw g32mb1ic32ih112oc32oh112kh3ph1", neon, "conv_depthwise_planar", nullptr},
    {"nchw mb1ic64ih256oc3oh256kh3ph1", neon, "conv_few_planes", nullptr},
    {"gemm 512x512:512x512", neon, "gemm", nullptr},
};

TEST(Choose, KnownChoices) {
  const uint64_t caches[][3] = {{0, 0, 0}, {32, 256, 8 << 10}, {32, 1024, 32 << 10}, {48, 2048, 105 << 10}};
  for (const choice& c : choices)
    for (const auto& cache : caches) {
      if ((c.isa & ~all_isas) || (c.of_known_caches && !cache[2])) continue;
      quern_problem p;
      quern_error error = {};
      ASSERT_EQ(quern_problem_parse(c.line, &p, &error), QUERN_OK) << error.text;
      const quern_cpu cpu = cpu_of(c.isa, cache[0], cache[1], cache[2]);
      quern_wish wish = wish_of();
      wish.cpu = &cpu;
      const quern_plan plan = plan_of(p, wish);
      EXPECT_STREQ(plan.algorithm, c.algorithm) << c.line << ", L2 of " << cache[1] << " KiB";
      if (c.kernel && in_this_build(c.kernel)) {
        EXPECT_STREQ(plan.kernel, c.kernel) << c.line << ", L2 of " << cache[1] << " KiB";
      }
    }
}

// Where dst alone is left open, depthwise goes on as its input lies: out of blocks into pixels is slower (Zen 4).
TEST(Choose, DepthwiseInBlocksStaysInBlocks) {
  if (avx512 & ~all_isas) GTEST_SKIP() << "no kernel with vectors of 16 in this build";
  for (const char* line :
       {"nc16hw16:any g384mb1ic384ih14oc384oh14kh3ph1", "nc16hw16:any g96mb1ic96ih112oc96oh56kh3sh2ph1",
        "nc16hw16:any g672mb1ic672ih14oc672oh14kh5ph2", "nc16hw16:any g96mb1ic96ih56oc96oh56kh7ph3"}) {
    quern_problem p;
    quern_error error = {};
    ASSERT_EQ(quern_problem_parse(line, &p, &error), QUERN_OK) << error.text;
    const quern_cpu cpu = cpu_of(avx512, 32, 1024, 32 << 10);
    quern_wish wish = wish_of();
    wish.cpu = &cpu;
    EXPECT_EQ(plan_of(p, wish).problem.dst.layout, QUERN_NC16HW16) << line;
  }
}

bool is_of_problem(quern_reason reason) {
  return reason == QUERN_REASON_TYPE || reason == QUERN_REASON_LAYOUT || reason == QUERN_REASON_SHAPE ||
         reason == QUERN_REASON_EPILOGUE;
}

// A plan does not ask all candidates for their cost: it finds the same one as a query for all of them.
void expect_the_same_choice(const quern_problem& p, const quern_wish& wish, quern_plan& plan,
                            const std::vector<quern_candidate>& all) {
  quern_error error = {};
  ASSERT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_OK) << error.text;
  EXPECT_EQ(std::string(plan.algorithm) + " " + plan.kernel, std::string(all[0].algorithm) + " " + all[0].kernel);
}

// Low images under tall filters, of which most taps are on padding.
TEST(Choose, WhoIsNotAskedCouldNotWinWherePaddingIsMost) {
  for (const char* line :
       {"nhwc mb2ic11ih2iw76oc2kh7kw7ph3pw3 bias", "nchw mb1ic2ih6iw32oc96kh11kw11sh2sw2ph5pw5",
        "nhwc mb1ic49ih3iw20oc3kh9kw9ph4pw4", "nhwc mb1ic4ih5iw225oc48kh11kw11sh2sw2ph3pw10",
        "nhwc mb1ic23ih3iw248oc4kh9kw9ph4pw4", "conv_transposed nhwc mb1ic8ih3iw9oc3kh5kw5sh5sw5ph2pw2"})
    for (const uint64_t isas : {lowest_isa, vector_isas, all_isas}) {
      quern_problem p;
      ASSERT_EQ(quern_problem_parse(line, &p, nullptr), QUERN_OK) << line;
      const quern_cpu cpu = cpu_of(isas);
      quern_wish wish = wish_of();
      wish.cpu = &cpu;
      SCOPED_TRACE(line);
      quern_plan plan;
      expect_the_same_choice(p, wish, plan, candidates(p, wish));
    }
}

TEST(Choose, WhoIsNotAskedCouldNotWin) {
  using test::dice, test::shape, test::completed;
  dice d(1);
  std::set<std::string> chosen;
  for (int i = 0; i < (test::emulated ? 500 : 5000); ++i) {
    shape s = {.op = d.one_in(5) ? QUERN_CONV_TRANSPOSED : QUERN_CONV};
    const auto size = [&](int64_t most) { return d.one_in(2) ? d.from(1, most) : int64_t{1} << d.from(0, 9); };
    s.n = d.one_in(3) ? d.from(0, 9) : 1;  // without images all cost the same
    if (d.one_in(4))
      s.groups = size(300), s.c = d.one_in(2) ? 1 : d.from(1, 32), s.k = d.one_in(2) ? s.c : d.from(1, 32);
    else
      s.c = size(512), s.k = size(512);
    for (int axis = d.one_in(8) ? 0 : d.one_in(8) ? 2 : 1; axis < 3; ++axis) {
      s.filter[axis] = d.one_in(2) ? 3 : d.from(1, 7);
      s.stride[axis] = d.one_in(3) ? d.from(1, 4) : 1, s.dilation[axis] = d.one_in(6) ? d.from(1, 3) : 1;
      const int64_t reach = (s.filter[axis] - 1) * s.dilation[axis];
      s.image[axis] = std::max(size(100), reach + 1);
      s.begin[axis] = d.from(0, reach), s.end[axis] = d.from(0, reach);
      if (s.op == QUERN_CONV_TRANSPOSED) s.begin[axis] /= 2, s.end[axis] /= 2;
    }
    quern_problem p = test::problem_of(s, d.of(test::all_layouts), d.of(test::all_layouts));
    if (d.one_in(20)) p.src.layout = p.dst.layout = QUERN_ANY;
    p.accuracy = d.one_in(2) ? QUERN_ACCURACY_F32_FAST : QUERN_ACCURACY_F32;
    const uint64_t isas[] = {lowest_isa, vector_isas, all_isas};
    const quern_cpu cpu = d.one_in(2) ? cpu_of(d.of(isas)) : cpu_of(d.of(isas), 4, 64, 256);
    quern_wish wish = wish_of(d.one_in(2) ? 1 : 8);
    wish.cpu = &cpu;
    SCOPED_TRACE(text_of(completed(p)));
    quern_plan plan;
    const std::vector<quern_candidate> all = candidates(p, wish);
    expect_the_same_choice(p, wish, plan, all);
    chosen.insert(plan.algorithm);
    // What is said to be refused with any row is.
    std::map<std::string, std::set<bool>> refused;
    for (const quern_candidate& c : all)
      if (c.verdict != QUERN_UNAVAILABLE) refused[c.algorithm].insert(is_of_problem(c.reason));
    for (size_t a = 0; a < algorithm_count(); ++a) {
      if (!algorithm_at(a).refuses_alike) continue;
      EXPECT_LE(refused[algorithm_at(a).name].size(), 1u) << algorithm_at(a).name;
    }
  }
  EXPECT_GE(chosen.size(), 5u);
}

// The widest instructions that the CPU has, whatever its caches; none that it lacks.
TEST(Choose, FollowsTheIsa) {
  const uint64_t caches[][3] = {{0, 0, 0}, {32, 256, 0}, {32, 512, 16 << 10}, {48, 2048, 105 << 10}, {64, 65536, 1}};
  for (const quern_problem& p : problems())
    for (const auto& cache : caches)
      for (const uint64_t isa : {lowest_isa, vector_isas}) {
        const quern_cpu cpu = cpu_of(isa, cache[0], cache[1], cache[2]);
        quern_wish wish = wish_of();
        wish.cpu = &cpu;
        const quern_plan plan = plan_of(p, wish);
        ASSERT_NE(plan.kernel, nullptr);
        const std::string kernel = plan.kernel;
        const std::string isa_of_kernel = kernel.substr(kernel.rfind('_') + 1);
        if (isa == lowest_isa) {
          EXPECT_EQ(isa_of_kernel, lowest_isa_name) << text_of(p);
        }
        // A single pixel is too little to tell.
        if (isa == vector_isas && p.dst.size[0] != 0 && p.src.size[1] > 1) {
          EXPECT_EQ(isa_of_kernel, highest_isa_name) << text_of(p);
        }
      }
}

// What was measured of a machine moves what is predicted for it: arithmetic, caches and memory, and threads.
TEST(Choose, ConstantsOfTheMachineCount) {
  quern_problem dense, depthwise;
  quern_error error = {};
  ASSERT_EQ(quern_problem_parse("nhwc mb1ic1024ih28oc256oh28kh1", &dense, &error), QUERN_OK) << error.text;
  // Planes that stay in L1: of larger ones narrow vectors have lines of the cache again from L2.
  ASSERT_EQ(quern_problem_parse("nhwc g4096mb1ic4096ih14oc4096oh14kh3ph1", &depthwise, &error), QUERN_OK) << error.text;
  quern_cpu cpu = cpu_of(vector_isas);
  ASSERT_EQ(quern_cpu_constants(&cpu, &error), QUERN_OK) << error.text;
  const auto best = [](const quern_problem& p, const quern_cpu& on, uint32_t threads) {
    quern_wish wish = wish_of(threads);
    wish.cpu = &on;
    return candidates(p, wish).at(0);
  };
  const auto ns = [&](const quern_problem& p, double quern_cpu::*constant, double times) {
    quern_cpu other = cpu;
    other.*constant *= times;
    return best(p, other, 1).predicted_ns / best(p, cpu, 1).predicted_ns;
  };
  EXPECT_NEAR(ns(dense, &quern_cpu::flops, 0.5), 2, 0.4);
  EXPECT_NEAR(ns(depthwise, &quern_cpu::l3_rate, 0.25), 3, 1);
  EXPECT_GT(ns(dense, &quern_cpu::l2_rate, 0.1), 1.1);
  ASSERT_EQ(quern_problem_parse("nhwc mb8g4096ic4096ih14oc4096oh14kh3ph1", &depthwise, &error), QUERN_OK) << error.text;
  EXPECT_GT(ns(depthwise, &quern_cpu::memory_rate, 0.5), 1.5);
  cpu.cores = 8, cpu.fork_ns = 100;
  EXPECT_EQ(best(dense, cpu, 8).threads, 8u);
  cpu.fork_ns = 1e9;
  EXPECT_EQ(best(dense, cpu, 8).threads, 1u);
}

// Where AVX-512 goes in halves, 24 columns are three halves of a register, or four.
TEST(Choose, VectorsInHalves) {
  if ((all_isas & (avx2 | avx512)) != (avx2 | avx512)) GTEST_SKIP() << "another processor's kernels";
  quern_problem p;
  quern_error error = {};
  ASSERT_EQ(quern_problem_parse("nhwc mb1ic144ih56oc24oh56kh1", &p, &error), QUERN_OK) << error.text;
  quern_cpu cpu = cpu_of(avx2 | avx512);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  const std::string halves = "gemm_f32_8x24_avx512";
  bool built = false;  // a family of its own
  for (size_t i = 0; i < kernel_count(); ++i) built = built || kernel_at(i).name == halves;
  if (!built) GTEST_SKIP() << "a build without " << halves;
  EXPECT_NE(plan_of(p, wish).kernel, halves);
  cpu.vector_bits = 512;
  EXPECT_NE(plan_of(p, wish).kernel, halves);
  cpu.vector_bits = 256;
  EXPECT_EQ(plan_of(p, wish).kernel, halves);
}

// Taps over planes: of their vectors few outputs wait for what crosses from one line into the next.
TEST(Choose, HalvesCrossFewerLines) {
  if ((all_isas & (avx2 | avx512)) != (avx2 | avx512)) GTEST_SKIP() << "another processor's kernels";
  quern_cpu cpu = cpu_of(avx2 | avx512, 32, 1024, 32 << 10);
  quern_wish wish = wish_of();
  wish.cpu = &cpu, wish.algorithm = "conv_planar";
  for (const char* line : {"nchw mb1ic32ih256oc3oh256kh5ph2", "nchw mb1ic64ih200oc3oh200kh3ph1"})
    for (const uint32_t bits : {512u, 256u}) {
      quern_problem p;
      quern_error error = {};
      ASSERT_EQ(quern_problem_parse(line, &p, &error), QUERN_OK) << error.text;
      cpu.vector_bits = bits;
      const std::string kernel = plan_of(p, wish).kernel;
      EXPECT_EQ(kernel.find("x24") != std::string::npos, bits == 256) << line << ": " << kernel;
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
    const std::string lacks = std::string("needs ") + lowest_isa_name + ", which this CPU lacks";
    EXPECT_NE(strstr(error.text, lacks.c_str()), nullptr) << error.text;
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
  // The highest without those below it, as a VM might mask it; unknown bits of the future; known ones and those.
  const uint64_t highest = vector_isas == lowest_isa ? vector_isas : vector_isas & ~lowest_isa;
  quern_cpu cpu = cpu_of(highest);
  wish.cpu = &cpu;
  EXPECT_STREQ(strrchr(plan_of(p, wish).kernel, '_') + 1, highest_isa_name);
  cpu.isa = ~uint64_t{0} & ~all_isas;
  quern_plan plan;
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, nullptr), QUERN_UNSUPPORTED);
  cpu.isa = (~uint64_t{0} & ~all_isas) | lowest_isa;
  EXPECT_STREQ(strrchr(plan_of(p, wish).kernel, '_') + 1, lowest_isa_name);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, UINT64_MAX, uint64_t{1} << 63}) {
    cpu = {sizeof cpu, 0, all_isas, bytes, bytes, bytes, bytes};
    for (const quern_problem& q : problems()) plan_of(q, wish);
  }
}

TEST(Choose, PlanForAStrongerProcessorIsRefusedAtRun) {
  if ((this_cpu().isa & all_isas) == all_isas) GTEST_SKIP() << "this CPU has every instruction set";
  const quern_cpu cpu = cpu_of(all_isas);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  wish.algorithm = "conv_split3";  // AMX alone, which who lacks anything lacks
  prepared x(conv(QUERN_NHWC, 1, 64, 14, 64), wish);
  const std::string before = x.dst.copy();
  quern_error error = {};
  EXPECT_EQ(x.run(&error), QUERN_UNSUPPORTED);
  EXPECT_NE(strstr(error.text, "instruction set"), nullptr) << error.text;
  EXPECT_TRUE(x.dst.copy() == before);
}

// ---- Wishes -----------------------------------------------------------------------------------------------

TEST(Choose, MeetsTheWish) {
  const quern_cpu cpu = cpu_of(all_isas);
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
  const quern_cpu cpu = cpu_of(all_isas);
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

// Names and properties, allowed and denied: each list leaves what the other does not.
TEST(Choose, AllowAndDenyByNameAndProperty) {
  const quern_problem p = conv(QUERN_NHWC, 1, 64, 56, 64);
  const quern_cpu cpu = cpu_of(all_isas);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  const auto count = [&](const char* allow, const char* deny) {
    wish.allow = allow, wish.deny = deny;
    const auto all = candidates(p, wish);
    return std::count_if(all.begin(), all.end(), [](const quern_candidate& c) { return c.verdict <= QUERN_USABLE; });
  };
  const auto every = count(nullptr, nullptr);
  for (const char* word :
       {"conv_direct", "conv_im2col", a_gemm_kernel, "f32", "f32_fast", lowest_isa_name, "pads", "packs"}) {
    const auto allowed = count(word, nullptr), denied = count(nullptr, word);
    EXPECT_EQ(allowed + denied, every) << word;
    EXPECT_GT(allowed, 0) << word;
    wish.allow = word, wish.deny = nullptr;
    for (const quern_candidate& c : candidates(p, wish)) {
      if (c.verdict > QUERN_USABLE) continue;
      const std::string property = word;
      EXPECT_TRUE(property != "f32" || c.accuracy == QUERN_ACCURACY_F32);
      EXPECT_TRUE(property != "f32_fast" || c.accuracy == QUERN_ACCURACY_F32_FAST);
      EXPECT_TRUE(property != "pads" || strcmp(c.algorithm, "conv_direct") != 0);
      EXPECT_TRUE(property != "packs" || c.packed_bytes > 0);
    }
  }
  EXPECT_EQ(count("conv_direct, conv_im2col", "conv_im2col"), count("conv_direct", nullptr));
  EXPECT_EQ(count("exact", nullptr), 0);
  EXPECT_EQ(count("", nullptr), 0);
  quern_plan plan;
  quern_error error = {};
  wish.allow = "conv_direct", wish.deny = "packs,pads";
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_UNSUPPORTED);
  EXPECT_NE(strstr(error.text, "wish.deny has it"), nullptr) << error.text;
  wish.deny = nullptr, wish.allow = "conv_band, everything";
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_INVALID);
  EXPECT_STREQ(error.field, "wish.allow");
  EXPECT_NE(strstr(error.text, "'everything'"), nullptr) << error.text;
}

// A wish that nothing meets: the nearest candidate's reason, and what ruled out the others, field by field.
TEST(Choose, RefusalCountsAllReasons) {
  const quern_problem p = conv(QUERN_NCHW, 1, 64, 56, 64);
  const quern_cpu cpu = cpu_of(lowest_isa);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  wish.workspace_limit = 1, wish.deny = "conv_im2col,conv_strided";
  quern_plan plan;
  quern_error error = {};
  ASSERT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_UNSUPPORTED);
  std::map<std::string, int> reasons;
  int refused = 0;
  for (const quern_candidate& c : candidates(p, wish)) ++reasons[c.field], ++refused;
  EXPECT_NE(strstr(error.text, ("none of " + std::to_string(refused)).c_str()), nullptr) << error.text;
  for (const auto& [field, times] : reasons)
    EXPECT_NE(strstr(error.text, (field + " " + std::to_string(times)).c_str()), nullptr) << error.text;
}

TEST(Choose, NothingToDoIsPlannedForManyThreads) {
  const quern_cpu cpu = cpu_of(all_isas);
  for (const char* size : {"mb0ic1024ih4oc64oh4kh1", "mb1ic1024ih4oc0oh4kh1", "mb1ic0ih64oc64oh64kh3ph1",
                           "mb1ic1024ih4oc0oh4kh3ph1", "mb1ic64ih512oc0oh512kh3ph1"})
    for (const char* layout : {"nchw", "nhwc", "nc8hw8", "nc16hw16"})
      for (const uint32_t threads : {1u, 8u, 64u}) {
        quern_problem p;
        quern_error error = {};
        ASSERT_EQ(quern_problem_parse((std::string(layout) + " " + size).c_str(), &p, &error), QUERN_OK) << error.text;
        quern_wish wish = wish_of(threads);
        wish.cpu = &cpu;
        EXPECT_LE(plan_of(p, wish).threads, threads) << layout << " " << size;
        for (const quern_candidate& c : candidates(p, wish))
          EXPECT_TRUE(std::isfinite(c.predicted_ns)) << layout << " " << size << ": " << c.algorithm << " " << c.kernel;
      }
}

TEST(Choose, FrontOfTimeAndMemory) {
  const quern_cpu cpu = cpu_of(all_isas);
  for (const quern_problem& p : problems())
    for (const uint32_t threads : {1u, 8u}) {
      quern_wish wish = wish_of(threads);
      wish.cpu = &cpu;
      std::vector<quern_candidate> front(64);
      front[0].size = sizeof(quern_candidate);
      size_t count = 0;
      quern_error error = {};
      ASSERT_EQ(quern_front(nullptr, &p, &wish, front.data(), front.size(), &count, &error), QUERN_OK) << error.text;
      ASSERT_GT(count, 0u);
      front.resize(count);
      const auto all = candidates(p, wish);
      EXPECT_STREQ(front[0].kernel, all[0].kernel);
      EXPECT_EQ(front[0].verdict, QUERN_CHOSEN);
      for (size_t i = 1; i < count; ++i) {
        EXPECT_GE(front[i].predicted_ns, front[i - 1].predicted_ns);
        EXPECT_LT(front[i].workspace_bytes, front[i - 1].workspace_bytes);
      }
      // Nobody is as good as a member in both, and everybody is beaten by one.
      for (const quern_candidate& c : all) {
        if (c.verdict > QUERN_USABLE) continue;
        const bool beaten = std::any_of(front.begin(), front.end(), [&](const quern_candidate& f) {
          return f.predicted_ns <= c.predicted_ns && f.workspace_bytes <= c.workspace_bytes;
        });
        EXPECT_TRUE(beaten) << text_of(p) << ": " << c.algorithm << " " << c.kernel;
      }
      EXPECT_EQ(front.back().workspace_bytes, 0u) << text_of(p);
      // A limit of what a member takes is met by it.
      for (const quern_candidate& f : front) {
        wish.workspace_limit = std::max<uint64_t>(f.workspace_bytes, 1);
        EXPECT_LE(plan_of(p, wish).workspace_bytes, wish.workspace_limit);
      }
      std::vector<quern_candidate> one(1);
      one[0].size = sizeof(quern_candidate);
      wish.workspace_limit = 0;
      ASSERT_EQ(quern_front(nullptr, &p, &wish, one.data(), 1, &count, nullptr), QUERN_OK);
      EXPECT_EQ(count, front.size());
      EXPECT_STREQ(one[0].kernel, front[0].kernel);
    }
}

TEST(Choose, WorkspaceLimits) {
  const quern_cpu cpu = cpu_of(all_isas);
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
  // Room for all threads but one leaves all threads but one.
  wish.algorithm = free.algorithm, wish.kernel = free.kernel;
  wish.workspace_limit = free.workspace_bytes - 1;
  EXPECT_EQ(plan_of(p, wish).threads, free.threads - 1);
  wish.algorithm = wish.kernel = nullptr;
  // None at all: there is always one that needs none; others say how much they need.
  wish.workspace_limit = 1;
  for (const quern_problem& q : problems()) EXPECT_EQ(plan_of(q, wish).workspace_bytes, 0u);
  wish.deny = "conv_strided";
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

// Padding that nothing is computed from, and strides that leave few outputs, take no room in memory.
TEST(Choose, NoWorkspaceGrowsWithPadding) {
  quern_wish wish = wish_of(4);
  const quern_cpu cpu = cpu_of(all_isas);
  wish.cpu = &cpu;
  for (const char* line :
       {"nchw g8ic32ih8oc32oh8ow1kh3ph1pw1048576sw1048590 pad_end=0x1x0",
        "nchw g8ic32ih8oc32oh8ow1kh3ph1pw1073741824sw1073741834 pad_end=0x1x0",
        "nchw ic2ih27iw11oc64oh3ow4kh2kw3sh33sw65536ph536pw7dh999 accuracy=f32_loose pad_end=0x533x196609",
        "nhwc ic8ih30iw4oc8oh6ow2kh4kw2sh65536sw65536ph131133pw6dh39dw12 accuracy=f32_loose pad_end=0x196717x131074"}) {
    quern_problem p;
    quern_error error = {};
    ASSERT_EQ(quern_problem_parse(line, &p, &error), QUERN_OK) << error.text;
    for (const quern_candidate& c : candidates(p, wish)) {
      if (c.verdict > QUERN_USABLE) continue;
      EXPECT_LE(c.workspace_bytes / std::max(1u, c.threads), uint64_t{256} << 20)
          << c.algorithm << " " << c.kernel << ": " << line;
    }
  }
}

TEST(Choose, AccuracyAndRepeat) {
  const quern_cpu cpu = cpu_of(all_isas);
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
  const quern_cpu cpu = cpu_of(all_isas);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  quern_plan plan;
  quern_error error = {};
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_UNSUPPORTED);
  EXPECT_STREQ(error.field, "wish.algorithm") << error.text;
  EXPECT_NE(strstr(error.text, "f64"), nullptr) << error.text;
  wish.algorithm = "reference";
  EXPECT_STREQ(plan_of(p, wish).algorithm, "reference");
}

// The sentence is about the kernel that was asked for, not about a bystander.
TEST(Choose, UnsupportedNamesTheWishedKernel) {
  const quern_problem p = conv(QUERN_NCHW, 1, 64, 14, 64);
  quern_cpu cpu = cpu_of(all_isas == lowest_isa ? 0 : lowest_isa);
  quern_wish wish = wish_of();
  wish.cpu = &cpu;
  const std::string kernel = all_isas == lowest_isa ? a_gemm_kernel : "gemm_f32_8x48_avx512";
  wish.kernel = kernel.c_str();
  quern_plan plan;
  quern_error error = {};
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_UNSUPPORTED);
  EXPECT_NE(strstr(error.text, (kernel + ": needs " + highest_isa_name).c_str()), nullptr) << error.text;
  cpu.isa = lowest_isa, wish.kernel = nullptr, wish.algorithm = "conv_direct";
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_UNSUPPORTED);
  EXPECT_STREQ(error.field, "src.stride[1]") << error.text;
  EXPECT_NE(strstr(error.text, "conv_direct"), nullptr) << error.text;
}

}  // namespace
}  // namespace quern
