// SPDX-License-Identifier: MIT
//
// What all kernels for AVX-512 share, once: every activation of the epilogue, and every stride of a copy.
#include "copy_f32.h"
#include "finish_f32.h"
#include "vec_avx512_half.h"

namespace quern {

void copy_avx512(const copy_f32& c) { copy<vec>(c); }

void finish_avx512(const output_f32& out, size_t m, size_t n, const float* tile, size_t tile_row) {
  finish<vec>(out, m, n, tile, tile_row);
}
void finish_avx512_half(const output_f32& out, size_t m, size_t n, const float* tile, size_t tile_row) {
  finish<half_vec>(out, m, n, tile, tile_row);
}

}  // namespace quern
