// SPDX-License-Identifier: MIT
//
// Moving pixels from layout to layout in registers; the contract is reorder_f32 in kernel.h.
//
// A tile is W pixels of T channels in T registers, W being the vector's width.  How a layout puts them there
// is its view: 1 where a register holds a row of pixels of one channel (NCHW); 4, 8 or W where it holds so many
// channels of W / view pixels.  NHWC and wider blocks are seen as W, or as less where fewer channels are left.
// From view to view it is two steps at most: quads() transposes four rows in every 128-bit lane, lanes()
// transposes W / 4 registers of such lanes; both are their own inverse.
//
// The ISA gives a struct R: width, vector, load store stream, the same under a mask of lanes and in pieces,
// quads, lanes, and for wide vectors zip4 unzip4 zip8.  Where it has transpose8, join4, move4, move8, pieces and
// scatter4 too, whole tiles go from memory to memory instead: a half of a register finds its place as it is loaded, and
// shuffles are what bounds a tile.
//
// Places a multiple of 2 KiB apart, as planes of 32x32 or the pixels of 512 channels, share a set of L1 or two.  What
// walks along them has few in turn, and whole lines of each.
#pragma once

#include "kernel.h"

namespace quern {
namespace {

template <class R, int from, int to>
[[gnu::always_inline]] inline void turn(typename R::vector* a) {
  constexpr int W = R::width, L = W / 4, T = from > to ? from : to;
  typename R::vector b[T], x[L];
  if constexpr (from == 1 || to == 1) {
    constexpr int pixels = W / T, groups = T / 4;
    if constexpr (from == 1) QUERN_UNROLL for (int g = 0; g < groups; ++g) R::quads(a + 4 * g);
    // Lane k of row 4 g + p is pixel 4 k + p: in a register of the other view, `pixels` of those meet.
    QUERN_UNROLL for (int s = 0; s < 4 / pixels; ++s) {
      QUERN_UNROLL for (int i = 0; i < L; ++i) {
        const int row = 4 * (i % groups) + pixels * s + i / groups, other = 4 * i / pixels + s;
        x[i] = a[from == 1 ? row : other];
      }
      R::lanes(x);
      QUERN_UNROLL for (int i = 0; i < L; ++i) {
        const int row = 4 * (i % groups) + pixels * s + i / groups, other = 4 * i / pixels + s;
        b[from == 1 ? other : row] = x[i];
      }
    }
    if constexpr (to == 1) QUERN_UNROLL for (int g = 0; g < groups; ++g) R::quads(b + 4 * g);
  } else if constexpr (from + to == 4 + W) {
    QUERN_UNROLL for (int r = 0; r < 4; ++r) {
      QUERN_UNROLL for (int i = 0; i < L; ++i) x[i] = a[from == 4 ? 4 * i + r : L * r + i];
      R::lanes(x);
      QUERN_UNROLL for (int i = 0; i < L; ++i) b[from == 4 ? L * r + i : 4 * i + r] = x[i];
    }
  } else if constexpr (from == 4) {
    QUERN_UNROLL for (int r = 0; r < 4; ++r) R::zip4(a[r], a[4 + r], b[2 * r], b[2 * r + 1]);
  } else if constexpr (to == 4) {
    QUERN_UNROLL for (int r = 0; r < 4; ++r) R::unzip4(a[2 * r], a[2 * r + 1], b[r], b[4 + r]);
  } else if constexpr (from == 8) {
    QUERN_UNROLL for (int r = 0; r < 8; ++r) R::zip8(a[r], a[8 + r], b[2 * r], b[2 * r + 1]);
  } else {
    QUERN_UNROLL for (int r = 0; r < 8; ++r) R::zip8(a[2 * r], a[2 * r + 1], b[r], b[8 + r]);
  }
  QUERN_UNROLL for (int i = 0; i < T; ++i) a[i] = b[i];
}

// One side of a run of pixels, as its view has it.
template <class Float>
struct reorder_view {
  Float* at;
  size_t group, pixel;  // from the first channel of one register to that of the next, from pixel to pixel
};

// Calls visit(i, where register i of a whole tile lies).
template <int W, int view, class Float, class Visit>
[[gnu::always_inline]] inline void each_register(const reorder_view<Float>& v, int registers, Visit visit) {
  Float* group = v.at;
  if (view == 1 || view == W) {
    QUERN_UNROLL for (int i = 0; i < registers; ++i, group += view == 1 ? v.group : v.pixel) visit(i, group);
  } else {
    QUERN_UNROLL for (int i = 0; i < registers; i += view, group += v.group) QUERN_UNROLL for (int r = 0; r < view; ++r)
        visit(i + r, group + r * W);
  }
}

// Rows of whole tiles: the second count and its steps lead from row to row.  Where pixels are left at a row's end, so
// many, one tile more takes them and the ones before them, unless they are few.
struct reorder_grid {
  size_t count[2], src[2], dst[2], left;
};

// How many lines so many floats apart the sets that they share hold: of 64 sets and 8 ways, as the smallest L1 has
// them.
inline size_t lines_apart(size_t floats) {
  const size_t step = floats & -floats;
  return 8 * 1024 / (step < 16 ? 16 : step > 1024 ? 1024 : step);
}
inline bool crowded(size_t apart) { return lines_apart(apart) <= 16; }

// Asks for the lines that so many planes are written to 32 pixels after pixel x, of this row or, where it ends before,
// of the next one: each plane would be waited for (a fifth of the time, half of it at 14x14: Granite Rapids).  Lines of
// crowded planes would push each other out.  Not inline: beside so many addresses compilers keep those of a tile on the
// stack, whether any are asked for or not.
template <int planes>
[[gnu::noinline]] void ask_ahead(size_t plane, const float* row, size_t x, size_t pixels, size_t next) {
  if (planes > 4 && crowded(plane)) return;
  const float* at = row + x + 32;
  if (x + 32 >= pixels) at += next - pixels;
  QUERN_UNROLL for (int c = 0; c < planes; ++c, at += plane) __builtin_prefetch(at, 1, 3);
}

// What is less pixels than this goes one by one: a tile would move the others of its pixels again.
constexpr size_t few_pixels = 3;

template <int from, int to>
[[gnu::always_inline]] inline void move_pixel(const float* in, const reorder_view<const float>& src, float* out,
                                              const reorder_view<float>& dst) {
  constexpr size_t T = from > to ? from : to;
  if constexpr (from == 1) {
    using quad = float __attribute__((vector_size(16)));
    QUERN_UNROLL for (size_t c = 0; c < T; c += 4, in += 4 * src.group) {
      const quad four = {in[0], in[src.group], in[2 * src.group], in[3 * src.group]};
      __builtin_memcpy(out + c, &four, sizeof four);
    }
  } else {
    QUERN_UNROLL for (size_t c = 0; c < T; ++c) out[c / to * dst.group + c % to] = in[c / from * src.group + c % from];
  }
}

template <class R, int from, int to>
void reorder_tiles(reorder_view<const float> src, reorder_view<float> dst, const reorder_grid& grid, bool stream) {
  constexpr int W = R::width, T = from > to ? from : to;
  const auto tile = [](const reorder_view<const float>& in, const reorder_view<float>& out, bool past)
      __attribute__((always_inline)) {
    typename R::vector a[T];
    each_register<W, from>(in, T, [&](int i, const float* at) { a[i] = R::load(at); });
    if constexpr (from != to) turn<R, from, to>(a);
    if (past)
      each_register<W, to>(out, T, [&](int i, float* at) { R::stream(at, a[i]); });
    else
      each_register<W, to>(out, T, [&](int i, float* at) { R::store(at, a[i]); });
  };
  for (size_t row = 0; row < grid.count[1]; ++row) {
    reorder_view<const float> in = src;
    reorder_view<float> out = dst;
    for (size_t i = 0; i < grid.count[0]; ++i) {
      if (to == 1 && !stream) ask_ahead<T>(dst.group, dst.at, i * W, grid.count[0] * W + grid.left, grid.dst[1]);
      tile(in, out, stream);
      in.at += grid.src[0], out.at += grid.dst[0];
    }
    if (grid.left < few_pixels) {
      for (size_t x = 0; x < grid.left; ++x, in.at += src.pixel, out.at += dst.pixel)
        move_pixel<from, to>(in.at, src, out.at, dst);
    } else {
      in.at -= (W - grid.left) * src.pixel, out.at -= (W - grid.left) * dst.pixel;
      tile(in, out, false);
    }
    src.at += grid.src[1], dst.at += grid.dst[1];
  }
}

// Visits the registers of a tile with where they lie, and as far as they do, their channels and pixels.
template <class R, int view, class Float, class Visit>
[[gnu::always_inline]] inline void each_part(const reorder_view<Float>& v, int registers, size_t channels,
                                             size_t pixels, Visit visit) {
  constexpr size_t across = R::width / view;
  for (int i = 0; i < registers; ++i) {
    const size_t c = static_cast<size_t>(view == 1 ? i : i / view * view);
    const size_t x = view == 1 ? 0 : static_cast<size_t>(i % view) * across;
    const size_t below = channels > c ? channels - c : 0, right = pixels > x ? pixels - x : 0;
    visit(i, v.at + c / view * v.group + x * v.pixel, below < view ? below : view, right < across ? right : across);
  }
}

// The lanes of a register that are there, where pixels follow each other.
template <int view>
[[gnu::always_inline]] inline uint32_t lanes_of(size_t channels, size_t pixels) {
  constexpr uint32_t every = view == 1 ? 0xffff : view == 4 ? 0x1111 : view == 8 ? 0x101 : 1;
  return ((uint32_t{1} << channels) - 1) * every & ((uint32_t{1} << pixels * view) - 1);
}

template <class R, int view>
void load_parts(const reorder_view<const float>& src, int registers, size_t channels, size_t pixels, float* tile) {
  each_part<R, view>(src, registers, channels, pixels, [&](int i, const float* at, size_t c, size_t x) {
    if (view == 1 || view == R::width || src.pixel == view)
      R::store(tile + i * R::width, R::load_part(at, lanes_of<view>(c, x)));
    else
      R::store(tile + i * R::width, R::template load_pieces<view>(at, src.pixel, c, x));
  });
}

template <class R, int view>
void store_parts(const float* tile, int registers, size_t channels, size_t pixels, const reorder_view<float>& dst) {
  each_part<R, view>(dst, registers, channels, pixels, [&](int i, float* at, size_t c, size_t x) {
    if (view == 1 || view == R::width || dst.pixel == view)
      R::store_part(at, R::load(tile + i * R::width), lanes_of<view>(c, x));
    else
      R::template store_pieces<view>(at, dst.pixel, R::load(tile + i * R::width), c, x);
  });
}

// The lanes of memory that hold a channel, where `pixels` pixels of `pixel` floats follow each other.
inline uint32_t lanes_together(size_t pixel, size_t channels, size_t pixels) {
  uint32_t lanes = 0;
  if (pixel <= 4)
    for (size_t i = 0; i < pixels; ++i)
      lanes |= ((uint32_t{1} << (channels < pixel ? channels : pixel)) - 1) << i * pixel;
  return lanes;
}

// At most four channels, by the ways that they lie: rows of pixels, pixels that follow each other, or apart.
// In registers it is always four lanes a pixel.
enum class few { rows, together, apart };

template <class R, few from, few to>
void reorder_few(size_t channels, size_t pixels, reorder_view<const float> src, reorder_view<float> dst) {
  constexpr size_t W = R::width, across = W / 4;
  const auto spread = R::spread(src.pixel), gather = R::gather(dst.pixel);
  const uint32_t in = lanes_together(src.pixel, channels, across), out = lanes_together(dst.pixel, channels, across);
  for (size_t x = 0; x < pixels; x += W) {
    if (pixels - x < W) x = pixels - W;
    typename R::vector a[4];
    const float* at = src.at + x * src.pixel;
    QUERN_UNROLL for (size_t i = 0; i < 4; ++i) {
      if constexpr (from == few::rows)
        a[i] = i < channels ? R::load(at + i * src.group) : R::load_part(at, 0);
      else if constexpr (from == few::together)
        a[i] = R::move_lanes(R::load_part(at + i * across * src.pixel, in), spread);
      else
        a[i] = R::template load_pieces<4>(at + i * across * src.pixel, src.pixel, channels, across);
    }
    if constexpr (from == few::rows) turn<R, 1, 4>(a);
    if constexpr (to == few::rows) turn<R, 4, 1>(a);
    float* there = dst.at + x * dst.pixel;
    QUERN_UNROLL for (size_t i = 0; i < 4; ++i) {
      if constexpr (to == few::together)
        R::store_part(there + i * across * dst.pixel, R::move_lanes(a[i], gather), out);
      else if constexpr (to == few::apart)
        R::template store_pieces<4>(there + i * across * dst.pixel, dst.pixel, a[i], channels, across);
      else if (i < channels)
        R::store(there + i * dst.group, a[i]);
    }
  }
}

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
// become whole cache lines of channels at a time; the other way round the lines would be planes', most of which begin
// anywhere: two stores for each.
template <class R, int from, int to, bool lines, size_t P>
[[gnu::always_inline]] inline void move_tile(const float* in, reorder_view<const float> src, float* out,
                                             reorder_view<float> dst) {
  constexpr size_t T = from > to ? from : to, piece = from < to ? from : to, W = R::width;
  if constexpr (P == 16 && lines) {
    QUERN_ROLL for (size_t x = 0; x < P; x += 4, in += 4, out += 4 * dst.pixel)
        four_columns<R>(in, src.group, out, dst.pixel);
  } else if constexpr (piece == 1 && P == 4) {
    QUERN_UNROLL for (size_t c = 0; c < T; c += W) {
      if constexpr (from == 1)
        four_columns<R>(in + c * src.group, src.group, out + c, dst.pixel);
      else
        four_rows<R>(in + c, src.pixel, out + c * dst.group, dst.group);
    }
  } else if constexpr (piece == 1) {
    QUERN_UNROLL for (size_t x = 0; x < P; x += 8) QUERN_UNROLL for (size_t c = 0; c < T; c += 8) {
      if constexpr (from == 1)
        R::transpose8(in + c * src.group + x, src.group, out + x * dst.pixel + c, dst.pixel);
      else
        R::transpose8(in + x * src.pixel + c, src.pixel, out + c * dst.group + x, dst.group);
    }
  } else if constexpr (to < from && to < R::width) {
    QUERN_UNROLL for (size_t c = 0; c < T; c += to, in += to, out += dst.group) {
      if constexpr (P == 1)
        to == 4 ? R::move4(in, out) : R::move8(in, out);
      else
        QUERN_UNROLL for (size_t x = 0; x < P; x += R::width / to)
            R::store(out + x * to, R::template pieces<to>(in + x * src.pixel, src.pixel));
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
      in += src.pixel, out += dst.pixel;
    }
  }
}

// Tiles of T channels; `run` pixels of each, then the next ones.  The last square of a line may lie over the one
// before. `dense`: pixels of blocks follow each other, as far apart as compilers know.  Not inline: its views are its
// own then, and not read again after every store.
template <class R, int from, int to, bool lines, bool dense>
[[gnu::noinline]] void move_runs(reorder_view<const float> src, reorder_view<float> dst, const reorder_grid& grid,
                                 size_t run) {
  constexpr bool squares = from == 1 || to == 1;
  constexpr size_t P = 16, least = squares ? 8 : to < from ? 4 : 1;
  if (dense) (from == 1 ? dst.pixel : src.pixel) = from == 1 ? to : from;
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
        if (to == 1) ask_ahead<from>(dst.group, there, x, pixels, grid.dst[1]);
        // Where tiles take turns, pixels of the next one.
        if (from > 1 && to == 16 && run < pixels) {
          const float* ahead = out + grid.dst[1];
          QUERN_UNROLL for (size_t i = 0; i < P; ++i, ahead += dst.pixel) __builtin_prefetch(ahead, 1, 3);
        }
        move_tile<R, from, to, lines, P>(in, src, out, dst);
      }
      for (; x + least <= count; x += least, in += least * src.pixel, out += least * dst.pixel)
        move_tile<R, from, to, lines, least>(in, src, out, dst);
      if (squares && count - x >= few_pixels) {
        const size_t back = least - (count - x);
        move_tile<R, from, to, lines, least>(in - back * src.pixel, src, out - back * dst.pixel, dst);
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
  if constexpr (from == 1 || to == 1) {
    if (run == 4) return move_turns<R, from, to, 4>(src, dst, grid);
    if (run == 8) return move_turns<R, from, to, 8>(src, dst, grid);
    if (from == 1 ? dst.pixel == to : src.pixel == from)
      return move_runs<R, from, to, lines, true>(src, dst, grid, run);
  }
  move_runs<R, from, to, lines, false>(src, dst, grid, run);
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

template <class R>
struct reorder_paths {
  static constexpr int views = R::width == 16 ? 4 : 3, width[] = {1, 4, 8, 16};
  using tiles = void (*)(reorder_view<const float>, reorder_view<float>, const reorder_grid&, bool);
  static constexpr tiles whole[4][4] = {
      {nullptr, reorder_tiles<R, 1, 4>, reorder_tiles<R, 1, 8>, reorder_tiles<R, 1, R::width>},
      {reorder_tiles<R, 4, 1>, reorder_tiles<R, 4, 4>, reorder_tiles<R, 4, 8>, reorder_tiles<R, 4, R::width>},
      {reorder_tiles<R, 8, 1>, reorder_tiles<R, 8, 4>, reorder_tiles<R, 8, 8>, reorder_tiles<R, 8, R::width>},
      {reorder_tiles<R, R::width, 1>, reorder_tiles<R, R::width, 4>, reorder_tiles<R, R::width, 8>,
       reorder_tiles<R, R::width, R::width>}};
  static constexpr decltype(&load_parts<R, 1>) loads[4] = {load_parts<R, 1>, load_parts<R, 4>, load_parts<R, 8>,
                                                           load_parts<R, R::width>};
  static constexpr decltype(&store_parts<R, 1>) stores[4] = {store_parts<R, 1>, store_parts<R, 4>, store_parts<R, 8>,
                                                             store_parts<R, R::width>};
  static constexpr decltype(&reorder_few<R, few::rows, few::apart>) some[3][3] = {
      {nullptr, reorder_few<R, few::rows, few::together>, reorder_few<R, few::rows, few::apart>},
      {reorder_few<R, few::together, few::rows>, reorder_few<R, few::together, few::together>,
       reorder_few<R, few::together, few::apart>},
      {reorder_few<R, few::apart, few::rows>, reorder_few<R, few::apart, few::together>,
       reorder_few<R, few::apart, few::apart>}};
};

// How `channels` channels at most are seen, as a place in the list of widths.
template <class R>
int view_of(const reorder_side& side, size_t channels) {
  if (side.block == 1) return 0;
  int view = side.block < 8 ? 1 : side.block < 16 || R::width == 8 ? 2 : 3;
  while (view > 1 && static_cast<size_t>(reorder_paths<R>::width[view - 1]) >= channels) --view;
  return view;
}

// What is no whole tile passes through one: `channels` of at most so many channels as tiles have.
template <class R>
void reorder_parts(int f, int t, size_t channels, size_t pixels, reorder_view<const float> src,
                   reorder_view<float> dst) {
  using paths = reorder_paths<R>;
  constexpr size_t W = R::width;
  const size_t from = paths::width[f], to = paths::width[t];
  const int T = static_cast<int>(from > to ? from : to);
  alignas(64) float in[W * W], out[W * W];
  while (pixels > 0) {
    const size_t count = pixels < W ? pixels : W;
    paths::loads[f](src, T, channels, count, in);
    paths::whole[f][t]({in, W * from, from}, {out, W * to, to}, {{1, 1}, {}, {}, 0}, false);
    paths::stores[t](out, T, channels, count, dst);
    src.at += count * src.pixel, dst.at += count * dst.pixel, pixels -= count;
  }
}

inline size_t offset_of(const reorder_side& s, size_t c) { return c / s.block * s.channel + c % s.block; }

// Does as many channels from channel c on as moves alone can by tiles of one kind.
template <class R>
size_t reorder_by_moves(const reorder_f32& call, size_t c) {
  using paths = reorder_paths<R>;
  using moves = void (*)(const reorder_view<const float>&, const reorder_view<float>&, const reorder_grid&, size_t);
  constexpr moves by_moves[4][4] = {
      {nullptr, nullptr, move_tiles<R, 1, 8>, move_tiles<R, 1, 16>},
      {nullptr, nullptr, move_tiles<R, 4, 8>, move_tiles<R, 4, 16>},
      {move_tiles<R, 8, 1>, move_tiles<R, 8, 4>, move_tiles<R, 8, 8>, move_tiles<R, 8, 16>},
      {move_tiles<R, 16, 1>, move_tiles<R, 16, 4>, move_tiles<R, 16, 8>, move_tiles<R, 16, 16>}};
  const size_t left = call.channels - c;
  const auto place = [&](const reorder_side& s) {
    return s.block == 1 ? 0 : s.block < 8 || left < 8 ? 1 : s.block < 16 || left < 16 ? 2 : 3;
  };
  const int f = place(call.from), t = place(call.to);
  const bool lines = R::width == 16 && f == 0 && t == 3 && !call.halves;
  moves move = by_moves[f][t];
  if constexpr (R::width == 16)
    if (lines) move = move_tiles<R, 1, 16, true>;
  const size_t from = paths::width[f], to = paths::width[t], T = from > to ? from : to, tiles = left / T;
  // Several pixels become a register where they follow each other.
  if (!move || tiles == 0 || (t != 0 && to < from && to < R::width && call.to.pixel != to) ||
      (f == 0 || t == 0) * 8 > call.pixels)
    return 0;
  const auto step = [&](const reorder_side& s, size_t view) {
    return view == 1 || view == s.block ? T / view * s.channel : T;
  };
  const reorder_view<const float> src = {call.src + offset_of(call.from, c), call.from.channel, call.from.pixel};
  const reorder_view<float> dst = {call.dst + offset_of(call.to, c), call.to.channel, call.to.pixel};
  const reorder_grid grid = {{call.pixels, tiles}, {1, step(call.from, from)}, {1, step(call.to, to)}};
  const auto least = [](size_t a, size_t b) { return a < b ? a : b; };
  const bool pieces = f != 0 && t != 0;
  const size_t planes = f == 0 ? call.from.channel : t == 0 ? call.to.channel : 1;
  const size_t apart = least(lines_apart(call.from.pixel), lines_apart(call.to.pixel));
  if (constexpr size_t W = R::width; t == 0 && crowded(planes) && apart >= 8 * W && call.pixels >= W) {
    // Four channels of so many pixels, of which L1 keeps the lines.
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
  if (T == 16 && R::width == 16 && crowded(planes) && !(call.halves && t == 3 && call.to.pixel > 16 && apart > 16))
    return 0;
  // Pixels with many channels go by 32, so that what follows each other in memory is moved at one time, or as many as
  // L1 keeps beside what else it needs (2048x7x7: half of the time, Zen 4): eight crowded ones, four where planes
  // become such.  The channels of planes go by 64, so that their lines stay there until all of each is used, and so do
  // those of crowded pixels.
  const bool many = call.from.pixel > 16 || call.to.pixel > 16;  // those of planes follow each other
  size_t run = call.pixels;
  if (f == 0 && T == 16 && apart <= 8 && !crowded(planes))
    run = 4;
  else if (apart <= 16 && (f == 0 || (t == 0 && !crowded(planes))))
    run = 8;
  else if (t != 0 && (apart <= 32 || ((pieces || lines) && many)))
    run = least(32, apart / 2);
  const size_t most = (f == 0 || t == 0) && run < call.pixels ? 64 / T : tiles;
  for (size_t i = 0; i < tiles; i += most)
    move({src.at + i * grid.src[1], src.group, src.pixel}, {dst.at + i * grid.dst[1], dst.group, dst.pixel},
         {{call.pixels, least(tiles - i, most)}, {1, grid.src[1]}, {1, grid.dst[1]}}, run);
  return tiles * T;
}

template <class R>
void reorder(const reorder_f32& call) {
  using paths = reorder_paths<R>;
  constexpr size_t W = R::width;
  const reorder_side &from = call.from, &to = call.to;
  if (from.block == 1 && to.block == 1 && from.pixel == 1 && to.pixel == 1) {
    for (size_t c = 0; c < call.channels; ++c)
      __builtin_memcpy(call.dst + c * to.channel, call.src + c * from.channel, call.pixels * sizeof(float));
    return;
  }
  if ((from.block == 1 && (to.block == 1 || from.pixel != 1)) || (to.block == 1 && to.pixel != 1)) {
    for (size_t c = 0; c < call.channels; ++c) {
      const float* src = call.src + offset_of(from, c);
      float* dst = call.dst + offset_of(to, c);
      for (size_t x = 0; x < call.pixels; ++x) dst[x * to.pixel] = src[x * from.pixel];
    }
    return;
  }
  // Where the last channels are less than a tile, some go once more, so that it is whole.
  const size_t most = static_cast<size_t>(
      paths::width[view_of<R>(from, W) > view_of<R>(to, W) ? view_of<R>(from, W) : view_of<R>(to, W)]);
  const size_t last = call.channels > most ? call.channels - most : 0;
  const auto begins_there = [&](const reorder_side& s) {
    return s.block == 1 || s.block > 16 || (s.block <= W && last % s.block == 0);
  };
  const bool again = last > 0 && begins_there(from) && begins_there(to);
  for (size_t c = 0, done; c < call.channels; c += done) {
    if constexpr (requires { R::transpose8; }) {
      done = call.stream ? 0 : reorder_by_moves<R>(call, c);
      if (done > 0) continue;
    }
    if (again && c > last) c = last;
    const size_t left = call.channels - c;
    const int f = view_of<R>(from, left), t = view_of<R>(to, left);
    const size_t views[] = {size_t(paths::width[f]), size_t(paths::width[t])}, T = views[views[0] < views[1]];
    const reorder_view<const float> src = {call.src + offset_of(from, c), from.channel, from.pixel};
    const reorder_view<float> dst = {call.dst + offset_of(to, c), to.channel, to.pixel};
    // Registers hold pixels that follow each other; the last tile of a line may have some that the one before has.
    const auto lies_whole = [](const reorder_side& s, size_t view) {
      return view == 1 || view == W || s.pixel == view;
    };
    if (left < T || call.pixels < W || !lies_whole(from, views[0]) || !lies_whole(to, views[1])) {
      done = left < T ? left : T;
      if (T == 4 && call.pixels >= W) {
        const auto lies = [&](const reorder_side& s) {
          return s.block == 1 ? few::rows : s.pixel <= 4 && s.pixel >= done ? few::together : few::apart;
        };
        paths::some[int(lies(from))][int(lies(to))](done, call.pixels, src, dst);
        continue;
      }
      reorder_parts<R>(f, t, done, call.pixels, src, dst);
      continue;
    }
    // From tile to tile: as far as a whole number of blocks, or within one that has them all.
    const auto step = [&](const reorder_side& s, size_t view) {
      return view == 1 || view == s.block ? T / view * s.channel : T;
    };
    const bool even = from.block != 2 * W && to.block != 2 * W;
    const size_t tiles = even ? left / T : 1, pixels = call.pixels / W;
    done = tiles * T;
    // Lines of memory are finished before the next ones begin: of pixels that have many channels, whole rows of tiles.
    const size_t in[] = {W * from.pixel, step(from, views[0])}, out[] = {W * to.pixel, step(to, views[1])};
    const size_t rest = call.pixels % W, end = call.pixels - W;
    if (to.block <= 16) {
      paths::whole[f][t](src, dst, {{pixels, tiles}, {in[0], in[1]}, {out[0], out[1]}, rest}, call.stream);
      continue;
    }
    paths::whole[f][t](src, dst, {{tiles, pixels}, {in[1], in[0]}, {out[1], out[0]}, 0}, call.stream);
    if (rest)
      paths::whole[f][t]({src.at + end * from.pixel, from.channel, from.pixel},
                         {dst.at + end * to.pixel, to.channel, to.pixel}, {{tiles, 1}, {in[1], 0}, {out[1], 0}, 0},
                         false);
  }
  if (call.stream) R::fence();
}

}  // namespace
}  // namespace quern
