// SPDX-License-Identifier: MIT
//
// Grouped convolution of up to 32 channels a group, depthwise among them, in 16 bits on the matrix instructions of a
// warp, walking down the lines of lines.h.  What a thread does between two barriers is a function here, written for any
// compiler, as implicit.h has it.
//
//   dst[pixel][o] = epilogue(sum over taps (r, s), channels c of the group of o of
//                              src[pixel at tap][c] * weights[r][s][c][o])
//
// A warp has a strip of 16 pixels of a line by 16 outputs, two tiles of an instruction, and Depth inputs that these sum
// up: a group or its half, or several small groups side by side, whose weights for each other are zeros.  With a Depth
// of eight there is one tile, and an instruction has two neighbouring taps.  All weights stay in registers; pixels are
// read by ldmatrix from the ring where they lie, once for all lines of outputs that they meet.  Sums of a line are
// begun in one register and finished in another: they move up with the first product of each.
//
// As groups beside an output's own are multiplied by zero, infinite and NaN inputs of one may make those NaN.
#pragma once

#include "cuda/chunks.h"
#include "cuda/lines.h"
#include "cuda/several.h"

namespace quern {
namespace {

template <class Element, int Depth, int Taps, int Step>
struct group_thread : lines_block<Element, 128, 16, Step> {
  using element = Element;
  using block = lines_block<Element, 128, 16, Step>;
  static constexpr int threads = 128, group = Depth, taps = Taps, step = Step, columns_of_strip = 16;
  static constexpr bool small = Depth == 8;
  static constexpr int tiles = small ? 1 : 2, job_outputs = 8 * tiles;
  static constexpr int met = (Taps + Step - 1) / Step;  // of outputs that a line of inputs meets
  static constexpr int steps = small ? 1 : Depth / 16;  // of an instruction
  // Whether lines of padding are left out: they are worth a branch.
  static constexpr bool leaves_out = Taps > 3;
  static constexpr bool writes_plain = true;
  static constexpr int words = small ? 1 : 4 * steps;  // of a tap's weights
  static constexpr int pad = 8;                        // elements between pixels of the ring: other banks
  static constexpr int scratch_bytes = 4 * threads * 4 * tiles;
  // Of four jobs of a strip, or two of two.
  static constexpr int line_elements(int strips) {
    return ((strips * 16 - 1) * Step + Taps) * (4 / strips * Depth + pad);
  }
  static constexpr int most_elements = Depth == 32 || line_elements(1) > line_elements(2) ? line_elements(1)
                                                                                          : line_elements(2);
  static constexpr int shared_bytes = scratch_bytes + block::ring_size * 2 * most_elements;

  uint32_t w[Taps * Taps * words];
  float sum[met][tiles][4] = {};
  float* scratch;
  const Element* own;         // what the lane names of the first line of the ring, for ldmatrix
  int32_t count, weights_at;  // outputs of the job; its number, for weights
  channel_f32 of[tiles][2];
  Element* dst;     // of pixel lane / 4 in the run's first line, the lane's first output
  int32_t columns;  // that there are from that pixel on
  uint32_t lower, upper;
  bool plain;  // nothing but clamps is left, and outputs lie in pairs

  QUERN_INLINE group_thread(const lines_conv& conv, float* shared, int32_t block_index, int32_t index)
      : block(conv, shared + scratch_bytes / 4, block_index, index), scratch(shared + index) {
    const int32_t warp = index / 32, own_lane = index % 32, job = quotient(warp, conv.strips),
                  strip = warp - job * conv.strips;
    const int32_t number = job < conv.wide ? this->chunk * conv.wide + job : conv.outputs;
    const int32_t set = quotient(number, conv.unit_outputs), part = number - set * conv.unit_outputs;
    this->column = this->first_column + strip * 16;
    this->channel = set * conv.set_outputs + part * job_outputs;
    const int32_t of_set = conv.set_outputs - part * job_outputs, of_all = conv.all_outputs - this->channel;
    count = number < conv.outputs ? (of_set < of_all ? of_set : of_all) : 0;
    if (count > job_outputs) count = job_outputs;
    const int32_t at = count > 0 ? set * conv.unit_inputs - this->first_input : 0;
    own = this->ring + ((strip * 16 + own_lane % 16) * Step) * conv.column_at + at +
          own_lane / 16 * (small ? conv.column_at : 8);
    if (count <= 0) own = this->ring;
    weights_at = number < conv.outputs ? number : 0;
    const gpu_output& out = conv.out;
    plain = out.vector && only_clamps(out.epilogue) && !out.epilogue.residual;
    columns = count > first_output() ? this->columns_from(this->column) - own_lane / 4 : 0;
    dst = static_cast<Element*>(out.dst) + this->n * out.dst_stride[0] +
          (this->channel + first_output()) * out.dst_stride[1] +
          this->output_at(this->line, this->column + own_lane / 4, conv.dst_pixel);
  }

  QUERN_INLINE int32_t lane() const { return this->thread % 32; }
  // Element 2 h + e of tile t: pixel lane / 4 + 8 h, and of the job the lane's first output + 2 t + e.
  QUERN_INLINE int32_t first_output() const { return lane() % 4 * (2 * tiles); }

  QUERN_INLINE void load_weights() {
    const uint32_t* const packed =
        static_cast<const uint32_t*>(this->a.weights) + int64_t{weights_at} * (Taps * Taps * words * 32);
    if constexpr (small) {
      QUERN_UNROLL
      for (int i = 0; i < Taps * Taps * words; ++i) w[i] = packed[i * 32 + lane()];
    } else {
      QUERN_UNROLL
      for (int i = 0; i < Taps * Taps * words; i += 4) {
        const four_words four = reinterpret_cast<const four_words*>(packed)[i / 4 * 32 + lane()];
        QUERN_UNROLL
        for (int k = 0; k < 4; ++k) w[i + k] = four.v[k];
      }
    }
  }
  QUERN_INLINE void load_channels() {
    const epilogue_f32& e = this->a.out.epilogue;
    lower = rounded_pair<Element>(e.lower, e.lower), upper = rounded_pair<Element>(e.upper, e.upper);
    QUERN_UNROLL
    for (int i = 0; i < 2 * tiles; ++i) {
      const int32_t in = first_output() + i;
      of[i / 2][i % 2] = in < count ? channel_of(e, this->channel + in) : channel_f32{};
    }
  }

  // The row of a matrix that the lane names: 16 pixels by 16 channels of tap s, or by 8 of that and the next tap.
  QUERN_INLINE const Element* row(int32_t number, int s, int at) const {
    return own + number % block::ring_size * this->a.line_at + s * this->a.column_at + at * 16;
  }
  QUERN_INLINE void move_up() {
    QUERN_UNROLL
    for (int j = met - 1; j >= 0; --j) {
      QUERN_UNROLL
      for (int i = 0; i < 4 * tiles; ++i) sum[j][i / 4][i % 4] = j > 0 ? sum[j - 1][i / 4][i % 4] : 0.0f;
    }
  }

  // The line of outputs that is finished, if it is one of the run.
  template <bool Plain>
  QUERN_INLINE void finish(int32_t of_run) const {
    const bool there = this->has_output(of_run);
    if constexpr (Plain) {
      Element* const first = dst + int64_t{of_run} * (this->a.y.classes * this->a.dst_pixel[0]);
      write_pairs(first, 0, there && columns > 0);
      write_pairs(first + int64_t{8} * (this->a.x.classes * this->a.dst_pixel[1]), 1, there && columns > 8);
    } else {
      if (there) finish_any(of_run);
    }
  }

 private:
  QUERN_INLINE void finish_any(int32_t of_run) const {
    const gpu_output& out = this->a.out;
    const epilogue_f32& e = out.epilogue;
    const int32_t of_line = this->line + of_run, first = this->channel + first_output();
    const Element* const residual =
        static_cast<const Element*>(out.residual) + this->n * out.residual_stride[0] + first * out.residual_stride[1];
    QUERN_UNROLL
    for (int i = 0; i < 4 * tiles; ++i) scratch[i * threads] = sum[met - 1][i / 4][i % 4];
    QUERN_ROLL
    for (int i = 0; i < 4 * tiles; ++i) {
      const int32_t h = i / 2 % 2, c = i / 4 * 2 + i % 2, pixel = lane() / 4 + 8 * h;
      if (8 * h >= columns || first_output() + c >= count) continue;
      const int32_t there = this->output_at(of_line, this->column + pixel, this->a.residual_pixel);
      const int32_t place =
          this->output_at(of_run, 8 * h, this->a.dst_pixel) - this->output_at(0, 0, this->a.dst_pixel);
      const float r = e.residual ? value(residual[there + c * out.residual_stride[1]]) : 0.0f;
      dst[place + c * out.dst_stride[1]] =
          rounded<Element>(finished<false>(e, channel_of(e, first + c), scratch[i * threads], r));
    }
  }
  QUERN_INLINE void write_pairs(Element* pixel, int h, bool there) const {
    uint32_t y[tiles];
    QUERN_UNROLL
    for (int t = 0; t < tiles; ++t) {
      const auto scaled = [&](int e) {
        return vec::fma(vec::set1(sum[met - 1][t][2 * h + e]), vec::set1(of[t][e].factor), vec::set1(of[t][e].bias)).v;
      };
      y[t] = limited_pair<Element>(rounded_pair<Element>(scaled(0), scaled(1)), lower, upper);
    }
    if (there) put_whole(pixel, y);
  }
};

template <class T>
struct group_kernels {
  using d8_7x7 = group_thread<T, 8, 7, 1>;
  using d16 = group_thread<T, 16, 3, 1>;
  using d16s2 = group_thread<T, 16, 3, 2>;
  using d32 = group_thread<T, 32, 3, 1>;
  using d32s2 = group_thread<T, 32, 3, 2>;
};

}  // namespace
}  // namespace quern
