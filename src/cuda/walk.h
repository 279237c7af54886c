// SPDX-License-Identifier: MIT
//
// Convolution of few input channels a group, depthwise among them, walking down the lines of lines.h.
//
//   dst[pixel][o] = epilogue(sum over taps (r, s), channels c of the group of o of
//                              src[pixel at tap][c] * weights[r][s][c][o])
//
// A sum is one chain of fused multiply-adds in the order (r, s, c), as on the CPU: the same bits, unless a weight
// beside padding is infinite or NaN, as padding is multiplied here.
//
// A thread has a strip of outputs of a channel, and all weights of it in registers: an input, loaded once, goes into
// the sums of all outputs that it meets, along the line and in all lines, which move up by one register with the first
// product of each chain.  Depthwise 7x7 is 343 multiply-adds for 13 loads that way.  Of filters with few products a
// thread has two neighbouring channels: half as many loads, stores and addresses.
#pragma once

#include "cuda/chunks.h"
#include "cuda/lines.h"
#include "cuda/strip_sums.h"

namespace quern {
namespace {

// Groups of so many input channels, a filter of Taps x Taps with this step between outputs; Outputs: channels of a
// thread, each a group of its own where there are two.
template <class Element, int Group, int Taps, int Step, int Columns, int Outputs = 1>
struct walk_thread : lines_block<Element, 128, Columns, Step> {
  using element = Element;
  using block = lines_block<Element, 128, Columns, Step>;
  static_assert(Outputs == 1 || Group == 1);
  static constexpr int threads = 128, group = Group, taps = Taps, step = Step, columns_of_strip = Columns,
                       job_outputs = Outputs;
  // Lines of outputs that a line of inputs meets, and inputs under a strip.
  static constexpr int depth = (Taps + Step - 1) / Step, width = (Columns - 1) * Step + Taps;
  static constexpr bool leaves_out = Group == 1 && Outputs == 1 && Taps > 3;
  static constexpr bool writes_plain = Outputs > 1;
  static constexpr int pad = 16 / sizeof(Element);  // between pixels of the ring, against bank conflicts
  static constexpr int scratch_bytes = 4 * threads * Columns;
  // Of four, two or one strip, with as many channels as that leaves threads for.
  static constexpr int line_elements(int strips) {
    return ((strips * Columns - 1) * Step + Taps) * (threads / strips * Outputs + pad);
  }
  static constexpr int most_elements = line_elements(1) > line_elements(2)
                                           ? line_elements(1) > line_elements(4) ? line_elements(1) : line_elements(4)
                                       : line_elements(2) > line_elements(4) ? line_elements(2)
                                                                             : line_elements(4);
  static constexpr int shared_bytes = scratch_bytes + block::ring_size * most_elements * int(sizeof(Element));

  float w[Outputs][Taps * Taps * Group];
  float sum[depth][Outputs][Columns] = {};
  const Element* own;  // of the first line of the ring
  float* scratch;
  bool active;
  bool plain;       // nothing but clamps is left, and outputs of channels may be written at once
  int32_t columns;  // that there are from the strip's first on
  Element* dst;     // of that, in the run's first line
  plain_results<Element, Outputs> results;

  QUERN_INLINE walk_thread(const lines_conv& conv, float* shared, int32_t block_index, int32_t index)
      : block(conv, shared + scratch_bytes / 4, block_index, index), scratch(shared + index) {
    const int32_t of_set = conv.wide * conv.strips, set = index / of_set, rest = index - set * of_set;
    const int32_t strip = rest / conv.wide, channels = conv.wide * conv.sets;
    int32_t in = set * conv.wide + rest - strip * conv.wide;
    this->column = this->first_column + strip * Columns;
    this->channel = this->chunk * channels + in;
    columns = this->columns_from(this->column);
    active = in < channels && this->channel < conv.outputs && columns > 0;
    if (!active) this->channel = this->chunk * channels;
    own = this->ring + (active ? strip * Columns * Step * conv.column_at : 0) +
          (this->channel / conv.unit_outputs * (Group * Outputs) - this->first_input) * conv.channel_at;
    this->channel *= Outputs;
    const gpu_output& out = conv.out;
    plain = writes_plain && out.vector && only_clamps(out.epilogue) && !out.epilogue.residual;
    dst = static_cast<Element*>(out.dst) + this->n * out.dst_stride[0] + this->channel * out.dst_stride[1] +
          this->output_at(this->line, this->column, conv.dst_pixel);
  }

  QUERN_INLINE void load_weights() {
    const Element* const panel = static_cast<const Element*>(this->a.weights) +
                                 int64_t{this->channel / few_lanes} * (Taps * Taps * Group * few_lanes) +
                                 this->channel % few_lanes;
    QUERN_UNROLL
    for (int i = 0; i < Taps * Taps * Group; ++i) {
      const several<Element, Outputs> of_tap = read<Outputs>(panel + i * few_lanes);
      QUERN_UNROLL
      for (int o = 0; o < Outputs; ++o) w[o][i] = of_tap.at(o);
    }
  }
  QUERN_INLINE void load_channels() {
    results.load(this->a.out.epilogue, this->channel);
    this->brings = channel_of(this->a.out.epilogue, this->channel);
  }

  // A line of inputs, number k of a step.
  QUERN_INLINE void add(int k, int32_t number) {
    const Element* const pixels = own + number % block::ring_size * this->a.line_at;
    if constexpr (leaves_out) {
      add_met(pixels, k, number);
    } else {
      add_all(pixels, k);
    }
  }
  QUERN_INLINE void add_all(const Element* pixels, int k) {
    QUERN_UNROLL
    for (int i = 0; i < width; ++i) {
      // An output's are of its group; of two outputs each has one.
      float x[Group * Outputs];
      if constexpr (Group % 4 == 0) {
        QUERN_UNROLL
        for (int c = 0; c < Group; c += 4) {
          const four_floats four = load_four(pixels + i * this->a.column_at + c);
          QUERN_UNROLL
          for (int v = 0; v < 4; ++v) x[c + v] = four.v[v];
        }
      } else {
        const several<Element, Outputs> two = read<Outputs>(pixels + i * this->a.column_at);
        QUERN_UNROLL
        for (int o = 0; o < Outputs; ++o) x[o] = two.at(o);
      }
      add_input<Group, Taps, Step>(sum, w, x, i, k);
    }
  }

  // The same for filters of so many lines that those which are padding, and products for outputs that the block does
  // not have, are worth leaving out.
  QUERN_INLINE void add_met(const Element* pixels, int k, int32_t number) {
    const int32_t inputs = this->has_input(number) ? (this->end - this->line) * Step : 0;
    float x[width];
    QUERN_UNROLL
    for (int i = 0; i < width; ++i) x[i] = value(pixels[i * this->a.column_at]);
    QUERN_UNROLL
    for (int j = depth - 1; j >= 0; --j) {
      const int r = j * Step + k;
      if (k == 0) {
        QUERN_UNROLL
        for (int q = 0; q < Columns; ++q) sum[j][0][q] = j > 0 ? sum[j - 1][0][q] : 0.0f;
      }
      if (r >= Taps || static_cast<uint32_t>(number - r) >= static_cast<uint32_t>(inputs)) continue;
      QUERN_UNROLL
      for (int s = 0; s < Taps; ++s) {
        QUERN_UNROLL
        for (int q = 0; q < Columns; ++q) sum[j][0][q] = fmaf(x[q * Step + s], w[0][r * Taps + s], sum[j][0][q]);
      }
    }
  }

  // The line of outputs that is finished, if it is one of the run.
  template <bool Plain>
  QUERN_INLINE void finish(int32_t of_run) {
    const bool there = active && this->has_output(of_run);
    if constexpr (Plain) {
      write_plain(of_run, there ? columns : 0);
    } else if constexpr (Outputs > 1) {
      if (there) write_each(of_run);
    } else {
      if (there) this->write(this->line + of_run, sum[depth - 1][0], scratch, threads);
    }
  }

 private:
  QUERN_INLINE void write_each(int32_t of_run) {
    QUERN_ROLL
    for (int o = 0; o < Outputs; ++o, ++this->channel) {
      float y[Columns];
      QUERN_UNROLL
      for (int q = 0; q < Columns; ++q) y[q] = o > 0 ? sum[depth - 1][Outputs - 1][q] : sum[depth - 1][0][q];
      this->brings = channel_of(this->a.out.epilogue, this->channel);
      this->write(this->line + of_run, y, scratch, threads);
    }
    this->channel -= Outputs;
  }
  QUERN_INLINE void write_plain(int32_t of_run, int32_t count) const {
    Element* pixel = dst + int64_t{of_run} * (this->a.y.classes * this->a.dst_pixel[0]);
    const int32_t next = this->a.x.classes * this->a.dst_pixel[1];
    QUERN_UNROLL
    for (int q = 0; q < Columns; ++q) {
      const several<Element, Outputs> all = results.of(this->a.out.epilogue, sum[depth - 1], q);
      if (q < count) put_whole(pixel, all);
      pixel += next;
    }
  }
};

template <class T>
struct walk_kernels {
  using c1_3x3 = walk_thread<T, 1, 3, 1, 7>;
  using c1_3x3s2 = walk_thread<T, 1, 3, 2, 7>;
  using c1_5x5 = walk_thread<T, 1, 5, 1, 7>;
  using c1_5x5s2 = walk_thread<T, 1, 5, 2, 7>;
  using c1_7x7 = walk_thread<T, 1, 7, 1, 7>;
  using c1_7x7s2 = walk_thread<T, 1, 7, 2, 4>;
  using c2_3x3 = walk_thread<T, 1, 3, 1, 7, 2>;
  using c2_3x3s2 = walk_thread<T, 1, 3, 2, 7, 2>;
  using c4_3x3 = walk_thread<T, 4, 3, 1, 7>;
  using c4_3x3s2 = walk_thread<T, 4, 3, 2, 7>;
  using c8_3x3 = walk_thread<T, 8, 3, 1, 7>;
  using c8_3x3s2 = walk_thread<T, 8, 3, 2, 4>;
  using c16_3x3 = walk_thread<T, 16, 3, 1, 4>;
};

}  // namespace
}  // namespace quern
