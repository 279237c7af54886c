// SPDX-License-Identifier: MIT
//
// A tile of elements of 16 bits, or of 8, on the matrix instructions of capability 9.0, both operands in shared memory.
// Channels are the rows of an instruction, 64 for each group of four warps, and pixels its columns: any multiple of 16,
// so that tiles come out in whole waves.  Tiles of 64 channels have two groups take turns: one writes out what the
// other need not wait for.
//
// Taps of a line of the filter may share a stage.  Then pixels are all of a padded line, whether outputs or not, and
// a tap is what it is in the stage, a row further on: a third of the bytes from L2.
//
// Of 8 bits a thread's two rows are packed as neighbouring channels: pairs of them are what elements of 16 bits are to
// the matrices that go to shared memory.  That is for dst of the same type; any other goes the way of any layout.
//
// The units add products of e4m3 with few bits: those of a stage's tap, 128 channels, are summed from zero, and these
// sums in f32.
#pragma once

#include "cuda/tma.h"

namespace quern {
namespace {

template <class Element, int Pixels, int Channels, int Stages, int Taps = 1, int Cluster = 1>
struct tma_tile_half {
  using element = Element;
  using parameters = tma_conv;
  static constexpr int bm = Pixels, bn = Channels, bk = 128 / int(sizeof(Element)), stages = Stages, taps = Taps;
  // Blocks of a cluster sum a part of the stages each, and finish a part of the pixels.
  static constexpr int cluster = Cluster;
  static constexpr int lines = 0;
  static constexpr int groups = bn / 64, sets = cluster > 1 ? 1 : 2 / groups;  // of four warps; a set has a tile
  static constexpr int multiplying = 128 * groups * sets, threads = multiplying + 128;  // the last group requests
  static constexpr int fetched = bm + (taps > 1 ? 8 : 0);  // pixels of a stage, a multiple of eight
  static constexpr bool early = true;
  static constexpr int tap_bytes = bn * 128;
  static constexpr int pixel_bytes = fetched * 128, weight_bytes = taps * tap_bytes;
  static constexpr int stage_bytes = pixel_bytes + weight_bytes, stages_bytes = stages * stage_bytes;
  // Pixels of all stages, weights of all stages, what groups write out, a pair of barriers a stage.
  using warp_out = output_warp<Element, 16, 16 + 4, 16>;
  // A group has a part of its pixels on their way out.
  static constexpr bool narrow = sizeof(Element) == 1;
  static constexpr int row_bytes = 64 * int(sizeof(Element)), words = row_bytes / 32;  // a thread's, of 16 pixels
  static constexpr int written = tma_written(bm, cluster), box = tma_box(written, int(sizeof(Element)));
  static constexpr int part_rows = narrow || written < 128 ? written : 128 / box * box;
  static constexpr int out_bytes = part_rows * row_bytes < 8192 ? 8192 : part_rows * row_bytes;
  static_assert(4 * warp_out::floats * 4 <= out_bytes, "any layout and activation");
  static constexpr int shared_bytes = 1024 + stages_bytes + groups * sets * out_bytes + stages * 16;
  static_assert(shared_bytes <= 232448);
  static_assert(bm % written == 0, "boxes end where the tile does");
  static_assert(cluster == 1 || bm * bn * 4 <= stages_bytes, "sums lie where stages were");

  // ---- The epilogue.  Sums are those of a thread: 4 j + 2 i + e is of channel tma_row(thread, i) of its group's, and
  // pixel 8 j + tma_column(thread, e).

  const tma_conv& a;
  const tma_place& place;
  char* shared;    // of the group
  int32_t thread;  // of the set

  QUERN_INLINE int32_t channel() const { return place.channel + thread / 128 * 64; }
  // Into another type than its own 8 bits an element takes the way of any output.
  QUERN_INLINE bool whole_chunks() const {
    const bool own = !narrow || a.out.type == type_of<Element>;
    return own && a.out.vector && only_clamps(a.out.epilogue);
  }
  // The channel of row i of the thread's.
  QUERN_INLINE static int32_t channel_of_row(int32_t thread, int32_t i) {
    return narrow ? tma_paired_channel(thread, i) : tma_row(thread, i);
  }

  // The output of a pixel of the tile, or -1.
  QUERN_INLINE int32_t output_of(int32_t pixel) const {
    const int32_t at = tma_output_of<taps>(a, place.pixel + pixel);
    return at < a.out.pixels ? at : -1;
  }

  // Rows of pixels, swizzled as the copy engine has it.
  QUERN_INLINE static int32_t staged(int32_t pixel, int32_t channel) {
    // Of 64 bytes, two pixels are such a row.
    if (narrow) return pixel * 64 + (channel / 16 ^ pixel / 2 % 4) * 16 + channel % 16;
    return tma_swizzled<8>(pixel, channel) * 2;
  }

  // What the thread's two channels bring.
  QUERN_INLINE channel_f32 of(int32_t i) const {
    const int32_t at = channel() + channel_of_row(thread, i);
    return at < a.out.k ? channel_of(a.out.epilogue, place.group * a.out.k + at) : channel_f32{};
  }

  // The row that a lane names of the matrices that are sixteen pixels from this one on by a warp's channels.
  QUERN_INLINE char* matrix_row(int pixel) const {
    const int32_t lane = thread % 32, first = thread % 128 / 32 * 16;
    return shared + (narrow ? staged(pixel + lane % 16, first)
                            : staged(pixel + lane / 16 * 8 + lane % 8, first + lane / 8 % 2 * 8));
  }
  // Word k of what a thread has of them, from its eight sums: two pixels of a channel, of 8 bits of both channels.
  // Easily: ends_easily(), and of easy channels.
  template <bool Residual, bool Easily, class Number>
  QUERN_INLINE uint32_t finished_word(const Number* sum, int k, const channel_f32 (&of)[2], uint32_t residual) const {
    if constexpr (narrow) {
      return finished_four<Element, Residual, Easily>(a.out.epilogue, of, sum + 4 * k, residual);
    } else {
      const Number* const two = sum + k / 2 * 4 + k % 2 * 2;
      return finished_pair<Element, Residual, Easily>(a.out.epilogue, of[k % 2], two[0], two[1], residual);
    }
  }

  // Chunks of 16 bytes of `rows` pixels from pixel `first` of the tile on: move(in memory, in shared memory).
  template <class Move>
  QUERN_INLINE void each_chunk(int first, int rows, const int64_t* stride, Move move) const {
    constexpr int together = 16 / sizeof(Element), chunks = 64 / together;
    const int32_t chunk = thread % chunks, at = channel() + chunk * together;
    QUERN_UNROLL
    for (int i = 0; i < rows; i += 128 / chunks) {
      const int32_t row = thread % 128 / chunks + i, pixel = row < rows ? output_of(first + row) : -1;
      if (pixel < 0 || at >= a.out.k) continue;
      move(a.out.place_of(pixel, stride) + int64_t{place.group} * a.out.k + at, shared + staged(row, chunk * together));
    }
  }
  QUERN_INLINE void read_residual(int first, int rows) const {
    each_chunk(first, rows, a.out.residual_stride, [&](int64_t at, char* to) {
      *reinterpret_cast<four_floats*>(to) =
          *reinterpret_cast<const four_floats*>(static_cast<const Element*>(a.out.residual) + at);
    });
  }
  QUERN_INLINE void write_out(int first, int rows) const {
    each_chunk(first, rows, a.out.dst_stride, [&](int64_t at, const char* from) {
      *reinterpret_cast<four_floats*>(static_cast<Element*>(a.out.dst) + at) =
          *reinterpret_cast<const four_floats*>(from);
    });
  }

  // The same by boxes that the engine stores: store(in shared memory, channel of all groups, pixel).
  template <class Store>
  QUERN_INLINE void each_box(int first, int rows, Store store) const {
    if (channel() >= a.out.k) return;
    for (int i = 0; i < rows && place.pixel + first + i < a.out.pixels; i += box)
      store(shared + i * row_bytes, place.group * a.out.k + channel(), place.pixel + first + i);
  }

  // Channels first: rows of 128 bytes of a channel's pixels, those of all 64 channels, and so on; swizzled, so that
  // threads write to all banks.
  static constexpr int plane_pixels = 128 / int(sizeof(Element)), plane_bytes = 64 * 128;
  static constexpr int plane_rows = out_bytes / plane_bytes * plane_pixels;  // pixels of a part
  QUERN_INLINE bool whole_planes() const {
    return taps == 1 && a.out.type == type_of<Element> && a.out.dst_stride[1] != 1 && only_clamps(a.out.epilogue) &&
           !a.out.epilogue.residual;
  }
  QUERN_INLINE char* plane_at(int32_t channel, int32_t pixel) const {
    const int32_t at = pixel % plane_pixels * int32_t(sizeof(Element)), turned = (narrow ? channel / 2 : channel) % 8;
    return shared + pixel / plane_pixels * plane_bytes + channel * 128 + ((at / 16 ^ turned) * 16 + at % 16);
  }
  // Words of the thread's eight sums from pixel `at` of the part on: its two rows are turned alike.
  template <class Number>
  QUERN_INLINE void stage_planes(const Number* sum, int at, const channel_f32 (&of)[2]) const {
    const int32_t row = channel_of_row(thread, 0), column = tma_column(thread, 0);
    constexpr int next_row = narrow ? 128 : 8 * 128;
    QUERN_UNROLL
    for (int k = 0; k < words; ++k) {
      const uint32_t y = finished_word<false, false>(sum, k, of, 0);
      if constexpr (narrow) {
        // Two pixels of each channel, whose bytes alternate.
        char* const to = plane_at(row, at) + 8 * k + column;
        *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>((y & 0xff) | (y >> 8 & 0xff00));
        *reinterpret_cast<uint16_t*>(to + next_row) = static_cast<uint16_t>((y >> 8 & 0xff) | (y >> 16 & 0xff00));
      } else {
        *reinterpret_cast<uint32_t*>(plane_at(row, at + k / 2 * 8) + 2 * column + k % 2 * next_row) = y;
      }
    }
  }
  // `rows` pixels from pixel `first` of the tile on.
  template <class Unit>
  QUERN_INLINE void write_units(int first, int rows) const {
    constexpr int side = sizeof(Unit) / sizeof(Element), units = 128 / sizeof(Unit), apart = 128 / units;
    const int64_t* const stride = a.out.dst_stride;
    for (int32_t in = thread % units * side; in < rows; in += plane_pixels) {
      const int32_t pixel = place.pixel + first + in;
      if (pixel >= a.out.pixels) continue;
      Element* const to =
          static_cast<Element*>(a.out.dst) + place_of(pixel) + (int64_t{place.group} * a.out.k + channel()) * stride[1];
      QUERN_ROLL
      for (int32_t row = thread % 128 / units; row < 64; row += 4 * apart) {
        QUERN_UNROLL
        for (int32_t i = row; i < row + 4 * apart; i += apart)
          if (channel() + i < a.out.k)
            *reinterpret_cast<Unit*>(to + i * stride[1]) = *reinterpret_cast<const Unit*>(plane_at(i, in));
      }
    }
  }
  QUERN_INLINE int64_t place_of(int32_t pixel) const {
    if (a.plane.by == 0) return a.out.place_of(pixel, a.out.dst_stride);
    const int32_t image = a.plane.quotient(pixel);
    return image * a.out.dst_stride[0] + (pixel - image * a.plane.by) * a.out.dst_stride[4];
  }
  QUERN_INLINE void write_planes(int first, int rows) const {
    if (a.together == int(16 / sizeof(Element))) return write_units<four_floats>(first, rows);
    if (a.together == int(4 / sizeof(Element))) return write_units<float>(first, rows);
    write_units<Element>(first, rows);
  }

  // Any other output, by each warp for itself: its 16 channels of 16 pixels after the other.
  QUERN_INLINE warp_out output() const {
    return {a.out, reinterpret_cast<float*>(shared) + thread % 128 / 32 * warp_out::floats, thread % 32};
  }
  QUERN_INLINE void stage_out(const sum_type<Element>* sum) const {
    QUERN_UNROLL
    for (int k = 0; k < 8; ++k)
      *output().at(k / 4 * 8 + tma_column(thread, k % 2), channel_of_row(thread % 32, k / 2 % 2)) = sum_bits(sum[k]);
  }
  QUERN_INLINE void finish() const { output().finish(place.group, channel() + thread % 128 / 32 * 16); }
};

// Names: w3 takes three taps along w at once, k4 is a cluster of four blocks.
template <class Element>
using tma_half_256x128 = tma_tile_half<Element, 256, 128, 4>;
template <class Element>
using tma_half_208x128 = tma_tile_half<Element, 208, 128, 4>;
template <class Element>
using tma_half_192x128 = tma_tile_half<Element, 192, 128, 4>;
template <class Element>
using tma_half_128x128 = tma_tile_half<Element, 128, 128, 6>;
template <class Element>
using tma_half_96x128 = tma_tile_half<Element, 96, 128, 7>;
template <class Element>
using tma_half_256x64 = tma_tile_half<Element, 256, 64, 4>;
template <class Element>
using tma_half_128x64 = tma_tile_half<Element, 128, 64, 8>;
template <class Element>
using tma_half_64x64 = tma_tile_half<Element, 64, 64, 10>;
template <class Element>
using tma_half_256x64_w3 = tma_tile_half<Element, 256, 64, 3, 3>;
template <class Element>
using tma_half_208x64_w3 = tma_tile_half<Element, 208, 64, 3, 3>;
template <class Element>
using tma_half_176x64_w3 = tma_tile_half<Element, 176, 64, 4, 3>;
template <class Element>
using tma_half_128x64_w3 = tma_tile_half<Element, 128, 64, 4, 3>;
template <class Element>
using tma_half_96x64_w3 = tma_tile_half<Element, 96, 64, 5, 3>;
template <class Element>
using tma_half_192x128_k4 = tma_tile_half<Element, 192, 128, 4, 1, 4>;
template <class Element>
using tma_half_128x128_k2 = tma_tile_half<Element, 128, 128, 6, 1, 2>;
template <class Element>
using tma_half_64x64_k4 = tma_tile_half<Element, 64, 64, 8, 1, 4>;
template <class Element>
using tma_half_64x64_k8 = tma_tile_half<Element, 64, 64, 8, 1, 8>;

}  // namespace
}  // namespace quern
