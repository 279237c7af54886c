// SPDX-License-Identifier: MIT
//
// What all kernels for NEON share, once: every activation of the epilogue, and every stride of a copy.
#include "copy_f32.h"
#include "finish_f32.h"
#include "vec_neon.h"

namespace quern {

void copy_neon(const copy_f32& c) { copy<vec>(c); }

void finish_neon(const output_f32& out, size_t m, size_t n, const float* tile, size_t tile_row) {
  finish<vec>(out, m, n, tile, tile_row);
}

}  // namespace quern
