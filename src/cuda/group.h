// SPDX-License-Identifier: MIT
//
// Grouped convolution of up to 32 channels a group, 3x3, in 16 bits on the matrix instructions of a warp, walking down
// the lines of lines.h.  What a thread does between two barriers is a function here, written for any compiler, as
// implicit.h has it.
//
//   dst[pixel][o] = epilogue(sum over taps (r, s), channels c of the group of o of
//                              src[pixel at tap][c] * weights[r][s][c][o])
//
// A warp has a strip of 16 pixels of a line by 16 outputs, and Depth inputs that these sum up: a group or its half,
// or several small groups side by side, whose weights for each other are zeros.  All weights stay in registers; pixels
// are read by ldmatrix from the ring where they lie, once for the three lines of outputs that they meet.  Sums of a
// line are begun in one register and finished in another: they move up with the first product of each.
//
// As groups beside an output's own are multiplied by zero, infinite and NaN inputs of one may make those NaN.
#pragma once

#include "cuda/lines.h"

namespace quern {
namespace {

struct alignas(16) group_weights {
  uint32_t v[4];  // of a lane: two registers for each of two instructions
};

template <class Element, int Depth, int Step>
struct group_thread : lines_block<Element, 128, 16, Step> {
  using element = Element;
  using block = lines_block<Element, 128, 16, Step>;
  static constexpr int threads = 128, group = Depth, taps = 3, step = Step, columns_of_strip = 16, job_outputs = 16;
  static constexpr int met = (taps + Step - 1) / Step;  // of outputs that a line of inputs meets
  static constexpr int steps = Depth / 16;              // of an instruction
  static constexpr int pad = 8;                         // elements between pixels of the ring: other banks
  static constexpr int scratch_bytes = 4 * threads * 8;
  // Of four jobs of a strip, or two of two.
  static constexpr int shared_bytes =
      scratch_bytes + ring_lines * 2 *
                          (Depth == 16 ? (15 * Step + 3) * (64 + pad) > (31 * Step + 3) * (32 + pad)
                                             ? (15 * Step + 3) * (64 + pad)
                                             : (31 * Step + 3) * (32 + pad)
                                       : (15 * Step + 3) * (128 + pad));

  group_weights w[taps * taps][steps];
  float sum[met][2][4] = {};
  float* scratch;
  const Element* own;         // what the lane names of the first line of the ring, for ldmatrix
  int32_t count, weights_at;  // outputs of the job; its number, for weights
  channel_f32 of[4];

  QUERN_INLINE group_thread(const lines_conv& conv, float* shared, int32_t block_index, int32_t index)
      : block(conv, shared + scratch_bytes / 4, block_index, index), scratch(shared + index) {
    const int32_t warp = index / 32, own_lane = index % 32, job = warp / conv.strips, strip = warp - job * conv.strips;
    const int32_t number = job < conv.wide ? this->chunk * conv.wide + job : conv.outputs;
    const int32_t set = number / conv.unit_outputs, part = number - set * conv.unit_outputs;
    this->column = this->first_column + strip * 16;
    this->channel = set * conv.set_outputs + part * job_outputs;
    const int32_t of_set = conv.set_outputs - part * job_outputs, of_all = conv.all_outputs - this->channel;
    count = number < conv.outputs ? (of_set < of_all ? of_set : of_all) : 0;
    if (count > job_outputs) count = job_outputs;
    const int32_t at = count > 0 ? set * conv.unit_inputs - this->first_input : 0;
    own = this->ring + ((strip * 16 + own_lane % 16) * Step) * conv.column_at + at + own_lane / 16 * 8;
    if (count <= 0) own = this->ring;
    weights_at = number < conv.outputs ? number : 0;
  }

  QUERN_INLINE int32_t lane() const { return this->thread % 32; }

  QUERN_INLINE void load_weights() {
    const group_weights* const packed =
        static_cast<const group_weights*>(this->a.weights) + int64_t{weights_at} * (taps * taps * steps * 32) + lane();
    QUERN_UNROLL
    for (int i = 0; i < taps * taps * steps; ++i) w[i / steps][i % steps] = packed[i * 32];
    QUERN_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int32_t in = lane() % 4 * 4 + i;
      of[i] = in < count ? channel_of(this->a.out.epilogue, this->channel + in) : channel_f32{};
    }
  }

  // The row of a matrix that the lane names: 16 pixels by 16 channels of tap s.
  QUERN_INLINE const Element* row(int32_t number, int s, int at) const {
    return own + number % ring_lines * this->a.line_at + s * this->a.column_at + at * 16;
  }
  QUERN_INLINE void move_up() {
    QUERN_UNROLL
    for (int j = met - 1; j >= 0; --j) {
      QUERN_UNROLL
      for (int i = 0; i < 8; ++i) sum[j][i / 4][i % 4] = j > 0 ? sum[j - 1][i / 4][i % 4] : 0.0f;
    }
  }

  // Element 2 h + e of tile t: pixel lane / 4 + 8 h, output lane % 4 * 4 + 2 t + e.
  QUERN_INLINE void finish(int32_t of_run) const {
    const int32_t in = lane() % 4 * 4, left = count - in;
    if (of_run < 0 || left <= 0) return;
    const gpu_output& out = this->a.out;
    const epilogue_f32& e = out.epilogue;
    const int32_t of_line = this->line + of_run, columns = this->columns_from(this->column), first = this->channel + in;
    Element* const dst = static_cast<Element*>(out.dst) + this->n * out.dst_stride[0] + first * out.dst_stride[1];
    const Element* const residual =
        static_cast<const Element*>(out.residual) + this->n * out.residual_stride[0] + first * out.residual_stride[1];
    if (out.vector && only_clamps(e)) {
      if (e.residual) return write_chunks<true>(of_line, columns, dst, residual);
      return write_chunks<false>(of_line, columns, dst, residual);
    }
    QUERN_UNROLL
    for (int i = 0; i < 8; ++i) scratch[i * threads] = sum[met - 1][i % 4 / 2][i / 4 * 2 + i % 2];
    QUERN_ROLL
    for (int i = 0; i < 8; ++i) {
      const int32_t pixel = lane() / 4 + i / 4 * 8, c = i % 4;
      if (pixel >= columns || c >= left) continue;
      const int32_t place = this->output_at(of_line, this->column + pixel, this->a.residual_pixel);
      const float r = e.residual ? value(residual[place + c * out.residual_stride[1]]) : 0.0f;
      dst[this->output_at(of_line, this->column + pixel, this->a.dst_pixel) + c * out.dst_stride[1]] =
          rounded<Element>(finished<false>(e, channel_of(e, first + c), scratch[i * threads], r));
    }
  }

 private:
  template <bool Residual>
  QUERN_INLINE void write_chunks(int32_t of_line, int32_t columns, Element* dst, const Element* residual) const {
    QUERN_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int32_t pixel = lane() / 4 + 8 * h;
      if (pixel >= columns) continue;
      four_floats r = {}, y;
      if (Residual) r = load_four(residual + this->output_at(of_line, this->column + pixel, this->a.residual_pixel));
      QUERN_UNROLL
      for (int i = 0; i < 4; ++i)
        y.v[i] = finished_narrow<Residual>(this->a.out.epilogue, of[i], sum[met - 1][i / 2][2 * h + i % 2], r.v[i]);
      store_four(dst + this->output_at(of_line, this->column + pixel, this->a.dst_pixel), y);
    }
  }
};

template <class T>
struct group_kernels {
  using d16 = group_thread<T, 16, 1>;
  using d16s2 = group_thread<T, 16, 2>;
  using d32 = group_thread<T, 32, 1>;
  using d32s2 = group_thread<T, 32, 2>;
};

}  // namespace
}  // namespace quern
