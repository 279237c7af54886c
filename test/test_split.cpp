// SPDX-License-Identifier: MIT
//
// f32 as products of bf16: the kernels alone, the algorithms on every kind of problem, the error that they state, and
// what is not finite or too small.  Where there is no AMX, the same source on tiles in memory
// (split_emulated_avx512.cpp); where there is, on both, and one is held against the other.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "algorithm.h"
#include "conv_split.h"
#include "errors.h"
#include "fuzz.h"
#include "kernel_test.h"
#include "machine.h"
#include "shapes.h"
#include "tile_activation.h"

namespace quern {

namespace rows {
extern const kernel_list split_emulated_avx512;
}

namespace test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity(), largest = std::numeric_limits<float>::max();

std::vector<const kernel*> split_rows_here() {
  std::vector<const kernel*> list = rows_of(kind::split_f32);
  for (size_t i = 0; i < rows::split_emulated_avx512.count; ++i) list.push_back(&rows::split_emulated_avx512.rows[i]);
  std::erase_if(list, [](const kernel* row) { return missing_here(*row) != 0; });
  return list;
}

float value_of(const char* part) {
  uint16_t half;
  memcpy(&half, part, sizeof half);
  return std::bit_cast<float>(uint32_t{half} << 16);
}
// Where channel c lies in a row of 32.
size_t place_of(size_t c) { return c % 16 * 4 + c / 16 % 2 * 2; }

class split_kernels : public kernel_test {};

TEST_P(split_kernels, parts_sum_up_to_the_pixels_between_guard_pages) {
  dice d(1);
  for (const int parts : {2, 3})
    for (size_t channels = 0; channels <= 70; ++channels)
      for (const edge side : {edge::back, edge::front}) {
        const size_t pixels = static_cast<size_t>(d.from(0, 5)), blocks = (channels + 31) / 32;
        const size_t pixel = static_cast<size_t>(parts) * 64, block = pixels * pixel + 64;
        // Channels side by side, or 16 at a time.
        const bool runs = d.one_in(2);
        const size_t apart = runs ? 16 : channels + static_cast<size_t>(d.from(0, 3)), run = runs ? pixels * 16 : 16;
        const auto at = [&](size_t i, size_t c) { return i * apart + c / 16 * run + c % 16; };
        size_t extent = 0;
        for (size_t i = 0; i < pixels; ++i)
          for (size_t c = 0; c < channels; ++c) extent = std::max(extent, at(i, c) + 1);
        guarded<float> src(extent, side);
        for (float& x : src) x = std::ldexp(d.uniform(-1, 1), static_cast<int>(d.from(-40, 40)));
        src.protect();
        guarded<char> to(blocks * block, side, 64);
        memset(to.data(), 0x33, to.size());
        split_image_f32 call = {};
        call.pixels = pixels, call.channels = channels;
        call.src = src.data(), call.src_pixel = ptrdiff_t(apart), call.src_run = ptrdiff_t(run);
        call.parts = to.data(), call.pixel = pixel, call.block = block;
        row().split->image[parts - 2](call);
        for (size_t i = 0; i < pixels; ++i)
          for (size_t c = 0; c < blocks * 32; ++c) {
            const float want = c < channels ? src[at(i, c)] : 0.0f;
            double sum = 0;
            for (int p = 0; p < parts; ++p)
              sum += double(value_of(to.data() + c / 32 * block + i * pixel + size_t(p) * 64 + place_of(c)));
            if (parts == 3) {
              ASSERT_EQ(sum, double(want)) << row().name << " channel " << c << " of " << channels;
            } else {
              ASSERT_NEAR(sum, double(want), 0x1p-16 * std::fabs(double(want))) << row().name;
            }
          }
        for (size_t b = 0; b < blocks; ++b)
          for (size_t i = pixels * pixel; i < block; ++i) ASSERT_EQ(to[b * block + i], 0x33) << "written beside";
      }
}

// Random blocks: any rows, columns, steps, distances, and a block before with any epilogue; exact on small integers.
TEST_P(split_kernels, products_are_exact_on_small_integers) {
  for (uint32_t i = 0; i < 600; ++i) {
    dice d(i);
    const int parts = static_cast<int>(d.from(2, 3));
    const size_t tiles = static_cast<size_t>(d.from(1, 2)), rows = static_cast<size_t>(d.from(1, 16));
    const size_t n = static_cast<size_t>(d.from(1, 32)), halves = n > 16 ? 2 : 1;
    const size_t steps = static_cast<size_t>(d.from(0, 5)), pixel = static_cast<size_t>(parts) * 64;
    const size_t apart = pixel * static_cast<size_t>(d.from(1, 3)), second = pixel * static_cast<size_t>(d.from(0, 60));
    const size_t reach = (rows - 1) * apart + pixel, span = (tiles == 2 ? second : 0) + reach;
    const size_t step_bytes = static_cast<size_t>(parts) * 1024 * halves;
    guarded<char> a(steps ? span + 7 * 64 : 0, edge::back, 64), b(steps * step_bytes, edge::back, 64);
    const auto fill = [&](const guarded<char>& at) {
      for (size_t k = 0; k < at.size(); k += 2) {
        const uint16_t half = uint16_t(std::bit_cast<uint32_t>(d.integer(-2, 2)) >> 16);
        memcpy(at.data() + k, &half, 2);
      }
      at.protect();
    };
    fill(a), fill(b);
    std::vector<ptrdiff_t> step(steps);
    for (ptrdiff_t& s : step) s = 64 * d.from(0, 7);

    // The block before, with whatever is done to it.
    const size_t old_rows = static_cast<size_t>(d.from(1, 32)), old_n = static_cast<size_t>(d.from(1, 32));
    guarded<float> old(old_rows * 32, edge::back, 64), dst(old_rows * 40 + 64, edge::back), add(dst.size(), edge::back);
    guarded<float> bias(old_n + 3, edge::back), sums(tiles * rows * 32, edge::back, 64);
    for (const guarded<float>* m : {&old, &add, &bias})
      for (float& x : *m) x = d.integer(-8, 8);
    const std::vector<float> given(old.begin(), old.end());  // sums may be finished in place
    constexpr float canary = -77.25f;
    std::fill(dst.begin(), dst.end(), canary);
    std::fill(sums.begin(), sums.end(), canary);
    epilogue_f32 e = plain_epilogue(QUERN_RELU, 0, 0);
    e.bias = d.one_in(3) ? nullptr : bias.data();
    e.clamp_only = d.one_in(2);
    e.lower = 0, e.upper = e.clamp_only && d.one_in(2) ? 6 : infinity;
    if (!e.clamp_only && d.one_in(2)) e.residual = QUERN_RESIDUAL_BEFORE;
    std::vector<float*> to(old_rows);
    std::vector<const float*> from(old_rows);
    for (size_t r = 0; r < old_rows; ++r)
      to[r] = d.one_in(5) ? nullptr : dst.data() + r * 40, from[r] = add.data() + r * 40;
    split_output_f32 before = {};
    before.rows = old_rows, before.n = old_n, before.sums = old.data();
    before.dst = to.data(), before.residual = from.data();
    before.to = before.from = 2, before.dst_half = before.residual_half = d.one_in(2) ? 16 : 18;
    before.channel = 3, before.epilogue = &e;

    split_products_f32 call = {};
    call.tiles = tiles, call.rows = rows, call.n = n, call.steps = steps, call.step = step.data();
    call.a = a.data(), call.a_row = ptrdiff_t(apart), call.a_tile = ptrdiff_t(second);
    call.b = b.data(), call.sums = sums.data();
    const bool meanwhile = !d.one_in(4);
    call.before = meanwhile ? &before : nullptr;
    call.ahead = b.data(), call.lines = d.one_in(2) ? static_cast<size_t>(d.from(0, 120)) : 0;
    row().split->begin(rows);
    row().split->products[parts - 2](call);
    row().split->end();
    if (!meanwhile) row().split->finish(before);

    // The products that are taken: all whose parts are together at most the last.
    for (size_t r = 0; r < tiles * rows; ++r)
      for (size_t j = 0; j < (n > 16 ? 32 : 16); ++j) {
        double want = 0;
        for (size_t s = 0; s < steps; ++s)
          for (int pa = 0; pa < parts; ++pa)
            for (int pb = 0; pa + pb < parts; ++pb)
              for (size_t c = 0; c < 32; ++c)
                want += double(value_of(a.data() + step[s] + (r < rows ? 0 : second) + r % rows * apart +
                                        size_t(pa) * 64 + place_of(c))) *
                        double(value_of(b.data() + s * step_bytes + (size_t(pb) * halves + j / 16) * 1024 +
                                        c % 16 * 64 + j % 16 * 4 + c / 16 * 2));
        ASSERT_EQ(double(sums[r * 32 + j]), want) << row().name << " seed " << i << " row " << r << " column " << j;
      }
    for (size_t r = 0; r < old_rows; ++r)
      for (size_t j = 0; to[r] && j < old_n; ++j) {
        const size_t at = r * 40 + 2 + j + (j >= 16 ? size_t(before.dst_half) - 16 : 0);
        float y = given[r * 32 + j] + (e.bias ? bias[3 + j] : 0) + (e.residual ? add[at] : 0);
        y = std::min(e.upper, std::max(0.0f, y));
        ASSERT_EQ(dst[at], y) << row().name << " seed " << i << " row " << r << " column " << j;
        dst[at] = canary;
      }
    for (float x : dst) ASSERT_EQ(x, canary) << row().name << " seed " << i << " wrote beside";
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(split_kernels);
INSTANTIATE_TEST_SUITE_P(rows, split_kernels, testing::ValuesIn(split_rows_here()), name_of_row);

// The emulation is what the instruction does, bit by bit, tiny and huge numbers, NaN and infinity included.
TEST(split, tiles_in_memory_are_tiles) {
  const std::vector<const kernel*> list = split_rows_here();
  if (list.size() < 2) GTEST_SKIP() << "no AMX here";
  dice d(5);
  const auto random_parts = [&](std::vector<char>& to, int kind) {
    for (size_t k = 0; k < to.size(); k += 2) {
      float x = std::ldexp(d.uniform(-1, 1), static_cast<int>(kind == 0 ? d.from(-9, 9) : d.from(-140, 127)));
      if (kind == 2 && d.one_in(400)) x = d.one_in(2) ? infinity : std::numeric_limits<float>::quiet_NaN();
      const uint16_t half = uint16_t(std::bit_cast<uint32_t>(x) >> 16);
      memcpy(to.data() + k, &half, 2);
    }
  };
  for (int kind = 0; kind < 3; ++kind)
    for (int round = 0; round < 200; ++round) {
      alignas(64) float sums[2][32 * 32];
      std::vector<char> a(32 * 192 + 64), b(4 * 3 * 2048);
      random_parts(a, kind), random_parts(b, kind);
      const ptrdiff_t step[] = {0, 64, 0, 64};
      for (size_t i = 0; i < 2; ++i) {
        split_products_f32 call = {};
        call.tiles = 2, call.rows = 16, call.n = 32, call.steps = 4, call.step = step;
        call.a = a.data(), call.a_row = 192, call.a_tile = 16 * 192, call.b = b.data(), call.sums = sums[i];
        list[i]->split->begin(16);
        list[i]->split->products[1](call);
        list[i]->split->end();
      }
      for (size_t i = 0; i < 32 * 32; ++i)
        ASSERT_TRUE(same_bits(sums[0][i], sums[1][i]) || (sums[0][i] != sums[0][i] && sums[1][i] != sums[1][i]))
            << "kind " << kind << ": " << std::hexfloat << sums[0][i] << " and " << sums[1][i];
    }
}

// ---- The algorithms ---------------------------------------------------------------------------------------

std::vector<const algorithm*> split_algorithms(quern_op op) {
  std::vector<const algorithm*> list;
  for (size_t i = 0; i < algorithm_count(); ++i)
    if (algorithm_at(i).drives == kind::split_f32 && algorithm_at(i).op.has(op)) list.push_back(&algorithm_at(i));
  return list;
}

// Those whose sums are over products of the problem's own numbers.
std::vector<const algorithm*> plain_algorithms() {
  std::vector<const algorithm*> list = split_algorithms(QUERN_CONV);
  std::erase_if(list, [](const algorithm* a) { return a->transforms; });
  return list;
}

// As solve() of compare.h, with a row that the library's table need not have; nothing where it is refused.
solution solve_split(const quern_problem& problem, const operands& in, const algorithm& a, const kernel& row,
                     const way& how = {}) {
  const full_problem p(problem);
  solution s = {};
  if (a.refuse(p, row)) return s;
  quern_cpu cpu = {};
  cpu.isa = QUERN_ISA_AVX2 | QUERN_ISA_AVX512 | QUERN_ISA_AMX, cpu.l2_bytes = 2 << 20;
  machine m = machine_of(cpu);
  if (how.small_caches) m.l1 = 4 << 10, m.l2 = 16 << 10, m.l3 = 64 << 10;
  const blocking blocks = a.choose_blocks(p, row, m, how.threads);
  const job j = {p, row, blocks};
  const cost c = a.predict(p, row, blocks, m);
  if (!(c.ns >= 0 && c.ns < 1e18 && c.flops >= 0)) s.failure = "the prediction is no number";
  guarded<char> packed(blocks.packed_bytes, how.side, QUERN_ALIGN);
  memset(packed.data(), 0xff, packed.size());
  if (channels_of(p)) a.pack(j, 0, channels_of(p), in.weights.data(), packed.data());
  packed.protect();
  guarded<char> workspace(blocks.workspace_bytes * blocks.workers, how.side, QUERN_ALIGN);
  memset(workspace.data(), 0xff, workspace.size());
  quern_exec exec = {};
  exec.size = sizeof exec, exec.threads = how.threads, exec.parallel_for = how.parallel_for;
  const float untouched = std::bit_cast<float>(0x7fedcba9u);
  guarded<float> dst(static_cast<size_t>(extent(p.dst)), how.side);
  std::fill(dst.begin(), dst.end(), untouched);
  quern_args args = in.args();
  if (how.in_place) {
    each(p.dst, [&](size_t at) { dst[at] = in.residual[at]; });
    args.residual = dst.data();
  }
  args.dst = dst.data();
  if (!dst.size()) return s;
  a.run(j, {args, &exec, blocks.workers, workspace.data(), packed.data()});
  if (!workspace.intact()) s.failure = "it wrote behind the workspace";
  each(p.dst, [&](size_t at) {
    s.dst.push_back(dst[at]);
    if (same_bits(dst[at], untouched)) s.failure = "it left an element of dst as it was";
    dst[at] = untouched;
  });
  for (float x : dst)
    if (!same_bits(x, untouched)) s.failure = "it wrote between the elements of dst";
  s.plan.algorithm = a.name, s.plan.kernel = row.name;
  if (!s.failure.empty()) s.failure += std::string(": ") + a.name + " " + row.name + "\n" + text(p);
  return s;
}

testing::AssertionResult every_split_agrees(const quern_problem& p, const operands& in, const way& how) {
  const solution want = expected(p, in);
  for (const kernel* row : split_rows_here())
    for (const algorithm* a : split_algorithms(p.op)) {
      const solution got = solve_split(p, in, *a, *row, how);
      if (got.dst.empty() && got.failure.empty()) continue;
      const double allowed = a->transforms ? allowed_error(p, a->error_bound(full_problem(p))) : 0;  // transforms round
      if (const auto result = agree_within(p, allowed, want, got); !result) return result;
    }
  return testing::AssertionSuccess();
}

TEST(split, fixed_shapes_in_every_layout) {
  dice d(1);
  int which = 0;
  for (const shape& s : fixed_shapes)
    for (quern_layout src : all_layouts)
      for (quern_layout dst : all_layouts) {
        quern_problem p = problem_of(s, src, dst);
        p.weights.layout = d.of(layouts);
        set_epilogue(p, which += 7);
        if (p.epilogue.residual) p.residual.layout = d.of(all_layouts);
        p = completed(p);
        const way how = random_way(p, d);
        ASSERT_TRUE(every_split_agrees(p, small_integers(p, how.side, d), how));
      }
}

// Sizes around tiles, blocks and steps; every window.
TEST(split, random_windows) {
  for (uint32_t first = seed(), i = 0; i < 500; ++i) {
    dice d(first + i);
    shape s = {.op = d.one_in(5) ? QUERN_CONV_TRANSPOSED : QUERN_CONV};
    s.n = d.one_in(4) ? 2 : 1, s.groups = d.one_in(4) ? d.from(2, 3) : 1;
    static constexpr int64_t channels[] = {1, 8, 15, 16, 17, 31, 32, 33, 48, 64, 65, 80, 100};
    s.c = d.of(channels), s.k = d.of(channels);
    static constexpr struct {
      int64_t r, s;
    } filters[] = {{1, 1}, {1, 1}, {3, 3}, {3, 3}, {5, 5}, {7, 7}, {1, 3}, {3, 1}, {1, 7}, {7, 1}, {2, 2}, {4, 3}};
    const auto f = d.of(filters);
    s.filter[1] = f.r, s.filter[2] = f.s;
    for (int a = 1; a < 3; ++a) {
      s.image[a] = d.one_in(4) ? d.from(1, 40) : d.from(1, 18);
      s.stride[a] = d.one_in(2) ? 1 : d.from(1, 3), s.dilation[a] = d.one_in(4) ? d.from(2, 4) : 1;
      const int64_t reach = (s.filter[a] - 1) * s.dilation[a];
      s.begin[a] = d.from(0, reach), s.end[a] = d.from(0, reach);
    }
    if (d.one_in(6)) s.image[0] = d.from(1, 3), s.filter[0] = d.from(1, 2), s.begin[0] = d.from(0, 1);
    quern_problem p = problem_of(s, d.of(all_layouts), d.of(all_layouts));
    set_epilogue(p, static_cast<int>(d.from(0, 419)));
    if (p.epilogue.residual && d.one_in(2)) p.residual.layout = d.of(all_layouts);
    if (quern_problem_complete(&p, &p, nullptr) != QUERN_OK || direct_flops(p) > 4e6) continue;
    random_strides(p, d);
    if (quern_problem_complete(&p, &p, nullptr) != QUERN_OK) continue;
    const way how = random_way(p, d);
    ASSERT_TRUE(every_split_agrees(p, small_integers(p, how.side, d), how)) << "QUERN_TEST_SEED=" << first + i;
  }
}

// Tiles that are not full, one to four tiles of weights and several times four, tails of channels, shares of threads.
TEST(split, lines_of_pixels) {
  dice d(3);
  for (const quern_layout layout : {QUERN_NHWC, QUERN_NC16HW16})
    for (const int64_t k : {1, 16, 17, 32, 48, 64, 65, 80, 112, 144, 208})
      for (const int64_t c : {8, 32, 33, 100, 160})
        for (const int64_t rows : {1, 3, 33}) {
          const int64_t columns = d.from(1, 33);
          quern_problem p =
              problem_of({.n = 2, .c = c, .k = k, .image = {1, rows, columns}, .filter = {1, 1, 1}}, layout, layout);
          set_epilogue(p, static_cast<int>(d.from(0, 419)));
          p = completed(p);
          way how;
          how.threads = d.one_in(2) ? 1 : 4, how.parallel_for = from_the_last;
          ASSERT_TRUE(every_split_agrees(p, small_integers(p, edge::back, d), how));
          p.epilogue.residual = false;
          const full_problem full(p);
          for (const algorithm* a : plain_algorithms())
            ASSERT_TRUE(a->choose_blocks(full, *split_rows_here()[0], machine_of(quern_cpu{.l2_bytes = 2 << 20}), 1)
                            .word[split_driver::line]);
        }
}

TEST(split, fuzz) {
  for (uint32_t first = seed(), i = 0; i < 1500; ++i) {
    dice d(first + i);
    const quern_problem p = random_problem(d);
    const way how = random_way(p, d);
    ASSERT_TRUE(every_split_agrees(p, small_integers(p, how.side, d), how)) << "QUERN_TEST_SEED=" << first + i;
  }
}

TEST(split, nothing_to_sum_is_zero_and_the_epilogue_runs) {
  dice d(7);
  for (quern_layout layout : all_layouts)
    for (int which : {0, 1, 3, 7, 10, 11}) {
      quern_problem p =
          problem_of({.c = 0, .k = 40, .image = {1, 4, 5}, .filter = {1, 3, 3}, .end = {0, 2, 2}}, layout, layout);
      set_epilogue(p, which);
      p = completed(p);
      ASSERT_TRUE(every_split_agrees(p, small_integers(p, edge::back, d), {}));
    }
}

// Packed channel by channel, in any order, the blob is the same.
TEST(split, packing_in_parts) {
  dice d(8);
  for (const kernel* row : split_rows_here())
    for (const shape& s : fixed_shapes)
      for (const algorithm* a : split_algorithms(s.op)) {
        const full_problem p(completed(problem_of(s, QUERN_NCHW, QUERN_NCHW)));
        if (a->refuse(p, *row)) continue;
        const operands in = small_integers(p, edge::back, d);
        const blocking b = a->choose_blocks(p, *row, machine_of(quern_cpu{}), 1);
        std::string whole(b.packed_bytes, '\x11'), parts(b.packed_bytes, '\xee');
        a->pack({p, *row, b}, 0, channels_of(p), in.weights.data(), whole.data());
        const geometry& g = geometry_of(p);
        for (int64_t k = channels_of(p) - 1; k >= 0; --k)
          a->pack({p, *row, b}, k, 1, in.weights.data() + k / g.k * g.weights_group + k % g.k * g.weights[0],
                  parts.data());
        ASSERT_EQ(whole, parts) << a->name << "\n" << text(p);
      }
}

// ---- Errors -----------------------------------------------------------------------------------------------

TEST(split, errors_stay_within_the_stated_bound_and_the_class) {
  dice d(2);
  int sign = 1;
  const struct {
    const char* name;
    bool cancels;
    numbers next;
  } data[] = {
      {"uniform", false, [&] { return d.uniform(-1, 1); }},
      {"positive", false, [&] { return d.uniform(0.5f, 1); }},
      {"just above a power of two", false, [&] { return 1 + 0x1p-7f * (1 - 0x1p-9f) + 0x1p-23f * d.integer(0, 9); }},
      {"wide", true, [&] { return std::ldexp(d.uniform(-1, 1), static_cast<int>(d.from(-12, 12))); }},
      {"cancelling", true, [&] { return static_cast<float>(sign = -sign) * (1000 + d.uniform(0, 1e-3f)); }},
  };
  const shape shapes[] = {
      {.c = 1, .k = 33, .image = {1, 5, 7}},
      {.c = 64, .k = 40, .image = {1, 9, 9}},
      {.c = 33, .k = 17, .image = {1, 7, 9}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}},
      {.c = 600, .k = 20, .image = {1, 4, 4}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}},
  };
  for (const shape& s : shapes)
    for (const auto& kind : data) {
      quern_problem p = problem_of(s, QUERN_NHWC, QUERN_NHWC);
      p.accuracy = QUERN_ACCURACY_F32_LOOSE;
      p = completed(p);
      const operands in(p, edge::back, kind.next, kind.next);
      const std::vector<double> want = in_double(p, in, false), size = in_double(p, in, true);
      const solution direct = solve(p, in, "conv_direct", nullptr);
      double chain = 0, square = 0;
      for (size_t i = 0; i < want.size(); ++i)
        chain += std::pow(double(direct.dst[i]) - want[i], 2), square += want[i] * want[i];
      for (const kernel* row : split_rows_here())
        for (const algorithm* a : split_algorithms(QUERN_CONV)) {
          const solution got = solve_split(p, in, *a, *row);
          ASSERT_EQ(got.failure, "");
          if (got.dst.empty()) continue;
          double sum = 0;
          const double bound = a->error_bound(full_problem(p));
          for (size_t i = 0; i < want.size(); ++i) {
            const double error = std::fabs(double(got.dst[i]) - want[i]);
            ASSERT_LE(error, bound * size[i]) << kind.name << ", " << a->name << ", " << place(p, i) << "\n" << text(p);
            sum += error * error;
          }
          // As good as a chain of multiply-adds, which for few channels is hardly any.
          if (kind.cancels) continue;
          if (a->accuracy == QUERN_ACCURACY_F32) {
            EXPECT_LE(std::sqrt(sum / square), std::max(1.5 * std::sqrt(chain / square), 2e-7)) << kind.name << text(p);
          } else {
            EXPECT_LE(std::sqrt(sum / square), 1e-5) << kind.name << text(p);
          }
          // The bounds are no empty phrases.
          if (!a->transforms) {
            EXPECT_LE(bound, 2 * direct.plan.error_bound + (a->accuracy == QUERN_ACCURACY_F32 ? 0x1p-19 : 1e-4));
          }
        }
    }
}

// F32_FAST: at most four times the error of a chain of multiply-adds on the same data.
TEST(split, winograd_forms_keep_to_their_class) {
  dice d(3);
  for (const int64_t c : {8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512})
    for (const bool line : {false, true})
      for (const bool positive : {false, true}) {
        quern_problem p = problem_of({.c = c, .k = 5, .image = {1, line ? 2 : 14, 20}, .filter = {1, line ? 1 : 3, 3}},
                                     QUERN_NHWC, QUERN_NHWC);
        p = completed(p);
        bool pixels = true;
        size_t left = size_t(extent(p.src));
        const operands in(
            p, edge::back,
            [&] {
              const float x = d.uniform(pixels && positive ? 0 : -1, 1);
              if (--left == 0) pixels = false;
              return x;
            },
            [] { return 0.0f; });
        const std::vector<double> want = in_double(p, in, false);
        const auto error_of = [&](const solution& s) {
          double above = 0, below = 0;
          for (size_t i = 0; i < want.size(); ++i)
            above += std::pow(double(s.dst[i]) - want[i], 2), below += want[i] * want[i];
          return std::sqrt(above / below);
        };
        const double chain = error_of(solve(p, in, "conv_direct", nullptr));
        for (const kernel* row : split_rows_here())
          for (const algorithm* a : split_algorithms(QUERN_CONV)) {
            if (!a->transforms) continue;
            const solution got = solve_split(p, in, *a, *row);
            ASSERT_EQ(got.failure, "");
            if (got.dst.empty()) continue;
            EXPECT_LE(error_of(got), 4 * chain) << a->name << ", c " << c << (line ? ", line" : ", square");
          }
      }
}

// ---- What is not finite, and what is tiny -----------------------------------------------------------------

// One output from 33 channels: x in the first meets w, ones the others.
float one_output(const algorithm& a, const kernel& row, float x, float w, float others) {
  quern_problem p = problem_of({.c = 33, .k = 1}, QUERN_NHWC, QUERN_NHWC);
  p = completed(p);
  bool src = true;
  int64_t at = 0;
  const operands in(
      p, edge::back,
      [&] {
        const float value = at == 0 ? (src ? x : w) : src ? others : 1;
        if (++at == 33) at = 0, src = false;
        return value;
      },
      [] { return 0.0f; });
  const solution s = solve_split(p, in, a, row);
  EXPECT_EQ(s.failure, "");
  return s.dst[0];
}

TEST(split, special_values_are_as_the_header_says) {
  for (const kernel* row : split_rows_here())
    for (const algorithm* a : plain_algorithms()) {
      const bool six = a->accuracy == QUERN_ACCURACY_F32;
      const auto output = [&](float x, float w, float others = 0) { return one_output(*a, *row, x, w, others); };
      // Never a finite number where there is none.
      for (const float x : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(),
                            std::bit_cast<float>(0x7f800001), std::bit_cast<float>(0xffffffff)})
        for (const float w : {1.0f, -0.3f, 1e30f}) {
          EXPECT_FALSE(std::isfinite(output(x, w, 1))) << x << " " << w;
          EXPECT_FALSE(std::isfinite(output(w, x, 1))) << x << " " << w;
        }
      EXPECT_EQ(output(1e38f, 4), infinity) << "what overflows is infinite";
      EXPECT_EQ(output(1e38f, -4), -infinity);
      // The largest numbers.
      if (six) {
        EXPECT_EQ(output(1, largest), largest);
        EXPECT_EQ(output(largest, 1), largest);
        EXPECT_EQ(output(-largest, 1), -largest);
        EXPECT_EQ(output(largest, 0.25f), largest / 4);
      } else {
        EXPECT_FALSE(std::isfinite(output(largest, 1)));
        EXPECT_TRUE(std::isfinite(output(3.38e38f, 1)));
      }
      // Denormals are zeros, coming and going; down to 1e-30 nothing is lost.
      EXPECT_EQ(output(1e-40f, 1), 0);
      EXPECT_EQ(output(1, 1e-40f), 0);
      EXPECT_EQ(output(1e-25f, 1e-15f), 0);
      for (const float x : {1.2345678e-30f, 1.2345678e-20f, 1.2345678f, 1.2345678e20f, 1.2345678e38f})
        EXPECT_NEAR(double(output(x, 1)) / double(x), 1, six ? 0x1p-24 : 0x1p-15) << x;
      EXPECT_NEAR(double(output(1.2345678e-36f, 1)) / 1.2345678e-36, 1, 2e-2);
    }
}

// An infinite pixel is met by the outputs whose window has it, and by no other.
TEST(split, what_is_not_finite_stays_with_those_who_read_it) {
  dice d(4);
  const shape s = {.c = 40, .k = 40, .image = {1, 11, 13}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}};
  for (quern_layout layout : all_layouts) {
    const quern_problem p = completed(problem_of(s, layout, layout));
    operands in(
        p, edge::back, [&] { return d.uniform(0.5f, 1); }, [] { return 0.0f; });
    elements src(QUERN_F32, in.src.size(), edge::back);
    std::copy(in.src.begin(), in.src.end(), src.begin());
    src.set(static_cast<size_t>(5 * p.src.stride[3] + 6 * p.src.stride[4] + p.src.stride[1]), infinity);
    for (const kernel* row : split_rows_here())
      for (const algorithm* a : plain_algorithms()) {
        const solution before = solve_split(p, in, *a, *row);
        std::swap(in.src, src);
        const solution after = solve_split(p, in, *a, *row);
        std::swap(in.src, src);
        for (size_t i = 0; i < after.dst.size(); ++i) {
          const int64_t y = static_cast<int64_t>(i) / 13 % 11, x = static_cast<int64_t>(i) % 13;
          const bool reads = std::abs(y - 5) <= 1 && std::abs(x - 6) <= 1;
          ASSERT_EQ(std::isfinite(after.dst[i]), !reads) << place(p, i);
          if (!reads) {
            ASSERT_TRUE(same_bits(before.dst[i], after.dst[i])) << place(p, i);
          }
        }
      }
  }
}

// ---- The choice -------------------------------------------------------------------------------------------

TEST(split, is_chosen_where_there_are_tiles_and_denied_by_name) {
  quern_cpu cpu = {sizeof cpu, 1, QUERN_ISA_AVX2 | QUERN_ISA_AVX512 | QUERN_ISA_AMX, 48 << 10, 2 << 20, 105 << 20, 0};
  quern_wish wish = {};
  wish.size = sizeof wish, wish.cpu = &cpu, wish.verbose = -1;
  quern_problem p = quern_conv2d(QUERN_F32, QUERN_NHWC, 1, 1024, 14, 14, 256, 1, 1);
  quern_plan plan;
  ASSERT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, nullptr), QUERN_OK);
  EXPECT_STREQ(plan.algorithm, "conv_split3");
  p.accuracy = QUERN_ACCURACY_F32_LOOSE;
  ASSERT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, nullptr), QUERN_OK);
  EXPECT_STREQ(plan.algorithm, "conv_split2");
  for (const char* denied : {"splits", "amx", "avx512"}) {
    wish.deny = denied;
    ASSERT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, nullptr), QUERN_OK);
    EXPECT_EQ(strstr(plan.algorithm, "split"), nullptr) << denied;
  }
  wish.deny = nullptr, wish.algorithm = "conv_split3";
  quern_error error = {};
  cpu.isa &= ~uint64_t{QUERN_ISA_AMX};
  ASSERT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_UNSUPPORTED);
  EXPECT_NE(strstr(error.text, "needs amx, which this CPU lacks"), nullptr) << error.text;
  cpu.withheld_isa = QUERN_ISA_AMX;
  ASSERT_EQ(quern_plan_make(&plan, nullptr, &p, &wish, &error), QUERN_UNSUPPORTED);
  EXPECT_NE(strstr(error.text, "needs amx, which this CPU has and its system withholds"), nullptr) << error.text;
}

}  // namespace
}  // namespace test
}  // namespace quern
