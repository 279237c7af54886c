// SPDX-License-Identifier: MIT
//
// Lines of an image on their way through a block: those under a piece of each line of outputs come into a ring in
// shared memory, some ahead, while the block walks down.  So every input is read once, apart from what neighbouring
// blocks share, and what is on its way costs no registers.  Padding is zeros there.  Written for any compiler, as
// implicit.h has it.
#pragma once

#include "cuda/few_place.h"
#include "cuda/fill.h"

namespace quern {
namespace {

// By value in the kernel's parameters.
struct lines_conv : few_phase {
  // Of a block: strips of columns, `wide` neighbouring channels or jobs of them, and so many sets of those.
  int32_t strips, wide, sets;
  int32_t chunks;  // blocks along channels
  // So many outputs, or jobs, follow each other that share so many inputs: a group.
  int32_t unit_outputs, unit_inputs, inputs, outputs;  // inputs and outputs: of all groups
  int32_t set_outputs, all_outputs;  // of jobs: channels of dst that those of the same inputs have, and that there are
  // A line of the ring: inputs, and elements from one to the next; how threads share in its copying.
  int32_t columns, channels, column_at, channel_at, line_at, inner_step, outer_step;
  bool whole;   // copied 16 bytes at a time, channels side by side
  bool across;  // threads that copy are neighbours along x
  bool ahead;   // weights are loaded before what precedes the kernel has ended
  int64_t src_image, src_channel;
  const void *src, *weights;
};

// Lines that are asked for together, and behind a barrier together: of 16 bits two.  The ring has four such sets.
constexpr int lines_of_set(int64_t element_bytes) { return 4 / int(element_bytes); }
constexpr int ring_sets = 4;
constexpr int ring_lines(int64_t element_bytes) { return ring_sets * lines_of_set(element_bytes); }

template <class Element, int Threads, int Columns, int Step>
struct lines_block : few_place<Element> {
  static constexpr int set_lines = lines_of_set(sizeof(Element)), ring_size = ring_lines(sizeof(Element));
  const lines_conv& a;
  Element* ring;
  int32_t thread, chunk;
  int32_t first_column, first_input;  // that the block has: of outputs; an input channel
  const Element* src;
  // What the thread copies of a line: elements from one 16 bytes to the next; where the first lie in the run's first
  // line, which is column number `begin`.
  int32_t inner, outer, inner_step, outer_step, begin, to = 0, across_src, across_ring, copies = 0;
  uint32_t inside = 0;  // a bit for each of so many copies of 16 bytes: whether it is not padding
  int32_t first_line, line_step;
  const Element* from;

  QUERN_INLINE lines_block(const lines_conv& conv, void* shared, int32_t block, int32_t index)
      : few_place<Element>(conv), a(conv), ring(static_cast<Element*>(shared)), thread(index) {
    int32_t rest = block;
    const auto take = [&](int32_t of) {
      const int32_t before = rest;
      rest = quotient(rest, of);
      return before - rest * of;
    };
    chunk = take(a.chunks);
    first_column = take(a.x.parts) * a.strips * Columns;
    this->class_x = take(a.x.classes);
    const int32_t run = take(a.y.parts);
    this->class_y = take(a.y.classes), this->n = rest;
    this->line = run * a.lines, this->end = quotient(a.y.count - this->class_y + a.y.classes - 1, a.y.classes);
    if (this->end > this->line + a.lines) this->end = this->line + a.lines;
    first_input = quotient(chunk * a.wide * a.sets, a.unit_outputs) * a.unit_inputs;
    src = static_cast<const Element*>(a.src) + this->n * a.src_image + first_input * a.src_channel;
    inner_step = a.inner_step, outer_step = a.outer_step;
    outer = thread / inner_step, inner = thread - outer * inner_step;
    if (outer == outer_step) outer = 1 << 30;  // more threads than there are inputs for
    const int32_t input = inner * whole_elements;
    begin = this->column_at(first_column * Step);
    from = src + int64_t{begin} * a.src_pixel[1];
    first_line = this->line_at(this->line * Step);
    from += int64_t{first_line} * a.src_pixel[0];
    line_step = a.y.apart * a.src_pixel[0];
    const int32_t across_columns = outer_step * a.x.apart;
    across_src = across_columns * a.src_pixel[1], across_ring = outer_step * a.column_at;
    if (!a.whole || outer >= a.columns) return;
    to = outer * a.column_at + input;
    from += int64_t{outer} * a.x.apart * a.src_pixel[1] + input;
    int32_t x = begin + outer * a.x.apart;
    QUERN_ROLL
    for (int32_t o = outer; o < a.columns; o += outer_step) {
      if (this->has_column(x) && first_input + input < a.inputs) inside |= uint32_t{1} << copies;
      x += across_columns, ++copies;
    }
  }

  // Whether line `number` of the run's inputs is not padding.
  QUERN_INLINE bool has_input(int32_t number) const { return this->has_line(first_line + number * a.y.apart); }
  QUERN_INLINE bool has_output(int32_t of_run) const { return of_run >= 0 && of_run < this->end - this->line; }
  // Lines of inputs that the run needs.
  QUERN_INLINE int32_t line_count(int32_t taps) const { return (this->end - this->line - 1) * Step + taps; }

  // Those from `number` on that are asked for together, of so many.
  QUERN_INLINE void request(int32_t number, int32_t count) const {
    // No address is read where there is nothing.
    const Element* next = from + int64_t{number} * line_step;
    Element* to_next = ring + number % ring_size * a.line_at + to;
    if (!a.whole) {
      QUERN_ROLL
      for (int i = 0; i < set_lines && number + i < count; ++i)
        copy(to_next + i * a.line_at, next + int64_t{i} * line_step, has_input(number + i));
      return;
    }
    uint32_t exists[set_lines];
    QUERN_UNROLL
    for (int i = 0; i < set_lines; ++i) exists[i] = number + i < count && has_input(number + i) ? inside : 0;
    QUERN_ROLL
    for (int32_t left = copies; left > 0; --left) {
      QUERN_UNROLL
      for (int i = 0; i < set_lines; ++i) {
        fill<16>(to_next + i * a.line_at, next + int64_t{i} * line_step, exists[i] & 1);
        exists[i] >>= 1;
      }
      next += across_src, to_next += across_ring;
    }
  }

 private:
  static constexpr int whole_elements = 16 / int(sizeof(Element));

  // One by one.
  QUERN_INLINE void copy(Element* slot, const Element* source, bool exists) const {
    const int32_t inners = a.across ? a.columns : a.channels, outers = a.across ? a.channels : a.columns;
    QUERN_ROLL
    for (int32_t o = outer; o < outers; o += outer_step) {
      QUERN_ROLL
      for (int32_t i = inner; i < inners; i += inner_step) {
        const int32_t x = a.across ? i : o, c = a.across ? o : i, apart = x * a.x.apart;
        const bool there = exists && this->has_column(begin + apart) && first_input + c < a.inputs;
        fill<sizeof(Element)>(slot + (x * a.column_at + c * a.channel_at),
                              source + (apart * a.src_pixel[1] + c * a.src_channel), there);
      }
    }
  }
};

}  // namespace
}  // namespace quern
