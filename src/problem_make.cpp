// SPDX-License-Identifier: MIT
//
// The constructors of problems: what they are not told has the value that most have.
#include <quern/quern.h>

namespace quern {
namespace {

quern_problem problem_of(quern_op op, quern_type type, quern_layout layout) {
  quern_problem p = {};
  p.size = sizeof p;
  p.op = op;
  p.src.type = p.weights.type = type;
  p.src.layout = layout;
  p.weights.layout = QUERN_NCHW;
  for (int i = 0; i < 3; ++i) p.window.stride[i] = p.window.dilation[i] = 1;
  p.groups = 1;
  p.epilogue.alpha = p.epilogue.beta = 1;
  return p;
}

void set(int64_t size[5], int64_t a, int64_t b, int64_t c, int64_t d, int64_t e) {
  size[0] = a, size[1] = b, size[2] = c, size[3] = d, size[4] = e;
}

}  // namespace
}  // namespace quern

using namespace quern;

extern "C" quern_problem quern_conv2d(quern_type type, quern_layout layout, int64_t n, int64_t c, int64_t h, int64_t w,
                                      int64_t k, int64_t r, int64_t s) noexcept {
  quern_problem p = problem_of(QUERN_CONV, type, layout);
  set(p.src.size, n, c, 1, h, w);
  set(p.weights.size, k, c, 1, r, s);
  return p;
}

extern "C" quern_problem quern_conv2d_transposed(quern_type type, quern_layout layout, int64_t n, int64_t c, int64_t h,
                                                 int64_t w, int64_t k, int64_t r, int64_t s) noexcept {
  quern_problem p = problem_of(QUERN_CONV_TRANSPOSED, type, layout);
  set(p.src.size, n, c, 1, h, w);
  set(p.weights.size, c, k, 1, r, s);
  return p;
}

extern "C" quern_problem quern_gemm(quern_type type, int64_t m, int64_t n, int64_t k) noexcept {
  quern_problem p = problem_of(QUERN_GEMM, type, QUERN_NCHW);
  set(p.src.size, 1, 1, 1, m, k);
  set(p.weights.size, 1, 1, 1, k, n);
  return p;
}

extern "C" quern_problem quern_reorder(quern_type type, quern_layout src, quern_layout dst, int64_t n, int64_t c,
                                       int64_t h, int64_t w) noexcept {
  quern_problem p = problem_of(QUERN_REORDER, type, src);
  p.weights = {};
  p.dst.layout = dst;
  set(p.src.size, n, c, 1, h, w);
  return p;
}

extern "C" quern_problem quern_pool2d(quern_op op, quern_type type, quern_layout layout, int64_t n, int64_t c,
                                      int64_t h, int64_t w, int64_t r, int64_t s) noexcept {
  quern_problem p = problem_of(op, type, layout);
  p.weights = {};
  set(p.src.size, n, c, 1, h, w);
  p.window.filter[1] = r, p.window.filter[2] = s;
  return p;
}

extern "C" quern_problem quern_over_axes(quern_op op, quern_type type, quern_layout layout, int64_t n, int64_t c,
                                         int64_t h, int64_t w, int32_t axes) noexcept {
  quern_problem p = problem_of(op, type, layout);
  p.weights = {};
  p.axes = axes;
  set(p.src.size, n, c, 1, h, w);
  return p;
}

extern "C" quern_problem quern_elementwise(quern_op op, quern_type type, quern_layout layout, int64_t n, int64_t c,
                                           int64_t h, int64_t w) noexcept {
  quern_problem p = problem_of(op, type, layout);
  set(p.src.size, n, c, 1, h, w);
  p.weights = op == QUERN_UNARY ? quern_tensor{} : p.src;
  return p;
}
