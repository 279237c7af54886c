// SPDX-License-Identifier: MIT
//
// Where images do not stay in L2, what Winograd's transforms will touch next is fetched while products run: the pixels
// that the next group's tiles do not share with earlier ones, and those of this group's outputs, some lines with each
// call.  A third to a half of the time of VGG's layers with 64 and 128 channels went into waiting (Zen 5).
#pragma once

#include "driver.h"
#include "winograd_group.h"

namespace quern::winograd_driver {

// Of one image.
class pixel_fetch {
 public:
  struct image {
    const float* base;                 // the first channel
    int64_t image, plane, row, pixel;  // elements from one to the next
    int64_t lines, line;               // of 16 channels
    int64_t first[2], size[2];         // the pixel of output (0, 0) along y and x, and how many there are
    int64_t step[2];                   // pixels an output
    int64_t each[2], apart[2];         // pixels of a tile, and from one to the next
  };

  pixel_fetch(const tiling& t, const image& p, int64_t first, int64_t last, int64_t calls)
      : t_(t),
        p_(p),
        at_(t, first),
        tiles_(last - first),
        dense_(p.apart[1] == 1 && p.line == 16 && p.pixel == p.lines * 16),
        step_(dense_ ? 16 : p.apart[1] * p.pixel),
        share_(calls ? up(tiles_ * p.each[0] * p.each[1] * p.lines, calls) : 0) {}

  // What one of `calls` calls has to fetch.
  void operator()() {
    for (int64_t owed = share_; owed > 0;) {
      if (left_ == 0 && !next_run()) return;
      const int64_t now = std::min(owed, left_);
      for (int64_t i = 0; i < now; ++i, from_ += step_) __builtin_prefetch(from_, 0, 2);
      owed -= now, left_ -= now;
    }
  }

 private:
  // All lines of a row's pixels where they follow each other, else one of each pixel.  Rare beside prefetches, which
  // are all that is to be inlined.
  [[gnu::noinline]] bool next_run() {
    while (run_ == runs_)
      if (!next_row()) return false;
    from_ = row_ + run_++ * p_.line, left_ = dense_ ? pixels_ * p_.lines : pixels_;
    return true;
  }
  // Pixels of tiles that neighbour each other along x.
  bool next_row() {
    if (y_ == p_.each[0]) {
      for (y_ = 0, tiles_ -= along_; along_ > 0; --along_) at_.next(t_);
    }
    if (tiles_ <= 0) return false;
    along_ = std::min(tiles_, t_.count[1] - at_.tile[1]);
    const int64_t y = at_.output(t_, 0, t_.my) * p_.step[0] + p_.first[0] + y_++ * p_.apart[0];
    const int64_t x = at_.output(t_, 1, t_.mx) * p_.step[1] + p_.first[1];
    const int64_t padding = x < 0 ? up(-x, p_.apart[1]) : 0, begin = x + padding * p_.apart[1];
    const bool exists = y >= 0 && y < p_.size[0] && begin < p_.size[1];
    row_ = p_.base + (at_.n * p_.image + at_.d * p_.plane + y * p_.row + begin * p_.pixel);
    pixels_ = exists ? std::min(along_ * p_.each[1] - padding, up(p_.size[1] - begin, p_.apart[1])) : 0;
    run_ = 0, runs_ = pixels_ <= 0 ? 0 : dense_ ? 1 : p_.lines;
    return true;
  }

  const tiling& t_;
  const image p_;
  place at_;
  int64_t tiles_;
  const bool dense_;  // lines of pixels that follow each other do so, too
  const int64_t step_, share_;
  const float *from_ = nullptr, *row_ = nullptr;
  int64_t left_ = 0, along_ = 0, y_ = 0, pixels_ = 0, run_ = 0, runs_ = 0;
};

// Of a group of tiles, beside so many calls: 0 asks for nothing.
class group_fetch {
 public:
  group_fetch(const tile_group& w, int64_t first, int64_t last, int64_t calls)
      : sources_(w.t, source(w), std::min(last, w.t.tiles - (last - first)), std::min(w.t.tiles, last + (last - first)),
                 calls),
        destinations_(w.t, destination(w), first, last, calls) {}
  void operator()() { sources_(), destinations_(); }

 private:
  static pixel_fetch::image source(const tile_group& w) {
    const tiling& t = w.t;
    const geometry& g = t.g;
    return {.base = static_cast<const float*>(w.e.args.src) + g.src_channel(w.group * g.c),
            .image = g.src[0],
            .plane = phase_of(g, 0).d.in_step * g.src[2],
            .row = t.src[0],
            .pixel = t.src[1],
            .lines = up(g.c, 16),
            .line = channel_offset(16, g.src[1], g.src_block),
            .first = {t.y.in_begin + (t.ay - t.my) * t.apart[0], t.x.in_begin + (t.ax - t.mx) * t.apart[1]},
            .size = {t.y.in_size, t.x.in_size},
            .step = {t.y.in_step, t.x.in_step},
            .each = {t.my * t.stride[0], t.mx * t.stride[1]},
            .apart = {t.step[0], t.step[1]}};
  }
  static pixel_fetch::image destination(const tile_group& w) {
    const tiling& t = w.t;
    const geometry& g = t.g;
    return {.base = static_cast<const float*>(w.e.args.dst) + g.dst_channel(w.group * g.k + w.channel),
            .image = g.dst[0],
            .plane = g.dst[2],
            .row = t.dst[0],
            .pixel = t.dst[1],
            .lines = up(w.channels, 16),
            .line = channel_offset(16, g.dst[1], g.dst_block),
            .first = {0, 0},
            .size = {t.y.out_count, t.x.out_count},
            .step = {1, 1},
            .each = {t.my, t.mx},
            .apart = {t.step[0], t.step[1]}};
  }

  pixel_fetch sources_, destinations_;
};

}  // namespace quern::winograd_driver
