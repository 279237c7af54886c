// SPDX-License-Identifier: MIT
//
// Winograd's minimal filtering with the products of each point as parts of bf16 (split_f32 in kernel.h): the groups of
// tiles and the transforms of conv_winograd.cpp, between which a tile of 16 x 16 sums 32 channels at a time.
//
//   item = group, block of panels, group of tiles                           one task of the parallel_for
//     for tile: V = transformed pixels
//     for point: A = parts of V
//       for panel of 32 output channels: for two pieces of 16 of the tiles
//         row.split->products
//     for tile: dst = epilogue(transformed products)
#include "conv_split_winograd.h"

#include <cmath>

#include "split_winograd.h"
#include "winograd_group.h"

namespace quern::split_winograd_driver {

using winograd_driver::tile_group, winograd_driver::tile_rows;

refusal refuse(const form& f, const full_problem& p, const kernel& row) {
  const int64_t c = p.src.size[1] / p.groups;
  if (c < 8) return {QUERN_REASON_SHAPE, "src.size[1] / groups", c, 8};
  return winograd_driver::refuse(f, p, row);
}

// Of a product's way as in conv_winograd.cpp, and what conv_split.cpp has of three parts.
double error_bound(const form& f, const full_problem& p) {
  const geometry& g = geometry_of(p);
  const tiling t = tiling_of(f, g);
  const double growth = (t.square ? f.growth[0] : 1) * f.growth[1];
  const double steps = double(t.all_parts()) * std::ceil(double(g.c) / depth);
  const double n = (21 + 17 + split_driver::products_of(parts) * steps) * 0x1p-24;
  return n < 0.5 ? growth * (0x1.1p-22 + 1.02 * n / (1 - n)) : std::numeric_limits<double>::infinity();
}

// [group][point][panel][part of the taps][32 channels], each a step of split_weights.h
void pack(const form& f, const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const tiling t = tiling_of(f, g);
  const packed_steps steps = {g, parts, t.products()};
  int64_t before[most_points * most_points] = {};
  for (int64_t point = 1; point < t.points(); ++point) before[point] = before[point - 1] + t.parts_at(point - 1);
  transform_weights(f, t, tile, first, count, static_cast<const float*>(weights),
                    [&](const winograd_driver::weight_lanes& w) {
                      char* const phase = payload + steps.phase(w.group, before[w.point]);
                      const int64_t part = (w.py * t.parts_at(1, w.point % t.ax) + w.px) * steps.blocks();
                      for (int64_t c = w.begin; c < w.end; ++c) {
                        const panel_step to(steps, phase, t.parts_at(w.point), w.k / panel, part + c / depth);
                        for (int64_t i = 0; i < w.count; i += split_vector::lanes) {
                          split_vector::floats four;
                          memcpy(&four, w[c] + i, sizeof four);
                          to.put(parts, w.k + i, c, split_vector(four), w.count - i);
                        }
                        clear_beside(steps, to, {w.k, w.k + w.count}, c);
                      }
                    });
}

namespace {

void multiply(const tile_group& w, const group_sizes& s, const group_memory& memory, int64_t tiles) {
  const tiling& t = w.t;
  const geometry& g = t.g;
  const split_functions& unit = *w.j.row.split;
  const packed_steps steps = {g, parts, t.products()};
  // Rows of V and M, by whether tiles with fewer outputs along y and along x take part.
  const range spans[2][2] = {{w.rows.of(false, false), w.rows.of(false, true)},
                             {w.rows.of(true, false), w.rows.of(true, true)}};
  const auto takes = [&](int i, int64_t point) { return is_kept(int(i ? t.ax : t.ay), int(t.few[i]), int(point)); };
  split_products_f32 call = {};
  call.step = memory.step, call.a_row = pixel;
  split_image_f32 image = {};
  image.channels = size_t(g.c), image.src_pixel = s.v_row, image.src_run = tile;
  image.pixel = pixel, image.block = size_t(s.block);
  const int64_t first = w.channel / panel, last = first + up(w.channels, panel);
  const char* const weights = w.e.packed;
  const bool passes = w.j.blocks.word[weights_ahead];
  for (int64_t i = 0; i < s.steps; ++i) memory.step[i] = i * s.block;
  int64_t before = 0, configured = 0;
  const float* v = memory.v;
  float* m = memory.m;
  for (int64_t point = 0, y = 0; y < t.ay; ++y)
    for (int64_t x = 0; x < t.ax; ++x, ++point, v += s.v, m += s.m) {
      const int64_t parts_x = t.parts_at(1, x), taps = t.parts_at(0, y) * parts_x;
      const range span = spans[takes(0, y)][takes(1, x)];
      const int64_t pieces = up(span.count(), tile), rows = pieces ? up(span.count(), pieces) : 0;
      if (rows && rows != configured) unit.begin(size_t(configured = rows));
      call.steps = size_t(taps * s.channels);
      image.pixels = size_t(span.count());
      for (int64_t i = 0; i < taps; ++i) {
        image.src = v + (i / parts_x * t.parts[1] + i % parts_x) * s.v_part + span.begin * s.v_row;
        image.parts = memory.a + i * s.channels * s.block;
        unit.image[parts - 2](image);
      }
      call.rows = size_t(rows), call.a_tile = rows * pixel;
      const int64_t panel_bytes = steps.panel_bytes(taps);
      const char* b = weights + steps.phase(w.group, before) + first * panel_bytes;
      float* sums = m;
      for (int64_t k = first; k < last; ++k, b += panel_bytes, sums += s.panel_floats) {
        call.n = size_t(std::min(panel, g.k - k * panel)), call.b = b;
        // The next panel, a share of its lines with each call.
        const int64_t lines = passes ? up(panel_bytes / 64, std::max<int64_t>(1, up(pieces, 2))) : 0;
        call.ahead = b + panel_bytes, call.lines = size_t(lines);
        for (int64_t i = 0; i < pieces; i += 2, call.ahead += 64 * lines) {
          call.tiles = size_t(std::min<int64_t>(2, pieces - i));
          call.a = memory.a + i * rows * pixel;
          call.sums = sums + (span.begin + i * rows) * panel;
          unit.products[parts - 2](call);
        }
        // What a tile leaves out is no part of its outputs.
        std::fill(sums, sums + span.begin * panel, 0.0f);
        std::fill(sums + span.end * panel, sums + tiles * panel, 0.0f);
      }
      before += taps;
    }
  unit.end();
}

}  // namespace

void run(const form& f, const job& j, const execution& e) {
  const geometry& g = geometry_of(j.problem);
  const auto sizes_of = [&](const tiling& t, int64_t tiles) {
    return group_sizes(t, tiles, j.blocks.word[block_panels], through_buffer(j.problem, g, j.row));
  };
  const auto compute = [&](tile_group& w, const group_sizes& s, int64_t first, int64_t last, char* workspace) {
    const group_memory memory(workspace, s, w.t.points());
    w.buffer = memory.buffer;
    transform_input(w, first, last, [&](winograd_input_f32& call, int64_t part, int64_t row, int64_t c) {
      call.v = memory.v + part * s.v_part + row * s.v_row + c, call.matrix = size_t(s.v), call.step.v = s.v_row;
    });
    multiply(w, s, memory, last - first);
    transform_output(w, first, last, panel, [&](winograd_output_f32& call, int64_t row, int64_t c) {
      call.m = memory.m + c / panel * s.panel_floats + row * panel + c % panel, call.matrix = size_t(s.m);
      call.step.m = panel;
    });
  };
  winograd_driver::for_each_group(f, j, e, panel, sizes_of, compute);
}

}  // namespace quern::split_winograd_driver
