// SPDX-License-Identifier: MIT
//
// Writes the text form of problems, so that parsing it gives the same problem.
#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "error.h"
#include "problem.h"
#include "problem_text.h"

namespace quern {
const char* read_float(const char* s, float& value) {
  const bool negative = *s == '-';
  if (*s == '-' || *s == '+') ++s;
  if (strncmp(s, "inf", 3) == 0) {
    value = negative ? -__builtin_inff() : __builtin_inff();
    return s + 3;
  }
  uint64_t digits = 0;
  int exponent = 0;
  bool any = false, point = false;
  for (;; ++s) {
    if (*s == '.' && !point) {
      point = true;
    } else if (*s >= '0' && *s <= '9') {
      any = true;
      const bool room = digits < 100000000000000000;  // later digits can't be seen in a double
      if (room) digits = digits * 10 + static_cast<uint64_t>(*s - '0');
      exponent = std::clamp(exponent + !room - point, -100000, 100000);
    } else {
      break;
    }
  }
  if (!any) return nullptr;
  if (*s == 'e' || *s == 'E') {
    ++s;
    const bool less = *s == '-';
    if (*s == '-' || *s == '+') ++s;
    if (*s < '0' || *s > '9') return nullptr;
    int e = 0;
    for (; *s >= '0' && *s <= '9'; ++s) e = std::min(e * 10 + (*s - '0'), 100000);
    exponent += less ? -e : e;
  }
  double v = static_cast<double>(digits);
  for (; exponent > 0 && v > 0 && v < DBL_MAX / 10; --exponent) v *= 10;
  if (exponent > 0 && v > 0) return nullptr;
  // One division by an exact power of ten where there is one: 0.1 is the nearest double to 0.1.
  while (exponent < 0 && v > 0) {
    double power = 1;
    for (; exponent < 0 && power < 1e22; ++exponent) power *= 10;
    v /= power;
  }
  if (v >= 3.40282356779733661637e38) return nullptr;  // half an ulp above FLT_MAX
  value = static_cast<float>(negative ? -v : v);
  return s;
}

void print_float(float value, char out[24]) {
  if (value - value != 0) {
    memcpy(out, value > 0 ? "inf" : "-inf", value > 0 ? 4 : 5);
    return;
  }
  for (int precision = 1; precision <= 9; ++precision) {
    char local[40];
    snprintf(local, sizeof local, "%.*g", precision, static_cast<double>(value));
    // Whatever is neither digit, sign nor exponent is the locale's decimal point.
    size_t n = 0;
    for (const char* c = local; *c; ++c) {
      if ((*c >= '0' && *c <= '9') || *c == '-' || *c == '+' || *c == 'e') {
        out[n++] = *c;
      } else if (out[n - 1] != '.') {
        out[n++] = '.';
      }
    }
    out[n] = 0;
    float back = 0;
    if (read_float(out, back) && memcmp(&back, &value, sizeof value) == 0) return;
  }
}

namespace {

struct line {
  char text[2048];  // every number at its longest fits
  size_t length = 0;

  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    va_list list;
    va_start(list, format);
    const int n = vsnprintf(text + length, sizeof text - length, format, list);
    va_end(list);
    length += static_cast<size_t>(n);
  }

  void add(const char* key, int64_t value) { add("%s%lld", key, static_cast<long long>(value)); }

  void add_float(const char* before, float value) {
    char number[24];
    print_float(value, number);
    add("%s%s", before, number);
  }

  void add_list(const char* name, const int64_t* values, int count) {
    add(" %s=", name);
    for (int i = 0; i < count; ++i) add(i == 0 ? "" : "x", values[i]);
  }
};

text_axis axis_of(const quern_problem& p, int i) {
  const quern_window& w = p.window;
  return {p.src.size[2 + i], p.dst.size[2 + i], w.filter[i], w.stride[i], w.dilation[i], w.pad_begin[i]};
}

void print_conv(line& l, const quern_problem& p) {
  const text_axis axis[3] = {axis_of(p, 0), axis_of(p, 1), axis_of(p, 2)};
  const bool shown[3] = {!(axis[0] == text_axis{1, 1, 1, 1, 1, 0}), true, !(axis[1] == axis[2])};
  const auto add = [&](char key, int64_t text_axis::*field) {
    for (int i = 0; i < 3; ++i) {
      if (shown[i]) l.add("%c%c%lld", key, "dhw"[i], static_cast<long long>(axis[i].*field));
    }
  };
  if (p.groups != 1) l.add("g", p.groups);
  l.add("mb", p.src.size[0]);
  l.add("ic", p.src.size[1]);
  add('i', &text_axis::in);
  if (is_conv(p.op)) l.add("oc", p.dst.size[1]);
  add('o', &text_axis::out);
  add('k', &text_axis::filter);
  for (int i = 0; i < 3; ++i) {
    if (shown[i] && axis[i].stride != 1) l.add("s%c%lld", "dhw"[i], static_cast<long long>(axis[i].stride));
  }
  for (int i = 0; i < 3; ++i) {
    const int64_t pad = axis[i].pad;
    if (shown[i] && (pad != 0 || implied_pad(p.op, axis[i]) != 0)) {
      l.add("p%c%lld", "dhw"[i], static_cast<long long>(pad));
    }
  }
  for (int i = 0; i < 3; ++i) {
    if (shown[i] && axis[i].dilation != 1) l.add("d%c%lld", "dhw"[i], static_cast<long long>(axis[i].dilation - 1));
  }
}

// NxCx[Dx]HxW
void print_sizes(line& l, const quern_tensor& t) {
  for (int i = 0; i < 5; ++i)
    if (i != 2 || t.size[2] != 1) l.add(i == 0 ? "" : "x", t.size[i]);
}

void print_axes(line& l, const quern_problem& p) {
  if (!has_axes(p.op)) return;
  l.add(" axes=");
  for (int i = 0; i < 5; ++i)
    if (p.axes >> i & 1) l.add("%.1s", axis_letters + i);
  if (p.groups != 1) l.add(" groups=", p.groups);
  if (is_norm(p.op) && p.epsilon != 1e-5f) l.add_float(" eps=", p.epsilon);
}

void print_epilogue(line& l, const quern_problem& p) {
  const quern_epilogue& e = p.epilogue;
  if (e.bias) l.add(" bias");
  if (e.scale) l.add(" scale");
  if (e.residual) l.add(" residual=%s", name_of(residual_words, e.residual));
  if (e.residual && p.residual.layout != p.dst.layout) l.add(" res=%s", name_of(layout_words, p.residual.layout));
  if (e.activation) l.add(" act=%s", name_of(activation_words, e.activation));
  const bool usual = e.activation_alpha == 1.0f / 6 && e.activation_beta == 0.5f;
  if (e.activation == QUERN_CLAMP || (e.activation == QUERN_HARD_SIGMOID && !usual)) {
    l.add_float(":", e.activation_alpha);
    l.add_float(":", e.activation_beta);
  }
  if (e.activation == QUERN_LEAKY_RELU) l.add_float(":", e.activation_alpha);
  if (e.alpha != 1) l.add_float(" alpha=", e.alpha);
  if (e.beta != 1) l.add_float(" beta=", e.beta);
}

void print(line& l, const quern_problem& p) {
  l.add("%s %s", name_of(op_words, p.op), name_of(type_words, p.src.type));
  if (p.dst.type != p.src.type) l.add(":%s:%s", name_of(type_words, p.weights.type), name_of(type_words, p.dst.type));
  const bool gemm = p.op == QUERN_GEMM, same = p.dst.layout == p.src.layout;
  if (!gemm || !same || p.src.layout != QUERN_NCHW) l.add(" %s", name_of(layout_words, p.src.layout));
  if (!same) l.add(":%s", name_of(layout_words, p.dst.layout));
  l.add(" ");
  if (has_window(p.op)) {
    print_conv(l, p);
  } else if (gemm) {
    const bool batch = p.src.size[0] != 1;
    if (batch) l.add("", p.src.size[0]), l.add("x");
    l.add("", p.src.size[3]), l.add("x", p.src.size[4]);
    l.add(batch ? ":1x" : ":", p.weights.size[3]), l.add("x", p.weights.size[4]);
  } else {
    print_sizes(l, p.src);
    if (has_weights(p.op)) l.add(":"), print_sizes(l, p.weights);
  }
  print_axes(l, p);
  if (has_weights(p.op) && p.weights.layout != (is_elementwise(p.op) ? p.src.layout : QUERN_NCHW))
    l.add(" wei=%s", name_of(layout_words, p.weights.layout));
  print_epilogue(l, p);
  if (p.accuracy != default_accuracy(p.src.type)) l.add(" accuracy=%s", name_of(accuracy_words, p.accuracy));

  bool implied = true;
  for (int i = 0; i < 3 && has_window(p.op); ++i) {
    implied &= implied_ends(p.op, axis_of(p, i)) == text_ends{p.window.pad_end[i], p.window.output_padding[i]};
  }
  // output_padding follows from pad_end and the sizes.
  if (!implied) l.add_list("pad_end", p.window.pad_end, 3);

  for (int i = 0; i < 4; ++i) {
    const quern_tensor& t = p.*stride_tensors[i];
    int64_t dense[5];
    dense_strides(t.layout, t.size, dense);
    if (t.type != 0 && t.layout != QUERN_ANY && !std::equal(dense, dense + 5, t.stride))
      l.add_list(stride_words[i], t.stride, 5);
  }
}

}  // namespace
}  // namespace quern

using namespace quern;

extern "C" quern_status quern_problem_print(const quern_problem* problem, char* out, size_t capacity, size_t* length,
                                            quern_error* error) noexcept {
  quern_problem p;
  if (auto s = complete(problem, p, error)) return s;
  line l;
  print(l, p);
  if (length) *length = l.length;
  if (!out || l.length >= capacity) {
    return fail(error, QUERN_BUFFER, "capacity", static_cast<int64_t>(out ? capacity : 0),
                static_cast<int64_t>(l.length + 1), "capacity is %zu bytes, must be at least %zu", out ? capacity : 0,
                l.length + 1);
  }
  memcpy(out, l.text, l.length + 1);
  return QUERN_OK;
}
