// SPDX-License-Identifier: MIT
//
// conv_tma of f32 as two parts of F16 (f16x3.h): three products at twice the rate of TF32's, for who knows how large
// src gets.
#include "cuda/conv_tma.h"

namespace quern {
namespace {

// As conv_tma's of f32, but for up to eighteen additions to a part of a sum, and for what is below 2^-39 of src's
// limit, or of the channel's largest weight.
double error_bound(const full_problem& p) {
  const geometry g = tma_driver::view_of(geometry_of(p), p.src.type).g;
  const double products = double(g.filter_size()) * double(up(g.c, 32));
  const double n = (3 * 4 + 18 * 2 + products + 1) * 0x1p-24 + 0x1p-39 * (1 + 32 * products);
  return n < 0.5 ? n / (1 - n) : std::numeric_limits<double>::infinity();
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_tma_f16x3, .about = "conv_tma, f32 as two parts of f16 of what is within a limit",
                .drives = kind::tma_f16x3, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED, QUERN_GEMM},
                .accuracy = QUERN_ACCURACY_F32_LOOSE, .repeat = QUERN_REPEAT_BATCH, .pads = true, .splits = true,
                .bounded = true, .refuse = tma_driver::refuse, .choose_blocks = tma_driver::choose_blocks,
                .predict = tma_driver::predict, .error_bound = error_bound, .pack = tma_driver::pack,
                .launch = tma_driver::launch, .prepare = "pixels_last_sm90a")
