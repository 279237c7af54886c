// SPDX-License-Identifier: MIT
//
// Slices of f32 for AVX2; the contract is slices_f32 in kernel.h, the loops slices_f32.h and slices_apply_f32.h.
#include "slices_apply_f32.h"
#include "vec_avx2.h"

namespace quern {
namespace {

constexpr slices_functions functions = {fold_slices<vec>, apply_slices<vec>, vec::finish};

}  // namespace
}  // namespace quern

QUERN_KERNELS(slices_f32_avx2, {.name = "slices_f32_avx2",
                                .about = "pieces of slices, along rows or down columns",
                                .kind = kind::slices_f32,
                                .isa = QUERN_ISA_AVX2,
                                .vector = 8,
                                .slices = &functions})
