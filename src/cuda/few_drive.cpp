// SPDX-License-Identifier: MIT
//
// What the drivers of convolution with few input channels a group refuse, and how they pack.
#include "cuda/few_drive.h"

#include "half.h"

namespace quern {
namespace {

constexpr int64_t most_launches = 64;

// From the first element of an image to the last that any tap reads or would read.
double reach(const geometry& g, const int64_t* stride, const int64_t* size) {
  double sum = 0;
  for (int i = 1; i < 3; ++i)
    sum += (double(size[i]) + double(g.filter[i]) * double(g.dilation[i]) + double(g.pad[i])) *
           std::max(1.0, double(stride[2 + i]));
  return sum;
}

refusal refuse_axis(const geometry& g, int i, const axis& a, const kernel& row) {
  static constexpr const char* stride[] = {"window.stride[0] over dilation", "window.stride[1] over dilation",
                                           "window.stride[2] over dilation"};
  if (row.taps && a.taps != row.taps) return g.refuse(window_filter, i, a.taps, row.taps);
  if (row.step && step_of(a) != row.step) return g.refuse(stride, i, step_of(a), row.step);
  return {};
}

}  // namespace

refusal refuse_few(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  if (g.src_block != 1) return {QUERN_REASON_LAYOUT, "src.layout", p.src.layout, 0};
  if (g.dst_block != 1) return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, 0};
  if (p.epilogue.residual && g.residual_block != 1)
    return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, 0};
  if (extent(p.src) == 0 || extent(p.dst) == 0) return {QUERN_REASON_SHAPE, "elements of src or dst", 0, 1};
  if (g.phases() > most_launches) return {QUERN_REASON_SHAPE, "product of window.stride", g.phases(), most_launches};
  if (const refusal r = g.refuse_phases()) return r;
  if (g.in[0] != 1 || g.out[0] != 1 || g.filter[0] != 1 || g.pad[0] != 0)
    return {QUERN_REASON_SHAPE, "src.size[2] or window along d", std::max(g.in[0], g.filter[0]), 1};
  double beside = 0;  // as far as a strip reaches that is not full
  for (int64_t f = 0; f < g.phases(); ++f) {
    const phase ph = phase_of(g, f);
    if (ph.outputs() == 0) continue;
    if (const refusal r = refuse_axis(g, 1, ph.h, row)) return r;
    if (const refusal r = refuse_axis(g, 2, ph.w, row)) return r;
    for (const axis* a : {&ph.h, &ph.w})
      beside = std::max(beside, double(row.nr) * double(step_of(*a)) * double(std::max<int64_t>(a->tap_step, 1)));
  }
  const double outputs = double(outputs_of(g));
  return refuse_many(std::max({beside * std::max({1.0, double(g.src[3]), double(g.src[4])}),
                               double(g.n) * double(g.out[1] + row.mr) * double(g.out[2] + row.nr) * outputs,
                               double(g.taps() * g.c) * (outputs + few_lanes), reach(g, g.src, g.in),
                               reach(g, g.dst, g.out), p.epilogue.residual ? reach(g, g.residual, g.out) : 0.0}),
                     "outputs, weights or elements of an image");
}

void pack_few(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const few_panels panels = {g};
  const auto as = [&](auto element) {
    using T = decltype(element);
    pack_weights(g, first, count, static_cast<const T*>(weights), [&](const weight_run<T>& w) {
      T* const to = reinterpret_cast<T*>(payload) + panels.phase(w.before);
      const int64_t output = w.group * g.k + w.k, all = outputs_of(g), taps = w.ph.taps();
      const int64_t end = output == all - 1 ? panels.panels * few_lanes : all;
      for (int64_t c = w.begin; c < w.end; ++c) {
        to[panels.at(output, taps, w.tap, c)] = w[c];
        for (int64_t i = all; i < end; ++i) to[panels.at(i, taps, w.tap, c)] = T{};
      }
    });
  };
  switch (type_bytes(j.row.type)) {
    case 1: return as(uint8_t{});
    case 2: return as(uint16_t{});
    default: return as(float{});
  }
}

refusal refuse_all_but_depthwise(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  if (g.c != 1) return {QUERN_REASON_SHAPE, "src.size[1] / groups", g.c, 1};
  if (g.k != 1) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", g.k, 1};
  if (g.phases() != 1) return {QUERN_REASON_SHAPE, "product of window.stride", g.phases(), 1};
  if (const refusal r = refuse_few(p, row)) return r;
  for (int i = 1; i < 3; ++i)
    if (g.dilation[i] != 1) return g.refuse(window_dilation, i, g.dilation[i], 1);
  return {};
}

refusal refuse_large_images(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  if (const int64_t most = std::max(g.in[1], g.out[1]); most > row.mr)
    return {QUERN_REASON_SHAPE, "lines of src or dst", most, row.mr};
  if (const int64_t most = std::max(g.in[2], g.out[2]); most > row.nr)
    return {QUERN_REASON_SHAPE, "pixels of a line of src or dst", most, row.nr};
  return {};
}

refusal refuse_all_but_clamps(const quern_problem& p) {
  if (p.epilogue.residual) return {QUERN_REASON_EPILOGUE, "epilogue.residual", p.epilogue.residual, 0};
  if (!only_clamps(epilogue_f32{.activation = p.epilogue.activation}))
    return {QUERN_REASON_EPILOGUE, "epilogue.activation", p.epilogue.activation, QUERN_RELU};
  return {};
}

refusal refuse_broken_pixels(const full_problem& p) {
  const geometry& g = geometry_of(p);
  const int64_t whole = 16 / type_bytes(p.src.type);
  if (g.groups % whole != 0) return {QUERN_REASON_SHAPE, "src.size[1] modulo 16 bytes", g.groups % whole, 0};
  if (g.src[1] != 1) return {QUERN_REASON_SHAPE, "src.stride[1]", g.src[1], 1};
  return {};
}

refusal refuse_uneven_strides(const full_problem& p) {
  const geometry& g = geometry_of(p);
  const int64_t whole = 16 / type_bytes(p.src.type);
  for (const int i : {0, 3, 4})
    if (g.src[i] <= 0 || g.src[i] % whole != 0 || g.src[i] >= int64_t{1} << 36)
      return {QUERN_REASON_SHAPE, "src.stride modulo 16 bytes", g.src[i] % whole, 0};
  return {};
}

quern_status map_pixels(const launching& l, quern_type type, int swizzle, const void* memory, const int64_t (&size)[4],
                        const int64_t* stride, const uint32_t (&box)[4], void* map) {
  const auto bytes = [&](int64_t count, int64_t apart) { return uint64_t(count > 1 ? apart * type_bytes(type) : 16); };
  const uint64_t sizes[] = {uint64_t(size[0]), uint64_t(size[1]), uint64_t(size[2]), uint64_t(size[3])};
  const uint64_t apart[] = {bytes(size[1], stride[4]), bytes(size[2], stride[3]), bytes(size[3], stride[0])};
  return encode_tiled(l, map, {map_type(type), swizzle, 4, memory, sizes, apart, box});
}

}  // namespace quern
