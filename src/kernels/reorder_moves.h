// SPDX-License-Identifier: MIT
//
// Moving whole tiles from memory to memory, where the ISA has transpose8, join4, move4, move8, pieces and scatter4:
// half of a register finds its place as it is loaded, and shuffles are what bounds a tile.
#pragma once

#include "reorder_view.h"

namespace quern {
namespace {

// out[j * out_row + i] = in[i * in_row + j] for as many i as a register has floats and four j.  Rows meet while they
// are loaded, which takes no shuffle, so that one round of them within lanes is left, and what is written is whole
// registers.
template <class R>
[[gnu::always_inline]] inline void four_columns(const float* in, size_t in_row, float* out, size_t out_row) {
  typename R::vector a[4];
  QUERN_UNROLL for (size_t i = 0; i < 4; ++i, in += in_row) a[i] = R::template pieces<4>(in, 4 * in_row);
  R::quads(a);
  QUERN_UNROLL for (size_t i = 0; i < 4; ++i, out += out_row) R::store(out, a[i]);
}

// The same for four i and many j: what is read is whole registers.
template <class R>
[[gnu::always_inline]] inline void four_rows(const float* in, size_t in_row, float* out, size_t out_row) {
  typename R::vector a[4];
  QUERN_UNROLL for (size_t i = 0; i < 4; ++i, in += in_row) a[i] = R::load(in);
  R::quads(a);
  QUERN_UNROLL for (size_t i = 0; i < 4; ++i, out += out_row) R::scatter4(out, 4 * out_row, a[i]);
}

// P pixels of T channels by moves alone: the floats of a square of 8 pixels by 8 channels, or of four pixels, meet
// while they are loaded, and between blocks of channels pieces go where they belong.  With `lines` 16 pixels of planes
// become whole cache lines of channels at a time, and the other way round, where planes begin with one.  Stores that
// miss L1 are waited for on Intel's cores: what 8 or 16 pixels further on are written to is asked for, or what lies
// `ahead` (0.7 to 0.95 of the time, Granite Rapids).
template <class R, int from, int to, bool lines, size_t P>
[[gnu::always_inline]] inline void move_tile(const float* in, reorder_view<const float> src, float* out,
                                             reorder_view<float> dst, size_t ahead = 0) {
  constexpr size_t T = from > to ? from : to, piece = from < to ? from : to, W = R::width;
  if constexpr (from == 1 && P == 16 && lines) {
    QUERN_ROLL for (size_t x = 0; x < P; x += 4, in += 4, out += 4 * dst.pixel) {
      four_columns<R>(in, src.group, out, dst.pixel);
      QUERN_UNROLL for (size_t i = 0; i < 4; ++i) __builtin_prefetch(out + (8 + i) * dst.pixel, 1, 3);
    }
  } else if constexpr (to == 1 && P == 16 && lines) {
    QUERN_ROLL for (size_t c = 0; c < T; c += 4, in += 4, out += 4 * dst.group)
        four_columns<R>(in, src.pixel, out, dst.group);
  } else if constexpr (piece == 1 && P == 4) {
    QUERN_UNROLL for (size_t c = 0; c < T; c += W) {
      if constexpr (from == 1)
        four_columns<R>(in + c * src.group, src.group, out + c, dst.pixel);
      else
        four_rows<R>(in + c, src.pixel, out + c * dst.group, dst.group);
    }
  } else if constexpr (piece == 1) {
    QUERN_UNROLL for (size_t x = 0; x < P; x += 8) QUERN_UNROLL for (size_t c = 0; c < T; c += 8) {
      if constexpr (from == 1) {
        R::transpose8(in + c * src.group + x, src.group, out + x * dst.pixel + c, dst.pixel);
        QUERN_UNROLL for (size_t i = 0; i < 8; ++i) __builtin_prefetch(out + (x + 16 + i) * dst.pixel + c, 1, 3);
      } else {
        R::transpose8(in + x * src.pixel + c, src.pixel, out + c * dst.group + x, dst.group);
      }
    }
  } else if constexpr (to < from && to < R::width) {
    QUERN_UNROLL for (size_t c = 0; c < T; c += to, in += to, out += dst.group) {
      if constexpr (P == 1)
        to == 4 ? R::move4(in, out) : R::move8(in, out);
      else
        QUERN_UNROLL for (size_t x = 0; x < P; x += R::width / to) {
          R::store(out + x * to, R::template pieces<to>(in + x * src.pixel, src.pixel));
          __builtin_prefetch(out + (x + P) * to, 1, 3);
        }
    }
  } else {
    constexpr size_t step = piece == 4 ? 8 : piece < R::width ? piece : R::width;
    QUERN_UNROLL for (size_t x = 0; x < P; ++x) {
      __asm__("" : "+r"(in), "+r"(out));
      QUERN_UNROLL for (size_t c = 0; c < T; c += step) {
        const float* const low = in + c / from * src.group + c % from;
        float* const there = out + c / to * dst.group + c % to;
        if constexpr (piece == 4)
          R::join4(low, src.group, there);
        else if constexpr (step == R::width)
          R::store(there, R::load(low));
        else
          R::move8(low, there);
      }
      if (P > 1) __builtin_prefetch(out + ahead, 1, 3);
      if (P > 1 && T == 16) __builtin_prefetch(out + ahead + T - 1, 1, 3);
      in += src.pixel, out += dst.pixel;
    }
  }
}

// Tiles of T channels; `run` pixels of each, then the next ones.  The last square of a line may lie over the one
// before. `dense`: what compilers know of how far pixels of blocks are apart, 0 where nothing.  Not inline: its views
// are its own then, and not read again after every store.
template <class R, int from, int to, bool lines, int dense>
[[gnu::noinline]] void move_runs(reorder_view<const float> src, reorder_view<float> dst, const reorder_grid& grid,
                                 size_t run) {
  constexpr bool squares = from == 1 || to == 1;
  constexpr size_t P = 16, few = squares ? 8 : to < from ? 4 : 1;
  if (dense) (from == 1 ? dst.pixel : src.pixel) = dense;
  const size_t pixels = grid.count[0];
  for (size_t first = 0; first < pixels; first += run) {
    const size_t count = pixels - first < run ? pixels - first : run;
    const float* row = src.at + first * src.pixel;
    float* there = dst.at + first * dst.pixel;
    for (size_t tile = 0; tile < grid.count[1]; ++tile, row += grid.src[1], there += grid.dst[1]) {
      const float* in = row;
      float* out = there;
      size_t x = 0;
      for (; x + P <= count; x += P, in += P * src.pixel, out += P * dst.pixel) {
        if (to == 1) ask_ahead<from>(dst.group, there, x, count, grid.dst[1]);
        // Pixels further on, or where those are far apart and tiles take turns, of the next tile.
        const bool further = dst.pixel < 128 && (dst.pixel > to || x + 2 * P <= count);
        const size_t ahead = further ? P * dst.pixel : to == 16 && run < pixels ? grid.dst[1] : 0;
        move_tile<R, from, to, lines, P>(in, src, out, dst, ahead);
      }
      for (; x + few <= count; x += few, in += few * src.pixel, out += few * dst.pixel)
        move_tile<R, from, to, lines, few>(in, src, out, dst);
      if (squares && count - x >= few_pixels) {
        const size_t back = few - (count - x);
        move_tile<R, from, to, lines, few>(in - back * src.pixel, src, out - back * dst.pixel, dst);
      } else {
        for (; x < count; ++x, in += src.pixel, out += dst.pixel) {
          if constexpr (squares)
            move_pixel<from, to>(in, src, out, dst);
          else
            move_tile<R, from, to, lines, 1>(in, src, out, dst);
        }
      }
    }
  }
}

// Several pixels of blocks of less channels than a tile has where it comes from become a register, which is written
// whole: where blocks begin anywhere, after some pixels, for each block others, that go one by one.  What the next tile
// is written to is asked for (512x7x7: 0.7 of the time, with the registers' places, Granite Rapids).
template <class R, int from, int to>
void move_odd_blocks(const reorder_view<const float>& src, const reorder_view<float>& dst, const reorder_grid& grid,
                     size_t run) {
  constexpr size_t W = R::width, P = 16, across = W / to, blocks = from / to;
  const size_t pixels = grid.count[0], pixel = src.pixel;
  for (size_t first = 0; first < pixels; first += run) {
    const float* tile = src.at;
    float* there = dst.at;
    for (size_t i = 0; i < grid.count[1]; ++i, tile += grid.src[1], there += grid.dst[1]) {
      const float* in[blocks];
      float* out[blocks];
      size_t left[blocks], whole = run;
      const auto registers = [&](size_t b, size_t count) __attribute__((always_inline)) {
        QUERN_UNROLL for (size_t r = 0; r < count; ++r) {
          R::store(out[b] + r * W, R::template pieces<to>(in[b] + r * across * pixel, pixel));
          __builtin_prefetch(out[b] + r * W + grid.dst[1], 1, 3);
        }
        in[b] += count * across * pixel, out[b] += count * W, left[b] -= count * across;
      };
      const auto one_by_one = [&](size_t b, size_t count) __attribute__((always_inline)) {
        left[b] -= count;
        for (; count > 0; --count, in[b] += pixel, out[b] += to)
          to == 4 ? R::move4(in[b], out[b]) : R::move8(in[b], out[b]);
      };
      QUERN_UNROLL for (size_t b = 0; b < blocks; ++b) {
        float* const block = there + b * dst.group;
        const size_t before = pixels_before<W, to>(block), begin = first == 0 ? 0 : least(first + before, pixels);
        in[b] = tile + b * to + begin * pixel, out[b] = block + begin * to;
        left[b] = least(first + run + before, pixels) - begin;
        if (first == 0) one_by_one(b, least(before, left[b]));
        whole = least(whole, left[b]);
      }
      for (size_t x = P; x <= whole; x += P) QUERN_UNROLL for (size_t b = 0; b < blocks; ++b) registers(b, P / across);
      QUERN_UNROLL for (size_t b = 0; b < blocks; ++b) {
        while (left[b] >= across) registers(b, 1);
        one_by_one(b, left[b]);
      }
    }
  }
}

// P pixels of every tile, then the next ones.
template <class R, int from, int to, size_t P>
void move_turns(const reorder_view<const float>& src, const reorder_view<float>& dst, const reorder_grid& grid) {
  const auto all_tiles = [&](size_t x, auto move) __attribute__((always_inline)) {
    const float* in = src.at + x * src.pixel;
    float* out = dst.at + x * dst.pixel;
    for (size_t tile = 0; tile < grid.count[1]; ++tile, in += grid.src[1], out += grid.dst[1]) move(in, out);
  };
  const auto square = [&](const float* in, float* out) __attribute__((always_inline)) {
    move_tile<R, from, to, false, P>(in, src, out, dst);
  };
  const auto pixel = [&](const float* in, float* out) __attribute__((always_inline)) {
    move_pixel<from, to>(in, src, out, dst);
  };
  const size_t pixels = grid.count[0];
  size_t x = 0;
  for (; x + P <= pixels; x += P) all_tiles(x, square);
  if (pixels - x >= few_pixels)
    all_tiles(pixels - P, square);
  else
    for (; x < pixels; ++x) all_tiles(x, pixel);
}

template <class R, int from, int to, bool lines = false>
void move_tiles(const reorder_view<const float>& src, const reorder_view<float>& dst, const reorder_grid& grid,
                size_t run) {
  if constexpr (to > 1 && to < from && to < R::width)
    if (run >= 16 && dst.group % R::width != 0) return move_odd_blocks<R, from, to>(src, dst, grid, 64);
  if constexpr (from == 1 || to == 1) {
    if (run == 4) return move_turns<R, from, to, 4>(src, dst, grid);
    if (run == 8) return move_turns<R, from, to, 8>(src, dst, grid);
    constexpr int block = from == 1 ? to : from;
    const size_t pixel = from == 1 ? dst.pixel : src.pixel;
    if (pixel == block) return move_runs<R, from, to, lines, block>(src, dst, grid, run);
    if (from == 1 && to == 8 && pixel == 16) return move_runs<R, from, to, lines, 16>(src, dst, grid, run);
  }
  move_runs<R, from, to, lines, 0>(src, dst, grid, run);
}

// Pixels of four channels each to crowded planes, all of them before the next four.
template <class R>
void move_to_planes(const float* src, size_t pixel, float* dst, size_t plane, size_t pixels) {
  constexpr size_t W = R::width;
  for (size_t x = 0; x < pixels; x += W) {
    if (pixels - x < W) x = pixels - W;
    if (x % 16 == 0) ask_ahead<4>(plane, dst, x, pixels, 4 * plane);
    four_columns<R>(src + x * pixel, pixel, dst + x, plane);
  }
}

// Does as many channels from channel c on as moves alone can by tiles of one kind.
template <class R>
size_t reorder_by_moves(const reorder_f32& call, size_t c) {
  using moves = void (*)(const reorder_view<const float>&, const reorder_view<float>&, const reorder_grid&, size_t);
  constexpr moves by_moves[4][4] = {
      {nullptr, nullptr, move_tiles<R, 1, 8>, move_tiles<R, 1, 16>},
      {nullptr, nullptr, move_tiles<R, 4, 8>, move_tiles<R, 4, 16>},
      {move_tiles<R, 8, 1>, move_tiles<R, 8, 4>, move_tiles<R, 8, 8>, move_tiles<R, 8, 16>},
      {move_tiles<R, 16, 1>, move_tiles<R, 16, 4>, move_tiles<R, 16, 8>, move_tiles<R, 16, 16>}};
  const size_t left = call.channels - c;
  // 24 channels are three tiles of one pass, not one of sixteen and one of eight; and of crowded planes a set of L1
  // keeps eight (32x32: 0.5 to 0.7 of the time, Zen 4).
  const bool shared = share_lines(call);
  const bool crowd = call.from.block == 1 && crowded(call.from.channel) && !crowded(call.to.pixel);
  const bool eights = left < 16 || crowd || (shared && left % 16 >= 8 && call.from.block != 16 && call.to.block != 16);
  const auto place = [&](const reorder_side& s) {
    return s.block == 1 ? 0 : s.block < 8 || left < 8 ? 1 : s.block < 16 || eights ? 2 : 3;
  };
  const int f = place(call.from), t = place(call.to);
  moves move = by_moves[f][t];
  const bool lines =
      R::width == 16 && !call.halves && ((f == 0 && t == 3) || (f == 3 && t == 0 && call.to.channel % 16 == 0));
  if constexpr (R::width == 16)
    if (lines) move = f == 0 ? move_tiles<R, 1, 16, true> : move_tiles<R, 16, 1, true>;
  const size_t from = reorder_widths[f], to = reorder_widths[t], T = from > to ? from : to;
  const size_t tiles = (crowd && call.to.block == 16 && left > 16 ? 16 : left) / T;  // of one block
  // Several pixels become a register where they follow each other.
  if (!move || tiles == 0 || (t != 0 && to < from && to < R::width && call.to.pixel != to) ||
      (f == 0 || t == 0) * 8 > call.pixels)
    return 0;
  const reorder_view<const float> src = {call.src + offset_of(call.from, c), call.from.channel, call.from.pixel};
  const reorder_view<float> dst = {call.dst + offset_of(call.to, c), call.to.channel, call.to.pixel};
  const reorder_grid grid = {{call.pixels, tiles}, {1, tile_step(call.from, from, T)}, {1, tile_step(call.to, to, T)}};
  const bool pieces = f != 0 && t != 0;
  const size_t planes = f == 0 ? call.from.channel : t == 0 ? call.to.channel : 1;
  const size_t apart = least(lines_apart(call, call.from.pixel), lines_apart(call, call.to.pixel));
  if (constexpr size_t W = R::width; t == 0 && crowded(planes) && apart >= W * W / 2 && call.pixels >= W) {
    // Four channels of so many pixels, of which L1 keeps the lines.  Of fewer, wide registers have whole ones.
    const size_t part = least(apart, 256);
    for (size_t x = 0; x < call.pixels; x += part) {
      x = least(x, call.pixels - W);
      for (size_t i = 0; i < tiles * T; i += 4)
        move_to_planes<R>(src.at + i / T * grid.src[1] + i % T + x * src.pixel, src.pixel, dst.at + i * dst.group + x,
                          dst.group, least(call.pixels - x, part));
    }
    return tiles * T;
  }
  // Of sixteen crowded planes, registers have whole lines.
  if (T == 16 && R::width == 16 && crowded(planes)) return 0;
  // Pixels with many channels go by 32, so that what follows each other in memory is moved at one time, or as many as
  // L1 keeps beside what else it needs (2048x7x7: half of the time, Zen 4): eight crowded ones, four where planes
  // become such.  In sets of twelve lines more have room, but of crowded planes more of them, not of pixels, are what
  // gains (320x64x64: 54 to 80 % of copying, Granite Rapids).  Those that share lines go by 128 from and to planes.
  // The channels of planes go by 64, so that their lines stay there until all of each is used, and so do those of
  // crowded pixels.
  const bool many = call.from.pixel > 16 || call.to.pixel > 16;  // those of planes follow each other
  size_t run = call.pixels;
  if (f == 0 && T == 16 && apart < 16 && !crowded(planes))
    run = 4;
  else if (apart <= 16 && (f == 0 || (t == 0 && !crowded(planes))))
    run = 8;
  else if (crowd && T == 8 && call.to.block > 8)
    run = least(call.ways > 8 ? 32 : 128, apart);
  else if ((f == 0 || t == 0) && shared)
    run = 128;
  else if (t != 0 && (apart <= 32 || ((pieces || lines) && many)))
    run = least(32, call.ways <= 8 ? apart / 2 : call.from.block > 16 && apart < 24 ? 16 : apart / 3 * 2);
  const size_t together = crowd && call.ways > 8 ? 128 : 64,
               most = (f == 0 || t == 0) && run < call.pixels ? together / T : tiles;
  for (size_t i = 0; i < tiles; i += most)
    move({src.at + i * grid.src[1], src.group, src.pixel}, {dst.at + i * grid.dst[1], dst.group, dst.pixel},
         {{call.pixels, least(tiles - i, most)}, {1, grid.src[1]}, {1, grid.dst[1]}}, run);
  return tiles * T;
}

}  // namespace
}  // namespace quern
