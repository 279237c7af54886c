// SPDX-License-Identifier: MIT
//
// Finished sums on their way from a warp to dst: some pixels by 32 channels, turned round in shared memory so
// that lanes write what lies side by side.
#pragma once

#include "cuda/epilogue_cuda.h"

namespace quern {
namespace {

struct alignas(16) four_floats {
  float v[4];
};
struct alignas(8) two_floats {
  float v[2];
};

QUERN_INLINE four_floats load_four(const float* p) { return *reinterpret_cast<const four_floats*>(p); }

// dst of one phase of a problem.
struct gpu_output {
  int32_t size[3], pixels, k;  // outputs along d h w, and of all images; channels of a group
  int64_t dst_stride[5], residual_stride[5];
  float* dst;
  const float* residual;
  bool vector;  // chunks of four channels are aligned to 16 bytes
  epilogue_f32 epilogue;
};

template <int Rows, int Pitch>
struct output_warp {
  static constexpr int columns = 32, pitch = Pitch, floats = Rows * Pitch + 4 * Rows;

  const gpu_output& out;
  float* shared;
  int32_t lane;

  QUERN_INLINE float* at(int row, int column) const { return shared + row * pitch + column; }
  QUERN_INLINE int64_t* places() const { return reinterpret_cast<int64_t*>(shared + Rows * pitch); }

  // Where the warp's pixels, from this one on, go; behind the last one: nowhere.
  QUERN_INLINE void find_places(int32_t pixel) const {
    if (lane >= Rows) return;
    int32_t n = pixel + lane;
    int64_t to = n < out.pixels ? 0 : -1, from = 0;
    if (to == 0) {
      QUERN_UNROLL
      for (int i = 2; i >= 0; --i) {
        const int32_t rest = n / out.size[i], at = n - rest * out.size[i];
        to += at * out.dst_stride[2 + i], from += at * out.residual_stride[2 + i];
        n = rest;
      }
      to += n * out.dst_stride[0], from += n * out.residual_stride[0];
    }
    places()[lane] = to, places()[Rows + lane] = from;
  }

  // The columns are channels of the group from `base` on.
  QUERN_INLINE void finish(int32_t group, int32_t base) const {
    const epilogue_f32& e = out.epilogue;
    const int64_t first = int64_t{group} * out.k + base;
    if (out.vector && base + columns <= out.k && only_clamps(e)) {
      const int64_t channel = first + lane % 8 * 4;
      channel_f32 of[4];
      QUERN_UNROLL
      for (int i = 0; i < 4; ++i) of[i] = channel_of(e, static_cast<int32_t>(channel) + i);
      for (int row = lane / 8; row < Rows; row += 4) {
        const int64_t to = places()[row];
        if (to < 0) continue;
        four_floats y = load_four(at(row, lane % 8 * 4));
        const four_floats r = e.residual ? load_four(out.residual + places()[Rows + row] + channel) : four_floats{};
        QUERN_UNROLL
        for (int i = 0; i < 4; ++i) y.v[i] = finished<true>(e, of[i], y.v[i], &r.v[i]);
        *reinterpret_cast<four_floats*>(out.dst + to + channel) = y;
      }
      return;
    }
    // Lanes along what lies side by side in dst.
    const bool along = out.dst_stride[1] == 1;
    for (int i = lane; i < Rows * columns; i += 32) {
      const int32_t row = along ? i / columns : i % Rows, column = along ? i % columns : i / Rows;
      const int64_t to = places()[row], channel = first + column;
      if (to < 0 || base + column >= out.k) continue;
      out.dst[to + channel * out.dst_stride[1]] =
          finished<false>(e, channel_of(e, static_cast<int32_t>(channel)), *at(row, column),
                          out.residual + (places()[Rows + row] + channel * out.residual_stride[1]));
    }
  }
};

}  // namespace
}  // namespace quern
