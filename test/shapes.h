// SPDX-License-Identifier: MIT
//
// Shapes that tests walk through: convolutions written by what is unusual about them, and the sizes around
// the register tiles of this build's kernels.
#pragma once

#include <quern/quern.h>

#include <algorithm>
#include <vector>

#include "compare.h"
#include "geometry.h"
#include "problem_text.h"
#include "registry.h"

namespace quern::test {

// c and k are of one group.
struct shape {
  quern_op op = QUERN_CONV;
  int64_t n = 1, c = 1, k = 1, groups = 1;
  int64_t image[3] = {1, 1, 1}, filter[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
  int64_t begin[3] = {0, 0, 0}, end[3] = {0, 0, 0}, output_padding[3] = {0, 0, 0};
};

inline quern_problem problem_of(const shape& s, quern_layout src, quern_layout dst) {
  quern_problem p = quern_conv2d(QUERN_F32, src, s.n, s.c * s.groups, 1, 1, 1, 1, 1);
  p.op = s.op;
  p.groups = s.groups;
  p.dst.layout = dst;
  const bool transposed = s.op == QUERN_CONV_TRANSPOSED;
  p.weights.size[0] = transposed ? s.c * s.groups : s.k * s.groups;
  p.weights.size[1] = transposed ? s.k : s.c;
  for (int i = 0; i < 3; ++i) {
    p.src.size[2 + i] = s.image[i];
    p.weights.size[2 + i] = p.window.filter[i] = s.filter[i];
    p.window.stride[i] = s.stride[i], p.window.dilation[i] = s.dilation[i];
    p.window.pad_begin[i] = s.begin[i], p.window.pad_end[i] = s.end[i];
    p.window.output_padding[i] = s.output_padding[i];
  }
  return p;
}

// With every field that follows from others filled in.
inline quern_problem completed(quern_problem p) {
  quern_error error = {};
  EXPECT_EQ(quern_problem_complete(&p, &p, &error), QUERN_OK) << error.text;
  return p;
}

inline constexpr quern_layout layouts[] = {QUERN_NCHW, QUERN_NHWC};
inline constexpr quern_layout all_layouts[] = {QUERN_NCHW, QUERN_NHWC, QUERN_NC4HW4, QUERN_NC8HW8, QUERN_NC16HW16};

// A test of its own for each layout: what walks through many candidates ends in time on a slow machine too.
class of_layout : public testing::TestWithParam<quern_layout> {};
inline std::string layout_name(const testing::TestParamInfo<quern_layout>& info) {
  return name_of(layout_words, info.param);
}

// t - 1, t, t + 1 and 2 t + 1 for every tile of the rows, and the sizes where vectors begin and end.
inline std::vector<int64_t> edge_sizes() {
  std::vector<int64_t> list = {0, 1, 3, 7, 8, 9, 17, 33};
  for (size_t i = 0; i < kernel_count(); ++i)
    if (!kernel_at(i).image)  // a GPU's tiles are too large to walk around here
      for (int64_t t : {kernel_at(i).mr, kernel_at(i).nr})
        if (t > 0) list.insert(list.end(), {t - 1, t, t + 1, 2 * t + 1});
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

inline constexpr quern_op transposed = QUERN_CONV_TRANSPOSED;

inline const shape fixed_shapes[] = {
    {.n = 2, .c = 3, .k = 5, .image = {1, 9, 11}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}},
    {.c = 64, .k = 65, .image = {1, 3, 5}},
    {.c = 17, .k = 33, .image = {1, 8, 8}, .stride = {1, 2, 2}},
    {.c = 9, .k = 7, .image = {1, 1, 70}, .filter = {1, 1, 5}, .begin = {0, 0, 2}, .end = {0, 0, 2}},
    {.c = 5, .k = 4, .image = {4, 5, 6}, .filter = {3, 3, 3}, .begin = {1, 1, 1}, .end = {1, 1, 1}},
    // Sums longer than one block of k, or than one list of taps.
    {.c = 130, .k = 9, .image = {1, 6, 6}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}},
    {.c = 2100, .k = 3, .image = {1, 2, 3}},
    {.k = 2, .image = {1, 33, 35}, .filter = {1, 31, 31}, .begin = {0, 15, 15}, .end = {0, 15, 15}},
    {.c = 2, .k = 2, .groups = 2, .image = {1, 12, 12}, .filter = {1, 9, 9}, .begin = {0, 4, 4}, .end = {0, 4, 4}},
    // Filters larger than the image, padding larger than the filter, strides larger than the filter.
    {.c = 2, .k = 3, .image = {1, 2, 3}, .filter = {1, 5, 7}, .begin = {0, 4, 6}, .end = {0, 4, 6}},
    {.c = 2, .k = 3, .image = {1, 4, 4}, .filter = {1, 2, 2}, .begin = {0, 6, 5}, .end = {0, 7, 4}},
    {.c = 3, .k = 4, .image = {1, 17, 19}, .filter = {1, 2, 2}, .stride = {1, 5, 4}, .begin = {0, 1, 0}},
    {.c = 3, .k = 4, .image = {1, 1, 1}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}},
    // Every other tap beside a narrow image.
    {.c = 4,
     .k = 8,
     .image = {1, 3, 3},
     .filter = {1, 3, 3},
     .dilation = {1, 5, 4},
     .begin = {0, 5, 5},
     .end = {0, 6, 5}},
    {.c = 1, .k = 1, .groups = 19, .image = {1, 7, 7}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}},
    {.k = 3, .groups = 13, .image = {1, 9, 16}, .filter = {1, 3, 5}, .begin = {0, 1, 2}, .end = {0, 1, 2}},
    {.n = 2,
     .groups = 37,
     .image = {1, 16, 40},
     .filter = {1, 3, 3},
     .stride = {1, 2, 2},
     .dilation = {1, 3, 2},
     .begin = {0, 3, 2},
     .end = {0, 3, 2}},
    {.groups = 21,
     .image = {1, 20, 34},
     .filter = {1, 5, 5},
     .stride = {1, 2, 2},
     .begin = {0, 2, 2},
     .end = {0, 2, 1}},
    {.k = 2,
     .groups = 17,
     .image = {3, 5, 8},
     .filter = {2, 3, 4},
     .stride = {1, 1, 3},
     .dilation = {2, 1, 4},
     .begin = {2, 1, 6},
     .end = {1, 1, 9}},
    // Axes that are only walked, in front of the filter's and behind it.
    {.n = 2, .groups = 18, .image = {6, 3, 5}, .filter = {3, 1, 1}, .begin = {1, 0, 0}, .end = {1, 0, 0}},
    {.c = 6, .k = 10, .image = {5, 3, 4}, .filter = {3, 1, 1}, .stride = {2, 1, 1}, .begin = {1, 0, 0}},
    {.c = 5, .k = 9, .groups = 2, .image = {4, 3, 9}, .filter = {1, 1, 3}, .begin = {0, 0, 1}, .end = {0, 0, 1}},
    // Several groups in a vector: more outputs than inputs, fewer, a vector that they do not fill.
    {.c = 2, .k = 4, .groups = 13, .image = {1, 5, 16}, .filter = {1, 3, 3}, .begin = {0, 1, 1}, .end = {0, 1, 1}},
    {.c = 4, .k = 1, .groups = 11, .image = {1, 6, 9}, .filter = {1, 2, 5}, .stride = {1, 1, 2}, .end = {0, 1, 0}},
    {.c = 3, .k = 3, .groups = 12, .image = {1, 4, 23}, .filter = {1, 1, 3}, .begin = {0, 0, 2}, .end = {0, 0, 1}},
    {.c = 3, .k = 4, .image = {3, 4, 5}},
    // Few lines, of which the outer ones and the outer columns miss some of the 961 taps that each output costs.
    {.groups = 9, .image = {1, 31, 59}, .filter = {1, 31, 31}, .begin = {0, 1, 3}, .end = {0, 1, 3}},
    {.op = QUERN_CONV_TRANSPOSED,
     .k = 2,
     .groups = 18,
     .image = {1, 5, 17},
     .filter = {1, 4, 4},
     .stride = {1, 2, 2},
     .begin = {0, 1, 1},
     .end = {0, 1, 1}},
    {.op = QUERN_CONV_TRANSPOSED, .groups = 35, .image = {1, 7, 18}, .filter = {1, 3, 3}, .begin = {0, 1, 1}},
    {.n = 3,
     .c = 4,
     .k = 6,
     .groups = 3,
     .image = {1, 6, 7},
     .filter = {1, 3, 2},
     .stride = {1, 1, 2},
     .end = {0, 2, 1}},
    {.op = transposed,
     .c = 5,
     .k = 3,
     .image = {1, 6, 7},
     .filter = {1, 4, 4},
     .stride = {1, 2, 2},
     .begin = {0, 3, 3},
     .end = {0, 3, 3}},
    {.op = transposed, .c = 20, .k = 33, .image = {1, 4, 5}, .filter = {1, 3, 3}},
    {.op = transposed,
     .n = 2,
     .c = 3,
     .k = 4,
     .image = {1, 5, 5},
     .filter = {1, 2, 3},
     .stride = {1, 3, 4},
     .output_padding = {0, 2, 3}},
    {.op = transposed,
     .c = 3,
     .k = 4,
     .groups = 2,
     .image = {2, 3, 4},
     .filter = {2, 3, 3},
     .stride = {2, 2, 3},
     .dilation = {1, 2, 3},
     .begin = {0, 1, 2}},
    {.op = transposed,
     .c = 150,
     .k = 5,
     .image = {1, 3, 4},
     .filter = {1, 4, 4},
     .stride = {1, 2, 1},
     .begin = {0, 1, 1},
     .end = {0, 1, 1}},
    // Fewer outputs than phases: some taps take part in none.
    {.op = transposed,
     .c = 3,
     .k = 2,
     .image = {1, 1, 1},
     .filter = {1, 3, 3},
     .stride = {1, 4, 4},
     .begin = {0, 1, 1},
     .end = {0, 1, 0}},
    // Strides larger than the filter: phases without taps, after the last of the weights.
    {.op = transposed,
     .groups = 16,
     .image = {2, 9, 17},
     .filter = {1, 3, 3},
     .stride = {3, 1, 1},
     .begin = {0, 1, 1},
     .end = {0, 1, 1},
     .output_padding = {2, 0, 0}},
    {.op = transposed,
     .groups = 32,
     .image = {1, 4, 18},
     .filter = {1, 2, 3},
     .stride = {1, 3, 5},
     .output_padding = {0, 2, 4}},
};

// Without images, channels, outputs or columns, or several of those: what costs and blocks may not divide by.
inline std::vector<quern_problem> problems_of_nothing() {
  std::vector<quern_problem> list;
  for (const shape& some : fixed_shapes)
    for (int nothing = 1; nothing < 16; ++nothing) {
      shape s = some;
      if (nothing & 1) s.n = 0;
      if (nothing & 2) s.c = 0;
      if (nothing & 4) s.k = 0;
      if (nothing & 8) s.image[2] = 0;
      quern_problem p = problem_of(s, QUERN_NHWC, QUERN_NHWC);
      if (quern_problem_complete(&p, &p, nullptr) == QUERN_OK) list.push_back(p);
    }
  return list;
}

// Ends with every piecewise linear epilogue, whose results are exact on small integers.
inline void set_epilogue(quern_problem& p, int which) {
  quern_epilogue& e = p.epilogue;
  e.bias = which & 1;
  e.scale = which >> 1 & 1;
  e.residual = which / 4 % 3;
  constexpr quern_activation activations[] = {QUERN_IDENTITY,   QUERN_RELU,  QUERN_CLAMP,
                                              QUERN_LEAKY_RELU, QUERN_PRELU, QUERN_HARD_SIGMOID};
  e.activation = activations[which % 6];
  if (e.activation == QUERN_CLAMP) e.activation_alpha = -3, e.activation_beta = 20;
  if (e.activation == QUERN_LEAKY_RELU) e.activation_alpha = 0.5f;
  if (e.activation == QUERN_HARD_SIGMOID) e.activation_alpha = 0.125f, e.activation_beta = 0.5f;
  if (which % 5 == 4) e.alpha = -2;
  if (e.residual && which % 7 == 3) e.beta = 0.5f;
}

}  // namespace quern::test
