// SPDX-License-Identifier: MIT
//
// What parsing and printing of the text form share: its words, and what a descriptor leaves unsaid.
#pragma once

#include <quern/quern.h>
#include <stddef.h>

#include "operators.h"

namespace quern {

struct word {
  const char* name;
  int32_t value;
};

inline constexpr word op_words[] = {{"conv", QUERN_CONV},
                                    {"conv_transposed", QUERN_CONV_TRANSPOSED},
                                    {"gemm", QUERN_GEMM},
                                    {"reorder", QUERN_REORDER},
                                    {"pool_max", QUERN_POOL_MAX},
                                    {"pool_avg", QUERN_POOL_AVG},
                                    {"pool_avg_padded", QUERN_POOL_AVG_PADDED},
                                    {"reduce_sum", QUERN_REDUCE_SUM},
                                    {"reduce_mean", QUERN_REDUCE_MEAN},
                                    {"reduce_max", QUERN_REDUCE_MAX},
                                    {"reduce_min", QUERN_REDUCE_MIN},
                                    {"reduce_prod", QUERN_REDUCE_PROD},
                                    {"reduce_l1", QUERN_REDUCE_L1},
                                    {"reduce_l2", QUERN_REDUCE_L2},
                                    {"reduce_sum_square", QUERN_REDUCE_SUM_SQUARE},
                                    {"norm", QUERN_NORM},
                                    {"rms_norm", QUERN_RMS_NORM},
                                    {"softmax", QUERN_SOFTMAX},
                                    {"log_softmax", QUERN_LOG_SOFTMAX},
                                    {"unary", QUERN_UNARY},
                                    {"add", QUERN_ADD},
                                    {"sub", QUERN_SUB},
                                    {"mul", QUERN_MUL},
                                    {"div", QUERN_DIV},
                                    {"max", QUERN_MAX},
                                    {"min", QUERN_MIN}};
inline constexpr word type_words[] = {{"f32", QUERN_F32},   {"f64", QUERN_F64}, {"f16", QUERN_F16},
                                      {"bf16", QUERN_BF16}, {"s8", QUERN_S8},   {"e4m3", QUERN_E4M3},
                                      {"s32", QUERN_S32}};
inline constexpr word layout_words[] = {{"nchw", QUERN_NCHW},         {"nhwc", QUERN_NHWC},
                                        {"nc4hw4", QUERN_NC4HW4},     {"nc8hw8", QUERN_NC8HW8},
                                        {"nc16hw16", QUERN_NC16HW16}, {"any", QUERN_ANY}};
inline constexpr word residual_words[] = {{"before", QUERN_RESIDUAL_BEFORE}, {"after", QUERN_RESIDUAL_AFTER}};
inline constexpr word accuracy_words[] = {{"exact", QUERN_ACCURACY_EXACT},
                                          {"f32", QUERN_ACCURACY_F32},
                                          {"f32_fast", QUERN_ACCURACY_F32_FAST},
                                          {"f32_loose", QUERN_ACCURACY_F32_LOOSE},
                                          {"f16", QUERN_ACCURACY_F16}};
inline constexpr word activation_words[] = {{"identity", QUERN_IDENTITY},
                                            {"relu", QUERN_RELU},
                                            {"clamp", QUERN_CLAMP},
                                            {"leaky_relu", QUERN_LEAKY_RELU},
                                            {"prelu", QUERN_PRELU},
                                            {"sigmoid", QUERN_SIGMOID},
                                            {"silu", QUERN_SILU},
                                            {"hard_sigmoid", QUERN_HARD_SIGMOID},
                                            {"hard_swish", QUERN_HARD_SWISH},
                                            {"tanh", QUERN_TANH},
                                            {"gelu", QUERN_GELU},
                                            {"mish", QUERN_MISH},
                                            {"gelu_tanh", QUERN_GELU_TANH},
                                            {"gelu_sigmoid", QUERN_GELU_SIGMOID}};

inline constexpr const char* axis_letters = "ncdhw";  // of axes=, in the order of their bits

// Empty for a value that has no word, which a complete problem has not.
template <size_t N>
const char* name_of(const word (&words)[N], int32_t value) {
  for (const word& w : words) {
    if (w.value == value) return w.name;
  }
  return "";
}

// The words for strides of their own, and the tensors of a problem in that order.
inline constexpr const char* stride_words[] = {"src_stride", "wei_stride", "dst_stride", "res_stride"};
inline constexpr quern_tensor quern_problem::*stride_tensors[] = {&quern_problem::src, &quern_problem::weights,
                                                                  &quern_problem::dst, &quern_problem::residual};

// One axis of the image as a descriptor has it.
struct text_axis {
  int64_t in, out, filter, stride, dilation, pad;
  bool operator==(const text_axis&) const = default;
};

struct text_ends {
  int64_t pad, output_padding;
  bool operator==(const text_ends&) const = default;
};

// pad where a descriptor gives `out` but no pad: benchdnn's, half of what is needed.
int64_t implied_pad(quern_op, const text_axis&);

// The other end where a descriptor says no more than `out` and `pad`: padding as before the image when
// that gives `out`, for the transposed operator with output padding; else benchdnn's, exactly what is
// needed.  Sizes that no ends give are not looked for.
text_ends implied_ends(quern_op, const text_axis&);

// The size that follows from the rest of the axis.
int64_t out_size(quern_op, const text_axis&, const text_ends&);

// Keys of a convolution's or pooling's descriptor; those of an axis follow each other as d h w.
enum key { G, MB, IC, I, OC = I + 3, O, K = O + 3, S = K + 3, P = S + 3, D = P + 3, KEYS = D + 3 };
inline constexpr const char* key_names[KEYS] = {"g",  "mb", "ic", "id", "ih", "iw", "oc", "od", "oh", "ow", "kd",
                                                "kh", "kw", "sd", "sh", "sw", "pd", "ph", "pw", "dd", "dh", "dw"};

struct descriptor {
  int64_t value[KEYS];
  const char* at[KEYS];  // where the line says so; NULL: it does not

  bool any(int axis) const;  // whether it says anything of that axis
  text_axis axis(int i) const;
  // Fills in what it leaves out of its axes; copied values are `at` their source.  Returns the key that is
  // missing, or KEYS.
  int settle(quern_op);

 private:
  void copy(key k, int to, int from) { value[k + to] = value[k + from], at[k + to] = at[k + from]; }
  void copy_all(int to, int from);
};

// A decimal number or inf, whatever the locale.  Returns the end, or NULL when there is no number or it
// overflows.  What print_float wrote is read exactly; longer numbers to within an ulp.
const char* read_float(const char* text, float& value);

// The shortest decimal that read_float reads as `value`; at most 15 characters and a zero.
void print_float(float value, char out[24]);

}  // namespace quern
