// SPDX-License-Identifier: MIT
//
// The same bits: however often, on any number of threads in any order, alone or within a batch, with any
// tile, ISA and algorithm.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "compare.h"
#include "fuzz.h"
#include "prepared.h"
#include "shapes.h"

namespace quern::test {
namespace {

// Real threads take the tasks in a random order.
struct shuffled_pool {
  uint32_t threads;
  std::mt19937 random{1};

  static void parallel_for(void* self, size_t count, void (*task)(void*, size_t), void* arg) {
    shuffled_pool& pool = *static_cast<shuffled_pool*>(self);
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), pool.random);
    std::atomic<size_t> next{0};
    std::vector<std::thread> team;
    for (uint32_t t = 0; t < pool.threads; ++t)
      team.emplace_back([&] {
        for (size_t i; (i = next++) < count;) task(arg, order[i]);
      });
    for (std::thread& t : team) t.join();
  }
};

// This thread takes them all, the last one first.
void backwards(void*, size_t count, void (*task)(void*, size_t), void* arg) {
  while (count-- > 0) task(arg, count);
}

// Large enough for several threads to be worth using.
std::vector<quern_problem> large_problems(quern_layout layout) {
  const shape shapes[] = {
      {.c = 32, .k = 64, .image = {1, 24, 25}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}},
      {.n = 3, .c = 40, .k = 24, .groups = 3, .image = {1, 29, 17}, .filter = {1, 3, 3}, .stride = {1, 2, 1}},
      {.c = 300, .k = 200, .image = {1, 7, 9}},
      {.c = 1, .k = 1, .groups = 150, .image = {1, 30, 31}, .filter = {1, 5, 5}, .begin = {0, 2, 2}, .end = {0, 2, 2}},
      {.op = QUERN_CONV_TRANSPOSED,
       .c = 40,
       .k = 20,
       .image = {1, 20, 21},
       .filter = {1, 4, 4},
       .stride = {1, 2, 2},
       .begin = {0, 1, 1},
       .end = {0, 1, 1}},
  };
  std::vector<quern_problem> list;
  for (const shape& s : shapes) {
    quern_problem p = problem_of(s, layout, layout);
    p.epilogue.bias = 1;
    p.epilogue.activation = QUERN_SILU;
    list.push_back(completed(p));
  }
  if (layout == QUERN_NCHW) list.push_back(completed(quern_gemm(QUERN_F32, 90, 110, 1100)));
  return list;
}

operands uniform(const quern_problem& p, dice& d) {
  const numbers number = [&] { return d.uniform(-1, 1); };
  return {p, edge::back, number, number};
}

class repeat_of : public of_layout {};
INSTANTIATE_TEST_SUITE_P(repeat, repeat_of, testing::ValuesIn(all_layouts), layout_name);

TEST_P(repeat_of, any_number_of_threads_in_any_order) {
  dice d(1);
  const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  uint32_t most = 0;
  for (const quern_problem& p : large_problems(GetParam())) {
    const operands in = uniform(p, d);
    for (const quern_candidate& c : usable_candidates(p)) {
      const solution alone = solve(p, in, c.algorithm, c.kernel);
      for (uint32_t threads : {2u, 3u, cores + 7}) {
        shuffled_pool pool = {threads};
        const way how = {.threads = threads, .parallel_for = shuffled_pool::parallel_for, .self = &pool};
        const solution together = solve(p, in, c.algorithm, c.kernel, how);
        ASSERT_TRUE(agree_in_bits(p, alone, together)) << threads << " threads";
        ASSERT_LE(together.plan.threads, threads);
        most = std::max(most, together.plan.threads);
      }
      const way back = {.threads = cores + 7, .parallel_for = backwards};
      ASSERT_TRUE(agree_in_bits(p, alone, solve(p, in, c.algorithm, c.kernel, back))) << "backwards";
    }
  }
  EXPECT_GT(most, 3u) << "no plan found more than three threads worth using";
}

// A pool may bring fewer threads than the plan was made for.
TEST_P(repeat_of, fewer_threads_than_planned) {
  dice d(2);
  for (const quern_problem& p : large_problems(GetParam())) {
    const operands in = uniform(p, d);
    for (const quern_candidate& c : usable_candidates(p)) {
      const solution alone = solve(p, in, c.algorithm, c.kernel);
      const way how = {.threads = 5};  // without parallel_for
      ASSERT_TRUE(agree_in_bits(p, alone, solve(p, in, c.algorithm, c.kernel, how)));
    }
  }
}

TEST_P(repeat_of, an_image_alone_or_within_a_batch) {
  dice d(3);
  for (quern_problem p : large_problems(GetParam())) {
    p.src.size[0] = 5;
    for (quern_tensor* t : {&p.src, &p.dst}) std::fill_n(t->stride, 5, 0);
    p.dst.size[0] = 5;
    p = completed(p);
    const operands in = uniform(p, d);
    quern_problem one = p;
    one.src.size[0] = one.dst.size[0] = 1;
    for (const quern_candidate& c : usable_candidates(p)) {
      const solution batch = solve(p, in, c.algorithm, c.kernel);
      ASSERT_EQ(batch.failure, "");
      for (int64_t n : {0, 4}) {
        operands image(
            one, edge::back, [] { return 0.0f; }, [] { return 0.0f; });
        elements src(one.src.type, static_cast<size_t>(extent(one.src)), edge::back);
        std::copy_n(in.src.data() + n * p.src.stride[0], src.size(), src.data());
        image.src = std::move(src);
        image.weights = elements(p.weights.type, in.weights.size(), edge::back);
        std::copy(in.weights.begin(), in.weights.end(), image.weights.begin());
        image.bias = guarded<float>(in.bias.size(), edge::back);
        std::copy(in.bias.begin(), in.bias.end(), image.bias.begin());
        const solution alone = solve(one, image, c.algorithm, c.kernel);
        ASSERT_EQ(alone.failure, "");
        const float* within = batch.dst.data() + static_cast<size_t>(n) * alone.dst.size();
        ASSERT_EQ(memcmp(within, alone.dst.data(), alone.dst.size() * sizeof(float)), 0)
            << "image " << n << ", " << c.algorithm << " " << c.kernel << "\n"
            << text(p);
      }
    }
  }
}

// Direct, depthwise and im2col with every tile of AVX2 and AVX-512: all candidates of class F32 give the same bits, and
// those of a faster class the bits of their algorithm.  All say QUERN_REPEAT_ISA, but for what multiplies
// parts of f32 or sums across lanes.
TEST_P(repeat_of, every_candidate_gives_the_same_bits) {
  dice d(4 + static_cast<uint32_t>(GetParam()));
  std::vector<quern_problem> problems = large_problems(GetParam());
  for (int i = 0; i < 30; ++i) problems.push_back(random_problem(d));
  for (const quern_problem& p : problems) {
    const operands in = uniform(p, d);
    const std::vector<quern_candidate> list = usable_candidates(p);
    std::map<std::string, solution> first;
    for (const quern_candidate& c : list) {
      ASSERT_GE(c.repeat, QUERN_REPEAT_BATCH);
      const bool own_bits = c.accuracy > QUERN_ACCURACY_F32 || c.repeat < QUERN_REPEAT_ISA;
      const solution got = solve(p, in, c.algorithm, c.kernel);
      const auto [same, added] = first.try_emplace(own_bits ? c.algorithm : "", got);
      ASSERT_TRUE(agree_in_bits(p, same->second, got))
          << same->second.plan.algorithm << " " << same->second.plan.kernel << " differs";
    }
  }
}

// On a core whose caches are small and slow, images come in bands, and some of them in pieces of lines.
TEST_P(repeat_of, whatever_the_caches) {
  dice d(6);
  quern_cpu small = {};
  small.size = sizeof small;
  ASSERT_EQ(quern_cpu_get(&small, nullptr), QUERN_OK);
  small.l1_bytes = 2 << 10, small.l2_bytes = 8 << 10, small.l3_bytes = 64 << 10;
  for (const int64_t stride : {1, 2, 3})
    for (const auto& [filter, channels] : {std::pair<int64_t, int64_t>{3, 1}, {3, 4}, {5, 1}, {7, 1}}) {
      const shape s = {.n = 2,
                       .c = channels,
                       .k = channels,
                       .groups = d.from(1, 50) / channels + 1,
                       .image = {1, d.from(7, 40), d.from(7, 70)},
                       .filter = {1, filter, filter},
                       .stride = {1, stride, stride},
                       .begin = {0, filter / 2, filter / 2},
                       .end = {0, filter / 2, filter / 2}};
      quern_problem p = problem_of(s, GetParam(), GetParam());
      p.epilogue.bias = 1;
      p.epilogue.residual = d.from(0, 1) ? QUERN_RESIDUAL_AFTER : QUERN_RESIDUAL_NONE;
      p = completed(p);
      for (const quern_candidate& c : usable_candidates(p)) {
        quern_wish wish = wish_of();
        wish.algorithm = c.algorithm, wish.kernel = c.kernel;
        const prepared usual(p, wish);
        wish.cpu = &small;
        const prepared other(p, wish);
        ASSERT_EQ(usual.run(), QUERN_OK);
        ASSERT_EQ(other.run(), QUERN_OK);
        ASSERT_EQ(usual.dst.copy(), other.dst.copy()) << c.algorithm << " " << c.kernel << "\n" << text_of(p);
      }
    }
}

TEST(repeat, a_hundred_runs) {
  dice d(5);
  const quern_problem p = large_problems(QUERN_NCHW)[0];
  const operands in = uniform(p, d);
  for (const quern_candidate& c : usable_candidates(p)) {
    const solution first = solve(p, in, c.algorithm, c.kernel);
    std::vector<char> packed_memory(first.plan.packed_bytes + QUERN_ALIGN),
        memory(first.plan.workspace_bytes + QUERN_ALIGN);
    const auto aligned = [](std::vector<char>& m) {
      return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(m.data()) + QUERN_ALIGN - 1) / QUERN_ALIGN *
                                     QUERN_ALIGN);
    };
    quern_error error = {};
    quern_args args = in.args();
    ASSERT_EQ(
        quern_pack(&first.plan, in.weights.data(), aligned(packed_memory), first.plan.packed_bytes, nullptr, &error),
        QUERN_OK)
        << error.text;
    args.weights = aligned(packed_memory);
    quern_exec exec = {};
    exec.size = sizeof exec, exec.workspace = aligned(memory), exec.workspace_bytes = first.plan.workspace_bytes;
    std::vector<float> dst(first.dst.size());
    args.dst = dst.data();
    std::vector<float> before;
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(quern_run(&first.plan, &args, &exec, &error), QUERN_OK) << error.text;
      if (i == 0) before = dst;
      ASSERT_EQ(memcmp(before.data(), dst.data(), dst.size() * sizeof(float)), 0) << "run " << i << ", " << c.kernel;
    }
  }
}

}  // namespace
}  // namespace quern::test
