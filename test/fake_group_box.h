// SPDX-License-Identifier: MIT
//
// Blocks of group_box.h on this CPU.
#pragma once

#include "cuda/group_box.h"
#include "fake_tma.h"

namespace quern::test {

// An element of a line of the box times a weight, as operands of the instruction 16 x 8 x 16, or x 8, have them.
template <class Tile>
float box_product(const Tile* lane, int line, int r, int s, int pixel, int in, int out) {
  using T = typename Tile::element;
  // Rows as lanes name them: those of 16 bytes of channels at an odd tap are the upper half's.
  const int piece = in / Tile::chunk, tap = Tile::pieces == 1 ? s / 2 * 2 : s;
  const Tile& names = lane[pixel + (Tile::pieces == 1 ? s % 2 : piece % 2) * 16];
  const T x = reinterpret_cast<const T*>(names.row(line, tap, piece / 2))[in % Tile::chunk];
  const Tile& has = lane[out % 8 * 4 + in % 8 / (Tile::parts ? 1 : 2) % 4];
  const uint32_t* const w = has.w + (r * Tile::taps + s) * Tile::words;
  if constexpr (Tile::parts) {
    const tf32_pair two = split_tf32(x);
    const uint32_t* const own = w + (in / 8 * Tile::tiles + out / 8) * 4 + in % 8 / 4;
    return two.high * (float_of(own[0]) + float_of(own[2])) + two.low * float_of(own[0]);
  } else {
    return value(x) * value(T{static_cast<uint16_t>(w[out / 8 * 2 + in / 8] >> in % 2 * 16)});
  }
}

// A line of the box in the sums of a warp.
template <class Tile>
void add_box_line(Tile* lane, int line) {
  for (int i = 0; i < 32; ++i) lane[i].move_up();
  for (int r = 0; r < Tile::taps && r <= line; ++r)
    for (int s = 0; s < Tile::taps && line - r < Tile::high; ++s)
      for (int own = 0; own < 32; ++own)
        for (int i = 0; i < 4 * Tile::tiles; ++i)
          for (int in = 0; in < Tile::depth; ++in)
            lane[own].sum[r][i / 4][i % 4] +=
                box_product(lane, line, r, s, own / 4 + i / 2 % 2 * 8, in, i / 4 * 8 + own % 4 * 2 + i % 2);
}

template <class Tile>
void run_group_boxes(const group_box& a, unsigned blocks) {
  using T = typename Tile::element;
  fake_boxes src, dst;
  memcpy(&src, &a.src, sizeof src), memcpy(&dst, &a.dst, sizeof dst);
  EXPECT_EQ(src.box[0] * src.box[1] * src.box[2] * sizeof(T), static_cast<unsigned>(Tile::box_bytes));
  for (unsigned block = 0; block < blocks; ++block) {
    std::vector<four_words> memory(Tile::shared_bytes / sizeof(four_words));
    memset(static_cast<void*>(memory.data()), 0xff, memory.size() * sizeof memory[0]);
    T* const box = reinterpret_cast<T*>(memory.data());
    std::vector<Tile> threads;
    threads.reserve(Tile::threads);
    for (int i = 0; i < Tile::threads; ++i)
      threads.emplace_back(a, reinterpret_cast<char*>(box), static_cast<int32_t>(block), i);
    const Tile& t = threads[0];
    src.load(box, {t.first_channel(), t.x + a.begin_w, t.y + a.begin_h, t.n});
    for (Tile& each : threads) each.load_weights(), each.load_channels();
    for (size_t warp = 0; warp < Tile::threads; warp += 32)
      for (int line = 0; line < Tile::lines; ++line) {
        add_box_line(&threads[warp], line);
        for (size_t i = warp; i < warp + 32 && line >= Tile::taps - 1; ++i) threads[i].finish(line - (Tile::taps - 1));
      }
    for (int line = 0; line < Tile::high && a.stores; ++line)
      dst.store(box + line * Tile::line_bytes / int{sizeof(T)}, {t.first_channel(), t.x, t.y + line, t.n});
    for (const Tile& each : threads)
      if (!a.stores) each.write_out();
  }
}

}  // namespace quern::test
