// SPDX-License-Identifier: MIT
//
// Convolution of few input channels, the first layer of a network, on the matrix instructions of a warp.  What a
// thread does between two barriers is a function here, written for any compiler, as implicit.h has it.
//
//   dst[pixel][k] = epilogue(sum over units u of image[pixel's place + u's place] * weights[u][k])
//
// Taps along a line of the filter and their channels lie side by side where channels come last: a window is a piece of
// each of a few lines.  So a block keeps the lines of the image that are under a tile of outputs in shared memory,
// channels last, zeros where padding is, and the operands of instructions come straight from there; nothing is copied
// into the columns of a matrix, and no step is spent on channels that do not exist.
//
// A unit is the 32 bits that an operand's register has: a float, or two elements of 16 bits.  A table says where each
// lies and what of it counts, so that what is beside a window never meets even a weight of zero.  Pairs lie at even
// elements: where windows are an odd number of elements apart, lines lie there twice, the second time one further on.
//
// A warp multiplies 32 pixels by a panel of output channels.  Channels are permuted so that a thread ends up with 16
// bytes of a pixel, which it writes by itself.
#pragma once

#include "cuda/chunks.h"
#include "cuda/fill.h"
#include "cuda/tf32.h"

namespace quern {
namespace {

// One of h and w: the input of output 0 at the first tap, what an output adds, how many inputs there are.
struct first_axis {
  int32_t begin, step, size;
};

// By value in the kernel's parameters.
struct first_conv {
  first_axis h, w;
  int32_t channels, taps_h, tap_step, line;  // lines of the filter, inputs from one to the next, elements of one
  int32_t steps;                             // of eight units
  // A tile: `high` lines of `wide` outputs; under it `lines` of so many elements, `pitch` units apart, `copies` times.
  int32_t high, wide, lines, elements, pitch, copies;
  // The same as src has it: runs of so many elements a line, one or one a channel, and words from run to run.
  int32_t runs, run, run_pitch;
  int32_t tiles_h, tiles_w, tiles;
  int32_t all_panels, panels, chunks;  // of output channels; of a block; of a tile, as many blocks
  int32_t channels_at, units_at, pixels_at, runs_at, image_at, out_at, words;  // of shared memory: weights come first
  int64_t src_stride[5], run_step;                                             // from element to element of a run
  const void* src;
  const char* weights;  // [panel][step][columns / 16, or 8 of f32][lane][4]
  gpu_output out;
};

struct alignas(8) first_unit {
  int32_t at;  // bytes
  uint32_t mask;
};
struct alignas(8) first_pixel {
  int32_t at;           // bytes
  int16_t row, column;  // of the tile; a row below zero: none
};

constexpr int first_pixels = 32, first_units = 8;  // of a warp; of a step
constexpr int first_strips(int32_t high, int32_t wide) { return (high * wide + first_pixels - 1) / first_pixels; }

template <class Element, int Warps, int Columns, int SharedBytes>
struct first_tile {
  using element = Element;
  static constexpr bool halves = sizeof(Element) == 2;
  static constexpr int warps = Warps, threads = 32 * Warps, columns = Columns, shared_bytes = SharedBytes;
  static constexpr int of_unit = 4 / int(sizeof(Element)), chunk = 16 / int(sizeof(Element));
  static constexpr int tiles = Columns / 8;                 // of an instruction
  static constexpr int fours = halves ? tiles / 2 : tiles;  // loads of 16 bytes a lane has of weights, a step
  static constexpr int step_words = fours * 128;            // high and low of f32
  static constexpr int together = 4;                        // steps whose sums of f32 begin at zero

  const first_conv& a;
  uint32_t* shared;
  int32_t thread, first, panels;                // the block's panels
  int32_t strip = 0, panel = 0, place[4] = {};  // a warp's, and where windows of pixels lane / 4 + 8 i begin

  QUERN_INLINE first_tile(const first_conv& conv, uint32_t* memory, int32_t block, int32_t index)
      : a(conv), shared(memory), thread(index), first(block % a.chunks * a.panels), panels(a.all_panels - first) {
    if (panels > a.panels) panels = a.panels;
  }

  QUERN_INLINE int32_t lane() const { return thread % 32; }
  QUERN_INLINE first_unit* units() const { return reinterpret_cast<first_unit*>(shared + a.units_at); }
  QUERN_INLINE first_pixel* pixels() const { return reinterpret_cast<first_pixel*>(shared + a.pixels_at); }

  // ---- What a block needs once

  QUERN_INLINE void make_tables() const {
    const int32_t line_units = (a.line + of_unit - 1) / of_unit;
    for (int32_t i = thread; i < a.steps * first_units; i += threads) {
      const int32_t r = i / line_units, j = i - r * line_units;
      const uint32_t mask = (j + 1) * of_unit > a.line ? 0xffffu : ~0u;
      units()[i] = r < a.taps_h ? first_unit{4 * (r * a.tap_step * a.pitch + j), mask} : first_unit{0, 0};
    }
    for (int32_t i = thread; i < first_strips(a.high, a.wide) * first_pixels; i += threads) {
      const int32_t row = i / a.wide, column = i - row * a.wide, window = column * a.w.step * a.channels;
      const int32_t odd = halves && a.copies > 1 ? window % 2 : 0;
      const int32_t at = 4 * (a.image_at + (window + odd) / of_unit + (row * a.h.step + odd * a.lines) * a.pitch);
      pixels()[i] = row < a.high ? first_pixel{at, static_cast<int16_t>(row), static_cast<int16_t>(column)}
                                 : first_pixel{4 * a.image_at, -1, 0};
    }
  }

  QUERN_INLINE void load_weights() const {
    const char* const from = a.weights + int64_t{first} * a.steps * step_words * 4;
    for (int32_t i = thread; i < panels * a.steps * (step_words / 4); i += threads)
      fill<16>(shared + 4 * i, from + int64_t{16} * i, true);
  }
  QUERN_INLINE void load_channels() const {
    float* const to = reinterpret_cast<float*>(shared + a.channels_at);
    for (int32_t i = thread; i < panels * Columns; i += threads) {
      const int32_t channel = first * Columns + i;
      const channel_f32 k = channel < a.out.k ? channel_of(a.out.epilogue, channel) : channel_f32{};
      float* const bias = to + bias_of(i, Columns);
      bias[0] = k.bias, bias[Columns] = k.factor;
    }
  }

  // ---- The image under a tile: requested as src has it, a word at a time, and put in order when it has arrived

  struct tile_place {
    int32_t n, y, x;  // of its first output
  };
  QUERN_INLINE tile_place place_of(int32_t item) const {
    const int32_t tile = item / a.chunks, row = tile / a.tiles_w, n = row / a.tiles_h;
    return {n, (row - n * a.tiles_h) * a.high, (tile - row * a.tiles_w) * a.wide};
  }
  // The output of a pixel, or -1.
  QUERN_INLINE int32_t output_of(const tile_place& t, const first_pixel& p) const {
    const int32_t y = t.y + p.row, x = t.x + p.column;
    const bool exists = p.row >= 0 && y < a.out.size[1] && x < a.out.size[2];
    return exists ? (t.n * a.out.size[1] + y) * a.out.size[2] + x : -1;
  }

  // Runs under a tile: element i of one is from[i * run_step] where begin <= i < end, and else zero.
  struct tile_runs {
    const Element* from;  // of line 0 and channel 0
    int32_t y, begin, end;
  };
  QUERN_INLINE tile_runs runs_of(const tile_place& t) const {
    const int32_t y = a.h.begin + t.y * a.h.step, x = a.w.begin + t.x * a.w.step;
    const int32_t of_pixel = a.runs == 1 ? a.channels : 1;
    const int64_t at = t.n * a.src_stride[0] + y * a.src_stride[3] + int64_t{x} * of_pixel * a.run_step;
    return {static_cast<const Element*>(a.src) + at, y, -x * of_pixel, (a.w.size - x) * of_pixel};
  }
  // each(line, channel, elements from the first run to this one, words, whether words begin with element -1), as words
  // begin at even addresses.
  template <class Each>
  QUERN_INLINE void each_run(const tile_runs& r, Each each) const {
    const int32_t parity = static_cast<int32_t>(reinterpret_cast<uintptr_t>(r.from) / sizeof(Element) & 1);
    for (int32_t c = 0; c < a.runs; ++c) {
      int64_t at = c * a.src_stride[1] + thread / 32 * a.src_stride[3];
      uint32_t* words = shared + a.runs_at + (c * a.lines + thread / 32) * a.run_pitch;
      QUERN_ROLL
      for (int32_t line = thread / 32; line < a.lines; line += warps) {
        each(line, c, at, words, halves && a.run_step == 1 ? (parity + static_cast<int32_t>(at)) & 1 : 0);
        at += warps * a.src_stride[3], words += warps * a.run_pitch;
      }
    }
  }

  QUERN_INLINE void request(const tile_place& t) const {
    const tile_runs r = runs_of(t);
    each_run(r, [&](int32_t line, int32_t, int64_t at, uint32_t* words, int32_t odd) {
      const bool exists = static_cast<uint32_t>(r.y + line) < static_cast<uint32_t>(a.h.size);
      const int32_t count = (a.run + odd + of_unit - 1) / of_unit;
      if (!exists) {
        for (int32_t w = lane(); w < count; w += 32) words[w] = 0;
        return;
      }
      if (a.run_step == 1 && r.begin + odd <= 0 && count * of_unit - odd <= r.end) {
        for (int32_t w = lane(); w < count; w += 32) fill<4>(words + w, r.from + at - odd + w * of_unit, true);
        return;
      }
      const auto read = [&](int32_t i) { return i >= r.begin && i < r.end ? r.from[at + i * a.run_step] : Element{}; };
      for (int32_t w = lane(); w < count; w += 32) {
        if constexpr (halves) {
          const int32_t i = 2 * w - odd;
          if (a.run_step == 1 && i >= r.begin && i + 1 < r.end) {
            fill<4>(words + w, r.from + at + i, true);
          } else {
            words[w] = read(i).bits | uint32_t{read(i + 1).bits} << 16;
          }
        } else {
          words[w] = bits_of(read(w));
        }
      }
    });
  }

  QUERN_INLINE void arrange(const tile_place& t) const {
    uint32_t* const images = shared + a.image_at;
    const int32_t copy = a.lines * a.pitch;
    if (!halves && a.runs == 1) {
      for (int32_t i = thread; i < (copy + 3) / 4; i += threads)
        reinterpret_cast<four_words*>(images)[i] = reinterpret_cast<const four_words*>(shared + a.runs_at)[i];
      return;
    }
    each_run(runs_of(t), [&](int32_t line, int32_t c, int64_t, const uint32_t* words, int32_t odd) {
      uint32_t* const image = images + line * a.pitch;
      if (a.runs > 1) {
        for (int32_t i = lane(); i < a.run; i += 32) {
          Element* const to = reinterpret_cast<Element*>(image) + i * a.channels + c;
          to[0] = reinterpret_cast<const Element*>(words)[i + odd];
          if (halves && a.copies > 1) to[copy * of_unit + 1] = to[0];
        }
      } else {
        // The second copy's first element, and what is behind the last of either, count for nothing.
        for (int32_t w = lane(); w < a.pitch; w += 32) {
          const uint32_t own = words[w], other = words[odd ? w + 1 : w - 1];
          const uint32_t between = odd ? own >> 16 | other << 16 : other >> 16 | own << 16;
          image[w] = odd ? between : own;
          if (a.copies > 1) image[copy + w] = odd ? own : between;
        }
      }
    });
  }

  // ---- Products of a warp

  // Strip by strip, all panels of each; the warp's next one is so many further on.
  QUERN_INLINE bool begin(int32_t further) {
    panel += further;
    while (panel >= panels) panel -= panels, ++strip;
    if (strip >= first_strips(a.high, a.wide)) return false;
    QUERN_UNROLL
    for (int i = 0; i < 4; ++i) place[i] = pixel_of(i * 8 + lane() / 4).at;
    return true;
  }
  QUERN_INLINE first_pixel pixel_of(int32_t row) const { return pixels()[strip * first_pixels + row]; }

  // Units lane % 4 and that + 4 of a step: of rows lane / 4 and that + 8 of both halves of a strip.
  QUERN_INLINE void load_pixels(uint32_t (&x)[2][4], int32_t step) const {
    QUERN_UNROLL
    for (int k = 0; k < 2; ++k) {
      const first_unit u = units()[step * first_units + 4 * k + lane() % 4];
      QUERN_UNROLL
      for (int i = 0; i < 4; ++i)
        x[i / 2][i % 2 + 2 * k] =
            *reinterpret_cast<const uint32_t*>(reinterpret_cast<const char*>(shared) + (place[i] + u.at)) & u.mask;
    }
  }
  // 16 bits: both units of two tiles of channels; f32: high and low of both units of one.
  QUERN_INLINE four_words load_weights_of(int32_t step, int j) const {
    return reinterpret_cast<const four_words*>(shared)[((panel * a.steps + step) * fours + j) * 32 + lane()];
  }

  // ---- The epilogue.  Element 4 m + 2 h + e of tile j: row lane / 4 + 8 h of half m, column lane % 4 * 2 + e.

  QUERN_INLINE bool whole_chunks() const { return a.out.vector && only_clamps(a.out.epilogue); }

  using writer = chunk_writer<Element, Columns>;
  QUERN_INLINE writer out() const {
    return {a.out, reinterpret_cast<const float*>(shared + a.channels_at) + 2 * panel * Columns,
            (first + panel) * Columns, lane(),
            reinterpret_cast<float*>(shared + a.out_at) + thread / 32 * writer::warp_out::floats};
  }
  template <bool Residual>
  QUERN_INLINE void write_chunks(const tile_place& t, const float (&sum)[tiles][8]) const {
    // Sixteen pixels after the other: registers are few.
    QUERN_UNROLL
    for (int m = 0; m < 2; ++m) {
      int64_t to[2], from[2];
      QUERN_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int32_t pixel = output_of(t, pixel_of(m * 16 + i * 8 + lane() / 4));
        to[i] = pixel >= 0 ? a.out.place_of(pixel, a.out.dst_stride) : -1;
        from[i] = Residual && pixel >= 0 ? a.out.place_of(pixel, a.out.residual_stride) : 0;
      }
      out().template write<Residual>(to, from, [&](int j, int i, int e) { return sum[j][4 * m + 2 * i + e]; });
    }
  }
  // Pixels 8 i and behind of any other output.
  QUERN_INLINE void find_places(const tile_place& t, int i) const {
    out().output().find_place(output_of(t, pixel_of(i * 8 + lane() % 8)));
  }
};

// Output channels of a panel.  As many blocks share a multiprocessor as its shared memory has room for.
using first_f16_64 = first_tile<f16, 4, 64, 55 << 10>;
using first_f16_32 = first_tile<f16, 4, 32, 55 << 10>;
using first_bf16_64 = first_tile<bf16, 4, 64, 55 << 10>;
using first_bf16_32 = first_tile<bf16, 4, 32, 55 << 10>;
using first_f32_64 = first_tile<float, 4, 64, 99 << 10>;
using first_f32_32 = first_tile<float, 4, 32, 73 << 10>;

}  // namespace
}  // namespace quern
