// SPDX-License-Identifier: MIT
//
// Convolution with Winograd's minimal filtering (Lavin and Gray 2016), a group of tiles at a time: what a group
// needs stays in L2, no whole image is ever transformed.
//
//   item = group, block of panels, group of tiles                           one task of the parallel_for
//     for tile: V = transformed m + r - 1 by m + r - 1 pixels               padding is masked here
//     for point: for panel of nr output channels: for mr of the tiles
//       row.gemm                                                            weights pass once, in order
//     for tile: dst = epilogue(transformed products)
//
// Tiles are counted over rows, interleaved images (dilation d is d by d images with pixels d apart), and batch.  At
// stride 2 an output reads interleaved images, by parts of the filter; so does a filter in parts of neighbouring taps.
// Their products are summed before the transform: taps of row.gemm.  Filters along one axis take tiles along it alone;
// along y the axes change places.  Where channels are not densest in memory, lines of tiles go through a buffer of 16
// channels in L1.
#include "conv_winograd.h"

#include "winograd_fetch.h"
#include "winograd_group.h"

namespace quern::winograd_driver {

refusal refuse(const form& f, const full_problem& p, const kernel&) {
  const geometry& w = geometry_of(p);
  if (w.filter[0] != 1) return w.refuse(window_filter, 0, w.filter[0], 1);
  const int64_t high = w.filter[1], wide = w.filter[2];
  const bool transposed = p.op == QUERN_CONV_TRANSPOSED, square = high > 1 && wide > 1;
  // Of an axis with more than one tap.
  const auto refuse_axis = [&](int i) -> refusal {
    const int64_t most = transposed || f.parts > 1 ? 1 : 2, s = w.stride[i];
    if (s > most) return w.refuse(window_stride, i, s, most);
    if (up(w.filter[i], s * f.parts) != f.r) return w.refuse(window_filter, i, w.filter[i], s * f.parts * f.r);
    if (s > 1 && w.dilation[i] > 1) return w.refuse(window_dilation, i, w.dilation[i], 1);
    return {};
  };
  refusal why = {};
  if (wide > 1 || high <= 1) why = refuse_axis(2);
  if (!why && high > 1) why = refuse_axis(1);
  if (why) return why;
  if (square && !f.most_square) return w.refuse(window_filter, 1, high, 1);
  if (square && w.stride[1] != w.stride[2]) return w.refuse(window_stride, 2, w.stride[2], w.stride[1]);
  const int64_t c = p.src.size[1] / p.groups, least = square ? f.least_square : f.least_line;
  const int64_t most = square ? f.most_square / (w.stride[1] * w.stride[2]) : INT64_MAX;
  if (c < least || c > most) return {QUERN_REASON_SHAPE, "src.size[1] / groups", c, c < least ? least : most};
  // Transformed weights beyond any memory: what follows may count them.
  const int64_t each = 4 * most_points * most_points * (w.k + 128), room = INT64_C(1) << 50;
  if (c > room / each) return {QUERN_REASON_SHAPE, "src.size[1] / groups", c, room / each};
  for (int i = 0; i < 3 && transposed; ++i)
    if (w.stride[i] != 1) return w.refuse(window_stride, i, w.stride[i], 1);
  return {};
}

double error_bound(const form& f, const full_problem& p) {
  const geometry& g = geometry_of(p);
  const tiling t = tiling_of(f, g);
  const double growth = (t.square ? f.growth[0] : 1) * f.growth[1];
  // Of a product's way: at most five roundings in each pass of a transform, one of its weight, one a channel.
  const double n = (double(g.c) * double(t.all_parts()) + 21) * 0x1p-24;
  return n < 0.5 ? growth * n / (1 - n) : std::numeric_limits<double>::infinity();
}

// [group][point][panel][part][c][nr]
void pack(const form& f, const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const tiling t = tiling_of(f, g);
  const weight_panels panels = {g, j.row.nr, j.row.vector, t.products()};
  float* const to = reinterpret_cast<float*>(payload);
  int64_t before[most_points * most_points] = {};
  for (int64_t point = 1; point < t.points(); ++point) before[point] = before[point - 1] + t.parts_at(point - 1);
  transform_weights(f, t, j.row.nr, first, count, static_cast<const float*>(weights), [&](const weight_lanes& w) {
    const int64_t panel = w.k / j.row.nr, width = panels.width(panel), parts_x = t.parts_at(1, w.point % t.ax);
    float* const rows = to + panels.phase(w.group, before[w.point]) + panels.panel(panel, t.parts_at(w.point)) +
                        (w.py * parts_x + w.px) * g.c * width;
    for (int64_t c = w.begin; c < w.end; ++c) {
      float* const end = std::copy_n(w[c], w.count, rows + c * width + w.k % j.row.nr);
      if (w.k + w.count == g.k) std::fill(end, rows + (c + 1) * width, 0.0f);
    }
  });
}

namespace {

// What one item works on.
struct work : tile_group {
  const sizes& s;
  float *v, *m;
};

void multiply(const work& w, int64_t first, int64_t last) {
  const kernel& row = w.j.row;
  const geometry& g = w.t.g;
  const weight_panels panels = {g, row.nr, row.vector, w.t.products()};
  gemm_tap taps[4];
  gemm_f32 call = {};
  call.k = g.c, call.tap = taps;
  call.lda = w.s.v_row;
  call.out.ldc = w.s.m_row;
  const tiling& t = w.t;
  // Rows of V and M, by whether tiles with fewer outputs along y and along x take part.
  const range spans[2][2] = {{w.rows.of(false, false), w.rows.of(false, true)},
                             {w.rows.of(true, false), w.rows.of(true, true)}};
  const cut cuts[2][2] = {{{spans[0][0].count(), row.mr}, {spans[0][1].count(), row.mr}},
                          {{spans[1][0].count(), row.mr}, {spans[1][1].count(), row.mr}}};
  const auto takes = [&](int i, int64_t point) { return is_kept(int(i ? t.ax : t.ay), int(t.few[i]), int(point)); };
  int64_t calls = 0;
  for (int64_t y = 0; y < t.ay; ++y)
    for (int64_t x = 0; x < t.ax; ++x) calls += up(w.channels, row.nr) * cuts[takes(0, y)][takes(1, x)].tiles;
  const bool ahead = w.j.blocks.word[image_ahead] && !through_buffer(w.j.problem, g, row);
  group_fetch pixels(w, first, last, ahead ? calls : 0);
  // Weights that come from afar are wanted at a steady pace: each tile of a panel fetches its share of the next one.
  // The first one of a panel would ask for more than memory brings, and the others for nothing.
  const bool weights = w.j.blocks.word[weights_ahead];
  call.near = !weights;
  const int64_t first_panel = w.channel / row.nr, last_width = panels.width(panels.count - 1);
  const int64_t tap_floats = g.c * panels.columns();
  const float* const all_weights = reinterpret_cast<const float*>(w.e.packed) + panels.phase(w.group, 0);
  const float* of_point = all_weights;
  const float* a = w.v;
  float* m = w.m;
  for (int64_t point = 0, y = 0; y < t.ay; ++y)
    for (int64_t x = 0; x < t.ax; ++x, ++point, a += w.s.point, m += w.s.point) {
      const int64_t parts_x = t.parts_at(1, x);
      call.taps = static_cast<size_t>(t.parts_at(0, y) * parts_x);
      const float* const next_point =
          point + 1 == t.points() ? all_weights : of_point + int64_t(call.taps) * tap_floats;
      const range span = spans[takes(0, y)][takes(1, x)];
      const cut& rows = cuts[takes(0, y)][takes(1, x)];
      // What a tile leaves out is no part of its outputs.
      std::fill(m, m + span.begin * w.s.m_row, 0.0f);
      std::fill(m + span.end * w.s.m_row, m + (last - first) * w.s.m_row, 0.0f);
      const int64_t panel_floats = panels.panel(1, int64_t(call.taps));
      call.b = of_point + first_panel * panel_floats;
      for (int64_t k = 0; k < w.channels; k += row.nr) {
        // Whole vectors: the weights of the missing channels are zeros.
        call.n = call.ldb = w.channel + k + row.nr < g.k ? row.nr : last_width;
        for (int64_t i = 0; i < int64_t(call.taps); ++i)
          taps[i] = {(i / parts_x * t.parts[1] + i % parts_x) * w.s.v, i * g.c * int64_t(call.ldb)};
        if (weights && rows.tiles) {
          // Of another number of taps, the next point's panels begin elsewhere: near enough.
          call.ahead = k + row.nr < w.channels ? call.b + panel_floats : next_point + first_panel * panel_floats;
          call.pace = size_t(up(int64_t(call.ldb), rows.tiles));
        }
        for (int64_t i = 0; i < rows.tiles; ++i) {
          if (ahead) pixels();
          const int64_t at = span.begin + rows.begin(i);
          call.m = rows.rows(i);
          call.a = a + at * w.s.v_row;
          call.out.c = m + at * w.s.m_row + k;
          row.gemm(call);
          if (call.ahead) call.ahead += call.pace * call.taps * call.k;
        }
        call.b += panel_floats;
      }
      of_point += int64_t(call.taps) * tap_floats;
    }
}

}  // namespace

void run(const form& f, const job& j, const execution& e) {
  const geometry& g = geometry_of(j.problem);
  const auto sizes_of = [&](const tiling& t, int64_t tiles) {
    const weight_panels panels = {g, j.row.nr, j.row.vector, t.products()};
    return sizes(t, j.row, panels, tiles, j.blocks.word[block_panels], through_buffer(j.problem, g, j.row));
  };
  const auto compute = [&](tile_group& group, const sizes& s, int64_t first, int64_t last, char* workspace) {
    float* const m = reinterpret_cast<float*>(workspace);
    float* const v = m + s.point;
    group.buffer = v + group.t.points() * s.point;
    const work w = {group, s, v, m};
    transform_input(w, first, last, [&](winograd_input_f32& call, int64_t part, int64_t tile, int64_t c) {
      call.v = w.v + part * s.v + tile * s.v_row + c, call.matrix = s.point, call.step.v = s.v_row;
    });
    multiply(w, first, last);
    transform_output(w, first, last, g.k, [&](winograd_output_f32& call, int64_t tile, int64_t c) {
      call.m = w.m + tile * s.m_row + c, call.matrix = s.point, call.step.m = s.m_row;
    });
  };
  for_each_group(f, j, e, j.row.nr, sizes_of, compute);
}

}  // namespace quern::winograd_driver
