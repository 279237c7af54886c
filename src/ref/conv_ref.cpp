// SPDX-License-Identifier: MIT
//
// Convolution and transposed convolution in float64, index by index:
//
//   conv              dst[n k o p q] = sum over c t r s of src[n c d h w] * weights[k c t r s]
//                     d = o * stride + t * dilation - pad_begin            (h and w likewise)
//
//   conv_transposed   dst[n k o p q] = sum over c t r s of src[n c d h w] * weights[c k t r s]
//                     d * stride = o + pad_begin - t * dilation            where that is a whole d
//
// c runs through the input channels of the group that k belongs to; taps outside of the image add nothing.
#include "epilogue_ref.h"

namespace quern {
namespace {

// The sum over one output's taps.  locate(axis, output, tap) is the input index along an axis,
// negative where there is none.  From `src` on, which is of one image, channels are counted from `first`; from
// `weights` on they are weights_c apart.
template <class T, class Locate>
double sum_taps(const quern_problem& p, const T* src, int64_t first, const T* weights, int64_t weights_c,
                const int64_t* at, const Locate& locate) {
  const int64_t channels = p.src.size[1] / p.groups;
  if (channels == 0) return 0;  // src and weights may be NULL then
  const int64_t block = block_of(p.src.layout);
  double sum = 0;
  for (int64_t t = 0; t < p.window.filter[0]; ++t) {
    const int64_t d = locate(0, at[2], t);
    if (d < 0) continue;
    for (int64_t r = 0; r < p.window.filter[1]; ++r) {
      const int64_t h = locate(1, at[3], r);
      if (h < 0) continue;
      for (int64_t s = 0; s < p.window.filter[2]; ++s) {
        const int64_t w = locate(2, at[4], s);
        if (w < 0) continue;
        const T* x = src + d * p.src.stride[2] + h * p.src.stride[3] + w * p.src.stride[4];
        const T* f = weights + t * p.weights.stride[2] + r * p.weights.stride[3] + s * p.weights.stride[4];
        for (int64_t c = 0; c < channels; ++c) {
          sum += static_cast<double>(value(x[channel_offset(first + c, p.src.stride[1], block)])) *
                 static_cast<double>(value(f[c * weights_c]));
        }
      }
    }
  }
  return sum;
}

template <class T>
double conv(const quern_problem& p, const quern_args& args, const int64_t* at) {
  const quern_window& v = p.window;
  const int64_t channels = p.src.size[1] / p.groups, outputs = p.dst.size[1] / p.groups;
  const auto locate = [&](int axis, int64_t output, int64_t tap) {
    const int64_t input = output * v.stride[axis] + tap * v.dilation[axis] - v.pad_begin[axis];
    return input < p.src.size[2 + axis] ? input : -1;
  };
  const int64_t group = at[1] / outputs;
  const T* src = static_cast<const T*>(args.src) + at[0] * p.src.stride[0];
  const T* weights = static_cast<const T*>(args.weights) + at[1] * p.weights.stride[0];
  return sum_taps(p, src, group * channels, weights, p.weights.stride[1], at, locate);
}

template <class T>
double conv_transposed(const quern_problem& p, const quern_args& args, const int64_t* at) {
  const quern_window& v = p.window;
  const int64_t channels = p.src.size[1] / p.groups, outputs = p.dst.size[1] / p.groups;
  const auto locate = [&](int axis, int64_t output, int64_t tap) {
    const int64_t scaled = output + v.pad_begin[axis] - tap * v.dilation[axis];
    const int64_t input = scaled % v.stride[axis] == 0 ? scaled / v.stride[axis] : -1;
    return input < p.src.size[2 + axis] ? input : -1;
  };
  const int64_t group = at[1] / outputs, k = at[1] % outputs;
  const T* src = static_cast<const T*>(args.src) + at[0] * p.src.stride[0];
  const T* weights =
      static_cast<const T*>(args.weights) + group * channels * p.weights.stride[0] + k * p.weights.stride[1];
  return sum_taps(p, src, group * channels, weights, p.weights.stride[0], at, locate);
}

}  // namespace
}  // namespace quern

QUERN_KERNELS(conv_ref,
              {.name = "conv_ref",
               .about = "the formula of convolution, summed in float64",
               .kind = kind::reference,
               .op = QUERN_CONV,
               .type = 0,
               .reference = products<1, conv<float>, conv<double>, conv<f16>, conv<bf16>, conv<s8>, conv<e4m3>>},
              {.name = "conv_transposed_ref",
               .about = "the formula of transposed convolution, summed in float64",
               .kind = kind::reference,
               .op = QUERN_CONV_TRANSPOSED,
               .type = 0,
               .reference = products<1, conv_transposed<float>, conv_transposed<double>, conv_transposed<f16>,
                                     conv_transposed<bf16>, conv_transposed<s8>, conv_transposed<e4m3>>})
