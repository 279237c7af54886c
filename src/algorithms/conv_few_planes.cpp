// SPDX-License-Identifier: MIT
//
// Direct convolution to few output channels for NCHW: pixels across vectors, straight from the planes of the image,
// padding by masks.
//
//   item = image, group, band of lines, column of pixels          one task of the parallel_for
//     for output plane, class of lines                            of a dilated filter
//       for plane of the filter, some input channels              whose lines L2 keeps for the next outputs
//         for row.lines lines
//           for mr output channels
//             for nr pixels
//               row.few_planes                                    what is not finished stays in the workspace
#include "depthwise_classes.h"
#include "driver.h"
#include "strips.h"
#include "weights.h"

namespace quern {
namespace {

enum word { bands, columns, block_channels, keeps_sums, fetches };

constexpr int64_t most_outputs = 8;    // more pay for copying the window once
constexpr int64_t most_channels = 16;  // that pass together

refusal refuse(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  if (g.k > most_outputs) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", g.k, most_outputs};
  if (const refusal why = refuse_blocks(p)) return why;
  if (const refusal why = refuse_pixels_apart(p)) return why;
  for (int i = 0; i < 3; ++i)
    if (g.transposed && g.stride[i] > 1) return g.refuse(window_stride, i, g.stride[i], 1);
  for (int i = 1; i < 3; ++i) {
    const int64_t step = step_in_class(g, i);
    if (g.out[i] > 1 && step != 1) return g.refuse(window_stride, i, g.stride[i], g.stride[i] / step);
  }
  // Without a window lines have no loads to share, and conv_im2col takes planes as they lie, in longer runs.
  if (g.filter[1] * g.filter[2] == 1) return g.refuse(window_filter, 2, 1, 2);
  if (row.taps)
    for (int i = 1; i < 3; ++i)
      if (g.filter[i] != row.taps) return g.refuse(window_filter, i, g.filter[i], row.taps);
  constexpr int64_t most_taps = few_planes_f32::most_taps_x;
  if (g.filter[2] > most_taps) return g.refuse(window_filter, 2, g.filter[2], most_taps);
  return {};
}

// A tap of an input line takes what it multiplies, or its loads, of which those that cross a cache line count twice,
// and weights.  Sums come and go between some channels and the next.
double compute_cycles(const geometry& g, const kernel& row, int64_t steps) {
  const phase ph = phase_of(g, 0);
  const axis &x = ph.w, &y = ph.h;
  const double mr = row.mr, vectors = double(up(x.out_count, row.vector));
  const cut tiles(up(x.out_count, row.vector), row.nr / row.vector);
  const double crossing = x.taps > 1 ? 1 + row.vector / 16.0 : 1;
  // With all lines of a tile, and one by one.
  const auto line_cycles = [&](double lines) {
    const double rows = double(y.taps) * share_inside(y), inputs = rows + lines - 1, width = double(x.taps);
    const double multiply = rows * lines * width * mr * vectors / 2;
    const double weights = rows * lines * width * mr * double(tiles.tiles);
    // Masks of both ends of a line are loaded as well, and few tiles are not ends.
    const double ends = std::min(2.0, double(tiles.tiles)) / std::max(1.0, double(tiles.tiles));
    const double loads = (inputs * width * vectors * (crossing + ends) + weights) / 2;
    const double channel = std::max(multiply, loads) + inputs * double(tiles.tiles) * (row.taps ? 3 : 4 + width);
    return channel * double(g.c * g.filter[0]) + double(steps) * (mr * lines * vectors + double(tiles.tiles) * 40) +
           mr * lines * vectors * 6;
  };
  const double whole = double(y.out_count / row.lines), rest = double(y.out_count % row.lines);
  return (whole * line_cycles(row.lines) + rest * line_cycles(1)) * double(up(std::max<int64_t>(1, g.k), row.mr)) *
         double(g.n * g.groups * g.out[0]);
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  b.packed_bytes = uint64_t(g.groups * up(g.k, row.mr) * row.mr * g.filter_size() * g.c) * sizeof(float);
  const int64_t blocks = std::max<int64_t>(1, up(g.c, most_channels)), steps = blocks * g.filter[0];
  b.word[block_channels] = up(g.c, blocks);
  b.word[keeps_sums] = steps > 1;
  b.word[fetches] = operand_bytes(g, 0).all() > double(m.l2);
  b.cycles = pace(row, m) * compute_cycles(g, row, steps);
  b.workers = useful_workers(m, b.cycles, threads);

  // What a band of a column has added up stays in L2, but for bands that would read most lines twice, and columns of
  // few tiles.
  const int64_t outputs = std::max<int64_t>(1, up(g.k, row.mr)) * row.mr, room = int64_t(m.l2) / 8 / sizeof(float);
  const int64_t width = std::max<int64_t>(1, g.out[2]), tiles_across = up(width, row.nr);
  const int64_t tiles_down = up(std::max<int64_t>(1, g.out[1]), row.lines);
  const auto lines_of = [&](int64_t in) { return row.lines * outputs * up(up(width, in), row.vector) * row.vector; };
  b.word[columns] = b.word[bands] = 1;
  if (b.word[keeps_sums]) {
    b.word[columns] = std::clamp<int64_t>(up(lines_of(1), std::max<int64_t>(1, room)), 1, up(tiles_across, 8));
    const int64_t most = std::max(room / lines_of(b.word[columns]), up(4 * g.filter[1], row.lines));
    b.word[bands] = up(tiles_down, most);
  }
  const int64_t wanted = up(b.workers > 1 ? 4 * b.workers : 1, std::max<int64_t>(1, g.n * g.groups));
  b.word[bands] = std::min(tiles_down, std::max(up(wanted, b.word[columns]), b.word[bands]));
  b.word[columns] = std::min(tiles_across, std::max(up(wanted, b.word[bands]), b.word[columns]));
  const int64_t floats = b.word[keeps_sums] ? up(tiles_down, b.word[bands]) * lines_of(b.word[columns])
                                            : int64_t{row.lines} * row.mr * row.nr;
  b.workspace_bytes = uint64_t(up(floats * int64_t(sizeof(float)), QUERN_ALIGN) * QUERN_ALIGN);
  return b;
}

// [group][k / mr][plane of the filter][c][tap along x][tap along y][mr]
void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const int64_t mr = j.row.mr;
  float* to = reinterpret_cast<float*>(payload);
  pack_weights(g, first, count, static_cast<const float*>(weights), [&](const weight_run<float>& w) {
    const int64_t high = w.ph.h.taps, wide = w.ph.w.taps, plane_taps = high * wide;
    const int64_t s = w.tap % wide, r = w.tap / wide % high, t = w.tap / plane_taps;
    const int64_t plane = (w.group * up(g.k, mr) + w.k / mr) * w.ph.d.taps + t;
    const int64_t lane = w.k % mr, end = w.k == g.k - 1 ? mr : lane + 1;
    for (int64_t c = w.begin; c < w.end; ++c)
      put_lane(to + ((plane * g.c + c) * plane_taps + s * high + r) * mr, lane, end, w[c]);
  });
}

void run(const job& j, const execution& e) {
  const geometry& g = geometry_of(j.problem);
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t* word = j.blocks.word;
  const phase ph = phase_of(g, 0);
  const int64_t mr = j.row.mr, vector = j.row.vector, outputs = up(g.k, mr), classes = axis_class::count_of(ph.h);
  for_each_item(j, e, g.n * g.groups * word[bands] * word[columns], [&](int64_t item, char* workspace) {
    const range column = part(up(ph.w.out_count, vector), digit(item, word[columns]), word[columns]);
    const int64_t band = digit(item, word[bands]), group = digit(item, g.groups), n = item;
    const cut tiles(column.count(), j.row.nr / vector);
    const int64_t width = word[keeps_sums] ? column.count() * vector : j.row.nr;
    few_planes_f32 call = {};
    call.taps_x = size_t(ph.w.taps), call.taps_y = size_t(ph.h.taps);
    call.apart = ph.w.tap_step, call.src_plane = g.src[1];
    call.sums_line = size_t(width);
    call.out.channels_are_rows = true;
    call.fetches = word[fetches];
    call.out.ldc = size_t(g.dst[1]), call.out.ldr = size_t(g.residual[1]);

    // Some channels of a plane of the filter, for some lines of a class from output line y on.
    const auto tile_line = [&](const axis_class& lines, range within, int64_t d, int64_t t, range channels, int64_t y,
                               int64_t count) {
      const int64_t first = y * lines.step;
      call.lines = size_t(count);
      call.top = lines.begin - first, call.bottom = lines.end - first;
      call.src_line = lines.apart * g.src[3];
      call.channels = size_t(channels.count());
      call.dst_line = size_t(classes * g.dst[3]), call.residual_line = size_t(classes * g.residual[3]);
      const int64_t line = lines.first + y * classes;
      for (int64_t i = 0; i < outputs; ++i) {
        const int64_t channel = group * g.k + i * mr;
        call.m = size_t(std::min(mr, g.k - i * mr));
        call.weights = reinterpret_cast<const float*>(e.packed) +
                       (((group * outputs + i) * ph.d.taps + t) * g.c + channels.begin) * ph.w.taps * ph.h.taps * mr;
        for (int64_t tile = 0; tile < tiles.tiles; ++tile) {
          const int64_t from = (column.begin + tiles.begin(tile)) * vector;
          call.n = size_t(std::min(tiles.rows(tile) * vector, ph.w.out_count - from));
          const int64_t x = ph.w.in_begin + from;
          call.left = -x, call.right = ph.w.in_size - x;
          call.src = static_cast<const float*>(e.args.src) + n * g.src[0] + (group * g.c + channels.begin) * g.src[1] +
                     (ph.d.in_begin + d * ph.d.in_step + t * ph.d.tap_step) * g.src[2] +
                     (lines.base + first * lines.apart) * g.src[3] + x;
          call.sums = reinterpret_cast<float*>(workspace);
          if (word[keeps_sums])
            call.sums += ((y - within.begin) * outputs + i * count) * mr * width + tiles.begin(tile) * vector;
          const auto place = [&](const int64_t* stride) {
            return n * stride[0] + channel * stride[1] + d * stride[2] + line * stride[3] + from;
          };
          call.out.channel = size_t(channel);
          call.out.c = static_cast<float*>(e.args.dst) + place(g.dst);
          if (epilogue.residual) call.out.residual = static_cast<const float*>(e.args.residual) + place(g.residual);
          j.row.few_planes(call);
        }
      }
    };

    for (int64_t d = 0; d < ph.d.out_count; ++d) {
      const range td = ph.d.taps_at(d);
      for (int64_t c = 0; c < classes; ++c) {
        const axis_class lines(ph.h, c, classes);
        const range of_tiles = part(up(lines.count, j.row.lines), band, word[bands]);
        const range within = {of_tiles.begin * j.row.lines, std::min(of_tiles.end * j.row.lines, lines.count)};
        const auto pass = [&](int64_t t, range channels) {
          for (int64_t y = within.begin, count; y < within.end; y += count) {
            count = within.end - y < j.row.lines ? 1 : j.row.lines;
            tile_line(lines, within, d, t, channels, y, count);
          }
        };
        call.begins = true;
        for (int64_t t = td.begin; t < td.end; ++t)
          for (int64_t p = 0; p < g.c; p += word[block_channels]) {
            const range channels = {p, std::min(g.c, p + word[block_channels])};
            const bool last = t + 1 == td.end && channels.end == g.c;
            call.out.epilogue = last ? &epilogue : nullptr;
            pass(t, channels);
            call.begins = false;
          }
        if (call.begins) {
          call.out.epilogue = &epilogue;
          pass(0, {0, 0});
        }
      }
    }
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_few_planes, .about = "few outputs, NCHW, pixels of planes in registers",
                .drives = kind::few_planes_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED},
                .accuracy = QUERN_ACCURACY_F32, .repeat = QUERN_REPEAT_BATCH, .pads = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict_one_pass, .least_cycles = least_by_pixels,
                .error_bound = chain_bound, .pack = pack, .run = run)
