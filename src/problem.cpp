// SPDX-License-Identifier: MIT
//
// The check of a problem that stands in front of everything.
#include "problem.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "error.h"
#include "geometry.h"
#include "problem_text.h"
#include "versioned.h"

namespace quern {
namespace {

constexpr int64_t max_bytes = int64_t{1} << 56;         // of a tensor, first element to last
constexpr int64_t max_window = (int64_t{1} << 31) - 1;  // pads, strides, dilations, groups
constexpr int64_t max_work = int64_t{1} << 62;          // multiply-adds
constexpr int64_t most_exact = (int64_t{1} << 17) - 1;  // products of s8 in a sum

long long ll(int64_t v) { return v; }

// "what[index] is value, must be RULE limit"; no brackets for an index below 0.
quern_status refuse(quern_error* error, const char* what, int index, int64_t value, const char* rule, int64_t limit) {
  if (!error) return QUERN_INVALID;
  char field[64];
  if (index < 0) {
    snprintf(field, sizeof field, "%s", what);
  } else {
    snprintf(field, sizeof field, "%s[%d]", what, index);
  }
  return fail(error, QUERN_INVALID, field, value, limit, "%s is %lld, must be %s%s%lld", field, ll(value), rule,
              *rule ? " " : "", ll(limit));
}

quern_status refuse(quern_error* error, const char* tensor, const char* part, int index, int64_t value,
                    const char* rule, int64_t limit) {
  char what[32];
  snprintf(what, sizeof what, "%s.%s", tensor, part);
  return refuse(error, what, index, value, rule, limit);
}

// QUERN_OK when low <= value <= high.
quern_status within(quern_error* error, const char* what, int index, int64_t value, int64_t low, int64_t high) {
  if (value < low) return refuse(error, what, index, value, "at least", low);
  if (value > high) return refuse(error, what, index, value, "at most", high);
  return QUERN_OK;
}

// QUERN_OK when low <= value <= high, which have words: "what is VALUE, must be LOW (1) to HIGH (2)".
template <size_t N>
quern_status within(quern_error* error, const char* what, int32_t value, int32_t low, int32_t high,
                    const word (&words)[N]) {
  if (value >= low && value <= high) return QUERN_OK;
  const char* given = name_of(words, value);
  return fail(error, QUERN_INVALID, what, value, value < low ? low : high, "%s is %d%s%s%s, must be %d (%s) to %d (%s)",
              what, value, *given ? " (" : "", given, *given ? ")" : "", low, name_of(words, low), high,
              name_of(words, high));
}

bool all_zero(const int64_t* v) { return (v[0] | v[1] | v[2] | v[3] | v[4]) == 0; }

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

quern_status check_epilogue(quern_epilogue& e, quern_error* error) {
  if (auto s = within(error, "epilogue.scale", -1, e.scale, 0, 1)) return s;
  if (auto s = within(error, "epilogue.bias", -1, e.bias, 0, 1)) return s;
  if (auto s = within(error, "epilogue.residual", -1, e.residual, 0, QUERN_RESIDUAL_AFTER)) return s;
  if (auto s = within(error, "epilogue.activation", e.activation, QUERN_IDENTITY, QUERN_GELU_SIGMOID, activation_words))
    return s;
  for (int i = 0; i < 16; ++i) {
    if (e.reserved[i]) return refuse(error, "epilogue.reserved", i, e.reserved[i], "", 0);
  }

  const struct {
    const char* name;
    float value;
  } numbers[] = {{"epilogue.activation_alpha", e.activation_alpha},
                 {"epilogue.activation_beta", e.activation_beta},
                 {"epilogue.alpha", e.alpha},
                 {"epilogue.beta", e.beta}};
  for (const auto& n : numbers) {
    if (n.value != n.value) return fail(error, QUERN_INVALID, n.name, 0, 0, "%s is NaN, must be a number", n.name);
  }

  const quern_activation a = e.activation;
  if (a == QUERN_CLAMP && !(e.activation_alpha <= e.activation_beta)) {
    return fail(error, QUERN_INVALID, "epilogue.activation_alpha", 0, 0,
                "epilogue.activation_alpha is %g, must be at most epilogue.activation_beta = %g for a clamp",
                static_cast<double>(e.activation_alpha), static_cast<double>(e.activation_beta));
  }
  if ((a == QUERN_HARD_SIGMOID || a == QUERN_HARD_SWISH) && e.activation_alpha == 0 && e.activation_beta == 0) {
    e.activation_alpha = 1.0f / 6, e.activation_beta = 0.5f;
  }
  // A parameter that the activation does not take is a mistake, such as ReLU6 written as RELU with 6.
  const bool takes_both = a == QUERN_CLAMP || a == QUERN_HARD_SIGMOID;
  const float fixed_alpha = a == QUERN_HARD_SWISH ? 1.0f / 6 : 0, fixed_beta = a == QUERN_HARD_SWISH ? 0.5f : 0;
  const auto fix = [&](const char* name, float& value, float must) {
    if (value != must) {
      return fail(error, QUERN_INVALID, name, 0, 0, "%s is %g, must be %g: %s takes no such parameter", name,
                  static_cast<double>(value), static_cast<double>(must), name_of(activation_words, a));
    }
    value = must;
    return quern_status{QUERN_OK};
  };
  if (!takes_both && a != QUERN_LEAKY_RELU) {
    if (auto s = fix("epilogue.activation_alpha", e.activation_alpha, fixed_alpha)) return s;
  }
  if (!takes_both) {
    if (auto s = fix("epilogue.activation_beta", e.activation_beta, fixed_beta)) return s;
  }

  if (e.alpha == 0) e.alpha = 1;
  if (e.beta == 0) e.beta = 1;
  if (e.residual == QUERN_RESIDUAL_NONE && e.beta != 1) {
    return fail(error, QUERN_INVALID, "epilogue.beta", 0, 0,
                "epilogue.beta is %g, must be 0 or 1 when epilogue.residual is QUERN_RESIDUAL_NONE",
                static_cast<double>(e.beta));
  }
  return QUERN_OK;
}

quern_status check_accuracy(quern_problem& p, quern_error* error) {
  switch (p.accuracy) {
    case QUERN_ACCURACY_DEFAULT: p.accuracy = default_accuracy(p.src.type); return QUERN_OK;
    case QUERN_ACCURACY_EXACT:
    case QUERN_ACCURACY_F32:
    case QUERN_ACCURACY_F32_FAST:
    case QUERN_ACCURACY_F32_LOOSE:
    case QUERN_ACCURACY_F16: return QUERN_OK;
    default:
      return fail(error, QUERN_INVALID, "accuracy", p.accuracy, QUERN_ACCURACY_F16,
                  "accuracy is %d, must be one of the QUERN_ACCURACY_ values 0, 10, 20, 30, 40, 60", p.accuracy);
  }
}

quern_status check_window(quern_op op, quern_window& w, quern_error* error) {
  for (int i = 0; i < 3; ++i) {
    if (auto s = within(error, "window.filter", i, w.filter[i], 0, max_bytes)) return s;
    if (auto s = within(error, "window.stride", i, w.stride[i], 0, max_window)) return s;
    if (auto s = within(error, "window.dilation", i, w.dilation[i], 0, max_window)) return s;
    if (auto s = within(error, "window.pad_begin", i, w.pad_begin[i], 0, max_window)) return s;
    if (auto s = within(error, "window.pad_end", i, w.pad_end[i], 0, max_window)) return s;
    if (w.stride[i] == 0) w.stride[i] = 1;
    if (w.dilation[i] == 0) w.dilation[i] = 1;
    const int64_t most = op == QUERN_CONV_TRANSPOSED ? w.stride[i] - 1 : 0;
    if (auto s = within(error, "window.output_padding", i, w.output_padding[i], 0, most)) return s;
  }
  return QUERN_OK;
}

// A set of types, as bits.
template <class... Type>
constexpr uint32_t types_of(Type... type) {
  return (0 | ... | (1u << type));
}

// What src may hold: integers of 32 bits are sums, and 8 bits are multiplied alone.
constexpr uint32_t inputs_of(quern_op op) {
  constexpr uint32_t floats = types_of(QUERN_F32, QUERN_F64, QUERN_F16, QUERN_BF16);
  return multiplies(op) ? floats | types_of(QUERN_S8, QUERN_E4M3) : floats;
}

// What dst may hold.
constexpr uint32_t outputs_of(quern_type src) {
  switch (src) {
    case QUERN_S8: return types_of(QUERN_S8, QUERN_F32, QUERN_F16, QUERN_BF16, QUERN_S32);
    case QUERN_E4M3: return types_of(QUERN_E4M3, QUERN_F32, QUERN_F16, QUERN_BF16);
    default: return types_of(src);
  }
}

// `of` and its name are what `allowed` follows from.
quern_status check_type(const char* name, quern_type type, uint32_t allowed, const char* of, const char* of_name,
                        quern_error* error) {
  char field[32], list[64] = "";
  snprintf(field, sizeof field, "%s.type", name);
  if (auto s = within(error, field, type, QUERN_F32, QUERN_S32, type_words)) return s;
  if (allowed >> type & 1) return QUERN_OK;
  if (!error) return QUERN_INVALID;
  const bool several = (allowed & (allowed - 1)) != 0;
  for (const word& w : type_words)
    if (const size_t length = strlen(list); allowed >> w.value & 1)
      snprintf(list + length, sizeof list - length, "%s%s", length ? " " : "", w.name);
  return fail(error, QUERN_INVALID, field, type, __builtin_ctz(allowed), "%s is %s, must be %s%s where %s is %s", field,
              name_of(type_words, type), several ? "one of " : "", list, of, of_name);
}

quern_status check_type(const char* name, const quern_tensor& t, uint32_t allowed, const char* of,
                        const quern_tensor& from, quern_error* error) {
  return check_type(name, t.type, allowed, of, name_of(type_words, from.type), error);
}

// Layout and sizes of a tensor that is there, whose type is known to be one; `last` is the last layout that it may
// have.
quern_status check_tensor(const char* name, const quern_tensor& t, quern_layout last, quern_error* error) {
  char field[32];
  snprintf(field, sizeof field, "%s.layout", name);
  if (auto s = within(error, field, t.layout, QUERN_NCHW, last, layout_words)) return s;
  const int64_t block = block_of(t.layout);
  int64_t bytes = type_bytes(t.type) * block;
  for (int i = 0; i < 5; ++i) {
    if (t.size[i] < 0) return refuse(error, name, "size", i, t.size[i], "at least", 0);
    // Zero counts as one here, so that no product of the other sizes overflows either; channels count in blocks.
    const int64_t limit = i == 1 ? max_bytes / bytes * block : max_bytes / bytes;
    if (t.size[i] > limit) {
      return refuse(error, name, "size", i, t.size[i], "(for 2^56 bytes of memory) at most", limit);
    }
    bytes *= std::max<int64_t>(i == 1 ? up(t.size[i], block) : t.size[i], 1);
  }
  return QUERN_OK;
}

// Strides: dense when all are zero, else as they are if the tensor stays within its limit.  A block of channels
// is an axis of its own, the densest.
quern_status check_strides(const char* name, quern_tensor& t, bool distinct, quern_error* error) {
  if (t.layout == QUERN_ANY) {
    for (int i = 0; i < 5; ++i) {
      if (t.stride[i] != 0) return refuse(error, name, "stride", i, t.stride[i], "(of a layout to be chosen)", 0);
    }
    return QUERN_OK;
  }
  if (all_zero(t.stride)) dense_strides(t.layout, t.size, t.stride);
  const int64_t limit = max_bytes / type_bytes(t.type);
  const int64_t block = block_of(t.layout), together = std::clamp<int64_t>(t.size[1], 1, block);
  const auto steps = [&](int i) { return (i == 1 ? up(t.size[i], block) : t.size[i]) - 1; };
  int64_t reach = together;
  int axes[5], count = 0;  // of more than one element, by stride
  char field[32];
  for (int i = 0; i < 5; ++i) {
    if (t.stride[i] < 0) return refuse(error, name, "stride", i, t.stride[i], "at least", 0);
    if (t.stride[i] > limit) return refuse(error, name, "stride", i, t.stride[i], "at most", limit);
    if (steps(i) < 1) continue;
    int64_t step;
    if (__builtin_mul_overflow(steps(i), t.stride[i], &step) || step > limit - reach) {
      snprintf(field, sizeof field, "%s.stride[%d]", name, i);
      return fail(error, QUERN_INVALID, field, t.stride[i], (limit - reach) / steps(i),
                  "%s is %lld, must be at most %lld: %s would span more than 2^56 bytes", field, ll(t.stride[i]),
                  ll((limit - reach) / steps(i)), name);
    }
    reach += step;
    int at = count++;
    for (; at > 0 && t.stride[axes[at - 1]] > t.stride[i]; --at) axes[at] = axes[at - 1];
    axes[at] = i;
  }
  if (!distinct || extent(t) == 0) return QUERN_OK;
  // No two elements meet when each axis steps over all that the denser axes span.
  int64_t inner = together;
  for (int j = 0; j < count; ++j) {
    const int i = axes[j];
    if (t.stride[i] < inner) {
      snprintf(field, sizeof field, "%s.stride[%d]", name, i);
      return fail(error, QUERN_INVALID, field, t.stride[i], inner,
                  "%s is %lld, must be at least %lld, or elements of %s overlap", field, ll(t.stride[i]), ll(inner),
                  name);
    }
    inner += steps(i) * t.stride[i];
  }
  return QUERN_OK;
}

// What the field leaves to be derived is filled in, and what it says must be that.
quern_status settle(const char* name, const char* part, int64_t* given, const int64_t* derived, int count,
                    quern_error* error) {
  for (int i = 0; i < count; ++i) {
    if (given[i] != derived[i]) return refuse(error, name, part, i, given[i], "", derived[i]);
  }
  return QUERN_OK;
}

// `of` is the type that the types that are allowed follow from.
quern_status derive(const char* name, quern_tensor& t, uint32_t allowed, const char* of, const quern_tensor& from,
                    const int64_t* size, quern_layout last, quern_error* error) {
  if (t.type == 0) t.type = from.type;
  if (t.layout == 0) t.layout = from.layout;
  if (all_zero(t.size)) std::copy_n(size, 5, t.size);
  if (auto s = check_type(name, t, allowed, of, from, error)) return s;
  if (auto s = check_tensor(name, t, last, error)) return s;
  return settle(name, "size", t.size, size, 5, error);
}

// Of operators that have none.
quern_status no_window(quern_problem& p, quern_error* error) {
  for (int i = 0; i < 3; ++i) {
    if (p.window.filter[i] == 0) p.window.filter[i] = 1;
    if (p.window.filter[i] != 1) return refuse(error, "window.filter", i, p.window.filter[i], "", 1);
    if (p.window.stride[i] != 1) return refuse(error, "window.stride", i, p.window.stride[i], "", 1);
    if (p.window.dilation[i] != 1) return refuse(error, "window.dilation", i, p.window.dilation[i], "", 1);
    if (p.window.pad_begin[i] != 0) return refuse(error, "window.pad_begin", i, p.window.pad_begin[i], "", 0);
    if (p.window.pad_end[i] != 0) return refuse(error, "window.pad_end", i, p.window.pad_end[i], "", 0);
  }
  return QUERN_OK;
}

quern_status no_groups(const quern_problem& p, quern_error* error) {
  return p.groups == 1 ? QUERN_OK : refuse(error, "groups", -1, p.groups, "", 1);
}

// Fields of some operators alone.
quern_status check_axes(quern_problem& p, quern_error* error) {
  const bool norm = is_norm(p.op), axes = has_axes(p.op);
  if (auto s = within(error, "axes", -1, p.axes, axes, axes ? 31 : 0)) return s;
  const auto refuse_epsilon = [&](const char* must) {
    return fail(error, QUERN_INVALID, "epsilon", 0, 0, "epsilon is %g, must be %s", static_cast<double>(p.epsilon),
                must);
  };
  if (!norm && p.epsilon != 0) return refuse_epsilon("0");
  if (norm && p.epsilon == 0) p.epsilon = 1e-5f;
  // NaN is neither.
  if (norm && !(p.epsilon > 0 && p.epsilon < __builtin_inff())) return refuse_epsilon("above 0 and finite");
  if (!norm && !is_conv(p.op)) return no_groups(p, error);
  if (norm && !(p.axes & QUERN_AXIS_C) && p.groups != 1)
    return fail(error, QUERN_INVALID, "groups", p.groups, 1, "groups is %lld, must be 1 where axes has no c",
                ll(p.groups));
  return QUERN_OK;
}

// Of what comes out as it is.
quern_status no_epilogue(const quern_problem& p, quern_error* error) {
  const quern_epilogue& e = p.epilogue;
  const struct {
    const char* name;
    int32_t value;
  } fields[] = {{"epilogue.scale", e.scale},
                {"epilogue.bias", e.bias},
                {"epilogue.residual", e.residual},
                {"epilogue.activation", e.activation}};
  for (const auto& f : fields) {
    if (f.value != 0) return refuse(error, f.name, -1, f.value, "", 0);
  }
  if (e.alpha != 1)
    return fail(error, QUERN_INVALID, "epilogue.alpha", 0, 0, "epilogue.alpha is %g, must be 0 or 1",
                static_cast<double>(e.alpha));
  return QUERN_OK;
}

// A reorder only moves.
quern_status reorder_sizes(quern_problem& p, int64_t size[5], quern_error* error) {
  if (auto s = no_window(p, error)) return s;
  if (auto s = no_epilogue(p, error)) return s;
  std::copy_n(p.src.size, 5, size);
  return QUERN_OK;
}

// dst is as src, but for 1 along what is reduced.
quern_status element_sizes(quern_problem& p, int64_t size[5], quern_error* error) {
  if (auto s = no_window(p, error)) return s;
  if (p.src.size[1] % p.groups != 0)
    return fail(error, QUERN_INVALID, "groups", p.groups, p.src.size[1],
                "groups is %lld, must divide src.size[1] = %lld", ll(p.groups), ll(p.src.size[1]));
  for (int i = 0; i < 5; ++i) {
    size[i] = is_reduction(p.op) && p.axes >> i & 1 ? 1 : p.src.size[i];
    if (has_weights(p.op) && p.weights.size[i] != size[i] && p.weights.size[i] != 1) {
      char rule[32];
      snprintf(rule, sizeof rule, "1 or src.size[%d] =", i);
      return refuse(error, "weights.size", i, p.weights.size[i], rule, size[i]);
    }
  }
  return QUERN_OK;
}

quern_status gemm_sizes(quern_problem& p, int64_t size[5], quern_error* error) {
  if (auto s = no_window(p, error)) return s;
  for (int i = 0; i < 3; ++i) {
    if (p.weights.size[i] != 1) return refuse(error, "weights.size", i, p.weights.size[i], "", 1);
  }
  for (int i = 1; i < 3; ++i) {
    if (p.src.size[i] != 1) return refuse(error, "src.size", i, p.src.size[i], "", 1);
  }
  if (p.weights.size[3] != p.src.size[4]) {
    return refuse(error, "weights.size", 3, p.weights.size[3], "src.size[4] =", p.src.size[4]);
  }
  const int64_t dst[5] = {p.src.size[0], 1, 1, p.src.size[3], p.weights.size[4]};
  std::copy_n(dst, 5, size);
  return QUERN_OK;
}

quern_status conv_channels(quern_problem& p, int64_t& k, quern_error* error) {
  const bool transposed = p.op == QUERN_CONV_TRANSPOSED;
  const int64_t c = p.src.size[1];
  const auto divides = [&](const char* name, int64_t channels) {
    return fail(error, QUERN_INVALID, "groups", p.groups, channels, "groups is %lld, must divide %s = %lld",
                ll(p.groups), name, ll(channels));
  };
  if (c % p.groups != 0) return divides("src.size[1]", c);
  if (transposed) {
    if (p.weights.size[0] != c) return refuse(error, "weights.size", 0, p.weights.size[0], "src.size[1] =", c);
    if (__builtin_mul_overflow(p.weights.size[1], p.groups, &k) || k > max_bytes) {
      return refuse(error, "weights.size", 1, p.weights.size[1], "at most", max_bytes / p.groups);
    }
  } else {
    k = p.weights.size[0];
    if (k % p.groups != 0) return divides("weights.size[0]", k);
    if (p.weights.size[1] != c / p.groups) {
      return refuse(error, "weights.size", 1, p.weights.size[1], "src.size[1] / groups =", c / p.groups);
    }
  }
  return QUERN_OK;
}

// Where there are weights, the window's filter is theirs.
quern_status settle_filter(quern_problem& p, quern_error* error) {
  quern_window& w = p.window;
  for (int i = 0; i < 3; ++i) {
    if (is_pooling(p.op)) {
      if (w.filter[i] == 0) w.filter[i] = std::max<int64_t>(p.src.size[2 + i], 1);
      continue;
    }
    if (p.weights.size[2 + i] < 1) return refuse(error, "weights.size", 2 + i, p.weights.size[2 + i], "at least", 1);
    if (w.filter[i] == 0) w.filter[i] = p.weights.size[2 + i];
    if (w.filter[i] != p.weights.size[2 + i]) {
      char rule[32];
      snprintf(rule, sizeof rule, "weights.size[%d] =", 2 + i);
      return refuse(error, "window.filter", i, w.filter[i], rule, p.weights.size[2 + i]);
    }
  }
  return QUERN_OK;
}

// Of an output that would have `size` pixels, less than none, along axis i: what would have to change.
quern_status refuse_size(const quern_problem& p, int i, int64_t size, int64_t reach, quern_error* error) {
  const quern_window& w = p.window;
  const int64_t in = p.src.size[2 + i], pads = w.pad_begin[i] + w.pad_end[i];
  const bool ends = w.pad_end[i] > w.pad_begin[i];
  const char* what = ends ? "window.pad_end" : "window.pad_begin";
  int64_t value = ends ? w.pad_end[i] : w.pad_begin[i], limit = std::max<int64_t>(value + size, 0);
  const char* rule = "at most";
  int index = i;
  if (p.op != QUERN_CONV_TRANSPOSED) {
    what = "window.filter", value = w.filter[i], limit = (in + pads + w.stride[i] - 1) / w.dilation[i] + 1;
  } else if (size + pads < 0) {  // without padding, too
    what = "src.size", index = 2 + i, value = in, rule = "at least", limit = 1;
  }
  char field[32];
  snprintf(field, sizeof field, "%s[%d]", what, index);
  return fail(error, QUERN_INVALID, field, value, limit,
              "%s is %lld, must be %s %lld: dst.size[%d] would be %lld, src.size[%d] is %lld, the filter with its "
              "dilation spans %lld, stride is %lld, pads are %lld together",
              field, ll(value), rule, ll(limit), 2 + i, ll(size), 2 + i, ll(in), ll(reach), ll(w.stride[i]), ll(pads));
}

quern_status window_sizes(quern_problem& p, int64_t size[5], quern_error* error) {
  size[0] = p.src.size[0], size[1] = p.src.size[1];
  if (is_conv(p.op))
    if (auto s = conv_channels(p, size[1], error)) return s;
  if (auto s = settle_filter(p, error)) return s;
  const quern_window& w = p.window;
  for (int i = 0; i < 3; ++i) {
    const int64_t in = p.src.size[2 + i], pads = w.pad_begin[i] + w.pad_end[i];
    int64_t reach;  // pixels from the first tap to the last
    if (__builtin_mul_overflow(w.filter[i] - 1, w.dilation[i], &reach) || reach >= max_bytes) {
      return refuse(error, "window.dilation", i, w.dilation[i], "at most", (max_bytes - 1) / (w.filter[i] - 1));
    }
    ++reach;
    if (p.op != QUERN_CONV_TRANSPOSED) {
      size[2 + i] = floor_div(in + pads - reach, w.stride[i]) + 1;
    } else {
      int64_t steps;
      if (__builtin_mul_overflow(in - 1, w.stride[i], &steps) || steps > max_bytes) {
        return refuse(error, "window.stride", i, w.stride[i], "at most", max_bytes / (in - 1));
      }
      size[2 + i] = steps + reach - pads + w.output_padding[i];
    }
    if (size[2 + i] < 0) return refuse_size(p, i, size[2 + i], reach, error);
  }
  return QUERN_OK;
}

quern_status check_work(const quern_problem& p, quern_error* error) {
  const bool transposed = p.op == QUERN_CONV_TRANSPOSED;
  // Each output sums up weights of one output channel; each input of the transposed operator is spread.
  const int64_t* size = transposed ? p.src.size : p.dst.size;
  int64_t work = std::max<int64_t>(p.op == QUERN_GEMM ? p.weights.size[3] : is_conv(p.op) ? p.weights.size[1] : 1, 1);
  const auto many = [&](int64_t times) {
    if (times > max_work / work) return true;
    work *= std::max<int64_t>(times, 1);
    return false;
  };
  for (int i = 0; i < 3; ++i)
    if (many(p.window.filter[i]))
      return refuse(error, "window.filter", i, p.window.filter[i], "(for 2^62 taps of outputs) at most",
                    max_work / work);
  for (int i = 0; i < 5; ++i)
    if (many(size[i]))
      return refuse(error, transposed ? "src.size" : "dst.size", i, size[i], "(for 2^62 multiply-adds) at most",
                    max_work / work);
  // Each product of s8 is 2^14 at most.
  if (const int64_t length = sum_length(p); sums_exactly(p) && length > most_exact) {
    const int channels = p.op == QUERN_GEMM ? 4 : 1;
    const int64_t each = length / (p.src.size[channels] / p.groups);  // products of a channel
    return refuse(error, "src.size", channels, p.src.size[channels], "(for 131071 products of s8 in a sum) at most",
                  most_exact / each * p.groups);
  }
  return QUERN_OK;
}

}  // namespace

quern_status complete(const quern_problem* given, quern_problem& out, quern_error* error) {
  quern_problem p;
  if (!given) return fail(error, QUERN_INVALID, "problem", 0, 0, "problem is NULL");
  if (auto s = take(given, p, "problem", error)) return s;
  if (auto s = within(error, "op", p.op, QUERN_CONV, QUERN_MIN, op_words)) return s;
  if (p.reserved) return refuse(error, "reserved", -1, p.reserved, "", 0);
  if (p.groups == 0) p.groups = 1;
  if (auto s = within(error, "groups", -1, p.groups, 1, max_window)) return s;
  // Rows and columns have no channels to be blocked.
  const quern_layout last = p.op == QUERN_GEMM ? QUERN_NHWC : is_conv(p.op) ? QUERN_ANY : QUERN_NC16HW16;
  if (auto s = check_type("src", p.src.type, inputs_of(p.op), "op", name_of(op_words, p.op), error)) return s;
  if (auto s = check_tensor("src", p.src, last, error)) return s;
  if (!has_weights(p.op)) {
    const quern_tensor none = {};
    if (memcmp(&p.weights, &none, sizeof none) != 0)
      return fail(error, QUERN_INVALID, "weights", 0, 0, "weights is described, but %s has none",
                  name_of(op_words, p.op));
  } else {
    if (auto s = check_type("weights", p.weights, types_of(p.src.type), "src.type", p.src, error)) return s;
    if (auto s = check_tensor("weights", p.weights, is_elementwise(p.op) ? last : QUERN_NHWC, error)) return s;
  }
  if (auto s = check_window(p.op, p.window, error)) return s;
  if (auto s = check_epilogue(p.epilogue, error)) return s;
  if (auto s = check_accuracy(p, error)) return s;

  if (auto s = check_axes(p, error)) return s;

  int64_t size[5];
  if (auto s = p.op == QUERN_GEMM      ? gemm_sizes(p, size, error)
               : p.op == QUERN_REORDER ? reorder_sizes(p, size, error)
               : has_window(p.op)      ? window_sizes(p, size, error)
                                       : element_sizes(p, size, error))
    return s;
  if (auto s = derive("dst", p.dst, outputs_of(p.src.type), "src.type", p.src, size, last, error)) return s;
  if (p.dst.type == QUERN_S32)
    if (auto s = no_epilogue(p, error)) return s;
  if (auto s = check_strides("src", p.src, false, error)) return s;
  if (has_weights(p.op)) {
    if (auto s = check_strides("weights", p.weights, false, error)) return s;
  }
  if (auto s = check_strides("dst", p.dst, true, error)) return s;
  if (p.epilogue.residual != QUERN_RESIDUAL_NONE) {
    if (p.residual.layout == QUERN_ANY) p.residual.layout = p.dst.layout;
    if (auto s = derive("residual", p.residual, types_of(p.dst.type), "dst.type", p.dst, p.dst.size, last, error))
      return s;
    if (auto s = check_strides("residual", p.residual, false, error)) return s;
  } else {
    const quern_tensor none = {};
    if (memcmp(&p.residual, &none, sizeof none) != 0) {
      return fail(error, QUERN_INVALID, "residual", 0, 0,
                  "residual is described but epilogue.residual is 0, must be QUERN_RESIDUAL_BEFORE or _AFTER");
    }
  }
  if (multiplies(p.op) || is_pooling(p.op)) {
    if (auto s = check_work(p, error)) return s;
  }
  out = p;
  return QUERN_OK;
}

bool lay_out(quern_tensor& t, quern_layout layout) {
  if (t.layout != QUERN_ANY) return true;
  t.layout = layout;
  dense_strides(layout, t.size, t.stride);
  return t.stride[0] * std::max<int64_t>(t.size[0], 1) <= max_bytes / type_bytes(t.type);
}

void dense_strides(quern_layout layout, const int64_t size[5], int64_t stride[5]) {
  static constexpr int nchw[5] = {4, 3, 2, 1, 0}, nhwc[5] = {1, 4, 3, 2, 0};  // densest first
  const int64_t block = block_of(layout);
  int64_t step = block;
  for (int i : layout == QUERN_NHWC ? nhwc : nchw) {
    stride[i] = step;
    step *= std::max<int64_t>(i == 1 ? up(size[i], block) : size[i], 1);
  }
}

}  // namespace quern

using namespace quern;

extern "C" quern_status quern_problem_complete(const quern_problem* problem, quern_problem* out,
                                               quern_error* error) noexcept {
  if (!out) return fail(error, QUERN_INVALID, "out", 0, 0, "out is NULL, must point to a quern_problem");
  quern_problem p;
  if (auto s = complete(problem, p, error)) return s;
  // *out is of the version that *problem says, longer or shorter than this library's.
  p.size = problem->size;
  give(p, out, p.size);
  return QUERN_OK;
}
