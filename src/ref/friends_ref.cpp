// SPDX-License-Identifier: MIT
//
// Operators without products in float64, index by index: pooling, reductions, norms, softmax, elementwise.  The
// formulas are in boxes.h.
#include "boxes.h"
#include "epilogue_ref.h"

namespace quern {
namespace {

template <class T>
void of_boxes(const quern_problem& p, const quern_args& args, int64_t first, int64_t last) {
  const T* const src = static_cast<const T*>(args.src);
  const T* const weights = static_cast<const T*>(args.weights);
  box before = {};
  box_sum sum = {};
  bool known = false;  // neighbours have a slice in common
  write<double>(p, args, 1, first, last, [&](const int64_t* at) {
    if (const box b = box_of(p, at); !is_elementwise(p.op) && !(known && memcmp(&b, &before, sizeof b) == 0))
      sum = sum_of(p, src, b), before = b, known = true;
    return output_of(p, sum, src, weights, at);
  });
}

constexpr auto formula = by_type<of_boxes<float>, of_boxes<double>, of_boxes<f16>, of_boxes<bf16>>;

}  // namespace
}  // namespace quern

QUERN_KERNELS(friends_ref,
              {.name = "pool_ref",
               .about = "pooling, summed in float64",
               .kind = kind::reference,
               .op = {QUERN_POOL_MAX, QUERN_POOL_AVG, QUERN_POOL_AVG_PADDED},
               .type = 0,
               .reference = formula},
              {.name = "reduce_ref",
               .about = "reductions along axes, summed in float64",
               .kind = kind::reference,
               .op = {QUERN_REDUCE_SUM, QUERN_REDUCE_MEAN, QUERN_REDUCE_MAX, QUERN_REDUCE_MIN, QUERN_REDUCE_PROD,
                      QUERN_REDUCE_L1, QUERN_REDUCE_L2, QUERN_REDUCE_SUM_SQUARE},
               .type = 0,
               .reference = formula},
              {.name = "norm_ref",
               .about = "norms of slices, in two passes in float64",
               .kind = kind::reference,
               .op = {QUERN_NORM, QUERN_RMS_NORM},
               .type = 0,
               .reference = formula},
              {.name = "softmax_ref",
               .about = "softmax of slices, in two passes in float64",
               .kind = kind::reference,
               .op = {QUERN_SOFTMAX, QUERN_LOG_SOFTMAX},
               .type = 0,
               .reference = formula},
              {.name = "elementwise_ref",
               .about = "operators of one element, or of two",
               .kind = kind::reference,
               .op = {QUERN_UNARY, QUERN_ADD, QUERN_SUB, QUERN_MUL, QUERN_DIV, QUERN_MAX, QUERN_MIN},
               .type = 0,
               .reference = formula})
