// SPDX-License-Identifier: MIT
//
// Matrix product in float64, index by index:
//
//   dst[n m k] = sum over c of src[n m c] * weights[c k]
//
// Rows of the three matrices run along h of their tensors, columns along w.
#include "epilogue_ref.h"

namespace quern {
namespace {

template <class T>
double gemm(const quern_problem& p, const quern_args& args, const int64_t* at) {
  if (p.src.size[4] == 0) return 0;  // src and weights may be NULL then
  const T* row = static_cast<const T*>(args.src) + at[0] * p.src.stride[0] + at[3] * p.src.stride[3];
  const T* column = static_cast<const T*>(args.weights) + at[4] * p.weights.stride[4];
  double sum = 0;
  for (int64_t c = 0; c < p.src.size[4]; ++c) {
    sum += static_cast<double>(value(row[c * p.src.stride[4]])) *
           static_cast<double>(value(column[c * p.weights.stride[3]]));
  }
  return sum;
}

}  // namespace
}  // namespace quern

QUERN_KERNELS(gemm_ref,
              {.name = "gemm_ref",
               .about = "the formula of the matrix product, summed in float64",
               .kind = kind::reference,
               .op = QUERN_GEMM,
               .type = 0,
               .reference = products<4, gemm<float>, gemm<double>, gemm<f16>, gemm<bf16>, gemm<s8>, gemm<e4m3>>})
