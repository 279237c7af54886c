// SPDX-License-Identifier: MIT
//
// What instruction sets the kernels for this processor need, and some names of them.
#pragma once

#include <quern/quern.h>

namespace quern {

#if defined(__x86_64__)
inline constexpr uint64_t lowest_isa = QUERN_ISA_AVX2, vector_isas = QUERN_ISA_AVX2 | QUERN_ISA_AVX512,
                          all_isas = vector_isas | QUERN_ISA_AMX;
inline constexpr const char *lowest_isa_name = "avx2", *highest_isa_name = "avx512";
inline constexpr const char *a_gemm_kernel = "gemm_f32_6x16_avx2", *another_gemm_kernel = "gemm_f32_4x24_avx2";
inline constexpr const char* a_depthwise_kernel = "depthwise_f32_7x8_taps3s1_avx2";
#elif defined(__aarch64__)
inline constexpr uint64_t lowest_isa = QUERN_ISA_NEON, vector_isas = lowest_isa, all_isas = lowest_isa;
inline constexpr const char *lowest_isa_name = "neon", *highest_isa_name = "neon";
inline constexpr const char *a_gemm_kernel = "gemm_f32_8x8_neon", *another_gemm_kernel = "gemm_f32_5x16_neon";
inline constexpr const char* a_depthwise_kernel = "depthwise_f32_7x4_taps3s1_neon";
#elif defined(__arm__)
inline constexpr uint64_t lowest_isa = QUERN_ISA_NEON, vector_isas = lowest_isa, all_isas = lowest_isa;
inline constexpr const char *lowest_isa_name = "neon", *highest_isa_name = "neon";
inline constexpr const char *a_gemm_kernel = "gemm_f32_4x8_neon", *another_gemm_kernel = nullptr;
inline constexpr const char* a_depthwise_kernel = "depthwise_f32_7x4_taps3s1_neon";
#endif

// 32-bit NEON takes denormals for zero and makes none.
#if defined(__arm__)
inline constexpr bool keeps_denormals = false;
#else
inline constexpr bool keeps_denormals = true;
#endif

}  // namespace quern
