// SPDX-License-Identifier: MIT
//
// What the drivers of convolution with few input channels a group share: strips and runs of outputs, whose weights
// threads keep for themselves.
#pragma once

#include <math.h>

#include "cuda/drive.h"
#include "cuda/few_place.h"
#include "depthwise_classes.h"
#include "problem.h"
#include "weights.h"

namespace quern {

inline int64_t outputs_of(const geometry& g) { return g.k * g.groups; }

// [phase][32 outputs][tap][input channel][32]
struct few_panels {
  const geometry& g;
  int64_t panels = up(outputs_of(g), few_lanes), taps = g.taps();

  int64_t phase(int64_t before) const { return before * g.c * panels * few_lanes; }
  int64_t at(int64_t output, int64_t phase_taps, int64_t tap, int64_t c) const {
    return ((output / few_lanes * phase_taps + tap) * g.c + c) * few_lanes + output % few_lanes;
  }
  int64_t size() const { return phase(taps); }
};

inline int64_t classes_of(const axis& a) { return axis_class::count_of(a); }
inline int64_t step_of(const axis& a) { return axis_class(a, 0, classes_of(a)).step; }
inline int64_t of_class(const axis& a) { return up(a.out_count, classes_of(a)); }

// `parts` of a class of `part` outputs each.
inline few_axis few_axis_of(const axis& a, int64_t part) {
  const axis_class c(a, 0, classes_of(a));
  return {int32_t(a.out_count), int32_t(c.classes), int32_t(c.step), int32_t(c.apart),          int32_t(a.in_begin),
          int32_t(a.in_step),   int32_t(a.in_size), int32_t(a.taps), int32_t(up(c.count, part))};
}

// Where pixels of a phase lie; out.vector is for who writes so many channels at once.
inline void take_pixels(few_phase& a, const job& j, const geometry& g, const phase& ph, const quern_args& args,
                        int64_t chunk) {
  a.out = output_of(j, g, ph, args, chunk);
  for (int i = 0; i < 2; ++i) {
    a.src_pixel[i] = int32_t(g.src[3 + i]);
    a.dst_pixel[i] = int32_t(a.out.dst_stride[3 + i]);
    a.residual_pixel[i] = int32_t(a.out.residual_stride[3 + i]);
  }
}

// Of so many channels, or what stands for several.
inline void order_threads(few_order& order, const few_phase& a, const geometry& g, int64_t channels) {
  order.channels = divisor_of(channels), order.strips = divisor_of(int64_t{a.x.classes} * a.x.parts);
  order.runs = divisor_of(a.y.parts), order.classes = divisor_of(a.y.classes);
  order.threads = int32_t(g.n * channels) * order.strips.by * order.runs.by * order.classes.by;
}

refusal refuse_few(const full_problem&, const kernel&);
// All but one output a channel, without dilation.
refusal refuse_all_but_depthwise(const full_problem&, const kernel&);
// Those that are more than the row's lines and columns, of src or dst.
refusal refuse_large_images(const full_problem&, const kernel&);
// Residuals, and activations that are more.
refusal refuse_all_but_clamps(const quern_problem&);
// src of depthwise whose pixels are not whole pieces of 16 bytes, channels last.
refusal refuse_broken_pixels(const full_problem&);
// And whose pixels, lines or images do not lie at whole pieces, as the copy engine wants them.
refusal refuse_uneven_strides(const full_problem&);
void pack_few(const job&, int64_t first, int64_t count, const void* weights, char* payload);

// Such pixels, of which the copy engine takes boxes: channels, columns, lines, images.
quern_status map_pixels(const launching&, quern_type, int swizzle, const void* memory, const int64_t (&size)[4],
                        const int64_t* stride, const uint32_t (&box)[4], void* map);

}  // namespace quern
