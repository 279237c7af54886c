// SPDX-License-Identifier: MIT
//
// A tile of an implicit GEMM: pixels by output channels, summed over taps and input channels, without
// im2col matrix.  What each thread does between two barriers is a function here, written for any compiler: the
// kernel calls them with __syncthreads() between, a test calls them for all threads in turn.
//
//   dst[pixel][k] = epilogue(sum over (tap, c) of src[pixel at tap][c] * weights[(tap, c)][k])
//
// On FMA units a sum is one chain of fused multiply-adds in the order (tap t r s, c), as on the CPU: the same bits,
// unless a weight beside padding is infinite or NaN, as padding is multiplied here.
//
// Each warp owns 32 pixels x 64 channels, each thread 64 of their sums; 64 bytes of (tap, c) are a step.  Three
// stages of shared memory are filled by cp.async ahead of use.  Pixels lie there as rows of 64 + 16 bytes: no two
// of the rows that are read together, or written in chunks of 16 bytes together, meet in a bank.  What is needed
// once a step lies in shared memory too, as 128 registers, 64 of them sums, are what two large blocks leave each other.
//
// How a thread finds its chunk of (tap, c), which is the same for all of its pixels:
//   increments   counters and an offset that additions move on; a bit a pixel, axis and tap says what is inside
//   division     from the number of the element, at each step; coordinates are compared
//   table        a division by c, then the tap's entry in constant memory; coordinates are compared
// (cuDNN's and CUTLASS's names for the first two are "precomputed" or "optimized", and "analytic".)
#pragma once

#include "cuda/fill.h"
#include "cuda/mma.h"
#include "cuda/output.h"
#include "cuda/tf32.h"

namespace quern {
namespace {

// One axis of one phase: geometry.h.
struct implicit_axis {
  int32_t taps, in_begin, in_step, in_size, tap_step;
};

// By value in the kernel's parameters: one phase of a problem.
struct implicit_conv {
  implicit_axis axis[3];
  int32_t c;             // of a group; not 0, even where there is nothing to sum
  int32_t depth, steps;  // taps * c, and that in steps
  int32_t pixel_tiles, channel_tiles;
  bool src_vector;        // chunks of 16 bytes are aligned
  int64_t src_stride[5];  // n c d h w
  int32_t src_channel;    // from channel to channel of src, as in src_stride
  int32_t next_tap[3];    // from behind the last of what moves faster to the next t, r, s
  const void* src;
  const void* weights;  // panels of weights.h
  int32_t weights_group, weights_panel;
  gpu_output out;
};

// A tap in the order t r s, for kernels that look up: the element that it reads, from the first tap's.
struct implicit_tap {
  int32_t at, d, h, w;
};
constexpr int implicit_taps = 160;
struct implicit_table {
  implicit_conv problem;
  implicit_tap tap[implicit_taps];
};

// ---- Where a thread reads -------------------------------------------------------------------------------------

// A pixel: the place of its first tap, which may be padding, and what says which taps fall on the image.
struct alignas(8) implicit_pixel {
  int64_t at;
  int32_t d, h, w;  // increments: a bit a tap of the axis; else the input index of the first tap
};

// Where the tile of a block lies.
struct implicit_place {
  int32_t group, pixel, channel;  // the first of each
  int32_t width;                  // floats in a row of its panel of weights
};

// An element of (tap, c).  increments: counters and the element's offset, all advanced by additions.
struct implicit_counters {
  int32_t c, at;
  uint32_t tap;  // s, 256 * r, 65536 * t

  // By at most a.c elements.
  QUERN_INLINE void advance(const implicit_conv& a, int32_t count) {
    c += count, at += count * a.src_channel;
    if (c < a.c) return;
    c -= a.c, at += a.next_tap[2];
    if ((++tap & 255) < static_cast<uint32_t>(a.axis[2].taps)) return;
    tap += 256 - (tap & 255), at += a.next_tap[1];
    if ((tap >> 8 & 255) < static_cast<uint32_t>(a.axis[1].taps)) return;
    tap += 65536 - (tap & 65535), at += a.next_tap[0];
  }
  // By any number.
  QUERN_INLINE void advance_far(const implicit_conv& a, int32_t count) {
    QUERN_ROLL
    for (; count > a.c; count -= a.c) advance(a, a.c);
    advance(a, count);
  }
};

template <index_scheme Scheme>
QUERN_INLINE implicit_pixel implicit_pixel_at(const implicit_conv& a, int32_t group, int32_t pixel) {
  if (pixel >= a.out.pixels) {
    const int32_t nowhere = Scheme == index_scheme::increments ? 0 : -(1 << 30);
    return {0, nowhere, nowhere, nowhere};
  }
  int32_t first[3], n = pixel;
  int64_t at = int64_t{group} * a.c * a.src_channel;
  QUERN_UNROLL
  for (int i = 2; i >= 0; --i) {
    const implicit_axis& axis = a.axis[i];
    const int32_t rest = n / a.out.size[i];
    first[i] = axis.in_begin + (n - rest * a.out.size[i]) * axis.in_step;
    at += first[i] * a.src_stride[2 + i];
    n = rest;
  }
  at += n * a.src_stride[0];
  if constexpr (Scheme == index_scheme::increments) {
    QUERN_UNROLL
    for (int i = 0; i < 3; ++i) {
      const implicit_axis& axis = a.axis[i];
      uint32_t bits = 0;
      for (int32_t u = 0; u < axis.taps; ++u)
        bits |= static_cast<uint32_t>(static_cast<uint32_t>(first[i] + u * axis.tap_step) <
                                      static_cast<uint32_t>(axis.in_size))
                << u;
      first[i] = static_cast<int32_t>(bits);
    }
  }
  return {at, first[0], first[1], first[2]};
}

QUERN_INLINE bool implicit_inside(const implicit_conv& a, const implicit_pixel& p, int32_t d, int32_t h, int32_t w) {
  return static_cast<uint32_t>(p.d + d) < static_cast<uint32_t>(a.axis[0].in_size) &&
         static_cast<uint32_t>(p.h + h) < static_cast<uint32_t>(a.axis[1].in_size) &&
         static_cast<uint32_t>(p.w + w) < static_cast<uint32_t>(a.axis[2].in_size);
}

// ---- The tile -------------------------------------------------------------------------------------------------

// Who multiplies.  tensor: f32 as three products of TF32 (tf32.h), the elements of a step summed from zero; elements
// of 16 and of 8 bits as they are, those of a step of e4m3 from zero too, as units add them with few bits.
enum class implicit_units { fma, tensor };

// What a lane brings to instructions 16 x 8 x 8: of its warp's 32 pixels, and of eight of its channels.
struct implicit_pixels {
  tf32_pair x[2][4];
};
struct implicit_weights {
  tf32_pair w[2];
};

// Vector: whether chunks of 16 bytes, of channels of src that lie side by side, are read together.
template <class Element, int WarpRows, int WarpColumns, bool Vector, index_scheme Scheme,
          implicit_units Units = implicit_units::fma>
struct implicit_tile {
  using element = Element;
  // Two elements of 8 bits are one of 16 to whatever moves them: weights are packed in pairs.
  using unit = std::conditional_t<sizeof(Element) == 1, uint16_t, Element>;
  static constexpr int together = sizeof(unit) / sizeof(Element);
  static constexpr bool tensor = Units == implicit_units::tensor, halves = sizeof(unit) == 2;
  static constexpr index_scheme scheme = Scheme;
  static constexpr int warps = WarpRows * WarpColumns, threads = 32 * warps;
  static constexpr int chunk = 16 / int(sizeof(Element)), vector = Vector ? chunk : 1;
  static constexpr int bm = 32 * WarpRows, bn = 64 * WarpColumns, bk = 4 * chunk;
  // Rows of weights, too: a lane of an instruction reads another row than its neighbours.  In units, as they are.
  static constexpr int weights_pitch = tensor ? bn + 8 : bn, weights_chunk = chunk / together, units = bk / together;
  static constexpr int pitch = bk + chunk, stages = 3, unit_pitch = pitch / together;
  static constexpr int stage_floats = (bm * unit_pitch + units * weights_pitch) * int(sizeof(unit)) / 4;
  using warp_out = output_warp<Element, 32, tensor ? 32 + 8 : 32 + 4>;
  static constexpr int tile_floats =
      (stages * stage_floats > warps * warp_out::floats) ? (stages * stage_floats) : (warps * warp_out::floats);
  static constexpr int shared_bytes = tile_floats * 4 + bm * int(sizeof(implicit_pixel)) + int(sizeof(implicit_place)) +
                                      (Scheme == index_scheme::increments ? threads * 12 : 0);
  // A thread reads the same chunk of (tap, c) of several pixels, or a run of elements of one.
  static constexpr int rows = Vector ? bm * 4 / threads : 1;
  static constexpr int run = Vector ? chunk : bm * bk / threads;
  static constexpr int burst = run > 32 ? 8 : run;  // that are unrolled: more take minutes to compile
  static constexpr int lines = threads / (bn / weights_chunk), chunks = units / lines;  // of weights

  const implicit_conv& a;
  const implicit_tap* taps;
  float* shared;
  int32_t thread, weights;                       // weights: the thread's first of the next step; negative: it has none
  int32_t filling = 0, reading = 0, loaded = 0;  // floats of shared, twice; elements of (tap, c)
  sum_type<Element> sum[8][8];

  QUERN_INLINE implicit_tile(const implicit_conv& problem, const implicit_tap* table, int64_t block, int32_t thread_,
                             float* shared_)
      : a(problem), taps(table), shared(shared_), thread(thread_) {
    const int32_t tiles = a.pixel_tiles * a.channel_tiles, group = static_cast<int32_t>(block / tiles);
    const int32_t tile = static_cast<int32_t>(block - int64_t{group} * tiles), panel = tile % a.channel_tiles;
    const int32_t channel = panel * bn, rest = a.out.k - channel;
    const int32_t width = rest < bn ? (rest + weights_chunk - 1) / weights_chunk * weights_chunk : bn;
    const implicit_place here = {group, tile / a.channel_tiles * bm, channel, width};
    weights = group * a.weights_group + panel * a.weights_panel + line() * width + column();
    if (column() >= width) weights = INT32_MIN;
    if (thread == 0) place() = here;
    for (int32_t i = thread; i < bm; i += threads) pixels()[i] = implicit_pixel_at<Scheme>(a, group, here.pixel + i);
    if constexpr (Scheme == index_scheme::increments) {
      implicit_counters first = {};
      first.advance_far(a, first_element());
      counters()[thread] = first;
    }
    QUERN_UNROLL
    for (int i = 0; i < 64; ++i) sum[i / 8][i % 8] = 0;
  }

  // Behind the tiles: they are read once a step, and registers are dear.
  QUERN_INLINE implicit_pixel* pixels() const { return reinterpret_cast<implicit_pixel*>(shared + tile_floats); }
  QUERN_INLINE implicit_place& place() const { return *reinterpret_cast<implicit_place*>(pixels() + bm); }
  QUERN_INLINE implicit_counters* counters() const { return reinterpret_cast<implicit_counters*>(&place() + 1); }
  // What the thread reads of pixels: these rows of the tile, from this element of the step; and of weights.
  QUERN_INLINE int32_t row(int i) const { return Vector ? thread / 4 + i * (threads / 4) : thread % bm; }
  QUERN_INLINE int32_t first_element() const { return Vector ? thread % 4 * chunk : thread / bm * run; }
  QUERN_INLINE int32_t line() const { return thread / (bn / weights_chunk); }
  QUERN_INLINE int32_t column() const { return thread % (bn / weights_chunk) * weights_chunk; }
  QUERN_INLINE unit* weights_in(float* stage) const { return reinterpret_cast<unit*>(stage) + bm * unit_pitch; }

  // The chunk at `at` to where it belongs, zeros where it falls on padding or behind the last element.
  QUERN_INLINE void fill_pixel(Element* to, bool inside, int64_t at) const {
    const Element* from = static_cast<const Element*>(a.src) + (inside ? at : 0);
    if constexpr (!Vector) {
      fill<sizeof(Element)>(to, from, inside);
    } else if (a.src_vector) {
      fill<16>(to, from, inside);
    } else {
      QUERN_UNROLL
      for (int e = 0; e < chunk; ++e) fill<sizeof(Element)>(to + e, from + e, inside);
    }
  }

  // Requests the next step's pixels and weights.
  QUERN_INLINE void load() {
    if (loaded < a.depth) {
      Element* const x = reinterpret_cast<Element*>(shared + filling);
      implicit_counters now = {};
      if constexpr (Scheme == index_scheme::increments) now = counters()[thread];
      QUERN_ROLL
      for (int first = 0; first < run; first += burst) {
        QUERN_UNROLL
        for (int e = first; e < first + burst; e += vector) {
          int64_t at = now.at;
          int32_t d = 0, h = 0, w = 0;
          bool within = true;
          if constexpr (Scheme != index_scheme::increments) {
            const int32_t k = loaded + first_element() + e, tap = k / a.c, c = k - tap * a.c;
            within = k < a.depth;
            if constexpr (Scheme == index_scheme::division) {
              const int32_t line = tap / a.axis[2].taps, t = line / a.axis[1].taps;
              d = t * a.axis[0].tap_step, h = (line - t * a.axis[1].taps) * a.axis[1].tap_step;
              w = (tap - line * a.axis[2].taps) * a.axis[2].tap_step;
              at = d * a.src_stride[2] + h * a.src_stride[3] + w * a.src_stride[4];
            } else {
              const implicit_tap& entry = taps[within ? tap : 0];
              d = entry.d, h = entry.h, w = entry.w, at = entry.at;
            }
            at += c * a.src_stride[1];
          }
          QUERN_UNROLL
          for (int i = 0; i < rows; ++i) {
            const implicit_pixel pixel = pixels()[row(i)];
            bool inside;
            if constexpr (Scheme == index_scheme::increments) {
              inside = (static_cast<uint32_t>(pixel.w) >> (now.tap & 255) &
                        static_cast<uint32_t>(pixel.h) >> (now.tap >> 8 & 255) &
                        static_cast<uint32_t>(pixel.d) >> (now.tap >> 16) & 1) != 0;
            } else {
              inside = within && implicit_inside(a, pixel, d, h, w);
            }
            fill_pixel(x + row(i) * pitch + first_element() + e, inside, pixel.at + at);
          }
          if constexpr (Scheme == index_scheme::increments) {
            if (Vector || e + vector < run) {
              now.advance(a, Vector ? bk : vector);
            } else {
              now.advance_far(a, bk - run + vector);
            }
          }
        }
      }
      if constexpr (Scheme == index_scheme::increments) counters()[thread] = now;
      const int32_t width = place().width;
      QUERN_UNROLL
      for (int i = 0; i < chunks; ++i) {
        const bool inside = loaded + (line() + i * lines) * together < a.depth && weights >= 0;
        const int32_t to =
            tensor ? (line() + i * lines) * weights_pitch + column() : (thread + i * threads) * weights_chunk;
        fill<16>(weights_in(shared + filling) + to,
                 static_cast<const unit*>(a.weights) + (inside ? weights + i * lines * width : 0), inside);
      }
      weights += units * width;
    }
    loaded += bk;
    filling = filling == (stages - 1) * stage_floats ? 0 : filling + stage_floats;
  }

  QUERN_INLINE void next_stage() { reading = reading == (stages - 1) * stage_floats ? 0 : reading + stage_floats; }

  // Of elements k to k + 7 of the step that has arrived: rows and columns as the instruction has them.
  QUERN_INLINE void load_pixels(implicit_pixels& o, int k) const {
    const int32_t lane = thread % 32, warp = thread / 32;
    const float* x = shared + reading + (warp % WarpRows * 32 + lane / 4) * pitch + k + lane % 4;
    QUERN_UNROLL
    for (int i = 0; i < 8; ++i) o.x[i / 4][i % 4] = split_tf32(x[(i / 4 * 16 + i % 2 * 8) * pitch + i % 4 / 2 * 4]);
  }
  // Of channels 8 j to 8 j + 7.
  QUERN_INLINE void load_weights(implicit_weights& o, int k, int j) const {
    const int32_t lane = thread % 32, warp = thread / 32;
    const float* w =
        shared + reading + bm * pitch + (k + lane % 4) * weights_pitch + warp / WarpRows * 64 + j * 8 + lane / 4;
    o.w[0] = split_tf32(w[0]), o.w[1] = split_tf32(w[4 * weights_pitch]);
  }

  // Where this lane's row lies of the four matrices that make 16 of the warp's pixels x 16 units from k on, or
  // these 16 units x 16 channels.
  QUERN_INLINE const unit* pixel_row(int i, int k) const {
    const int32_t lane = thread % 32;
    return reinterpret_cast<const unit*>(shared + reading) +
           (thread / 32 % WarpRows * 32 + i * 16 + lane % 16) * unit_pitch + k + lane / 16 * 8;
  }
  QUERN_INLINE const unit* weight_row(int k, int j) const {
    const int32_t lane = thread % 32;
    return weights_in(shared + reading) + (k + lane % 16) * weights_pitch + thread / 32 / WarpRows * 64 + j * 8 +
           lane / 16 * 8;
  }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  __device__ __forceinline__ void multiply_halves_on_tensor_cores(sum_type<Element> (&to)[8][8]) const {
    QUERN_UNROLL
    for (int k = 0; k < units; k += 16) {
      uint32_t x[2][4];
      load_matrices<false>(x[0], pixel_row(0, k)), load_matrices<false>(x[1], pixel_row(1, k));
      QUERN_UNROLL
      for (int j = 0; j < 8; j += 2) {
        uint32_t w[4];
        load_matrices<true>(w, weight_row(k, j));
        QUERN_UNROLL
        for (int i = 0; i < 4; ++i)
          multiply_halves<Element>(to[j + i / 2], i % 2 * 4, x[i % 2], w[i / 2 * 2], w[i / 2 * 2 + 1]);
      }
    }
  }
  __device__ __forceinline__ void multiply_halves_on_tensor_cores() {
    if constexpr (std::is_same_v<Element, e4m3>) {
      float part[8][8] = {};
      multiply_halves_on_tensor_cores(part);
      QUERN_UNROLL
      for (int i = 0; i < 64; ++i) sum[i / 8][i % 8] += part[i / 8][i % 8];
    } else {
      multiply_halves_on_tensor_cores(sum);
    }
    next_stage();
  }

  // Sums of a step from zero, then added to the others.
  __device__ __forceinline__ void multiply_on_tensor_cores() {
    float part[8][2][4] = {};
    QUERN_UNROLL
    for (int k = 0; k < bk; k += 8) {
      implicit_pixels p;
      load_pixels(p, k);
      QUERN_UNROLL
      for (int j = 0; j < 8; j += 2) {
        implicit_weights q[2];
        load_weights(q[0], k, j), load_weights(q[1], k, j + 1);
        QUERN_UNROLL
        for (int i = 0; i < 4; ++i) {
          const auto& x = p.x[i % 2];
          const auto& w = q[i / 2].w;
          multiply_tf32(part[j + i / 2][i % 2], x[0].low, x[1].low, x[2].low, x[3].low, w[0].high, w[1].high);
        }
        QUERN_UNROLL
        for (int i = 0; i < 4; ++i) {
          const auto& x = p.x[i % 2];
          const auto& w = q[i / 2].w;
          multiply_tf32(part[j + i / 2][i % 2], x[0].high, x[1].high, x[2].high, x[3].high, w[0].low, w[1].low);
        }
        QUERN_UNROLL
        for (int i = 0; i < 4; ++i) {
          const auto& x = p.x[i % 2];
          const auto& w = q[i / 2].w;
          multiply_tf32(part[j + i / 2][i % 2], x[0].high, x[1].high, x[2].high, x[3].high, w[0].high, w[1].high);
        }
      }
    }
    QUERN_UNROLL
    for (int i = 0; i < 64; ++i) sum[i / 8][i % 8] += part[i / 8][i / 4 % 2][i % 4];
    next_stage();
  }
#endif

  // One step on what has arrived, as a chain of multiply-adds.
  QUERN_INLINE void multiply() {
    const int32_t lane = thread % 32, warp = thread / 32;
    const float* x = shared + reading + (warp % WarpRows * 32 + lane / 8) * pitch;
    const float* w = shared + reading + bm * pitch + warp / WarpRows * 64 + lane % 8 * 4;
    QUERN_UNROLL
    for (int k = 0; k < bk; k += 2) {
      two_floats rows_of_x[8];
      QUERN_UNROLL
      for (int i = 0; i < 8; ++i) rows_of_x[i] = *reinterpret_cast<const two_floats*>(x + 4 * i * pitch + k);
      QUERN_UNROLL
      for (int e = 0; e < 2; ++e) {
        const four_floats low = load_four(w + (k + e) * bn), high = load_four(w + (k + e) * bn + 32);
        QUERN_UNROLL
        for (int i = 0; i < 8; ++i) {
          QUERN_UNROLL
          for (int j = 0; j < 8; ++j) sum[i][j] = fmaf(rows_of_x[i].v[e], j < 4 ? low.v[j] : high.v[j - 4], sum[i][j]);
        }
      }
    }
    next_stage();
  }

  // ---- The epilogue, by each warp for itself: half of the channels into shared memory, and out row by row.

  QUERN_INLINE warp_out output() const { return {a.out, shared + thread / 32 * warp_out::floats, thread % 32}; }

  QUERN_INLINE void find_places() const { output().find_places(place().pixel + thread / 32 % WarpRows * 32); }

  QUERN_INLINE void stage(int half) const {
    const int32_t lane = thread % 32;
    if constexpr (tensor) {
      QUERN_UNROLL
      for (int i = 0; i < 16; ++i) {
        const int n = i / 4 + 4 * half, e = i % 4 * 2;
        *reinterpret_cast<two_floats*>(output().at(i % 4 * 8 + lane / 4, i / 4 * 8 + lane % 4 * 2)) = {
            {sum_bits(sum[n][e]), sum_bits(sum[n][e + 1])}};
      }
    } else {
      QUERN_UNROLL
      for (int i = 0; i < 8; ++i) {
        four_floats four;
        QUERN_UNROLL
        for (int j = 0; j < 4; ++j) four.v[j] = half ? sum[i][4 + j] : sum[i][j];
        *reinterpret_cast<four_floats*>(output().at(lane / 8 + 4 * i, lane % 8 * 4)) = four;
      }
    }
  }

  QUERN_INLINE void finish(int half) const {
    output().finish(place().group, place().channel + thread / 32 / WarpRows * 64 + half * 32);
  }
};

// The tiles that there are kernels of: pixels x channels.
using implicit_128x128 = implicit_tile<float, 4, 2, true, index_scheme::increments>;
using implicit_128x64 = implicit_tile<float, 4, 1, true, index_scheme::increments>;
using implicit_64x64 = implicit_tile<float, 2, 1, true, index_scheme::increments>;
using implicit_128x128_division = implicit_tile<float, 4, 2, true, index_scheme::division>;
using implicit_128x128_table = implicit_tile<float, 4, 2, true, index_scheme::table>;
using implicit_128x128_any = implicit_tile<float, 4, 2, false, index_scheme::increments>;
using implicit_128x64_any = implicit_tile<float, 4, 1, false, index_scheme::increments>;
using implicit_64x64_any = implicit_tile<float, 2, 1, false, index_scheme::division>;

template <class Element>
using tensor_128x128 = implicit_tile<Element, 4, 2, true, index_scheme::increments, implicit_units::tensor>;
template <class Element>
using tensor_128x64 = implicit_tile<Element, 4, 1, true, index_scheme::increments, implicit_units::tensor>;
template <class Element>
using tensor_64x64 = implicit_tile<Element, 2, 1, true, index_scheme::increments, implicit_units::tensor>;
template <class Element>
using tensor_128x64_any = implicit_tile<Element, 4, 1, false, index_scheme::increments, implicit_units::tensor>;
template <class Element>
using tensor_64x64_any = implicit_tile<Element, 2, 1, false, index_scheme::division, implicit_units::tensor>;

}  // namespace
}  // namespace quern
