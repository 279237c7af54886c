// SPDX-License-Identifier: MIT
//
// Every CUDA candidate on the GPU at hand: small integers against the reference, exactly where sums do not round; runs
// inside of a captured graph; nothing written beside or between the elements of dst.  Skipped where there is no GPU.
// Every operand has an allocation of its own and of exactly its size, for compute-sanitizer.
#include <set>

#include "fuzz.h"
#include "gpu_memory.h"
#include "prepared.h"

namespace quern::test {
namespace {

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    driver = gpu_driver::get_one();
    if (!driver) GTEST_SKIP() << "no GPU, or no driver for it";
    quern_error error = {};
    ASSERT_EQ(driver->make_context(&context, 0), 0);
    ASSERT_EQ(driver->set_context(context), 0);
    ASSERT_EQ(driver->make_stream(&stream, 1), 0);
    ASSERT_EQ(quern_cuda_open(&device, nullptr, &error), QUERN_OK) << error.text;
  }
  void TearDown() override { quern_device_close(device); }

  // As solve() of compare.h, with operands on the GPU; inside of a graph that runs twice when `graph` is set.
  solution solve_there(const quern_problem& p, const operands& in, const quern_candidate& c, bool graph) {
    solution s = {};
    quern_error error = {};
    const auto fails = [&](const std::string& why) {
      s.failure = why + ": " + c.algorithm + " " + c.kernel + "\n" + text(p);
      return s;
    };
    quern_wish wish = {};
    wish.size = sizeof wish;
    wish.algorithm = c.algorithm, wish.kernel = c.kernel, wish.src_limit = src_limit;
    if (quern_plan_make(&s.plan, device, &p, &wish, &error)) return fails(error.text);

    const auto there = [&](const auto& from) {
      return gpu_memory(*driver, from.data(), from.size() * sizeof *from.data());
    };
    const auto tensor = [&](const elements& from) { return gpu_memory(*driver, from.data(), from.bytes()); };
    const gpu_memory src = tensor(in.src), weights = tensor(in.weights), residual = tensor(in.residual),
                     scale = there(in.scale), bias = there(in.bias), slope = there(in.slope);
    quern_args args = {};
    args.size = sizeof args;
    args.src = src.get(), args.weights = weights.get(), args.residual = residual.get();
    args.scale = scale.get(), args.bias = bias.get(), args.slope = slope.get();
    guarded<char> packed(s.plan.packed_bytes, edge::back, QUERN_ALIGN);
    if (s.plan.packed_bytes) {
      if (quern_pack(&s.plan, in.weights.data(), packed.data(), packed.size(), nullptr, &error))
        return fails(error.text);
    }
    const gpu_memory blob = there(packed);
    if (s.plan.packed_bytes) args.weights = blob.get();
    std::vector<char> nans(s.plan.workspace_bytes, '\xff');
    const gpu_memory workspace = there(nans);
    const quern_type type = s.plan.problem.dst.type;
    const uint32_t untouched = elements::untouched(type);
    const elements dst(type, static_cast<size_t>(extent(s.plan.problem.dst)), edge::back);
    for (size_t i = 0; i < dst.size(); ++i) dst.set_bits(i, untouched);
    const gpu_memory output = tensor(dst);
    args.dst = output.get();
    quern_exec exec = {};
    exec.size = sizeof exec;
    exec.queue = stream, exec.workspace = workspace.get(), exec.workspace_bytes = nans.size();

    void *captured = nullptr, *ready = nullptr;
    // Global: whatever a capture forbids anywhere in the process fails.
    if (graph && driver->begin_capture(stream, 0)) return fails("no capture");
    const quern_status status = quern_run(&s.plan, &args, &exec, &error);
    if (graph && (driver->end_capture(stream, &captured) || driver->instantiate(&ready, captured, 0) ||
                  driver->launch_graph(ready, stream) || driver->launch_graph(ready, stream)))
      return fails("the capture broke");
    if (status) return fails(error.text);
    if (const int code = driver->wait(stream)) return fails("CUDA error " + std::to_string(code));
    output.copy_to(dst.data());
    each(s.plan.problem.dst, [&](size_t at) {
      s.dst.push_back(dst[at]);
      if (dst.bits(at) == untouched && type != QUERN_S8 && s.failure.empty())
        fails("it left an element of dst as it was");
      dst.set_bits(at, untouched);
    });
    for (size_t i = 0; i < dst.size(); ++i)
      if (dst.bits(i) != untouched && s.failure.empty()) fails("it wrote between the elements of dst");
    return s;
  }

  // Those that can run here; kernels of one capability alone have no PTX.
  std::vector<quern_candidate> usable(const quern_problem& p, const char* asked = nullptr) {
    std::vector<quern_candidate> list = all_candidates(p, asked, device, src_limit);
    std::erase_if(list, [](const quern_candidate& c) {
      return c.verdict > QUERN_USABLE || (getenv("CUDA_FORCE_PTX_JIT") && strstr(c.kernel, "_sm90a"));
    });
    return list;
  }

  // Every usable candidate of any class, the reference too.
  testing::AssertionResult all_agree(quern_problem p, const operands& in, bool graph) {
    if (p.src.type == QUERN_F32) p.accuracy = QUERN_ACCURACY_F32_LOOSE;
    src_limit = 4;
    const solution want = solve(p, in, "reference", nullptr);
    for (const char* asked : {static_cast<const char*>(nullptr), "reference_cuda"})
      for (const quern_candidate& c : usable(p, asked)) {
        reached.insert(c.kernel);
        if (auto same = agree_by_class(p, c, want, solve_there(p, in, c, graph)); !same) return same;
      }
    return testing::AssertionSuccess();
  }

  const gpu_driver* driver = nullptr;
  void *context = nullptr, *stream = nullptr;
  quern_device* device = nullptr;
  float src_limit = 0;  // of wishes
  std::set<std::string> reached;
};

TEST_F(Gpu, FixedShapes) {
  dice d(21);
  int which = 0;
  for (const shape& s : fixed_shapes)
    for (quern_layout src : all_layouts)
      for (quern_layout dst : all_layouts) {
        quern_problem p = problem_of(s, src, dst);
        p.weights.layout = d.of(layouts);
        set_epilogue(p, which += 7);
        p = completed(of_types(p, d.of(product_types)));
        ASSERT_TRUE(all_agree(p, small_integers(p, edge::back, d), which % 3 == 0));
      }
}

// QUERN_TEST_COUNT problems, 400 when it is not set.
TEST_F(Gpu, RandomProblems) {
  const char* given = getenv("QUERN_TEST_COUNT");
  const uint32_t first = seed(), count = given ? static_cast<uint32_t>(strtoul(given, nullptr, 10)) : 400;
  for (uint32_t i = 0; i < count; ++i) {
    dice d(first + i);
    const quern_problem drawn = random_problem(d), p = completed(of_types(drawn, d.of(product_types)));
    ASSERT_TRUE(all_agree(p, small_integers(p, edge::back, d), d.one_in(8))) << "QUERN_TEST_SEED=" << first + i;
  }
}

// Depthwise, grouped and first layers, which random problems seldom are.
TEST_F(Gpu, FewChannels) {
  const char* given = getenv("QUERN_TEST_COUNT");
  const uint32_t first = seed(), count = given ? static_cast<uint32_t>(strtoul(given, nullptr, 10)) : 400;
  for (uint32_t i = 0; i < count; ++i) {
    dice d(first + i);
    const quern_problem p = completed(of_types(random_few_channels(d), d.of(product_types)));
    ASSERT_TRUE(all_agree(p, small_integers(p, edge::back, d), d.one_in(8))) << "QUERN_TEST_SEED=" << first + i;
  }
}

TEST_F(Gpu, EightBits) {
  dice d(22);
  int which = 0;
  for (const shape& s : shapes_of_eight_bits)
    for (quern_layout src : layouts)
      for (quern_layout dst : layouts)
        for (const types& t : product_types) {
          quern_problem p = problem_of(s, src, dst);
          set_epilogue(p, which += 7);
          p = completed(of_types(p, t));
          ASSERT_TRUE(all_agree(p, small_integers(p, edge::back, d), false));
        }
}

// Operators without products; and slices and planes larger than those of random problems.
TEST_F(Gpu, Friends) {
  const char* given = getenv("QUERN_TEST_COUNT");
  const uint32_t first = seed(), count = given ? static_cast<uint32_t>(strtoul(given, nullptr, 10)) : 400;
  const auto agree_all = [&](const quern_problem& p, const operands& in, bool graph) {
    const solution want = solve(p, in, "reference", nullptr);
    for (const char* asked : {static_cast<const char*>(nullptr), "reference_cuda"})
      for (const quern_candidate& c : usable(p, asked)) {
        // A thread of the reference visits all of its slice: not of long ones.
        if (asked && sum_length(p) > 1000) continue;
        if (auto same = agree_as_friends(p, want, solve_there(p, in, c, graph)); !same) return same;
      }
    return testing::AssertionSuccess();
  };
  for (uint32_t i = 0; i < count; ++i) {
    dice d(first + i);
    const quern_problem p = of_type(random_friendly(d), d.of(gpu_types));
    ASSERT_TRUE(agree_all(p, small_integers(p, edge::back, d), d.one_in(8))) << "QUERN_TEST_SEED=" << first + i;
  }
  for (const char* line :
       {"pool_max nhwc mb2ic64ih56kh3sh2ph1", "pool_avg nchw ic24ih40kh5ph2", "pool_avg nhwc ic512ih7kh7",
        "softmax nchw 3x5000x1x2 axes=c", "softmax nhwc 4x2000x1x3 axes=c",
        "log_softmax nhwc 2x12000x1x1 axes=c act=silu", "norm nchw 2x9x60x60 axes=hw scale bias act=relu",
        "norm nhwc 2x64x30x30 axes=hw bias", "norm nhwc 2x64x30x30 axes=chw groups=8 scale bias act=silu",
        "norm nhwc 1x768x1x50 axes=c scale bias", "rms_norm nhwc 1x4096x1x20 axes=c scale",
        "reduce_sum nchw 3x70x30x30 axes=chw", "reduce_mean nhwc 2x96x28x28 axes=hw",
        "reduce_l2 nchw 2x3x100x100 axes=hw", "reorder nchw:nhwc 2x100x40x40", "reorder nc8hw8:nchw 1x50x20x33",
        "unary nhwc 2x64x40x40 act=gelu", "add nhwc:nchw 2x50x20x20:1x50x1x1 wei=nchw act=relu",
        "mul nchw 2x64x40x40:2x64x40x40 residual=after"}) {
    quern_problem p;
    quern_error error = {};
    ASSERT_EQ(quern_problem_parse(line, &p, &error), QUERN_OK) << line << ": " << error.text;
    for (const quern_type type : gpu_types) {
      const quern_problem q = completed(of_type(p, type));
      dice d(3);
      ASSERT_TRUE(agree_all(q, small_integers(q, edge::back, d), false)) << line;
    }
  }
}

// Random numbers and every activation: the bits of the CPU's kernels, or close to them.
TEST_F(Gpu, BitsOfTheCpu) {
  if (!can_run(QUERN_ISA_AVX2)) GTEST_SKIP() << "no kernel of this CPU to compare with";
  for (const quern_layout layout : layouts)
    for (int32_t activation = QUERN_IDENTITY; activation <= QUERN_GELU_SIGMOID; ++activation) {
      quern_problem p = conv(layout, 3, 36, 23, 150);
      p.epilogue.scale = p.epilogue.bias = 1;
      p.epilogue.residual = activation % 3;
      p.epilogue.activation = activation;
      if (activation == QUERN_CLAMP || activation == QUERN_LEAKY_RELU) p.epilogue.activation_alpha = 0.1f;
      if (activation == QUERN_CLAMP) p.epilogue.activation_beta = 0.7f;
      p = completed(p);
      dice d(static_cast<uint32_t>(activation));
      const operands in(
          p, edge::back, [&] { return d.uniform(-2, 2); }, [&] { return d.uniform(-1, 1); });
      const solution want = solve(p, in, "conv_im2col", nullptr);
      for (const quern_candidate& c : usable(p)) {
        const solution got = solve_there(p, in, c, false);
        ASSERT_TRUE(c.repeat >= QUERN_REPEAT_ISA ? agree_in_bits(p, want, got) : agree_closely(p, want, got));
      }
    }
}

// In the L2 norm.
double relative_error(const solution& got, const solution& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.dst.size(); ++i) {
    const double is = static_cast<double>(got.dst[i]), must = static_cast<double>(want.dst[i]);
    error += (is - must) * (is - must), norm += must * must;
  }
  return std::sqrt(error / norm);
}

// Relative errors: whatever states class F32 is no worse than a chain of multiply-adds, which conv_implicit is.
TEST_F(Gpu, ErrorsOfClassF32) {
  const struct {
    int64_t channels, groups;
  } cases[] = {{8, 1}, {64, 1}, {256, 1}, {512, 1}, {64, 8}, {64, 4}};
  for (const auto& [channels, groups] : cases)
    for (const int64_t filter : {1, 3}) {
      quern_problem p = conv(QUERN_NHWC, 1, channels, 12, 64, filter);
      p.groups = groups, p.weights.size[1] = channels / groups;
      p.accuracy = QUERN_ACCURACY_F32;
      p = completed(p);
      dice d(static_cast<uint32_t>(channels + groups - 1 + filter));
      std::normal_distribution<float> normal;
      const operands in(
          p, edge::back, [&] { return normal(d.engine()); }, [] { return 0.0f; });
      const solution want = solve(p, in, "reference", nullptr);
      double chain = 0;
      std::vector<quern_candidate> all = usable(p);
      std::stable_partition(all.begin(), all.end(),
                            [](const auto& c) { return strcmp(c.algorithm, "conv_implicit") == 0; });
      for (const quern_candidate& c : all) {
        if (c.accuracy > QUERN_ACCURACY_F32) continue;
        const solution got = solve_there(p, in, c, false);
        ASSERT_EQ(got.failure, "");
        const double error = relative_error(got, want);
        if (chain == 0) chain = error;
        printf("%4d products: %.2e %s\n", static_cast<int>(sum_length(p)), error, c.kernel);
        EXPECT_LE(error, 1.3 * chain) << c.kernel << "\n" << text(p);
      }
    }
}

// What class F32_LOOSE says of a limit, and how much better they are: inputs far below it lose digits.
TEST_F(Gpu, ErrorsOfLimitedInputs) {
  for (const int64_t channels : {64, 256, 512})
    for (const float below : {1.0f, 0x1p-12f}) {
      quern_problem p = conv(QUERN_NHWC, 1, channels, 12, 64);
      p.accuracy = QUERN_ACCURACY_F32_LOOSE;
      p = completed(p);
      dice d(static_cast<uint32_t>(channels));
      std::normal_distribution<float> normal;
      const operands in(
          p, edge::back, [&] { return normal(d.engine()); }, [] { return 0.0f; });
      src_limit = 8 / below;
      const solution want = solve(p, in, "reference", nullptr);
      for (const quern_candidate& c : usable(p)) {
        if (c.accuracy != QUERN_ACCURACY_F32_LOOSE) continue;
        const solution got = solve_there(p, in, c, false);
        ASSERT_EQ(got.failure, "");
        const double error = relative_error(got, want);
        printf("%4d products: %.2e %s\n", static_cast<int>(sum_length(p)), error, c.kernel);
        EXPECT_LE(error, 1e-6) << c.kernel << "\n" << text(p);
      }
    }
}

// What class F16 says of e4m3, and the bound of each output.
TEST_F(Gpu, ErrorsOfE4m3) {
  for (const int64_t channels : {64, 256, 512}) {
    quern_problem p = conv(QUERN_NHWC, 1, channels, 12, 64);
    p = completed(of_types(p, {QUERN_E4M3, QUERN_F32}));
    dice d(static_cast<uint32_t>(channels));
    std::normal_distribution<float> normal;
    const operands in(
        p, edge::back, [&] { return normal(d.engine()); }, [] { return 0.0f; });
    const solution want = solve(p, in, "reference", nullptr);
    for (const quern_candidate& c : usable(p)) {
      const solution got = solve_there(p, in, c, false);
      ASSERT_EQ(got.failure, "");
      const double error = relative_error(got, want);
      printf("%4d products: %.2e %s\n", static_cast<int>(sum_length(p)), error, c.kernel);
      EXPECT_LE(error, 0x1p-11) << c.kernel << "\n" << text(p);
    }
  }
}

// Layers one after the other, each the next one's input: to whatever degree they overlap, bits are the same.
TEST_F(Gpu, ChainsOfLayers) {
  const quern_problem p = completed(of_type(conv(QUERN_NHWC, 8, 64, 40, 64), QUERN_F16));
  dice d(9);
  const operands in(
      p, edge::back, [&] { return d.uniform(-0.07f, 0.07f); }, [] { return 0.0f; });
  const gpu_memory weights(*driver, in.weights.data(), in.weights.bytes());
  for (const quern_candidate& c : usable(p)) {
    std::vector<char> want;
    for (int32_t overlap = QUERN_OVERLAP_NONE; overlap >= QUERN_OVERLAP_START; --overlap) {
      quern_error error = {};
      quern_wish wish = {};
      wish.size = sizeof wish;
      wish.algorithm = c.algorithm, wish.kernel = c.kernel, wish.overlap = overlap;
      quern_plan plan;
      ASSERT_EQ(quern_plan_make(&plan, device, &p, &wish, &error), QUERN_OK) << error.text;
      guarded<char> packed(plan.packed_bytes, edge::back, QUERN_ALIGN);
      if (plan.packed_bytes) {
        ASSERT_EQ(quern_pack(&plan, in.weights.data(), packed.data(), packed.size(), nullptr, &error), QUERN_OK);
      }
      const gpu_memory blob(*driver, packed.data(), packed.size());
      const std::vector<char> nothing(plan.workspace_bytes);
      const gpu_memory workspace(*driver, nothing.data(), nothing.size());
      const gpu_memory image[] = {{*driver, in.src.data(), in.src.bytes()}, {*driver, in.src.data(), in.src.bytes()}};
      quern_exec exec = {};
      exec.size = sizeof exec;
      exec.queue = stream, exec.workspace = workspace.get(), exec.workspace_bytes = nothing.size();
      for (int layer = 0; layer < 40; ++layer) {
        quern_args args = {};
        args.size = sizeof args;
        args.src = image[layer % 2].get(), args.dst = image[1 - layer % 2].get();
        args.weights = plan.packed_bytes ? blob.get() : weights.get();
        ASSERT_EQ(quern_run(&plan, &args, &exec, &error), QUERN_OK) << error.text;
      }
      ASSERT_EQ(driver->wait(stream), 0);
      std::vector<char> got(in.src.bytes());
      image[0].copy_to(got.data());
      if (want.empty()) want = got;
      EXPECT_TRUE(got == want) << c.kernel << ", overlap " << overlap;
    }
  }
}

// Planning and running make the context current themselves.
TEST_F(Gpu, NoContextIsCurrentWhileItRuns) {
  dice d(5);
  const quern_problem p = completed(problem_of(fixed_shapes[0], QUERN_NHWC, QUERN_NHWC));
  const operands in = small_integers(p, edge::back, d);
  quern_wish wish = {};
  wish.size = sizeof wish;
  wish.algorithm = "reference_cuda";
  quern_plan plan;
  const gpu_memory src(*driver, in.src.data(), in.src.size() * 4),
      weights(*driver, in.weights.data(), in.weights.size() * 4);
  std::vector<float> dst(static_cast<size_t>(extent(p.dst)));
  const gpu_memory output(*driver, dst.data(), dst.size() * 4);
  ASSERT_EQ(driver->set_context(nullptr), 0);
  quern_error error = {};
  ASSERT_EQ(quern_plan_make(&plan, device, &p, &wish, &error), QUERN_OK) << error.text;
  quern_args args = {};
  args.size = sizeof args;
  args.src = src.get(), args.weights = weights.get(), args.dst = output.get();
  quern_exec exec = {};
  exec.size = sizeof exec;
  exec.queue = stream;
  ASSERT_EQ(quern_run(&plan, &args, &exec, &error), QUERN_OK) << error.text;
  ASSERT_EQ(driver->set_context(context), 0);
  ASSERT_EQ(driver->wait(stream), 0);
  output.copy_to(dst.data());
  const solution want = solve(p, in, "reference", nullptr);
  size_t i = 0;
  each(p.dst, [&](size_t at) { EXPECT_EQ(dst[at], want.dst[i++]); });
}

}  // namespace
}  // namespace quern::test
