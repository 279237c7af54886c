// SPDX-License-Identifier: MIT
//
// Depthwise convolution in f32 by boxes of pixels.  Names: the filter, and its stride.
#include "cuda/depthwise_box.h"

#ifdef __CUDACC__

#include "cuda/hopper.h"

namespace {

using namespace quern;

template <class Tile>
__device__ __forceinline__ void run(const depthwise_box& a) {
  extern __shared__ __align__(128) char memory[];
  char* const shared = memory + (-shared_address(memory) & 127);
  const uint32_t base = shared_address(shared), bar = base + Tile::barrier_at;
  Tile t(a, shared, blockIdx.x, threadIdx.x);
  if (threadIdx.x == 0) {
    prefetch(a.src);
    init_barrier(bar, 1);
    publish_barriers();
  }
  let_next_start();
  if (a.ahead) t.load_weights();
  wait_for_previous();
  if (threadIdx.x == 0) {
    arrive_expecting(bar, Tile::box_bytes);
    copy_box(base, a.src, bar, t.first_channel(), t.x * Tile::step + a.begin_w, t.y * Tile::step + a.begin_h, t.n);
  }
  if (!a.ahead) t.load_weights();
  t.load_channels();
  __syncthreads();
  wait(bar, 0);
#pragma unroll
  for (int line = 0; line < Tile::part_lines; ++line) t.take_line(line);
}

}  // namespace

#define QUERN_DEPTHWISE_BOX(tile, blocks)                                                \
  extern "C" __global__ void __launch_bounds__(quern::depthwise_##tile::threads, blocks) \
      depthwise_box_f32_##tile##_sm90a(const __grid_constant__ quern::depthwise_box a) { \
    run<quern::depthwise_##tile>(a);                                                     \
  }
QUERN_DEPTHWISE_BOX(3x3, 5)
QUERN_DEPTHWISE_BOX(3x3s2, 6)

#else

#include "cuda/image.h"

namespace quern {
namespace {

template <class Tile>
constexpr kernel depthwise_box_row(const char* name, const char* about) {
  return {.name = name,
          .about = about,
          .kind = kind::depthwise_box,
          .mr = Tile::high,
          .nr = Tile::wide,
          .taps = Tile::taps,
          .step = Tile::step,
          .image = image,
          .capability = 90,
          .capability_alone = true,
          .src_align = 16,
          .threads = Tile::threads,
          .shared_bytes = Tile::shared_bytes,
          .early = true};
}

}  // namespace
}  // namespace quern

// Of kind::depthwise_box.
QUERN_KERNELS(depthwise_box_f32_sm90a, depthwise_box_row<depthwise_3x3>("depthwise_box_f32_3x3_sm90a", "depthwise 3x3"),
              depthwise_box_row<depthwise_3x3s2>("depthwise_box_f32_3x3s2_sm90a", "depthwise 3x3 at stride 2"))

#endif
