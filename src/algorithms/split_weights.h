// SPDX-License-Identifier: MIT
//
// Weights as parts of bf16 (split_f32 in kernel.h), and their order:
//
//   [group][phase][panel][tap along d, channels, taps along h and w][part][columns / 16][16][16][2]
#pragma once

#include <string.h>

#include "split_band.h"
#include "weights.h"

namespace quern::split_driver {

struct packed_steps {
  const geometry& g;
  int64_t parts;
  int64_t taps = g.taps();

  int64_t blocks() const { return up(g.c, depth); }  // of channels
  int64_t count() const { return up(g.k, panel); }   // of panels
  int64_t halves() const { return up(g.k, tile); }
  int64_t tile_bytes() const { return tile * depth * 2 * parts; }
  int64_t phase(int64_t group, int64_t taps_before) const {
    return (group * taps + taps_before) * blocks() * halves() * tile_bytes();
  }
  int64_t panel_bytes(int64_t phase_taps) const { return phase_taps * blocks() * 2 * tile_bytes(); }
  int64_t width(int64_t index) const { return std::min<int64_t>(2, halves() - 2 * index); }  // in tiles
  int64_t size() const { return phase(g.groups, 0); }
};

// Weights that are split side by side: a compiler makes vectors of what is written as vectors alone.
struct split_vector {
  static constexpr int64_t lanes = 8;
  using floats = float __attribute__((vector_size(16)));
  using words = uint32_t __attribute__((vector_size(16)));
  floats left[lanes / 4];

  explicit split_vector(const float* x) { memcpy(left, x, sizeof left); }
  // Takes the upper halves of their bits, rounded to nearest, but not to infinity, from what is left.
  void take(uint32_t* parts) {
    for (int i = 0; i < lanes / 4; ++i) {
      const words bits = words(left[i]), rounded = bits + 0x7fff + (bits >> 16 & 1);
      const words infinite = words{} + 0x7f800000, is_finite = words((rounded & infinite) != infinite);
      const words near = ((rounded & is_finite) | (bits & ~is_finite)) & 0xffff0000;
      const words is_number = words((bits & 0x7fffffff) <= infinite);
      const words part = (near & is_number) | (0x7fc00000 & ~is_number);
      left[i] -= floats(part);
      memcpy(parts + 4 * i, &part, sizeof part);
    }
  }
};

// Where a panel's weights are, in a step of a phase with so many taps.
struct panel_step {
  char* begin;
  int64_t part;  // elements from one to the next

  panel_step(const packed_steps& steps, char* phase, int64_t taps, int64_t index, int64_t step)
      : begin(phase + index * steps.panel_bytes(taps) + step * steps.width(index) * steps.tile_bytes()),
        part(steps.width(index) * tile * depth) {}

  // Of output channels k to k + count, all of one tile, and an input channel: `weights` has room for whole lanes.
  void put(int64_t parts, int64_t k, int64_t c, const float* weights, int64_t count) const {
    const int64_t at = k % panel / tile * tile * depth + k % tile * 2 + c % tile * panel + c % depth / tile;
    for (int64_t first = 0; first < count; first += split_vector::lanes) {
      split_vector rest(weights + first);
      uint16_t* to = reinterpret_cast<uint16_t*>(begin) + at + 2 * first;
      for (int64_t p = 0; p < parts; ++p, to += part) {
        uint32_t bits[split_vector::lanes];
        rest.take(bits);
        for (int64_t i = 0; i < std::min(count - first, split_vector::lanes); ++i) to[2 * i] = uint16_t(bits[i] >> 16);
      }
    }
  }
};

// Zeros for channels that do not exist: behind the last of outputs `k`, and behind c if that is the last input.
inline void clear_beside(const packed_steps& steps, const panel_step& to, range k, int64_t c) {
  const geometry& g = steps.g;
  const int64_t k_end = k.end == g.k ? up(g.k, tile) * tile : k.end;
  const int64_t c_end = c == g.c - 1 ? up(g.c, depth) * depth : c + 1;
  float zeros[tile] = {};
  if (k_end > k.end) to.put(steps.parts, k.end, c, zeros, k_end - k.end);
  for (int64_t z = c + 1; z < c_end; ++z) to.put(steps.parts, k.begin, z, zeros, k_end - k.begin);
}

// Output channels [first, first + count).
inline void pack_steps(const packed_steps& steps, int64_t first, int64_t count, const float* weights, char* payload) {
  pack_weights(steps.g, tile, first, count, weights, [&](const weight_run<float>& w) {
    const int64_t plane = w.ph.h.taps * w.ph.w.taps,
                  first_step = w.tap / plane * steps.blocks() * plane + w.tap % plane;
    char* const phase = payload + steps.phase(w.group, w.before);
    for (int64_t c = w.begin; c < w.end; ++c) {
      const panel_step to(steps, phase, w.ph.taps(), w.k / panel, first_step + c / depth * plane);
      float values[tile] = {};
      for (int64_t i = 0; i < w.count; ++i) values[i] = w(i, c);
      to.put(steps.parts, w.k, c, values, w.count);
      clear_beside(steps, to, {w.k, w.k + w.count}, c);
    }
  });
}

}  // namespace quern::split_driver
