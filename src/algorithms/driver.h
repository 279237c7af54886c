// SPDX-License-Identifier: MIT
//
// What drivers share: work for threads, the epilogue, and the time a tile takes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
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

// Whether it bounds values at most, which may have got a bias.
inline bool only_bounds(const quern_epilogue& e) {
  return !e.scale && e.alpha == 1.0f && e.residual == QUERN_RESIDUAL_NONE &&
         (e.activation == QUERN_IDENTITY || e.activation == QUERN_RELU || e.activation == QUERN_CLAMP);
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
  e.clamp_only = only_bounds(from);
  e.plain = e.clamp_only && !e.bias && e.lower == -infinity && e.upper == infinity;
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
  int64_t alike(int64_t i) const { return (i < taller ? taller : tiles) - i; }  // from there on
};

// A call for tile i and those of the same height that follow it.
inline void take_rows(gemm_f32& call, const cut& tiles, int64_t i) {
  const ptrdiff_t m = tiles.rows(i);
  call.m = size_t(m), call.more = size_t(tiles.alike(i) - 1);
  call.step = {.a = m * ptrdiff_t(call.lda), .c = m * ptrdiff_t(call.out.ldc), .residual = m * ptrdiff_t(call.out.ldr)};
}

// Part i of `parts` of `count` rows; any run of neighbouring parts has its share, within a row.
inline range part(int64_t count, int64_t i, int64_t parts) {
  if (parts == 1) return {0, count};
  return {count * i / parts, count * (i + 1) / parts};
}

// For drivers that read and write planes as they lie: no tensor has blocks of channels,
inline refusal refuse_blocks(const full_problem& p) {
  if (block_of(p.src.layout) != 1) return {QUERN_REASON_LAYOUT, "src.layout", p.src.layout, QUERN_NCHW};
  if (block_of(p.dst.layout) != 1) return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, QUERN_NCHW};
  if (p.epilogue.residual && block_of(p.residual.layout) != 1)
    return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, QUERN_NCHW};
  return {};
}

// and the pixels of a line lie side by side.
inline refusal refuse_pixels_apart(const full_problem& p) {
  const geometry& g = geometry_of(p);
  if (g.in[2] > 1 && g.src[4] != 1) return {QUERN_REASON_LAYOUT, "src.stride[4]", g.src[4], 1};
  if (g.out[2] > 1 && g.dst[4] != 1) return {QUERN_REASON_LAYOUT, "dst.stride[4]", g.dst[4], 1};
  if (p.epilogue.residual && g.out[2] > 1 && g.residual[4] != 1)
    return {QUERN_REASON_LAYOUT, "residual.stride[4]", g.residual[4], 1};
  return {};
}

// For drivers of groups of few channels: of many, kernels for GEMM do more.  One channel in and out is depthwise, which
// has kernels of its own.
inline refusal refuse_groups(const full_problem& p) {
  constexpr int64_t most = 64;
  if (p.groups < 2) return {QUERN_REASON_SHAPE, "groups", p.groups, 2};
  const int64_t c = p.src.size[1] / p.groups;
  if (c > most) return {QUERN_REASON_SHAPE, "src.size[1] / groups", c, most};
  if (c == 1 && p.dst.size[1] == p.groups) return {QUERN_REASON_SHAPE, "src.size[1] / groups", 1, 2};
  return {};
}

// For drivers that read and write the channels of a pixel where they lie side by side, all or in blocks.
inline refusal refuse_channels_apart(const full_problem& p) {
  const geometry& g = geometry_of(p);
  if (g.src_block == 1 && p.src.size[1] > 1 && g.src[1] != 1)
    return {QUERN_REASON_LAYOUT, "src.stride[1]", g.src[1], 1};
  if (g.dst_block == 1 && p.dst.size[1] > 1 && g.dst[1] != 1)
    return {QUERN_REASON_LAYOUT, "dst.stride[1]", g.dst[1], 1};
  if (p.epilogue.residual && g.residual_block == 1 && p.dst.size[1] > 1 && g.residual[1] != 1)
    return {QUERN_REASON_LAYOUT, "residual.stride[1]", g.residual[1], 1};
  return {};
}

// Of a chain of as many fused multiply-adds as the filter has taps and channels, and an addition, in f32, over
// the sum of magnitudes (Higham 2002, lemma 3.1).
inline double chain_bound(const full_problem& p) {
  const geometry& g = geometry_of(p);
  const double n = (double(g.filter_size()) * double(g.c) + 1) * 0x1p-24;
  return n < 0.5 ? n / (1 - n) : std::numeric_limits<double>::infinity();
}

// Of a sum of so many elements in f32, over that of their magnitudes, and a division.
inline double sum_bound(int64_t length) {
  const double n = (double(length) + 1) * 0x1p-24;
  return n < 0.5 ? n / (1 - n) : std::numeric_limits<double>::infinity();
}

// Predictions count in cycles of a core that starts two multiply-adds of its widest vectors in each, of latency four,
// and two loads; machine.cycle_ns is how long one is.

inline bool in_halves(const machine& on) { return (on.isa & QUERN_ISA_AVX512) && on.vector_bits < 512; }

// What a clock of the core is in those, of whatever is not arithmetic: such a core takes two for the widest vectors.
inline double clock_cycles(const machine& on) { return in_halves(on) ? 0.5 : 1; }

// What a cycle of a row's vectors is in those: narrow ones take a clock, and half the registers cost (a fifth: Zen 4).
// Not where a GEMM's tile multiplies.
inline bool narrow(const kernel& row, const machine& on) {
  return in_halves(on) && uint64_t(row.vector) * 32 <= on.vector_bits;
}
inline double pace(const kernel& row, const machine& on) { return narrow(row, on) ? 0.6 : 1; }
inline double multiply_pace(const kernel& row, const machine& on) { return narrow(row, on) ? clock_cycles(on) : 1; }

// One call of a gemm_f32 microkernel, and what it takes around the loop.
inline double tile_cycles(const kernel& row, const machine& on, double m, double n, double k, bool near = false) {
  const double vectors = std::max(1.0, double((int64_t(n) + row.vector - 1) / row.vector));
  // Loads of A are narrow, and add to a clock each.
  const bool halves = in_halves(on), wide = halves && !narrow(row, on);
  const double multiply = multiply_pace(row, on);
  const double loads = (wide ? m / 2 : m) + vectors, latency = 4 * clock_cycles(on) / multiply;
  // Whole vectors of B that is not near bring a hint each, which takes its time (Granite Rapids: 6x64 is at 88 % of the
  // peak, 14x32 at 94).
  const double hints = row.vector == 16 && !halves && !near ? 0.2 * vectors : 0;
  // Where vectors are halves, what surrounds the loop goes on beside multiply-adds, all but the stores (Zen 4).
  const double around = halves ? 4 + pace(row, on) * m * vectors : 20 + 1.5 * m * vectors;
  const double step = std::max({multiply * m * vectors / 2, pace(row, on) * loads / 2, multiply * latency});
  return (step + hints) * k + around;
}

// What every product of the formula takes in vectors of this row, filled along the pixels, or along the channels of a
// group.  Predictions estimate what falls on borders: they may be a little less.
inline double least_by_pixels(const full_problem& p, const kernel& row, const machine& on) {
  return 0.9 * multiply_pace(row, on) * p.products / (2 * row.vector);
}
inline double least_by_channels(const full_problem& p, const kernel& row, const machine& on) {
  const int64_t k = std::max<int64_t>(p.g.k, 1);
  return least_by_pixels(p, row, on) * double(up(k, row.vector) * row.vector) / double(k);
}

// Whether a core cannot have misses enough in flight to feed itself from L3 (Intel: 8 bytes a cycle; Zen 4: 46).
inline bool slow_l3(const machine& on) { return on.l3_rate * on.cycle_ns < 16; }

// Whole vectors of 512 bits on a core whose L3 answers in time: Zen 5.
inline bool fast_and_wide(const kernel& row, const machine& on) {
  return row.vector == 16 && !in_halves(on) && !slow_l3(on);
}

// How much of what loads of B wait for shows beside the multiply-adds of m rows: none at the tallest tile.
inline double few_rows(double m) { return std::max(0.0, 1 - m / 14); }

// What m rows by `floats` of B take longer where L1 does not keep those: they come from L2, mostly while rows are
// multiplied by those before.  `again`: they come again when so many have passed; then none are left of the last time,
// which few rows do not hide from a core that has two whole vectors a clock (Zen 5).
inline double refill_cycles(const kernel& row, const machine& on, double m, double floats, double again = 0) {
  if (4 * std::max(floats, again) <= double(on.l1) / 2) return 0;
  const double read = 4 * floats / (on.l2_rate * on.cycle_ns),
               multiply = multiply_pace(row, on) * m * floats / row.vector / 2;
  const double held_up = 4 * again > double(on.l1) && fast_and_wide(row, on) ? 0.3 * few_rows(m) : 0;
  return std::max((0.22 + held_up) * read, read - multiply);
}

// What of L3 a core can count on, as others use it too.
inline double l3_share(const machine& on) { return std::min(double(on.l3) / 2, 12e6); }

// Bytes a nanosecond from and to where `footprint` of them stay from run to run.  Around its share of L3 some do not.
inline double copy_rate(const machine& on, double footprint) {
  if (footprint <= double(on.l2)) return on.l2_rate;
  const double lost = std::clamp(footprint / l3_share(on) - 0.5, 0.0, 1.0);
  return 1 / ((1 - lost) / on.l3_rate + lost / on.memory_rate);
}

// Of what is read piece by piece from beyond L2, or waited for: latency counts, which differs less than rates.
inline double fetch_rate(const machine& on, double footprint) {
  return std::sqrt(copy_rate(on, std::max(footprint, double(on.l2) + 1)) * on.memory_rate);
}

// A convolution's operands, all images of them.
struct operand_bytes {
  double image, output, weights;
  operand_bytes(const geometry& g, uint64_t packed)
      : image(4.0 * double(g.n * g.groups) * double(g.in[0] * g.in[1] * g.in[2]) * double(g.c)),
        output(4.0 * double(g.n * g.groups) * double(g.out[0] * g.out[1] * g.out[2]) * double(g.k)),
        weights(double(packed)) {}
  double all() const { return image + output + weights; }
  // Of reading so much and writing the output: past the caches, or after what was there has been read.
  double cycles(const machine& on, double reads, bool streamed) const {
    return (reads + (streamed ? 0.5 : 1) * output) / (copy_rate(on, all()) * on.cycle_ns);
  }
};

// Cycles of so many bytes of weights that pass by.  Those that not even L3 keeps, as others use it too, come at a third
// of the rate that a copy says: a core cannot wait for enough of memory at a time (Granite Rapids, from 50 to 120 MB).
inline double passing_cycles(const machine& on, double bytes) {
  const double far = slow_l3(on) ? std::clamp((bytes - 50e6) / 70e6, 0.0, 1.0) : 0;
  return (1 + 2.3 * far) * bytes / (copy_rate(on, bytes) * on.cycle_ns);
}

// Cycles of an image in and an output out where L3 is no better than memory: a copy's rate says all, writing
// included.
inline double slow_copy_cycles(const geometry& g, const machine& m) {
  const operand_bytes o(g, 0);
  const double l2 = double(m.l2), lost = std::clamp((o.all() - l2) / (l2 / 2), 0.0, 1.0);
  return o.all() * (lost / copy_rate(m, o.all()) + (1 - lost) / m.l2_rate) / m.cycle_ns;
}

// Whether so many bytes of outputs are written past the caches, where no next layer would find them.
inline bool streams_outputs(double output, const machine& on) {
  return output > std::max(double(on.l2), std::min(double(on.l3) / 4, 20e6));
}
inline bool streams_outputs(const geometry& g, const machine& on) {
  return streams_outputs(operand_bytes(g, 0).output, on);
}

// The same where nothing but the traffic counts, of all that is read and written: copies, and what is as fast as they
// (25 MB: 1.2 times as fast, 13 MB: 0.7 times, Zen 5).
inline bool streams_copies(double bytes, const machine& on) { return bytes > std::min(double(on.l3) / 2, 20e6); }

// The same of a tile; unfinished sums are read again, and go past nothing.
inline void set_stream(gemm_f32& tile, bool streams) { tile.out.stream = streams && tile.out.epilogue; }

// What its rows of A take, of which `k` elements are new to it: a line at a time, from L2.  That is where tall tiles
// lose: the panels of B that pass by leave little of A in L1.
inline double row_cycles(double m, double k) { return 1.25 * m * k / 16; }

// What a tile takes longer where its rows of A, so many elements apart, share a set of L1 and are more than it holds:
// a way of 4 KiB is what all of x86 has.
inline double row_clash(const machine& on, double m, int64_t lda) {
  return lda % 1024 == 0 ? 1 + 0.05 * std::max(0.0, m - double(on.l1 / 4096)) : 1;
}

// Time of so much work on so many workers: waking threads, and waiting for the last one, takes what a parallel_for over
// all cores takes, half of it for however few.
inline double shared_ns(const machine& on, double cycles, uint32_t workers) {
  const uint32_t n = std::max(1u, workers);
  return cycles * on.cycle_ns / n + (n > 1 ? on.fork_ns * (0.5 + 0.5 * n / on.cores) : 0);
}

// More workers only where they gain a tenth.
inline uint32_t useful_workers(const machine& on, double cycles, uint32_t threads) {
  uint32_t best = 1;
  for (uint32_t n = 2; n <= std::min(threads, 1024u); ++n)
    if (shared_ns(on, cycles, n) < 0.9 * shared_ns(on, cycles, best)) best = n;
  return best;
}

// Weights that are A come in short rows, too many for the hardware to follow: beyond half of L2 they are waited for.
inline double weight_rows_cycles(uint64_t bytes, uint64_t l2) { return bytes > l2 / 2 ? double(bytes) / 10 : 0; }

// The prediction from blocks.cycles and those that memory takes, of which none is hidden.
inline cost waiting(const kernel& row, const machine& on, const blocking& blocks, double traffic) {
  return {shared_ns(on, blocks.cycles + traffic, blocks.workers), blocks.cycles / pace(row, on) * 4 * row.vector};
}

// The same where so much of the smaller is hidden.
inline cost overlapped(const kernel& row, const machine& on, const blocking& blocks, double traffic,
                       double hidden = 0.5) {
  return waiting(row, on, blocks, traffic - hidden * std::min(blocks.cycles, traffic));
}

// algorithm.predict of whoever reads image and weights once and streams nothing.
inline cost predict_one_pass(const full_problem& p, const kernel& row, const blocking& blocks, const machine& on) {
  const operand_bytes o(geometry_of(p), blocks.packed_bytes);
  return overlapped(row, on, blocks, o.cycles(on, o.weights + o.image, false));
}

}  // namespace quern
