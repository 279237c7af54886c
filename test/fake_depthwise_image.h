// SPDX-License-Identifier: MIT
//
// Blocks of depthwise_image.h on this CPU.
#pragma once

#include "cuda/depthwise_image.h"
#include "fake_tma.h"

namespace quern::test {

// Threads in turn between barriers, shared memory full of NaN.
inline void run_depthwise_images(const depthwise_image& a, unsigned blocks) {
  using block = image_14x14;
  fake_boxes src;
  memcpy(&src, &a.src, sizeof src);
  EXPECT_EQ(src.box[0] * src.box[1] * src.box[2] * src.box[3] * sizeof(float), unsigned{block::line_bytes});
  for (unsigned number = 0; number < blocks; ++number) {
    std::vector<four_words> memory(block::shared_bytes / sizeof(four_words));
    memset(static_cast<void*>(memory.data()), 0xff, memory.size() * sizeof memory[0]);
    std::vector<block> threads;
    threads.reserve(block::threads);
    for (int i = 0; i < block::threads; ++i)
      threads.emplace_back(a, reinterpret_cast<float*>(memory.data()), static_cast<int32_t>(number), i);
    for (block& t : threads) t.load_channels();
    const block& first = threads[0];
    for (bool more = true; more;) {
      for (int32_t line = 0; line < a.lines; ++line) {
        memcpy(first.weights_place(line), first.weights(line), first.weights_bytes(line));
        src.load(first.line_place(line), {first.chunk * block::channels, 0, line, first.n});
      }
      for (block& t : threads) t.clear();
      for (int32_t line = 0; line < a.lines; ++line)
        for (block& t : threads) t.add(line);
      for (block& t : threads) t.hand_over();
      for (int i = 0; i < block::threads; ++i) threads[static_cast<size_t>(i)].finish(i / 32);
      more = first.has_next();
      for (block& t : threads) t.next_images();
    }
  }
}

}  // namespace quern::test
