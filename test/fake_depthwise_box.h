// SPDX-License-Identifier: MIT
//
// Blocks of depthwise_box.h on this CPU.
#pragma once

#include "cuda/depthwise_box.h"
#include "fake_tma.h"

namespace quern::test {

template <class Tile>
void run_depthwise_boxes(const depthwise_box& a, unsigned blocks) {
  fake_boxes src;
  memcpy(&src, &a.src, sizeof src);
  EXPECT_EQ(src.box[0] * src.box[1] * src.box[2] * sizeof(float), static_cast<unsigned>(Tile::box_bytes));
  for (unsigned block = 0; block < blocks; ++block) {
    std::vector<four_words> memory(Tile::shared_bytes / sizeof(four_words));
    memset(static_cast<void*>(memory.data()), 0xff, memory.size() * sizeof memory[0]);
    for (int i = 0; i < Tile::threads; ++i) {
      Tile t(a, memory.data(), static_cast<int32_t>(block), i);
      if (i == 0)
        src.load(reinterpret_cast<float*>(memory.data()),
                 {t.first_channel(), t.x * Tile::step + a.begin_w, t.y * Tile::step + a.begin_h, t.n});
      t.load_weights(), t.load_channels();
      for (int line = 0; line < Tile::part_lines && t.has_any(); ++line) t.take_line(line);
    }
  }
}

}  // namespace quern::test
