// SPDX-License-Identifier: MIT
//
// Winograd's transforms for AVX-512; the contracts are winograd_f32 in kernel.h, the algebra winograd.h.
#include "vec_avx512.h"
#include "winograd.h"

QUERN_KERNELS(winograd_f32_avx512,
              {.name = "winograd_f32_f23_avx512",
               .about = "transforms of F(2, 3)",
               .kind = kind::winograd_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 2,
               .vector = 16,
               .taps = 3,
               .winograd_input = {input<vec, 1, 4>, input<vec, 4, 4>},
               .winograd_output = {output<vec, 1, 1, 4, 2>, output<vec, 4, 2, 4, 2>}},
              {.name = "winograd_f32_f43_avx512",
               .about = "transforms of F(4, 3)",
               .kind = kind::winograd_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 4,
               .vector = 16,
               .taps = 3,
               .winograd_input = {input<vec, 1, 6>, input<vec, 6, 6>},
               .winograd_output = {output<vec, 1, 1, 6, 4>, output<vec, 6, 4, 6, 4>}},
              {.name = "winograd_f32_f63_avx512",
               .about = "transforms of F(6, 3)",
               .kind = kind::winograd_f32,
               .isa = QUERN_ISA_AVX512,
               .mr = 6,
               .vector = 16,
               .taps = 3,
               .winograd_input = {input<vec, 1, 8>, input<vec, 8, 8>},
               .winograd_output = {output<vec, 1, 1, 8, 6>, output<vec, 8, 6, 8, 6>}})
