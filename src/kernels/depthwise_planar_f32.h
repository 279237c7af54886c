// SPDX-License-Identifier: MIT
//
// The depthwise microkernel with pixels across the vector, once, over vector types; the contract is
// depthwise_planar_f32 in kernel.h.
//
// A tile is MR lines of one vector.  A vector of a line of src, shifted by a tap, is loaded once for all lines of
// the tile that it reaches; its weights are broadcast.  Lanes on padding are loaded as zeros, lines on padding are
// left out.  What a column of tiles needs is found once for all channels: a small plane takes few cycles.
//
// H is a vector of half the width, if there is one: the last column of a line takes it where it suffices.
//
// Under a filter of one row lines share nothing: a tile is vectors of a single line then, channel by channel, so that
// memory is read in order.
#pragma once

#include <algorithm>

#include "epilogue.h"
#include "kernel.h"
#include "pointers.h"

namespace quern {
namespace {

// What a block is: one channel, whose weights are broadcast, or several, whose weights fill a vector.
enum class block_of { one, several };

// A block of channels.
struct planar_place {
  const float* src;  // where d.src is for the first one
  const float* weights;
  float* dst;
  const float* residual;
  size_t channel, n;  // the first; how many
};

// A vector of the epilogue, lane by lane.
template <class V>
void spread(const depthwise_planar_f32& d, const planar_place& p, const float* from, float* to, float nothing) {
  for (size_t i = 0; i < V::width; ++i) {
    const size_t c = i & (d.block - 1);
    to[i] = from && c < p.n ? from[p.channel + c] : nothing;
  }
}

template <class V, block_of B>
[[gnu::always_inline]] inline V planar_bias(const depthwise_planar_f32& d, const planar_place& p) {
  const float* const bias = d.out.epilogue->bias;
  if (!bias) return V::set1(-0.0f);
  if (B == block_of::one) return V::set1(bias[p.channel]);
  alignas(64) float lane[V::width];
  spread<V>(d, p, bias, lane, 0.0f);
  return V::load(lane);
}

// Lanes of the first n channels of a block.
template <class V, block_of B>
typename V::lanes planar_channels(const depthwise_planar_f32& d, size_t n) {
  if constexpr (B == block_of::several) {
    alignas(64) float lane[V::width];
    for (size_t i = 0; i < V::width; ++i) lane[i] = (i & (d.block - 1)) < n ? 1.0f : 0.0f;
    if (n < d.block) return V::zero() < V::load(lane);
  }
  return V::range(0, V::width);
}

// One vector of pixels of every line, for blocks of n channels.
template <class V, int MASKS>
struct planar_column {
  ptrdiff_t src;         // to input 0 of its first output
  size_t dst, residual;  // to its first output
  size_t lanes, n;       // lanes of the line, from here on, at most a vector
  ptrdiff_t begin, end;  // inputs that exist, counted from input 0
  ptrdiff_t known;       // masks, where the line does not say how many
  typename V::lanes channels, stored;
  typename V::lanes mask[MASKS];  // as planar_line wants them

  // Lanes of pixels that exist, of the vector that lies `after` floats after input `input`.
  [[gnu::always_inline]] typename V::lanes existing(const depthwise_planar_f32& d, ptrdiff_t input,
                                                    ptrdiff_t after) const {
    const ptrdiff_t block = static_cast<ptrdiff_t>(d.block);
    return V::range((begin - input) * block - after, (end - input) * block - after) & channels;
  }
  void set(const depthwise_planar_f32& d, size_t x, typename V::lanes of_channels, size_t channels_there) {
    const size_t pixels = V::width / d.block;
    const epilogue_f32& e = *d.out.epilogue;
    // Where a pixel may be written twice, the last vector of a line is a whole one.
    const bool overlap = e.clamp_only && d.out.ldc == d.block && d.x.count >= pixels && d.x.count - x < pixels;
    if (overlap) x = d.x.count - pixels;
    const ptrdiff_t input = static_cast<ptrdiff_t>(x) * d.x.step;
    src = d.origin + input * static_cast<ptrdiff_t>(d.block);
    dst = x * d.out.ldc, residual = x * d.out.ldr;
    lanes = (d.x.count - x < pixels ? d.x.count - x : pixels) * d.block, n = channels_there;
    begin = d.x.begin - input, end = d.x.end - input;
    channels = of_channels;
    stored = V::range(0, static_cast<ptrdiff_t>(lanes)) & channels;
  }
};

// Finished lines of a tile on their way through the epilogue; V is the epilogue's vector, whose width is the tile's
// row.
template <class V>
[[gnu::noinline]] void finish_lines(const depthwise_planar_f32& d, const planar_place& p, size_t dst, size_t residual,
                                    size_t lanes, const float* tile, size_t y, size_t lines) {
  const epilogue_f32& e = *d.out.epilogue;
  alignas(64) float scale[V::width], bias[V::width], slope[V::width];
  epilogue_f32 by_lane = e;
  if (e.scale) spread<V>(d, p, e.scale, scale, 0.0f), by_lane.scale = scale;
  if (e.bias) spread<V>(d, p, e.bias, bias, 0.0f), by_lane.bias = bias;
  if (e.slope) spread<V>(d, p, e.slope, slope, 0.0f), by_lane.slope = slope;
  output_f32 out = d.out;
  out.channels_are_rows = false, out.channel = 0;
  out.epilogue = &by_lane;
  out.c = p.dst + (dst + y * d.y.dst);
  if (p.residual) out.residual = p.residual + (residual + y * d.y.residual);
  if (d.out.ldc == d.block && p.n == d.block && (!p.residual || d.out.ldr == d.block)) {
    out.ldc = d.y.dst, out.ldr = d.y.residual;
    return V::finish(out, lines, lanes, tile, V::width);
  }
  for (size_t i = 0; i < lines; ++i, out.c += d.y.dst, out.residual += p.residual ? d.y.residual : 0)
    V::finish(out, lanes / d.block, p.n, tile + i * V::width, d.block);
}

// F is the epilogue's vector, V or twice as wide.
template <class F, class V, int MR, class Column>
[[gnu::always_inline]] inline void store_lines(const depthwise_planar_f32& d, const planar_place& p, const Column& c,
                                               V bias, V (&acc)[MR], size_t y) {
  const epilogue_f32& e = *d.out.epilogue;
  const size_t lines = d.y.count - y;
  if (!e.clamp_only || d.out.ldc != d.block) {
    alignas(64) float tile[(MR + 1) * F::width] = {};  // finish() reads whole vectors
    QUERN_UNROLL for (int i = 0; i < MR; ++i) acc[i].store(tile + i * F::width);
    return finish_lines<F>(d, p, c.dst, c.residual, c.lanes, tile, y, lines < MR ? lines : MR);
  }
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  const bool whole = c.lanes == V::width && p.n == d.block;
  const size_t apart = d.y.dst;
  float* to = p.dst + (c.dst + y * apart);
  const bool past = d.out.stream && is_aligned<V>(to, apart);
  QUERN_UNROLL for (int i = 0; i < MR; ++i, to += apart) {
    if (__builtin_expect(static_cast<size_t>(i) >= lines, 0)) break;
    const V out = V::min(upper, V::max(lower, acc[i] + bias));
    if (whole && past)
      out.stream(to);
    else if (whole)
      out.store(to);
    else
      out.store_mask(to, c.stored);
  }
}

// Asks for what so many lines have under a column.  Lines of a plane come too far apart for the hardware to follow:
// from beyond L2 each was waited for (depthwise 3x3 of 144 channels, 192x192: 7 times as fast, Zen 5).
template <class V, int LINES, int STEP>
[[gnu::always_inline]] inline void fetch_lines(const float* line, ptrdiff_t apart) {
  QUERN_UNROLL for (int v = 0; v < LINES; ++v, line += apart) QUERN_UNROLL for (int i = 0; i < STEP; ++i)
      __builtin_prefetch(line + i * V::width);
}

// The inputs of a line as the taps meet them, for a filter K wide with a step of STEP.
template <class V, int K, int STEP, block_of B>
struct planar_line;

// Step 1: a load for each tap.
template <class V, int K, block_of B>
struct planar_line<V, K, 1, B> {
  static constexpr int masks = K, registers = 2;
  const ptrdiff_t apart;
  const float* line = nullptr;
  typename V::lanes mask[K];

  [[gnu::always_inline]] planar_line(const depthwise_planar_f32& d, const planar_column<V, masks>& c)
      : apart(d.apart * static_cast<ptrdiff_t>(d.block)) {
    QUERN_UNROLL for (int s = 0; s < K; ++s) mask[s] = c.mask[s], V::hold(mask[s]);
  }
  static void set(planar_column<V, masks>& c, const depthwise_planar_f32& d) {
    for (int s = 0; s < K; ++s) c.mask[s] = c.existing(d, s * d.apart, 0);
  }
  [[gnu::always_inline]] void load(const float* p) { line = p; }
  [[gnu::always_inline]] V get(int s) const { return V::load_mask(line + s * apart, mask[s]); }
};

// Step 2, one channel: two vectors and the first pixels of a third one, parted into even and odd.
template <class V, int K>
struct planar_line<V, K, 2, block_of::one> {
  static constexpr int W = V::width, masks = 3, registers = 5 + K;
  struct numbers {
    int32_t lane[K][W];
    constexpr numbers() : lane() {
      for (int s = 0; s < K; ++s)
        for (int i = 0; i < W; ++i) {
          const int j = i + s / 2, odd = s % 2;
          // Taps 0 and 1 come from the first two vectors; the others from those and the third.
          lane[s][i] = s < 2 ? 2 * i + odd : j < W ? j : W + 2 * (j - W) + odd;
        }
    }
  };
  static_assert(K <= W + 1, "the third vector ends before the last tap");
  typename V::index index[K];
  typename V::lanes mask[masks];
  V first[2], third;

  [[gnu::always_inline]] planar_line(const depthwise_planar_f32&, const planar_column<V, masks>& c) {
    static constexpr numbers from;
    QUERN_UNROLL for (int s = 0; s < K; ++s) index[s] = V::load_index(from.lane[s]);
    QUERN_UNROLL for (int i = 0; i < masks; ++i) mask[i] = c.mask[i], V::hold(mask[i]);
  }
  static void set(planar_column<V, masks>& c, const depthwise_planar_f32& d) {
    for (int i = 0; i < masks; ++i) c.mask[i] = c.existing(d, 0, i * W);
  }
  [[gnu::always_inline]] void load(const float* p) {
    const V a = V::load_mask(p, mask[0]), b = V::load_mask(p + W, mask[1]);
    third = V::load_mask(p + 2 * W, mask[2]);
    first[0] = V::pick(a, b, index[0]), first[1] = V::pick(a, b, index[1]);
  }
  [[gnu::always_inline]] V get(int s) const { return s < 2 ? first[s] : V::pick(first[s % 2], third, index[s]); }
};

// Where a lane by its number is dear: two vectors for every two taps, of which every second lane is taken in an order
// that outputs alone are brought out of.
template <class V, int K>
requires(requires(V v) { V::in_order(v); }) struct planar_line<V, K, 2, block_of::one> {
  static constexpr int W = V::width, masks = K + 1, registers = K + 1;
  const planar_column<V, masks>& column;
  bool whole;
  V tap[K];

  [[gnu::always_inline]] planar_line(const depthwise_planar_f32&, const planar_column<V, masks>& c)
      : column(c), whole(c.begin <= 0 && c.end >= K - 1 + 2 * W) {}
  static void set(planar_column<V, masks>& c, const depthwise_planar_f32& d) {
    for (int i = 0; i < masks; ++i) c.mask[i] = c.existing(d, i / 2 * 2, i % 2 * W);
  }
  [[gnu::always_inline]] void load(const float* p) {
    V part[masks];
    if (__builtin_expect(whole, 1))
      QUERN_UNROLL for (int i = 0; i < masks; ++i) part[i] = V::load(p + i / 2 * 2 + i % 2 * W);
    else
      QUERN_UNROLL for (int i = 0; i < masks; ++i) part[i] = V::load_mask(p + i / 2 * 2 + i % 2 * W, column.mask[i]);
    QUERN_UNROLL for (int s = 0; s < K; ++s) tap[s] =
        s % 2 ? V::odds(part[s - 1], part[s]) : V::evens(part[s], part[s + 1]);
  }
  [[gnu::always_inline]] V get(int s) const { return tap[s]; }
  [[gnu::always_inline]] static V in_order(V sum) { return V::in_order(sum); }
};

// The numbers of pixels 0 2 4 ... or 1 3 5 ... of two vectors, for blocks of 1, 4 and 8 channels.
template <class V>
[[gnu::always_inline]] inline typename V::index every_second(size_t block, int odd) {
  struct numbers {
    int32_t lane[3][2][V::width];
    constexpr numbers() : lane() {
      for (int b = 0; b < 3; ++b)
        for (int from = 0; from < 2; ++from)
          for (int i = 0; i < V::width; ++i) {
            const int channels = b == 0 ? 1 : 4 * b;
            lane[b][from][i] = 2 * i - i % channels + from * channels;
          }
    }
  };
  static constexpr numbers all;
  return V::load_index(all.lane[block / 4][odd]);
}

// Step 2, several channels: two vectors for every two taps.
template <class V, int K>
struct planar_line<V, K, 2, block_of::several> {
  static constexpr int W = V::width, masks = K + 1, registers = 5;
  const ptrdiff_t block;
  const planar_column<V, masks>& column;
  typename V::index index[2];
  V a, b;
  const float* line = nullptr;

  [[gnu::always_inline]] planar_line(const depthwise_planar_f32& d, const planar_column<V, masks>& c)
      : block(static_cast<ptrdiff_t>(d.block)), column(c) {
    for (int odd = 0; odd < 2; ++odd) index[odd] = every_second<V>(d.block, odd);
  }
  static void set(planar_column<V, masks>& c, const depthwise_planar_f32& d) {
    for (int i = 0; i < masks; ++i) c.mask[i] = c.existing(d, i / 2 * 2, i % 2 * W);
  }
  [[gnu::always_inline]] void load(const float* p) { line = p; }
  [[gnu::always_inline]] V get(int s) {
    if (s % 2 == 0) {
      a = V::load_mask(line + s * block, column.mask[s]);
      b = V::load_mask(line + s * block + W, column.mask[s + 1]);
    }
    return V::pick(a, b, index[s % 2]);
  }
};

// The weight of a tap in every lane.
template <class V, block_of B>
[[gnu::always_inline]] inline V planar_weight(const float* p) {
  return B == block_of::one ? V::set1(*p) : V::load(p);
}

// Tiles of MR lines for the filters that they are made for.
template <int MR, int K, int STEP>
struct planar_made {
  static constexpr int lines = MR;
  static constexpr bool any_filter = false;
  template <class V, block_of B>
  using line = planar_line<V, K, STEP, B>;

  template <class F, class V, block_of B>
  [[gnu::always_inline]] static void tile(const depthwise_planar_f32& d, const planar_place& p,
                                          const planar_column<V, line<V, B>::masks>& c, V bias, size_t y) {
    // As many weights as there are registers for stay in them.
    constexpr int count = K * K, room = V::registers - MR - line<V, B>::registers - 1,
                  kept = room < 1       ? 1
                         : room < count ? room
                                        : count;
    V acc[MR], weight[kept];
    QUERN_UNROLL for (int i = 0; i < MR; ++i) acc[i] = V::zero();
    if (d.planes) {
      constexpr ptrdiff_t lanes = B == block_of::one ? 1 : V::width;
      const float* weights = p.weights;
      // Once a tile: a compiler that knew them for the same ones would keep too many.
      __asm__("" : "+r"(weights));
      QUERN_UNROLL for (int i = 0; i < kept; ++i) weight[i] = planar_weight<V, B>(weights + i * lanes),
                                                  V::hold(weight[i]);
      line<V, B> inputs(d, c);
      const ptrdiff_t first = static_cast<ptrdiff_t>(y) * STEP, apart = d.y.src, begin = d.y.begin - first,
                      end = d.y.end - first;
      const float* at = p.src + (c.src + d.plane[0].a + first * apart);
      if (d.fetches) fetch_lines<V, MR * STEP, STEP>(at + ((MR - 1) * STEP + K) * apart, apart);
      QUERN_UNROLL for (int v = 0; v < (MR - 1) * STEP + K; ++v, at += apart) {
        __asm__("" : "+r"(at));
        // Lines on padding are few: the rest is to stand in one piece.
        if (__builtin_expect(v < begin || v >= end, 0)) continue;
        inputs.load(at);
        QUERN_UNROLL for (int s = 0; s < K; ++s) {
          const V x = inputs.get(s);
          QUERN_UNROLL for (int i = 0; i < MR; ++i) {
            const int r = v - i * STEP, tap = r * K + s;
            if (r >= 0 && r < K)
              acc[i] = V::fma(x, tap < kept ? weight[tap < kept ? tap : 0] : planar_weight<V, B>(weights + tap * lanes),
                              acc[i]);
          }
        }
      }
    }
    if constexpr (requires { line<V, B>::in_order(bias); })
      QUERN_UNROLL for (int i = 0; i < MR; ++i) acc[i] = line<V, B>::in_order(acc[i]);
    store_lines<F>(d, p, c, bias, acc, y);
  }
};

// The inputs of a line for any filter, step and dilation.  With step 1 the first taps have their masks at hand.
template <class V>
struct planar_line_any {
  static constexpr int masks = 32;

  static void set(planar_column<V, masks>& c, const depthwise_planar_f32& d) {
    c.known = d.x.step != 1 ? 0 : d.x.taps < masks ? static_cast<ptrdiff_t>(d.x.taps) : masks;
    for (ptrdiff_t s = 0; s < c.known; ++s) c.mask[s] = c.existing(d, s * d.apart, 0);
  }
  [[gnu::always_inline]] static V get(const float* line, ptrdiff_t s, const depthwise_planar_f32& d,
                                      const planar_column<V, masks>& c) {
    const ptrdiff_t input = s * d.apart;
    if (__builtin_expect(s >= c.known, 0)) return get_apart(line, input, d, c);
    return V::load_mask(line + input * static_cast<ptrdiff_t>(d.block), c.mask[s]);
  }
  [[gnu::noinline]] static V get_apart(const float* line, ptrdiff_t input, const depthwise_planar_f32& d,
                                       const planar_column<V, masks>& c) {
    const ptrdiff_t block = static_cast<ptrdiff_t>(d.block);
    const float* const p = line + input * block;
    if (d.x.step <= 2) {
      const V first = V::load_mask(p, c.existing(d, input, 0));
      if (d.x.step == 1) return first;
      return V::pick(first, V::load_mask(p + V::width, c.existing(d, input, V::width)), every_second<V>(d.block, 0));
    }
    // One by one.
    alignas(64) float lane[V::width] = {};
    for (size_t i = 0; i < c.lanes; ++i) {
      const ptrdiff_t x = static_cast<ptrdiff_t>(i / d.block) * d.x.step;
      if (x >= c.begin - input && x < c.end - input && i % d.block < c.n)
        lane[i] = p[x * block + static_cast<ptrdiff_t>(i % d.block)];
    }
    return V::load(lane);
  }
};

// Tiles for any filter.
template <int MR>
struct planar_any {
  static constexpr int lines = MR;
  static constexpr bool any_filter = true;
  static constexpr ptrdiff_t few_taps = 3;  // in a row: finding what lines share costs more than it saves
  template <class V, block_of B>
  using line = planar_line_any<V>;

  // Adds a line of the inputs to the sums from FROM to before TO; `weights` is the row that the first of all meets,
  // the next one meets the row before.  N of the first or of the last sums are known to the compiler, any others not.
  template <class V, int FROM, int TO, block_of B>
  [[gnu::always_inline]] static void add(V (&acc)[MR], ptrdiff_t from, ptrdiff_t to, const depthwise_planar_f32& d,
                                         const float* src, const float* weights,
                                         const planar_column<V, line<V, B>::masks>& c) {
    constexpr ptrdiff_t lanes = B == block_of::one ? 1 : V::width;
    const ptrdiff_t taps = static_cast<ptrdiff_t>(d.x.taps), up = d.y.step * taps * lanes;
    weights -= FROM * up;
    for (ptrdiff_t s = 0; s < taps; ++s, weights += lanes) {
      const V x = line<V, B>::get(src, s, d, c);
      pointers w(weights, -up);
      QUERN_UNROLL for (int i = FROM; i < TO; w.next(i - FROM), ++i) if (i >= from && i < to) acc[i] =
          V::fma(x, planar_weight<V, B>(w.get(i - FROM)), acc[i]);
    }
  }
  template <class V, int N, block_of B, class... Rest>
  [[gnu::always_inline]] static void add_some(V (&acc)[MR], ptrdiff_t from, ptrdiff_t to, const Rest&... rest) {
    if constexpr (N > 0) {
      if (from == 0 && to == N) return add<V, 0, N, B>(acc, 0, N, rest...);
      if (to == MR && from == MR - N) return add<V, MR - N, MR, B>(acc, MR - N, MR, rest...);
      add_some<V, N - 1, B>(acc, from, to, rest...);
    } else {
      add<V, 0, MR, B>(acc, from, to, rest...);
    }
  }

  // Adds a row of the filter to the sums from FROM to before TO, that of the first line at `src`: a load for each
  // product.
  template <class V, block_of B>
  [[gnu::always_inline]] static void add_row(V (&acc)[MR], ptrdiff_t from, ptrdiff_t to, const depthwise_planar_f32& d,
                                             const float* src, const float* weights,
                                             const planar_column<V, line<V, B>::masks>& c) {
    constexpr ptrdiff_t lanes = B == block_of::one ? 1 : V::width;
    const ptrdiff_t taps = static_cast<ptrdiff_t>(d.x.taps), apart = d.apart * static_cast<ptrdiff_t>(d.block);
    for (ptrdiff_t s = 0; s < taps; ++s, weights += lanes, src += apart) {
      const V w = planar_weight<V, B>(weights);
      const typename V::lanes mask = c.mask[s];
      pointers line(src, d.y.step * d.y.src);
      QUERN_UNROLL for (int i = 0; i < MR; line.next(i), ++i) if (i >= from && i < to) acc[i] =
          V::fma(V::load_mask(line.get(i), mask), w, acc[i]);
    }
  }

  template <class F, class V, block_of B>
  [[gnu::always_inline]] static void tile(const depthwise_planar_f32& d, const planar_place& p,
                                          const planar_column<V, line<V, B>::masks>& c, V bias, size_t y) {
    constexpr ptrdiff_t lanes = B == block_of::one ? 1 : V::width;
    V acc[MR];
    QUERN_UNROLL for (int i = 0; i < MR; ++i) acc[i] = V::zero();
    const ptrdiff_t step = d.y.step, rows = static_cast<ptrdiff_t>(d.y.taps);
    const ptrdiff_t high = static_cast<ptrdiff_t>(d.y.count - y < MR ? d.y.count - y : MR);
    const ptrdiff_t first = static_cast<ptrdiff_t>(y) * step, begin = d.y.begin - first, end = d.y.end - first,
                    taps = static_cast<ptrdiff_t>(d.x.taps) * lanes;
    for (size_t t = 0; t < d.planes; ++t) {
      const ptrdiff_t all = (high - 1) * step + rows;
      const float* at = p.src + (c.src + d.plane[t].a + first * d.y.src);
      if (d.fetches && step == 1) fetch_lines<V, MR, 1>(at + all * d.y.src, d.y.src);
      const float* weights = p.weights + d.plane[t].b * lanes;
      if (taps <= few_taps * lanes && c.known > 0) {
        // The first sum that meets the input line so far below.
        const auto meets = [&](ptrdiff_t below) {
          return below <= 0 ? 0 : step == 1 ? below : (below + step - 1) / step;
        };
        for (ptrdiff_t r = 0; r < rows; ++r, at += d.y.src, weights += taps) {
          const ptrdiff_t from = meets(begin - r), past = meets(end - r), to = past < high ? past : high;
          if (from == 0 && to == MR)
            add_row<V, B>(acc, 0, MR, d, at, weights, c);
          else
            add_row<V, B>(acc, from, to, d, at, weights, c);
        }
        continue;
      }
      for (ptrdiff_t v = begin > 0 ? begin : 0; v < all && v < end; ++v) {
        // Sum i meets row v - i * step of the filter.
        ptrdiff_t from = v < rows ? 0 : v - rows + 1, to = v;
        if (step > 1) from = (from + step - 1) / step, to /= step;
        to = to < high ? to + 1 : high;
        if (from < to) add_some<V, MR, B>(acc, from, to, d, at + v * d.y.src, weights + v * taps, c);
      }
    }
    store_lines<F>(d, p, c, bias, acc, y);
  }
};

// All blocks of channels; lines by tiles of T, from tile to tile along the line first.  Columns are found once for all
// of them, and all of a line go together, if no more than `most`: what comes back for the rest of its lines pays for
// memory twice (depthwise 3x3 of 64 channels, 512x512: 1.7 times as fast, Zen 5).
template <class T, class V, class H, block_of B>
[[gnu::noinline]] void planar_blocks(const depthwise_planar_f32& d) {
  using line = typename T::template line<V, B>;
  using half_line = typename T::template line<H, B>;
  constexpr bool halves = H::width < V::width && B == block_of::one;
  constexpr size_t room = 20 << 10, most = std::clamp<size_t>(room / sizeof(planar_column<V, line::masks>), 16, 64);
  planar_column<V, line::masks> column[most];
  planar_column<H, half_line::masks> half;
  const size_t pixels = V::width / d.block, all = (d.x.count + pixels - 1) / pixels;
  const size_t together = all <= most ? most : (all - 1) / ((all - 1) / most + 1) + 1;
  for (size_t x = 0, next = 0; x < d.x.count; x = next) {
    size_t columns = 0, n = 0;
    bool last = false;  // the last column takes half a vector
    const auto set = [&](size_t channels) {
      n = channels, columns = 0, next = x, last = false;
      for (; columns < together && next < d.x.count && !last; next += pixels) {
        last = halves && d.x.count - next <= H::width;
        if (last) {
          half.set(d, next, planar_channels<H, B>(d, n), n);
          half_line::set(half, d);
        } else {
          column[columns].set(d, next, planar_channels<V, B>(d, n), n);
          line::set(column[columns++], d);
        }
      }
    };
    planar_place p = {d.src, d.weights, d.out.c, d.out.residual, d.out.channel, 0};
    size_t turn = d.out.channel % d.multiplier;
    for (size_t c = 0; c < d.n; c += d.block) {
      p.n = d.n - c < d.block ? d.n - c : d.block;
      if (p.n != n) set(p.n);
      const V bias = planar_bias<V, B>(d, p);
      const H half_bias = planar_bias<H, B>(d, p);
      for (size_t y = 0; y < d.y.count; y += T::lines) {
        for (size_t i = 0; i < columns; ++i) T::template tile<V, V, B>(d, p, column[i], bias, y);
        if (last) T::template tile<V, H, B>(d, p, half, half_bias, y);
      }
      if (++turn == d.multiplier) turn = 0, p.src += d.src_block;
      p.weights += d.weights_block, p.dst += d.dst_block, p.channel += d.block;
      if (p.residual) p.residual += d.residual_block;
    }
  }
}

// Of a line under a filter of one row with step 1, N vectors from output x on, all of whose inputs exist.
template <class V, int N, block_of B>
[[gnu::always_inline]] inline void row_tile(const depthwise_planar_f32& d, const planar_place& p, V bias, size_t x,
                                            size_t y) {
  constexpr ptrdiff_t lanes = B == block_of::one ? 1 : V::width;
  const epilogue_f32& e = *d.out.epilogue;
  const ptrdiff_t block = static_cast<ptrdiff_t>(d.block);
  const float* src = p.src + (d.origin + d.plane[0].a + static_cast<ptrdiff_t>(y) * d.y.step * d.y.src +
                              static_cast<ptrdiff_t>(x) * block);
  const float* weights = p.weights + d.plane[0].b * lanes;
  V acc[N];
  QUERN_UNROLL for (V& sum : acc) sum = V::zero();
  for (size_t s = 0; s < d.x.taps; ++s, src += d.apart * block, weights += lanes) {
    const V w = planar_weight<V, B>(weights);
    QUERN_UNROLL for (int i = 0; i < N; ++i) acc[i] = V::fma(V::load(src + i * V::width), w, acc[i]);
  }
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  float* const to = p.dst + (y * d.y.dst + x * d.block);
  QUERN_UNROLL for (int i = 0; i < N; ++i) V::min(upper, V::max(lower, acc[i] + bias)).store(to + i * V::width);
}

// All blocks of channels under a filter of one row.  False: it takes the tiles of several lines.
template <class V, block_of B>
[[gnu::noinline]] bool planar_rows(const depthwise_planar_f32& d) {
  using T = planar_any<1>;
  constexpr size_t most = 16;
  if (d.x.step != 1 || d.y.taps != 1 || d.planes != 1 || d.y.begin > 0) return false;
  if (!d.out.epilogue->clamp_only || d.out.ldc != d.block || d.n % d.block) return false;
  if (static_cast<ptrdiff_t>(d.y.count) > (d.y.end + d.y.step - 1) / d.y.step) return false;
  // Outputs all of whose inputs exist, in whole vectors; the others by columns.
  const size_t pixels = V::width / d.block, columns = (d.x.count + pixels - 1) / pixels;
  const ptrdiff_t reach = static_cast<ptrdiff_t>(d.x.taps - 1) * d.apart, inner_end = d.x.end - reach;
  const size_t first = d.x.begin > 0 ? (static_cast<size_t>(d.x.begin) + pixels - 1) / pixels : 0;
  size_t end = inner_end > 0 ? static_cast<size_t>(inner_end) : 0;
  end = (end < d.x.count ? end : d.x.count) / pixels;
  if (end < first || first + columns - end > most) return false;
  planar_column<V, T::line<V, B>::masks> column[most];
  size_t count = 0;
  for (size_t i = 0; i < columns; ++i) {
    if (i == first) i = end;
    if (i == columns) break;
    column[count].set(d, i * pixels, planar_channels<V, B>(d, d.block), d.block);
    T::line<V, B>::set(column[count++], d);
  }
  planar_place p = {d.src, d.weights, d.out.c, d.out.residual, d.out.channel, d.block};
  size_t turn = d.out.channel % d.multiplier;
  for (size_t c = 0; c < d.n; c += d.block) {
    const V bias = planar_bias<V, B>(d, p);
    for (size_t y = 0; y < d.y.count; ++y) {
      size_t x = first;
      for (; x + 8 <= end; x += 8) row_tile<V, 8, B>(d, p, bias, x * pixels, y);
      for (; x < end; ++x) row_tile<V, 1, B>(d, p, bias, x * pixels, y);
      for (size_t i = 0; i < count; ++i) T::tile<V, V, B>(d, p, column[i], bias, y);
    }
    if (++turn == d.multiplier) turn = 0, p.src += d.src_block;
    p.weights += d.weights_block, p.dst += d.dst_block, p.channel += d.block;
  }
  return true;
}

template <class T, class V, class H>
void run_planar(const depthwise_planar_f32& d) {
  if constexpr (T::any_filter)
    if (d.block == 1 && planar_rows<V, block_of::one>(d)) return;
  if (d.block == 1) return planar_blocks<T, V, H, block_of::one>(d);
  if constexpr (V::width > 4) {
    if constexpr (T::any_filter)
      if (planar_rows<V, block_of::several>(d)) return;
    planar_blocks<T, V, V, block_of::several>(d);
  }
}

}  // namespace
}  // namespace quern
