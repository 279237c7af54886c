// SPDX-License-Identifier: MIT
//
// Random problems, each cheap enough to be solved by the reference and every candidate in a few
// milliseconds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>

#include "friends.h"
#include "shapes.h"

namespace quern::test {

// QUERN_TEST_SEED repeats a run; a failure names the seed of its own problem.
inline uint32_t seed() {
  const char* given = getenv("QUERN_TEST_SEED");
  const uint32_t value = given ? static_cast<uint32_t>(strtoul(given, nullptr, 10)) : std::random_device{}();
  printf("QUERN_TEST_SEED=%u\n", value);
  return value;
}

// An emulator is some twenty times as slow: it takes a quarter of the longest walks.
#if defined(QUERN_EMULATED)
inline constexpr bool emulated = true;
#else
inline constexpr bool emulated = false;
#endif

class dice {
 public:
  explicit dice(uint32_t seed) : random_(seed) {}
  int64_t from(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool one_in(int64_t n) { return from(1, n) == 1; }
  template <class List>
  auto of(const List& list) {
    return *(std::begin(list) + from(0, std::end(list) - std::begin(list) - 1));
  }
  float integer(int low, int high) { return static_cast<float>(from(low, high)); }
  float uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(random_); }
  std::mt19937& engine() { return random_; }

 private:
  std::mt19937 random_;
};

inline operands small_integers(const quern_problem& p, edge side, dice& d) {
  static constexpr float slopes[] = {0, 0.5f, -1, 2};
  return {p, side, [&] { return d.integer(-4, 4); }, [&] { return d.of(slopes); }};
}

// How far a result from small integers, with an epilogue of set_epilogue, may be from the exact one when the sums have
// this error bound: no operand is above 4, no slope above 2, and the epilogue rounds too.  Bounds of transforms are for
// the worst of inputs and reach 1e-2; of random ones no form comes to 1e-6 of as many products and 20 roundings
// besides.
inline double allowed_error(const quern_problem& p, double error_bound) {
  const quern_epilogue& e = p.epilogue;
  const double sums = 16.0 * static_cast<double>(sum_length(p) + 20);
  const double factor = std::fabs(e.alpha) * (e.scale ? 4 : 1) * (e.activation == QUERN_PRELU ? 2 : 1);
  return (std::min(error_bound, 2e-6) + 8 * 0x1p-24) * sums * factor;
}

// Within that, where the sums round.
inline testing::AssertionResult agree_within(const quern_problem& p, double error, const solution& want,
                                             const solution& got) {
  return agree(p, want, got, [error](float a, float b, size_t) { return std::fabs(double(a) - double(b)) <= error; });
}

// By a GPU's kernel: of any class they lose nothing of small integers, but for those whose transforms round.
inline testing::AssertionResult agree_by_class(const quern_problem& p, const quern_candidate& c, const solution& want,
                                               const solution& got) {
  if (c.accuracy != QUERN_ACCURACY_F32_FAST) return agree(p, want, got);
  return agree_within(p, allowed_error(p, c.error_bound), want, got);
}

// Tasks one after the other, the last one first.
inline void from_the_last(void*, size_t count, void (*task)(void*, size_t), void* arg) {
  while (count-- > 0) task(arg, count);
}

// Any way to run a problem; the residual is dst in every other one that lets it.
inline way random_way(const quern_problem& p, dice& d) {
  way how;
  how.side = d.one_in(3) ? edge::front : edge::back;
  how.small_caches = d.one_in(2), how.slow_l3 = d.one_in(2);
  how.threads = d.one_in(2) ? 1 : static_cast<uint32_t>(d.from(2, 5));
  how.parallel_for = from_the_last;
  how.in_place = p.epilogue.residual && block_of(p.residual.layout) == block_of(p.dst.layout) &&
                 std::equal(p.dst.stride, p.dst.stride + 5, p.residual.stride) && d.one_in(2);
  return how;
}

// A problem of another element type, which is exact on small integers too: it rounds once.
inline quern_problem of_type(quern_problem p, quern_type type) {
  for (quern_tensor* t : {&p.src, &p.weights, &p.dst, &p.residual})
    if (t->type) t->type = type;
  return p;
}
inline constexpr quern_type gpu_types[] = {QUERN_F32, QUERN_F16, QUERN_BF16};

// The same of operators with products, whose dst may be of another type: in steps that reach both ends of s8.
struct types {
  quern_type src, dst;
};
inline constexpr types product_types[] = {{QUERN_F32, QUERN_F32},  {QUERN_F16, QUERN_F16},  {QUERN_BF16, QUERN_BF16},
                                          {QUERN_S8, QUERN_S8},    {QUERN_S8, QUERN_S32},   {QUERN_S8, QUERN_F32},
                                          {QUERN_S8, QUERN_F16},   {QUERN_S8, QUERN_BF16},  {QUERN_E4M3, QUERN_E4M3},
                                          {QUERN_E4M3, QUERN_F32}, {QUERN_E4M3, QUERN_F16}, {QUERN_E4M3, QUERN_BF16}};
inline quern_problem of_types(quern_problem p, const types& t) {
  p.src.type = p.weights.type = t.src, p.dst.type = t.dst;
  p.accuracy = QUERN_ACCURACY_DEFAULT;
  if (p.residual.type) p.residual.type = t.dst;
  if (t.dst == QUERN_S32) p.epilogue = {}, p.residual = {};
  if (t.dst == QUERN_S8 || t.dst == QUERN_E4M3) p.epilogue.alpha = p.epilogue.alpha < 0 ? -0.125f : 0.0625f;
  return p;
}

// Those that rows of whole chunks of 8-bit elements take.
inline const shape shapes_of_eight_bits[] = {
    {.n = 2, .c = 80, .k = 70, .image = {1, 5, 6}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}},
    {.c = 128, .k = 140, .image = {1, 9, 16}},
    {.c = 256, .k = 16, .groups = 2, .image = {1, 7, 5}, .filter = {1, 2, 3}, .stride = {1, 2, 1}, .end = {0, 1, 1}},
    {.n = 3, .c = 33, .k = 9, .image = {1, 6, 7}, .filter = {1, 3, 3}, .dilation = {1, 2, 2}, .begin = {0, 2, 2}},
    {.op = transposed, .c = 64, .k = 48, .image = {1, 4, 5}, .filter = {1, 4, 4}, .stride = {1, 2, 2}},
    // Groups of four channels and more, and depthwise.
    {.n = 2,
     .c = 8,
     .k = 12,
     .groups = 3,
     .image = {1, 6, 9},
     .filter = {1, 3, 4},
     .begin = {0, 1, 1},
     .end = {0, 1, 2}},
    {.c = 4, .k = 4, .groups = 5, .image = {1, 7, 8}, .filter = {1, 3, 3}, .stride = {1, 2, 3}, .begin = {0, 1, 1}},
    {.n = 2,
     .c = 1,
     .k = 1,
     .groups = 36,
     .image = {1, 9, 8},
     .filter = {1, 5, 5},
     .begin = {0, 2, 2},
     .end = {0, 2, 2}},
    {.c = 1, .k = 1, .groups = 20, .image = {1, 9, 11}, .filter = {1, 3, 3}, .stride = {1, 2, 2}, .begin = {0, 1, 1}},
    // First layers, whose lines are of whole 16 bytes: windows one to four bytes apart in their words.
    {.n = 2, .c = 3, .k = 32, .image = {1, 9, 16}, .filter = {1, 3, 3}, .stride = {1, 2, 2}, .begin = {0, 1, 1}},
    {.c = 3, .k = 64, .image = {1, 8, 32}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}},
    {.c = 1, .k = 80, .image = {1, 7, 16}, .filter = {1, 5, 5}, .begin = {0, 2, 2}, .end = {0, 2, 2}},
    {.c = 4, .k = 96, .image = {1, 8, 12}, .filter = {1, 4, 4}, .stride = {1, 4, 4}},
    {.c = 3,
     .k = 70,
     .image = {1, 11, 32},
     .filter = {1, 7, 7},
     .stride = {1, 2, 2},
     .begin = {0, 3, 3},
     .end = {0, 3, 3}},
};

// Axes in the order of the layout or any other, with space between rows; a src may repeat itself.
inline void spread(quern_tensor& t, bool may_repeat, dice& d) {
  int order[2][5] = {{4, 3, 2, 1, 0}, {1, 4, 3, 2, 0}};
  int* axes = order[t.layout == QUERN_NHWC];
  const int64_t block = block_of(t.layout);  // stays together
  if (d.one_in(4)) std::shuffle(axes, axes + 5, d.engine());
  int64_t stride = (d.one_in(6) ? 2 : 1) * block;
  const bool gaps = d.one_in(2);
  for (int i = 0; i < 5; ++i) {
    t.stride[axes[i]] = stride;
    stride *= axes[i] == 1 ? up(t.size[1], block) : t.size[axes[i]];
    if (gaps) stride += d.from(0, 3);
  }
  if (may_repeat && d.one_in(4)) t.stride[d.from(0, 4)] = 0;
}

inline void random_strides(quern_problem& p, dice& d) {
  if (d.one_in(3)) spread(p.src, true, d);
  if (d.one_in(4)) spread(p.weights, true, d);
  if (d.one_in(3)) spread(p.dst, false, d);
  if (p.epilogue.residual && d.one_in(2)) spread(p.residual, true, d);
}

inline int64_t random_channels(dice& d) {
  static const std::vector<int64_t> edges = edge_sizes();
  return d.one_in(2) ? d.from(1, 6) : d.one_in(2) ? d.from(1, 40) : d.of(edges);
}

inline quern_problem random_conv(dice& d) {
  static const std::vector<int64_t> edges = edge_sizes();
  shape s = {.op = d.one_in(3) ? QUERN_CONV_TRANSPOSED : QUERN_CONV};
  s.n = d.one_in(3) ? d.from(2, 4) : 1;
  s.groups = d.one_in(4) ? d.from(2, 5) : 1;
  s.c = random_channels(d), s.k = random_channels(d);
  const int dimensions = static_cast<int>(d.from(1, 3));
  for (int i = 3 - dimensions; i < 3; ++i) {
    s.image[i] = d.one_in(5) ? d.of(edges) : d.from(1, 12);
    s.filter[i] = d.one_in(12) ? d.from(6, 12) : d.from(1, 4);
    s.stride[i] = d.one_in(2) ? 1 : d.from(2, 5);
    s.dilation[i] = d.one_in(3) ? d.from(2, 4) : 1;
    const int64_t reach = (s.filter[i] - 1) * s.dilation[i];
    s.begin[i] = d.one_in(2) ? reach / 2 : d.from(0, reach + 2);
    s.end[i] = d.one_in(2) ? reach / 2 : d.from(0, reach + 2);
    if (s.op == QUERN_CONV_TRANSPOSED) s.output_padding[i] = d.from(0, s.stride[i] - 1);
  }
  if (d.one_in(8)) (d.one_in(2) ? s.begin : s.end)[2] += 7;
  quern_problem p = problem_of(s, d.of(all_layouts), d.of(all_layouts));
  p.weights.layout = d.of(layouts);
  return p;
}

// Few input channels a group, of the filters that have kernels and others.
inline quern_problem random_few_channels(dice& d) {
  static constexpr int64_t channels[] = {1, 1, 1, 2, 3, 3, 4, 8, 16, 32}, filters[] = {1, 2, 3, 3, 3, 4, 5, 7, 9, 13};
  for (;;) {
    shape s = {.op = d.one_in(6) ? QUERN_CONV_TRANSPOSED : QUERN_CONV};
    s.n = d.from(1, 3), s.c = d.of(channels), s.groups = d.one_in(4) ? 1 : d.from(2, 40);
    s.k = s.groups == 1 ? d.from(1, 70) : s.c > 1 && d.one_in(2) ? s.c : d.one_in(3) ? d.from(1, 5) : 1;
    const bool square = !d.one_in(5);
    for (int i = 1; i < 3; ++i) {
      s.image[i] = d.from(1, 20);
      s.filter[i] = d.of(filters);
      s.stride[i] = s.filter[i] == 4 ? 4 : d.one_in(2) ? 1 : d.from(2, 4);
      s.dilation[i] = d.one_in(4) ? d.from(2, 4) : 1;
      if (square && i == 2) s.filter[2] = s.filter[1], s.stride[2] = s.stride[1], s.dilation[2] = s.dilation[1];
      const int64_t reach = (s.filter[i] - 1) * s.dilation[i];
      s.begin[i] = d.one_in(2) ? reach / 2 : d.from(0, reach + 2);
      s.end[i] = d.one_in(2) ? reach / 2 : d.from(0, reach + 2);
    }
    // Groups that tensor cores take, and depthwise, without frills.
    const bool tensor = d.one_in(5), plain = tensor && d.one_in(2);
    if (tensor) {
      static constexpr int64_t inputs[] = {1, 2, 4, 8, 16, 32}, lines[] = {3, 3, 5, 7};
      s.op = QUERN_CONV, s.c = d.of(inputs), s.groups = s.c == 1 ? 4 * d.from(1, 20) : d.from(2, 6);
      s.k = plain ? s.c : d.from(1, 40);
      const int64_t step = d.one_in(3) ? 2 : 1, taps = s.c == 1 ? d.of(lines) : 3;
      for (int i = 1; i < 3; ++i) s.filter[i] = taps, s.stride[i] = step, s.dilation[i] = 1;
    }
    if (d.one_in(8)) {  // filters that reach over the image
      s.op = QUERN_CONV, s.c = 1, s.groups = d.one_in(2) ? 8 * d.from(1, 5) : d.from(2, 40), s.k = d.from(1, 2);
      for (int i = 1; i < 3; ++i) {
        s.filter[i] = d.from(27, 31), s.begin[i] = d.from(13, s.filter[i] - 14);
        s.stride[i] = s.dilation[i] = 1, s.image[i] = d.from(1, 14), s.end[i] = s.filter[i] - 1 - s.begin[i];
      }
    }
    if (s.c <= 4 && d.one_in(2)) s.image[2] = 8 * d.from(1, 3);  // lines that the copy engine takes
    const quern_layout from = d.one_in(4) && !plain ? QUERN_NCHW : QUERN_NHWC;
    quern_problem p = problem_of(s, from, d.one_in(4) && !plain ? QUERN_NCHW : QUERN_NHWC);
    p.weights.layout = d.of(layouts);
    if (plain)
      p.epilogue.bias = 1, p.epilogue.activation = d.one_in(2) ? QUERN_RELU : QUERN_IDENTITY;
    else
      set_epilogue(p, static_cast<int>(d.from(0, 419)));
    if (quern_problem_complete(&p, &p, nullptr) != QUERN_OK) continue;
    if (direct_flops(p) > 2e6 || extent(p.dst) > 40000 || extent(p.src) > 40000) continue;
    random_strides(p, d);
    if (quern_problem_complete(&p, &p, nullptr) == QUERN_OK) return p;
  }
}

inline quern_problem random_gemm(dice& d) {
  static const std::vector<int64_t> edges = edge_sizes();
  const auto size = [&] { return d.one_in(2) ? d.from(1, 20) : d.of(edges); };
  quern_problem p = quern_gemm(QUERN_F32, size(), size(), d.one_in(12) ? d.from(500, 2000) : size());
  if (d.one_in(3)) p.src.size[0] = d.from(2, 3);
  return p;
}

// A problem with any epilogue whose results are exact on small integers.
inline quern_problem random_problem(dice& d) {
  for (;;) {
    quern_problem p = d.one_in(5) ? random_gemm(d) : random_conv(d);
    set_epilogue(p, static_cast<int>(d.from(0, 419)));
    if (p.epilogue.residual && p.op != QUERN_GEMM && d.one_in(2)) p.residual.layout = d.of(all_layouts);
    if (quern_problem_complete(&p, &p, nullptr) != QUERN_OK) continue;
    if (direct_flops(p) > 4e5 || extent(p.dst) > 20000 || extent(p.src) > 20000) continue;
    random_strides(p, d);
    if (quern_problem_complete(&p, &p, nullptr) == QUERN_OK) return p;
  }
}

// An operator without products, with any epilogue.
inline quern_problem random_friendly(dice& d) {
  for (;;) {
    quern_problem p = random_friend(random_friendly_op(d.engine()), QUERN_F32, d.engine());
    if (d.one_in(12))
      p = quern_reorder(QUERN_F32, d.of(all_layouts), d.of(all_layouts), d.from(1, 3), d.from(1, 40), d.from(1, 12),
                        d.from(1, 40));
    if (p.op == QUERN_REDUCE_PROD && sum_length(p) > 50) continue;  // 4^50 is a float
    if (p.op != QUERN_REORDER) set_epilogue(p, static_cast<int>(d.from(0, 419)));
    if (p.epilogue.residual && d.one_in(2)) p.residual.layout = d.of(all_layouts);
    if (quern_problem_complete(&p, &p, nullptr) != QUERN_OK) continue;
    if (extent(p.dst) > 20000 || extent(p.src) > 20000) continue;
    if (d.one_in(3)) spread(p.src, true, d);
    if (has_weights(p.op) && d.one_in(3)) spread(p.weights, true, d);
    if (d.one_in(3)) spread(p.dst, false, d);
    if (p.epilogue.residual && d.one_in(3)) spread(p.residual, true, d);
    if (quern_problem_complete(&p, &p, nullptr) == QUERN_OK) return p;
  }
}

// Whether it is exact on small integers in f32: no division, root or exponential, nor any in the epilogue.
inline bool is_exact(const quern_problem& p) {
  constexpr quern_op exact[] = {QUERN_REORDER,    QUERN_POOL_MAX,  QUERN_REDUCE_SUM, QUERN_REDUCE_MAX,
                                QUERN_REDUCE_MIN, QUERN_REDUCE_L1, QUERN_UNARY,      QUERN_REDUCE_SUM_SQUARE,
                                QUERN_ADD,        QUERN_SUB,       QUERN_MUL,        QUERN_MAX,
                                QUERN_MIN};
  const bool rounds = p.epilogue.activation > QUERN_PRELU && p.epilogue.activation != QUERN_HARD_SIGMOID;
  return !rounds && std::find(std::begin(exact), std::end(exact), p.op) != std::end(exact);
}

// As agree(); where there is rounding, to within some units in the last place of f32, and one of a narrow type.
inline testing::AssertionResult agree_as_friends(const quern_problem& p, const solution& want, const solution& got) {
  if (is_exact(p)) return agree(p, want, got);
  return agree(p, want, got, [&](float a, float b, size_t) {
    const double most = 2 * roundoff(p.src.type) * std::abs(double(a)) + 1e-5 * (8 + std::abs(double(a)));
    return same_value(a, b) || std::abs(double(a) - double(b)) <= most;
  });
}

}  // namespace quern::test
