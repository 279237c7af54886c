// SPDX-License-Identifier: MIT
//
// What drivers share: work for threads, the epilogue, and the time a tile takes.
#pragma once

#include <algorithm>
#include <atomic>
#include <limits>

#include "algorithm.h"
#include "geometry.h"
#include "machine.h"

namespace quern {

// Calls body(item, workspace of the worker) for every item below `items`.  Workers claim items one by one,
// so slow cores take fewer; which worker takes which item never changes a result.
template <class Body>
void for_each_item(const job& j, const execution& e, int64_t items, Body body) {
  const size_t workers = std::min<int64_t>(e.workers, items);
  if (workers <= 1) {
    for (int64_t i = 0; i < items; ++i) body(i, e.workspace);
    return;
  }
  struct shared {
    Body& body;
    char* workspace;
    uint64_t bytes;
    int64_t items;
    std::atomic<int64_t> next{0};
  } s{body, e.workspace, j.blocks.workspace_bytes, items};
  e.exec->parallel_for(
      e.exec->self, workers,
      [](void* arg, size_t worker) {
        shared& all = *static_cast<shared*>(arg);
        char* workspace = all.workspace + worker * all.bytes;
        for (int64_t i; (i = all.next.fetch_add(1, std::memory_order_relaxed)) < all.items;) all.body(i, workspace);
      },
      &s);
}

inline refusal too_many_phases(const geometry& g) {
  if (g.phases() <= most_phases) return {};
  static constexpr const char* field[] = {"window.stride[0]", "window.stride[1]", "window.stride[2]"};
  int widest = 0;
  for (int i = 1; i < 3; ++i)
    if (g.phases(i) > g.phases(widest)) widest = i;
  return {QUERN_REASON_SHAPE, field[widest], g.stride[widest], most_phases / (g.phases() / g.phases(widest))};
}

inline epilogue_f32 epilogue_of(const quern_problem& p, const quern_args& a) {
  const quern_epilogue& from = p.epilogue;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  epilogue_f32 e = {};
  e.scale = from.scale ? static_cast<const float*>(a.scale) : nullptr;
  e.bias = from.bias ? static_cast<const float*>(a.bias) : nullptr;
  e.slope = from.activation == QUERN_PRELU ? static_cast<const float*>(a.slope) : nullptr;
  e.alpha = from.alpha, e.beta = from.beta;
  e.residual = from.residual;
  e.activation = from.activation;
  e.activation_alpha = from.activation_alpha, e.activation_beta = from.activation_beta;
  e.lower = from.activation == QUERN_RELU ? 0.0f : from.activation == QUERN_CLAMP ? from.activation_alpha : -infinity;
  e.upper = from.activation == QUERN_CLAMP ? from.activation_beta : infinity;
  e.clamp_only = !e.scale && from.alpha == 1.0f && from.residual == QUERN_RESIDUAL_NONE &&
                 (from.activation == QUERN_IDENTITY || from.activation == QUERN_RELU || from.activation == QUERN_CLAMP);
  return e;
}

// Cuts `count` rows into tiles of at most `most`, all of nearly the same height.
struct cut {
  int64_t count, tiles, height, taller;  // `taller` tiles are one row higher
  cut(int64_t rows, int64_t most) : count(rows), tiles(up(rows, most)), height(0), taller(0) {
    if (tiles) height = rows / tiles, taller = rows % tiles;
  }
  int64_t begin(int64_t i) const { return i * height + std::min(i, taller); }
  int64_t rows(int64_t i) const { return height + (i < taller); }
};

// Core cycles of one call of a gemm_f32 microkernel, on a core with two vector FMA units of latency four
// and two vector loads a cycle, and what it takes around the loop.
inline double tile_cycles(const kernel& row, double m, double n, double k) {
  const double vectors = std::max(1.0, double((int64_t(n) + row.vector - 1) / row.vector));
  const double step = std::max({m * vectors / 2, (m + vectors) / 2, 4.0});
  return step * k + 20 + 1.5 * m * vectors;
}

// Clock that predictions assume, cycles a nanosecond.  A common factor: it moves no choice.
constexpr double clock_ghz = 3.5;

inline uint32_t useful_workers(double ns, uint32_t threads) {
  // Waking a thread costs microseconds; a worker must have twenty of them to do.
  const double most = std::max(1.0, ns / 20000);
  return uint32_t(std::min<double>(std::clamp(threads, 1u, 1u << 16), most));
}

}  // namespace quern
