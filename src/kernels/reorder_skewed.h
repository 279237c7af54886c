// SPDX-License-Identifier: MIT
//
// Dense planes of 8 q + 1 pixels, as all squares with odd sides are (7x7, 13x13, 17x17), from and to pixels whose
// channels lie side by side.  Such planes begin anywhere in a line of the cache, and every second register that a
// square of 8 x 8 writes there would lie in two lines.
//
// Eight of these planes are 8 q + 1 whole registers together: pixel x of channel c is in lane (c + x) % 8 of one, and
// the lanes of a register are pixels that follow each other, round and round.  So once the eight channels of every
// pixel are turned by x lanes, nothing changes its lane any more: lane j of a register is of the pixel j after that of
// lane 0.  Lanes wait for each other, by one, two and four pixels as the bits of their numbers say, and a pixel costs
// one shuffle and three blends.  (Matrices stored with a skew: Lawrie, Access and alignment of data in an array
// processor, IEEE Transactions on Computers 24, 1975.)
#pragma once

#include "reorder_view.h"

namespace quern {
namespace {

// Floats of eight planes, which are as many registers as one has pixels.
constexpr size_t floats_of_eight(size_t q) { return 8 * (8 * q + 1); }

using eight_floats = float __attribute__((vector_size(32)));

// Lane j to lane j + by, round.
template <int by>
[[gnu::always_inline]] inline eight_floats turn_lanes(eight_floats v) {
  if constexpr (by == 0)
    return v;
  else
    return __builtin_shufflevector(v, v, 8 - by, (9 - by) % 8, (10 - by) % 8, (11 - by) % 8, (12 - by) % 8,
                                   (13 - by) % 8, (14 - by) % 8, (15 - by) % 8);
}

// Lane j waits 7 - j steps: of the registers that pass by, each lane of what comes out is from another one.
template <class R>
struct lanes_in_turn {
  eight_floats one = {}, two[2] = {}, four[4] = {};

  // Step `step` modulo 8, whichever way steps count.
  template <int step>
  [[gnu::always_inline]] eight_floats pass(eight_floats next) {
    const eight_floats pair = R::template blend8<0xaa>(one, next);
    one = next;
    const eight_floats quad = R::template blend8<0xcc>(two[step % 2], pair);
    two[step % 2] = pair;
    const eight_floats all = R::template blend8<0xf0>(four[step % 4], quad);
    four[step % 4] = quad;
    return all;
  }
};

// To planes, pixels pass by from the first one on, after the last seven: pixel x = 8 a + i completes the register whose
// lane j is of pixel x - 7 + j, and which is number (7 - i) q + a.  From planes, registers pass by the other way round,
// so that the same one completes the same pixel.
template <class R, int view, bool to_planes, int groups>
struct skewed_planes {
  const size_t q, group;
  const float* in;
  float* out;
  const ptrdiff_t in_step, out_step;
  lanes_in_turn<R> lanes[groups];

  // A register of planes, or eight channels as they lie at a pixel, in blocks of four or of more.
  template <int block>
  [[gnu::always_inline]] eight_floats load(const float* at) const {
    eight_floats v;
    if constexpr (block == 4)
      v = R::load_halves8(at, at + group);
    else
      __builtin_memcpy(&v, at, sizeof v);
    return v;
  }
  [[gnu::always_inline]] static void store(float* at, eight_floats v) { __builtin_memcpy(at, &v, sizeof v); }

  // The empty asm: compilers keep a pointer for each step of a round, on the stack.
  template <int i, int step, bool complete>
  [[gnu::always_inline]] void pass() {
    QUERN_UNROLL for (int g = 0; g < groups; ++g) {
      if constexpr (to_planes) {
        const auto v = lanes[g].template pass<step>(turn_lanes<i>(load<view>(in + 8 * g)));
        if (complete) {
          store(out + g * floats_of_eight(q), v);
          // The same place in the next planes: a store that misses L1 is waited for.
          __builtin_prefetch(out + (g + groups) * floats_of_eight(q), 1, 3);
        }
      } else {
        const auto v = lanes[g].template pass<step>(load<1>(in + g * floats_of_eight(q)));
        if (complete) store(out + 8 * g, turn_lanes<(8 - i) % 8>(v));
      }
    }
    in += in_step;
    if (complete) out += out_step;
    __asm__("" : "+r"(in), "+r"(out));
  }
  template <int step, bool complete, int... i>
  [[gnu::always_inline]] void passes() {
    (pass<i, (i + step) % 8, complete>(), ...);
  }
};

// `count` times 8 channels, or 16, of 8 q + 1 pixels, `next` apart where they are pixels.
struct skewed_f32 {
  size_t q, count;
  const float* in;
  float* out;
  size_t group, pixel, next;
};

template <class R, int view, int groups>
void skewed_to_planes(const skewed_f32& call) {
  const size_t q = call.q, pixel = call.pixel;
  for (size_t i = 0; i < call.count; ++i) {
    const float* const in = call.in + i * call.next;
    float* const out = call.out + i * groups * floats_of_eight(q);
    skewed_planes<R, view, true, groups> p = {
        q, call.group, in + (8 * q - 6) * pixel, out + 8 * 7 * q, ptrdiff_t(pixel), -8 * ptrdiff_t(q), {}};
    p.template passes<7, false, 2, 3, 4, 5, 6, 7, 0>();
    p.in = in;
    for (size_t a = 0; a < q; ++a, p.out += floats_of_eight(q)) p.template passes<0, true, 0, 1, 2, 3, 4, 5, 6, 7>();
    p.template passes<0, true, 0>();
  }
}

template <class R, int groups>
void skewed_from_planes(const skewed_f32& call) {
  const size_t q = call.q, pixel = call.pixel;
  for (size_t i = 0; i < call.count; ++i) {
    const float* const in = call.in + i * groups * floats_of_eight(q);
    float* const out = call.out + i * call.next;
    skewed_planes<R, 8, false, groups> p = {
        q, call.group, in + 8 * q, out + 8 * q * pixel, 8 * ptrdiff_t(q), -ptrdiff_t(pixel), {}};
    p.template passes<1, false, 6, 5, 4, 3, 2, 1, 0>();
    p.template passes<0, true, 0>();
    p.in = in + 8 * (q - 1);
    for (size_t a = 0; a < q; ++a, p.in -= floats_of_eight(q)) p.template passes<0, true, 7, 6, 5, 4, 3, 2, 1, 0>();
  }
}

// Planes of 16 q + 4 pixels, as those with sides of 10, 14 and 26 are: in registers of sixteen floats four of them are
// 4 q + 1, and the lanes that wait for each other, by one and two steps, are four pixels each.  Four channels of those
// are loaded and turned in one shuffle, and then wait; `groups` times four channels at one time.  (256x14x14: 0.5 to
// 0.8 of the time, Granite Rapids.)
constexpr size_t floats_of_four(size_t q) { return 16 * (4 * q + 1); }

template <class R, bool dense, int groups>
struct skewed_quads {
  const size_t q, pixel;
  const float* in;
  float* out;
  const typename R::order turned[4];
  typename R::vector one[groups] = {}, two[groups][2] = {};

  // Pixels 16 a + 4 i and the next three complete register (3 - i) q + a.
  template <int i, int step, bool complete>
  [[gnu::always_inline]] void pass() {
    QUERN_UNROLL for (int g = 0; g < groups; ++g) {
      const auto next = R::move_lanes(dense ? R::load(in) : R::template pieces<4>(in + 4 * g, pixel), turned[i]);
      const auto pair = R::template blend<0xf0f0>(one[g], next),
                 all = R::template blend<0xff00>(two[g][step % 2], pair);
      one[g] = next, two[g][step % 2] = pair;
      if (complete) {
        float* const planes = out + size_t(g) * floats_of_four(q);
        R::store(planes, all);
        __builtin_prefetch(planes + 16, 1, 3);
      }
    }
    in += 4 * pixel;
    if (complete) out -= 16 * q;
    __asm__("" : "+r"(in), "+r"(out));
  }
};

template <class R, bool dense, int groups>
void skewed_quads_to_planes(const skewed_f32& call) {
  const size_t q = call.q, pixel = call.pixel;
  for (size_t i = 0; i < call.count; ++i) {
    const float* const in = call.in + i * call.next;
    skewed_quads<R, dense, groups> s = {q,
                                        pixel,
                                        in + (16 * q - 8) * pixel,
                                        call.out + i * groups * floats_of_four(q) + 16 * 3 * q,
                                        {R::turned(0), R::turned(1), R::turned(2), R::turned(3)}};
    s.template pass<2, 1, false>(), s.template pass<3, 2, false>(), s.template pass<0, 3, false>();
    s.in = in;
    for (size_t a = 0; a < q; ++a, s.out += floats_of_four(q))
      s.template pass<0, 0, true>(), s.template pass<1, 1, true>(), s.template pass<2, 2, true>(),
          s.template pass<3, 3, true>();
    s.template pass<0, 0, true>();
  }
}

// The same of fours of channels, if the planes are such.
template <class R>
size_t reorder_skewed_quads(const reorder_f32& call, size_t c) {
  if (call.to.block != 1 || call.from.block < 4 || call.to.channel != call.pixels || call.pixels % 16 != 4 ||
      call.pixels == 4)
    return 0;
  using move = void (*)(const skewed_f32&);
  constexpr move moves[3] = {skewed_quads_to_planes<R, true, 1>, skewed_quads_to_planes<R, false, 2>,
                             skewed_quads_to_planes<R, false, 4>};
  const size_t left = call.channels - c, view = call.from.block < 16 ? call.from.block : 16;
  if (left < view || (view == 4 && call.from.pixel != 4)) return 0;
  const size_t count = left / view, next = call.from.block > 16 ? view : call.from.channel;
  moves[view / 8]({call.pixels / 16, count, call.src + offset_of(call.from, c), call.dst + offset_of(call.to, c), 0,
                   call.from.pixel, next});
  return count * view;
}

// Does what whole eights of channels there are from channel c on, if the planes are such.  Tiles do no less where all
// that is written is halves, and more where L1 keeps too few pixels.
template <class R>
size_t reorder_skewed(const reorder_f32& call, size_t c) {
  const bool to_planes = call.to.block == 1;
  const reorder_side &planes = to_planes ? call.to : call.from, &pixels = to_planes ? call.from : call.to;
  const size_t apart = lines_apart(call, pixels.pixel);
  if (planes.block != 1 || pixels.block == 1 || planes.channel != call.pixels || call.pixels % 8 != 1 ||
      call.pixels == 1 || (to_planes ? apart <= 8 : apart <= 16 || pixels.block == 4))
    return 0;
  using move = void (*)(const skewed_f32&);
  constexpr move moves[2][3] = {{nullptr, skewed_from_planes<R, 1>, skewed_from_planes<R, 2>},
                                {skewed_to_planes<R, 4, 1>, skewed_to_planes<R, 8, 1>, skewed_to_planes<R, 8, 2>}};
  // Both halves of a line of the cache at one time, but where it is still there for the second one.
  const size_t left = call.channels - c;
  const bool both = left >= 16 && (pixels.block == 16 || (pixels.block > 16 && (apart < call.pixels || !to_planes)));
  const size_t channels = both ? 16 : 8, count = left / channels;
  const size_t next = pixels.block > 16 ? channels : channels / pixels.block * pixels.channel;
  moves[to_planes][both ? 2 : pixels.block >= 8]({call.pixels / 8, count, call.src + offset_of(call.from, c),
                                                  call.dst + offset_of(call.to, c), pixels.channel, pixels.pixel,
                                                  next});
  return count * channels;
}

}  // namespace
}  // namespace quern
