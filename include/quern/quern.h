/* SPDX-License-Identifier: MIT
 *
 * Quern: operator kernels for convolution and its friends.
 *
 * A problem is a plain value: operator, tensors, window, epilogue.  Four verbs act on it:
 *
 *   quern_candidates   every kernel that exists for it: chosen, usable, or refused and exactly why
 *   quern_plan_make    choose one; a plan is a plain value, nothing needs destroying
 *   quern_pack         constant weights into the order the kernel reads, once
 *   quern_run          as often as you like, from any thread
 *
 * Memory, threads and files are the caller's.  Apart from the calls that say "allocates" nothing here
 * allocates, takes a lock, starts a thread, opens a file, or changes the floating-point mode.  Every
 * function may be called from any thread at any time; what it is handed is read only, except for what
 * the docstring names as output.
 *
 * Letters: n batch, c input channels, k output channels, d h w image, t r s filter, p q output,
 * g groups.  Sizes and strides count elements, memory counts bytes.
 *
 * From one compatible version to the next (QUERN_VERSION) structs that begin with `size` may grow at their end, but
 * for quern_problem and quern_plan.  Set `size` to sizeof the struct; a library that knows fewer fields accepts a
 * longer struct whose unknown tail is zero, and a library that knows more takes the missing fields as zero.  All
 * others keep their size: quern_problem, which is returned by value and part of a plan, quern_plan and quern_error,
 * which are written whole, and the parts of a problem.  A zero field is a documented default or an error.  Fields
 * called `reserved` must be zero; where structs cannot grow, new fields take their place. */
#ifndef QUERN_H
#define QUERN_H

#include <stddef.h>
#include <stdint.h>

/* 10000 * major + 100 * minor + patch.  Compatible within a major version (within a minor one while
 * the major is 0). */
#define QUERN_VERSION 100

#if defined(_WIN32) && !defined(QUERN_STATIC)
#ifdef QUERN_BUILD
#define QUERN_API __declspec(dllexport)
#else
#define QUERN_API __declspec(dllimport)
#endif
#elif defined(__GNUC__) && !defined(_WIN32)
#define QUERN_API __attribute__((visibility("default")))
#else
#define QUERN_API
#endif

#ifdef __cplusplus
#define QUERN_NOEXCEPT noexcept
extern "C" {
#else
#define QUERN_NOEXCEPT
#endif

/* ---- Status and errors ------------------------------------------------------------------------ */

typedef int32_t quern_status;
enum {
  QUERN_OK = 0,
  QUERN_INVALID = 1,     /* the request makes no sense: a field is out of its range               */
  QUERN_UNSUPPORTED = 2, /* it makes sense, but no kernel here, or none the wish allows, does it  */
  QUERN_BUFFER = 3,      /* a buffer is missing, too small, misaligned, or overlaps another       */
  QUERN_MISMATCH = 4,    /* plan, packed weights, header and library do not belong together       */
  QUERN_MEMORY = 5,      /* memory ran out (only the calls that allocate)                          */
  QUERN_DRIVER = 6,      /* the driver of a device failed; `value` is its error                    */
  QUERN_CANCELLED = 7,   /* the caller's own callback said stop                                     */
  QUERN_FILE = 8         /* a file could not be read or written (quern_host); `value` is errno       */
};

/* What went wrong, in full.  Every call that can fail takes one as its last argument; NULL when the
 * status is enough.  It is written on failure only. */
typedef struct quern_error {
  quern_status status;
  int32_t      reserved;
  char         field[64]; /* the offending field, e.g. "weights.size[1]"; empty when there is none   */
  int64_t      value;     /* its value, 0 where that is no integer; of a pointer 0 for NULL, and what it is
                             beyond its alignment; or what the status or the call says              */
  int64_t      limit;     /* what it must be, one value of several, or must not pass: `text` says which; of a
                             pointer the bytes it must have, or its alignment                       */
  char         text[432]; /* one sentence with all of that                                           */
} quern_error;

/* "ok", "invalid", ...: a constant string, never NULL. */
QUERN_API const char* quern_status_name(quern_status) QUERN_NOEXCEPT;

/* ---- Version ---------------------------------------------------------------------------------- */

/* QUERN_VERSION of the library that is really loaded. */
QUERN_API uint32_t quern_version(void) QUERN_NOEXCEPT;

/* Call as quern_check(QUERN_VERSION, &error): QUERN_MISMATCH, with both versions in the sentence, when
 * the header the caller was compiled with and the library at hand do not fit: another major version, or
 * minor one while the major is 0, or a header newer than the library. */
QUERN_API quern_status quern_check(uint32_t header_version, quern_error*) QUERN_NOEXCEPT;

/* ---- The problem ------------------------------------------------------------------------------ */

typedef int32_t quern_type;
enum {
  QUERN_F32 = 1, /* IEEE binary32                                                                   */
  QUERN_F64 = 2, /* IEEE binary64; the reference only                                               */
  QUERN_F16 = 3, /* IEEE binary16; GPUs and the reference.  Products and sums are f32's, and so is the
                    epilogue: what comes out of it is rounded, once, to nearest, beyond 65504 to infinity */
  QUERN_BF16 = 4,/* the upper half of binary32; otherwise as f16                                    */
  QUERN_S8 = 5,  /* 8-bit integers: src and weights of CONV, CONV_TRANSPOSED and GEMM, on GPUs and by the
                    reference, symmetric (no zero points).  Sums are exact, which 131071 products at most
                    are; dst, and residual with it, is s8, f32, f16, bf16 or s32 (quern_epilogue)          */
  QUERN_E4M3 = 6,/* 8-bit floats, OCP's E4M3FN: 4 bits of exponent, 3 of mantissa, no infinity, NaN is 0x7f.
                    Operators as for s8; sums and the epilogue are f32's, dst, and residual with it, is e4m3,
                    f32, f16 or bf16.  What comes out as e4m3 is rounded once, to nearest, beyond 448 to 448,
                    infinities too                                                                   */
  QUERN_S32 = 7  /* 32-bit integers: dst of s8 alone, the sums as they are, without an epilogue       */
};

typedef int32_t quern_layout;
enum {
  QUERN_NCHW = 1,    /* n c d h w, the last one densest; weights k c t r s                          */
  QUERN_NHWC = 2,    /* n d h w c; weights k t r s c                                                */
  QUERN_NC4HW4 = 3,  /* blocks of 4 channels, n (c/4) d h w 4: src, dst and residual, but of GEMM;
                        weights of ADD to MIN                                                       */
  QUERN_NC8HW8 = 4,  /* the same with 8                                                             */
  QUERN_NC16HW16 = 5,/* and with 16                                                                 */
  QUERN_ANY = 6      /* src, dst and residual of convolutions: whichever of the above quern_plan_make
                        predicts to be fastest, dense.  plan.problem says which                     */
};
/* Channel c of a tensor in blocks of b lies at (c / b) * stride[1] + c % b: stride[1] leads from block to
 * block, and the others from one b channels to the next.  Dense, stride[4] is b, stride[3] b * w, and so on up
 * to stride[0], c / b (rounded up) times stride[1].  Places of the last block beyond channel c - 1 are no part
 * of the tensor: never read, never written.  A slice of the channels begins where a block does. */

/* What a piece of memory holds.  Without image (GEMM) see quern_gemm below; images of one or two
 * dimensions have d = 1 (and h = 1). */
typedef struct quern_tensor {
  quern_type   type;
  quern_layout layout;    /* the dense order of the five sizes, and where channels lie              */
  int64_t      size[5];   /* n c d h w, whatever the layout                                         */
  int64_t      stride[5]; /* elements between neighbours along n c d h w; all zero: dense in `layout`.
                             Lets dst be a slice of a concatenation, or rows be padded.  Elements of
                             dst must not overlap each other.                                       */
} quern_tensor;

typedef int32_t quern_op;
enum {
  QUERN_CONV = 1,            /* cross-correlation, as every framework's convolution                 */
  QUERN_CONV_TRANSPOSED = 2, /* the gradient of QUERN_CONV with respect to its src                  */
  QUERN_GEMM = 3,            /* dst = src x weights, row by row                                     */
  QUERN_REORDER = 4,         /* dst = src in another layout, bit for bit                            */
  QUERN_POOL_MAX = 5,        /* the largest element under a window                                  */
  QUERN_POOL_AVG = 6,        /* their mean; padding does not count                                  */
  QUERN_POOL_AVG_PADDED = 7, /* their sum over the number of the filter's taps: padding counts      */
  QUERN_REDUCE_SUM = 8,      /* of the elements along `axes`                                        */
  QUERN_REDUCE_MEAN = 9,
  QUERN_REDUCE_MAX = 10,
  QUERN_REDUCE_MIN = 11,
  QUERN_REDUCE_PROD = 12,
  QUERN_REDUCE_L1 = 13,      /* the sum of magnitudes                                               */
  QUERN_REDUCE_L2 = 14,      /* the root of the sum of squares                                      */
  QUERN_REDUCE_SUM_SQUARE = 15,
  QUERN_NORM = 16,           /* to mean 0 and variance 1 along `axes`: instance, layer, group norm  */
  QUERN_RMS_NORM = 17,       /* to mean square 1                                                    */
  QUERN_SOFTMAX = 18,        /* along `axes`                                                        */
  QUERN_LOG_SOFTMAX = 19,
  QUERN_UNARY = 20,          /* the epilogue of src itself                                          */
  QUERN_ADD = 21,            /* src and weights, element by element                                 */
  QUERN_SUB = 22,
  QUERN_MUL = 23,
  QUERN_DIV = 24,
  QUERN_MAX = 25,
  QUERN_MIN = 26
};

/* Axes of a tensor, as bits: 1 << i is the axis of size[i]. */
enum { QUERN_AXIS_N = 1, QUERN_AXIS_C = 2, QUERN_AXIS_D = 4, QUERN_AXIS_H = 8, QUERN_AXIS_W = 16 };

/* Three values each, for d h w.  Zero filter: taken from weights, of pooling the whole image; zero stride or
 * dilation: 1. */
typedef struct quern_window {
  int64_t filter[3];
  int64_t stride[3];
  int64_t dilation[3];       /* distance of filter taps; 1 is dense (benchdnn counts from 0)        */
  int64_t pad_begin[3];      /* zeros before and after the image; for the transposed operator the   */
  int64_t pad_end[3];        /* padding of the convolution that it is the gradient of               */
  int64_t output_padding[3]; /* transposed only: rows appended to dst, less than stride             */
} quern_window;

typedef int32_t quern_activation;
enum {
  QUERN_IDENTITY = 0,
  QUERN_RELU = 1,         /* max(x, 0)                                                              */
  QUERN_CLAMP = 2,        /* min(max(x, alpha), beta), alpha <= beta; ReLU6 is (0, 6)               */
  QUERN_LEAKY_RELU = 3,   /* x < 0 ? alpha * x : x                                                  */
  QUERN_PRELU = 4,        /* x < 0 ? args.slope[k] * x : x, one slope an output channel             */
  QUERN_SIGMOID = 5,      /* 1 / (1 + exp(-x))                                                      */
  QUERN_SILU = 6,         /* x * sigmoid(x)                                                         */
  QUERN_HARD_SIGMOID = 7, /* min(max(alpha * x + beta, 0), 1); alpha = beta = 0 means 1/6 and 1/2   */
  QUERN_HARD_SWISH = 8,   /* x * hard_sigmoid(x) of 1/6 and 1/2; alpha and beta stay 0              */
  QUERN_TANH = 9,
  QUERN_GELU = 10,        /* x / 2 * (1 + erf(x / sqrt(2)))                                         */
  QUERN_MISH = 11,        /* x * tanh(log(1 + exp(x)))                                              */
  QUERN_GELU_TANH = 12,   /* x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))): what PyTorch calls
                             approximate="tanh"                                                     */
  QUERN_GELU_SIGMOID = 13 /* x * sigmoid(1.702 * x), known as quick GELU                            */
};
/* NaN stays NaN in all of them; infinities and signed zeros give the limit that the formula has in
 * exact arithmetic. */

enum { QUERN_RESIDUAL_NONE = 0, QUERN_RESIDUAL_BEFORE = 1, QUERN_RESIDUAL_AFTER = 2 };

/* What happens to an output y of the operator while it is in registers:
 *
 *   y = alpha * scale[k] * y + bias[k]
 *   y = activation(y + beta * residual)         QUERN_RESIDUAL_BEFORE
 *   y = activation(y) + beta * residual         QUERN_RESIDUAL_AFTER
 *
 * Per-channel vectors are f32 whatever the problem's type (f64 for f64 problems) and come with quern_args.
 *
 * Of s8 the epilogue is f32's, to the bit: the sum is rounded to f32 and each line is a fused multiply-add (alpha *
 * scale[k] is rounded before); s8 outputs are rounded to the nearest integer, of two to the even one, and end at
 * -128 and 127, NaN is 0.  Where numbers stand for steps, scale[k] is the steps of src and of channel k's weights,
 * multiplied, over that of dst; bias is in steps of dst, and beta is the step of residual over that of dst. */
typedef struct quern_epilogue {
  int32_t          scale;    /* 1: args.scale holds one factor an output channel                    */
  int32_t          bias;     /* 1: args.bias holds one addend an output channel                     */
  int32_t          residual; /* QUERN_RESIDUAL_*                                                    */
  quern_activation activation;
  float            activation_alpha, activation_beta; /* what they mean: the list above             */
  float            alpha;    /* 0 means 1                                                           */
  float            beta;     /* 0 means 1                                                           */
  int32_t          reserved[16]; /* zero points of integer types come here                          */
} quern_epilogue;

/* The worst error that the caller accepts, from best to worst.  e is 2^-24 (f64: 2^-53), s the sum over k of
 * |src| * |weights|, and k the length of that sum.  Of types narrower than f32 it is the sum's error, before the
 * epilogue.
 *
 * F32_FAST, and F32_LOOSE but for what splits (quern_problem), are Winograd's: outputs that share a tile share
 * products, in which inputs and weights are added first.  So an infinite or NaN input makes every output that
 * reads it infinite or NaN, and may make NaN of others up to m outputs, times the dilation, from where those are, or
 * would be.  That is along each axis of the filter in conv_winograd_f<m><r> and conv_split3_winograd_f<m><r>, whose
 * first digit is the m of F(m, r); m is 4 and along w alone in conv_winograd_line, 4 and along h alone in
 * conv_grouped_winograd and conv_grouped_planes_winograd.  An infinite or NaN weight does so to outputs that it meets,
 * and may to all of its output channel; and what is within a factor of about 1000 of the largest float may overflow.
 * conv_depthwise_image multiplies spectra of lines, and has zeros where the filter does not reach: an infinite or NaN
 * input may make its channel of its image infinite or NaN, such a weight all of its output channel.
 * Who cannot accept that asks for F32. */
typedef int32_t quern_accuracy;
enum {
  QUERN_ACCURACY_DEFAULT = 0,    /* EXACT for s8, F16 for e4m3, F32 for f64, else F32_FAST          */
  QUERN_ACCURACY_EXACT = 10,     /* the exact sum                                                   */
  QUERN_ACCURACY_F32 = 20,       /* as a chain of fused multiply-adds: at most about (k + 1) * e * s */
  QUERN_ACCURACY_F32_FAST = 30,  /* within four times of F32's measured error                       */
  QUERN_ACCURACY_F32_LOOSE = 40, /* relative L2 error up to 1e-5                                    */
  QUERN_ACCURACY_F16 = 60        /* up to 2^-11, as if the sum were rounded to f16: of e4m3, whose products
                                    tensor cores add with some 14 bits                              */
};

/* The problem.  dst, or any of its type, layout, size and stride, may be left zero: then it is derived (type and
 * layout from src).  The same holds for residual, from dst.
 *
 *   CONV             src n c d h w, weights k (c/groups) t r s, dst n k o p q with
 *                    p = (h + pad_begin + pad_end - dilation * (r - 1) - 1) / stride + 1, rounded down
 *   CONV_TRANSPOSED  src n c d h w, weights c (k/groups) t r s, dst n k o p q with
 *                    p = (h - 1) * stride + dilation * (r - 1) + 1 - pad_begin - pad_end + output_padding
 *   GEMM             src n 1 1 m c, weights 1 1 1 c k, dst n 1 1 m k: rows along h, columns along w
 *   REORDER          src n c d h w, dst the same; weights, window and epilogue stay zero
 *   POOL_*           src n c d h w, dst n c o p q with p as for CONV; no weights
 *   REDUCE_*         src n c d h w, dst the same with 1 along `axes`
 *   NORM             dst = (src - mean) / sqrt(variance + epsilon), both of a slice: the elements along `axes`.  d h w
 *                    is instance norm; c, or c d h w, layer norm; c d h w with groups, which cut the channels, group
 *                    norm.  The variance is the mean of (src - mean)^2
 *   RMS_NORM         dst = src / sqrt(mean of src^2 + epsilon), otherwise as NORM
 *   SOFTMAX          dst = exp(src - m) / s with m the largest of the slice and s the sum of exp(src - m) over it
 *   LOG_SOFTMAX      dst = src - m - log(s)
 *   UNARY            dst = src
 *   ADD ... MIN      dst = src + weights, src - weights, src * weights, src / weights, the larger, the smaller; each
 *                    size of weights is src's, or 1: the same element all along
 *
 * and then the epilogue, whose output channels are those of dst: norms take their scale and bias from there.  From
 * POOL_MAX on kernels of a CPU want f32, src, dst and residual in one layout, and neighbours along the densest axis
 * side by side; on a GPU REDUCE_SUM to LOG_SOFTMAX want no blocks of channels; others are the reference's
 * (wish.algorithm "reference").  A sum over no element, and a mean, is 0, a product 1, the largest is -infinity, the
 * smallest infinity.  A maximum or minimum with a NaN among them is NaN; which of two zeros it is, is not said.  NaN or
 * an infinity makes a slice of NORM NaN; one of RMS_NORM becomes NaN with a NaN, and with an infinity NaN there and 0
 * elsewhere; one of SOFTMAX with a NaN or +infinity, or of nothing but -infinity, becomes NaN, and -infinity beside
 * finite numbers 0.
 *
 * Zero-sized problems are valid and do nothing (a sum over nothing is zero: the epilogue still runs). Padding adds
 * nothing; but Winograd, conv_im2col, conv_band, conv_planar, conv_few_planes, conv_depthwise_planar, conv_split2 and
 * 3, conv_implicit, conv_tensor, conv_tma, conv_tma_f16x3, conv_first_layer, conv_first_box, conv_few_channels,
 * conv_walk, conv_depthwise_box, conv_depthwise_image, conv_group, conv_group_box and conv_toeplitz multiply its zeros, so
 * there an infinite or NaN weight beside padding gives NaN, where the other algorithms leave the tap out: the property
 * "pads" of wish.deny.
 * These last three multiply inputs beside an output's own by zero as well, of some other groups, conv_toeplitz of all of
 * a line: where those are infinite or NaN, the output is NaN.
 *
 * Some multiply parts of each f32, the property "splits": there an infinite or NaN input or weight makes every
 * output that meets it infinite or NaN, but which of the two is not said, and a zero that meets an infinity is as
 * good as any number.  conv_tensor, conv_tma, conv_first_layer, conv_first_box and conv_group_box have two parts of
 * TF32; what is within 2^-12 of the largest float counts as infinite.  conv_split3, its Winograd forms and gemm_split3
 * have three of bf16, right up to the largest float, conv_split2 and gemm_split2 two, of which inputs and weights within
 * 2^-8 of it count as infinite; for both denormal inputs, weights and sums are zeros, and parts below the smallest
 * normal float are: from 1e-30 down, inputs and weights lose digits.
 *
 * conv_tma_f16x3 has two parts of F16, and needs to know how large src gets: wish.src_limit.  Inputs are rounded to 22
 * bits and to 2^-39 of the limit, which counts for those below 2^-17 of it: a limit far above what src has costs
 * digits.  Weights are, to 2^-39 of the largest of their output channel.  What meets an input beyond the limit is
 * right still, or infinite or NaN. */
typedef struct quern_problem {
  uint32_t       size; /* sizeof(quern_problem) */
  quern_op       op;
  quern_tensor   src, weights, dst, residual;
  quern_window   window;
  int64_t        groups; /* 0 means 1 */
  quern_epilogue epilogue;
  quern_accuracy accuracy;
  int32_t        axes;    /* QUERN_AXIS_*: REDUCE_*, NORM, RMS_NORM, SOFTMAX, LOG_SOFTMAX; else 0     */
  float          epsilon; /* above 0: NORM and RMS_NORM, where 0 means 1e-5; else 0                  */
  int32_t        reserved;
} quern_problem;

/* Problems with every default filled in; change what differs.  No checks: the verbs check.  The layout
 * is that of src and, unless dst.layout is set, of dst; weights are QUERN_NCHW (k c r s, transposed c k r
 * s) until weights.layout says otherwise.  src, dst and weights are dense, dst is left to be derived.
 * With groups, set weights.size[1] too: to c / groups, transposed to k / groups.  quern_gemm multiplies
 * an m x k matrix (src) by a k x n one (weights), all row-major. */
QUERN_API quern_problem quern_conv2d(quern_type, quern_layout, int64_t n, int64_t c, int64_t h, int64_t w,
                                     int64_t k, int64_t r, int64_t s) QUERN_NOEXCEPT;
QUERN_API quern_problem quern_conv2d_transposed(quern_type, quern_layout, int64_t n, int64_t c, int64_t h,
                                                int64_t w, int64_t k, int64_t r, int64_t s) QUERN_NOEXCEPT;
QUERN_API quern_problem quern_gemm(quern_type, int64_t m, int64_t n, int64_t k) QUERN_NOEXCEPT;
QUERN_API quern_problem quern_reorder(quern_type, quern_layout src, quern_layout dst, int64_t n, int64_t c, int64_t h,
                                      int64_t w) QUERN_NOEXCEPT;
/* POOL_*, with a filter of r x s; 0 x 0 is global pooling. */
QUERN_API quern_problem quern_pool2d(quern_op, quern_type, quern_layout, int64_t n, int64_t c, int64_t h, int64_t w,
                                     int64_t r, int64_t s) QUERN_NOEXCEPT;
/* REDUCE_*, NORM, RMS_NORM, SOFTMAX and LOG_SOFTMAX. */
QUERN_API quern_problem quern_over_axes(quern_op, quern_type, quern_layout, int64_t n, int64_t c, int64_t h, int64_t w,
                                        int32_t axes) QUERN_NOEXCEPT;
/* UNARY, and ADD to MIN, where weights are of src's layout and sizes until they are said to be others. */
QUERN_API quern_problem quern_elementwise(quern_op, quern_type, quern_layout, int64_t n, int64_t c, int64_t h,
                                          int64_t w) QUERN_NOEXCEPT;

/* Checks every field, and fills in what was left to be derived: tensors complete with strides, window
 * and groups without zeros.  All verbs do this first.  In place is fine (out == problem). */
QUERN_API quern_status quern_problem_complete(const quern_problem*, quern_problem* out, quern_error*) QUERN_NOEXCEPT;

/* The text form: one line, benchdnn's problem language with words around it.  The verbose line, the
 * bench's input, a fuzzer's finding and a bug report are this line, and replay each other.
 *
 *   [OPERATOR] [TYPE|SRC:WEIGHTS:DST] [LAYOUT|SRC:DST] DESCRIPTOR [WORD...]
 *
 *   conv nhwc g1mb1ic64ih56oc64oh56kh3ph1n"resnet50:l1_3x3" bias act=relu
 *   conv s8:s8:f16 nhwc ic64ih56oc64oh56kh3ph1 scale bias
 *   gemm f32 128x256:256x512
 *   reorder nchw:nc8hw8 1x64x56x56
 *   pool_max f16 nhwc mb1ic64ih112kh3sh2ph1
 *   norm nhwc 1x320x64x64 axes=chw groups=32 scale bias act=silu
 *   add nchw 1x64x56x56:1x64x1x1 act=relu
 *
 * Everything but the descriptor has a default (conv, f32, nchw, no epilogue).  docs/text.md is the whole
 * grammar.  A missing w-value equals its h-value; missing groups, batch and stride mean 1, missing
 * dilation (minus one, as benchdnn counts) and padding 0; where oh and ow are given without padding, that is half of
 * what they need, and with padding they decide it at the end, and are refused when none explains them. */

/* On failure error->value is the column (1 is the first) of the offending character. */
QUERN_API quern_status quern_problem_parse(const char* text, quern_problem* out, quern_error*) QUERN_NOEXCEPT;

/* Writes the line and its final zero.  `capacity` bytes; *length (may be NULL) receives the length
 * without the zero even when it does not fit (then: QUERN_BUFFER).  Parsing it gives the same problem. */
QUERN_API quern_status quern_problem_print(const quern_problem*, char* out, size_t capacity, size_t* length,
                                           quern_error*) QUERN_NOEXCEPT;

/* ---- The machine ------------------------------------------------------------------------------ */

/* A device other than this CPU, the only object here with a life; NULL everywhere means the CPU. */
typedef struct quern_device quern_device;

typedef int32_t quern_backend;
enum {
  QUERN_BACKEND_REF = 1, /* the float64 reference: never chosen unless asked for by name            */
  QUERN_BACKEND_X86 = 2,
  QUERN_BACKEND_ARM = 3, /* 64-bit, and 32-bit with NEON, which takes denormals for zero            */
  QUERN_BACKEND_CUDA = 4
};

/* Instruction sets that kernels are built for, as bits: 0 to 15 of x86, 16 to 31 of ARM. */
enum {
  QUERN_ISA_AVX2 = 1 << 0,  /* AVX2 and FMA                                                         */
  QUERN_ISA_AVX512 = 1 << 1,/* AVX-512 F, BW, DQ, VL                                                */
  QUERN_ISA_AMX = 1 << 2,   /* AMX tiles with products of bf16, which the system lets this process use */
  QUERN_ISA_NEON = 1 << 16  /* ARM: Advanced SIMD with fused multiply-add (32-bit: NEON and VFPv4)  */
};

/* A CPU as the choice sees it.  An argument, so that any machine can be asked about on any other. */
typedef struct quern_cpu {
  uint32_t size;  /* sizeof(quern_cpu)                                                              */
  uint32_t cores; /* that this process may use                                                      */
  uint64_t isa;   /* QUERN_ISA_* bits that CPU and OS both allow                                    */
  uint64_t l1_bytes, l2_bytes, l3_bytes; /* data caches: L1 and L2 of one core, L3 shared; 0 = unknown
                                            (32 KiB, 256 KiB and no L3 are assumed), as always on ARM:
                                            files alone tell them there                             */
  uint64_t vector_bits; /* that a core multiplies at once: 256 where AVX-512 runs in halves (Zen 4);
                           0 = all of a register                                                    */
  uint64_t model; /* x86: the vendor's first four letters above family and model, as CPUID has them (leaves 0
                     and 1, without stepping); 0: unknown.  What was measured on one says nothing of another */
  /* What predictions are made with, of one core; 0: the library's table for the model, or for the instruction
   * sets where that is unknown.  quern_cpu_measure measures them. */
  double flops;       /* a nanosecond: f32 multiply-adds of the widest instructions, counted as two */
  double l1_rate, l2_rate, l3_rate, memory_rate; /* bytes a nanosecond, copied: read plus written   */
  double fork_ns;     /* of an empty parallel_for with a task for each core                         */
  uint64_t withheld_isa; /* QUERN_ISA_* bits that the CPU has and the OS or VM keeps from this process */
} quern_cpu;

/* This CPU, capped by the environment variable QUERN_ISA (x86: "ref", "avx2", "avx512", "amx", ARM: "ref", "neon":
 * the highest allowed).  The first call here that asks what this CPU can do while QUERN_ISA allows AMX, or that runs a
 * kernel of it, asks Linux for permission to use it, which the process then has for good (arch_prctl,
 * ARCH_REQ_XCOMP_PERM): contexts of signals may be 8 KiB larger.  A thread's tiles are in use inside of quern_run
 * alone, and released before it returns.
 * Its size must be set. */
QUERN_API quern_status quern_cpu_get(quern_cpu*, quern_error*) QUERN_NOEXCEPT;

/* What predictions take for this CPU: *cpu with all constants filled in.  In place. */
QUERN_API quern_status quern_cpu_constants(quern_cpu* cpu, quern_error*) QUERN_NOEXCEPT;

/* "avx512" for QUERN_ISA_AVX512; NULL for what is not exactly one known bit. */
QUERN_API const char* quern_isa_name(uint64_t bit) QUERN_NOEXCEPT;

/* A GPU as the choice sees it.  An argument too: wish.gpu asks about one that is not there. */
typedef struct quern_gpu {
  uint32_t size;            /* sizeof(quern_gpu)                                                    */
  uint32_t capability;      /* CUDA's compute capability, 10 * major + minor: 90 is 9.0             */
  uint32_t multiprocessors; /* 0 in these: unknown, assumed small                                   */
  uint32_t clock_mhz;
  uint64_t l2_bytes;
  uint64_t shared_bytes;    /* shared memory that one block can have                                */
  uint64_t bandwidth;       /* of its memory, bytes a second                                        */
  uint32_t driver;          /* the CUDA version that its driver has, 1000 * major + 10 * minor      */
  uint32_t reserved;        /* 0                                                                    */
} quern_gpu;

/* Opens the GPU of a CUDA context (a CUcontext); NULL: the context that is current on this thread, as
 * the runtime API leaves it after cudaSetDevice().  Loads libcuda.so.1 when it is first called, which
 * must be of the CUDA major version that the kernels were built with, or later.  Allocates.  One object a
 * context; several GPUs are several objects.
 *
 * With a device, src, weights, dst, residual, the vectors of the epilogue, packed weights and workspace
 * of quern_run are memory of that GPU, and exec.queue is the stream that the work is put on.  quern_run
 * then launches kernels and nothing else: no allocation, no synchronisation, no other stream; so it can
 * be captured in a CUDA graph.  It needs no context to be current and leaves the current one as it was.
 * quern_plan_make loads the chosen kernel into the context, which may allocate there and wait for the GPU:
 * plan before you capture.  quern_pack is the CPU's, from and to its memory: copy the blob.  src must be aligned
 * to 16 bytes where a plan without workspace is one of conv_tma, conv_tma_f16x3, conv_first_box, conv_group_box,
 * conv_depthwise_box and conv_toeplitz, and src of type s8 to 4 bytes for conv_quads (wish.deny keeps them away). */
QUERN_API quern_status quern_cuda_open(quern_device** out, void* context, quern_error*) QUERN_NOEXCEPT;

/* Unloads the kernels and frees the object; NULL is fine.  Its plans are worth nothing from then on; what
 * they launched must be done, and so must the context still be there. */
QUERN_API void quern_device_close(quern_device*) QUERN_NOEXCEPT;

/* out->size must be set. */
QUERN_API quern_status quern_gpu_get(const quern_device*, quern_gpu* out, quern_error*) QUERN_NOEXCEPT;

/* ---- The choice ------------------------------------------------------------------------------- */

/* How far results of an algorithm repeat; each level includes those above it.  A plan for another batch, number of
 * threads or CPU may choose another algorithm.  On a CPU all of class F32 that reach QUERN_REPEAT_ISA have the same bits:
 * with problem.accuracy F32 and this level, plans agree whatever they choose; else name one, wish.algorithm. */
enum {
  QUERN_REPEAT_RUN = 0,    /* the same call gives the same bits                                     */
  QUERN_REPEAT_THREADS = 1,/* ... on any number of threads                                          */
  QUERN_REPEAT_BATCH = 2,  /* ... and an image's result does not depend on the batch around it      */
  QUERN_REPEAT_ISA = 3,    /* ... and on any ISA of the backend                                     */
  QUERN_REPEAT_REF = 4     /* ... and equals the reference                                          */
};

/* What of a GPU's run may begin while the kernel before it on the stream still runs (programmatic dependent launch),
 * where the kernel that is chosen can do so.  All that it writes, and all that it reads but packed weights, waits until
 * everything before it has ended, whatever this says. */
enum {
  QUERN_OVERLAP_START = 0,   /* blocks get ready                                                    */
  QUERN_OVERLAP_WEIGHTS = 1, /* and request packed weights, which are taken for constants: they may be copied to the
                                GPU at any time, but not be written by that very kernel             */
  QUERN_OVERLAP_NONE = 2     /* nothing: kernels are launched as any others                         */
};

/* What the caller insists on.  A wish that nothing meets is refused, never bent.  NULL: no wishes. */
typedef struct quern_wish {
  uint32_t         size;      /* sizeof(quern_wish)                                                 */
  uint32_t         threads;   /* threads that run() will have, whatever pool it is given; 0 means 1 */
  const char*      algorithm; /* only this one, e.g. "conv_im2col"; NULL: any but the reference     */
  const char*      kernel;    /* only this one, e.g. "gemm_f32_14x32_avx512"; NULL: any             */
  const char*      deny;      /* names of algorithms and kernels, and properties, not wanted, separated by
                                 commas.  Properties: error classes (exact, f32, f32_fast, f32_loose, f16),
                                 instruction sets (avx512), "packs" (has weights packed), "pads"
                                 (multiplies the zeros of padding), "splits" (multiplies parts of
                                 each f32)                                                          */
  const quern_cpu* cpu;       /* choose for this CPU; NULL: the one at hand.  Not with a device or `gpu` */
  size_t           workspace_limit; /* bytes; 0: no limit; anything below 64: none at all           */
  int32_t          repeat;    /* QUERN_REPEAT_* at least                                            */
  int32_t          verbose;   /* 0: the environment variable QUERN_VERBOSE decides; -1: silent; 1: the
                                 choice; 2: the refusals too                                        */
  void (*log)(void* self, const char* line); /* where verbose lines go; NULL: stderr                */
  void*            log_self;
  const quern_gpu* gpu; /* choose for this GPU: of the device, which is then NULL or one that can run it, or
                           seen as smaller than it is; NULL: the device's own.  Plans made without a device
                           cannot run                                                               */
  const void* tuning;     /* a table of what quern_tune measured.  Where it has a row for this problem and machine,
                             what it measured goes before what is predicted; where it is damaged, foreign or
                             stale, it is as if it were not there                                   */
  size_t      tuning_bytes;
  const char* allow;      /* only what has one of these names or properties, as in deny; NULL: any  */
  int32_t     overlap;    /* QUERN_OVERLAP_*                                                        */
  float       src_limit;  /* a promise: no element of src will have a larger magnitude; 0: none.  What needs it
                             (conv_tma_f16x3) is refused without                                    */
} quern_wish;

enum {
  QUERN_CHOSEN = 1,     /* what quern_plan_make takes                                               */
  QUERN_USABLE = 2,     /* would run                                                                */
  QUERN_REFUSED = 3,    /* the problem or the wish rules it out                                     */
  QUERN_UNAVAILABLE = 4 /* this machine cannot run it                                               */
};

typedef int32_t quern_reason;
enum {
  QUERN_REASON_NONE = 0,
  QUERN_REASON_ISA = 1,       /* the CPU lacks an instruction set, the GPU a capability or memory   */
  QUERN_REASON_TYPE = 2,      /* it does not compute this type                                      */
  QUERN_REASON_LAYOUT = 3,    /* it does not read or write this layout                              */
  QUERN_REASON_SHAPE = 4,     /* a size, stride or window field is outside of what it takes         */
  QUERN_REASON_EPILOGUE = 5,  /* it has no such epilogue                                            */
  QUERN_REASON_ACCURACY = 6,  /* its error class is worse than the problem accepts                  */
  QUERN_REASON_REPEAT = 7,    /* it repeats less far than the wish demands                          */
  QUERN_REASON_WORKSPACE = 8, /* it needs more memory than the wish allows                          */
  QUERN_REASON_WISH = 9       /* the wish names another, denies this one, or lacks what it needs    */
};

/* One way to solve the problem: an algorithm driving a kernel.  Strings are constants of the library. */
typedef struct quern_candidate {
  uint32_t       size;           /* sizeof(quern_candidate): set it in the first element            */
  int32_t        verdict;        /* QUERN_CHOSEN ...                                                */
  const char*    algorithm;      /* e.g. "conv_im2col"; names are never reused for other numerics   */
  const char*    kernel;         /* e.g. "gemm_f32_14x32_avx512"                                    */
  quern_backend  backend;
  quern_reason   reason;         /* why not, else QUERN_REASON_NONE                                 */
  const char*    field;          /* the field that rules it out, or NULL                            */
  int64_t        value, limit;   /* its value, and what the kernel would take                       */
  uint64_t       workspace_bytes;
  uint64_t       packed_bytes;
  double         predicted_ns;   /* of one run; 0 when refused                                      */
  const char*    predictor;      /* the cost model's name and revision                              */
  double         measured_ns;    /* 0: never measured                                               */
  const char*    measured_by;    /* where that figure comes from: "tuning", the wish's table; NULL: never
                                    measured                                                        */
  quern_accuracy accuracy;       /* error class                                                     */
  int32_t        repeat;         /* QUERN_REPEAT_*                                                  */
  double         error_bound;    /* before the epilogue: |error| <= error_bound * sum |src| * |weights|;
                                    of F32_FAST and F32_LOOSE: <= error_bound * max |src| * sum |weights|,
                                    where wish.src_limit, if the algorithm needs one, stands for max |src|.
                                    Without products: of sums and means times that of |src|, or of its
                                    squares; of NORM and RMS_NORM times the largest |src| of the slice over
                                    the root; of LOG_SOFTMAX times 1 and the largest |src - m|; of the
                                    others times |dst|                                              */
  double         flops;          /* done, padding and tails included                                */
  double         bytes;          /* that must pass between memory and the core at least             */
  double         floor_percent;  /* the machine's floor for the problem (FMA or AMX, bandwidth) over
                                    predicted_ns, times 100; more where multiplications are saved   */
  uint32_t       threads;        /* worth using, at most wish.threads                               */
  uint32_t       reserved;
  quern_layout   src_layout, dst_layout; /* the problem's, or where that is QUERN_ANY the best for it */
} quern_candidate;

/* Every kernel of the library that belongs to the problem's operator on this device (the CPU's have other operands
 * than a GPU's), each exactly once: the chosen one first, then the usable ones, those that were measured before
 * those that were not, by time; then the others; where a layout is QUERN_ANY, in the layouts that suit it best.
 * Writes at most `capacity` of them; *count receives how many there are.  out may be NULL when capacity is 0.
 * out[0].size must be set.  A problem that no kernel solves is not an error here. */
QUERN_API quern_status quern_candidates(const quern_device*, const quern_problem*, const quern_wish*,
                                        quern_candidate* out, size_t capacity, size_t* count,
                                        quern_error*) QUERN_NOEXCEPT;

/* The front of time and memory: of the usable candidates those than which no other is as fast with as little
 * workspace; the fastest first, which is the chosen one, the one with the least workspace last.  Otherwise as
 * quern_candidates. */
QUERN_API quern_status quern_front(const quern_device*, const quern_problem*, const quern_wish*, quern_candidate* out,
                                   size_t capacity, size_t* count, quern_error*) QUERN_NOEXCEPT;

/* Why, in a sentence: "needs avx512, which this CPU lacks".  Same capacity rule as quern_problem_print. */
QUERN_API quern_status quern_candidate_explain(const quern_candidate*, char* out, size_t capacity, size_t* length,
                                               quern_error*) QUERN_NOEXCEPT;

/* The choice, ready to run: a plain value, valid in the process that made it; copy it freely.  The
 * named fields are for reading: a plan that was changed is refused. */
typedef struct quern_plan {
  uint32_t       size;      /* sizeof(quern_plan); set by quern_plan_make                           */
  uint32_t       threads;   /* worth using; run() never uses more                                   */
  const char*    algorithm;
  const char*    kernel;
  quern_problem  problem;   /* complete: every field that was left to be derived is filled in       */
  uint64_t       packed_bytes;    /* what quern_pack writes, 0: no weights to pack                  */
  uint64_t       workspace_bytes; /* what quern_run needs, for `threads` threads                    */
  quern_accuracy accuracy;
  int32_t        repeat;
  double         error_bound;
  double         predicted_ns;
  uint64_t       opaque[64];
} quern_plan;

/* Takes microseconds.  With QUERN_ANY all layouts are tried, five times as many for each of src and dst, and
 * conversions to and from them count for nothing: ask where the neighbours can take what comes out. */
QUERN_API quern_status quern_plan_make(quern_plan*, const quern_device*, const quern_problem*, const quern_wish*,
                                       quern_error*) QUERN_NOEXCEPT;

/* ---- Running ---------------------------------------------------------------------------------- */

/* The caller's threads and memory, for one call.  NULL: this thread, no workspace. */
typedef struct quern_exec {
  uint32_t size;    /* sizeof(quern_exec)                                                           */
  uint32_t threads; /* that parallel_for brings; 0 or 1, or no parallel_for: this thread alone      */
  /* Must call task(arg, i) once for every i below count and return when all are done; on any number of
   * threads, in any order, any thread any number of them. */
  void (*parallel_for)(void* self, size_t count, void (*task)(void* arg, size_t i), void* arg);
  void*    self;
  void*    queue;           /* a device's stream: CUstream, cudaStream_t; NULL for the CPU alone: the
                               default stream must be asked for, as CU_STREAM_LEGACY or _PER_THREAD */
  void*    workspace;       /* 64-byte aligned; contents do not matter before or after              */
  uint64_t workspace_bytes; /* at least plan.workspace_bytes                                        */
} quern_exec;

/* Alignment that workspace and packed weights must have, in bytes. */
#define QUERN_ALIGN 64

/* Packs plan.problem.weights, whose first element is at `weights`, into packed (plan.packed_bytes long,
 * aligned to QUERN_ALIGN).  The blob is position independent: save it, map it, share it between
 * threads, plans and processes.  It does not depend on the number of threads.  QUERN_INVALID where
 * plan.packed_bytes is 0: weights go to quern_run as they are. */
QUERN_API quern_status quern_pack(const quern_plan*, const void* weights, void* packed, uint64_t packed_bytes,
                                  const quern_exec*, quern_error*) QUERN_NOEXCEPT;

/* The same in parts, so that both copies need never exist whole: output channels first to first +
 * count - 1, in any order, each exactly once, `weights` where the element of output channel `first`
 * is; then quern_pack_seal once.  A blob that was not sealed is refused by quern_run, on a CPU; parts do not break
 * the seal of one that lay there before, so weights that change go elsewhere or are sealed again. */
QUERN_API quern_status quern_pack_part(const quern_plan*, int64_t first, int64_t count, const void* weights,
                                       void* packed, uint64_t packed_bytes, quern_error*) QUERN_NOEXCEPT;
QUERN_API quern_status quern_pack_seal(const quern_plan*, void* packed, uint64_t packed_bytes,
                                       quern_error*) QUERN_NOEXCEPT;

/* QUERN_OK when the blob was packed for plans like this one and is whole (the checksum is recomputed:
 * one pass over it).  quern_run checks the header alone, and nothing of a blob in a GPU's memory: check that before it
 * is copied there. */
QUERN_API quern_status quern_packed_check(const quern_plan*, const void* packed, uint64_t packed_bytes,
                                          quern_error*) QUERN_NOEXCEPT;

/* Pointers to the first element of each operand, aligned to their element. */
typedef struct quern_args {
  uint32_t    size;     /* sizeof(quern_args)                                                       */
  uint32_t    reserved;
  const void* src;
  const void* weights;  /* packed; plain where plan.packed_bytes is 0                               */
  void*       dst;      /* from first to last element apart from all others, as is workspace        */
  const void* residual; /* may be dst itself when it has the strides and blocks of dst              */
  const void* scale;    /* one per output channel                                                   */
  const void* bias;     /* one per output channel                                                   */
  const void* slope;    /* one per output channel (PReLU)                                           */
} quern_args;

/* Runs the plan: checks plan, operands (NULL, alignment, overlap), packed weights' header (on a CPU) and workspace, and
 * makes one call into the algorithm.  Before that nothing is written: with QUERN_INVALID, QUERN_BUFFER, QUERN_MISMATCH or
 * QUERN_UNSUPPORTED (a plan for a CPU or GPU that this is not) dst is as it was.  Operands that the problem does not announce (a bias without epilogue.bias) are not looked at.  Uses
 * plan.threads threads at most, of exec's pool; any number of threads may run one plan at once, each
 * with its own workspace and dst.  On a GPU it puts the work on the stream and returns: QUERN_DRIVER where that fails. */
QUERN_API quern_status quern_run(const quern_plan*, const quern_args*, const quern_exec*,
                                 quern_error*) QUERN_NOEXCEPT;

/* Measures the constants of a quern_cpu on this thread, which takes some 50 milliseconds: keep them and hand
 * them in with wish.cpu.  `out`, whose size must be set, receives the whole of quern_cpu_get and what was
 * measured; without a pool in exec fork_ns stays the table's, and so do rates of caches for which exec->workspace
 * is too small: it takes half the size of a cache, or four times that of the one before it, if that is less, and for
 * memory at least twice the last one's; QUERN_CPU_WORKSPACE suffices for an L3 of half of that.  QUERN_UNSUPPORTED where no kernel runs. */
#define QUERN_CPU_WORKSPACE ((uint64_t)64 << 20)
QUERN_API quern_status quern_cpu_measure(quern_cpu* out, const quern_exec*, quern_error*) QUERN_NOEXCEPT;

/* Everything in one call: plan, pack, run, with plain weights.  Allocates what that needs (plan.packed_bytes
 * and plan.workspace_bytes) and frees it; workspace of exec is not used.  For code that runs once.  Refuses
 * QUERN_ANY, since the tensors are there, and what the reference alone computes, which runs when it is asked for; f64
 * asks for it. */
QUERN_API quern_status quern_compute(const quern_problem*, const quern_args*, const quern_exec*,
                                     quern_error*) QUERN_NOEXCEPT;

/* C = alpha * A B + beta * C for A (m x k), B (k x n), C (m x n) with row and column strides rs* and cs*
 * in elements, as BLIS has them: (ld, 1) is row-major, (1, ld) column-major or transposed.  beta = 0
 * does not read C.  Accuracy F32, by nothing that "splits" (quern_problem): who calls BLAS expects of infinities what
 * f32 makes of them.  The same bits on any number of threads.  Takes its memory from exec->workspace when that is at
 * least quern_sgemm_workspace() bytes, else allocates.  QUERN_INVALID for sizes beyond 2^31, strides that overlap or
 * pass 2^53 elements, and NaN in alpha or beta; QUERN_BUFFER for what is missing, overlaps, or is not aligned,
 * exec->workspace included.  To multiply by the same B again, plan a QUERN_GEMM and pack B. */
QUERN_API quern_status quern_sgemm(int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t rsa,
                                   int64_t csa, const float* b, int64_t rsb, int64_t csb, float beta, float* c,
                                   int64_t rsc, int64_t csc, const quern_exec*, quern_error*) QUERN_NOEXCEPT;
/* Bytes of workspace with which quern_sgemm allocates nothing; 0 for sizes that it refuses. */
QUERN_API uint64_t quern_sgemm_workspace(int64_t m, int64_t n, int64_t k, const quern_exec*) QUERN_NOEXCEPT;

/* ---- Tuning ----------------------------------------------------------------------------------- */

/* How far quern_tune goes.  Each level measures what the one below it does, and more. */
enum {
  QUERN_TUNE_NONE = 0,   /* nothing: the choice stays the prediction's                              */
  QUERN_TUNE_FAST = 1,   /* the few that are predicted to be as good as the best, algorithms first  */
  QUERN_TUNE_NORMAL = 2, /* all that might be, should the prediction be off by half                 */
  QUERN_TUNE_WIDE = 3,   /* ... by three times; then block sizes and threads of the two fastest     */
  QUERN_TUNE_HEAVY = 4   /* all that are usable; then block sizes and threads of the four fastest   */
};

/* What tuning has come to. */
typedef struct quern_tuned {
  uint32_t    size;        /* sizeof(quern_tuned)                                                   */
  uint32_t    candidates;  /* that were measured                                                    */
  uint64_t    launches;    /* runs of kernels; 0 where the wish's table had the answer              */
  double      elapsed_ns;
  const char* algorithm;   /* the fastest so far, NULL before there is one                          */
  const char* kernel;
  double      measured_ns; /* its median                                                            */
  double      default_ns;  /* the median of what is chosen without tuning; 0: not measured          */
} quern_tuned;

/* What tuning may cost. */
typedef struct quern_budget {
  uint32_t size;         /* sizeof(quern_budget)                                                    */
  int32_t  level;        /* QUERN_TUNE_*                                                            */
  uint32_t milliseconds; /* after which nothing more is started; 0: the level's, 60, 1500, 4000, 20000 */
  uint32_t launches;     /* runs of kernels; 0: as many as it takes                                 */
  /* Receives the new row, as a table of one: for quern_tuning_merge, or to be written to a file. */
  void (*row)(void* self, const void* table, size_t bytes);
  /* Called before every sample; anything but 0 ends the call with QUERN_CANCELLED, without a row. */
  int (*progress)(void* self, const quern_tuned*);
  void* self;
} quern_budget;

/* Measures what the prediction ranks, on random data, with the threads of exec (at least wish.threads) and in
 * memory of exec->workspace: all still in the race in turn, round by round, so that a slow moment of the machine
 * hits all alike; half of them leave after each stage, and who is clearly behind leaves at once.  What would be
 * chosen without it stays the choice unless another is 3 % faster.
 *
 * budget->row receives the result: what each was measured to take, in one row.  A plan made with that row in its
 * wish takes the fastest.  Where the wish's own table has a row of this level or more, nothing is run.  *out (may
 * be NULL) says what was found and what it cost.  A budget that ends before anything was measured is no error: no
 * row.
 *
 * With a device exec->workspace is memory of its GPU, and exec->queue a stream that can be captured, as the default one
 * cannot; the call waits for it.  Runs are timed by events, in graphs of some, and each finds its operands in memory,
 * not in L2.  Some memory of this computer is allocated, and freed again.
 *
 * For what is at hand, one layout at a time: wish.cpu, wish.gpu and QUERN_ANY are refused.  Rows are for the problem,
 * the CPU, its caches and wish.threads, or the GPU and its driver, this build's kernels, and the wish's other demands. */
QUERN_API quern_status quern_tune(const quern_device*, const quern_problem*, const quern_wish*, const quern_budget*,
                                  const quern_exec*, quern_tuned* out, quern_error*) QUERN_NOEXCEPT;

/* Bytes of exec->workspace that quern_tune makes use of.  With less, those predicted to be slower are left out; it
 * needs what one candidate takes. */
QUERN_API quern_status quern_tune_workspace(const quern_device*, const quern_problem*, const quern_wish*,
                                            const quern_budget*, uint64_t* bytes, quern_error*) QUERN_NOEXCEPT;

/* A table is text: the line "# quern tuning 1", then a line for each row, sorted, each with a checksum of its own
 * (docs/tuning.md).  Zero bytes are a table without rows.
 *
 * QUERN_OK when every line is whole and possible.  Else QUERN_MISMATCH: error->value is the line (1 is the first),
 * error->text says what is wrong with it.  *rows and *damaged (may be NULL) count lines that are and are not. */
QUERN_API quern_status quern_tuning_check(const void* table, size_t bytes, size_t* rows, size_t* damaged,
                                          quern_error*) QUERN_NOEXCEPT;

/* One table of two, without lines that are damaged or impossible.  Of two rows for the same problem and machine
 * the one of the higher level stays, else b's.  Writes at most `capacity` bytes to out, which must not overlap them;
 * *length receives how many; with out NULL, how many suffice.  QUERN_MISMATCH when a or b is no table of this
 * version. */
QUERN_API quern_status quern_tuning_merge(const void* a, size_t a_bytes, const void* b, size_t b_bytes, void* out,
                                          size_t capacity, size_t* length, quern_error*) QUERN_NOEXCEPT;

/* ---- The kernel table ------------------------------------------------------------------------- */

/* The list that the choice, the tests and the benches walk. */
typedef struct quern_kernel_info {
  uint32_t      size;   /* sizeof(quern_kernel_info)                                                */
  quern_backend backend;
  const char*   name;   /* "gemm_f32_14x32_avx512"                                                  */
  const char*   kind;   /* which contract it fulfils: "gemm_f32"                                    */
  const char*   about;  /* what it is for                                                           */
  uint64_t      isa;    /* QUERN_ISA_* bits it needs                                                */
  int32_t       mr, nr; /* register tile, 0 where its kind has none                                 */
  uint32_t      capability; /* CUDA: least compute capability, as in quern_gpu                      */
  uint32_t      reserved;
} quern_kernel_info;

/* The kernels of this build, in the order of its table: index 0 to quern_kernel_count() - 1, else QUERN_INVALID.  `out`,
 * whose size must be set, receives one; its texts are the library's and stay. */
QUERN_API size_t quern_kernel_count(void) QUERN_NOEXCEPT;
QUERN_API quern_status quern_kernel_get(size_t index, quern_kernel_info*, quern_error*) QUERN_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
