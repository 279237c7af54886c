// SPDX-License-Identifier: MIT
//
// Reads the text form of problems.  The grammar is docs/text.md; the descriptor's language is that of
// benchdnn, oneDNN's benchmark driver.
#include "problem_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <iterator>

#include "error.h"
#include "problem.h"

namespace quern {
namespace {

constexpr int64_t max_number = int64_t{1} << 56;  // no field may pass it; complete() knows the exact limits

// Words after the descriptor, but those of strides.
enum tail_word {
  BIAS,
  SCALE,
  RESIDUAL,
  ACT,
  ALPHA,
  BETA,
  ACCURACY,
  WEI,
  RES,
  PAD_END,
  OUTPUT_PADDING,
  AXES,
  GROUPS,
  EPS,
  STRIDE
};
constexpr int tail_words = STRIDE + 4;
constexpr const char* tail_names[tail_words] = {
    "bias",     "scale", "residual",      "act",           "alpha",          "beta",
    "accuracy", "wei",   "res",           "pad_end",       "output_padding", "axes",
    "groups",   "eps",   stride_words[0], stride_words[1], stride_words[2],  stride_words[3]};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return c >= 'a' && c <= 'z'; }

struct piece {
  const char *begin, *end;
  bool is(const char* s) const { return strlen(s) == size() && memcmp(s, begin, size()) == 0; }
  size_t size() const { return static_cast<size_t>(end - begin); }
};

// Where a word stands is how an error finds its column; NULL: not given.
struct reader {
  const char* text;
  quern_error* error;
  const char* at;
  quern_problem p;
  bool has_type, has_layout, has_op;
  const char* type_at;
  const char* layout_at;
  const char* descriptor_at;
  const char* descriptor_end;
  descriptor d;
  const char* word_at[tail_words];

  [[gnu::format(printf, 4, 5)]] quern_status fail_at(const char* where, const char* field, const char* format, ...) {
    if (!error) return QUERN_INVALID;
    char sentence[sizeof error->text];
    va_list list;
    va_start(list, format);
    vsnprintf(sentence, sizeof sentence, format, list);
    va_end(list);
    const int64_t column = where - text + 1;
    return fail(error, QUERN_INVALID, field, column, 0, "column %lld: %.400s", static_cast<long long>(column),
                sentence);
  }

  // A piece of the line, short and printable, for a sentence.
  struct quoted {
    char s[40];
    explicit quoted(piece w) {
      size_t n = 0;
      for (; n < w.size() && n < sizeof s - 1; ++n) s[n] = w.begin[n] < ' ' || w.begin[n] > '~' ? '?' : w.begin[n];
      s[n] = 0;
    }
  };

  template <size_t N>
  const word* find(const word (&words)[N], piece w) {
    for (const word& i : words) {
      if (w.is(i.name)) return &i;
    }
    return nullptr;
  }

  template <size_t Size, size_t N>
  static void add_names(char (&known)[Size], const word (&words)[N]) {
    for (const word& i : words) {
      const size_t length = strlen(known);
      snprintf(known + length, Size - length, " %s", i.name);
    }
  }

  template <size_t N>
  quern_status no_such(const char* field, piece w, const word (&words)[N]) {
    char known[200] = "";
    add_names(known, words);
    return fail_at(w.begin, field, "'%s' is no %s; known:%s", quoted(w).s, field, known);
  }

  // The next word; empty at the end of the line or where a comment begins.
  piece next() {
    while (is_space(*at)) ++at;
    const char* begin = at;
    if (*at == '#') return {at, at};
    while (*at && !is_space(*at)) ++at;
    return {begin, at};
  }

  quern_status number(const char*& s, const char* field, int64_t& out) {
    const char* begin = s;
    if (!is_digit(*s)) return fail_at(s, field, "%s needs a whole number here", field);
    out = 0;
    for (; is_digit(*s); ++s) {
      out = out * 10 + (*s - '0');
      if (out > max_number) return fail_at(begin, field, "%s must be at most 2^56", field);
    }
    return QUERN_OK;
  }

  // count numbers with x between.
  quern_status numbers(const char*& s, const char* field, int64_t* out, int count) {
    for (int i = 0; i < count; ++i) {
      if (i > 0 && *s++ != 'x') return fail_at(s - 1, field, "%s takes %d numbers with x between", field, count);
      if (auto status = number(s, field, out[i])) return status;
    }
    return QUERN_OK;
  }

  quern_status layout(piece w, const char* field, quern_layout& out) {
    const word* found = find(layout_words, w);
    if (!found) return no_such(field, w, layout_words);
    out = found->value;
    return QUERN_OK;
  }

  // WEIGHTS:DST
  quern_status other_types(piece w) {
    const char* colon = std::find(w.begin, w.end, ':');
    if (colon == w.end) return fail_at(w.end, "type", "':' and the type of dst must follow, as in SRC:WEIGHTS:DST");
    const piece parts[] = {{w.begin, colon}, {colon + 1, w.end}};
    quern_tensor* const tensors[] = {&p.weights, &p.dst};
    for (int i = 0; i < 2; ++i) {
      const word* found = find(type_words, parts[i]);
      if (!found) return no_such("type", parts[i], type_words);
      tensors[i]->type = found->value;
    }
    return QUERN_OK;
  }

  // True when w is one of the words before the descriptor.
  bool head_word(piece w, quern_status& status) {
    const auto once = [&](bool& has, const char* field) {
      if (has) status = fail_at(w.begin, field, "'%s' is a second %s", quoted(w).s, field);
      has = true;
    };
    if (const word* op = find(op_words, w)) {
      once(has_op, "operator");
      p.op = op->value;
      return true;
    }
    const char* colon = std::find(w.begin, w.end, ':');
    if (const word* src = find(type_words, {w.begin, colon})) {
      once(has_type, "type");
      type_at = w.begin;
      p.src.type = p.weights.type = src->value;
      if (status == QUERN_OK && colon != w.end) status = other_types({colon + 1, w.end});
      return true;
    }
    if (const word* src = find(layout_words, {w.begin, colon})) {
      once(has_layout, "layout");
      layout_at = w.begin;
      p.src.layout = src->value;
      if (status == QUERN_OK && colon != w.end) status = layout({colon + 1, w.end}, "layout", p.dst.layout);
      return true;
    }
    return false;
  }

  // n"name": any name, which is no part of the problem.
  quern_status name() {
    if (at[1] == '"') {
      const char* quote = at + 1;
      for (at += 2; *at && *at != '"'; ++at) {
      }
      if (!*at) return fail_at(quote, "name", "the name's second '\"' is missing");
      ++at;
      if (*at && !is_space(*at)) return fail_at(at, "name", "the name must be the end of the descriptor");
    } else {
      while (*at && !is_space(*at)) ++at;
    }
    return QUERN_OK;
  }

  quern_status window_keys() {
    while (*at && !is_space(*at)) {
      if (*at == '_') {
        ++at;
        continue;
      }
      if (*at == 'n' && at != descriptor_at) return name();
      piece w = {at, at};
      while (is_letter(*w.end)) ++w.end;
      if (w.size() == 0) ++w.end;
      const auto* found = std::find_if(key_names, key_names + KEYS, [&](const char* k) { return w.is(k); });
      if (found == key_names + KEYS && at == descriptor_at) {
        while (*w.end && !is_space(*w.end)) ++w.end;
        char known[330] = "";
        add_names(known, op_words), add_names(known, type_words), add_names(known, layout_words);
        return fail_at(at, "descriptor", "'%s' is no operator, type, layout or descriptor; known:%s", quoted(w).s,
                       known);
      }
      if (found == key_names + KEYS) {
        return fail_at(
            at, "descriptor",
            "'%s' is no key; known: g mb ic id ih iw oc od oh ow kd kh kw sd sh sw pd ph pw dd dh dw n\"name\"",
            quoted(w).s);
      }
      const auto k = found - key_names;
      if (d.at[k]) return fail_at(at, *found, "%s is given twice", *found);
      d.at[k] = at;
      at = w.end;
      if (auto s = number(at, *found, d.value[k])) return s;
    }
    return QUERN_OK;
  }

  // [Bx]MxK:[1x]KxN[:[Bx]MxN]
  quern_status gemm_sizes() {
    int64_t size[3][3];
    const char* begin[3];
    int matrices = 0;
    for (;; ++at) {
      int64_t* s = size[matrices];
      begin[matrices] = at;
      s[0] = 1;
      if (auto status = numbers(at, "MxK:KxN", s + 1, 2)) return status;
      if (*at == 'x') {
        ++at;
        s[0] = s[1], s[1] = s[2];
        if (auto status = number(at, "MxK:KxN", s[2])) return status;
      }
      if (++matrices == 3 || *at != ':') break;
    }
    if (matrices < 2) return fail_at(at, "descriptor", "':' and the second matrix must follow, as in MxK:KxN");
    while (*at == '_') ++at;
    if (*at == 'n') {
      if (auto s = name()) return s;
    }
    if (*at && !is_space(*at)) return fail_at(at, "descriptor", "the descriptor must end here: [Bx]MxK:KxN[:[Bx]MxN]");
    const int64_t *a = size[0], *b = size[1], *c = size[2];
    if (b[0] != 1) return fail_at(begin[1], "descriptor", "the second matrix must be one for the whole batch: KxN");
    if (a[2] != b[1]) {
      return fail_at(begin[1], "descriptor", "the second matrix has %lld rows, must have %lld: MxK:KxN",
                     static_cast<long long>(b[1]), static_cast<long long>(a[2]));
    }
    if (matrices == 3 && (c[0] != a[0] || c[1] != a[1] || c[2] != b[2])) {
      return fail_at(begin[2], "descriptor", "the result must be %lldx%lldx%lld", static_cast<long long>(a[0]),
                     static_cast<long long>(a[1]), static_cast<long long>(b[2]));
    }
    const int64_t src[5] = {a[0], 1, 1, a[1], a[2]}, weights[5] = {1, 1, 1, b[1], b[2]};
    std::copy_n(src, 5, p.src.size);
    std::copy_n(weights, 5, p.weights.size);
    return QUERN_OK;
  }

  // NxCx[Dx]HxW
  quern_status sizes(quern_tensor& t) {
    int64_t size[5];
    int count = 0;
    for (;; ++at) {
      if (auto status = number(at, "NxCxHxW", size[count])) return status;
      if (++count == 5 || *at != 'x') break;
    }
    if (count < 4) return fail_at(at, "descriptor", "'x' and another size must follow, as in NxCx[Dx]HxW");
    std::copy_n(size, 2, t.size);
    t.size[2] = count == 5 ? size[2] : 1;
    std::copy_n(size + count - 2, 2, t.size + 3);
    return QUERN_OK;
  }

  // NxCx[Dx]HxW, and of operators with two operands another behind a colon.
  quern_status element_sizes() {
    if (auto s = sizes(p.src)) return s;
    const bool two = has_weights(p.op);
    if (two) {
      if (*at != ':') return fail_at(at, "descriptor", "':' and the second operand's sizes must follow");
      ++at;
      p.weights.type = p.src.type, p.weights.layout = p.src.layout;
      if (auto s = sizes(p.weights)) return s;
    }
    while (*at == '_') ++at;
    if (*at == 'n') {
      if (auto s = name()) return s;
    }
    if (*at && !is_space(*at))
      return fail_at(at, "descriptor", "the descriptor must end here: NxCx[Dx]HxW%s", two ? ":NxCx[Dx]HxW" : "");
    return QUERN_OK;
  }

  quern_status floats(const char*& s, const char* field, float* out, int count) {
    for (int i = 0; i < count; ++i) {
      const char* end = nullptr;
      if (i == 0) end = read_float(s, out[i]);
      if (i > 0 && *s == ':') end = read_float(++s, out[i]);
      if (!end)
        return fail_at(s, field, "%s takes %d f32 number%s", field, count, count == 1 ? "" : "s with : between");
      s = end;
    }
    return QUERN_OK;
  }

  quern_status activation(piece w) {
    const char* colon = std::find(w.begin, w.end, ':');
    const word* found = find(activation_words, {w.begin, colon});
    if (!found) return no_such("act", {w.begin, colon}, activation_words);
    p.epilogue.activation = found->value;
    int count = 0;
    if (found->value == QUERN_CLAMP || (found->value == QUERN_HARD_SIGMOID && colon != w.end)) count = 2;
    if (found->value == QUERN_LEAKY_RELU) count = 1;
    const char* s = colon;
    if (count > 0) {
      float parameter[2] = {0, 0};
      if (s != w.end) ++s;
      if (auto status = floats(s, found->name, parameter, count)) return status;
      p.epilogue.activation_alpha = parameter[0], p.epilogue.activation_beta = parameter[1];
    }
    if (s != w.end) return fail_at(s, "act", "act=%s must end here", found->name);
    return QUERN_OK;
  }

  quern_status axes(const char*& s, const char* field) {
    for (; is_letter(*s); ++s) {
      const char* letter = strchr(axis_letters, *s);
      if (!letter) return fail_at(s, field, "'%c' is no axis; known: n c d h w", *s);
      const int32_t bit = 1 << (letter - axis_letters);
      if (p.axes & bit) return fail_at(s, field, "axis %c is given twice", *s);
      p.axes |= bit;
    }
    return QUERN_OK;
  }

  quern_status factor(const char*& s, const char* field, float& out) {
    const char* begin = s;
    if (auto status = floats(s, field, &out, 1)) return status;
    // In the struct 0 stands for the default, so this would silently become 1.
    if (out == 0) return fail_at(begin, field, "%s is 0, must not be", field);
    return QUERN_OK;
  }

  quern_status tail(piece w) {
    const char* equals = std::find(w.begin, w.end, '=');
    const piece head = {w.begin, equals};
    const auto* found = std::find_if(tail_names, tail_names + tail_words, [&](const char* t) { return head.is(t); });
    if (found == tail_names + tail_words) {
      return fail_at(w.begin, "words",
                     "'%s' is no word here; known: bias scale residual= act= alpha= beta= accuracy= wei= res= pad_end= "
                     "output_padding= axes= groups= eps= src_stride= wei_stride= dst_stride= res_stride=",
                     quoted(head).s);
    }
    const char* field = *found;
    const auto id = static_cast<int>(found - tail_names);
    if (word_at[id]) return fail_at(w.begin, field, "%s is given twice", field);
    word_at[id] = w.begin;
    const bool flag = id == BIAS || id == SCALE;
    if (flag != (equals == w.end)) {
      return fail_at(equals, field, flag ? "%s takes no value" : "%s must be followed by = and its value", field);
    }
    const char* s = flag ? equals : equals + 1;
    quern_status status = QUERN_OK;
    switch (id) {
      case BIAS: p.epilogue.bias = 1; return QUERN_OK;
      case SCALE: p.epilogue.scale = 1; return QUERN_OK;
      case RESIDUAL:
        if (const word* r = find(residual_words, {s, w.end})) {
          p.epilogue.residual = r->value;
          return QUERN_OK;
        }
        return no_such(field, {s, w.end}, residual_words);
      case ACCURACY:
        if (const word* a = find(accuracy_words, {s, w.end})) {
          p.accuracy = a->value;
          return QUERN_OK;
        }
        return no_such(field, {s, w.end}, accuracy_words);
      case ACT: return activation({s, w.end});
      case WEI: return layout({s, w.end}, field, p.weights.layout);
      case RES: return layout({s, w.end}, field, p.residual.layout);
      case ALPHA: status = factor(s, field, p.epilogue.alpha); break;
      case BETA: status = factor(s, field, p.epilogue.beta); break;
      case AXES: status = axes(s, field); break;
      case GROUPS:
        status = number(s, field, p.groups);
        if (p.groups == 0) return fail_at(equals + 1, field, "groups is 0, must be at least 1");
        break;
      case EPS: status = factor(s, field, p.epsilon); break;
      case PAD_END: status = numbers(s, field, p.window.pad_end, 3); break;
      case OUTPUT_PADDING: status = numbers(s, field, p.window.output_padding, 3); break;
      default: status = numbers(s, field, (p.*stride_tensors[id - STRIDE]).stride, 5);
    }
    if (status != QUERN_OK) return status;
    if (s != w.end) return fail_at(s, field, "%s must end here", field);
    return QUERN_OK;
  }

  quern_status settle_ends(int i) {
    const text_axis s = d.axis(i);
    text_ends e = {p.window.pad_end[i], p.window.output_padding[i]};
    const bool has_end = word_at[PAD_END], has_output_padding = word_at[OUTPUT_PADDING], has_out = d.at[O + i];
    const bool transposed = p.op == QUERN_CONV_TRANSPOSED;
    if (!has_end) e.pad = s.pad;
    const int64_t usual = out_size(p.op, s, e);
    if (has_out && s.out != usual) {
      if (!has_end && !(transposed && has_output_padding)) {
        e = implied_ends(p.op, s);
      } else if (!has_end) {
        e.pad = std::max<int64_t>(0, e.pad + usual - s.out);
      } else if (transposed && !has_output_padding) {
        e.output_padding = std::clamp<int64_t>(s.out - usual, 0, s.stride - 1);
      }
      if (out_size(p.op, s, e) != s.out) {
        const char* name = key_names[O + i];
        return fail_at(d.at[O + i], name, "%s is %lld, must be %lld", name, static_cast<long long>(s.out),
                       static_cast<long long>(usual));
      }
    }
    p.window.pad_end[i] = e.pad, p.window.output_padding[i] = e.output_padding;
    return QUERN_OK;
  }

  quern_status window_sizes() {
    if (word_at[GROUPS]) return fail_at(word_at[GROUPS], "groups", "groups= is no word of %s", name_of(op_words, p.op));
    if (is_pooling(p.op) && d.at[OC]) return fail_at(d.at[OC], "oc", "oc is no key of %s", name_of(op_words, p.op));
    if (const int missing = d.settle(p.op); missing != KEYS) {
      return fail_at(descriptor_end, key_names[missing], "%s is missing", key_names[missing]);
    }
    const bool transposed = p.op == QUERN_CONV_TRANSPOSED;
    const int64_t groups = d.value[G];
    if (groups == 0) return fail_at(d.at[G], "g", "g is 0, must be at least 1");
    const int64_t c = d.value[IC], k = is_pooling(p.op) ? c : d.value[OC];
    if (c % groups || k % groups) {
      return fail_at(d.at[G], "g", "g is %lld, must divide ic = %lld and oc = %lld", static_cast<long long>(groups),
                     static_cast<long long>(c), static_cast<long long>(k));
    }
    p.groups = groups;
    p.src.size[0] = d.value[MB], p.src.size[1] = c;
    if (is_conv(p.op)) p.weights.size[0] = transposed ? c : k, p.weights.size[1] = (transposed ? k : c) / groups;
    std::copy_n(d.value + K, 3, is_conv(p.op) ? p.weights.size + 2 : p.window.filter);
    for (int i = 0; i < 3; ++i) {
      if (is_pooling(p.op) && d.value[K + i] == 0)
        return fail_at(d.at[K + i], key_names[K + i], "%s is 0, must be at least 1", key_names[K + i]);
      p.src.size[2 + i] = d.value[I + i];
      p.window.stride[i] = d.value[S + i], p.window.pad_begin[i] = d.value[P + i],
      p.window.dilation[i] = d.value[D + i] + 1;
      if (d.value[S + i] == 0)
        return fail_at(d.at[S + i], key_names[S + i], "%s is 0, must be at least 1", key_names[S + i]);
      if (auto s = settle_ends(i)) return s;
    }
    return QUERN_OK;
  }

  // Where the line says what complete() calls `field`; the descriptor where that is not known.
  const char* place(const char* field) const {
    const bool transposed = p.op == QUERN_CONV_TRANSPOSED;
    const int index = strchr(field, '[') ? strchr(field, '[')[1] - '0' : 0;
    const piece base = {field, strchr(field, '[') ? strchr(field, '[') : field + strlen(field)};
    const int weights[] = {transposed ? IC : OC, transposed ? OC : IC};
    const struct {
      const char* field;
      const char* where;
    } places[] = {{"groups", d.at[G]},
                  {"groups", word_at[GROUPS]},
                  {"axes", word_at[AXES]},
                  {"epsilon", word_at[EPS]},
                  {"src.type", type_at},
                  {"weights.type", type_at},
                  {"dst.type", type_at},
                  {"src.layout", layout_at},
                  {"dst.layout", layout_at},
                  {"weights.layout", word_at[WEI]},
                  {"weights", word_at[WEI] ? word_at[WEI] : word_at[STRIDE + 1]},
                  {"epilogue.bias", word_at[BIAS]},
                  {"epilogue.scale", word_at[SCALE]},
                  {"epilogue.residual", word_at[RESIDUAL]},
                  {"epilogue.activation", word_at[ACT]},
                  {"epilogue.alpha", word_at[ALPHA]},
                  {"residual.layout", word_at[RES]},
                  {"src.size", d.at[index < 2 ? MB + index : I + index - 2]},
                  {"weights.size", d.at[index < 2 ? weights[index] : K + index - 2]},
                  {"dst.size", d.at[index == 0 ? MB : OC + index - 1]},
                  {"window.filter", d.at[K + index % 3]},
                  {"window.stride", d.at[S + index % 3]},
                  {"window.dilation", d.at[D + index % 3]},
                  {"window.pad_begin", d.at[P + index % 3]},
                  {"window.pad_end", word_at[PAD_END]},
                  {"window.output_padding", word_at[OUTPUT_PADDING]},
                  {"src.stride", word_at[STRIDE]},
                  {"weights.stride", word_at[STRIDE + 1]},
                  {"dst.stride", word_at[STRIDE + 2]},
                  {"residual.stride", word_at[STRIDE + 3]},
                  {"residual", word_at[RES] ? word_at[RES] : word_at[STRIDE + 3]},
                  {"epilogue.activation_alpha", word_at[ACT]},
                  {"epilogue.activation_beta", word_at[ACT]},
                  {"epilogue.beta", word_at[BETA]}};
    for (const auto& i : places) {
      if (base.is(i.field) && i.where) return i.where;
    }
    return descriptor_at;
  }

  quern_status line() {
    quern_status status = QUERN_OK;
    piece w;
    while (head_word(w = next(), status)) {
      if (status != QUERN_OK) return status;
    }
    descriptor_at = at = w.begin;
    if (w.size() == 0) return fail_at(at, "descriptor", "a descriptor such as ic64ih56oc64kh3ph1 must follow");
    const bool window = has_window(p.op);
    if (auto s = window ? window_keys() : p.op == QUERN_GEMM ? gemm_sizes() : element_sizes()) return s;
    descriptor_end = at;
    if (!has_weights(p.op)) p.weights = {};
    for (w = next(); w.size() > 0; w = next()) {
      if (auto s = tail(w)) return s;
    }
    if (window) {
      if (auto s = window_sizes()) return s;
    }
    quern_problem whole;
    quern_error why;
    if (complete(&p, whole, &why) != QUERN_OK) return fail_at(place(why.field), why.field, "%s", why.text);
    return QUERN_OK;
  }
};

}  // namespace
}  // namespace quern

using namespace quern;

extern "C" quern_status quern_problem_parse(const char* text, quern_problem* out, quern_error* error) noexcept {
  if (!text) return fail(error, QUERN_INVALID, "text", 0, 0, "text is NULL, must be a line");
  if (!out) return fail(error, QUERN_INVALID, "out", 0, 0, "out is NULL, must point to a quern_problem");
  reader r = {};
  r.text = r.at = text;
  r.error = error;
  r.p = quern_conv2d(QUERN_F32, QUERN_NCHW, 0, 0, 0, 0, 0, 0, 0);
  r.d.value[G] = r.d.value[MB] = 1;
  for (int i = 0; i < 3; ++i) r.d.value[I + i] = r.d.value[O + i] = r.d.value[K + i] = r.d.value[S + i] = 1;
  if (auto s = r.line()) return s;
  *out = r.p;
  return QUERN_OK;
}
