// SPDX-License-Identifier: MIT
//
// Convolution of few input channels a group, depthwise among them, by threads that have nothing in common: no barrier,
// no tile in shared memory, nothing but L1 between them.  Written for any compiler, as a test runs them on this CPU.
//
//   dst[pixel][o] = epilogue(sum over taps (r, s), channels c of the group of o of
//                              src[pixel at tap][c] * weights[r][s][c][o])
//
// A sum is one chain of fused multiply-adds in the order (r, s, c), as on the CPU: the same bits, unless a weight
// beside padding is infinite or NaN, as columns of padding are multiplied here.  An axis with dilation falls into
// classes of outputs that share no input (depthwise_classes.h): each is an undilated problem.
//
// Lanes are neighbouring outputs of a pixel.  What limits such a kernel is what it loads for a multiply-add, so
// everything that is loaded is used where it is:
//
//   walk    all weights of an output stay in registers while a thread walks down the image: a line of inputs, loaded
//           once, goes into the sums of all lines of outputs that it meets, which move up by one register with the
//           first product of each chain
//   block   filters too large for that: a block of outputs stays in registers, and taps pass, some of a line at a time
#pragma once

#include <type_traits>

#include "cuda/output.h"

namespace quern {
namespace {

// The output i of class c, which is number c + i * classes of the axis, meets input
// begin + c * class_step + (i * step + u) * apart through tap u.
struct few_axis {
  int32_t count, classes, step, apart, begin, class_step, size, taps;
  int32_t parts;  // of a class: strips of columns, runs of lines
};

// By value in the kernel's parameters: one phase of a problem.
struct few_conv {
  few_axis x, y;
  int32_t lines;                      // of a run
  int32_t chunks, outputs, channels;  // chunks of outputs; outputs and channels of a group
  int32_t threads;
  bool across;  // threads follow each other along x; else along channels
  int64_t src_image, src_group, src_channel;
  // From line to line and from pixel to pixel: an image is within reach of 32 bits.
  int32_t src_pixel[2], dst_pixel[2], residual_pixel[2];
  const void *src, *weights;  // of 32 outputs: [tap][channel][32]
  gpu_output out;
};
constexpr int few_threads = 128, few_lanes = 32;

// ---- Some channels that lie side by side ------------------------------------------------------------------------

// As they lie in memory.  A thread asks for all that it reads of a line before it turns the first of them into
// floats, and reads no less where there is nothing to read: a branch around a load would wait for it.
template <class T, int V>
struct alignas(V * sizeof(T)) few_chunk {
  using word = std::conditional_t<sizeof(T) == 4, float, uint32_t>;
  word w[V * sizeof(T) / 4];

  QUERN_INLINE float at(int i) const {
    if constexpr (sizeof(T) == 4) {
      return w[i];
    } else {
      return value(T{static_cast<uint16_t>(w[i / 2] >> i % 2 * 16)});
    }
  }
};
template <class T>
struct few_chunk<T, 1> {
  T v;
  QUERN_INLINE float at(int) const { return value(v); }
};

template <class T, int V>
QUERN_INLINE few_chunk<T, V> read_chunk(const T* p) {
  return *reinterpret_cast<const few_chunk<T, V>*>(p);
}

template <class T, int V>
QUERN_INLINE void write_chunk(T* p, const float (&x)[V]) {
  if constexpr (V == 1) {
    *p = rounded<T>(x[0]);
  } else if constexpr (V == 4) {
    store_four(p, {{x[0], x[1], x[2], x[3]}});
  } else if constexpr (sizeof(T) == 4) {
    *reinterpret_cast<two_floats*>(p) = {{x[0], x[1]}};
  } else {
    *reinterpret_cast<uint32_t*>(p) = rounded_pair<T>(x[0], x[1]);
  }
}

// ---- Where a thread works ---------------------------------------------------------------------------------------

template <class T, int V, int Columns>
struct few_place {
  const few_conv& a;
  int32_t n, channel, class_x, class_y;
  int32_t column, line, end;  // the first output of its class, and the lines before `end`
  const T* src;               // the group's first channel, in the image
  const T* weights;
  float* shared;          // Columns * V, `few_threads` apart
  channel_f32 brings[V];  // what the epilogue has for each channel

  QUERN_INLINE few_place(const few_conv& conv, int32_t index, float* shared_) : a(conv), shared(shared_) {
    const int32_t strips = a.x.parts * a.x.classes;
    int32_t rest = index, strip, chunk;
    const auto take = [&](int32_t of) {
      const int32_t before = rest;
      rest /= of;
      return before - rest * of;
    };
    if (a.across) {
      strip = take(strips), chunk = take(a.chunks);
    } else {
      chunk = take(a.chunks), strip = take(strips);
    }
    const int32_t run = take(a.y.parts);
    class_y = take(a.y.classes), n = rest;
    class_x = strip / a.x.parts, column = (strip - class_x * a.x.parts) * Columns;
    line = run * a.lines;
    const int32_t lines = (a.y.count - class_y + a.y.classes - 1) / a.y.classes;
    end = line + a.lines < lines ? line + a.lines : lines;
    channel = chunk * V;
    src = static_cast<const T*>(a.src) + n * a.src_image + channel / a.outputs * a.src_group;
    weights = static_cast<const T*>(a.weights) +
              int64_t{channel / few_lanes} * a.y.taps * a.x.taps * a.channels * few_lanes + channel % few_lanes;
    QUERN_UNROLL
    for (int v = 0; v < V; ++v) brings[v] = channel_of(a.out.epilogue, channel + v);
  }

  // Inputs of the class, counted in steps of `apart`: where number i lies, whether it exists.
  QUERN_INLINE int32_t line_at(int32_t i) const { return a.y.begin + class_y * a.y.class_step + i * a.y.apart; }
  QUERN_INLINE int32_t column_at(int32_t i) const { return a.x.begin + class_x * a.x.class_step + i * a.x.apart; }
  QUERN_INLINE bool has_line(int32_t at) const { return static_cast<uint32_t>(at) < static_cast<uint32_t>(a.y.size); }
  QUERN_INLINE bool has_column(int32_t at) const { return static_cast<uint32_t>(at) < static_cast<uint32_t>(a.x.size); }

  // A bit for each of so many columns of inputs that there is.
  template <int Count>
  QUERN_INLINE uint32_t columns_from(int32_t first) const {
    static_assert(Count <= 32);
    uint32_t bits = 0;
    QUERN_UNROLL
    for (int i = 0; i < Count; ++i) bits |= static_cast<uint32_t>(has_column(first + i * a.x.apart)) << i;
    return bits;
  }

  QUERN_INLINE void write(int32_t of_line, const float (&sum)[Columns][V]) const {
    const gpu_output& out = a.out;
    const epilogue_f32& e = out.epilogue;
    const int32_t p = class_y + of_line * a.y.classes, q = class_x + column * a.x.classes;
    const int32_t columns = (a.x.count - q + a.x.classes - 1) / a.x.classes;
    T* const dst = static_cast<T*>(out.dst) + n * out.dst_stride[0] + channel * out.dst_stride[1];
    const T* const residual =
        static_cast<const T*>(out.residual) + n * out.residual_stride[0] + channel * out.residual_stride[1];
    const int32_t to = p * a.dst_pixel[0] + q * a.dst_pixel[1], to_next = a.x.classes * a.dst_pixel[1];
    const int32_t from = p * a.residual_pixel[0] + q * a.residual_pixel[1];
    const int32_t from_next = a.x.classes * a.residual_pixel[1];
    if (out.vector && only_clamps(e)) {
      QUERN_UNROLL
      for (int i = 0; i < Columns; ++i) {
        if (i >= columns) continue;
        few_chunk<T, V> r = {};
        if (e.residual) r = read_chunk<T, V>(residual + (from + i * from_next));
        float y[V];
        QUERN_UNROLL
        for (int v = 0; v < V; ++v) y[v] = finished<true>(e, brings[v], sum[i][v], r.at(v));
        write_chunk(dst + (to + i * to_next), y);
      }
      return;
    }
    QUERN_UNROLL
    for (int i = 0; i < Columns * V; ++i) shared[i * few_threads] = sum[i / V][i % V];
    QUERN_ROLL
    for (int i = 0; i < Columns * V; ++i) {
      const int32_t at = i / V, v = i - at * V;
      if (at >= columns) break;
      const float r = e.residual ? value(residual[from + at * from_next + v * out.residual_stride[1]]) : 0.0f;
      dst[to + at * to_next + v * out.dst_stride[1]] =
          rounded<T>(finished<false>(e, channel_of(e, channel + v), shared[i * few_threads], r));
    }
  }
};

// ---- Kernels ----------------------------------------------------------------------------------------------------

// Depthwise, a filter of Taps x Taps with this step between outputs: V channels by Columns of outputs.
template <class Element, int Taps, int Step, int V, int Columns>
struct few_walk {
  using element = Element;
  static constexpr int group = 1, taps = Taps, step = Step, vector = V, columns = Columns, lines = 0, aligned = V;
  static constexpr int shared_bytes = 4 * few_threads * Columns * V;
  // Lines of outputs that a line of inputs meets, and inputs under a strip.
  static constexpr int depth = (Taps + Step - 1) / Step, width = (Columns - 1) * Step + Taps;

  QUERN_INLINE static void run(const few_conv& a, int32_t index, float* shared) {
    const few_place<Element, V, Columns> here(a, index, shared);
    float w[Taps * Taps][V];
    QUERN_UNROLL
    for (int i = 0; i < Taps * Taps; ++i) {
      const auto chunk = read_chunk<Element, V>(here.weights + i * few_lanes);
      QUERN_UNROLL
      for (int v = 0; v < V; ++v) w[i][v] = chunk.at(v);
    }
    const int32_t first = here.column_at(here.column * Step);
    const int32_t apart = a.x.apart * a.src_pixel[1], begin = first * a.src_pixel[1];
    const uint32_t exists = here.template columns_from<width>(first);
    float sum[depth][Columns][V] = {};
    few_chunk<Element, V> next[width] = {};
    const auto load = [&](int32_t line) {
      const int32_t from = begin + line * a.src_pixel[0];
      QUERN_UNROLL
      for (int i = 0; i < width; ++i)
        next[i] = read_chunk<Element, V>(here.src + (exists >> i & 1 ? from + i * apart : 0));
    };
    int32_t at = here.line_at(here.line * Step);
    if (here.has_line(at)) load(at);
    QUERN_ROLL
    for (int32_t line = here.line; line < here.end + depth - 1; ++line) {
      QUERN_UNROLL
      for (int k = 0; k < Step; ++k) {
        const bool there = here.has_line(at);
        float x[width][V];
        QUERN_UNROLL
        for (int i = 0; i < width * V; ++i) x[i / V][i % V] = exists >> i / V & 1 ? next[i / V].at(i % V) : 0.0f;
        at += a.y.apart;
        if (here.has_line(at)) load(at);
        QUERN_UNROLL
        for (int j = depth - 1; j >= 0; --j) {
          const int r = j * Step + k;
          if (r >= Taps) continue;
          if (there && line - j >= here.line && line - j < here.end) {
            QUERN_UNROLL
            for (int s = 0; s < Taps; ++s) {
              QUERN_UNROLL
              for (int i = 0; i < Columns * V; ++i) {
                const int c = i / V, v = i % V;
                const float before = s > 0 || k > 0 ? sum[j][c][v] : j > 0 ? sum[j - 1][c][v] : 0.0f;
                sum[j][c][v] = fmaf(x[c * Step + s][v], w[r * Taps + s][v], before);
              }
            }
          } else if (k == 0) {
            QUERN_UNROLL
            for (int i = 0; i < Columns * V; ++i) sum[j][i / V][i % V] = j > 0 ? sum[j - 1][i / V][i % V] : 0.0f;
          }
        }
        if (k == (Taps - 1) % Step && line - (depth - 1) >= here.line) here.write(line - (depth - 1), sum[depth - 1]);
      }
    }
  }
};

// Group channels meet one output, column by column: only those of one column are in registers.
template <class Element, int Group, int Taps, int Step, int Columns>
struct few_group_walk {
  using element = Element;
  static constexpr int group = Group, taps = Taps, step = Step, vector = 1, columns = Columns, lines = 0;
  static constexpr int shared_bytes = 4 * few_threads * Columns;
  static constexpr int depth = (Taps + Step - 1) / Step, width = (Columns - 1) * Step + Taps;
  // Channels that are read at once.
  static constexpr int aligned = Group % 4 == 0 ? 4 : 1;

  // Columns that are asked for before they are used.
  static constexpr int ahead = Group <= 4 ? width : Group <= 8 ? 3 : 2;

  // Line number k of a step, in all sums that it meets, or in those that belong to the thread.
  template <bool All>
  QUERN_INLINE static void add(const few_place<Element, 1, Columns>& here, int k, uint32_t exists, int32_t from,
                               int32_t apart, int32_t line, const float (&w)[Taps * Taps * Group],
                               float (&sum)[depth][Columns][1]) {
    few_chunk<Element, aligned> next[width][Group / aligned];
    const auto load = [&](int i) {
      const int32_t place = exists >> i & 1 ? from + i * apart : 0;
      QUERN_UNROLL
      for (int c = 0; c < Group; c += aligned)
        next[i][c / aligned] =
            read_chunk<Element, aligned>(here.src + (place + (aligned > 1 ? c : c * here.a.src_channel)));
    };
    QUERN_UNROLL
    for (int i = 0; i < ahead; ++i) load(i);
    QUERN_UNROLL
    for (int i = 0; i < width; ++i) {
      if (i + ahead < width) load(i + ahead);
      float x[Group];
      QUERN_UNROLL
      for (int c = 0; c < Group; ++c) x[c] = exists >> i & 1 ? next[i][c / aligned].at(c % aligned) : 0.0f;
      QUERN_UNROLL
      for (int j = depth - 1; j >= 0; --j) {
        const int r = j * Step + k;
        if (r >= Taps || (!All && (line - j < here.line || line - j >= here.end))) continue;
        QUERN_UNROLL
        for (int c = 0; c < Group; ++c) {
          QUERN_UNROLL
          for (int q = 0; q < Columns; ++q) {
            const int s = i - q * Step;
            if (s < 0 || s >= Taps) continue;
            const float before = s > 0 || c > 0 || k > 0 ? sum[j][q][0] : j > 0 ? sum[j - 1][q][0] : 0.0f;
            sum[j][q][0] = fmaf(x[c], w[(r * Taps + s) * Group + c], before);
          }
        }
      }
    }
  }

  QUERN_INLINE static void run(const few_conv& a, int32_t index, float* shared) {
    const few_place<Element, 1, Columns> here(a, index, shared);
    float w[Taps * Taps * Group];
    QUERN_UNROLL
    for (int i = 0; i < Taps * Taps * Group; ++i) w[i] = value(here.weights[i * few_lanes]);
    const int32_t first = here.column_at(here.column * Step);
    const int32_t apart = a.x.apart * a.src_pixel[1], begin = first * a.src_pixel[1];
    const uint32_t exists = here.template columns_from<width>(first);
    float sum[depth][Columns][1] = {};
    int32_t at = here.line_at(here.line * Step);
    QUERN_ROLL
    for (int32_t line = here.line; line < here.end + depth - 1; ++line) {
      const bool all = line - (depth - 1) >= here.line && line < here.end;
      QUERN_UNROLL
      for (int k = 0; k < Step; ++k, at += a.y.apart) {
        if (here.has_line(at)) {
          const int32_t from = begin + at * a.src_pixel[0];
          if (all) {
            add<true>(here, k, exists, from, apart, line, w, sum);
          } else {
            add<false>(here, k, exists, from, apart, line, w, sum);
          }
        } else if (k == 0) {
          QUERN_UNROLL
          for (int i = depth * Columns - 1; i >= 0; --i)
            sum[i / Columns][i % Columns][0] = i >= Columns ? sum[i / Columns - 1][i % Columns][0] : 0.0f;
        }
        if (k == (Taps - 1) % Step && line - (depth - 1) >= here.line) here.write(line - (depth - 1), sum[depth - 1]);
      }
    }
  }
};

// Depthwise, any filter: Lines x Columns outputs of a channel, Run taps of a line at a time.  Step 0: any, which shares
// no inputs.
template <class Element, int Step, int Lines, int Columns, int Run>
struct few_block {
  using element = Element;
  static constexpr int group = 1, taps = 0, step = Step, vector = 1, columns = Columns, lines = Lines, aligned = 1;
  static constexpr int shared_bytes = 4 * few_threads * Columns;
  static_assert(Step > 0 || Lines == 1);

  // `Count` taps from s on of the line of inputs that is number `at` under the block.
  template <int Count>
  QUERN_INLINE static void add(const few_place<Element, 1, Columns>& here, float (&sum)[Lines][Columns][1], int32_t src,
                               int32_t at, int32_t s) {
    const few_conv& a = here.a;
    constexpr int width = Step > 0 ? (Columns - 1) * Step + Count : Columns * Count;
    float x[width];
    bool exists[width];
    few_chunk<Element, 1> next[width];
    QUERN_UNROLL
    for (int i = 0; i < width; ++i) {
      const int32_t column =
          Step > 0 ? here.column * Step + s + i : (here.column + i / Count) * a.x.step + s + i % Count;
      const int32_t from = here.column_at(column);
      exists[i] = here.has_column(from);
      next[i] = read_chunk<Element, 1>(here.src + (exists[i] ? src + from * a.src_pixel[1] : 0));
    }
    QUERN_UNROLL
    for (int i = 0; i < width; ++i) x[i] = exists[i] ? next[i].at(0) : 0.0f;
    QUERN_UNROLL
    for (int j = 0; j < Lines; ++j) {
      const int32_t r = at - j * Step;
      if (r < 0 || r >= a.y.taps || here.line + j >= here.end) continue;
      const Element* const w = here.weights + (r * a.x.taps + s) * few_lanes;
      QUERN_UNROLL
      for (int u = 0; u < Count; ++u) {
        const float weight = value(w[u * few_lanes]);
        QUERN_UNROLL
        for (int i = 0; i < Columns; ++i)
          sum[j][i][0] = fmaf(x[Step > 0 ? i * Step + u : i * Count + u], weight, sum[j][i][0]);
      }
    }
  }

  QUERN_INLINE static void run(const few_conv& a, int32_t index, float* shared) {
    const few_place<Element, 1, Columns> here(a, index, shared);
    float sum[Lines][Columns][1] = {};
    // Taps that meet the image in any of the columns.
    const int32_t first = here.column_at(here.column * a.x.step);
    const int32_t last = first + (Columns - 1) * a.x.step * a.x.apart, behind = a.x.size - first;
    int32_t begin = last < 0 ? (-last + a.x.apart - 1) / a.x.apart : 0;
    int32_t end = behind > 0 ? (behind + a.x.apart - 1) / a.x.apart : 0;
    if (end > a.x.taps) end = a.x.taps;
    QUERN_ROLL
    for (int32_t i = 0; i < (Lines - 1) * Step + a.y.taps; ++i) {
      const int32_t line = here.line_at(here.line * a.y.step + i);
      if (!here.has_line(line)) continue;
      const int32_t src = line * a.src_pixel[0];
      int32_t s = begin;
      QUERN_ROLL
      for (; s + Run <= end; s += Run) add<Run>(here, sum, src, i, s);
      QUERN_ROLL
      for (; s < end; ++s) add<1>(here, sum, src, i, s);
    }
    QUERN_UNROLL
    for (int j = 0; j < Lines; ++j)
      if (here.line + j < here.end) here.write(here.line + j, sum[j]);
  }
};

// Input channels of a group, the filter, the step between outputs, channels of a thread.
template <class T>
struct few_kernels {
  using c1_3x3 = few_walk<T, 3, 1, 1, 4>;
  using c1_3x3s2 = few_walk<T, 3, 2, 1, 4>;
  using c1_3x3_x2 = few_walk<T, 3, 1, 2, 4>;
  using c1_3x3s2_x2 = few_walk<T, 3, 2, 2, 4>;
  using c1_5x5 = few_walk<T, 5, 1, 1, 7>;
  using c1_5x5s2 = few_walk<T, 5, 2, 1, 4>;
  using c1_7x7 = few_walk<T, 7, 1, 1, 4>;
  using c1_7x7s2 = few_walk<T, 7, 2, 1, 4>;
  using c1_any = few_block<T, 1, 4, 7, 4>;
  using c1_anys2 = few_block<T, 2, 4, 7, 4>;
  using c1_any_step = few_block<T, 0, 1, 4, 4>;
  using c4_3x3 = few_group_walk<T, 4, 3, 1, 4>;
  using c4_3x3s2 = few_group_walk<T, 4, 3, 2, 4>;
  using c8_3x3 = few_group_walk<T, 8, 3, 1, 4>;
  using c8_3x3s2 = few_group_walk<T, 8, 3, 2, 4>;
  using c16_3x3 = few_group_walk<T, 16, 3, 1, 2>;
};

}  // namespace
}  // namespace quern
