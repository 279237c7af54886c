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
  int64_t group_bytes() const { return phase(1, 0); }
  int64_t size() const { return phase(g.groups, 0); }
};

// Weights that are split side by side: a compiler makes vectors of what is written as vectors alone.
struct split_vector {
  static constexpr int64_t lanes = 4;
  using floats = float __attribute__((vector_size(16)));
  using words = uint32_t __attribute__((vector_size(16)));
  floats left;
  bool ordinary;  // no part of them is or rounds to what is not finite

  explicit split_vector(floats x) : left(x) {
    const words large = words((words(left) & 0x7fffffff) > 0x7f000000);
    ordinary = !(large[0] | large[1] | large[2] | large[3]);
  }
  // Takes the upper halves of their bits, rounded to nearest, but not to infinity, from what is left.
  words take() {
    constexpr uint32_t infinite = 0x7f800000;
    const words bits = words(left);
    words part = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    for (int i = 0; i < lanes && !ordinary; ++i) {
      if ((part[i] & infinite) == infinite) part[i] = bits[i] & 0xffff0000;
      if ((bits[i] & 0x7fffffff) > infinite) part[i] = 0x7fc00000;
    }
    left -= floats(part);
    return part >> 16;
  }
};

// Where a panel's weights are, in a step of a phase with so many taps.
struct panel_step {
  char* begin;
  int64_t part;  // elements from one to the next

  panel_step(const packed_steps& steps, char* phase, int64_t taps, int64_t index, int64_t step)
      : begin(phase + index * steps.panel_bytes(taps) + step * steps.width(index) * steps.tile_bytes()),
        part(steps.width(index) * tile * depth) {}

  // Of output channels k to k + count, all of one tile, and an input channel.
  void put(int64_t parts, int64_t k, int64_t c, split_vector weights, int64_t count) const {
    uint16_t* to = reinterpret_cast<uint16_t*>(begin) + k % panel / tile * tile * depth + k % tile * 2 +
                   c % tile * panel + c % depth / tile;
    for (int64_t p = 0; p < parts; ++p, to += part) {
      const split_vector::words bits = weights.take();
      if (count >= split_vector::lanes)
        for (int i = 0; i < split_vector::lanes; ++i) to[2 * i] = uint16_t(bits[i]);
      else
        for (int64_t i = 0; i < count; ++i) to[2 * i] = uint16_t(bits[i]);
    }
  }
  void clear(int64_t parts, range k, int64_t c) const {
    for (; k.begin < k.end; k.begin += split_vector::lanes)
      put(parts, k.begin, c, split_vector(split_vector::floats{}), k.count());
  }
};

// Zeros for channels that do not exist: behind the last of outputs `k`, and behind c if that is the last input.
inline void clear_beside(const packed_steps& steps, const panel_step& to, range k, int64_t c) {
  const geometry& g = steps.g;
  const int64_t k_end = k.end == g.k ? up(g.k, tile) * tile : k.end;
  const int64_t c_end = c == g.c - 1 ? up(g.c, depth) * depth : c + 1;
  to.clear(steps.parts, {k.end, k_end}, c);
  for (int64_t z = c + 1; z < c_end; ++z) to.clear(steps.parts, {k.begin, k_end}, z);
}

// Output channels [first, first + count).
inline void pack_steps(const packed_steps& steps, int64_t first, int64_t count, const float* weights, char* payload) {
  const auto place = [&](const weight_run<float>& w) {
    const int64_t plane = w.ph.h.taps * w.ph.w.taps,
                  first_step = w.tap / plane * steps.blocks() * plane + w.tap % plane;
    char* const phase = payload + steps.phase(w.group, w.before);
    for (int64_t c = w.begin; c < w.end; ++c) {
      const panel_step to(steps, phase, w.ph.taps(), w.k / panel, first_step + c / depth * plane);
      for (int64_t i = 0; i < w.count; i += split_vector::lanes) {
        const auto weight = [&](int64_t lane) { return i + lane < w.count ? w(i + lane, c) : 0; };
        const split_vector four(split_vector::floats{weight(0), weight(1), weight(2), weight(3)});
        to.put(steps.parts, w.k + i, c, four, w.count - i);
      }
      clear_beside(steps, to, {w.k, w.k + w.count}, c);
    }
  };
  pack_weights(steps.g, first, count, weights, place, tile);
}

}  // namespace quern::split_driver
