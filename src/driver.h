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

// Calls body(item, workspace of the worker) for every item below `items`.  Every worker has a share of
// neighbouring items, the same ones in every run, so that what they touch stays in its caches; who is done
// helps the others, so that slow cores do fewer.  Which worker takes which item never changes a result.
template <class Body>
void for_each_item(const job& j, const execution& e, int64_t items, Body body) {
  const int64_t workers = std::min<int64_t>(e.workers, items);
  if (workers <= 1) {
    for (int64_t i = 0; i < items; ++i) body(i, e.workspace);
    return;
  }
  struct alignas(64) share {
    std::atomic<int64_t> next;
    int64_t end;
  };
  constexpr int64_t most_shares = 64;  // of more workers, some share one
  struct {
    Body& body;
    char* workspace;
    uint64_t bytes;
    int64_t count;
    share shares[most_shares];
  } all = {body, e.workspace, j.blocks.workspace_bytes, std::min(workers, most_shares), {}};
  for (int64_t i = 0; i < all.count; ++i) {
    all.shares[i].next.store(items / all.count * i + std::min(i, items % all.count), std::memory_order_relaxed);
    all.shares[i].end = items / all.count * (i + 1) + std::min(i + 1, items % all.count);
  }
  e.exec->parallel_for(
      e.exec->self, workers,
      [](void* arg, size_t worker) {
        auto& work = *static_cast<decltype(all)*>(arg);
        char* workspace = work.workspace + worker * work.bytes;
        for (int64_t i = 0; i < work.count; ++i) {
          share& from = work.shares[(int64_t(worker) + i) % work.count];
          for (int64_t item; (item = from.next.fetch_add(1, std::memory_order_relaxed)) < from.end;)
            work.body(item, workspace);
        }
      },
      &all);
}

// Outputs that were streamed past the caches are in no order with other stores, until another thread may be told
// of them.  Only x86 has such stores.  (ThreadSanitizer refuses std::atomic_thread_fence.)
inline void finish_streams() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_sfence();
#endif
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

// Part i of `parts` of `count` rows; any run of neighbouring parts has its share, within a row.
inline range part(int64_t count, int64_t i, int64_t parts) { return {count * i / parts, count * (i + 1) / parts}; }

// Of a chain of as many fused multiply-adds as the filter has taps and channels, and an addition, in f32, over
// the sum of magnitudes (Higham 2002, lemma 3.1).
inline double chain_bound(const quern_problem& p) {
  const geometry g = geometry_of(p);
  const double n = (double(g.filter_size()) * double(g.c) + 1) * 0x1p-24;
  return n < 0.5 ? n / (1 - n) : std::numeric_limits<double>::infinity();
}

// Core cycles of one call of a gemm_f32 microkernel, on a core with two vector FMA units of latency four
// and two vector loads a cycle, and what it takes around the loop.  `light`: of what broadcasts and latency weigh.
inline double tile_cycles(const kernel& row, double m, double n, double k, double light = 1) {
  const double vectors = std::max(1.0, double((int64_t(n) + row.vector - 1) / row.vector));
  const double step = std::max({m * vectors / 2, (m * light + vectors) / 2, 4.0 * light});
  return step * k + 20 + 1.5 * m * vectors;
}

// The same, counted in what the widest vectors take: where a core has those in halves, a narrow one is as fast as
// they are, but for what half the registers cost (7 %: Zen 4), and a broadcast takes no longer for the wide ones.
inline double tile_cycles(const kernel& row, const machine& on, double m, double n, double k) {
  const bool halves = (on.isa & QUERN_ISA_AVX512) && on.vector_bits < 512;
  if (halves && uint64_t(row.vector) * 32 <= on.vector_bits) return 0.54 * tile_cycles(row, m, n, k);
  return tile_cycles(row, m, n, k, halves ? 0.5 : 1);
}

// What its rows of A take, of which `k` elements are new to it: a line at a time, from L2.  That is where tall tiles
// lose: the panels of B that pass by leave little of A in L1.
inline double row_cycles(double m, double k) { return 1.25 * m * k / 16; }

// What a tile takes longer where its rows of A, so many elements apart, share a set of L1 and are more than it holds:
// a way of 4 KiB is what all of x86 has.
inline double row_clash(const machine& on, double m, int64_t lda) {
  return lda % 1024 == 0 ? 1 + 0.05 * std::max(0.0, m - double(on.l1 / 4096)) : 1;
}

// Clock that predictions assume, cycles a nanosecond.  A common factor: it moves no choice.
constexpr double clock_ghz = 3.5;

// What a parallel_for costs: waking threads that wait, and waiting for the last one.
inline double parallel_ns(uint32_t workers) { return workers <= 1 ? 0 : 6000 + 500.0 * workers; }

// Time of `ns` of work on so many workers.
inline double shared_ns(double ns, uint32_t workers) {
  const uint32_t n = std::max(1u, workers);
  return ns / n + parallel_ns(n);
}

// More workers only where they gain a tenth.
inline uint32_t useful_workers(double ns, uint32_t threads) {
  uint32_t best = 1;
  for (uint32_t n = 2; n <= std::min(threads, 1024u); ++n)
    if (shared_ns(ns, n) < 0.9 * shared_ns(ns, best)) best = n;
  return best;
}

// Weights that are A come in short rows, too many for the hardware to follow: beyond half of L2 they are waited for.
inline double weight_rows_cycles(uint64_t bytes, uint64_t l2) { return bytes > l2 / 2 ? double(bytes) / 10 : 0; }

// The prediction from blocks.cycles and the core cycles that memory takes: most of the smaller is hidden.
inline cost overlapped(const kernel& row, const blocking& blocks, double traffic) {
  const double compute = blocks.cycles;
  return {shared_ns((std::max(compute, traffic) + 0.15 * std::min(compute, traffic)) / clock_ghz, blocks.workers),
          compute * 4 * row.vector};
}

}  // namespace quern
