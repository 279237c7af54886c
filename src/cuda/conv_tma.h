// SPDX-License-Identifier: MIT
//
// The driver of kernels that the copy engine feeds: conv_tma.cpp, conv_tma_pack.cpp.  conv_tma_f16x3.cpp makes
// another algorithm of it.
#pragma once

#include "algorithm.h"

namespace quern::tma_driver {

// Channels in 128 bytes, and in the 16 that pixels are aligned to.
inline int64_t chunk_of(quern_type type) { return 128 / type_bytes(type); }
inline int64_t aligned_of(quern_type type) { return 16 / type_bytes(type); }

// What the engine walks over: the image where it lies, or a copy of it in the workspace.  Where pixels are 16 bytes at
// most, those of a line that a window meets are the channels of one: lines have their padding in the copy, and what
// the engine takes for pixels overlap.
struct view {
  geometry g;
  bool copied;
  int64_t pixel, columns, before;  // of the copy: channels of a pixel, pixels of a line, those before the image's
  int64_t folded;                  // taps along w that are channels, 0: none

  int64_t pixels() const { return g.n * g.in[1] * columns; }
  int64_t bytes(quern_type type) const { return copied ? pixels() * pixel * type_bytes(type) : 0; }
};
view view_of(const geometry& image, quern_type);

// Where weights lie in the payload, and behind them the exponents of what is scaled (f16x3.h).
struct tma_panels {
  const geometry& g;
  const kernel& row;
  bool scaled = row.kind == kind::tma_f16x3;
  int64_t nr = row.nr, chunk = chunk_of(row.type);
  int64_t chunks = up(g.c, chunk), panels = up(g.k, nr), taps = g.taps();

  // Elements of a stage; of TF32: high and low.
  int64_t block() const { return (row.type == QUERN_F32 && !scaled ? 2 : 1) * nr * chunk; }
  // The block of chunk 0 at tap 0 of this phase, whose predecessors have `before` taps together.
  int64_t phase(int64_t group, int64_t before) const { return (group * taps + before) * chunks * panels * block(); }
  int64_t panel(int64_t index, int64_t phase_taps) const { return index * phase_taps * chunks * block(); }
  int64_t bytes(int64_t elements) const { return elements * type_bytes(row.type); }
  // The stage of a tap and chunk, within a panel; taps that share one follow each other.
  int64_t block_at(int64_t tap, int64_t at) const {
    return row.taps ? (tap / row.taps * chunks + at) * row.taps + tap % row.taps : tap * chunks + at;
  }
  // Of a channel, among those of all groups' panels.
  int64_t exponent(int64_t group, int64_t k) const { return group * panels * nr + k; }
  int64_t weights_bytes() const { return bytes(phase(g.groups, 0)); }
  int64_t payload_bytes() const { return weights_bytes() + (scaled ? 4 * exponent(g.groups, 0) : 0); }
};

refusal refuse(const full_problem&, const kernel&);
blocking choose_blocks(const full_problem&, const kernel&, const machine&, uint32_t threads);
cost predict(const full_problem&, const kernel&, const blocking&, const machine&);
void pack(const job&, int64_t first, int64_t count, const void* weights, char* payload);
quern_status launch(const job&, const launching&);

}  // namespace quern::tma_driver
