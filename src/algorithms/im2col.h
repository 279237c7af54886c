// SPDX-License-Identifier: MIT
//
// Packing straight from the image: the im2col matrix, pixels by (taps, channels), never exists whole; this
// writes the block of it that a kernel reads next, padding included.
#pragma once

#include <string.h>

#include "pixels.h"

namespace quern {

struct im2col {
  const geometry& g;
  const phase& ph;
  const kernel& row;
  const float* image;  // of this batch element, channel 0
  int64_t channel;     // the group's first

  const float* group_image() const { return image + g.src_channel(channel); }

  // Block [pixels] x [ks] to `to`, one of the two strides being 1.  Pixels count d h w with w fastest,
  // ks taps, then channels.
  void pack(range pixels, range ks, float* to, int64_t to_pixel, int64_t to_k) const {
    const int64_t width = ph.w.out_count, height = ph.h.out_count;
    for (int64_t p = pixels.begin; p < pixels.end;) {
      const int64_t x = p % width, line = p / width;
      const range xs = {x, std::min(width, x + pixels.end - p)};
      pack_line(line / height, line % height, xs, ks, to + (p - pixels.begin) * to_pixel, to_pixel, to_k);
      p += xs.count();
    }
  }

 private:
  void pack_line(int64_t d, int64_t y, range xs, range ks, float* to, int64_t to_pixel, int64_t to_k) const {
    const range td = ph.d.taps_at(d), th = ph.h.taps_at(y);
    const int64_t run = ph.w.taps * g.c;  // of one filter row
    // A filter row over a dense NHWC image is one run of s * c floats where all of it is on the image.
    const bool merge =
        g.groups == 1 && channels_dense(g.src, g.src_block) && g.src[4] == g.c && ph.w.tap_step == 1 && ph.w.taps > 1;
    range inside = {xs.begin, xs.begin};
    if (merge) {
      const range first = ph.w.outputs_of(0, xs), last = ph.w.outputs_of(ph.w.taps - 1, xs);
      if (first.count() && last.count() && first.begin < last.end) inside = {first.begin, last.end};
    }
    for (int64_t r = ks.begin / run; r * run < ks.end; ++r) {
      const int64_t t = r / ph.h.taps, v = r % ph.h.taps;
      const bool on_image = t >= td.begin && t < td.end && v >= th.begin && v < th.end;
      const int64_t source = (ph.d.in_begin + d * ph.d.in_step + t * ph.d.tap_step) * g.src[2] +
                             (ph.h.in_begin + y * ph.h.in_step + v * ph.h.tap_step) * g.src[3];
      if (!on_image) {
        const range part = {std::max(ks.begin, r * run), std::min(ks.end, (r + 1) * run)};
        zero(xs, part, xs.begin, ks.begin, to, to_pixel, to_k);
        continue;
      }
      if (inside.count()) {
        const range part = {std::max(ks.begin, r * run), std::min(ks.end, (r + 1) * run)};
        move({source, {part.begin - r * run, part.end - r * run}, 0}, inside, part, xs.begin, ks.begin, to, to_pixel,
             to_k);
      }
      for (int64_t u = 0; u < ph.w.taps; ++u) {
        const int64_t begin = r * run + u * g.c;
        const range part = {std::max(ks.begin, begin), std::min(ks.end, begin + g.c)};
        if (part.begin >= part.end) continue;
        const range on = ph.w.outputs_of(u, xs);
        const range channels = {channel + part.begin - begin, channel + part.end - begin};
        // What the merged run has not written, left and right of it.
        for (const range side : {range{xs.begin, inside.begin}, range{inside.end, xs.end}}) {
          if (side.begin >= side.end) continue;
          const range hit = {std::clamp(on.begin, side.begin, side.end), std::clamp(on.end, side.begin, side.end)};
          zero({side.begin, hit.begin}, part, xs.begin, ks.begin, to, to_pixel, to_k);
          if (hit.begin < hit.end) move({source, channels, u}, hit, part, xs.begin, ks.begin, to, to_pixel, to_k);
          zero({std::max(hit.begin, hit.end), side.end}, part, xs.begin, ks.begin, to, to_pixel, to_k);
        }
      }
    }
  }

  // Channels of one tap; a merged row of taps counts as so many channels of its first.
  struct source_row {
    int64_t from;
    range channels;
    int64_t tap;
  };

  void move(const source_row& s, range xs, range ks, int64_t x0, int64_t k0, float* to, int64_t to_pixel,
            int64_t to_k) const {
    const int64_t x = ph.w.in_begin + xs.begin * ph.w.in_step + s.tap * ph.w.tap_step;
    gather(row, {image + s.from + x * g.src[4], xs.count(), ph.w.in_step * g.src[4], g.src[1], g.src_block}, s.channels,
           to + (xs.begin - x0) * to_pixel + (ks.begin - k0) * to_k, to_pixel, to_k);
  }

  static void zero(range xs, range ks, int64_t x0, int64_t k0, float* to, int64_t to_pixel, int64_t to_k) {
    if (xs.begin >= xs.end || ks.begin >= ks.end) return;
    to += (xs.begin - x0) * to_pixel + (ks.begin - k0) * to_k;
    const bool k_dense = to_k == 1;
    const int64_t lines = k_dense ? xs.count() : ks.count(), step = k_dense ? to_pixel : to_k;
    const size_t bytes = (k_dense ? ks.count() : xs.count()) * sizeof(float);
    for (int64_t i = 0; i < lines; ++i) memset(to + i * step, 0, bytes);
  }
};

}  // namespace quern
