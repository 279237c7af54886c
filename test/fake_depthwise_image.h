// SPDX-License-Identifier: MIT
//
// Blocks of depthwise_image.h on this CPU.
#pragma once

#include <cstring>
#include <vector>

#include "cuda/depthwise_image.h"

namespace quern::test {

// Threads in turn between barriers, shared memory full of NaN.
inline void run_depthwise_images(const depthwise_image& a, unsigned blocks) {
  using block = image_14x14;
  for (unsigned number = 0; number < blocks; ++number) {
    std::vector<four_words> memory(block::shared_bytes / sizeof(four_words));
    memset(static_cast<void*>(memory.data()), 0xff, memory.size() * sizeof memory[0]);
    std::vector<block> threads;
    threads.reserve(block::threads);
    for (int i = 0; i < block::threads; ++i)
      threads.emplace_back(a, reinterpret_cast<float*>(memory.data()), static_cast<int32_t>(number), i);
    for (block& t : threads) t.load_weights(), t.load_channels(), t.load_line(0);
    bool more = true;
    for (int32_t image = -1; more; ++image) {
      more = threads[0].exists(image);
      for (block& t : threads) {
        if (image >= 0 && more) t.multiply(image, [] {});
        if (image > 0) t.finish(image - 1);
        if (more) t.store_spectrum(image + 1), t.load_line(image + 2);
      }
    }
  }
}

}  // namespace quern::test
