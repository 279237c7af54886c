// SPDX-License-Identifier: MIT
//
// Slices of f32 for AVX-512; the contract is slices_f32 in kernel.h, the loops slices_f32.h and slices_apply_f32.h.
#include "slices_apply_f32.h"
#include "vec_avx512.h"

namespace quern {
namespace {

constexpr slices_functions functions = {fold_slices<vec>, apply_slices<vec>, vec::finish};

}  // namespace
}  // namespace quern

QUERN_KERNELS(slices_f32_avx512, {.name = "slices_f32_avx512",
                                  .about = "pieces of slices, along rows or down columns",
                                  .kind = kind::slices_f32,
                                  .isa = QUERN_ISA_AVX512,
                                  .vector = 16,
                                  .slices = &functions})
