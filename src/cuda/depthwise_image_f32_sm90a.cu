// SPDX-License-Identifier: MIT
//
// Depthwise convolution in f32 by filters about as large as a small image.  Names: the largest image.
#include "cuda/depthwise_image.h"

#ifdef __CUDACC__

#include "cuda/hopper.h"

extern "C" __global__ void __launch_bounds__(quern::image_14x14::threads, 1)
    depthwise_image_f32_14x14_sm90a(const __grid_constant__ quern::depthwise_image a) {
  using namespace quern;
  using block = image_14x14;
  extern __shared__ __align__(128) char memory[];
  char* const shared = memory + (-shared_address(memory) & 127);
  const auto there = [&](int32_t line) {
    return shared_address(shared) + block::barriers_at + 8 * static_cast<uint32_t>(line);
  };
  block t(a, reinterpret_cast<float*>(shared), static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(threadIdx.x));
  let_next_start();
  const auto request_weights = [&](int32_t line) {
    copy_bytes(shared_address(t.weights_place(line)), t.weights(line), t.weights_bytes(line), there(line));
  };
  const auto request_line = [&](int32_t line) {
    copy_box(shared_address(t.line_place(line)), a.src, there(line), t.chunk * block::channels, 0, line, t.n);
  };
  // A lane has a line: one by one they would be waited for.
  const int32_t own = static_cast<int32_t>(threadIdx.x);
  const auto expect = [&] {
    if (own < a.lines) arrive_expecting(there(own), block::line_bytes + t.weights_bytes(own));
  };
  if (own < a.lines) {
    init_barrier(there(own), 1);
    publish_barriers();
    expect();
  }
  if (own == 0) {
    prefetch(a.src);
    if (a.ahead) request_weights(0);
  }
  wait_for_previous();
  t.load_channels();
  __syncthreads();
  bool ahead = a.ahead;
  for (uint32_t turn = 0;; turn ^= 1) {
    // By a warp that has the fewest lines of outputs, in the order of need.
    if (own == block::requests) {
#pragma unroll 1
      for (int32_t line = 0; line < a.lines; ++line) {
        request_line(line);
        if (line > 0 || !ahead) request_weights(line);
      }
    }
    t.clear();
#pragma unroll 1
    for (int32_t line = 0; line < a.lines; ++line) {
      wait(there(line), turn);
      t.add(line);
    }
    __syncthreads();
    t.hand_over();
    __syncthreads();
    t.finish(static_cast<int32_t>(threadIdx.x) / 32);
    if (!t.has_next()) break;
    t.next_images();
    publish_to_engine();
    __syncthreads();
    ahead = false;
    expect();
  }
}

#else

#include "cuda/image.h"

// Of kind::depthwise_image.
QUERN_KERNELS(depthwise_image_f32_sm90a, {.name = "depthwise_image_f32_14x14_sm90a",
                                          .about = "depthwise, large filters on images of up to 14x14",
                                          .kind = kind::depthwise_image,
                                          .mr = image_14x14::lines,
                                          .nr = image_14x14::columns,
                                          .step = 1,
                                          .image = image,
                                          .capability = 90,
                                          .capability_alone = true,
                                          .src_align = 16,
                                          .threads = image_14x14::threads,
                                          .shared_bytes = image_14x14::shared_bytes,
                                          .early = true})

#endif
