// SPDX-License-Identifier: MIT
//
// f32 by products of bf16 on a matrix unit; the contract is split_f32 in kernel.h.
//
// Products of parts are exact in f32, and of a = a0 + a1 + a2 every part has 8 bits: what the six products a0 b2, a0
// b1, a1 b1, a1 b0, a2 b0, a0 b0 leave out is about 2^-22 of |a b| at most (Henry, Tang and Heinecke 2019).  They are
// taken in an order in which each step changes one operand of the four tiles: 14 tile loads for 24 products.
//
// A filter tap of 16 pixels is a tile load at an offset, its rows any distance apart: no im2col.  The unit runs beside
// the rest of the core, so the block before is finished a row after each product, and prefetches are spread likewise:
// in bursts they would hold up the tile loads.
//
// Tiles is the unit: configure(rows, count), the rows of the first ones, 16 of the others; release(); and of registers
// by number zero<C>(), load<T>(from, row), load_once<T>(from, row) of what L1 is not to keep, store<C>(to, row),
// multiply<C, A, B>(): C += A * B; and stay_awake(), once a step.  Sums are in 0 to 3, pixels in 4 and 5, weights in 6
// and 7.
#pragma once

#include <math.h>

#include "epilogue.h"
#include "vec_avx512.h"

namespace quern::rows {
extern const kernel_list winograd_f32_avx512 __attribute__((weak, visibility("hidden")));  // NULL without that family
}

namespace quern {
namespace {

template <int PARTS>
inline constexpr size_t split_tile = 16 * 16 * 2 * 2 * PARTS;  // bytes of a step's weights, of 16 columns

// Three parts are truncated: right up to the largest float, and exact.  Two are rounded, which halves what is lost.
template <int PARTS>
QUERN_INLINE void split_vectors(__m512 low, __m512 upper, char* to) {
  __m512i high = _mm512_set1_epi32(int(0xffff0000));
  __asm__("" : "+v"(high));  // else the compiler loads it once more, for floats
  const __m512i half = _mm512_set1_epi32(0x8000);
  const auto rounded = [=](__m512 x) __attribute__((always_inline)) {
    const __m512i bits = _mm512_castps_si512(x);
    if constexpr (PARTS == 3) return bits;
    // NaN would turn into a number.
    return _mm512_mask_add_epi32(bits, _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), bits, half);
  };
  QUERN_UNROLL for (int p = 0; p < PARTS; ++p) {
    const __m512i a = rounded(low), b = rounded(upper);
    // high ? b : a >> 16
    _mm512_store_si512(to + p * 64, _mm512_ternarylogic_epi32(_mm512_srli_epi32(a, 16), b, high, 0xd8));
    if (p + 1 == PARTS) break;
    low = _mm512_sub_ps(low, _mm512_castsi512_ps(_mm512_and_si512(a, high)));
    upper = _mm512_sub_ps(upper, _mm512_castsi512_ps(_mm512_and_si512(b, high)));
  }
}

template <int PARTS>
void split_image(const split_image_f32& call) {
  for (size_t i = 0; i < call.pixels; ++i) {
    const float* src = call.src + ptrdiff_t(i) * call.src_pixel;
    char* to = call.parts + i * call.pixel;
    for (size_t c = 0; c < call.channels; c += split_channels, to += call.block) {
      const size_t left = call.channels - c;
      const __m512 low = left < 16 ? vec::load_part(src, left).v : vec::load(src).v;
      src += call.src_run;
      const __m512 upper = left >= 32 ? vec::load(src).v : left > 16 ? vec::load_part(src, left - 16).v : vec::zero().v;
      src += call.src_run;
      split_vectors<PARTS>(low, upper, to);
    }
  }
}

// 32 channels of pixels, one pixel at a time.  Few instructions: what waits for its turn to retire behind the products
// is all that the core looks ahead.
template <int PARTS>
class split_splitter {
 public:
  QUERN_INLINE split_splitter(const split_image_f32& call, size_t pixel, size_t pixels, size_t chunk, char* to)
      : call_(&call),
        src_(call.src + ptrdiff_t(pixel) * call.src_pixel + 2 * ptrdiff_t(chunk) * call.src_run),
        to_(to),
        left_(pixels) {
    const size_t channels = call.channels - chunk * split_channels;
    const uint32_t part = channels < split_channels ? (uint32_t{1} << channels) - 1 : ~uint32_t{0};
    part_[0] = static_cast<__mmask16>(part), part_[1] = static_cast<__mmask16>(part >> 16);
  }

  [[gnu::always_inline]] bool done() const { return left_ == 0; }

  QUERN_INLINE void operator()() {
    if (done()) return;
    const __m512 low = _mm512_maskz_loadu_ps(part_[0], src_);
    const __m512 upper = _mm512_maskz_loadu_ps(part_[1], src_ + call_->src_run);
    split_vectors<PARTS>(low, upper, to_);
    src_ += call_->src_pixel, to_ += call_->pixel, --left_;
  }

 private:
  const split_image_f32* call_;
  const float* src_;
  char* to_;
  size_t left_;
  __mmask16 part_[2];
};

// Products that begin before the sums of the block before are in memory.
inline constexpr ptrdiff_t split_wait = 8;

// Rows of a block, or of two, one at a time.
class split_finisher {
 public:
  // The first `wait` calls do nothing.
  QUERN_INLINE split_finisher(const split_output_f32* calls, size_t count, ptrdiff_t wait = 0)
      : call_(calls), last_(count > 0 ? calls + count - 1 : calls) {
    if (count == 0) return;
    const epilogue_f32& e = *call_->epilogue;
    clamp_only_ = e.clamp_only;
    lower_ = vec::set1(clamp_only_ ? e.lower : -INFINITY), upper_ = vec::set1(clamp_only_ ? e.upper : INFINITY);
    begin();
    row_ = -wait;
  }

  [[gnu::always_inline]] bool done() const { return row_ >= rows_; }

  QUERN_INLINE void operator()() {
    const ptrdiff_t r = row_++;
    if (size_t(r) >= size_t(rows_)) return;
    if (!clamp_only_ && r % finished == 0) finish(*call_, r);
    if (float* const pixel = call_->dst[r]) clamp(sums_ + r * ptrdiff_t(split_columns), pixel + to_);
    if (r + 1 == rows_ && call_ != last_) ++call_, begin();
  }

 private:
  QUERN_INLINE void begin() {
    row_ = 0, rows_ = ptrdiff_t(call_->rows), sums_ = call_->sums, to_ = call_->to, half_ = call_->dst_half;
    full_ = call_->n == split_columns;
    QUERN_UNROLL for (size_t h = 0; h < 2; ++h) {
      const size_t count = call_->n < 16 * h ? 0 : call_->n - 16 * h < 16 ? call_->n - 16 * h : 16;
      part_[h] = static_cast<__mmask16>((uint32_t{1} << count) - 1);
      bias_[h] = clamp_only_ && call_->epilogue->bias
                     ? vec{_mm512_maskz_loadu_ps(part_[h], call_->epilogue->bias + call_->channel + 16 * h)}
                     : vec::set1(-0.0f);
    }
  }

  QUERN_INLINE void clamp(const float* sums, float* to) const {
    const vec low = vec::min(upper_, vec::max(lower_, vec::load(sums) + bias_[0]));
    const vec upper = vec::min(upper_, vec::max(lower_, vec::load(sums + 16) + bias_[1]));
    // Stores under a mask, even full ones, took a third of the time of a pointwise layer of 64 channels (Emerald
    // Rapids); it may be that tile loads wait for them where the lowest 12 bits of their addresses are alike.
    if (full_) {
      low.store(to), upper.store(to + half_);
    } else {
      _mm512_mask_storeu_ps(to, part_[0], low.v);
      _mm512_mask_storeu_ps(to + half_, part_[1], upper.v);
    }
  }

  // Other epilogues go by so many rows, in place: what comes before and after their loops is much for one.
  static constexpr ptrdiff_t finished = 8;

  [[gnu::noinline]] static void finish(const split_output_f32& call, ptrdiff_t first) {
    alignas(64) float residual[finished * split_columns];
    const ptrdiff_t rows = ptrdiff_t(call.rows) - first < finished ? ptrdiff_t(call.rows) - first : finished;
    output_f32 out = {};
    out.c = call.sums + first * ptrdiff_t(split_columns), out.ldc = split_columns;
    out.epilogue = call.epilogue, out.channel = call.channel;
    if (call.epilogue->residual) {
      out.residual = residual, out.ldr = split_columns;
      for (ptrdiff_t r = 0; r < rows; ++r) {
        float* const row = residual + r * ptrdiff_t(split_columns);
        vec::zero().store(row), vec::zero().store(row + 16);
        if (!call.dst[first + r]) continue;
        const float* const from = call.residual[first + r] + call.from;
        vec::load_part(from, call.n < 16 ? call.n : 16).store(row);
        if (call.n > 16) vec::load_part(from + call.residual_half, call.n - 16).store(row + 16);
      }
    }
    vec::finish(out, size_t(rows), call.n, out.c, split_columns);
  }

  const split_output_f32 *call_, *last_;
  ptrdiff_t row_ = 0, rows_ = 0, to_ = 0, half_ = 0;
  float* sums_ = nullptr;
  bool clamp_only_ = false, full_ = false;
  __mmask16 part_[2] = {};
  vec bias_[2] = {}, lower_ = {}, upper_ = {};
};

inline void split_finish(const split_output_f32& call) {
  split_finisher rows(&call, 1);
  while (!rows.done()) rows();
}

// One step: MT x NT tiles, all products of parts.
template <class Tiles, int PARTS, int MT, int NT, class Between>
[[gnu::always_inline]] inline void split_step(const char* a, const split_products_f32& call, const char* b,
                                              const Between& between) {
  const char* const second = a + call.a_tile;
  const ptrdiff_t row = call.a_row;
  const auto a0 = [=](int p) __attribute__((always_inline)) { Tiles::template load<4>(a + p * 64, row); };
  const auto a1 = [=](int p) __attribute__((always_inline)) {
    if constexpr (MT == 2) Tiles::template load<5>(second + p * 64, row);
  };
  const auto b0 = [=](int p) __attribute__((always_inline)) { Tiles::template load<6>(b + p * (NT * 1024), 64); };
  const auto b1 = [=](int p) __attribute__((always_inline)) {
    if constexpr (NT == 2) Tiles::template load<7>(b + p * (NT * 1024) + 1024, 64);
  };
  const auto c00 = [&]() __attribute__((always_inline)) { Tiles::template multiply<0, 4, 6>(), between(); };
  const auto c01 = [&]() __attribute__((always_inline)) {
    if constexpr (NT == 2) Tiles::template multiply<1, 4, 7>(), between();
  };
  const auto c10 = [&]() __attribute__((always_inline)) {
    if constexpr (MT == 2) Tiles::template multiply<2, 5, 6>(), between();
  };
  const auto c11 = [&]() __attribute__((always_inline)) {
    if constexpr (MT == 2 && NT == 2) Tiles::template multiply<3, 5, 7>(), between();
  };
  Tiles::stay_awake();
  if constexpr (PARTS == 3) {
    a0(0), b0(2), c00(), a1(0), c10(), b1(2), c01(), b0(1), c11();
    c00(), b1(1), c10(), c01(), a0(1), c11();
    c00(), a1(1), c01(), c10(), b0(0), c11();
    c00(), b1(0), c10(), c01(), a0(2), c11();
    c00(), a1(2), c01(), a0(0), c10(), c11();
    a1(0), c00(), c01(), c10(), c11();
  } else {
    a0(0), b0(1), c00(), a1(0), c10(), b1(1), c01(), b0(0), c11();
    c00(), b1(0), c10(), c01(), a0(1), c11();
    c00(), a1(1), c01(), c10(), c11();
  }
}

// ROWS of the block before after each product, until there are no more; and lines to fetch.
template <class Tiles, int PARTS, int MT, int NT, bool FETCHES>
void split_block(const split_products_f32& call) {
  constexpr int products = (PARTS == 3 ? 6 : 3) * MT * NT, ROWS = (24 + products - 1) / products;
  Tiles::template zero<0>();
  if constexpr (NT == 2) Tiles::template zero<1>();
  if constexpr (MT == 2) Tiles::template zero<2>();
  if constexpr (MT == 2 && NT == 2) Tiles::template zero<3>();
  split_finisher before(call.before, call.before ? 1 : 0, split_wait);
  const char *b = call.b, *ahead = call.ahead;
  // A power of two of them with each product, as many as it takes; whole steps fetch or do not.
  const size_t all = call.steps * products;
  const size_t each = call.lines > 4 * all ? 8 : call.lines > 2 * all ? 4 : call.lines > all ? 2 : 1;
  size_t lines = call.lines;
  size_t s = 0;
  for (; s < call.steps && (FETCHES || !before.done()); ++s, b += split_tile<PARTS> * NT) {
    const ptrdiff_t pace = lines > 0 ? 64 : 0;
    split_step<Tiles, PARTS, MT, NT>(
        call.a + call.step[s], call, b, [&]() __attribute__((always_inline)) {
          QUERN_UNROLL for (int i = 0; i < ROWS; ++i) before();
          if constexpr (FETCHES)
            for (size_t i = 0; i < each; ++i, ahead += pace) _mm_prefetch(ahead, _MM_HINT_T1);
        });
    lines -= lines < products * each ? lines : products * each;
  }
  for (; s < call.steps; ++s, b += split_tile<PARTS> * NT)
    split_step<Tiles, PARTS, MT, NT>(call.a + call.step[s], call, b, []() __attribute__((always_inline)){});
  while (!before.done()) before();
  float* const second = call.sums + call.rows * split_columns;
  Tiles::template store<0>(call.sums, split_columns * sizeof(float));
  if constexpr (NT == 2) Tiles::template store<1>(call.sums + 16, split_columns * sizeof(float));
  if constexpr (MT == 2) Tiles::template store<2>(second, split_columns * sizeof(float));
  if constexpr (MT == 2 && NT == 2) Tiles::template store<3>(second + 16, split_columns * sizeof(float));
}

template <class Tiles, int PARTS>
void split_products(const split_products_f32& call) {
  const bool two = call.tiles > 1;
  if (call.n <= 16)
    return two ? split_block<Tiles, PARTS, 2, 1, false>(call) : split_block<Tiles, PARTS, 1, 1, false>(call);
  // Lines are fetched by blocks of whole panels.
  if (call.lines == 0)
    return two ? split_block<Tiles, PARTS, 2, 2, false>(call) : split_block<Tiles, PARTS, 1, 2, false>(call);
  two ? split_block<Tiles, PARTS, 2, 2, true>(call) : split_block<Tiles, PARTS, 1, 2, true>(call);
}

// A line of pixels.  A block is one tile of them by up to four of weights, all parts of the pixels in 4 to 6, so that a
// step takes 15 loads for 24 products as 2 x 2 tiles do.  Tiles of sums are done one after the other, and each is
// stored while the next one is summed, the last one in the block behind.  The next tile is split beside the first
// block.
template <class Tiles, int PARTS>
class split_line_of {
 public:
  explicit split_line_of(const split_line_f32& call)
      : call_(call),
        steps_((call.image.channels + split_channels - 1) / split_channels),
        halves_((call.n + 15) / 16),
        kept_(split_line_tiles(call.n)) {}

  void operator()() {
    for (size_t s = 0; s < steps_; ++s) {
      split_splitter<PARTS> first(call_.image, 0, pixels(0), s, chunk(0, s));
      while (!first.done()) first();
    }
    for (size_t t = 0; t < call_.tiles; ++t)
      for (size_t j = 0; j < halves_; j += 4) block(t, j);
    store_last();
    for (int h = 0; h < 2; ++h)
      if (out_[turn_ ^ 1][h].rows) split_finish(out_[turn_ ^ 1][h]);
  }

 private:
  static size_t least(size_t a, size_t b) { return a < b ? a : b; }

  // Of the last tile fewer, and of none behind it.
  size_t pixels(size_t t) const {
    const size_t first = t * call_.rows;
    return call_.image.pixels > first ? least(call_.rows, call_.image.pixels - first) : 0;
  }
  // 32 channels of a tile.  Where a tile is one block, they take the place of those before, which the unit's registers
  // have by then: L1 is short.
  char* chunk(size_t t, size_t s) const { return call_.image.parts + (t % kept_ * steps_ + s) * call_.image.block; }

  // What the next block finishes.
  void address(size_t t, size_t j, float* sums, split_output_f32 (&out)[2]) {
    for (size_t h = 0; h < 2; ++h) {
      const size_t column = (j + 2 * h) * 16;
      out[h].rows = column < call_.n ? pixels(t) : 0;
      if (out[h].rows == 0) continue;
      out[h].n = least(split_columns, call_.n - column);
      out[h].sums = sums + h * split_rows * split_columns;
      out[h].dst = dst_[t % 2], out[h].residual = residual_[t % 2];
      out[h].to = ptrdiff_t(j + 2 * h) * call_.dst_half, out[h].dst_half = call_.dst_half;
      out[h].from = ptrdiff_t(j + 2 * h) * call_.residual_half, out[h].residual_half = call_.residual_half;
      out[h].channel = call_.channel + column;
      out[h].epilogue = call_.epilogue;
    }
    if (j > 0) return;
    for (size_t i = 0; i < pixels(t); ++i) {
      const ptrdiff_t pixel = ptrdiff_t(t * call_.rows + i);
      dst_[t % 2][i] = call_.dst + pixel * call_.dst_pixel;
      if (call_.residual) residual_[t % 2][i] = call_.residual + pixel * call_.residual_pixel;
    }
  }

  template <int T>
  static void store(float* sums) {
    Tiles::template store<T>(sums + (T / 2 * split_rows * split_columns + T % 2 * 16), split_columns * sizeof(float));
  }
  void store_last() {
    switch (last_) {
      case 1: return store<1>(sums_);
      case 2: return store<2>(sums_);
      case 3: return store<3>(sums_);
      default: return;  // of a single tile, which is stored by its block
    }
  }

  void block(size_t t, size_t j) {
    float* const sums = call_.sums + turn_ * 2 * split_rows * split_columns;
    const split_output_f32(&out)[2] = out_[turn_ ^ 1];
    split_finisher before(out, size_t(out[0].rows > 0) + size_t(out[1].rows > 0), split_wait);
    const size_t tiles = least(halves_ - j, 4);
    // Tiles of a panel lie side by side.
    const size_t width0 = least(tiles, 2), width1 = tiles > 2 ? tiles - 2 : 0;
    const char *b0 = call_.b + j / 2 * call_.panel, *b1 = b0 + call_.panel;
    const size_t next = j == 0 ? pixels(t + 1) : 0;
    for (size_t s = 0; s < steps_; ++s) {
      Tiles::stay_awake();
      const char* const a = chunk(t, s);
      Tiles::template load<4>(a, ptrdiff_t(call_.image.pixel));
      Tiles::template load<5>(a + 64, ptrdiff_t(call_.image.pixel));
      if constexpr (PARTS == 3) Tiles::template load<6>(a + 128, ptrdiff_t(call_.image.pixel));
      split_splitter<PARTS> splitter(call_.image, (t + 1) * call_.rows, next, s, chunk(t + 1, s));
      const auto between = [&]() __attribute__((always_inline)) {
        before();
        splitter();
      };
      const bool first = s == 0, last = s + 1 == steps_;
      tile<0>(
          b0, width0, first, between, [&]() __attribute__((always_inline)) {
            if (first) store_last();
          });
      if (tiles > 1)
        tile<1>(
            b0, width0, first, between, [&]() __attribute__((always_inline)) {
              if (last) store<0>(sums);
            });
      if (tiles > 2)
        tile<2>(
            b1, width1, first, between, [&]() __attribute__((always_inline)) {
              if (last) store<1>(sums);
            });
      if (tiles > 3)
        tile<3>(
            b1, width1, first, between, [&]() __attribute__((always_inline)) {
              if (last) store<2>(sums);
            });
      while (!splitter.done()) splitter();
      b0 += width0 * split_tile<PARTS>, b1 += width1 * split_tile<PARTS>;
    }
    while (!before.done()) before();
    if (tiles == 1) store<0>(sums);
    last_ = tiles - 1, sums_ = sums;
    address(t, j, sums, out_[turn_]);
    turn_ ^= 1;
  }

  // A step's products of parts with tile T of the weights, in the order of split_step.
  template <int T, class Between, class Then>
  [[gnu::always_inline]] void tile(const char* b, size_t width, bool first, const Between& between, const Then& then) {
    const bool passes = call_.passes;
    const auto weights = [=](size_t p) __attribute__((always_inline)) {
      const char* const from = b + (p * width + T % 2) * 1024;
      passes ? Tiles::template load_once<7>(from, 64) : Tiles::template load<7>(from, 64);
    };
    if (first) Tiles::template zero<T>();
    if constexpr (PARTS == 3) {
      weights(2), Tiles::template multiply<T, 4, 7>(), between();
      weights(1), Tiles::template multiply<T, 4, 7>(), between();
      Tiles::template multiply<T, 5, 7>(), between(), then();
      weights(0), Tiles::template multiply<T, 5, 7>(), between();
      Tiles::template multiply<T, 6, 7>(), between();
      Tiles::template multiply<T, 4, 7>(), between();
    } else {
      weights(1), Tiles::template multiply<T, 4, 7>(), between();
      weights(0), Tiles::template multiply<T, 4, 7>(), between(), then();
      Tiles::template multiply<T, 5, 7>(), between();
    }
  }

  const split_line_f32& call_;
  const size_t steps_, halves_, kept_;  // chunks of a tile, tiles across, tiles of parts
  size_t last_ = 0, turn_ = 0;          // the tile of sums that is not stored yet, 0: none; buffers take turns
  float* sums_ = nullptr;
  split_output_f32 out_[2][2] = {};
  float* dst_[2][split_rows] = {};
  const float* residual_[2][split_rows] = {};
};

template <class Tiles, int PARTS>
void split_line(const split_line_f32& call) {
  Tiles::configure(call.rows, 7);
  split_line_of<Tiles, PARTS> line(call);
  line();
  Tiles::release();
}

template <class Tiles>
void split_begin(size_t rows) {
  Tiles::configure(rows, 6);
}

template <class Tiles>
constexpr split_functions functions_of = {.begin = split_begin<Tiles>,
                                          .end = Tiles::release,
                                          .image = {split_image<2>, split_image<3>},
                                          .products = {split_products<Tiles, 2>, split_products<Tiles, 3>},
                                          .finish = split_finish,
                                          .line = {split_line<Tiles, 2>, split_line<Tiles, 3>}};

template <class Tiles>
constexpr kernel split_kernel(const char* name, const char* about, uint64_t isa) {
  kernel row = {};
  row.name = name, row.about = about, row.kind = kind::split_f32;
  row.isa = isa;
  row.mr = split_rows, row.nr = split_columns, row.vector = vec::width;
  row.winograd = &rows::winograd_f32_avx512;
  row.copy = vec::copy;
  row.split = &functions_of<Tiles>;
  return row;
}

}  // namespace
}  // namespace quern
