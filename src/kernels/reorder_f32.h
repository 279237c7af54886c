// SPDX-License-Identifier: MIT
//
// Moving pixels from layout to layout in registers; the contract is reorder_f32 in kernel.h.
//
// A tile is W pixels of T channels in T registers, W being the vector's width, turned from view to view
// (reorder_turn.h).  NHWC and wider blocks are seen as W, or as less where fewer channels are left.
//
// The ISA gives a struct R: width, vector, load store stream, the same under a mask of lanes (masks_are_free: at the
// price of whole ones) and in pieces, quads, lanes, and for vectors of 16 zip4 unzip4 zip8 turned blend weave.  Where
// it has what reorder_moves.h asks for too, whole tiles go from memory to memory instead, or by squares
// (reorder_squares.h).
#pragma once

#include "reorder_moves.h"
#include "reorder_skewed.h"
#include "reorder_squares.h"

namespace quern {
namespace {

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
    size_t count = grid.count[0], left = grid.left;
    const auto one_by_one = [&](size_t pixels) __attribute__((always_inline)) {
      for (size_t x = 0; x < pixels; ++x, in.at += src.pixel, out.at += dst.pixel)
        move_pixel<from, to>(in.at, src, out.at, dst);
    };
    if (from == 1 && to == 4 && left > 0) {
      const size_t before = pixels_before<W, to>(out.at), rest = count * W + left - before;
      one_by_one(before);
      count = rest / W, left = rest % W;
    }
    for (size_t i = 0; i < count; ++i) {
      if (to == 1 && !stream) ask_ahead<T>(dst.group, dst.at, i * W, grid.count[0] * W + grid.left, grid.dst[1]);
      tile(in, out, stream);
      in.at += grid.src[0], out.at += grid.dst[0];
    }
    if (left < few_pixels) {
      one_by_one(left);
    } else {
      in.at -= (W - left) * src.pixel, out.at -= (W - left) * dst.pixel;
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
  const float* const whole = dst.pixel == channels ? dst.at + (pixels * channels - W) : nullptr;
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
      // Whole where that ends inside: what follows writes over what is too much.
      float* const place = there + i * across * dst.pixel;
      if (to == few::together && !R::masks_are_free && place <= whole)
        R::store(place, R::move_lanes(a[i], gather));
      else if constexpr (to == few::together)
        R::store_part(place, R::move_lanes(a[i], gather), out);
      else if constexpr (to == few::apart)
        R::template store_pieces<4>(place, dst.pixel, a[i], channels, across);
      else if (i < channels)
        R::store(there + i * dst.group, a[i]);
    }
  }
}

// Two or three channels, as pixels that follow each other and as rows: W pixels are as many registers here as there,
// and each lane of one is of the first two of the others or of the third.
template <class R, bool to_rows>
void reorder_woven(size_t channels, size_t pixels, reorder_view<const float> src, reorder_view<float> dst) {
  constexpr size_t W = R::width;
  typename R::order pair[3], third[3];
  uint32_t of_third[3] = {};
  for (size_t r = 0; r < channels; ++r) {
    // Lane i of register r is float `place` of all of them, in the order of the other side.
    const auto place = [&](size_t i) {
      return to_rows ? i * channels + r : (r * W + i) % channels * W + (r * W + i) / channels;
    };
    pair[r] = R::order_of(place), third[r] = R::order_of([&](size_t i) { return place(i) % W; });
    for (size_t i = 0; i < W; ++i) of_third[r] |= uint32_t{place(i) >= 2 * W} << i;
  }
  for (size_t x = 0; x < pixels; x += W) {
    if (pixels - x < W) x = pixels - W;
    const float* const in = src.at + x * src.pixel;
    float* const out = dst.at + x * dst.pixel;
    const auto load = [&](size_t r) { return R::load(in + r * (to_rows ? W : src.group)); };
    const auto a = load(0), b = load(1), c = channels > 2 ? load(2) : b;
    QUERN_UNROLL for (size_t r = 0; r < 3; ++r) if (r < channels)
        R::store(out + r * (to_rows ? dst.group : W), R::weave(a, b, pair[r], c, third[r], of_third[r]));
  }
}

template <class R>
struct reorder_paths {
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

// What is no whole tile passes through one: `channels` of at most so many channels as tiles have.
template <class R>
void reorder_parts(int f, int t, size_t channels, size_t pixels, reorder_view<const float> src,
                   reorder_view<float> dst) {
  using paths = reorder_paths<R>;
  constexpr size_t W = R::width;
  const size_t from = reorder_widths[f], to = reorder_widths[t];
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

template <class R>
void reorder_pixels(const reorder_f32& call) {
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
      reorder_widths[view_of<W>(from, W) > view_of<W>(to, W) ? view_of<W>(from, W) : view_of<W>(to, W)]);
  const size_t last = call.channels > most ? call.channels - most : 0;
  const auto begins_there = [&](const reorder_side& s) {
    return s.block == 1 || s.block > 16 || (s.block <= W && last % s.block == 0);
  };
  const bool again = last > 0 && begins_there(from) && begins_there(to);
  for (size_t c = 0, done; c < call.channels; c += done) {
    if constexpr (requires { R::transpose8; }) {
      if (!call.stream) {
        done = reorder_skewed<R>(call, c);
        if constexpr (R::width == 16) {
          if (done == 0) done = reorder_skewed_quads<R>(call, c);
          if (done == 0) done = reorder_by_squares<R>(call, c);
        }
        if (done == 0) done = reorder_by_moves<R>(call, c);
        if (done > 0) continue;
      }
    }
    if (again && c > last) c = last;
    const size_t left = call.channels - c;
    const int f = view_of<W>(from, left), t = view_of<W>(to, left);
    const size_t views[] = {size_t(reorder_widths[f]), size_t(reorder_widths[t])}, T = views[views[0] < views[1]];
    const reorder_view<const float> src = {call.src + offset_of(from, c), from.channel, from.pixel};
    const reorder_view<float> dst = {call.dst + offset_of(to, c), to.channel, to.pixel};
    // The last tile of a line may have pixels that the one before has.
    if (left < T || call.pixels < W || !lies_whole<W>(from, views[0]) || !lies_whole<W>(to, views[1])) {
      done = left < T ? left : T;
      if (T == 4 && call.pixels >= W) {
        const auto lies = [&](const reorder_side& s) {
          return s.block == 1 ? few::rows : s.pixel <= 4 && s.pixel >= done ? few::together : few::apart;
        };
        const few in = lies(from), out = lies(to);
        auto move = paths::some[int(in)][int(out)];
        // Pixels of two or three channels that are all there are.
        if constexpr (W == 16) {
          const bool weave = done == 2 || done == 3;
          if (weave && in == few::together && from.pixel == done && out == few::rows) move = reorder_woven<R, true>;
          if (weave && in == few::rows && out == few::together && to.pixel == done) move = reorder_woven<R, false>;
        }
        move(done, call.pixels, src, dst);
        continue;
      }
      reorder_parts<R>(f, t, done, call.pixels, src, dst);
      continue;
    }
    const bool even = from.block != 2 * W && to.block != 2 * W;
    const size_t tiles = even ? left / T : 1, pixels = call.pixels / W;
    done = tiles * T;
    // Lines of memory are finished before the next ones begin: of pixels that have many channels, whole rows of tiles.
    const size_t in[] = {W * from.pixel, tile_step(from, views[0], T)},
                 out[] = {W * to.pixel, tile_step(to, views[1], T)};
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

// What takes several passes over lines that pixels share goes by as many pixels as the smallest L1 has room for; in
// narrow registers the last channels of an eight take longer than that saves.
template <class R>
void reorder(const reorder_f32& call) {
  const size_t from = call.from.block, to = call.to.block;
  const bool passes = call.channels % 8 != 0 ? R::width == 16 : from == 16 || to == 16;
  if (from == 1 || to == 1 || !passes || !share_lines(call)) return reorder_pixels<R>(call);
  const size_t most = 4096 / call.channels / 16 * 16;
  reorder_f32 part = call;
  for (size_t x = 0; x < call.pixels; x += most) {
    part.pixels = call.pixels - x < most ? call.pixels - x : most;
    reorder_pixels<R>(part);
    part.src += most * call.from.pixel, part.dst += most * call.to.pixel;
  }
}

}  // namespace
}  // namespace quern
