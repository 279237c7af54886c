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

// The upper half of a float's bits, rounded to nearest; not to infinity.
inline uint16_t part_of(float x) {
  constexpr uint32_t infinite = 0x7f800000;
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7fffffff) > infinite) return 0x7fc0;
  const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  return uint16_t(((rounded & infinite) == infinite ? bits : rounded) >> 16);
}
inline float float_of(uint16_t part) {
  const uint32_t bits = uint32_t{part} << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// Where the weight of channels k and c goes in a step of a phase with so many taps.
inline void put_parts(const packed_steps& steps, char* phase, int64_t taps, int64_t k, int64_t step, int64_t c,
                      float w) {
  const int64_t width = steps.width(k / panel);
  char* to = phase + k / panel * steps.panel_bytes(taps) + step * width * steps.tile_bytes();
  const int64_t at = k % panel / tile * tile * depth + c % tile * panel + k % tile * 2 + c % depth / tile;
  for (int64_t part = 0; part < steps.parts; ++part) {
    const uint16_t bits = part_of(w);
    w -= float_of(bits);
    memcpy(to + (part * width * tile * depth + at) * 2, &bits, sizeof bits);
  }
}

// The same, and who comes last fills up with zeros.
inline void put_weight(const packed_steps& steps, char* phase, int64_t taps, int64_t k, int64_t step, int64_t c,
                       float w) {
  const geometry& g = steps.g;
  put_parts(steps, phase, taps, k, step, c, w);
  const int64_t c_end = c == g.c - 1 ? up(g.c, depth) * depth : c + 1;
  const int64_t k_end = k == g.k - 1 ? up(g.k, tile) * tile : k + 1;
  for (int64_t z = c + 1; z < c_end; ++z) put_parts(steps, phase, taps, k, step, z, 0);
  for (int64_t y = k + 1; y < k_end; ++y)
    for (int64_t z = c; z < c_end; ++z) put_parts(steps, phase, taps, y, step, z, 0);
}

// Output channels [first, first + count).
inline void pack_steps(const packed_steps& steps, int64_t first, int64_t count, const float* weights, char* payload) {
  pack_weights(
      steps.g, first, count, weights,
      [&](int64_t group, int64_t k, int64_t, const phase& ph, int64_t before, int64_t tap, int64_t c, float w) {
        const int64_t plane = ph.h.taps * ph.w.taps;
        const int64_t step = (tap / plane * steps.blocks() + c / depth) * plane + tap % plane;
        put_weight(steps, payload + steps.phase(group, before), ph.taps(), k, step, c, w);
      });
}

}  // namespace quern::split_driver
