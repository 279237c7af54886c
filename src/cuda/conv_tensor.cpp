// SPDX-License-Identifier: MIT
#include "cuda/conv_implicit.h"
#include "cuda/drive.h"

namespace quern {
namespace {

refusal refuse(const full_problem& p, const kernel& row) {
  if (const refusal r = refuse_short_sums(p)) return r;
  return implicit_driver::refuse(p, row);
}

// Of e4m3 an instruction brings 32 products and what it has to the largest's exponent, and keeps 13 bits behind the
// point; two of them are a step, and steps are added in f32.  Products of 16-bit elements are exact, and each addition
// of sixteen truncates by 2^-23.  Of f32 a product leaves out 2^-22 at most and its parts are rounded by as much; each
// of six additions to sixteen products truncates them by 2^-23, and the sixteens are added in f32.
double error_bound(const full_problem& p) {
  const geometry& g = geometry_of(p);
  const double sums = double(g.filter_size()) * double(g.c) / 16;
  if (p.src.type == QUERN_E4M3) return 2 * 33 * 0x1p-13 + (sums / 4 + 1) * 0x1p-24;
  const double n = (p.src.type != QUERN_F32 ? 2 * sums + 4 : 3 * 4 + 6 * 2 + sums + 2) * 0x1p-24;
  return n < 0.5 ? n / (1 - n) : std::numeric_limits<double>::infinity();
}

}  // namespace
}  // namespace quern

namespace d = quern::implicit_driver;

QUERN_ALGORITHM(conv_tensor, .about = "implicit GEMM on tensor cores: any layout, window and groups",
                .drives = kind::tensor, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED, QUERN_GEMM},
                .accuracy = QUERN_ACCURACY_F32, .repeat = QUERN_REPEAT_BATCH, .pads = true, .splits = true,
                .refuse = quern::refuse, .choose_blocks = d::choose_blocks, .predict = d::predict,
                .error_bound = error_bound, .pack = d::pack, .launch = d::launch)
