// SPDX-License-Identifier: MIT
//
// Depthwise convolution in f32 by boxes of pixels.  Names: the filter, and its stride.
#include "cuda/depthwise_box.h"

#ifdef __CUDACC__

#include "cuda/hopper.h"

namespace {

using namespace quern;

template <int Line, class Tile>
__device__ __forceinline__ void take_lines(Tile& t) {
  t.take_line(Line);
  if constexpr (Line + 1 < Tile::part_lines) take_lines<Line + 1>(t);
}

template <class Tile>
__device__ __forceinline__ void run(const depthwise_box& a) {
  extern __shared__ __align__(128) char memory[];
  char* const shared = memory + (-shared_address(memory) & 127);
  const uint32_t base = shared_address(shared), bar = base + Tile::barrier_at;
  Tile t(a, shared, blockIdx.x, threadIdx.x);
  let_next_start();
  // The box first: weights would keep it waiting.
  if (threadIdx.x == 0) {
    prefetch(a.src);
    init_barrier(bar, 1);
    publish_barriers();
    wait_for_previous();
    arrive_expecting(bar, Tile::box_bytes);
    copy_box(base, a.src, bar, t.first_channel(), t.x * Tile::step + a.begin_w, t.y * Tile::step + a.begin_h, t.n);
  }
  if (a.ahead) t.load_weights();
  wait_for_previous();
  if (!a.ahead) t.load_weights();
  t.load_channels();
  __syncthreads();
  if (!t.has_any()) return;  // others wait for the box
  wait(bar, 0);
  take_lines<0>(t);
}

}  // namespace

#define QUERN_DEPTHWISE_BOX(tile, blocks)                                                \
  extern "C" __global__ void __launch_bounds__(quern::depthwise_##tile::threads, blocks) \
      depthwise_box_f32_##tile##_sm90a(const __grid_constant__ quern::depthwise_box a) { \
    run<quern::depthwise_##tile>(a);                                                     \
  }
QUERN_DEPTHWISE_BOX(3x3, 5)
QUERN_DEPTHWISE_BOX(3x3s2, 3)
QUERN_DEPTHWISE_BOX(5x5, 5)
QUERN_DEPTHWISE_BOX(7x7, 4)

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
              depthwise_box_row<depthwise_3x3s2>("depthwise_box_f32_3x3s2_sm90a", "depthwise 3x3 at stride 2"),
              depthwise_box_row<depthwise_5x5>("depthwise_box_f32_5x5_sm90a", "depthwise 5x5"),
              depthwise_box_row<depthwise_7x7>("depthwise_box_f32_7x7_sm90a", "depthwise 7x7"))

#endif
