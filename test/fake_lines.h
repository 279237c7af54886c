// SPDX-License-Identifier: MIT
//
// Threads of few_channels.h and quads.h, and blocks of lines.h on this CPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "cuda/few_channels.h"
#include "cuda/group.h"
#include "cuda/quads.h"
#include "cuda/walk.h"

namespace quern::test {

// Threads without barriers, and memory of a block full of NaN.
template <class Kernel, class Conv>
void run_few(const Conv& a, unsigned blocks) {
  const int32_t all = static_cast<int32_t>(blocks) * few_threads;
  EXPECT_LT(all - a.threads, few_threads);
  for (int32_t i = 0; i < a.threads; ++i) {
    std::vector<float> shared(Kernel::shared_bytes / 4, std::numeric_limits<float>::quiet_NaN());
    Kernel::run(a, i, shared.data() + i % few_threads);
  }
}

// A line of inputs, in the sums of a thread; or of a warp, whose operands and sums are those of the instruction
// 16 x 8 x 16.
template <class Element, int Group, int Taps, int Step, int Columns, int Outputs>
void add_line(walk_thread<Element, Group, Taps, Step, Columns, Outputs>* lane, int k, int32_t number) {
  for (int i = 0; i < 32; ++i) lane[i].add(k, number);
}
template <class Element, int Depth, int Taps, int Step>
void add_line(group_thread<Element, Depth, Taps, Step>* lane, int k, int32_t number) {
  using thread = group_thread<Element, Depth, Taps, Step>;
  for (int i = 0; i < 32 && k == 0; ++i) lane[i].move_up();
  if (thread::leaves_out && !lane->has_input(number)) return;
  // An instruction has 16 channels of a tap, or eight of two.
  const auto add = [&](int s, int tile, int in, auto from, auto word) {
    float x[16];
    for (int row = 0; row < 16; ++row) x[row] = value(from(row));
    for (int j = 0; j < thread::met && j * Step + k < Taps; ++j)
      for (int own = 0; own < 32; ++own)
        for (int e = 0; e < 4; ++e) {
          const thread& of = lane[(own % 4 * 2 + e % 2) * 4 + in % 8 / 2];
          const uint32_t pair = of.w[((j * Step + k) * Taps + s) * thread::words + word] >> in % 2 * 16;
          lane[own].sum[j][tile][e] += x[own / 4 + e / 2 * 8] * value(Element{static_cast<uint16_t>(pair)});
        }
  };
  for (int s = 0; s < Taps; ++s)
    for (int tile = 0; tile < thread::tiles; ++tile)
      for (int in = 0; in < Depth; ++in) {
        if constexpr (thread::small) {
          add(
              s, tile, in, [&](int row) { return lane[row + s % 2 * 16].row(number, s / 2 * 2, 0)[in]; }, 0);
        } else {
          add(
              s, tile, in, [&](int row) { return lane[row + in % 16 / 8 * 16].row(number, s, in / 16)[in % 8]; },
              in / 16 * 4 + tile * 2 + in % 16 / 8);
        }
      }
}

// Blocks that walk down, threads in turn between barriers, shared memory full of NaN.
template <class Thread>
void run_lines(const lines_conv& a, unsigned blocks) {
  using T = typename Thread::element;
  EXPECT_LE(Thread::scratch_bytes + Thread::ring_size * a.line_at * int(sizeof(T)), Thread::shared_bytes);
  constexpr int depth = (Thread::taps + Thread::step - 1) / Thread::step;
  for (unsigned block = 0; block < blocks; ++block) {
    std::vector<four_floats> shared(Thread::shared_bytes / sizeof(four_floats) + 1);
    memset(static_cast<void*>(shared.data()), 0xff, shared.size() * sizeof shared[0]);
    std::vector<Thread> threads;
    threads.reserve(Thread::threads);
    for (int i = 0; i < Thread::threads; ++i) threads.emplace_back(a, shared[0].v, static_cast<int32_t>(block), i);
    const int32_t count = threads[0].line_count(Thread::taps);
    const int32_t lines = (threads[0].end - threads[0].line + depth - 1) * Thread::step;
    for (Thread& t : threads) {
      for (int32_t number = 0; number < Thread::ring_size - Thread::set_lines; number += Thread::set_lines)
        t.request(number, count);
      t.load_weights(), t.load_channels();
    }
    constexpr int round = std::max(Thread::set_lines, Thread::step);
    for (int32_t number = 0, line = 1 - depth; number < (lines + round - 1) / round * round; ++number) {
      for (const Thread& t : threads)
        if (number % Thread::set_lines == 0) t.request(number + Thread::ring_size - Thread::set_lines, count);
      const int k = number % Thread::step;
      for (int i = 0; i < Thread::threads; i += 32) add_line(&threads[static_cast<size_t>(i)], k, number);
      for (Thread& t : threads) {
        if (k != (Thread::taps - 1) % Thread::step) continue;
        if (Thread::writes_plain && t.plain) {
          t.template finish<Thread::writes_plain>(line);
        } else {
          t.template finish<false>(line);
        }
      }
      if (k == Thread::step - 1) ++line;
    }
  }
}

}  // namespace quern::test
