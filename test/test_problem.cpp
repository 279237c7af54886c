// SPDX-License-Identifier: MIT
//
// quern_problem_complete: what it derives, what it refuses and in which words, and the measures of problem.h.
#include <gtest/gtest.h>
#include <quern/quern.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "problem.h"

namespace {

using edit = std::function<void(quern_problem&)>;

quern_problem conv() {
  quern_problem p = quern_conv2d(QUERN_F32, QUERN_NHWC, 2, 8, 14, 10, 12, 3, 5);
  p.window.pad_begin[1] = p.window.pad_end[1] = 1;
  return p;
}

quern_problem transposed() {
  quern_problem p = quern_conv2d_transposed(QUERN_F32, QUERN_NCHW, 1, 6, 5, 7, 4, 4, 4);
  p.window.stride[1] = p.window.stride[2] = 2;
  return p;
}

quern_problem blocked() {
  quern_problem p = quern_conv2d(QUERN_F32, QUERN_NC4HW4, 2, 9, 6, 5, 18, 3, 2);
  p.dst.layout = QUERN_NC16HW16;
  return p;
}

quern_problem completed(quern_problem p) {
  quern_error error = {};
  EXPECT_EQ(quern_problem_complete(&p, &p, &error), QUERN_OK) << error.text;
  return p;
}

void expect_refused(quern_problem p, const char* field, const char* text, quern_status status = QUERN_INVALID) {
  const quern_problem before = p;
  quern_error error = {};
  EXPECT_EQ(quern_problem_complete(&p, &p, &error), status) << text;
  EXPECT_EQ(error.status, status);
  EXPECT_STREQ(error.field, field);
  EXPECT_STREQ(error.text, text);
  EXPECT_EQ(std::memcmp(&p, &before, sizeof p), 0) << "a failure must leave *out alone";
  EXPECT_EQ(quern_problem_complete(&p, &p, nullptr), status);
}

TEST(problem_complete, fills_in_a_convolution) {
  const quern_problem p = completed(conv());
  EXPECT_EQ(std::vector<int64_t>(p.dst.size, p.dst.size + 5), (std::vector<int64_t>{2, 12, 1, 14, 6}));
  EXPECT_EQ(std::vector<int64_t>(p.dst.stride, p.dst.stride + 5), (std::vector<int64_t>{1008, 1, 1008, 72, 12}));
  EXPECT_EQ(std::vector<int64_t>(p.src.stride, p.src.stride + 5), (std::vector<int64_t>{1120, 1, 1120, 80, 8}));
  EXPECT_EQ(std::vector<int64_t>(p.weights.stride, p.weights.stride + 5), (std::vector<int64_t>{120, 15, 15, 5, 1}));
  EXPECT_EQ(std::vector<int64_t>(p.window.filter, p.window.filter + 3), (std::vector<int64_t>{1, 3, 5}));
  EXPECT_EQ(p.dst.type, QUERN_F32);
  EXPECT_EQ(p.dst.layout, QUERN_NHWC);
  EXPECT_EQ(p.weights.layout, QUERN_NCHW);
  EXPECT_EQ(p.accuracy, QUERN_ACCURACY_F32_FAST);
  EXPECT_EQ(p.residual.type, 0);
}

TEST(problem_complete, resolves_every_zero) {
  quern_problem p = conv();
  std::memset(&p.window, 0, sizeof p.window);
  p.groups = 0;
  p.epilogue.alpha = p.epilogue.beta = 0;
  p.epilogue.residual = QUERN_RESIDUAL_AFTER;
  p.epilogue.activation = QUERN_HARD_SIGMOID;
  p.src.type = p.weights.type = QUERN_F64;
  p = completed(p);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(p.window.stride[i], 1);
    EXPECT_EQ(p.window.dilation[i], 1);
  }
  EXPECT_EQ(p.groups, 1);
  EXPECT_EQ(p.epilogue.alpha, 1);
  EXPECT_EQ(p.epilogue.beta, 1);
  EXPECT_EQ(p.epilogue.activation_alpha, 1.0f / 6);
  EXPECT_EQ(p.epilogue.activation_beta, 0.5f);
  EXPECT_EQ(p.accuracy, QUERN_ACCURACY_F32);
  EXPECT_EQ(std::memcmp(&p.residual, &p.dst, sizeof p.dst), 0);
}

TEST(problem_complete, fills_in_a_transposed_convolution_and_a_gemm) {
  quern_problem t = transposed();
  t.window.pad_begin[1] = t.window.pad_end[1] = 1;
  t.window.output_padding[2] = 1;
  t = completed(t);
  EXPECT_EQ(std::vector<int64_t>(t.dst.size, t.dst.size + 5), (std::vector<int64_t>{1, 4, 1, 10, 17}));
  t = transposed();
  t.groups = 2;
  EXPECT_EQ(completed(t).dst.size[1], 8);

  const quern_problem g = completed(quern_gemm(QUERN_F32, 5, 7, 9));
  EXPECT_EQ(std::vector<int64_t>(g.src.size, g.src.size + 5), (std::vector<int64_t>{1, 1, 1, 5, 9}));
  EXPECT_EQ(std::vector<int64_t>(g.weights.size, g.weights.size + 5), (std::vector<int64_t>{1, 1, 1, 9, 7}));
  EXPECT_EQ(std::vector<int64_t>(g.dst.size, g.dst.size + 5), (std::vector<int64_t>{1, 1, 1, 5, 7}));
  EXPECT_EQ(g.dst.stride[3], 7);
}

TEST(problem_complete, is_the_identity_on_what_is_complete) {
  std::vector<quern_problem> all = {conv(), transposed(), quern_gemm(QUERN_F64, 3, 4, 5)};
  all.push_back(conv());
  all.back().epilogue.residual = QUERN_RESIDUAL_BEFORE;
  all.back().epilogue.activation = QUERN_HARD_SWISH;
  all.push_back(conv());
  all.back().src.size[0] = 0;
  for (const quern_problem& p : all) {
    const quern_problem once = completed(p), twice = completed(once);
    EXPECT_EQ(std::memcmp(&once, &twice, sizeof once), 0);
  }
}

// What comes out of 8 bits, and how exactly unless it is said.
TEST(problem_complete, derives_types_and_classes) {
  quern_problem p = conv();
  p.src.type = p.weights.type = QUERN_S8;
  p.epilogue.residual = QUERN_RESIDUAL_BEFORE;
  EXPECT_EQ(completed(p).dst.type, QUERN_S8);
  EXPECT_EQ(completed(p).residual.type, QUERN_S8);
  EXPECT_EQ(completed(p).accuracy, QUERN_ACCURACY_EXACT);
  for (quern_type dst : {QUERN_F32, QUERN_F16, QUERN_BF16}) {
    p.dst.type = dst;
    EXPECT_EQ(completed(p).residual.type, dst);
  }
  p.src.type = p.weights.type = p.dst.type = QUERN_E4M3;
  EXPECT_EQ(completed(p).accuracy, QUERN_ACCURACY_F16);
  EXPECT_EQ(quern::bytes_of(completed(p).src) * 4, quern::bytes_of(completed(conv()).src));
}

TEST(problem_complete, takes_zero_sized_problems) {
  quern_problem p = conv();
  p.src.size[0] = 0;
  EXPECT_TRUE(quern::empty(completed(p)));
  p = conv();
  p.src.size[1] = p.weights.size[1] = 0;
  EXPECT_FALSE(quern::empty(completed(p)));
  EXPECT_EQ(quern::sum_length(completed(p)), 0);
  p = conv();
  p.src.size[4] = 4;  // the filter is 5 wide
  EXPECT_EQ(completed(p).dst.size[4], 0);
  p = conv();
  p.src.size[3] = 0, p.window.stride[1] = 2;  // (0 + 2 - 3) / 2 rounds down, not towards zero
  EXPECT_EQ(completed(p).dst.size[3], 0);
  EXPECT_TRUE(quern::empty(completed(quern_gemm(QUERN_F32, 0, 4, 4))));
  EXPECT_FALSE(quern::empty(completed(quern_gemm(QUERN_F32, 4, 4, 0))));
}

TEST(problem_complete, names_field_value_and_limit) {
  struct {
    edit change;
    const char *field, *text;
  } const cases[] = {
      {[](auto& p) { p.op = 27; }, "op", "op is 27, must be 1 (conv) to 26 (min)"},
      {[](auto& p) { p.axes = QUERN_AXIS_C; }, "axes", "axes is 2, must be at most 0"},
      {[](auto& p) { p.epsilon = 1; }, "epsilon", "epsilon is 1, must be 0"},
      {[](auto& p) { p.reserved = 1; }, "reserved", "reserved is 1, must be 0"},
      {[](auto& p) { p.groups = -1; }, "groups", "groups is -1, must be at least 1"},
      {[](auto& p) { p.groups = 3; }, "groups", "groups is 3, must divide src.size[1] = 8"},
      {[](auto& p) { p.groups = 8, p.weights.size[1] = 1; }, "groups", "groups is 8, must divide weights.size[0] = 12"},
      {[](auto& p) { p.groups = 2; }, "weights.size[1]", "weights.size[1] is 8, must be src.size[1] / groups = 4"},
      {[](auto& p) { p.src.type = 0; }, "src.type", "src.type is 0, must be 1 (f32) to 7 (s32)"},
      {[](auto& p) { p.src.type = QUERN_S32 + 1; }, "src.type", "src.type is 8, must be 1 (f32) to 7 (s32)"},
      {[](auto& p) { p.src.type = QUERN_S32; }, "src.type",
       "src.type is s32, must be one of f32 f64 f16 bf16 s8 e4m3 where op is conv"},
      {[](auto& p) { p.weights.type = QUERN_F64; }, "weights.type",
       "weights.type is f64, must be f32 where src.type is f32"},
      {[](auto& p) { p.dst.type = QUERN_F64; }, "dst.type", "dst.type is f64, must be f32 where src.type is f32"},
      {[](auto& p) { p.src.type = p.weights.type = QUERN_S8, p.dst.type = QUERN_E4M3; }, "dst.type",
       "dst.type is e4m3, must be one of f32 f16 bf16 s8 s32 where src.type is s8"},
      {[](auto& p) { p.src.type = p.weights.type = QUERN_E4M3, p.dst.type = QUERN_S32; }, "dst.type",
       "dst.type is s32, must be one of f32 f16 bf16 e4m3 where src.type is e4m3"},
      {[](auto& p) {
         p.src.type = p.weights.type = p.residual.type = QUERN_S8, p.dst.type = QUERN_F16;
         p.epilogue.residual = QUERN_RESIDUAL_AFTER;
       },
       "residual.type", "residual.type is s8, must be f16 where dst.type is f16"},
      {[](auto& p) { p.src.type = p.weights.type = QUERN_S8, p.dst.type = QUERN_S32, p.epilogue.bias = 1; },
       "epilogue.bias", "epilogue.bias is 1, must be 0"},
      {[](auto& p) { p.src.type = p.weights.type = QUERN_S8, p.src.size[1] = p.weights.size[1] = 8739; }, "src.size[1]",
       "src.size[1] is 8739, must be (for 131071 products of s8 in a sum) at most 8738"},
      {[](auto& p) { p.dst.layout = 9; }, "dst.layout", "dst.layout is 9, must be 1 (nchw) to 6 (any)"},
      {[](auto& p) { p.weights.layout = QUERN_NC8HW8; }, "weights.layout",
       "weights.layout is 4 (nc8hw8), must be 1 (nchw) to 2 (nhwc)"},
      {[](auto& p) { p.weights.layout = 0; }, "weights.layout", "weights.layout is 0, must be 1 (nchw) to 2 (nhwc)"},
      {[](auto& p) { p.src.size[2] = -4; }, "src.size[2]", "src.size[2] is -4, must be at least 0"},
      {[](auto& p) { p.weights.size[3] = 0; }, "weights.size[3]", "weights.size[3] is 0, must be at least 1"},
      {[](auto& p) { p.window.filter[2] = 3; }, "window.filter[2]",
       "window.filter[2] is 3, must be weights.size[4] = 5"},
      {[](auto& p) { p.window.stride[0] = -1; }, "window.stride[0]", "window.stride[0] is -1, must be at least 0"},
      {[](auto& p) { p.window.dilation[1] = int64_t{1} << 31; }, "window.dilation[1]",
       "window.dilation[1] is 2147483648, must be at most 2147483647"},
      {[](auto& p) { p.window.pad_end[1] = -1; }, "window.pad_end[1]", "window.pad_end[1] is -1, must be at least 0"},
      {[](auto& p) { p.window.output_padding[1] = 1; }, "window.output_padding[1]",
       "window.output_padding[1] is 1, must be at most 0"},
      {[](auto& p) { p.dst.size[0] = 2, p.dst.size[1] = 12, p.dst.size[2] = 1, p.dst.size[3] = 15, p.dst.size[4] = 6; },
       "dst.size[3]", "dst.size[3] is 15, must be 14"},
      {[](auto& p) { p.src.size[4] = 2; }, "window.filter[2]",
       "window.filter[2] is 5, must be at most 3: dst.size[4] would be -2, src.size[4] is 2, the filter with its "
       "dilation spans 5, stride is 1, pads are 0 together"},
      {[](auto& p) { p.epilogue.bias = 2; }, "epilogue.bias", "epilogue.bias is 2, must be at most 1"},
      {[](auto& p) { p.epilogue.scale = -1; }, "epilogue.scale", "epilogue.scale is -1, must be at least 0"},
      {[](auto& p) { p.epilogue.residual = 3; }, "epilogue.residual", "epilogue.residual is 3, must be at most 2"},
      {[](auto& p) { p.epilogue.activation = 14; }, "epilogue.activation",
       "epilogue.activation is 14, must be 0 (identity) to 13 (gelu_sigmoid)"},
      {[](auto& p) { p.epilogue.reserved[15] = 4; }, "epilogue.reserved[15]", "epilogue.reserved[15] is 4, must be 0"},
      {[](auto& p) { p.epilogue.alpha = std::nanf(""); }, "epilogue.alpha", "epilogue.alpha is NaN, must be a number"},
      {[](auto& p) { p.epilogue.activation = QUERN_RELU, p.epilogue.activation_beta = 6; }, "epilogue.activation_beta",
       "epilogue.activation_beta is 6, must be 0: relu takes no such parameter"},
      {[](auto& p) { p.epilogue.activation = QUERN_CLAMP, p.epilogue.activation_alpha = 7; },
       "epilogue.activation_alpha",
       "epilogue.activation_alpha is 7, must be at most epilogue.activation_beta = 0 for a clamp"},
      {[](auto& p) { p.epilogue.beta = 0.5f; }, "epilogue.beta",
       "epilogue.beta is 0.5, must be 0 or 1 when epilogue.residual is QUERN_RESIDUAL_NONE"},
      {[](auto& p) { p.residual.size[0] = 2; }, "residual",
       "residual is described but epilogue.residual is 0, must be QUERN_RESIDUAL_BEFORE or _AFTER"},
      {[](auto& p) { p.epilogue.residual = 1, p.residual.size[1] = 12; }, "residual.size[0]",
       "residual.size[0] is 0, must be 2"},
      {[](auto& p) { p.accuracy = 15; }, "accuracy",
       "accuracy is 15, must be one of the QUERN_ACCURACY_ values 0, 10, 20, 30, 40, 60"},
      {[](auto& p) { p.src.stride[1] = -1; }, "src.stride[1]", "src.stride[1] is -1, must be at least 0"},
      {[](auto& p) {
         p.src.stride[0] = INT64_C(1) << 54, p.src.stride[1] = 1, p.src.stride[3] = 80, p.src.stride[4] = 8;
       },
       "src.stride[0]",
       "src.stride[0] is 18014398509481984, must be at most 18014398509481983: src would span more than 2^56 bytes"},
  };
  for (const auto& c : cases) {
    quern_problem p = conv();
    c.change(p);
    expect_refused(p, c.field, c.text);
  }
  quern_problem t = transposed();
  t.window.output_padding[1] = 2;
  expect_refused(t, "window.output_padding[1]", "window.output_padding[1] is 2, must be at most 1");
  t = transposed();
  t.weights.size[0] = 5;
  expect_refused(t, "weights.size[0]", "weights.size[0] is 5, must be src.size[1] = 6");
  quern_problem g = quern_gemm(QUERN_F32, 2, 3, 4);
  g.weights.size[3] = 5;
  expect_refused(g, "weights.size[3]", "weights.size[3] is 5, must be src.size[4] = 4");
  expect_refused(quern_reorder(QUERN_F32, QUERN_ANY, QUERN_NCHW, 1, 2, 3, 4), "src.layout",
                 "src.layout is 6 (any), must be 1 (nchw) to 5 (nc16hw16)");
  g = quern_gemm(QUERN_F32, 2, 3, 4);
  g.src.layout = QUERN_NC4HW4;
  expect_refused(g, "src.layout", "src.layout is 3 (nc4hw4), must be 1 (nchw) to 2 (nhwc)");
  g = quern_gemm(QUERN_F32, 2, 3, 4);
  g.window.pad_end[2] = 1;
  expect_refused(g, "window.pad_end[2]", "window.pad_end[2] is 1, must be 0");
  g = quern_gemm(QUERN_F32, 2, 3, 4);
  g.groups = 2;
  expect_refused(g, "groups", "groups is 2, must be 1");
}

// What error.value says is the field's, and error.limit is in its terms: with that, the field is taken.
TEST(problem_complete, reports_the_fields_own_value_and_a_limit_of_it) {
  const quern_problem wide = quern_conv2d(QUERN_F32, QUERN_NHWC, 1, 8, 8, 8, 8, 11, 1);
  const quern_problem spread = quern_conv2d_transposed(QUERN_F32, QUERN_NCHW, 1, 6, 0, 7, 4, 1, 4);
  const quern_problem bytes = quern_conv2d(QUERN_S8, QUERN_NHWC, 1, 20000, 8, 8, 8, 3, 3);
  const struct {
    quern_problem p;
    edit change;
    const char* field;
    int64_t value, limit;
    edit heed;  // NULL: the limit depends on more fields
  } cases[] = {
      {wide, [](auto&) {}, "window.filter[1]", 11, 9, [](auto& p) { p.weights.size[3] = 9; }},
      {wide,
       [](auto& p) {
         p.weights.size[3] = 7, p.window.pad_begin[1] = p.window.pad_end[1] = 1;
         p.window.stride[1] = p.window.dilation[1] = 2;
       },
       "window.filter[1]", 7, 6, [](auto& p) { p.weights.size[3] = 6; }},
      {transposed(), [](auto& p) { p.window.pad_begin[1] = 9, p.window.pad_end[1] = 5; }, "window.pad_begin[1]", 9, 7,
       [](auto& p) { p.window.pad_begin[1] = 7; }},
      {transposed(), [](auto& p) { p.window.pad_begin[1] = 5, p.window.pad_end[1] = 9; }, "window.pad_end[1]", 9, 7,
       [](auto& p) { p.window.pad_end[1] = 7; }},
      {transposed(), [](auto& p) { p.window.pad_begin[1] = p.window.pad_end[1] = 20; }, "window.pad_begin[1]", 20, 0,
       nullptr},
      {spread, [](auto& p) { p.window.stride[1] = 4; }, "src.size[3]", 0, 1, [](auto& p) { p.src.size[3] = 1; }},
      {bytes, [](auto&) {}, "src.size[1]", 20000, 14563, [](auto& p) { p.src.size[1] = p.weights.size[1] = 14563; }},
      {bytes, [](auto& p) { p.groups = 2, p.src.size[1] = 40000; }, "src.size[1]", 40000, 29126,
       [](auto& p) { p.src.size[1] = 29126, p.weights.size[1] = 14563; }},
      {quern_gemm(QUERN_S8, 2, 3, 131072), [](auto&) {}, "src.size[4]", 131072, 131071,
       [](auto& p) { p.src.size[4] = p.weights.size[3] = 131071; }},
      {quern_gemm(QUERN_S8, 2, 3, 4), [](auto& p) { p.dst.type = QUERN_F64; }, "dst.type", QUERN_F64, QUERN_F32,
       [](auto& p) { p.dst.type = QUERN_F32; }},
      {quern_gemm(QUERN_F32, 1 << 26, 1 << 26, 1 << 26), [](auto&) {}, "dst.size[4]", 1 << 26, 1 << 10,
       [](auto& p) { p.weights.size[4] = 1 << 10; }},
      {quern_conv2d_transposed(QUERN_F32, QUERN_NCHW, 1, 1 << 22, 1 << 15, 1 << 15, 1 << 22, 1, 1), [](auto&) {},
       "src.size[4]", 1 << 15, 1 << 3, [](auto& p) { p.src.size[4] = 1 << 3; }},
  };
  for (const auto& c : cases) {
    quern_problem p = c.p;
    c.change(p);
    quern_error error = {};
    EXPECT_EQ(quern_problem_complete(&p, &p, &error), QUERN_INVALID);
    EXPECT_STREQ(error.field, c.field) << error.text;
    EXPECT_EQ(error.value, c.value) << error.text;
    EXPECT_EQ(error.limit, c.limit) << error.text;
    EXPECT_EQ(std::string(error.text).find(c.field), 0u) << error.text;
    if (c.heed) c.heed(p), completed(p);
  }
}

TEST(problem_complete, names_what_operators_without_products_lack) {
  const quern_problem pool = quern_pool2d(QUERN_POOL_MAX, QUERN_F32, QUERN_NHWC, 2, 8, 14, 10, 3, 3),
                      norm = quern_over_axes(QUERN_NORM, QUERN_F16, QUERN_NCHW, 2, 8, 14, 10, QUERN_AXIS_C),
                      sum = quern_over_axes(QUERN_REDUCE_SUM, QUERN_F64, QUERN_NC8HW8, 2, 8, 14, 10, QUERN_AXIS_H),
                      add = quern_elementwise(QUERN_ADD, QUERN_BF16, QUERN_NHWC, 2, 8, 14, 10);
  const struct {
    quern_problem p;
    edit change;
    const char *field, *text;
  } cases[] = {
      {pool, [](auto& p) { p.src.layout = QUERN_ANY; }, "src.layout",
       "src.layout is 6 (any), must be 1 (nchw) to 5 (nc16hw16)"},
      {pool, [](auto& p) { p.weights.type = QUERN_F32; }, "weights", "weights is described, but pool_max has none"},
      {pool, [](auto& p) { p.groups = 2; }, "groups", "groups is 2, must be 1"},
      {pool, [](auto& p) { p.axes = 1; }, "axes", "axes is 1, must be at most 0"},
      {pool, [](auto& p) { p.window.filter[1] = 16; }, "window.filter[1]",
       "window.filter[1] is 16, must be at most 15: dst.size[3] would be -1, src.size[3] is 14, the filter with its "
       "dilation spans 16, stride is 1, pads are 0 together"},
      {pool, [](auto& p) { p.window.output_padding[1] = 1; }, "window.output_padding[1]",
       "window.output_padding[1] is 1, must be at most 0"},
      {norm, [](auto& p) { p.axes = 0; }, "axes", "axes is 0, must be at least 1"},
      {norm, [](auto& p) { p.axes = 32; }, "axes", "axes is 32, must be at most 31"},
      {norm, [](auto& p) { p.epsilon = -1; }, "epsilon", "epsilon is -1, must be above 0 and finite"},
      {norm, [](auto& p) { p.epsilon = std::nanf(""); }, "epsilon", "epsilon is nan, must be above 0 and finite"},
      {norm, [](auto& p) { p.epsilon = INFINITY; }, "epsilon", "epsilon is inf, must be above 0 and finite"},
      {norm, [](auto& p) { p.groups = 3; }, "groups", "groups is 3, must divide src.size[1] = 8"},
      {norm, [](auto& p) { p.axes = QUERN_AXIS_W, p.groups = 2; }, "groups",
       "groups is 2, must be 1 where axes has no c"},
      {norm, [](auto& p) { p.window.stride[1] = 2; }, "window.stride[1]", "window.stride[1] is 2, must be 1"},
      {sum, [](auto& p) { p.epsilon = 1e-5f; }, "epsilon", "epsilon is 1e-05, must be 0"},
      {sum, [](auto& p) { p.groups = 2; }, "groups", "groups is 2, must be 1"},
      {sum, [](auto& p) { p.dst.size[0] = 2; }, "dst.size[1]", "dst.size[1] is 0, must be 8"},
      {add, [](auto& p) { p.weights.size[3] = 7; }, "weights.size[3]",
       "weights.size[3] is 7, must be 1 or src.size[3] = 14"},
      {add, [](auto& p) { p.weights.type = QUERN_F32; }, "weights.type",
       "weights.type is f32, must be bf16 where src.type is bf16"},
      {pool, [](auto& p) { p.src.type = QUERN_S8; }, "src.type",
       "src.type is s8, must be one of f32 f64 f16 bf16 where op is pool_max"},
      {add, [](auto& p) { p.weights.layout = QUERN_ANY; }, "weights.layout",
       "weights.layout is 6 (any), must be 1 (nchw) to 5 (nc16hw16)"},
      {add, [](auto& p) { p.groups = 2; }, "groups", "groups is 2, must be 1"},
  };
  for (const auto& c : cases) {
    quern_problem p = completed(c.p);
    p = c.p;
    c.change(p);
    expect_refused(p, c.field, c.text);
  }
}

TEST(problem_complete, fills_in_operators_without_products) {
  const auto sizes = [](const quern_problem& p) { return std::vector<int64_t>(p.dst.size, p.dst.size + 5); };
  using v = std::vector<int64_t>;
  quern_problem p = quern_pool2d(QUERN_POOL_AVG, QUERN_F32, QUERN_NHWC, 2, 8, 14, 10, 3, 2);
  p.window.stride[1] = p.window.stride[2] = 2, p.window.pad_begin[1] = 1;
  EXPECT_EQ(sizes(completed(p)), (v{2, 8, 1, 7, 5}));
  p = completed(quern_pool2d(QUERN_POOL_AVG, QUERN_F32, QUERN_NHWC, 2, 8, 14, 10, 0, 0));
  EXPECT_EQ(sizes(p), (v{2, 8, 1, 1, 1}));
  EXPECT_EQ(p.window.filter[1], 14);
  p = completed(quern_over_axes(QUERN_REDUCE_MAX, QUERN_F32, QUERN_NC4HW4, 2, 9, 14, 10, QUERN_AXIS_C | QUERN_AXIS_W));
  EXPECT_EQ(sizes(p), (v{2, 1, 1, 14, 1}));
  EXPECT_EQ(p.dst.stride[4], 4);
  EXPECT_EQ(p.epsilon, 0);
  p = completed(quern_over_axes(QUERN_RMS_NORM, QUERN_F32, QUERN_NCHW, 2, 9, 14, 10, QUERN_AXIS_C));
  EXPECT_EQ(sizes(p), (v{2, 9, 1, 14, 10}));
  EXPECT_EQ(p.epsilon, 1e-5f);
  p = quern_elementwise(QUERN_DIV, QUERN_F32, QUERN_NHWC, 2, 9, 14, 10);
  p.weights.size[0] = p.weights.size[3] = p.weights.size[4] = 1;
  EXPECT_EQ(sizes(completed(p)), (v{2, 9, 1, 14, 10}));
}

TEST(problem_complete, refuses_null) {
  quern_problem p = conv();
  quern_error error;
  EXPECT_EQ(quern_problem_complete(nullptr, &p, &error), QUERN_INVALID);
  EXPECT_STREQ(error.text, "problem is NULL");
  EXPECT_EQ(quern_problem_complete(&p, nullptr, &error), QUERN_INVALID);
  EXPECT_STREQ(error.field, "out");
}

TEST(problem_complete, takes_structs_of_other_versions) {
  struct {
    quern_problem p;
    char tail[64];
  } longer = {conv(), {}};
  longer.p.size = sizeof longer;
  quern_error error = {};
  ASSERT_EQ(quern_problem_complete(&longer.p, &longer.p, &error), QUERN_OK) << error.text;
  EXPECT_EQ(longer.p.size, sizeof longer);
  EXPECT_EQ(longer.p.dst.size[3], 14);
  longer.tail[63] = 1;
  EXPECT_EQ(quern_problem_complete(&longer.p, &longer.p, &error), QUERN_MISMATCH);
  EXPECT_STREQ(error.field, "problem.size");

  // A shorter struct: what lies behind it is neither read nor written.
  quern_problem p = conv();
  p.size = offsetof(quern_problem, epilogue);
  std::memset(&p.epilogue, 0x55, sizeof p - p.size);
  ASSERT_EQ(quern_problem_complete(&p, &p, &error), QUERN_OK) << error.text;
  EXPECT_EQ(p.size, offsetof(quern_problem, epilogue));
  EXPECT_EQ(p.dst.size[4], 6);
  EXPECT_EQ(p.accuracy, 0x55555555);

  for (uint32_t size : {0u, 3u, 1u << 20, ~0u}) {
    p = conv();
    p.size = size;
    EXPECT_EQ(quern_problem_complete(&p, &p, &error), QUERN_INVALID) << size;
    EXPECT_STREQ(error.field, "problem.size");
  }
}

TEST(problem_complete, takes_strides_that_keep_dst_apart) {
  quern_problem p = completed(conv());
  p.dst.stride[4] = 20, p.dst.stride[3] = 120, p.dst.stride[0] = 120 * 14;  // a slice of a concatenation
  EXPECT_EQ(completed(p).dst.stride[4], 20);
  p.dst.stride[2] = 0;  // of one image: never stepped over
  completed(p);
  p.dst.stride[3] = 112;
  completed(p);  // the last row ends at 5 * 20 + 11
  p.dst.stride[3] = 111;
  expect_refused(p, "dst.stride[3]", "dst.stride[3] is 111, must be at least 112, or elements of dst overlap");
}

// Blocks of channels, the last one not full: where they lie, how far they reach, and when they meet.
TEST(problem_complete, lays_out_blocks_of_channels) {
  quern_problem p = quern_conv2d(QUERN_F32, QUERN_NC4HW4, 2, 6, 5, 7, 18, 1, 1);
  p.dst.layout = QUERN_NC16HW16;
  p = completed(p);
  EXPECT_EQ(std::vector<int64_t>(p.src.stride, p.src.stride + 5), (std::vector<int64_t>{280, 140, 140, 28, 4}));
  EXPECT_EQ(std::vector<int64_t>(p.dst.stride, p.dst.stride + 5), (std::vector<int64_t>{1120, 560, 560, 112, 16}));
  // The second block has two channels: nothing of it is behind the last pixel's second one.
  EXPECT_EQ(quern::extent(p.src), 280 + 140 + 34 * 4 + 2);
  EXPECT_EQ(quern::extent(p.dst), 1120 + 560 + 34 * 16 + 2);
  p.src.stride[1] = 1;  // of what is only read, blocks may meet: then the whole one reaches furthest
  EXPECT_EQ(quern::extent(completed(p).src), 280 + 34 * 4 + 4);

  // A slice of six of the twelve channels of a larger tensor with padded rows.
  p.src.stride[4] = 4, p.src.stride[3] = 32, p.src.stride[2] = p.src.stride[1] = 160, p.src.stride[0] = 480;
  EXPECT_EQ(quern::extent(completed(p).src), 480 + 160 + 4 * 32 + 6 * 4 + 2);

  p.dst.stride[4] = 15;
  expect_refused(p, "dst.stride[4]", "dst.stride[4] is 15, must be at least 16, or elements of dst overlap");
  p.dst.stride[4] = 16, p.dst.stride[1] = 559;
  expect_refused(p, "dst.stride[1]", "dst.stride[1] is 559, must be at least 560, or elements of dst overlap");
  // Three channels take three floats, whatever the block.
  p = completed(quern_conv2d(QUERN_F32, QUERN_NC8HW8, 1, 1, 1, 4, 3, 1, 1));
  p.dst.stride[4] = 3;
  EXPECT_EQ(quern::extent(completed(p).dst), 12);
  p.dst.stride[4] = 2;
  expect_refused(p, "dst.stride[4]", "dst.stride[4] is 2, must be at least 3, or elements of dst overlap");

  // Places that are no part of a tensor count where it is laid out.
  p = quern_conv2d(QUERN_F32, QUERN_NC16HW16, 1, 1, 1, (int64_t{1} << 50) + 1, 1, 1, 1);
  expect_refused(p, "src.size[4]",
                 "src.size[4] is 1125899906842625, must be (for 2^56 bytes of memory) at most 1125899906842624");
  p = quern_conv2d(QUERN_F32, QUERN_NC16HW16, 1, (int64_t{1} << 54) + 1, 1, 1, 1, 1, 1);
  expect_refused(p, "src.size[1]",
                 "src.size[1] is 18014398509481985, must be (for 2^56 bytes of memory) at most 18014398509481984");
}

// A layout to be chosen has no strides yet, and everything else is settled.
TEST(problem_complete, leaves_any_layout_open) {
  quern_problem p = conv();
  p.src.layout = QUERN_ANY;
  p.epilogue.residual = QUERN_RESIDUAL_BEFORE;
  p = completed(p);
  for (const quern_tensor* t : {&p.src, &p.dst, &p.residual}) {
    EXPECT_EQ(t->layout, QUERN_ANY);
    EXPECT_EQ(std::vector<int64_t>(t->stride, t->stride + 5), std::vector<int64_t>(5, 0));
  }
  EXPECT_EQ(p.dst.size[3], 14);
  p.dst.layout = QUERN_NC8HW8;
  EXPECT_EQ(completed(p).residual.layout, QUERN_NC8HW8);
  EXPECT_EQ(completed(p).residual.stride[4], 8);
  p.src.stride[3] = 100;
  expect_refused(p, "src.stride[3]", "src.stride[3] is 100, must be (of a layout to be chosen) 0");
}

TEST(problem_complete, takes_broadcasts_of_what_is_only_read) {
  quern_problem p = conv();
  p.epilogue.residual = QUERN_RESIDUAL_BEFORE;
  p = completed(p);
  p.residual.stride[3] = p.residual.stride[4] = 0;
  p.src.stride[0] = 0;
  completed(p);
  p.dst.stride[0] = 0;
  expect_refused(p, "dst.stride[0]", "dst.stride[0] is 0, must be at least 1, or elements of dst overlap");
}

// Every field at every power of two and its neighbours: complete() must not overflow (UBSan), and what it
// accepts stays within the limits that problem.h states.
TEST(problem_complete, survives_hostile_numbers) {
  int accepted = 0;
  for (const quern_problem& base : {conv(), transposed(), blocked(), quern_gemm(QUERN_F64, 3, 4, 5), completed(conv()),
                                    quern_reorder(QUERN_F32, QUERN_NCHW, QUERN_NC8HW8, 2, 9, 6, 5),
                                    quern_pool2d(QUERN_POOL_MAX, QUERN_F32, QUERN_NHWC, 2, 8, 14, 10, 3, 2),
                                    quern_over_axes(QUERN_NORM, QUERN_F32, QUERN_NC8HW8, 2, 8, 4, 5, QUERN_AXIS_C),
                                    quern_elementwise(QUERN_MUL, QUERN_F32, QUERN_NC4HW4, 2, 9, 6, 5)}) {
    for (size_t at = 8; at + 8 <= sizeof base; at += 8) {
      for (int bit = 0; bit < 64; ++bit) {
        for (int64_t off : {-1, 0, 1}) {
          quern_problem p = base;
          const int64_t value = static_cast<int64_t>((uint64_t{1} << bit) + static_cast<uint64_t>(off));
          std::memcpy(reinterpret_cast<char*>(&p) + at, &value, sizeof value);
          if (quern_problem_complete(&p, &p, nullptr) != QUERN_OK) continue;
          ++accepted;
          for (const quern_tensor* t : {&p.src, &p.weights, &p.dst}) {
            EXPECT_LE(quern::extent(*t), int64_t{1} << 56);
            for (int i = 0; i < 5; ++i) EXPECT_LE(t->stride[i], int64_t{1} << 54);
          }
          EXPECT_GE(quern::direct_flops(p), 0);
          EXPECT_LE(quern::direct_flops(p), std::ldexp(1.0, 63));
          EXPECT_GE(quern::sum_length(p), 0);
        }
      }
    }
  }
  EXPECT_GT(accepted, 1000);
}

double counted_flops(const quern_problem& p) {
  const bool conv = p.op != QUERN_CONV_TRANSPOSED;
  const double products = quern::is_conv(p.op) ? 2.0 * static_cast<double>(p.src.size[1] / p.groups) : 1;
  double flops = products * static_cast<double>(p.src.size[0] * p.dst.size[1]);
  for (int i = 0; i < 3; ++i) {
    int64_t taps = 0;
    const int64_t image = conv ? p.src.size[2 + i] : p.dst.size[2 + i];
    for (int64_t o = 0; o < (conv ? p.dst.size[2 + i] : p.src.size[2 + i]); ++o) {
      for (int64_t t = 0; t < p.window.filter[i]; ++t) {
        const int64_t at = o * p.window.stride[i] + t * p.window.dilation[i] - p.window.pad_begin[i];
        taps += at >= 0 && at < image;
      }
    }
    flops *= static_cast<double>(taps);
  }
  return flops;
}

// The most taps that meet in one output of the transposed operator, were the image endless.
int64_t counted_taps(int64_t filter, int64_t stride, int64_t dilation) {
  int64_t most = 0;
  for (int64_t residue = 0; residue < stride; ++residue) {
    int64_t taps = 0;
    for (int64_t t = 0; t < filter; ++t) taps += t * dilation % stride == residue;
    most = std::max(most, taps);
  }
  return most;
}

// Filters of pooling are numbers without weights behind them: their product may be anything, 2^64 too.
TEST(problem_work, filters_whose_product_overflows) {
  for (const int64_t wide : {INT64_C(1) << 32, (INT64_C(1) << 32) - 1}) {
    quern_problem p = quern_pool2d(QUERN_POOL_MAX, QUERN_F32, QUERN_NCHW, 1, 1, 2, 2, INT64_C(1) << 32, wide);
    for (int i = 1; i < 3; ++i) p.window.pad_begin[i] = p.window.pad_end[i] = (INT64_C(1) << 31) - 1;
    expect_refused(
        p, "window.filter[2]",
        ("window.filter[2] is " + std::to_string(wide) + ", must be (for 2^62 taps of outputs) at most 1073741824")
            .c_str());
  }
}

TEST(problem_work, count_as_the_loops_do) {
  int checked = 0;
  for (int64_t in = 1; in <= 9; in += 2) {
    for (int64_t filter = 1; filter <= 7; ++filter) {
      for (int64_t stride = 1; stride <= 4; ++stride) {
        for (int64_t dilation = 1; dilation <= 4; ++dilation) {
          for (int64_t pad = 0; pad <= 9; pad += 3) {
            for (bool forward : {true, false}) {
              quern_problem p = forward ? quern_conv2d(QUERN_F32, QUERN_NCHW, 2, 3, in, 5, 4, filter, 2)
                                        : quern_conv2d_transposed(QUERN_F32, QUERN_NCHW, 2, 3, in, 5, 4, filter, 2);
              p.window.stride[1] = stride, p.window.dilation[1] = dilation;
              p.window.pad_begin[1] = pad, p.window.pad_end[1] = pad / 2;
              if (quern_problem_complete(&p, &p, nullptr) != QUERN_OK) continue;
              ++checked;
              ASSERT_EQ(quern::direct_flops(p), counted_flops(p));
              const int64_t taps = forward ? filter : counted_taps(filter, stride, dilation);
              ASSERT_EQ(quern::sum_length(p), 3 * taps * 2);
              if (!forward) continue;
              quern_problem pool = quern_pool2d(QUERN_POOL_AVG, QUERN_F32, QUERN_NCHW, 2, 3, in, 5, filter, 2);
              pool.window = p.window;
              pool = completed(pool);
              ASSERT_EQ(quern::direct_flops(pool), counted_flops(pool));
              ASSERT_EQ(quern::sum_length(pool), taps * 2);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(checked, 2000);
  EXPECT_EQ(quern::direct_flops(completed(quern_gemm(QUERN_F32, 3, 4, 5))), 120);
  quern_problem norm = quern_over_axes(QUERN_NORM, QUERN_F32, QUERN_NCHW, 2, 8, 5, 7, QUERN_AXIS_C | QUERN_AXIS_H);
  norm.groups = 2;
  EXPECT_EQ(quern::direct_flops(completed(norm)), 2 * 8 * 5 * 7);
  EXPECT_EQ(quern::sum_length(completed(norm)), 4 * 5);
  EXPECT_EQ(quern::sum_length(completed(quern_elementwise(QUERN_ADD, QUERN_F32, QUERN_NCHW, 2, 8, 5, 7))), 1);
  EXPECT_EQ(quern::extent(completed(conv()).src), 2 * 8 * 14 * 10);
}

}  // namespace
