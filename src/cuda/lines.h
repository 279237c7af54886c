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
  // A line of the ring: inputs, and elements from one to the next.
  int32_t columns, channels, column_at, channel_at, line_at;
  bool whole;   // copied 16 bytes at a time, channels side by side
  bool across;  // threads that copy are neighbours along x
  int64_t src_image, src_channel;
  const void *src, *weights;
};

constexpr int ring_lines = 4;

template <class Element, int Threads, int Columns, int Step>
struct lines_block : few_place<Element> {
  const lines_conv& a;
  Element* ring;
  int32_t thread, chunk;
  int32_t first_column, first_input;  // that the block has: of outputs; an input channel
  const Element* src;
  // What the thread copies of a line; where its first 16 bytes lie, which is column number `begin`.
  int32_t inner, outer, inner_step, outer_step, begin, to = 0;
  const Element* from;

  QUERN_INLINE lines_block(const lines_conv& conv, void* shared, int32_t block, int32_t index)
      : few_place<Element>(conv), a(conv), ring(static_cast<Element*>(shared)), thread(index) {
    int32_t rest = block;
    const auto take = [&](int32_t of) {
      const int32_t before = rest;
      rest /= of;
      return before - rest * of;
    };
    chunk = take(a.chunks);
    first_column = take(a.x.parts) * a.strips * Columns;
    this->class_x = take(a.x.classes);
    const int32_t run = take(a.y.parts);
    this->class_y = take(a.y.classes), this->n = rest;
    this->take_run(run);
    first_input = chunk * a.wide * a.sets / a.unit_outputs * a.unit_inputs;
    src = static_cast<const Element*>(a.src) + this->n * a.src_image + first_input * a.src_channel;
    const int32_t inners = a.across ? a.columns : a.whole ? a.channels / whole_elements : a.channels;
    inner_step = inners < Threads ? inners : Threads;
    outer_step = Threads / inner_step;
    outer = thread / inner_step, inner = thread - outer * inner_step;
    if (outer == outer_step) outer = 1 << 30;  // more threads than there are inputs for
    const int32_t input = inner * whole_elements;
    begin = this->column_at(first_column * Step);
    from = src + int64_t{begin} * a.src_pixel[1];
    if (!a.whole || outer >= a.columns) return;
    begin += outer * a.x.apart, to = outer * a.column_at + input;
    from += int64_t{outer} * a.x.apart * a.src_pixel[1] + input;
    if (first_input + input >= a.inputs) begin = -(1 << 30);
  }

  // Lines of inputs that the run needs.
  QUERN_INLINE int32_t line_count(int32_t taps) const { return (this->end - this->line - 1) * Step + taps; }

  QUERN_INLINE void request(int32_t number) const {
    const int32_t at = this->line_at(this->line * Step + number);
    Element* const slot = ring + number % ring_lines * a.line_at;
    const bool exists = this->has_line(at);
    if (!a.whole) return copy(slot, from + int64_t{at} * a.src_pixel[0], exists);
    // No address is read where there is nothing.
    const Element* next = from + int64_t{at} * a.src_pixel[0];
    const int32_t apart = outer_step * a.x.apart, column_step = apart * a.src_pixel[1];
    Element* to_next = slot + to;
    QUERN_ROLL
    for (int32_t o = outer, x = begin; o < a.columns; o += outer_step) {
      fill<16>(to_next, next, exists && this->has_column(x));
      x += apart, next += column_step, to_next += outer_step * a.column_at;
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
