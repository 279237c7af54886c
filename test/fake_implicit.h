// SPDX-License-Identifier: MIT
//
// Blocks of implicit.h on this CPU: threads in turn between barriers.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "cuda/implicit.h"

namespace quern::test {

// A step of a warp on tensor cores: operands and sums of its lanes as the instruction 16 x 8 x 8 has them, of the
// first pixels and channels.
template <class Tile>
void multiply_step(Tile* lane, int pixels, int channels) {
  for (int k = 0; k < Tile::bk; k += 8) {
    implicit_pixels p[32];
    for (int i = 0; i < 32; ++i) lane[i].load_pixels(p[i], k);
    for (int j = 0; 8 * j < channels; ++j) {
      implicit_weights q[32];
      for (int i = 0; i < 32; ++i) lane[i].load_weights(q[i], k, j);
      for (int i = 0; i < 32; ++i)
        for (int e = 0; e < 8 && e / 4 * 16 < pixels; ++e) {
          const int row = i / 4 + e / 2 % 2 * 8, column = i % 4 * 2 + e % 2;
          float small = 0, large = 0;
          for (int s = 0; s < 8; ++s) {
            const tf32_pair x = p[row % 8 * 4 + s % 4].x[e / 4][row / 8 + s / 4 * 2],
                            w = q[column * 4 + s % 4].w[s / 4];
            small += x.low * w.high + x.high * w.low, large += x.high * w.high;
          }
          lane[i].sum[j][e] += small + large;
        }
    }
  }
}

// An element of a unit that may hold two.
template <class T, class Unit>
T element_of(Unit unit, [[maybe_unused]] int at) {
  if constexpr (sizeof(T) == sizeof(Unit)) {
    return unit;
  } else {
    return {static_cast<decltype(T::bits)>(unit >> 8 * at)};
  }
}

// The same of 16-bit elements, by the instruction 16 x 8 x 16, or pairs of 8 bits: rows of matrices are where lanes
// name them.
template <class Tile>
void multiply_halves_step(Tile* lane, int pixels, int channels) {
  using T = typename Tile::element;
  using number = std::remove_reference_t<decltype(lane->sum[0][0])>;
  for (int k = 0; k < Tile::units; k += 16)
    for (int i = 0; i < 2 && 16 * i < pixels; ++i)
      for (int j = 0; 8 * j < channels; ++j) {
        const auto x = [&](int row, int at) { return lane[row + at / 8 * 16].pixel_row(i, k)[at % 8]; };
        const auto w = [&](int at, int column) { return lane[at + j % 2 * 16].weight_row(k, j / 2 * 2)[column]; };
        for (int own = 0; own < 32; ++own)
          for (int e = 0; e < 4; ++e)
            for (int at = 0; at < 16; ++at)
              for (int part = 0; part < Tile::together; ++part)
                lane[own].sum[j][4 * i + e] +=
                    static_cast<number>(value(element_of<T>(x(own / 4 + e / 2 * 8, at), part))) *
                    static_cast<number>(value(element_of<T>(w(at, own % 4 * 2 + e % 2), part)));
      }
}

// Blocks one after the other, threads in turn between barriers, shared memory full of NaN.
template <class Tile>
void run_tiles(const implicit_conv& a, const implicit_tap* taps, unsigned blocks) {
  for (unsigned block = 0; block < blocks; ++block) {
    std::vector<four_floats> shared(Tile::shared_bytes / sizeof(four_floats) + 1);
    memset(static_cast<void*>(shared.data()), 0xff, shared.size() * sizeof shared[0]);
    std::vector<Tile> threads;
    threads.reserve(Tile::threads);
    for (int i = 0; i < Tile::threads; ++i) threads.emplace_back(a, taps, block, i, shared[0].v);
    const auto all = [&](auto f) {
      for (Tile& t : threads) f(t);
    };
    all([](Tile& t) { t.load(); });
    all([](Tile& t) { t.load(); });
    for (int32_t i = 0; i < a.steps; ++i) {
      all([](Tile& t) { t.load(); });
      for (int warp = 0; warp < Tile::warps; ++warp) {
        Tile* const lane = &threads[static_cast<size_t>(32 * warp)];
        const int pixels = a.out.pixels - lane->place().pixel - warp % (Tile::bm / 32) * 32;
        const int channels = std::min(64, a.out.k - lane->place().channel - warp / (Tile::bm / 32) * 64);
        const bool idle = pixels <= 0 || channels <= 0;
        if constexpr (Tile::tensor && Tile::halves) {
          if (!idle) multiply_halves_step(lane, pixels, channels);
        } else if constexpr (Tile::tensor) {
          if (!idle) multiply_step(lane, pixels, channels);
        } else if (!idle) {
          for (int k = 0; k < 32; ++k) lane[k].multiply();
          continue;
        }
        for (int k = 0; k < 32; ++k) lane[k].next_stage();
      }
    }
    all([](Tile& t) { t.find_places(); });
    for (int half = 0; half < 2; ++half) {
      all([=](Tile& t) { t.stage(half); });
      all([=](Tile& t) { t.finish(half); });
    }
  }
}

}  // namespace quern::test
