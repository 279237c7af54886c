// SPDX-License-Identifier: MIT
//
// Convolution of few input channels for capability 9.0: first_layer.h's windows, read where the copy engine puts the
// lines of an image, and multiplied by instructions of four warps, which take weights from shared memory themselves.
//
//   dst[pixel][k] = epilogue(sum over units u of image[pixel's place + u's place] * weights[u][k])
//
// The engine sees words of 32 bits, lines and images: a box is what is under a tile of outputs, and has zeros where
// padding is.  It begins at a multiple of 16 bytes, some elements before the first window.  Pixels come in eights of a
// line, any eight of which are the rows of an instruction; where windows are no whole words apart, every other pixel,
// or each of four, has weights that are some elements further on, and eights are of pixels of the same kind.
//
// Each group of four warps has tiles, and stages for their boxes, of its own: groups never wait for each other, and
// what one multiplies hides what others load and write.
#pragma once

#include "cuda/chunks.h"
#include "cuda/dims.h"
#include "cuda/tf32.h"
#include "cuda/tma.h"

namespace quern {
namespace {

// By value in the kernel's parameters.  Places in shared memory and distances there are bytes.
struct first_box {
  tensor_map src;                            // words of a line, lines, images
  int32_t taps_h, tap_step, line, front[4];  // lines of the filter; elements of one; what is before them in their words
  int32_t line_units, steps,
      together;  // units of a line; steps of eight units, a multiple of those multiplied together
  // A tile: `high` lines of `eights`, strips of eight eights; kinds of pixels; the first ones' places in the box;
  // pixels of a line.
  int32_t high, eights, strips, kinds, kind_at[4], wide;
  int32_t step_h, pixel, pitch, box_bytes, stage_bytes, box_x, tile_x, box_y, tile_y;  // x: words
  divisor tiles_h, tiles_w, parts;
  int32_t tiles;
  int32_t all_panels, panels, chunks, of_part;  // of output channels: a block's; a tile's items have parts of it
  int32_t apart;                                // of pixels of dst, elements; 0: they lie otherwise, or too far apart
  int32_t weights_bytes, channels_at, units_at, eights_at, out_at, stages_at, barriers_at, bytes;
  bool ahead;           // weights are requested before what precedes the kernel has ended
  const char* weights;  // [panel][kind][step][f32: high, low][column][8 words], columns swizzled
  gpu_output out;
};

// Where a unit lies, below 2^16, as a block has several stages, in the upper half; in the lower one for each byte its
// number, or that of a zero behind them where it does not count: what an instruction that selects bytes looks at.
using box_unit = uint32_t;
template <class Counts>
QUERN_INLINE box_unit unit_at(int32_t at, Counts counts) {
  uint32_t bytes = 0;
  QUERN_UNROLL
  for (int i = 0; i < 4; ++i) bytes |= (counts(i) ? uint32_t(i) : 4u) << 4 * i;
  return uint32_t(at) << 16 | bytes;
}
// Volatile: taken anew each time, a unit has a register and not two.
QUERN_INLINE int32_t at_of(box_unit u) {
#if defined(__CUDA_ARCH__)
  asm volatile("shr.u32 %0, %0, 16;" : "+r"(u));
  return int32_t(u);
#else
  return int32_t(u >> 16);
#endif
}
// What counts of a word.
QUERN_INLINE uint32_t counted(uint32_t word, box_unit u) {
#if defined(__CUDA_ARCH__)
  asm("prmt.b32 %0, %0, 0, %1;" : "+r"(word) : "r"(u));
  return word;
#else
  uint32_t x = 0;
  for (int i = 0; i < 4; ++i) x |= (u >> 4 * i & 4 ? 0 : word >> 8 * i & 0xff) << 8 * i;
  return x;
#endif
}
// An eight of pixels.
struct alignas(16) box_eight {
  int32_t at, row, column, pixel;  // of the tile, by lines of dst; a row that no tile has: none
};

// What all lanes of a warp have, for the compiler to know.
QUERN_INLINE int32_t of_warp(int32_t x) {
#if defined(__CUDA_ARCH__)
  return __shfl_sync(~0u, x, 0);
#else
  return x;
#endif
}

constexpr int box_units = 8, box_stages = 2;  // of a step; of a group

// Word `unit` of a column, in columns of 32 bytes: halves of every other four columns change places.
constexpr int64_t box_word(int64_t column, int64_t unit) {
  return column * 8 + (unit / 4 ^ column / 4 % 2) * 4 + unit % 4;
}

// Words of the weights of a unit: of f32 high and low.
constexpr int words_of_unit(quern_type type) { return type == QUERN_F32 ? 2 : 1; }
// Sums of f32 and of e4m3 are those of some steps, summed from zero, added up in f32 (tf32.h, tma_half.h).
constexpr bool box_in_parts(quern_type type) { return type == QUERN_F32 || type == QUERN_E4M3; }
// Steps that are multiplied together, whose pixels are in registers.
constexpr int box_together(quern_type type) { return box_in_parts(type) ? 4 : 5; }

template <class Element, int Groups, int Columns>
struct box_tile {
  using element = Element;
  using number = sum_type<Element>;
  static constexpr quern_type type = type_of<Element>;
  static constexpr bool in_parts = box_in_parts(type);
  static constexpr bool masked = type != QUERN_F32 && type != QUERN_S8;  // units hold what may be NaN beside windows
  static constexpr int groups = Groups, threads = 128 * Groups, columns = Columns;
  static constexpr int most_together = box_together(type);
  static constexpr int of_unit = 4 / int(sizeof(Element)), chunk = chunk_of_columns(Columns, int(sizeof(Element)));
  static constexpr int words = words_of_unit(type), sums = Columns / 2, step_bytes = Columns * 32 * words;
  static constexpr int shared_bytes = 232448;
  using writer = chunk_writer<Element, Columns>;

  const first_box& a;
  char* shared;
  int32_t thread, group, first, panels;  // the block's panels
  int32_t panel = 0, strip = 0;
  int32_t place[2] = {};   // where windows of pixels lane / 4 of both eights of a warp begin
  int32_t output[2] = {};  // and which pixels of dst they are; below zero: none

  QUERN_INLINE box_tile(const first_box& box, char* memory, int32_t block, int32_t index)
      : a(box),
        shared(memory),
        thread(index),
        group(of_warp(index >> 7)),
        first(block % a.chunks * a.panels),
        panels(a.all_panels - first) {
    if (panels > a.panels) panels = a.panels;
  }

  QUERN_INLINE int32_t lane() const { return thread & 31; }
  QUERN_INLINE box_unit* units() const { return reinterpret_cast<box_unit*>(shared + a.units_at); }
  QUERN_INLINE box_eight* eights() const { return reinterpret_cast<box_eight*>(shared + a.eights_at); }
  QUERN_INLINE int32_t stage(int32_t slot) const { return a.stages_at + (group * box_stages + slot) * a.stage_bytes; }

  // ---- What a block needs once

  QUERN_INLINE void make_tables() const {
    for (int32_t i = thread; i < a.kinds * a.steps * box_units; i += threads) {
      const int32_t kind = i / (a.steps * box_units), unit = i - kind * a.steps * box_units;
      const int32_t r = unit / a.line_units, j = unit - r * a.line_units, e = j * of_unit - a.front[kind];
      // What is beside a window never meets even a weight of zero.
      const auto counts = [&](int32_t byte) {
        const int32_t at = e + byte / int32_t(sizeof(Element));
        return r < a.taps_h && at >= 0 && at < a.line;
      };
      // As lanes load them: units lane % 4 and that + 4 of a step lie side by side.
      units()[i / 8 * 8 + i % 4 * 2 + i / 4 % 2] = unit_at(r < a.taps_h ? r * a.tap_step * a.pitch + 4 * j : 0, counts);
    }
    for (int32_t i = thread; i < 8 * a.strips; i += threads) {
      const int32_t row = i / a.eights, column = (i - row * a.eights) * 8 * a.kinds;
      eights()[i] = row < a.high ? box_eight{row * a.step_h * a.pitch + column * a.pixel, row, column,
                                             row * a.out.size[2] + column}
                                 : box_eight{0, 1 << 30, 0, 0};
    }
  }
  QUERN_INLINE void load_channels() const {
    float* const to = reinterpret_cast<float*>(shared + a.channels_at);
    for (int32_t i = thread; i < panels * Columns; i += threads) {
      const int32_t channel = first * Columns + i;
      channel_f32 k = channel < a.out.k ? channel_of(a.out.epilogue, channel) : channel_f32{};
      if (ends_easily(a.out.epilogue)) k = easy_channel<Element>(k);
      float* const bias = to + bias_of(i, Columns);
      bias[0] = k.bias, bias[Columns] = k.factor;
    }
  }

  // ---- Items of a group: a tile, and a part of the block's panels

  QUERN_INLINE int32_t items() const { return a.tiles * a.parts.by; }
  struct tile_place {
    int32_t n, row, column, part;  // of the image, its tiles, and the block's panels
  };
  QUERN_INLINE tile_place place_of(int32_t item) const {
    const int32_t tile = a.parts.quotient(item), row = a.tiles_w.quotient(tile), n = a.tiles_h.quotient(row);
    return {n, row - n * a.tiles_h.by, tile - row * a.tiles_w.by, item - tile * a.parts.by};
  }
  // request(words, lines, images): where its box begins.
  template <class Request>
  QUERN_INLINE void request(int32_t item, Request ask) const {
    const tile_place t = place_of(item);
    ask(a.box_x + t.column * a.tile_x, a.box_y + t.row * a.tile_y, t.n);
  }

  // ---- Products: eights 2 warp and 2 warp + 1 of a strip are rows 16 warp and behind of the group's 64

  QUERN_INLINE const box_eight& eight(int i) const { return eights()[strip * 8 + (thread >> 5 & 3) * 2 + i]; }
  QUERN_INLINE void find_windows(const tile_place& t, int32_t kind, int32_t slot) {
    const int32_t own = lane() >> 2, pixel = own * a.kinds + kind, base = first_output(t) + pixel;
    QUERN_UNROLL
    for (int i = 0; i < 2; ++i) {
      const box_eight of = eight(i);
      place[i] = stage(slot) + a.kind_at[kind] + of.at + own * (a.kinds * a.pixel);
      output[i] = exists(t, of, pixel) ? base + of.pixel : -1;
    }
  }
  // Units lane % 4 and that + 4 of a step.
  QUERN_INLINE void load_units(box_unit (&u)[2], int32_t kind, int32_t step) const {
    const two_words both =
        reinterpret_cast<const two_words*>(units() + (kind * a.steps + step) * box_units)[lane() & 3];
    u[0] = both.v[0], u[1] = both.v[1];
  }
  QUERN_INLINE void load_pixels(uint32_t (&x)[4], const box_unit (&u)[2]) const {
    QUERN_UNROLL
    for (int k = 0; k < 2; ++k) {
      const int32_t at = at_of(u[k]);
      QUERN_UNROLL
      for (int i = 0; i < 2; ++i) {
        const uint32_t word = *reinterpret_cast<const uint32_t*>(shared + (place[i] + at));
        x[2 * k + i] = masked ? counted(word, u[k]) : word;
      }
    }
  }
  QUERN_INLINE int32_t weights_at(int32_t kind, int32_t step) const {
    return ((panel * a.kinds + kind) * a.steps + step) * step_bytes;
  }

  // ---- The epilogue.  Sum 4 j + 2 i + e of a thread: pixel lane / 4 of eight i, column 8 j + lane % 4 * 2 + e

  // Residuals, which first layers hardly ever have, are for the other way out: registers are few.
  QUERN_INLINE bool whole_chunks() const {
    return a.out.type == type && a.out.vector && a.apart && only_clamps(a.out.epilogue) && !a.out.residual;
  }
  // Whether a pixel of eight i is an output, the next one of its kind at a time.
  QUERN_INLINE bool exists(const tile_place& t, const box_eight& of, int32_t pixel) const {
    return of.row < a.out.size[1] - t.row * a.high && of.column + pixel < a.out.size[2] - t.column * a.wide;
  }
  QUERN_INLINE int32_t first_output(const tile_place& t) const {
    return (t.n * a.out.size[1] + t.row * a.high) * a.out.size[2] + t.column * a.wide;
  }
  QUERN_INLINE writer out() const {
    return {a.out, reinterpret_cast<const float*>(shared + a.channels_at) + 2 * panel * Columns,
            (first + panel) * Columns, lane(),
            reinterpret_cast<float*>(shared + a.out_at) + (thread >> 5) * writer::warp_out::floats};
  }
  QUERN_INLINE void write_chunks(const int32_t (&pixel)[2], const number (&sum)[sums]) const {
    const int64_t to[2] = {int64_t{pixel[0]} * a.apart, int64_t{pixel[1]} * a.apart};
    const auto of = [&](int j, int i, int e) { return sum[4 * j + 2 * i + e]; };
    const bool scaled = a.out.epilogue.scale != nullptr;
    if constexpr (type != QUERN_F32)
      if (ends_easily(a.out.epilogue) && !scaled) return out().template write<false, false, true>(to, to, of);
    if constexpr (sizeof(Element) == 1)
      if (ends_easily(a.out.epilogue)) return out().template write<false, true, true>(to, to, of);
    if (scaled || sizeof(Element) == 1) return out().template write<false, true>(to, to, of);
    out().template write<false, false>(to, to, of);
  }
  QUERN_INLINE void find_places(const tile_place& t, int32_t kind, int i) const {
    const int32_t pixel = (lane() & 7) * a.kinds + kind;
    const box_eight of = eight(i);
    out().output().find_place(exists(t, of, pixel) ? first_output(t) + of.pixel + pixel : -1);
  }
};

// Output channels of a panel.  f32 holds more in registers.
using box_f16_64 = box_tile<f16, 4, 64>;
using box_f16_32 = box_tile<f16, 4, 32>;
using box_bf16_64 = box_tile<bf16, 4, 64>;
using box_bf16_32 = box_tile<bf16, 4, 32>;
using box_s8_64 = box_tile<s8, 4, 64>;
using box_s8_32 = box_tile<s8, 4, 32>;
using box_e4m3_64 = box_tile<e4m3, 4, 64>;
using box_e4m3_32 = box_tile<e4m3, 4, 32>;
using box_f32_64 = box_tile<float, 3, 64>;
using box_f32_32 = box_tile<float, 3, 32>;

}  // namespace
}  // namespace quern
