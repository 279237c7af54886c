// SPDX-License-Identifier: MIT
//
// Blocks of toeplitz.h on this CPU.
#pragma once

#include <cstring>
#include <vector>

#include "cuda/toeplitz.h"

namespace quern::test {

// All of a warp's products, whose operands are those of the instruction 16 x 8 x 16.
template <class Element>
void multiply_warp(const toeplitz_conv& a, toeplitz_images<Element>* lane) {
  using images = toeplitz_images<Element>;
  for (int distance = 1 - images::lines; distance < images::lines; ++distance) {
    if (distance < a.first_distance || distance > a.last_distance) continue;
    for (int i = 0; i < 32; ++i) lane[i].load_weights(distance);
    for (int out = 0; out < images::lines; ++out) {
      const int line = out + distance;
      if (line < 0 || line >= images::lines) continue;
      for (int own = 0; own < 32; ++own)
        for (int i = 0; i < 4; ++i)
          for (int in = 0; in < images::columns; ++in) {
            const char* const row = lane[own / 4 + i / 2 * 8 + in / 8 * 16].row(line);
            const uint32_t pair = lane[(own % 4 * 2 + i % 2) * 4 + in % 8 / 2].w[in / 8];
            lane[own].sum[out][i] += value(reinterpret_cast<const Element*>(row)[in % 8]) *
                                     value(Element{static_cast<uint16_t>(pair >> in % 2 * 16)});
          }
    }
  }
}

// Threads in turn between barriers, shared memory full of NaN.
template <class Element>
void run_toeplitz(const toeplitz_conv& a, unsigned blocks) {
  using images = toeplitz_images<Element>;
  for (unsigned number = 0; number < blocks; ++number) {
    std::vector<four_words> memory(images::shared_bytes / sizeof(four_words));
    memset(static_cast<void*>(memory.data()), 0xff, memory.size() * sizeof memory[0]);
    std::vector<images> threads;
    threads.reserve(images::threads);
    for (int i = 0; i < images::threads; ++i)
      threads.emplace_back(a, reinterpret_cast<char*>(memory.data()), static_cast<int32_t>(number), i);
    for (const images& t : threads) t.request_weights(), t.request_vectors(), t.turn_in();
    for (size_t warp = 0; warp < images::threads; warp += 32) {
      multiply_warp(a, &threads[warp]);
      for (size_t i = warp; i < warp + 32; ++i) threads[i].finish();
    }
    for (const images& t : threads) t.turn_out();
  }
}

}  // namespace quern::test
