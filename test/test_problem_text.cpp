// SPDX-License-Identifier: MIT
//
// The text form of problems: benchdnn's lines, the words around them, round trips, and where errors point.
#include <gtest/gtest.h>
#include <locale.h>
#include <quern/quern.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "friends.h"
#include "problem_text.h"

namespace {

quern_problem parsed(const std::string& text) {
  quern_problem p = {};
  quern_error error = {};
  EXPECT_EQ(quern_problem_parse(text.c_str(), &p, &error), QUERN_OK) << text << "\n" << error.text;
  EXPECT_EQ(quern_problem_complete(&p, &p, &error), QUERN_OK) << text << "\n" << error.text;
  return p;
}

std::string printed(const quern_problem& p) {
  char line[2048];
  size_t length = 0;
  quern_error error = {};
  EXPECT_EQ(quern_problem_print(&p, line, sizeof line, &length, &error), QUERN_OK) << error.text;
  EXPECT_EQ(length, std::strlen(line));
  return line;
}

bool same(const quern_problem& a, const quern_problem& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

std::vector<int64_t> list(const int64_t* v, int count) { return {v, v + count}; }

void expect_size(const char* text, std::vector<int64_t> src, std::vector<int64_t> weights, std::vector<int64_t> dst) {
  const quern_problem p = parsed(text);
  EXPECT_EQ(list(p.src.size, 5), src) << text;
  EXPECT_EQ(list(p.weights.size, 5), weights) << text;
  EXPECT_EQ(list(p.dst.size, 5), dst) << text;
}

void expect_refused(const char* text, int64_t column, const char* sentence) {
  quern_problem p;
  std::memset(&p, 0x5a, sizeof p);
  const quern_problem before = p;
  quern_error error = {};
  EXPECT_EQ(quern_problem_parse(text, &p, &error), QUERN_INVALID) << text;
  EXPECT_EQ(error.value, column) << text << "\n" << error.text;
  EXPECT_STREQ(error.text, ("column " + std::to_string(column) + ": " + sentence).c_str()) << text;
  EXPECT_TRUE(same(p, before)) << "a failure must leave *out alone";
}

TEST(problem_parse, takes_every_layer_of_the_benches) {
  std::ifstream file(QUERN_LAYERS);
  int layers = 0;
  for (std::string text; std::getline(file, text);) {
    if (text.empty() || text[0] == '#') continue;
    ++layers;
    const quern_problem p = parsed(text);
    // The sizes that the line states, read by other means.
    const auto stated = [&](const char* key) {
      const size_t at = text.find(key);
      return at == std::string::npos ? -1 : std::stoll(text.substr(at + 2));
    };
    EXPECT_EQ(p.dst.size[1], stated("oc")) << text;
    EXPECT_EQ(p.dst.size[3], stated("oh")) << text;
    EXPECT_EQ(p.dst.size[4], stated("ow") < 0 ? stated("oh") : stated("ow")) << text;
    EXPECT_TRUE(same(parsed(printed(p)), p)) << text;
  }
  EXPECT_EQ(layers, 43);
}

TEST(problem_parse, reads_descriptors_as_benchdnn_does) {
  expect_size("mb1ic3ih224oc64oh112kh7sh2ph3n\"resnet50:conv1\"", {1, 3, 1, 224, 224}, {64, 3, 1, 7, 7},
              {1, 64, 1, 112, 112});
  expect_size("g32mb2_ic32ih112_oc64oh112_kh3ph1_n\"a name, with \t everything\" bias # and a comment",
              {2, 32, 1, 112, 112}, {64, 1, 1, 3, 3}, {2, 64, 1, 112, 112});
  // Pad from sizes; sizes from pad; a cube; one dimension.
  EXPECT_EQ(parsed("ic3ih10oc4oh10kh3").window.pad_begin[1], 1);
  expect_size("ic3ih10oc4kh3ph1sh2", {1, 3, 1, 10, 10}, {4, 3, 1, 3, 3}, {1, 4, 1, 5, 5});
  expect_size("ic3id8oc4kd3pd1dd1", {1, 3, 8, 8, 8}, {4, 3, 3, 3, 3}, {1, 4, 6, 6, 6});
  expect_size("g1ic17oc17_iw8ow4kw3pw1sw2_n\"1d_conv:3x3_stride_tail\"", {1, 17, 1, 1, 8}, {17, 17, 1, 1, 3},
              {1, 17, 1, 1, 4});
  expect_size("ic3id8ih9iw10oc4kd1kh2kw3", {1, 3, 8, 9, 10}, {4, 3, 1, 2, 3}, {1, 4, 8, 8, 8});
  // w with image and filter of its own does not take h's stride and pad.
  expect_size("ic3ih10iw10oc4kh3kw3sh2ph1", {1, 3, 1, 10, 10}, {4, 3, 1, 3, 3}, {1, 4, 1, 5, 8});
  // Otherwise a missing w-value equals its h-value.
  expect_size("ic3ih10iw20oc4kh3sh2ph1", {1, 3, 1, 10, 20}, {4, 3, 1, 3, 3}, {1, 4, 1, 5, 10});
  expect_size("ic192ih17oc192oh17kh1kw7ph0pw3", {1, 192, 1, 17, 17}, {192, 192, 1, 1, 7}, {1, 192, 1, 17, 17});
  expect_size("conv_transposed g2ic6ih5oc4kh4sh2ph1", {1, 6, 1, 5, 5}, {6, 2, 1, 4, 4}, {1, 4, 1, 10, 10});
}

TEST(problem_parse, derives_the_end_of_the_image) {
  const auto ends = [](const char* text) {
    const quern_problem p = parsed(text);
    return std::vector<int64_t>{p.window.pad_begin[1], p.window.pad_end[1], p.window.output_padding[1]};
  };
  using v = std::vector<int64_t>;
  EXPECT_EQ(ends("ic3ih224oc64oh112kh7sh2ph3"), (v{3, 3, 0}));  // benchdnn: 2, which makes no difference
  EXPECT_EQ(ends("ic3ih4oc4oh4kh2ph0"), (v{0, 1, 0}));
  EXPECT_EQ(ends("ic3ih4oc4oh3kh3ph1"), (v{1, 0, 0}));
  EXPECT_EQ(ends("ic3ih56oc4oh28kh1sh2"), (v{0, 0, 0}));
  EXPECT_EQ(ends("ic64ih201oc64oh202kh1sh1ph0"), (v{0, 1, 0}));  // a line of benchdnn's own: a row of padding
  EXPECT_EQ(ends("ic3ih4oc4kh3 pad_end=0x2x2"), (v{0, 2, 0}));
  EXPECT_EQ(ends("conv_transposed ic3ih5oc4oh9kh3sh2ph1"), (v{1, 1, 0}));
  EXPECT_EQ(ends("conv_transposed ic3ih5oc4oh10kh3sh2ph1"), (v{1, 1, 1}));
  EXPECT_EQ(ends("conv_transposed ic3ih5oc4oh8kh3sh2ph1"), (v{1, 2, 0}));
  EXPECT_EQ(ends("conv_transposed ic3ih5oc4oh11kh5sh2ph2"), (v{2, 0, 0}));
  EXPECT_EQ(ends("conv_transposed ic3ih5oc4kh3sh2ph1 output_padding=0x1x1"), (v{1, 1, 1}));
  EXPECT_EQ(ends("conv_transposed ic3ih5oc4oh10kh3sh2ph1 pad_end=0x0x0"), (v{1, 0, 0}));
  EXPECT_EQ(ends("conv_transposed ic3ih5oc4oh10kh3sh2ph1 output_padding=0x0x0"), (v{1, 0, 0}));
}

TEST(problem_parse, reads_matrices) {
  expect_size("gemm 128x256:256x512", {1, 1, 1, 128, 256}, {1, 1, 1, 256, 512}, {1, 1, 1, 128, 512});
  expect_size("gemm f64 7x2x3:3x5", {7, 1, 1, 2, 3}, {1, 1, 1, 3, 5}, {7, 1, 1, 2, 5});
  expect_size("gemm 7x2x3:1x3x5:7x2x5n\"name\" bias", {7, 1, 1, 2, 3}, {1, 1, 1, 3, 5}, {7, 1, 1, 2, 5});
}

TEST(problem_parse, reads_a_reorder) {
  const quern_problem p = parsed("reorder f64 nchw:nc8hw8 2x19x5x7n\"name\" dst_stride=4096x1024x1024x64x8");
  EXPECT_EQ(p.op, QUERN_REORDER);
  EXPECT_EQ(p.src.type, QUERN_F64);
  EXPECT_EQ(p.dst.layout, QUERN_NC8HW8);
  EXPECT_EQ(list(p.src.size, 5), (std::vector<int64_t>{2, 19, 1, 5, 7}));
  EXPECT_EQ(p.dst.stride[1], 1024);
  EXPECT_EQ(p.weights.type, 0);
  EXPECT_EQ(list(parsed("reorder nhwc 1x2x3x4x5").dst.size, 5), (std::vector<int64_t>{1, 2, 3, 4, 5}));
}

TEST(problem_parse, reads_operators_without_products) {
  quern_problem p = parsed("pool_max f16 nhwc mb2ic64ih112oh56kh3sh2ph1n\"name\"");
  EXPECT_EQ(p.op, QUERN_POOL_MAX);
  EXPECT_EQ(p.src.type, QUERN_F16);
  EXPECT_EQ(list(p.dst.size, 5), (std::vector<int64_t>{2, 64, 1, 56, 56}));
  EXPECT_EQ(list(p.window.filter, 3), (std::vector<int64_t>{1, 3, 3}));
  EXPECT_EQ(p.weights.type, 0);
  p = parsed("norm nc8hw8 1x320x64x32 axes=whc groups=32 eps=0.001 scale bias act=silu");
  EXPECT_EQ(p.op, QUERN_NORM);
  EXPECT_EQ(p.axes, QUERN_AXIS_C | QUERN_AXIS_H | QUERN_AXIS_W);
  EXPECT_EQ(p.groups, 32);
  EXPECT_EQ(p.epsilon, 0.001f);
  EXPECT_EQ(printed(p), "norm f32 nc8hw8 1x320x64x32 axes=chw groups=32 eps=0.001 bias scale act=silu");
  EXPECT_EQ(list(parsed("reduce_mean 2x3x4x5x6 axes=dhw").dst.size, 5), (std::vector<int64_t>{2, 3, 1, 1, 1}));
  p = parsed("add nhwc 1x64x3x5x7:1x64x1x1 act=relu");
  EXPECT_EQ(list(p.weights.size, 5), (std::vector<int64_t>{1, 64, 1, 1, 1}));
  EXPECT_EQ(p.weights.layout, QUERN_NHWC);
  EXPECT_EQ(printed(p), "add f32 nhwc 1x64x3x5x7:1x64x1x1 act=relu");
  EXPECT_EQ(parsed("mul nhwc 1x2x3x4:1x2x3x4 wei=nchw").weights.layout, QUERN_NCHW);
  EXPECT_EQ(printed(parsed("unary 1x2x3x4 alpha=2")), "unary f32 nchw 1x2x3x4 alpha=2");
}

TEST(problem_parse, reads_words) {
  const quern_problem p = parsed(
      "  conv f32 nhwc:nchw ic4ih6oc4oh6kh3 bias scale residual=after act=clamp:-1.5:6 alpha=0.25 beta=-2 "
      "accuracy=exact wei=nhwc res=nhwc\n");
  EXPECT_EQ(p.src.layout, QUERN_NHWC);
  EXPECT_EQ(p.dst.layout, QUERN_NCHW);
  EXPECT_EQ(p.weights.layout, QUERN_NHWC);
  EXPECT_EQ(p.residual.layout, QUERN_NHWC);
  EXPECT_EQ(p.epilogue.bias, 1);
  EXPECT_EQ(p.epilogue.scale, 1);
  EXPECT_EQ(p.epilogue.residual, QUERN_RESIDUAL_AFTER);
  EXPECT_EQ(p.epilogue.activation, QUERN_CLAMP);
  EXPECT_EQ(p.epilogue.activation_alpha, -1.5f);
  EXPECT_EQ(p.epilogue.activation_beta, 6.0f);
  EXPECT_EQ(p.epilogue.alpha, 0.25f);
  EXPECT_EQ(p.epilogue.beta, -2.0f);
  EXPECT_EQ(p.accuracy, QUERN_ACCURACY_EXACT);
  EXPECT_EQ(parsed("ic4ih6oc4kh3 dst_stride=512x64x64x8x1").dst.stride[1], 64);
  const quern_problem blocked = parsed("nc8hw8:nc16hw16 ic4ih6oc20kh3 residual=before res=nc4hw4");
  EXPECT_EQ(blocked.src.layout, QUERN_NC8HW8);
  EXPECT_EQ(blocked.dst.layout, QUERN_NC16HW16);
  EXPECT_EQ(blocked.residual.layout, QUERN_NC4HW4);
  EXPECT_EQ(parsed("nc4hw4 ic4ih6oc4kh3 src_stride=288x144x144x24x4").src.stride[1], 144);

  // Fields that can be derived stay zero, so that a tool may still change type and layout.
  quern_problem raw;
  ASSERT_EQ(quern_problem_parse("ic4ih6oc4kh3", &raw, nullptr), QUERN_OK);
  EXPECT_EQ(raw.src.stride[4] + raw.dst.type + raw.dst.layout + raw.dst.size[0], 0);
}

TEST(problem_parse, points_at_what_is_wrong) {
  expect_refused("", 1, "a descriptor such as ic64ih56oc64kh3ph1 must follow");
  expect_refused("conv f32", 9, "a descriptor such as ic64ih56oc64kh3ph1 must follow");
  const char* keys =
      "'kq' is no key; known: g mb ic id ih iw oc od oh ow kd kh kw sd sh sw pd ph pw dd dh dw n\"name\"";
  expect_refused("conv f32 ic3_ih5kq3", 17, keys);
  expect_refused(
      "s4 ic3ih5oc3kh3", 1,
      "'s4' is no operator, type, layout or descriptor; known: conv conv_transposed gemm reorder pool_max "
      "pool_avg pool_avg_padded reduce_sum reduce_mean reduce_max reduce_min reduce_prod reduce_l1 reduce_l2 "
      "reduce_sum_square norm rms_norm softmax log_softmax unary add sub mul div max min f32 f64 f16 bf16 s8 e4m3 "
      "s32 nchw nhwc nc4hw4 nc8hw8 nc16hw16 any");
  expect_refused("s8:s8 ic3ih5oc3kh3", 6, "':' and the type of dst must follow, as in SRC:WEIGHTS:DST");
  expect_refused("conv s8:s8:u8 ic3ih5oc3kh3", 12, "'u8' is no type; known: f32 f64 f16 bf16 s8 e4m3 s32");
  expect_refused("conv s8:f16:s8 ic3ih5oc3kh3", 6, "weights.type is f16, must be s8 where src.type is s8");
  expect_refused("f32:f32:f16 ic3ih5oc3kh3", 1, "dst.type is f16, must be f32 where src.type is f32");
  expect_refused("s8:s8:s32 ic3ih5oc3kh3 bias", 24, "epilogue.bias is 1, must be 0");
  expect_refused("nhwc s8 reorder 1x2x3x4", 6, "src.type is s8, must be one of f32 f64 f16 bf16 where op is reorder");
  expect_refused("pool_max ic3ih5oc3kh3", 16, "oc is no key of pool_max");
  expect_refused("pool_avg ic3ih5kh0", 16, "kh is 0, must be at least 1");
  expect_refused("pool_avg ic3ih5", 16, "kh is missing");
  expect_refused("pool_avg g3ic3ih5kh2", 10, "groups is 3, must be 1");
  expect_refused("pool_avg ic3ih5kh2 groups=3", 20, "groups= is no word of pool_avg");
  expect_refused("pool_max any ic3ih5kh2", 10, "src.layout is 6 (any), must be 1 (nchw) to 5 (nc16hw16)");
  expect_refused("softmax 1x2x3x4", 9, "axes is 0, must be at least 1");
  expect_refused("softmax 1x2x3x4 axes=cx", 23, "'x' is no axis; known: n c d h w");
  expect_refused("softmax 1x2x3x4 axes=chc", 24, "axis c is given twice");
  expect_refused("softmax 1x2x3x4 axes=c eps=1", 24, "epsilon is 1, must be 0");
  expect_refused("norm 1x2x3x4 axes=c eps=0", 25, "eps is 0, must not be");
  expect_refused("norm 1x2x3x4 axes=c groups=0", 28, "groups is 0, must be at least 1");
  expect_refused("norm 1x2x3x4 axes=h groups=2", 21, "groups is 2, must be 1 where axes has no c");
  expect_refused("add 1x2x3x4", 12, "':' and the second operand's sizes must follow");
  expect_refused("add 1x2x3x4:1x2x2x4", 5, "weights.size[3] is 2, must be 1 or src.size[3] = 3");
  expect_refused("unary 1x2x3x4:1x2x3x4", 14, "the descriptor must end here: NxCx[Dx]HxW");
  expect_refused("unary 1x2x3x4 wei=nhwc", 15, "weights is described, but unary has none");
  expect_refused("reorder 1x2x3", 14, "'x' and another size must follow, as in NxCx[Dx]HxW");
  expect_refused("reorder 1x2x3x4x5x6", 18, "the descriptor must end here: NxCx[Dx]HxW");
  expect_refused("reorder ic3ih5oc3", 9, "NxCxHxW needs a whole number here");
  expect_refused("reorder 1x2x3x4 bias", 17, "epilogue.bias is 1, must be 0");
  expect_refused("reorder 1x2x3x4 wei=nhwc", 17, "weights is described, but reorder has none");
  expect_refused("f32 nc4hw4 gemm 2x3:3x4", 5, "src.layout is 3 (nc4hw4), must be 1 (nchw) to 2 (nhwc)");
  expect_refused("gemm 2x3:3x4 residual=after res=nc8hw8", 29,
                 "residual.layout is 4 (nc8hw8), must be 1 (nchw) to 2 (nhwc)");
  expect_refused("ic3ih5oc3kh3 wei=nc16hw16", 14, "weights.layout is 5 (nc16hw16), must be 1 (nchw) to 2 (nhwc)");
  expect_refused("conv conv ic3ih5oc3kh3", 6, "'conv' is a second operator");
  expect_refused("nchw:nhcw ic3ih5oc3kh3", 6, "'nhcw' is no layout; known: nchw nhwc nc4hw4 nc8hw8 nc16hw16 any");
  expect_refused("ic3ih oc3kh3", 6, "ih needs a whole number here");
  expect_refused("ic3ih-5oc3kh3", 6, "ih needs a whole number here");
  expect_refused("ic3ih5oc99999999999999999999kh3", 9, "oc must be at most 2^56");
  expect_refused("ic3ic4", 4, "ic is given twice");
  expect_refused("ih5oc3kh3", 10, "ic is missing");
  expect_refused("ic3oc3", 7, "ih is missing");
  expect_refused("ic3oc3ih5 bias", 10, "kh is missing");
  expect_refused("ic3oc3id5kd3iw5kw3", 19, "ih is missing");
  expect_refused("ic3ih5oc3kh3n\"x", 14, "the name's second '\"' is missing");
  expect_refused("ic3ih5oc3kh3n\"x\"y", 17, "the name must be the end of the descriptor");
  expect_refused("g2ic4ih5oc3kh3", 1, "g is 2, must divide ic = 4 and oc = 3");
  expect_refused("ic4ih5oc3kh3sh0", 13, "sh is 0, must be at least 1");
  expect_refused("ic4ih56oc3oh20kh3ph1", 11, "oh is 20, must be 56");
  expect_refused("ic4ih56oc3oh560kh3ph1", 11, "oh is 560, must be 56");
  expect_refused("ic4ih56iw50oc3oh56ow49kh3kw3pw1ph1 pad_end=0x1x1", 19, "ow is 49, must be 50");
  expect_refused("conv_transposed ic3ih5oc4oh12kh3sh2ph1", 26, "oh is 12, must be 9");
  expect_refused("ic3ih5oc3kh9", 10,
                 "window.filter[1] is 9, must be at most 6: dst.size[3] would be -3, src.size[3] is 5, the filter with "
                 "its dilation spans 9, stride is 1, pads are 0 together");
  expect_refused("ic3ih5oc3kh3 act=rely", 18,
                 "'rely' is no act; known: identity relu clamp leaky_relu prelu sigmoid silu hard_sigmoid hard_swish "
                 "tanh gelu mish gelu_tanh gelu_sigmoid");
  expect_refused("ic3ih5oc3kh3 act=clamp:0", 25, "clamp takes 2 f32 numbers with : between");
  expect_refused("ic3ih5oc3kh3 act=clamp:6:0", 14,
                 "epilogue.activation_alpha is 6, must be at most epilogue.activation_beta = 0 for a clamp");
  expect_refused("ic3ih5oc3kh3 act=relu:6", 22, "act=relu must end here");
  expect_refused("ic3ih5oc3kh3 bias=1", 18, "bias takes no value");
  expect_refused("ic3ih5oc3kh3 residual", 22, "residual must be followed by = and its value");
  expect_refused("ic3ih5oc3kh3 residual=none", 23, "'none' is no residual; known: before after");
  expect_refused("ic3ih5oc3kh3 alpha=0", 20, "alpha is 0, must not be");
  expect_refused("ic3ih5oc3kh3 alpha=1e39", 20, "alpha takes 1 f32 number");
  expect_refused("ic3ih5oc3kh3 beta=2", 14,
                 "epilogue.beta is 2, must be 0 or 1 when epilogue.residual is QUERN_RESIDUAL_NONE");
  expect_refused("ic3ih5oc3kh3 bias bias", 19, "bias is given twice");
  expect_refused("ic3ih5oc3kh3 pad_end=1x1", 25, "pad_end takes 3 numbers with x between");
  expect_refused("ic3ih5oc3kh3 pad_end=1x1x1x1", 27, "pad_end must end here");
  expect_refused("ic3ih5oc3kh3 dst_stride=1x1x1x1x1", 14,
                 "dst.stride[3] is 1, must be at least 3, or elements of dst overlap");
  expect_refused("gemm ic3", 6, "MxK:KxN needs a whole number here");
  expect_refused("gemm 3x4", 9, "':' and the second matrix must follow, as in MxK:KxN");
  expect_refused("gemm 3x4:5x6", 10, "the second matrix has 5 rows, must have 4: MxK:KxN");
  expect_refused("gemm 2x3x4:2x4x6", 12, "the second matrix must be one for the whole batch: KxN");
  expect_refused("gemm 3x4:4x6:3x7", 14, "the result must be 1x3x6");
  expect_refused("gemm 3x4:4x6y", 13, "the descriptor must end here: [Bx]MxK:KxN[:[Bx]MxN]");
  quern_problem p;
  quern_error error;
  EXPECT_EQ(quern_problem_parse(nullptr, &p, &error), QUERN_INVALID);
  EXPECT_EQ(quern_problem_parse("ic3ih5oc3kh3", nullptr, &error), QUERN_INVALID);
  EXPECT_EQ(quern_problem_parse("ic3ih5oc3kh9", &p, nullptr), QUERN_INVALID);
}

TEST(problem_print, says_what_differs_from_the_defaults) {
  quern_problem p = quern_conv2d(QUERN_F32, QUERN_NHWC, 1, 64, 56, 56, 64, 3, 3);
  p.window.pad_begin[1] = p.window.pad_begin[2] = p.window.pad_end[1] = p.window.pad_end[2] = 1;
  EXPECT_EQ(printed(p), "conv f32 nhwc mb1ic64ih56oc64oh56kh3ph1");
  p.window.stride[1] = p.window.stride[2] = 2;
  EXPECT_EQ(printed(p), "conv f32 nhwc mb1ic64ih56oc64oh28kh3sh2ph1");
  p.epilogue.bias = 1;
  p.epilogue.activation = QUERN_LEAKY_RELU;
  p.epilogue.activation_alpha = 0.1f;
  p.window.pad_end[2] = 7;
  p.dst.layout = QUERN_NCHW;
  EXPECT_EQ(printed(p),
            "conv f32 nhwc:nchw mb1ic64ih56iw56oc64oh28ow31kh3kw3sh2sw2ph1pw1 bias act=leaky_relu:0.1 pad_end=0x1x7");
  EXPECT_EQ(printed(quern_gemm(QUERN_F32, 2, 3, 4)), "gemm f32 2x4:4x3");
  EXPECT_EQ(printed(quern_reorder(QUERN_F32, QUERN_NHWC, QUERN_NC4HW4, 1, 3, 5, 7)), "reorder f32 nhwc:nc4hw4 1x3x5x7");
  EXPECT_EQ(printed(parsed("reorder 2x3x4x5x6 accuracy=exact")), "reorder f32 nchw 2x3x4x5x6 accuracy=exact");
  p = quern_conv2d(QUERN_F32, QUERN_NC8HW8, 1, 3, 5, 5, 20, 3, 3);
  EXPECT_EQ(printed(p), "conv f32 nc8hw8 mb1ic3ih5oc20oh3kh3");
  p.dst.layout = QUERN_NC16HW16, p.dst.stride[0] = 480, p.dst.stride[1] = 144, p.dst.stride[2] = 144;
  p.dst.stride[3] = 48, p.dst.stride[4] = 16;
  EXPECT_EQ(printed(p), "conv f32 nc8hw8:nc16hw16 mb1ic3ih5oc20oh3kh3 dst_stride=480x144x144x48x16");
  p.dst.stride[0] = 288;
  EXPECT_EQ(printed(p), "conv f32 nc8hw8:nc16hw16 mb1ic3ih5oc20oh3kh3");
  p = quern_conv2d_transposed(QUERN_F64, QUERN_NCHW, 1, 8, 5, 5, 4, 3, 3);
  p.window.stride[1] = p.window.stride[2] = 2;
  for (int i = 1; i < 3; ++i) p.window.pad_begin[i] = p.window.pad_end[i] = p.window.output_padding[i] = 1;
  EXPECT_EQ(printed(p), "conv_transposed f64 nchw mb1ic8ih5oc4oh10kh3sh2ph1");
  EXPECT_EQ(printed(parsed("nhwc f16 ic8ih5oc4kh1")), "conv f16 nhwc mb1ic8ih5oc4oh5kh1");
  EXPECT_EQ(printed(quern_gemm(QUERN_BF16, 2, 3, 4)), "gemm bf16 2x4:4x3");
  EXPECT_EQ(printed(quern_gemm(QUERN_S8, 2, 3, 4)), "gemm s8 2x4:4x3");
  EXPECT_EQ(printed(parsed("s8:s8:s8 nhwc ic8ih5oc4kh1 accuracy=exact")), "conv s8 nhwc mb1ic8ih5oc4oh5kh1");
  for (const char* line : {"conv s8:s8:s32 nhwc mb1ic8ih5oc4oh5kh1", "conv e4m3 nhwc mb1ic8ih5oc4oh5kh1 accuracy=f32",
                           "gemm e4m3:e4m3:bf16 2x4:4x3 bias residual=after"})
    EXPECT_EQ(printed(parsed(line)), line);
}

TEST(problem_print, keeps_to_the_buffer) {
  const quern_problem p = quern_gemm(QUERN_F32, 2, 3, 4);
  const std::string whole = printed(p);
  for (size_t capacity = 0; capacity <= whole.size() + 1; ++capacity) {
    std::vector<char> out(capacity + 1, '?');
    size_t length = 0;
    quern_error error = {};
    const quern_status status = quern_problem_print(&p, out.data(), capacity, &length, &error);
    EXPECT_EQ(length, whole.size());
    EXPECT_EQ(out[capacity], '?');
    EXPECT_EQ(status, capacity > whole.size() ? QUERN_OK : QUERN_BUFFER);
    EXPECT_EQ(error.limit, status == QUERN_OK ? 0 : static_cast<int64_t>(whole.size() + 1));
  }
  EXPECT_EQ(quern_problem_print(&p, nullptr, 0, nullptr, nullptr), QUERN_BUFFER);
}

class random_problems {
 public:
  explicit random_problems(uint32_t seed) : random_(seed) {}

  // Usually valid.
  quern_problem next() {
    quern_problem p = {};
    switch (below(6)) {
      case 4:
      case 5: p = quern::test::random_friend(quern::test::random_friendly_op(random_), type(), random_); break;
      case 0: p = quern_gemm(type(), below(9), below(9), below(9)); break;
      case 3: return reorder();
      case 1:
        p = quern_conv2d(type(), layout(), below(4), 0, below(20), below(20), 0, 1 + below(5), 1 + below(5));
        break;
      default: p = quern_conv2d_transposed(type(), layout(), below(4), 0, below(9), below(9), 0, 1 + below(5), 1);
    }
    if (p.op == QUERN_GEMM) p.src.size[0] = 1 + below(3);
    if (quern::is_conv(p.op)) image(p);
    if (quern::multiplies(p.op)) {
      if (below(3) == 0) p.weights.layout = static_cast<quern_layout>(QUERN_NCHW + below(2));
      if (below(3) == 0) p.dst.layout = layout();
    }
    if (quern::is_norm(p.op) && below(2)) p.epsilon = std::abs(number()) + 1e-30f;
    epilogue(p);
    const quern_accuracy levels[] = {0, 0, QUERN_ACCURACY_EXACT, QUERN_ACCURACY_F32, QUERN_ACCURACY_F32_LOOSE};
    p.accuracy = levels[below(5)];
    if (quern_problem_complete(&p, &p, nullptr) == QUERN_OK) {
      for (quern_tensor* t : {&p.src, &p.weights, &p.dst, &p.residual}) {
        if (below(4) == 0 && t->type) t->stride[below(5)] += below(100);
        if (below(8) == 0 && t->type) t->stride[0] *= 3;
      }
    }
    return p;
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  quern_type type() { return below(2) ? QUERN_F32 : QUERN_F64; }
  quern_problem reorder() {
    quern_problem p = quern_reorder(type(), concrete(), concrete(), below(4), below(20), below(9), below(9));
    p.src.size[2] = below(3) ? 1 : below(4);
    return p;
  }

  quern_layout concrete() { return static_cast<quern_layout>(QUERN_NCHW + below(5)); }
  quern_layout layout() { return static_cast<quern_layout>(QUERN_NCHW + below(6)); }

  float number() {
    const uint32_t bits = random_();
    float f;
    std::memcpy(&f, &bits, sizeof f);
    return std::isnan(f) ? 0.5f : f;
  }

  void image(quern_problem& p) {
    const bool transposed = p.op == QUERN_CONV_TRANSPOSED;
    p.groups = 1 + below(3);
    const int64_t c = below(4), k = below(4);
    p.src.size[1] = c * p.groups;
    p.weights.size[0] = transposed ? c * p.groups : k * p.groups;
    p.weights.size[1] = transposed ? k : c;
    if (below(3) == 0) p.src.size[2] = below(6), p.weights.size[2] = 1 + below(3);
    const bool square = below(2);
    if (square) p.src.size[4] = p.src.size[3], p.weights.size[4] = p.weights.size[3];
    for (int i = 0; i < 3; ++i) {
      quern_window& w = p.window;
      if (i == 2 && square) {
        for (int64_t* v : {w.stride, w.dilation, w.pad_begin, w.pad_end, w.output_padding}) v[2] = v[1];
        continue;
      }
      if (i == 0 && p.weights.size[2] == 1 && below(2)) continue;
      w.stride[i] = 1 + below(3), w.dilation[i] = 1 + below(3);
      w.pad_begin[i] = below(4), w.pad_end[i] = below(3) ? w.pad_begin[i] : below(9);
      if (transposed) w.output_padding[i] = below(w.stride[i]);
    }
  }

  void epilogue(quern_problem& p) {
    quern_epilogue& e = p.epilogue;
    e.bias = static_cast<int32_t>(below(2)), e.scale = static_cast<int32_t>(below(2));
    e.residual = static_cast<int32_t>(below(3)), e.activation = static_cast<int32_t>(below(12));
    if (e.residual && below(3) == 0) p.residual.layout = layout();
    if (e.activation == QUERN_CLAMP || e.activation == QUERN_HARD_SIGMOID || e.activation == QUERN_LEAKY_RELU) {
      e.activation_alpha = number();
    }
    if (e.activation == QUERN_CLAMP) e.activation_beta = std::max(e.activation_alpha, number());
    if (e.activation == QUERN_HARD_SIGMOID) e.activation_beta = number();
    if (below(2)) e.alpha = number();
    if (e.residual && below(2)) e.beta = number();
  }

  std::mt19937 random_;
};

TEST(problem_text, round_trips) {
  const uint32_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  RecordProperty("seed", std::to_string(seed));
  random_problems problems(seed);
  int valid = 0;
  for (int i = 0; i < 20000; ++i) {
    quern_problem p = problems.next();
    if (quern_problem_complete(&p, &p, nullptr) != QUERN_OK) continue;
    ++valid;
    const std::string text = printed(p);
    ASSERT_TRUE(same(parsed(text), p)) << "seed " << seed << ": " << text << "\n" << printed(parsed(text));
  }
  EXPECT_GT(valid, 10000);
}

float float_of(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

void expect_float_round_trip(float f) {
  char text[24];
  quern::print_float(f, text);
  float back = 0;
  const char* end = quern::read_float(text, back);
  ASSERT_NE(end, nullptr) << text;
  ASSERT_EQ(*end, 0) << text;
  ASSERT_EQ(std::memcmp(&back, &f, sizeof f), 0) << text;
}

TEST(problem_text, floats_round_trip) {
  const uint32_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 200000; ++i) {
    const float f = float_of(random());
    if (!std::isnan(f)) expect_float_round_trip(f);
  }
  for (uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (uint32_t mantissa : {0u, 1u, 2u, 0x3fffffu, 0x400000u, 0x7ffffeu, 0x7fffffu}) {
      for (uint32_t sign : {0u, 1u}) {
        const float f = float_of(sign << 31 | exponent << 23 | mantissa);
        if (!std::isnan(f)) expect_float_round_trip(f);
      }
    }
  }
}

TEST(problem_text, floats_are_read_as_the_compiler_does) {
  const struct {
    const char* text;
    float value;
  } cases[] = {{"0.1", 0.1f},
               {"1e-45", 1e-45f},
               {"3.4028235e38", 3.4028235e38f},
               {"-.5", -.5f},
               {"16777217", 16777217.0f},
               {"0.30000000000000000000001", 0.3f},
               {"1.17549435e-38", 1.17549435e-38f},
               {"00012.5e+1", 125.0f},
               {"-0", -0.0f},
               {"1e-400", 0.0f},
               {"123456789012345678901234567890", 1.2345679e29f},
               {"inf", INFINITY},
               {"-inf", -INFINITY},
               {"0.000000000000000000000000001e27", 1.0f}};
  for (const auto& c : cases) {
    float value = 7;
    const char* end = quern::read_float(c.text, value);
    ASSERT_NE(end, nullptr) << c.text;
    EXPECT_EQ(*end, 0) << c.text;
    EXPECT_EQ(std::memcmp(&value, &c.value, sizeof value), 0) << c.text << " " << value;
  }
  for (const char* text :
       {"", "-", ".", "e5", "nan", "1e", "1e+", "3.4028236e38", "1e39", "x", " 1", "1e99999999999"}) {
    float value;
    EXPECT_EQ(quern::read_float(text, value), nullptr) << text;
  }
}

TEST(problem_text, does_not_depend_on_the_locale) {
  // Debian's minimal systems have no locale with a decimal comma; then there is nothing to see here.
  bool comma = false;
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "ps_AF.UTF-8"}) {
    comma = comma || (setlocale(LC_NUMERIC, name) && localeconv()->decimal_point[0] != '.');
  }
  if (!comma) GTEST_SKIP() << "no locale with another decimal point is installed";
  EXPECT_EQ(printed(parsed("ic3ih5oc3kh3 alpha=0.25")), "conv f32 nchw mb1ic3ih5oc3oh3kh3 alpha=0.25");
  setlocale(LC_NUMERIC, "C");
}

}  // namespace
