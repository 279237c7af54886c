// SPDX-License-Identifier: MIT
//
// The microkernels of grouped convolution, once, over a vector type; the contract is grouped_f32 in kernel.h.
//
// NS lines of MR pixels stay in registers.  Every channel of a loaded pixel is spread over the lanes of its group's
// outputs and meets the weights of all taps of its row that reach it; channels are summed in their order.  NS is enough
// that the sums of a channel, NS for each tap, cover the latency of the multiply-adds.  `Pixel` says how:
//
//   Pixel(g)                 what it needs of a call
//   channels                 of a group, 0: as many as the call says
//   each<NS>(p, line, meet)  meet(c, spread) for every channel c of the NS pixels at p + h * line; spread(h) is a
//                            factor, factor(w, sum) is sum with that channel times w added
#pragma once

#include <algorithm>

#include "each_number.h"
#include "epilogue.h"
#include "fetch.h"
#include "kernel.h"

namespace quern {
namespace {

template <class V>
struct factor {
  V v;
  [[gnu::always_inline]] V operator()(V w, V sum) const { return V::fma(v, w, sum); }
};

// Whole groups in a vector: channels are copied from lane to lane, by fours.  `Lanes` says how:
//
//   Lanes(g)          what it needs of a call
//   load(p)           the pixel at p
//   four(v, u)        four u of every group of 8, in all lanes of that group
//   load_four(p, u)   four u of the pixel at p, in every four lanes: where it is one group
//   lane<J>(v)        channel J of the four to all lanes of its group
template <class V, class Lanes, int GROUP>
struct groups_in_lanes {
  static constexpr int channels = GROUP;
  Lanes lanes;

  explicit groups_in_lanes(const grouped_f32& g) : lanes(g) {}
  template <int NS, class Meet>
  [[gnu::always_inline]] void each(const float* p, ptrdiff_t line, const Meet& meet) const {
    const auto meet_four = [&](size_t u, const V(&four)[NS]) __attribute__((always_inline)) {
      each_number<0, 4>([&]<int J>() __attribute__((always_inline)) {
        meet(
            u * 4 + J, [&](int h)
                           __attribute__((always_inline)) { return factor<V>{Lanes::template lane<J>(four[h])}; });
      });
    };
    V all[NS];
    if constexpr (GROUP == V::width) {  // rolled: four times less code, and loads that copy are no slower
      QUERN_ROLL for (size_t u = 0; u < GROUP / 4; ++u) {
        QUERN_UNROLL for (int h = 0; h < NS; ++h) all[h] = lanes.load_four(p + h * line, u);
        meet_four(u, all);
      }
      return;
    }
    QUERN_UNROLL for (int h = 0; h < NS; ++h) all[h] = lanes.load(p + h * line);
    if constexpr (GROUP == 4) {
      meet_four(0, all);
    } else {
      QUERN_UNROLL for (size_t u = 0; u < GROUP / 4; ++u) {
        V four[NS];
        QUERN_UNROLL for (int h = 0; h < NS; ++h) four[h] = Lanes::four(all[h], u);
        meet_four(u, four);
      }
    }
  }
};

// Whole groups of any few channels: lanes are copied by the table of a call.
template <class V>
struct few_in_lanes {
  static constexpr int channels = 0;
  size_t count, inputs;
  const int32_t* lanes;

  explicit few_in_lanes(const grouped_f32& g) : count(g.channels), inputs(g.inputs), lanes(g.lanes) {}
  template <int NS, class Meet>
  [[gnu::always_inline]] void each(const float* p, ptrdiff_t line, const Meet& meet) const {
    V all[NS];
    QUERN_UNROLL for (int h = 0; h < NS; ++h) {
      const float* const at = p + h * line;
      all[h] = __builtin_expect(inputs == V::width, 1) ? V::load(at) : V::load_part(at, inputs);
    }
    QUERN_ROLL for (size_t c = 0; c < count; ++c) {
      const typename V::index from = V::load_index(lanes + c * V::width);
      meet(
          c, [&](int h) __attribute__((always_inline)) { return factor<V>{V::permute(all[h], from)}; });
    }
  }
};

// Four channels of a pixel: each from memory to all lanes, or lanes of a register where instructions multiply by those.
template <class V>
struct four_channels {
  const float* at;
  [[gnu::always_inline]] static four_channels load(const float* p) { return {p}; }
  template <int J>
  [[gnu::always_inline]] factor<V> get() const {
    factor<V> f = {V::set1(at[J])};
    V::hold(f.v);
    return f;
  }
};

template <class V, int J>
struct lane_factor {
  typename V::factors v;
  [[gnu::always_inline]] V operator()(V w, V sum) const { return V::template fma_lane<J>(v, w, sum); }
};

template <class V>
requires(requires { typename V::factors; } && !V::lanes_are_copied) struct four_channels<V> {
  typename V::factors v;
  [[gnu::always_inline]] static four_channels load(const float* p) { return {V::load_factors(p)}; }
  template <int J>
  [[gnu::always_inline]] lane_factor<V, J> get() const {
    return {v};
  }
};

// One group in all lanes, its channels in runs of any length.
template <class V>
struct group_of_any {
  static constexpr int channels = 0;
  size_t count, run;
  ptrdiff_t next;

  explicit group_of_any(const grouped_f32& g) : count(g.channels), run(g.run), next(g.src_run) {}
  template <int NS, class Meet>
  [[gnu::always_inline]] void each(const float* p, ptrdiff_t line, const Meet& meet) const {
    for (size_t c = 0; c < count; p += next) {
      const float *at = p, *const end = p + run;
      QUERN_ROLL for (; end - at >= 4; at += 4, c += 4) {
        four_channels<V> four[NS];
        QUERN_UNROLL for (int h = 0; h < NS; ++h) four[h] = four_channels<V>::load(at + h * line);
        each_number<0, 4>([&]<int J>() __attribute__((always_inline)) {
          meet(
              c + J, [&](int h) __attribute__((always_inline)) { return four[h].template get<J>(); });
        });
      }
      QUERN_ROLL for (; at != end; ++at) meet(
          c++, [&](int h) __attribute__((always_inline)) {
            factor<V> f = {V::set1(at[h * line])};
            V::hold(f.v);
            return f;
          });
    }
  }
};

// Lines of mr sums each, the first m of them wanted.  One copy for all kernels of a file.
template <class V>
[[gnu::noinline]] void finish_lines(const grouped_f32& g, size_t lines, size_t mr, const float* tile) {
  constexpr size_t half = V::width / 2;
  const bool together = g.n <= half || (g.dst_half == half && (!g.out.residual || g.residual_half == half));
  for (size_t line = 0; line < lines; ++line, tile += mr * V::width) {
    output_f32 out = g.out;
    out.c += static_cast<ptrdiff_t>(line) * g.dst_line;
    if (out.residual) out.residual += static_cast<ptrdiff_t>(line) * g.residual_line;
    V::finish(out, g.m, together ? g.n : half, tile, V::width);
    if (together) continue;
    out.c += g.dst_half, out.channel += half;
    if (out.residual) out.residual += g.residual_half;
    V::finish(out, g.m, g.n - half, tile + half, V::width);
  }
}

// FETCHES: what the call asks for comes meanwhile.  Who asks for nothing is not to pay for it (a fifteenth, 4 channels
// a group).
template <class V, class Pixel, int NS, int MR, int TAPS, int STEP, bool FETCHES>
void strips(const grouped_f32& g) {
  constexpr size_t W = V::width;
  constexpr bool weights_in_registers = Pixel::channels == 4 && (NS * MR + TAPS * 4) * 2 <= 56 && W == 16;
  // Whether an input so far from an output's first tap belongs to one.
  constexpr auto reaches = [](int x) { return x >= 0 && x % STEP == 0 && x / STEP < MR; };
  V acc[NS][MR];
  QUERN_UNROLL for (int h = 0; h < NS; ++h) QUERN_UNROLL for (int i = 0; i < MR; ++i) {
    acc[h][i] = V::zero();
    V::hold(acc[h][i]);  // or the compiler keeps flags of which are still zero
  }
  for (int h = 0; h < NS; ++h) claim(g.out.c + h * g.dst_line, g.m, g.out.ldc);
  const Pixel pixel(g);
  lines_ahead ahead[2] = {};
  size_t beside = 0;  // a row
  if constexpr (FETCHES)
    ahead[0] = g.ahead[0], ahead[1] = g.ahead[1], beside = (NS * MR + g.rows - 1) / std::max<size_t>(g.rows, 1);
  for (size_t r = 0; r < g.rows; ++r) {
    if constexpr (FETCHES) fetch(ahead, beside);
    const float* at = g.src + g.row[r].a;
    const float* const weights = g.weights + g.row[r].b;
    const uint32_t inside = *g.row[r].inside;
    V kept[weights_in_registers ? TAPS * 4 : 1];
    if constexpr (weights_in_registers) QUERN_UNROLL for (int w = 0; w < TAPS * 4; ++w) {
        kept[w] = V::load(weights + w * W);
        V::hold(kept[w]);
      }
    each_number<0, (MR - 1) * STEP + TAPS>([&]<int x>() __attribute__((always_inline)) {
      // A channel of all lines meets its taps.
      const auto meet = [&](size_t c, const auto& spread) __attribute__((always_inline)) {
        V w[TAPS];
        QUERN_UNROLL for (int s = 0; s < TAPS; ++s) if (reaches(x - s)) {
          if constexpr (weights_in_registers) {
            w[s] = kept[c * TAPS + s];
          } else {
            w[s] = V::load(weights + (c * TAPS + s) * W);
            if (NS > 1) V::hold(w[s]);  // one load for all lines, not one for each
          }
        }
        QUERN_UNROLL for (int h = 0; h < NS; ++h) {
          const auto channel = spread(h);
          QUERN_UNROLL for (int s = 0; s < TAPS; ++s) if (reaches(x - s)) {
            V& sum = acc[h][(x - s) / STEP];
            sum = channel(w[s], sum);
          }
        }
      };
      if (__builtin_expect((inside >> x & 1) != 0, 1)) pixel.template each<NS>(at, g.src_line, meet);
      at += g.src_pixel;
    });
  }

  const epilogue_f32& e = *g.out.epilogue;
  const bool whole = g.n == W, apart = g.n > W / 2 && g.dst_half != W / 2;
  if (!e.clamp_only || (apart && !whole)) {
    alignas(64) float buffer[(NS * MR + 1) * W];  // the second half of the last vector is read as a whole one
    QUERN_UNROLL for (int h = 0; h < NS; ++h) QUERN_UNROLL for (int i = 0; i < MR; ++i) acc[h][i].store(
        buffer + (h * MR + i) * W);
    return finish_lines<V>(g, NS, MR, buffer);
  }
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  const float* const biases = e.bias ? e.bias + g.out.channel : nullptr;
  const V bias = !biases ? V::set1(-0.0f) : whole ? V::load(biases) : V::load_part(biases, g.n);
  QUERN_UNROLL for (int h = 0; h < NS; ++h) {
    float* c = g.out.c + h * g.dst_line;
    QUERN_UNROLL for (int i = 0; i < MR; ++i, c += g.out.ldc) {
      if (static_cast<size_t>(i) >= g.m) break;
      const V y = V::min(upper, V::max(lower, acc[h][i] + bias));
      if (apart)
        y.store_halves(c, c + g.dst_half);
      else if (whole)
        y.store(c);
      else
        y.store_part(c, g.n);
    }
  }
}

// The instance for as many lines as the call has; the highest is asked for first, and is the one that fetches.
template <class V, class Pixel, int NS, int MR, int TAPS, int STEP, bool HIGHEST = true>
void run_grouped(const grouped_f32& g) {
  if constexpr (NS > 1) {
    if (g.lines < NS) return run_grouped<V, Pixel, NS - 1, MR, TAPS, STEP, false>(g);
  }
  if constexpr (HIGHEST) {
    if (g.ahead[0].count > 0) return strips<V, Pixel, NS, MR, TAPS, STEP, true>(g);
  }
  strips<V, Pixel, NS, MR, TAPS, STEP, false>(g);
}

}  // namespace
}  // namespace quern
