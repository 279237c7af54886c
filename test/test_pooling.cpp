// SPDX-License-Identifier: MIT
//
// What pooling on a CPU takes beside its results: memory, threads, and the time that is predicted; and problems that
// random ones rarely are.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "compare.h"
#include "fuzz.h"

namespace quern::test {
namespace {

quern_problem parsed(const std::string& line) {
  quern_problem p = {};
  quern_error error = {};
  EXPECT_EQ(quern_problem_parse(line.c_str(), &p, &error), QUERN_OK) << line << ": " << error.text;
  return completed(p);
}

// Every row of the driver.
void expect_agreement(const std::string& line, const way& how = {}) {
  dice d(1);
  const quern_problem p = parsed(line);
  const operands in = small_integers(p, how.side, d);
  const solution want = solve(p, in, "reference", nullptr, {.side = how.side});
  for (const quern_candidate& c : usable_candidates(p))
    EXPECT_TRUE(agree_as_friends(p, want, solve(p, in, c.algorithm, c.kernel, how))) << line;
}

// A slice before the first is nothing.
TEST(pooling, leaves_out_slices_of_padding) {
  for (const char* op : {"pool_max", "pool_avg", "pool_avg_padded"})
    for (const char* window : {"od1oh8ow8kd1kh3kw3sd2sh1sw1pd1", "od3oh8ow8kd1kh3kw3sd1sh1sw1pd1"})
      expect_agreement(std::string(op) + " nchw mb1ic1id1ih8iw8" + window + "ph1pw1");
}

double predicted(const std::string& line) {
  for (const quern_candidate& c : usable_candidates(parsed(line)))
    if (std::string(c.algorithm) == "pool") return c.predicted_ns;
  ADD_FAILURE() << line << ": pool does not take it";
  return 0;
}

// Some channels of tensors that have many more.
TEST(pooling, counts_elements_and_not_what_lies_between_them) {
  const double dense = predicted("pool_max nhwc mb2ic16ih28kh3ph1"),
               slice = predicted(
                   "pool_max nhwc mb2ic16ih28kh3ph1 src_stride=12544000x1x12544000x448000x16000 "
                   "dst_stride=12544000x1x12544000x448000x16000");
  EXPECT_LT(slice, 1.01 * dense);
}

constexpr const char* operators[] = {"pool_max", "pool_avg", "pool_avg_padded"};
constexpr const char* layouts_of_lines[] = {" nchw ", " nhwc ", " nc8hw8 "};
constexpr const char* endings[] = {"", " act=relu", " bias", " residual=after scale act=silu"};

template <class Body>
void for_all(const char* shape, const Body& body) {
  for (const char* op : operators)
    for (const char* layout : layouts_of_lines)
      for (const char* ending : endings) body(op + std::string(layout) + shape + ending);
}

// Of a machine that is the same everywhere.
quern_plan plan_of_pool(const std::string& line, uint32_t threads = 1) {
  quern_cpu cpu = {};
  cpu.size = sizeof cpu, cpu.cores = 8, cpu.isa = UINT64_MAX;
  cpu.l1_bytes = 32 << 10, cpu.l2_bytes = 1 << 20, cpu.l3_bytes = 32 << 20;
  quern_wish wish = {};
  wish.size = sizeof wish, wish.algorithm = "pool", wish.threads = threads, wish.cpu = &cpu;
  const quern_problem p = parsed(line);
  quern_plan plan = {};
  quern_error error = {};
  EXPECT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_OK) << line << ": " << error.text;
  return plan;
}

// Neither lines nor windows take memory by their length.
TEST(pooling, has_buffers_that_caches_keep) {
  for (const char* shape :
       {"ic32ih1iw500000kh1kw3sh1sw2", "ic64ih3iw100000kh3kw3ph1pw1", "ic3ih2iw1000000kh2kw9sh1sw1",
        "ic1000000ih2iw3kh2kw2sh1sw1", "ic256ih7iw1oh7ow33554433kh1kw33554431sh1sw1ph0pw33554431",
        "ic100000000ih7iw0oh7ow4kh2kw5sh1sw1ph1pw4", "ic1ih2iw1oh2ow1kh2147483648kw1ph2147483647pw0",
        "ic1ih2iw9oh2ow9kh2147483648kw3ph2147483647pw1", "ic2ih9iw2oh9ow2kh3kw2147483648ph1pw2147483647",
        "ic2ih30iw7oh30ow7kh3kw3dh1000000000dw1000000000ph1000000001pw1000000001"})
    for_all(shape, [](const std::string& line) { EXPECT_LE(plan_of_pool(line).workspace_bytes, 64u << 10) << line; });
}

TEST(pooling, parts_long_lines) {
  for (const char* shape :
       {"ic5ih1iw3000kh1kw3sh1sw2", "ic20ih3iw700kh2kw5ph1pw2", "ic1ih2iw4000kh2kw9sh1sw3pw4",
        "ic3ih2iw900kh1kw2sh1sw5", "ic40ih2iw300ow400kh2kw3sh1sw1pw51", "ic2ih1iw2000kh1kw300sh1sw1dw2pw299"})
    for_all(shape, [](const std::string& line) {
      for (const uint32_t threads : {1u, 5u})
        expect_agreement(line, {.threads = threads, .parallel_for = from_the_last, .small_caches = true});
    });
}

struct counted {
  size_t calls = 0, tasks = 0;
  static void parallel_for(void* self, size_t count, void (*task)(void*, size_t), void* arg) {
    counted& to = *static_cast<counted*>(self);
    ++to.calls, to.tasks = count;
    for (size_t i = 0; i < count; ++i) task(arg, i);
  }
};

// Every worker that a plan has memory for has an item, in one parallel_for.
TEST(pooling, promises_no_workers_that_have_nothing_to_do) {
  dice d(1);
  for (const char* line :
       {"pool_max nhwc ic8ih1iw200000kh1kw3sh1sw2", "pool_avg nchw ic1ih1iw400000kh1kw5sh1sw1pw2",
        "pool_max nc8hw8 mb2ic20ih112kh3ph1", "pool_max nhwc ic70ih2iw3000kh2kw2", "pool_max nchw ic3ih300kh3ph1",
        "pool_max nchw ic500ih14kh3ph1", "pool_max nhwc ic64ih40kh40kw1sh1sw1"}) {
    const quern_problem p = parsed(line);
    const operands in = small_integers(p, edge::back, d);
    counted seen;
    const solution got =
        solve(p, in, "pool", nullptr, {.threads = 8, .parallel_for = counted::parallel_for, .self = &seen});
    EXPECT_EQ(got.failure, "");
    EXPECT_LE(seen.calls, 1u) << line;
    EXPECT_EQ(std::max<size_t>(1, seen.tasks), got.plan.threads) << line;
    EXPECT_GT(plan_of_pool(line, 8).threads, 1u) << line;
  }
}

// An image without elements may be nowhere, and windows are on its padding.
TEST(pooling, takes_no_address_of_an_image_that_is_nowhere) {
  for (const char* op : operators)
    for (const char* layout : layouts_of_lines)
      for (const int empty : {3, 4}) {
        quern_problem p = parsed(op + std::string(layout) + "mb2ic20ih5iw5kh3kw3ph2pw2");
        p.src.size[empty] = 0, memset(p.dst.size, 0, sizeof p.dst.size);
        memset(p.src.stride, 0, sizeof p.src.stride), memset(p.dst.stride, 0, sizeof p.dst.stride);
        p = completed(p);
        quern_wish wish = {};
        wish.size = sizeof wish, wish.algorithm = "pool";
        quern_plan plan = {};
        quern_error error = {};
        ASSERT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_OK) << error.text;
        std::vector<float> dst(static_cast<size_t>(extent(p.dst)), 7);
        const guarded<char> workspace(plan.workspace_bytes, edge::back, QUERN_ALIGN);
        quern_args args = {};
        args.size = sizeof args, args.dst = dst.data();
        quern_exec exec = {};
        exec.size = sizeof exec, exec.workspace = workspace.data(), exec.workspace_bytes = plan.workspace_bytes;
        ASSERT_EQ(quern_run(&plan, &args, &exec, &error), QUERN_OK) << error.text;
        const float nothing = p.op == QUERN_POOL_MAX ? -std::numeric_limits<float>::infinity() : 0;
        each(p.dst, [&](size_t at) { EXPECT_EQ(dst[at], nothing) << text(p); });
      }
}

}  // namespace
}  // namespace quern::test
