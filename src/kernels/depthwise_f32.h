// SPDX-License-Identifier: MIT
//
// The depthwise microkernel with channels across the vector, once, over a vector type; the contract is
// depthwise_f32 in kernel.h.
//
// MR pixels of a line stay in registers, of one vector of channels.  With the filter's width and step known, a
// loaded pixel feeds every tap of its row that reaches it, and weights are loaded once a row.  Widths below MR
// and the ends of a line take smaller strips, or one that lies over the last.  Pixels on padding are jumped over: no
// pixel is multiplied that is not there.  3x3 filters at stride 1 take lines by two or three, vectors that share a line
// of the cache each line of outputs one after the other, and small images all vectors.
#pragma once

#include <type_traits>

#include "each_number.h"
#include "epilogue.h"
#include "fetch.h"
#include "kernel.h"
#include "pointers.h"

namespace quern {
namespace {

// One vector of channels of a call, or those that a line of the cache holds.
struct depthwise_column {
  const float* src;  // input 0 of both axes
  const float* weights;
  float* dst;
  const float* residual;
  size_t channel, count;  // the first output channel; how many
  size_t first, inputs;   // with a multiplier: input channel of src, how many of them
  lines_ahead* ahead;     // inputs, outputs; NULL: none
  bool stream;            // whole vectors go past the caches
  bool bare;              // one plane, sums that are bounded at most, nothing to fetch or to stream
  size_t vectors;         // of channels, whole ones where there are several
  float* room;            // for sums on their way through the epilogue
};

// They go by so many pixels of a line: what comes before and after the loop over them is much for a strip (3x3 and
// SiLU: 1.3 times as fast, Zen 3).
constexpr size_t pixels_waiting = 56;

// The lines of outputs from `y` to `past`, LINES at a time, of each of so many vectors.  Vectors of eight share lines
// of the cache: they take turns by the line.  Of wider ones the filter's lines stay in L1.
template <class V, size_t LINES>
struct turns {
  size_t v = 0, y, begin, past, vectors;
  [[gnu::always_inline]] turns(size_t count, size_t first, size_t end)
      : y(first), begin(first), past(end), vectors(first < end ? count : 0) {}
  [[gnu::always_inline]] explicit operator bool() const { return V::width < 16 ? y < past : v < vectors; }
  [[gnu::always_inline]] void next() {
    if constexpr (V::width < 16) {
      if (++v == vectors) v = 0, y += LINES;
    } else {
      y += LINES;
      if (y >= past) y = begin, ++v;
    }
  }
};

// One copy: strips are many, and begin with empty registers.
[[gnu::noinline]] inline void fetch_between(lines_ahead* ahead, size_t vectors) { fetch(ahead, vectors); }

// A line of outputs asks for what another one, further down, reads beyond it.  With a step of two that is three lines
// on, into L1: strips go down the lines, and the next one came too early for memory (a tenth to a sixth slower, Zen 5).
// With a step of one the rest of the line comes first, and L2 keeps what was asked for.
template <int STEP>
struct line_below {
  static constexpr ptrdiff_t lead = STEP > 1 ? 3 : 1;  // lines of outputs

  [[gnu::always_inline]] static void fetch(const depthwise_f32& d, const float* line, ptrdiff_t pixels) {
    for (ptrdiff_t y = 0; y < d.y.step; ++y, line += d.y.src) {
      const float* at = line;
      QUERN_ROLL for (ptrdiff_t x = 0; x < pixels; ++x, at += d.x.src) __builtin_prefetch(at, 0, STEP > 1 ? 3 : 2);
    }
  }
};

// How a vector of pixels is read: whole, as many channels as there are, or those spread over the outputs of a
// multiplier.  Dense ones are whole, follow each other in src and dst, and have a plain epilogue and one plane: what
// need not be asked or kept is much beside a strip of seven (5x5 1.1, 3x3 at a step of two 1.17 times as fast, Zen 3).
enum class lanes { whole, part, spread, dense };

template <class V, lanes L>
struct pixel_loader {
  size_t count;
  typename V::index index;

  pixel_loader(const depthwise_f32& d, const depthwise_column& k) : count(k.inputs) {
    if constexpr (L == lanes::spread) {
      alignas(64) int32_t lane[V::width];
      for (size_t i = 0; i < V::width; ++i)
        lane[i] = i < k.count ? static_cast<int32_t>((k.channel + i) / d.multiplier - k.first) : 0;
      index = V::load_index(lane);
    }
  }
  [[gnu::always_inline]] V operator()(const float* p) const {
    if constexpr (L == lanes::whole || L == lanes::dense) return V::load(p);
    if constexpr (L == lanes::part) return V::load_part(p, count);
    return V::permute(V::load_part(p, count), index);
  }
};

// Which inputs of a strip may be padding: none, some of the first and last taps - 1, any.
enum missing { none, some, any };

// Pixels of a line that two lines or three take at once, 0: none.  Squares of three, of which 32 registers hold all
// weights beside the sums of three lines (a tenth of what L2 keeps, a fifth of 7x7, Granite Rapids), 16 those of two
// rows beside the sums of two lines.
template <class V, int TAPS, int STEP>
constexpr int together = TAPS != 3 || STEP != 1 ? 0
                         : V::width == 16       ? 7
                         : V::width == 8        ? 4
                                                : 0;

// Adds T taps of a row to MR sums; p is input 0, inputs from `begin` to `end` exist.  STEP 0: any, inputs of
// neighbouring outputs are one pixel of `p` apart, and `step` in number.
template <class V, int MR, int T, int STEP, missing MISS, class Load, class Pixels>
[[gnu::always_inline]] inline void add_taps(V (&acc)[MR], const Load& load, Pixels p, const float* weights,
                                            ptrdiff_t step, ptrdiff_t begin, ptrdiff_t end) {
  V w[T];
  QUERN_UNROLL for (int s = 0; s < T; ++s) w[s] = V::load(weights + s * V::width);
  if constexpr (STEP > 0) {
    constexpr int inputs = (MR - 1) * STEP + T;
    QUERN_UNROLL for (int x = 0; x < inputs; p.next(x), ++x) {
      if ((MISS == any || (MISS == some && x < T - 1)) && x < begin) continue;
      if ((MISS == any || (MISS == some && x >= inputs - (T - 1))) && x >= end) continue;
      if (T < STEP && x % STEP >= T) continue;
      V v = load(p.get(x));
      if constexpr (T > 1) V::hold(v);
      QUERN_UNROLL for (int s = 0; s < T; ++s) if (x >= s && (x - s) % STEP == 0 && (x - s) / STEP < MR)
          acc[(x - s) / STEP] = V::fma(v, w[s], acc[(x - s) / STEP]);
    }
  } else {
    static_assert(T == 1);
    ptrdiff_t x = 0;
    QUERN_UNROLL for (int i = 0; i < MR; p.next(i), ++i, x += step) if (x >= begin && x < end) acc[i] =
        V::fma(load(p.get(i)), w[0], acc[i]);
  }
}

// LINES lines of outputs at a time, from line y to line `past`, of filters TAPS wide and high: a strip of MR pixels of
// all of them, one strip after the other, the last one over the one before where they do not come out even.  A pixel is
// loaded once for what is above and below it, beside weights that stay in registers, or those of its row.
template <class V, int LINES, int MR, int TAPS, missing MISS, bool DENSE>
void run_lines(const depthwise_f32& d, const depthwise_column& k, size_t y, size_t past, size_t x, size_t pixels) {
  constexpr int rows = LINES + TAPS - 1, inputs = MR + TAPS - 1;
  using pixels_of = std::conditional_t<DENSE, vectors_in_a_row<V>, pointers>;
  const ptrdiff_t x_src = DENSE ? static_cast<ptrdiff_t>(V::width) : d.x.src;
  const size_t x_dst = DENSE ? V::width : d.out.ldc;
  constexpr bool kept = V::width == 16;
  constexpr int first_kept = LINES > 2;  // beside 21 sums all nine do not fit: some were stored and loaded again
  const epilogue_f32* e = d.out.epilogue;
  for (turns<V, LINES> at(k.vectors, y, past); at; at.next()) {
    const size_t v = at.v, channel = v * V::width;
    y = at.y;
    const float* const weights = k.weights + v * d.weights_vector + d.plane[0].b * static_cast<ptrdiff_t>(V::width);
    const auto weight = [&](int r, int s) __attribute__((always_inline)) {
      V w = V::load(weights + (r * TAPS + s) * static_cast<int>(V::width));
      V::hold(w);
      return w;
    };
    V w[TAPS][TAPS];
    if (kept)
      QUERN_UNROLL for (int r = first_kept; r < TAPS; ++r) QUERN_UNROLL for (int s = 0; s < TAPS; ++s) w[r][s] =
          weight(r, s);
    const ptrdiff_t first = d.y.begin - static_cast<ptrdiff_t>(y), last = d.y.end - static_cast<ptrdiff_t>(y);
    const float* src = k.src + v * d.src_vector +
                       (d.plane[0].a + static_cast<ptrdiff_t>(y) * d.y.src + static_cast<ptrdiff_t>(x) * x_src);
    float* dst = k.dst + v * d.dst_vector + y * d.y.dst + x * x_dst;
    const float* const bias = e->bias ? e->bias + k.channel + channel : nullptr;
    ptrdiff_t begin = d.x.begin - static_cast<ptrdiff_t>(x), end = d.x.end - static_cast<ptrdiff_t>(x);
    const pixels_of from(src, x_src), to(dst, static_cast<ptrdiff_t>(x_dst));
    const ptrdiff_t line = d.y.src * static_cast<ptrdiff_t>(sizeof(float));
    for (ptrdiff_t left = static_cast<ptrdiff_t>(pixels);;) {
      V acc[LINES][MR];
      QUERN_UNROLL for (int l = 0; l < LINES; ++l) QUERN_UNROLL for (int j = 0; j < MR; ++j) acc[l][j] = V::zero();
      const char* row = reinterpret_cast<const char*>(src);
      each_number<0, rows>([&]<int r>() __attribute__((always_inline)) {
        if (r >= first && r < last) {
          V own[LINES][TAPS];
          if (!kept)
            QUERN_UNROLL for (int l = 0; l < LINES; ++l)
                QUERN_UNROLL for (int s = 0; s < TAPS; ++s) if (r >= l && r - l < TAPS) own[l][s] = weight(r - l, s);
          pixels_of p = from;
          p.at = row;
          QUERN_UNROLL for (int c = 0; c < inputs; p.next(c), ++c) {
            if (MISS != none && ((c < TAPS - 1 && c < begin) || (c >= MR && c >= end))) continue;
            V pixel = V::load(p.get(c));
            V::hold(pixel);
            QUERN_UNROLL for (int l = 0; l < LINES; ++l) QUERN_UNROLL for (int s = 0; s < TAPS; ++s) {
              if (r < l || r - l >= TAPS || c < s || c - s >= MR) continue;
              const V by = !kept                ? own[l][s]
                           : r - l < first_kept ? V::load(weights + s * static_cast<int>(V::width))
                                                : w[r - l][s];
              acc[l][c - s] = V::fma(pixel, by, acc[l][c - s]);
            }
          }
        }
        row += line;
        __asm__("" : "+r"(row));
      });
      __asm__("" : "+r"(e));
      V add = bias ? V::load(bias) : V::set1(-0.0f);
      if (d.bounded_above) {
        const V upper = V::set1(e->upper);
        QUERN_UNROLL for (int l = 0; l < LINES; ++l) QUERN_UNROLL for (int j = 0; j < MR; ++j) acc[l][j] =
            V::min(upper, acc[l][j] + add);
        add = V::set1(-0.0f);
      }
      // Sum after sum: a store takes no time of the units that multiply if what is stored has just been added and
      // bounded, one behind others does (a twentieth, Zen 4).
      const V lower = V::set1(e->lower);
      float* out = dst;
      QUERN_UNROLL for (int l = 0; l < LINES; ++l, out += d.y.dst) {
        pixels_of p = to;
        p.at = reinterpret_cast<const char*>(out);
        QUERN_UNROLL for (int j = 0; j < MR; p.next(j), ++j) {
          V sum = acc[l][j];
          V::order(sum);
          sum = V::max(lower, sum + add);
          V::order(sum);
          sum.store(const_cast<float*>(p.get(j)));
        }
      }
      left -= MR;
      if (left <= 0) break;
      const ptrdiff_t on = left < MR ? left : MR;
      src += on * x_src, begin -= on, end -= on, dst += static_cast<size_t>(on) * x_dst;
      left += MR - on;
    }
  }
}

// Sums of so many pixels on their way through the epilogue, but for the first `skip`.  One copy, as it is long.
template <class V>
[[gnu::noinline]] void finish_pixels(const depthwise_f32& d, const depthwise_column& k, size_t vector, size_t y,
                                     size_t x, size_t pixels, size_t skip) {
  x += skip;
  output_f32 out = d.out;
  out.c = k.dst + vector * d.dst_vector + y * d.y.dst + x * d.out.ldc, out.channel = k.channel + vector * V::width;
  if (k.residual) out.residual = k.residual + vector * d.residual_vector + y * d.y.residual + x * d.out.ldr;
  V::finish(out, pixels - skip, k.count, k.room + skip * V::width, V::width);
}

// `strips` strips of MR pixels from pixel x on, in every line; the first `skip` pixels are there already.
template <class V, int MR, int TAPS, int STEP, missing MISS, lanes L, bool FETCHES = false>
void run_strips(const depthwise_f32& d, const depthwise_column& k, size_t x, size_t strips, size_t skip) {
  const pixel_loader<V, L> load(d, k);
  const epilogue_f32& e = *d.out.epilogue;
  constexpr bool dense = L == lanes::dense, part = L == lanes::part || L == lanes::spread;
  constexpr bool may_stream = L == lanes::whole && V::width == 16;
  using pixels_of = std::conditional_t<dense, vectors_in_a_row<V>, pointers>;
  constexpr size_t strips_waiting = MR < 14 ? 8 : 4;
  static_assert(strips_waiting * MR <= pixels_waiting);
  const V lower = V::set1(e.lower), upper = V::set1(e.upper);
  const bool plain = dense || e.clamp_only, below = d.bounded_below, above = d.bounded_above;
  const ptrdiff_t advance = MR * (dense ? STEP : d.x.step);  // inputs from strip to strip
  const ptrdiff_t next_src = advance * (dense ? static_cast<ptrdiff_t>(V::width) : d.x.src);
  const size_t next_dst = MR * (dense ? V::width : d.out.ldc);
  const gemm_tap only = dense ? d.plane[0] : gemm_tap{};
  const ptrdiff_t taps = static_cast<ptrdiff_t>(TAPS ? TAPS : d.x.taps);
  size_t y = 0;
  constexpr int pixels = part || FETCHES || MR % 7 ? 0 : together<V, TAPS, STEP>;
  if constexpr (pixels != 0) {
    if (plain && d.y.taps == TAPS && d.y.step == 1 && k.bare) {
      if constexpr (V::width == 16) {
        // By three, but for four that two pairs take.
        y = d.y.count % 3 == 1 && d.y.count > 1 ? d.y.count - 4 : d.y.count / 3 * 3;
        run_lines<V, 3, pixels, TAPS, MISS, dense>(d, k, 0, y, x, MR * strips);
      }
      const size_t pairs = y + (d.y.count - y) / 2 * 2;
      run_lines<V, 2, pixels, TAPS, MISS, dense>(d, k, y, pairs, x, MR * strips);
      y = pairs;
    }
  }
  for (turns<V, 1> at(k.vectors, y, d.y.count); at; at.next()) {
    const size_t v = at.v, c = v * V::width;
    y = at.y;
    V bias = V::set1(-0.0f);
    if (e.bias && e.clamp_only)
      bias = part ? V::load_part(e.bias + k.channel, k.count) : V::load(e.bias + k.channel + c);
    const ptrdiff_t line = static_cast<ptrdiff_t>(y) * d.y.step;
    const ptrdiff_t first = line < d.y.begin ? d.y.begin - line : 0;
    const ptrdiff_t most = static_cast<ptrdiff_t>(d.y.taps), left = d.y.end - line;
    const ptrdiff_t rows = (left < most ? left : most) - first;
    const float* src =
        k.src + v * d.src_vector + ((line + first) * d.y.src + static_cast<ptrdiff_t>(x) * d.x.step * d.x.src);
    const float* const weights = k.weights + v * d.weights_vector + first * taps * static_cast<ptrdiff_t>(V::width);
    ptrdiff_t begin = d.x.begin - static_cast<ptrdiff_t>(x) * d.x.step,
              end = d.x.end - static_cast<ptrdiff_t>(x) * d.x.step;
    float* dst = k.dst + v * d.dst_vector + y * d.y.dst + x * d.out.ldc;
    using next_line = line_below<STEP>;
    const ptrdiff_t wanted = most + (next_line::lead - 1) * d.y.step;
    const bool fetches = FETCHES && d.fetches && line + wanted + d.y.step <= d.y.end;
    for (size_t i = 0; i < strips; ++i) {
      V acc[MR];
      QUERN_UNROLL for (int j = 0; j < MR; ++j) acc[j] = V::zero();
      if constexpr (FETCHES) {
        if (fetches) next_line::fetch(d, src + (wanted - first) * d.y.src, advance);
      }
      if (!dense && k.ahead) fetch_between(k.ahead, MR);
      for (size_t t = 0; t < (dense ? 1 : d.planes); ++t) {
        const gemm_tap plane = dense ? only : d.plane[t];
        const float* row = src + plane.a;
        const float* w = weights + plane.b * static_cast<ptrdiff_t>(V::width);
        for (ptrdiff_t r = 0; r < rows; ++r, row += d.y.src) {
          if constexpr (TAPS > 0) {
            add_taps<V, MR, TAPS, STEP, MISS>(acc, load, pixels_of(row, d.x.src), w, 0, begin, end);
            w += TAPS * V::width;
          } else {
            ptrdiff_t s = 0;
            if constexpr (STEP > 0) {
              for (; taps - s >= 4; s += 4, w += 4 * V::width)
                add_taps<V, MR, 4, STEP, MISS>(acc, load, pointers(row + s * d.x.src, d.x.src), w, 0, begin - s,
                                               end - s);
              if (taps - s >= 2) {
                add_taps<V, MR, 2, STEP, MISS>(acc, load, pointers(row + s * d.x.src, d.x.src), w, 0, begin - s,
                                               end - s);
                s += 2, w += 2 * V::width;
              }
            }
            for (; s < taps; ++s, w += V::width)
              add_taps<V, MR, 1, STEP, MISS>(acc, load, pointers(row + s * d.x.src, d.x.src * d.x.step), w, d.x.step,
                                             begin - s, end - s);
          }
        }
      }
      if (plain) {
        QUERN_UNROLL for (int j = 0; j < MR; ++j) acc[j] = acc[j] + bias;
        if (below) QUERN_UNROLL for (int j = 0; j < MR; ++j) acc[j] = V::max(lower, acc[j]);
        if (above) QUERN_UNROLL for (int j = 0; j < MR; ++j) acc[j] = V::min(upper, acc[j]);
        pixels_of p(dst, static_cast<ptrdiff_t>(d.out.ldc));
        if (may_stream && __builtin_expect(k.stream, 0)) {
          QUERN_UNROLL for (int j = 0; j < MR; p.next(j), ++j) acc[j].stream(const_cast<float*>(p.get(j)));
        } else {
          QUERN_UNROLL for (int j = 0; j < MR; p.next(j), ++j) {
            float* const to = const_cast<float*>(p.get(j));
            if (part && k.count < V::width)
              acc[j].store_part(to, k.count);
            else
              acc[j].store(to);
          }
        }
      } else {
        const size_t before = i % strips_waiting;
        float* const sums = k.room + before * MR * V::width;
        QUERN_UNROLL for (int j = 0; j < MR; ++j) acc[j].store(sums + j * V::width);
        if (before + 1 == strips_waiting || i + 1 == strips)
          finish_pixels<V>(d, k, v, y, x + (i - before) * MR, (before + 1) * MR, skip);
      }
      src += next_src, begin -= advance, end -= advance, dst += next_dst;
    }
  }
}

using depthwise_strip = void (*)(const depthwise_f32&, const depthwise_column&, size_t, size_t, size_t);

// The strips that serve a vector of channels, by falling size.  Those of `checked` ones ask for every input; the
// others may miss some of the first and last taps - 1.
struct depthwise_strips {
  size_t count;
  size_t size[5];
  bool checked[5];
  depthwise_strip run[5], inside, fetching;  // the first one for strips without padding, and that fetches; or NULL
};

// Strips for any filter.  Taps share nothing where a strip is one pixel.
template <class V, int MR, int STEP, lanes L>
constexpr depthwise_strip any_strip = run_strips<V, MR, 0, MR == 1 ? 0 : STEP, any, L>;

template <class V, int STEP, lanes L, int... MR>
constexpr depthwise_strips any_strips = {sizeof...(MR), {size_t{MR}...}, {(MR > 0)...}, {any_strip<V, MR, STEP, L>...},
                                         nullptr,       nullptr};

// More taps at a step of one take longer than they wait, and vectors of eight gained nothing (Zen 5).
template <class V, int TAPS, int STEP>
constexpr bool fetches_below = V::width == 16 && (TAPS == 3 || STEP > 1);

// Asking for the border is felt beside three taps (a sixth of a wide layer's time on Zen 5), as is asking whether lines
// are fetched, not beside more, nor where what is dense leaves registers for the answer; of vectors of eight at a step
// of one dense ones alone gained (Zen 3).
template <class V, int TAPS, int STEP, lanes L>
constexpr bool bare_inside = TAPS == 3 && (STEP > 1 ? L != lanes::dense : L == lanes::dense || V::width != 8);

// Pixels of strips, by falling size.
template <int...>
struct sizes {};

// Strips made for the filter, and those for any, which take what is shorter.
template <class V, int TAPS, int STEP, lanes L, class MADE, class ANY>
constexpr depthwise_strips made_strips = {};
template <class V, int TAPS, int STEP, lanes L, int LONG, int... MR, int... ANY>
constexpr depthwise_strips made_strips<V, TAPS, STEP, L, sizes<LONG, MR...>, sizes<ANY...>> = {
    1 + sizeof...(MR) + sizeof...(ANY),
    {size_t{LONG}, size_t{MR}..., size_t{ANY}...},
    {false, (MR < 0)..., (ANY > 0)...},
    {run_strips<V, LONG, TAPS, STEP, some, L, TAPS != 3 && fetches_below<V, TAPS, STEP>>,
     run_strips<V, MR, TAPS, STEP, some, lanes::whole>..., any_strip<V, ANY, STEP == 1, lanes::whole>...},
    bare_inside<V, TAPS, STEP, L> ? run_strips<V, LONG, TAPS, STEP, bare_inside<V, TAPS, STEP, L> ? none : some, L>
                                  : nullptr,
    fetches_below<V, TAPS, STEP>
        ? run_strips<V, LONG, TAPS, STEP, TAPS == 3 ? none : some, lanes::whole, fetches_below<V, TAPS, STEP>>
        : nullptr};

// For a last vector that is not full: what most of a line takes is made for the filter.
template <class V, int TAPS, int STEP>
constexpr depthwise_strips part_strips = {
    3,
    {7, 7, 1},
    {false, true, true},
    {run_strips<V, 7, TAPS, STEP, some, lanes::part>, any_strip<V, 7, STEP == 1, lanes::spread>,
     any_strip<V, 1, STEP == 1, lanes::spread>},
    nullptr,
    nullptr};

// All lines of one vector of channels.
template <class V>
void run_column(const depthwise_f32& d, const depthwise_column& k, const depthwise_strips& s) {
  const size_t m = d.x.count, step = static_cast<size_t>(d.x.step);
  const ptrdiff_t taps = static_cast<ptrdiff_t>(d.x.taps);
  // A step of two takes lines, where they are many, in columns of one strip: L1 keeps what is under the filter (a
  // twelfth to a seventh, channels last, Zen 4).  Strips of a step of one read too little in a row for that (a sixth
  // slower), as do those of vectors of eight, whose driver takes no more of a line than L1 keeps (1.05 to 1.15 times as
  // fast along the line, channels last, Zen 3).
  const size_t most = step > 1 && d.y.count > d.y.taps && V::width == 16 ? 1 : m;
  for (size_t x = 0; x < m;) {
    const size_t rest = m - x;
    size_t i = 0, strips = 1;
    if (rest < s.size[0]) {
      // The smallest that holds the rest and is not longer than the line; if there is none, the largest that fits.
      while (i + 1 < s.count && (s.size[i] > m || s.size[i + 1] >= rest)) ++i;
    }
    size_t at = rest < s.size[i] ? m - s.size[i] : x;
    const ptrdiff_t begin = d.x.begin - static_cast<ptrdiff_t>(at * step),
                    end = d.x.end - static_cast<ptrdiff_t>(at * step),
                    last = static_cast<ptrdiff_t>((s.size[i] - 1) * step);
    depthwise_strip run = s.run[i];
    if (i == 0 && begin <= 0 && end >= last + taps) {
      // All that are without padding.
      if (s.inside) run = s.inside;
      if (d.fetches && s.fetching) run = s.fetching;
      strips = 1 + static_cast<size_t>(end - last - taps) / (s.size[0] * step);
      if (strips > rest / s.size[0]) strips = rest / s.size[0];
      if (strips > most) strips = most;
      if (strips == 0) strips = 1;
    } else if (!s.checked[i] && !(begin < taps && end > last)) {
      // More padding than a filter.
      i = s.count - 1, at = x, run = s.run[i];
    }
    run(d, k, at, strips, x - at);
    x = at + strips * s.size[i];
  }
}

// Runs `whole` on whole vectors of channels, but `dense` where there is one and they are, and `last` on one that is not
// full; multipliers, and what has no `last`, take strips for any filter.
template <class V>
[[gnu::noinline]] void run_columns(const depthwise_f32& d, const depthwise_strips& whole, const depthwise_strips* dense,
                                   const depthwise_strips* last) {
  constexpr size_t W = V::width;
  static constexpr depthwise_strips spread[] = {any_strips<V, 0, lanes::spread, 7, 1>,
                                                any_strips<V, 1, lanes::spread, 7, 1>};
  const float* weights = d.weights;
  alignas(64) float room[pixels_waiting * W];
  lines_ahead ahead[2] = {d.ahead[0], d.ahead[1]};
  const bool adjacent =
      d.multiplier == 1 && d.src_vector == W && d.dst_vector == W && (!d.out.residual || d.residual_vector == W);
  // What comes before the first line of a vector is felt where lines are few (7x7: a tenth, Zen 4); of more lines the
  // next columns find those of this one in L1.
  const bool small = d.multiplier == 1 && !d.out.stream && !d.fetches && d.x.count * d.y.count <= 256;
  for (size_t c = 0, vectors; c < d.n; c += vectors * W, weights += vectors * d.weights_vector) {
    depthwise_column k = {};
    k.room = room;
    k.ahead = ahead[0].count || ahead[1].count ? ahead : nullptr;
    if (W == 16)
      vectors = small && !k.ahead && d.n - c >= W ? (d.n - c) / W : 1;
    else
      vectors = !adjacent || d.n - c < 16 ? 1 : 16 / W;
    k.vectors = vectors;
    k.count = d.n - c < W ? d.n - c : W;
    k.channel = d.out.channel + c;
    k.weights = weights;
    k.dst = d.out.c + c / W * d.dst_vector;
    k.stream = d.out.stream && is_aligned<V>(k.dst, d.out.ldc | d.y.dst);
    k.residual = d.out.residual ? d.out.residual + c / W * d.residual_vector : nullptr;
    k.first = k.channel / d.multiplier;
    k.inputs = (k.channel + k.count - 1) / d.multiplier - k.first + 1;
    const size_t input = k.first - d.input;
    k.src = d.src + (d.origin + static_cast<ptrdiff_t>(input / W * d.src_vector + input % W));
    k.bare = d.planes == 1 && d.out.epilogue->clamp_only && !k.ahead && !k.stream;
    const bool is_dense = dense && k.bare && d.x.src == W && d.out.ldc == W;
    const depthwise_strips* const made = k.count < W ? last : is_dense ? dense : &whole;
    run_column<V>(d, k, d.multiplier > 1 || !made ? spread[d.x.step == 1] : *made);
  }
}

// For any.
template <class V, int... MR>
void run_depthwise_any(const depthwise_f32& d) {
  static constexpr depthwise_strips whole[] = {any_strips<V, 0, lanes::whole, MR...>,
                                               any_strips<V, 1, lanes::whole, MR...>};
  run_columns<V>(d, whole[d.x.step == 1], nullptr, nullptr);
}

// For filters TAPS wide with a step of STEP.  Vectors of eight leave little to a last one: it has no kernel of its own.
// Of wider ones strips are long enough without what is known of dense pixels (1.02 in the mean, Sapphire Rapids).
// Lines of up to three pixels are shorter than any strip made for the filter.
template <class V, int TAPS, int STEP, class MADE, class ANY>
void run_depthwise(const depthwise_f32& d) {
  if (d.x.count < 4) return run_depthwise_any<V, 2, 1>(d);
  const depthwise_strips *dense = nullptr, *last = nullptr;
  if constexpr (V::width == 8) dense = &made_strips<V, TAPS, STEP, lanes::dense, MADE, ANY>;
  if constexpr (V::width > 8) last = &part_strips<V, TAPS, STEP>;
  run_columns<V>(d, made_strips<V, TAPS, STEP, lanes::whole, MADE, ANY>, dense, last);
}

}  // namespace
}  // namespace quern
