// SPDX-License-Identifier: MIT
//
// What Winograd's drivers share around their products: a group of tiles from the image into the transformed domain and
// back, and the weights there.
#pragma once

#include <string.h>

#include <algorithm>

#include "conv_winograd.h"
#include "driver.h"
#include "pixels.h"
#include "winograd_tiling.h"

namespace quern::winograd_driver {

// What one item works on.
struct tile_group {
  const job& j;
  const execution& e;
  const tiling& t;
  const kernel& transforms;
  const epilogue_f32& epilogue;
  const tile_rows& rows;
  int64_t group, channel, channels;  // output channels of the block, counted in the group
  float* buffer;                     // between layouts
};

inline const kernel& transforms_of(const form& f, const kernel& row) {
  const kernel* found = row.winograd->rows;
  while (found->mr != f.axis[0]->m || found->nr != f.axis[1]->m || found->taps != f.r) ++found;
  return *found;
}

// Calls run(group of tiles without a buffer, sizes, its first tile, its end, workspace) for blocks of panels of so many
// output channels and groups of tiles; sizes_of(tiling, tiles) is what the largest takes.
template <class Sizes, class Run>
void for_each_group(const form& f, const job& j, const execution& e, int64_t panel, const Sizes& sizes_of,
                    const Run& run) {
  const geometry& g = geometry_of(j.problem);
  const tiling t = tiling_of(f, g);
  if (t.tiles == 0 || g.k == 0) return;
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const kernel& transforms = transforms_of(f, j.row);
  const int64_t* word = j.blocks.word;
  const cut groups(t.tiles, up(t.tiles, word[tile_groups]));
  const auto s = sizes_of(t, groups.rows(0));
  for_each_item(j, e, g.groups * word[blocks] * groups.tiles, [&](int64_t item, char* workspace) {
    const int64_t index = digit(item, groups.tiles), block = digit(item, word[blocks]), group = item;
    const int64_t channel = block * word[block_panels] * panel;
    const int64_t first = groups.begin(index), last = first + groups.rows(index);
    const tile_rows rows(t, first, last);
    tile_group w = {.j = j,
                    .e = e,
                    .t = t,
                    .transforms = transforms,
                    .epilogue = epilogue,
                    .rows = rows,
                    .group = group,
                    .channel = channel,
                    .channels = std::min(word[block_panels] * panel, g.k - channel),
                    .buffer = nullptr};
    run(w, s, first, last, workspace);
  });
}

// Weights that are transformed side by side: a compiler makes vectors of what is written as vectors alone.
struct weight_vector {
  using pair = double __attribute__((vector_size(16)));
  static constexpr int64_t lanes = 16;
  pair of[lanes / 2];

  void load(const float* from, const int64_t* at) {
    for (int i = 0; i < lanes / 2; ++i) of[i] = pair{double(from[at[2 * i]]), double(from[at[2 * i + 1]])};
  }
  void add(double factor, const weight_vector& x) {
    const pair both = {factor, factor};
    for (int i = 0; i < lanes / 2; ++i) of[i] += both * x.of[i];
  }
  void store(float* to) const {
    using narrow = float __attribute__((vector_size(8)));
    for (int i = 0; i < lanes / 2; ++i) {
      const narrow two = __builtin_convertvector(of[i], narrow);
      memcpy(to + 2 * i, &two, sizeof two);
    }
  }
};

// Transformed weights of output channels k to k + count of a group and of input channels `begin` to `end`, at a point,
// of a part of the taps.
struct weight_lanes {
  int64_t group, k, count;
  int64_t point, py, px;
  int64_t begin, end;
  const float (*values)[weight_vector::lanes];
  const float* operator[](int64_t c) const { return values[c - begin]; }
};

// Points lie far apart, in as many pages: what is put to one of them are several input channels.
constexpr int64_t weight_channels = 8;
using weight_points = float[most_points * most_points][weight_channels][weight_vector::lanes];

// Of one input channel, the c-th of those: filters `at` elements from each other.
inline void transform_part(const form& f, const tiling& t, int64_t py, int64_t px, const float* from, const int64_t* at,
                           int64_t c, weight_points& values) {
  const int64_t sy = t.g.weights[t.upright ? 4 : 3], sx = t.g.weights[t.upright ? 3 : 4];
  const int64_t high = t.points_of(0, py), broad = t.points_of(1, px);
  const range ty = t.taps_of(0, py), tx = t.taps_of(1, px);
  weight_vector taps[most_taps], wide[most_taps][most_points];
  int64_t rows = 0;
  for (int64_t y = ty.begin; y < ty.end; y += t.stride[0], ++rows) {
    const float* line = from + (t.y.filter_begin + y * t.y.filter_step) * sy;
    int64_t columns = 0;
    for (int64_t x = tx.begin; x < tx.end; x += t.stride[1], ++columns)
      taps[columns].load(line + (t.x.filter_begin + x * t.x.filter_step) * sx, at);
    for (int64_t point = 0; point < broad; ++point) {
      weight_vector sum = {};
      for (int64_t s = 0; s < columns; ++s) sum.add(f.axis[1]->g[point][s], taps[s]);
      wide[rows][point] = sum;
    }
  }
  for (int64_t y = 0; y < high; ++y)
    for (int64_t x = 0; x < broad; ++x) {
      weight_vector sum = {};
      for (int64_t r = 0; r < rows; ++r) sum.add(t.square ? f.axis[0]->g[y][r] : 1, wide[r][x]);
      sum.store(values[y * t.ax + x][c]);
    }
}

// put(weight_lanes) for output channels [first, first + count), none of them on both sides of a multiple of `panel`.
template <class Put>
void transform_weights(const form& f, const tiling& t, int64_t panel, int64_t first, int64_t count,
                       const float* weights, const Put& put) {
  constexpr int64_t lanes = weight_vector::lanes;
  const geometry& g = t.g;
  const int64_t base = weight_offset(g, first);
  weight_points values;
  for (int64_t channel = first, n; channel < first + count; channel += n) {
    const int64_t group = channel / g.k, k = channel % g.k;
    n = std::min({lanes, first + count - channel, g.k - k, panel - k % panel});
    const float* from = weights + (weight_offset(g, channel) - base);
    int64_t at[lanes];  // those that are not there are the last one
    for (int64_t i = 0; i < lanes; ++i) at[i] = std::min(i, n - 1) * g.weights[0];
    for (int64_t begin = 0; begin < g.c; begin += weight_channels)
      for (int64_t part = 0; part < t.all_parts(); ++part) {
        const int64_t end = std::min(g.c, begin + weight_channels), py = part / t.parts[1], px = part % t.parts[1];
        for (int64_t c = begin; c < end; ++c)
          transform_part(f, t, py, px, from + c * g.weights[1], at, c - begin, values);
        for (int64_t y = 0; y < t.points_of(0, py); ++y)
          for (int64_t x = 0; x < t.points_of(1, px); ++x) {
            const int64_t point = y * t.ax + x;
            put({group, k, n, point, py, px, begin, end, values[point]});
          }
      }
  }
}

// The tiles from `index` on, below `end`, that neighbour each other along x.
inline int64_t line_of(const tiling& t, const place& at, int64_t index, int64_t end) {
  return std::min({end - index, t.count[1] - at.tile[1], buffer_tiles});
}

// put(call, part, row, c) finds a place for the transformed channels from c on of tile `row` and those behind it.
template <class Put>
void transform_input(const tile_group& w, int64_t first, int64_t last, const Put& put) {
  const tiling& t = w.t;
  tile_rows rows = w.rows;
  const geometry& g = t.g;
  const int64_t run = source_run(g, w.j.row), channel = w.group * g.c;
  const float* src = static_cast<const float*>(w.e.args.src);
  // What several parts or interleaved images read would be asked for by each of them.
  const bool ahead = w.j.blocks.word[image_ahead] && t.all_parts() == 1 && t.apart[1] * t.src[1] == 1;
  const phase ph = phase_of(g, 0);
  // What is asked of a tile, field by field: a copy of what has just been stepped waits until that is in L1.
  place tile(t, first);
  for (int64_t index = first, line; index < last; index += line) {
    line = line_of(t, tile, index, last);
    const int64_t z = ph.d.in_begin + tile.d * ph.d.in_step;
    const bool inside = ph.d.taps && z >= 0 && z < ph.d.in_size;
    const int64_t image = tile.n * g.src[0] + z * g.src[2];
    const int64_t first_y = t.y.in_begin + tile.output(t, 0, t.my) * t.y.in_step,
                  first_x = t.x.in_begin + tile.output(t, 1, t.mx) * t.x.in_step;
    const int points_y = tile.points(t, 0);
    // Of each tile of the line.
    int64_t at_row[buffer_tiles];
    int points[buffer_tiles];
    for (int64_t i = 0; i < line; ++i, tile.next(t)) at_row[i] = rows.next(tile), points[i] = tile.points(t, 1);
    const auto below = [](int n) { return (1u << n) - 1; };
    for (int64_t part = 0; part < t.all_parts(); ++part) {
      const int64_t y = first_y + t.offset(0, part / t.parts[1]), x = first_x + t.offset(1, part % t.parts[1]);
      winograd_input_f32 call = {};
      call.points[0] = points_y;
      call.rows = inside ? on_image(t.y, y, t.apart[0], t.ay) & below(call.points[0]) : 0;
      uint32_t on_line[buffer_tiles];
      for (int64_t i = 0; i < line; ++i)
        on_line[i] = on_image(t.x, x + i * t.mx * t.apart[1], t.apart[1], t.ax) & below(points[i]);
      if (run) {
        call.src = src;
        call.row = t.apart[0] * t.src[0], call.column = t.apart[1] * t.src[1];
        call.step.src = t.mx * call.column;
        for (int64_t i = 0, next; i < line; i = next) {
          // Tiles that lie on the image leave out no points, and stand behind each other.
          for (next = i + 1; next < line && on_line[i] == below(int(t.ax)) && on_line[next] == on_line[i];) ++next;
          call.more = size_t(next - i - 1);
          call.points[1] = points[i], call.columns = on_line[i];
          for (int64_t c = 0; c < g.c; c += run) {
            call.n = std::min(run, g.c - c);
            call.origin = image + g.src_channel(channel + c) + y * t.src[0] + x * t.src[1] + i * call.step.src;
            put(call, part, at_row[i], c), w.transforms.winograd_input[t.square](call);
          }
        }
        continue;
      }
      // The line's pixels on the image.
      const int64_t columns = (line - 1) * t.mx + t.ax;
      const int64_t lo = x >= 0 ? 0 : std::min(columns, up(-x, t.apart[1])),
                    hi = x >= t.x.in_size ? lo : std::clamp(up(t.x.in_size - x, t.apart[1]), lo, columns);
      const auto each_row = [&](const auto& visit) {
        for (int64_t r = 0; r < t.ay; ++r)
          if (call.rows >> r & 1 && lo < hi)
            visit(r, pixel_run<const float>{
                         .at = src + image + (y + r * t.apart[0]) * t.src[0] + (x + lo * t.apart[1]) * t.src[1],
                         .count = hi - lo,
                         .pixel = t.apart[1] * t.src[1],
                         .channel_stride = g.src[1],
                         .block = g.src_block});
      };
      for (int64_t c = 0; c < g.c; c += buffer_channels) {
        call.n = std::min(buffer_channels, g.c - c);
        const int64_t first_channel = channel + c, next = first_channel + int64_t(call.n);
        const int64_t after = std::min(buffer_channels, channel + g.c - next);
        each_row([&](int64_t r, const auto& pixels) {
          gather(w.j.row, pixels, {first_channel, next}, w.buffer + (r * columns + lo) * buffer_channels,
                 buffer_channels, 1);
        });
        call.src = w.buffer;
        call.row = columns * buffer_channels, call.column = buffer_channels;
        for (int64_t i = 0; i < line; ++i) {
          call.points[1] = points[i], call.columns = on_line[i];
          call.origin = i * t.mx * buffer_channels;
          if (ahead)
            each_row([&](int64_t, const auto& pixels) {
              ask_for<false>(pixels, {next + after * i / line, next + after * (i + 1) / line});
            });
          put(call, part, at_row[i], c), w.transforms.winograd_input[t.square](call);
        }
      }
    }
  }
}

// take(call, row, c) finds the products of tile `row` and those behind it from channel c on, of which `most` lie side
// by side.
template <class Take>
void transform_output(const tile_group& w, int64_t first, int64_t last, int64_t most, const Take& take) {
  const tiling& t = w.t;
  tile_rows rows = w.rows;
  const geometry& g = t.g;
  const int64_t run = std::min(destination_run(w.j.problem, g, w.j.row), most);
  const phase ph = phase_of(g, 0);
  const int64_t channel = w.group * g.k + w.channel;
  const bool ahead = w.j.blocks.word[image_ahead] && t.step[1] * t.dst[1] == 1;
  float* const dst = static_cast<float*>(w.e.args.dst);
  const float* const residual = static_cast<const float*>(w.e.args.residual);
  // From pixel to pixel along x and y.
  const int64_t out_x = t.step[1] * t.x.out_step, out_y = t.step[0] * t.y.out_step;
  place tile(t, first);
  for (int64_t index = first, line; index < last; index += line) {
    line = line_of(t, tile, index, last);
    const int64_t y = tile.output(t, 0, t.my), x = tile.output(t, 1, t.mx);
    const auto offset = [&](const int64_t* stride, const int64_t* plane) {
      return tile.n * stride[0] + (ph.d.out_begin + tile.d * ph.d.out_step) * stride[2] +
             (t.y.out_begin + y * t.y.out_step) * plane[0] + (t.x.out_begin + x * t.x.out_step) * plane[1];
    };
    const int64_t to = offset(g.dst, t.dst), from = w.epilogue.residual ? offset(g.residual, t.residual) : 0;
    int64_t at_row[buffer_tiles];
    for (int64_t i = 0; i < line; ++i, tile.next(t)) at_row[i] = rows.next(tile);
    const int64_t columns = outputs(t.x, x, t.step[1], line * t.mx);
    winograd_output_f32 call = {};
    call.rows = outputs(t.y, y, t.step[0], t.my);
    call.out.epilogue = &w.epilogue;
    if (call.rows == 0 || columns == 0) continue;
    if (run) {
      call.out.ldc = out_x * t.dst[1], call.dst_row = out_y * t.dst[0];
      call.out.ldr = out_x * t.residual[1], call.residual_row = out_y * t.residual[0];
      call.step.c = t.mx * ptrdiff_t(call.out.ldc), call.step.residual = t.mx * ptrdiff_t(call.out.ldr);
      for (int64_t i = 0, next; i * t.mx < columns; i = next) {
        // Tiles with all outputs stand behind each other.
        next = i + std::max<int64_t>(1, columns / t.mx - i);
        call.more = size_t(next - i - 1);
        call.columns = std::min(t.mx, columns - i * t.mx);
        for (int64_t c = 0; c < w.channels; c += run) {
          call.n = std::min(run, w.channels - c);
          call.out.c = dst + to + g.dst_channel(channel + c) + i * call.step.c;
          call.out.channel = channel + c;
          if (w.epilogue.residual)
            call.out.residual = residual + from + g.residual_channel(channel + c) + i * call.step.residual;
          take(call, at_row[i], c), w.transforms.winograd_output[t.square](call);
        }
      }
      continue;
    }
    float* const addend = w.buffer + buffer_floats(t);
    const auto each_row = [&](const auto& visit) {
      for (int64_t r = 0; r < int64_t(call.rows); ++r)
        visit(r, pixel_run<float>{.at = dst + to + r * out_y * t.dst[0],
                                  .count = columns,
                                  .pixel = out_x * t.dst[1],
                                  .channel_stride = g.dst[1],
                                  .block = g.dst_block});
    };
    for (int64_t c = 0; c < w.channels; c += buffer_channels) {
      call.n = std::min(buffer_channels, w.channels - c);
      const range channels = {channel + c, channel + c + int64_t(call.n)};
      for (int64_t r = 0; w.epilogue.residual && r < int64_t(call.rows); ++r)
        gather(w.j.row,
               {.at = residual + from + r * out_y * t.residual[0],
                .count = columns,
                .pixel = out_x * t.residual[1],
                .channel_stride = g.residual[1],
                .block = g.residual_block},
               channels, addend + r * columns * buffer_channels, buffer_channels, 1);
      call.out.ldc = call.out.ldr = buffer_channels;
      call.dst_row = call.residual_row = columns * buffer_channels;
      call.out.channel = channel + c;
      for (int64_t i = 0; i * t.mx < columns; ++i) {
        call.columns = std::min(t.mx, columns - i * t.mx);
        call.out.c = w.buffer + i * t.mx * buffer_channels;
        call.out.residual = addend + i * t.mx * buffer_channels;
        if (ahead)
          each_row([&](int64_t, const auto& pixels) {
            const int64_t n = int64_t(call.n);
            ask_for<true>(pixels, {channels.begin + n * i / line, channels.begin + n * (i + 1) / line});
          });
        take(call, at_row[i], c), w.transforms.winograd_output[t.square](call);
      }
      each_row([&](int64_t r, const auto& pixels) {
        scatter(w.j.row, w.buffer + r * columns * buffer_channels, buffer_channels, 1, channels, pixels);
      });
    }
  }
}

}  // namespace quern::winograd_driver
