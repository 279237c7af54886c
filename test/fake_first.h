// SPDX-License-Identifier: MIT
//
// Blocks of first_layer.h and first_box.h on this CPU.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "cuda/first_box.h"
#include "cuda/first_layer.h"

namespace quern::test {

// A step of a warp: operands and sums of lanes as the instructions 16 x 8 x 16 and, of f32, 16 x 8 x 8 have them.
template <class Tile>
void multiply_units(const Tile* lane, float (*sum)[Tile::tiles][8], int32_t step) {
  uint32_t x[32][2][4];
  for (int i = 0; i < 32; ++i) lane[i].load_pixels(x[i], step);
  for (int j = 0; j < Tile::fours; ++j) {
    four_words w[32];
    for (int i = 0; i < 32; ++i) w[i] = lane[i].load_weights_of(step, j);
    for (int own = 0; own < 32; ++own)
      for (int e = 0; e < (Tile::halves ? 16 : 8); ++e) {
        const int row = own / 4 + e / 2 % 2 * 8, column = own % 4 * 2 + e % 2, tile = e / 8;
        float& to = sum[own][Tile::halves ? 2 * j + tile : j][e % 8];
        for (int unit = 0; unit < first_units; ++unit) {
          const uint32_t a = x[row % 8 * 4 + unit % 4][e / 4 % 2][row / 8 + unit / 4 * 2];
          const uint32_t* const b = w[column * 4 + unit % 4].v + unit / 4;
          if constexpr (Tile::halves) {
            using T = typename Tile::element;
            for (int half = 0; half < 2; ++half)
              to += value(T{static_cast<uint16_t>(a >> 16 * half)}) *
                    value(T{static_cast<uint16_t>(b[2 * tile] >> 16 * half)});
          } else {
            const tf32_pair p = split_tf32(float_of(a));
            const float high = float_of(b[0]), low = float_of(b[2]);
            to += p.low * high + p.high * low + p.high * high;
          }
        }
      }
  }
}

template <class Tile>
void run_first(const first_conv& a, unsigned blocks) {
  EXPECT_LE(a.words * 4, Tile::shared_bytes);
  for (unsigned block = 0; block < blocks; ++block) {
    std::vector<four_words> shared(static_cast<size_t>(a.words / 4));
    memset(static_cast<void*>(shared.data()), 0xff, shared.size() * sizeof shared[0]);
    std::vector<Tile> threads;
    const int32_t first = static_cast<int32_t>(block);
    for (int i = 0; i < Tile::threads; ++i) threads.emplace_back(a, shared[0].v, first, i);
    const auto each = [&](auto f) {
      for (Tile& t : threads) f(t);
    };
    each([](const Tile& t) { t.make_tables(); });
    each([](const Tile& t) { t.load_weights(); });
    each([](const Tile& t) { t.load_channels(); });
    for (int32_t item = first; item < a.tiles * a.chunks; item += static_cast<int32_t>(blocks)) {
      EXPECT_EQ(item % a.chunks, first % a.chunks) << "a block keeps its panels";
      const auto at = threads[0].place_of(item);
      each([&](const Tile& t) { t.request(at); });
      each([&](const Tile& t) { t.arrange(at); });
      each([&](Tile& t) { t.strip = t.panel = 0; });
      for (int warp = 0; warp < Tile::warps; ++warp) {
        Tile* const lane = &threads[static_cast<size_t>(32 * warp)];
        const auto all = [&](auto f) {
          for (int i = 0; i < 32; ++i) f(lane[i], i);
        };
        for (int32_t further = warp;; further = Tile::warps) {
          bool more = false;
          all([&](Tile& t, int) { more = t.begin(further); });
          if (!more) break;
          float sum[32][Tile::tiles][8] = {};
          for (int32_t step = 0; step < a.steps; ++step) multiply_units(lane, sum, step);
          if (lane->whole_chunks()) {
            const bool residual = a.out.epilogue.residual != QUERN_RESIDUAL_NONE;
            all([&](const Tile& t, int i) {
              residual ? t.template write_chunks<true>(at, sum[i]) : t.template write_chunks<false>(at, sum[i]);
            });
            continue;
          }
          constexpr int groups = Tile::writer::groups;
          for (int i = 0; i < 4 * groups; ++i) {
            all([&](const Tile& t, int) { t.find_places(at, i / groups); });
            all([&](const Tile& t, int own) {
              t.out().stage_out(i % groups, [&](int j, int e) { return sum[own][j][2 * (i / groups) + e]; });
            });
            all([&](const Tile& t, int) { t.out().finish(i % groups); });
          }
        }
      }
    }
  }
}

// Boxes of words, as cuTensorMapEncodeTiled was told of them; outside of the tensor are zeros.
struct fake_lines {
  const char* src;
  uint64_t size[3], stride[2];
  uint32_t box[3];

  void copy(uint32_t* to, int32_t x, int32_t y, int32_t n) const {
    EXPECT_EQ(x % 4, 0) << "the engine starts at multiples of 16 bytes";
    for (int32_t i = 0; i < static_cast<int32_t>(box[1]); ++i)
      for (int32_t j = 0; j < static_cast<int32_t>(box[0]); ++j, ++to) {
        const bool inside = in(x + j, 0) && in(y + i, 1) && in(n, 2);
        *to = 0;
        if (inside) memcpy(to, src + 4 * (x + j) + (y + i) * int64_t(stride[0]) + n * int64_t(stride[1]), 4);
      }
  }

 private:
  bool in(int64_t at, int axis) const { return at >= 0 && at < int64_t(size[axis]); }
};
static_assert(sizeof(fake_lines) <= sizeof(tensor_map));

// Eight units of a warp's sixteen pixels by a panel: registers as the instruction has them, weights where it finds
// them.
template <class Tile>
void multiply_box_step(const Tile* lane, int32_t kind, int32_t step, typename Tile::number (*sum)[Tile::sums]) {
  using T = typename Tile::element;
  uint32_t x[32][4];
  for (int i = 0; i < 32; ++i) {
    box_unit unit[2];
    lane[i].load_units(unit, kind, step), lane[i].load_pixels(x[i], unit);
  }
  const uint32_t* const weights = reinterpret_cast<const uint32_t*>(lane->shared + lane->weights_at(kind, step));
  for (int own = 0; own < 32; ++own)
    for (int i = 0; i < Tile::sums; ++i) {
      const int row = own / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + own % 4 * 2 + i % 2;
      for (int unit = 0; unit < box_units; ++unit) {
        const uint32_t a = x[row % 8 * 4 + unit % 4][row / 8 + unit / 4 * 2];
        const uint32_t* const b = weights + box_word(column, unit);
        if constexpr (Tile::words == 1) {
          T pixel[Tile::of_unit], weight[Tile::of_unit];
          memcpy(pixel, &a, 4), memcpy(weight, b, 4);
          for (int e = 0; e < Tile::of_unit; ++e)
            sum[own][i] += static_cast<typename Tile::number>(value(pixel[e]) * value(weight[e]));
        } else {
          const tf32_pair p = split_tf32(float_of(a));
          const float high = float_of(b[0]), low = float_of(b[Tile::step_bytes / 8]);
          sum[own][i] += p.low * high + p.high * low + p.high * high;
        }
      }
    }
}

template <class Tile>
void run_boxes(const first_box& a, unsigned blocks) {
  EXPECT_LE(a.bytes, Tile::shared_bytes);
  EXPECT_EQ(static_cast<int32_t>(blocks) % a.chunks, 0);
  fake_lines map;
  memcpy(&map, &a.src, sizeof map);
  EXPECT_EQ(a.box_bytes, static_cast<int32_t>(map.box[0] * map.box[1] * 4));
  for (unsigned block = 0; block < blocks; ++block) {
    std::vector<four_words> memory(static_cast<size_t>(a.bytes / 16));
    memset(static_cast<void*>(memory.data()), 0xff, memory.size() * sizeof memory[0]);
    char* const shared = reinterpret_cast<char*>(memory.data());
    std::vector<Tile> threads;
    for (int i = 0; i < Tile::threads; ++i) threads.emplace_back(a, shared, static_cast<int32_t>(block), i);
    const Tile& speaker = threads[0];
    const int32_t panel_bytes = a.weights_bytes / a.panels;
    memcpy(shared, a.weights + int64_t{speaker.first} * panel_bytes, static_cast<size_t>(speaker.panels * panel_bytes));
    for (const Tile& t : threads) t.make_tables(), t.load_channels();
    const int32_t apart = static_cast<int32_t>(blocks) / a.chunks;
    for (int32_t item = static_cast<int32_t>(block) / a.chunks; item < speaker.items(); item += apart)
      for (int warp = item / apart % Tile::groups * 4, end = warp + 4, slot = item % box_stages; warp < end; ++warp) {
        Tile* const lane = &threads[static_cast<size_t>(32 * warp)];
        const auto all = [&](auto f) {
          for (int i = 0; i < 32; ++i) f(lane[i], i);
        };
        lane->request(item, [&](int32_t x, int32_t y, int32_t n) {
          map.copy(reinterpret_cast<uint32_t*>(shared + lane->stage(slot)), x, y, n);
        });
        const auto at = lane->place_of(item);
        for (int32_t i = 0; i < a.kinds * a.strips * a.of_part; ++i) {
          const int32_t kind = i / (a.strips * a.of_part), panel = at.part * a.of_part + i % a.of_part;
          if (panel >= lane->panels) continue;
          all([&](Tile& t, int) {
            t.panel = panel, t.strip = i / a.of_part % a.strips;
            t.find_windows(at, kind, slot);
          });
          typename Tile::number sum[32][Tile::sums] = {};
          for (int32_t step = 0; step < a.steps; ++step) multiply_box_step(lane, kind, step, sum);
          if (lane->whole_chunks()) {
            all([&](const Tile& t, int own) { t.write_chunks(t.output, sum[own]); });
            continue;
          }
          using writer = typename Tile::writer;
          for (int k = 0; k < 2 * writer::groups; ++k) {
            all([&](const Tile& t, int) { t.find_places(at, kind, k / writer::groups); });
            all([&](const Tile& t, int own) {
              t.out().stage_out(k % writer::groups,
                                [&](int j, int e) { return sum[own][4 * j + 2 * (k / writer::groups) + e]; });
            });
            all([&](const Tile& t, int) { t.out().finish(k % writer::groups); });
          }
        }
      }
  }
}

}  // namespace quern::test
