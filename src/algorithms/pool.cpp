// SPDX-License-Identifier: MIT
//
// Pooling: the largest, or the mean, of windows.
//
//   item = channels that lie side by side, some planes of them, some lines of each      one task of the parallel_for
//     line of outputs, or short ones as a band
//       row.pool                                                  lines of src that padding does not hide
#include "pool_band.h"

namespace quern {
namespace {

enum word { side_by_side, lines_an_item, planes_an_item, streams, bands, way };  // of each run a way

constexpr int64_t short_line = 48;      // floats
constexpr int64_t longest_band = 4096;  // floats, beside as many of outputs

// Planes of pixels of n floats: `blocks` of them in each image.
struct pool_run {
  int64_t first, n, blocks;  // first: channel
};

// Channels that lie side by side, of NHWC in parts; the last ones may be fewer.
int runs_of(const quern_problem& p, int64_t part, pool_run* runs) {
  const int64_t c = p.src.size[1], n = p.src.layout == QUERN_NHWC ? part : block_of(p.src.layout);
  int count = 0;
  if (c >= n) runs[count++] = {0, n, c / n};
  if (c % n) runs[count++] = {c / n * n, c % n, 1};
  return count;
}

// Of a window, that may be on the image.
int64_t window_lines(const quern_problem& p) {
  return std::min(p.window.filter[0], p.src.size[2]) * std::min(p.window.filter[1], p.src.size[3]);
}

// What a call needs for all of a run.
pool_f32 call_of(const quern_problem& p, int64_t n) {
  pool_f32 call = {};
  call.largest = p.op == QUERN_POOL_MAX;
  call.n = size_t(n), call.count = size_t(p.dst.size[4]);
  call.taps = size_t(p.window.filter[2]);
  call.pixel = p.src.layout == QUERN_NCHW ? 1 : p.src.stride[4];
  call.step = p.window.stride[2], call.apart = p.window.dilation[2], call.pad = p.window.pad_begin[2];
  call.width = p.src.size[4];
  if (p.op == QUERN_POOL_AVG_PADDED) {
    call.taps_counted = float(p.window.filter[0]) * float(p.window.filter[1]) * float(p.window.filter[2]);
  }
  call.out.channels_are_rows = p.src.layout == QUERN_NCHW;
  call.out.ldc = size_t(p.dst.stride[4]), call.out.ldr = size_t(p.residual.stride[4]);
  return call;
}

// The loads that an output takes, in vectors of which only n floats count, or that cross pixels; and stores to the
// buffer that lines fold to.
struct way_cost {
  pool_way way;
  double cost;
};

way_cost way_of(const quern_problem& p, pool_f32 call, const kernel& row, const machine& m) {
  const int64_t n = int64_t(call.n), width = row.vector;
  const double lines = double(window_lines(p)), taps = double(call.taps);
  const double partly = double(up(n, width) * width) / double(n);
  const double inputs = double(std::min<int64_t>(int64_t(call.span()), call.width)) / double(call.count);
  way_cost best = {pool_way::windows, (lines * taps + 2) * partly};
  const auto offer = [&](pool_way way, double cost) {
    call.way = way;
    if (cost < best.cost && double(call.fold_floats()) * 4 <= double(m.l2) / 2) best = {way, cost};
  };
  const bool few_taps = (call.taps == 2 || call.taps == 3) && call.step <= 2 && call.apart == 1;
  if (few_taps) offer(pool_way::columns, (lines * std::min(taps, double(call.step)) + 1) * partly);
  const bool dense = call.pixel == n || call.width <= 1;
  if (dense) call.pixel = n;
  offer(pool_way::pixels, inputs * (lines + 2) * (dense ? 1 : partly) + (taps + 2) * partly);
  // Lines may be padding for the most part.
  const bool parted = call.step == 1 || (call.step <= pool_phases && width % n == 0);
  if (dense && parted && double(call.span()) * double(n) * 4 <= double(m.l2)) {
    const double phases = double(call.step) * (lines + double(call.step - 1));
    offer(pool_way::flat, phases + 2 * double(call.step) + taps + 1);
    if (few_taps && 2 * n <= width) offer(pool_way::shifted, phases + taps);
  }
  return best;
}

// Floats of tables and buffers; of the lines' offsets, two.
struct pool_workspace {
  size_t line, fold, tile, inside, band, all;
  pool_workspace(const quern_problem& p, const pool_f32& call, int64_t of_band)
      : line(0),
        fold(line + pool_f32::whole(2 * size_t(std::max(window_lines(p), p.window.filter[1])))),
        tile(fold + pool_f32::whole(call.fold_floats())),
        inside(tile + pool_f32::whole(call.tile_floats())),
        band(inside + (call.across() ? pool_f32::whole(call.tile_floats() + call.tile_row) : 0)),
        all(band + pool_f32::whole(size_t(of_band))) {}
};

// Lines of outputs that a band has at most, 0: lines go one by one.  It is for lines of a few vectors, around which
// there is more than in them.
int64_t lines_of_band(const quern_problem& p, int64_t n) {
  if (!pool_band::fits(p, n) || p.dst.size[4] * n > short_line) return 0;
  int64_t lines = p.dst.size[3];
  while (lines > 1 && pool_band(p, n, lines).floats() > longest_band) lines = up(lines, 2);
  return lines > 1 ? lines : 0;
}

pool_workspace workspace_of(const quern_problem& p, int64_t n, const pool_f32& call, int64_t of_band) {
  return {p, call, of_band ? pool_band(p, n, of_band).floats() : 0};
}

refusal refuse(const full_problem& p, const kernel&) {
  // A slice, whose sum has another order.
  if (is_whole_image(p)) return {QUERN_REASON_SHAPE, "window.filter[2]", p.window.filter[2], p.src.size[4] - 1};
  const struct {
    const quern_tensor& t;
    const char *layout, *channels, *pixels;
  } tensors[] = {{p.src, "src.layout", "src.stride[1]", "src.stride[4]"},
                 {p.dst, "dst.layout", "dst.stride[1]", "dst.stride[4]"},
                 {p.residual, "residual.layout", "residual.stride[1]", "residual.stride[4]"}};
  for (const auto& of : tensors) {
    if (&of.t == &p.residual && !p.epilogue.residual) continue;
    if (of.t.layout != p.src.layout) return {QUERN_REASON_LAYOUT, of.layout, of.t.layout, p.src.layout};
    if (p.src.layout == QUERN_NHWC && of.t.size[1] > 1 && of.t.stride[1] != 1)
      return {QUERN_REASON_LAYOUT, of.channels, of.t.stride[1], 1};
    if (p.src.layout == QUERN_NCHW && of.t.size[4] > 1 && of.t.stride[4] != 1)
      return {QUERN_REASON_LAYOUT, of.pixels, of.t.stride[4], 1};
  }
  return {};
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  blocking b = {};
  b.workers = 1;
  b.word[side_by_side] = std::max<int64_t>(1, p.src.size[1]);
  b.word[lines_an_item] = b.word[planes_an_item] = 1;
  if (empty(p)) return b;
  const double elements = double(p.dst.size[0]) * double(p.dst.size[1]) * double(p.dst.size[2]) *
                          double(p.dst.size[3]) * double(p.dst.size[4]);
  const int64_t lines = p.dst.size[2] * p.dst.size[3];
  const bool channels_last = p.src.layout == QUERN_NHWC;
  // Of pixels that do not fold in half of L1, parts do.
  if (channels_last) {
    pool_f32 call = call_of(p, p.src.size[1]);
    call.way = way_of(p, call, row, m).way;
    const int64_t floats = int64_t(call.fold_floats()), room = int64_t(m.l1) / 8;
    if (floats > room) b.word[side_by_side] = up(up(p.src.size[1], up(floats, room)), 64) * 64;
  }
  const auto work_of = [&](pool_run* runs, int& count) {
    count = runs_of(p, b.word[side_by_side], runs);
    pool_f32 call = call_of(p, runs[0].n);
    const double all = double(lines) * double(p.dst.size[0]) * double(runs[0].blocks);
    // Two operations a load, which wait for each other; and around a line.
    b.cycles = pace(row, m) * elements / row.vector * way_of(p, call, row, m).cost + 40 * clock_cycles(m) * all;
    b.word[bands] = lines_of_band(p, runs[0].n);
    if (b.word[bands] == 0) return;
    const pool_band band(p, runs[0].n, b.word[bands]);
    band.set(p, call);
    const way_cost of = way_of(p, call, row, m);
    call.way = of.way;
    if (!call.across()) b.word[bands] = 0;
    const double vectors = double(call.count * call.n) * of.cost + 2 * double(band.floats());
    if (call.across())
      b.cycles = (pace(row, m) * vectors / row.vector / double(band.lines) + 15 * clock_cycles(m)) * all;
  };
  pool_run runs[2];
  int count = 0;
  work_of(runs, count);
  const double bytes = bytes_moved(p);
  b.workers = useful_workers(m, b.cycles + bytes / (copy_rate(m, bytes) * m.cycle_ns), threads);
  const int64_t wanted = b.workers > 1 ? 4 * b.workers : 1;
  if (channels_last && lines * p.src.size[0] < wanted) {
    const int64_t parts = up(wanted, lines * p.src.size[0]);
    b.word[side_by_side] = std::min(b.word[side_by_side], up(up(p.src.size[1], parts), 64) * 64);
    work_of(runs, count);
  }
  // An item has enough to be worth its start: lines of one plane, or whole planes.
  const int64_t planes = runs[0].blocks * p.src.size[0];
  const int64_t enough = std::max<int64_t>(1, std::min(up(4096, p.dst.size[4] * runs[0].n), planes * lines / wanted));
  b.word[lines_an_item] = std::min(lines, enough);
  b.word[planes_an_item] = std::max<int64_t>(1, enough / lines);
  // What bands have in common is made once for an item.
  if (b.word[bands]) {
    b.word[lines_an_item] = b.word[bands] = std::min(b.word[lines_an_item], b.word[bands]);
    b.word[planes_an_item] = std::max<int64_t>(1, planes * up(lines, b.word[bands]) / wanted);
  }
  for (int i = 0; i < count; ++i) {
    pool_f32 call = call_of(p, runs[i].n);
    const int64_t of_band = i == 0 ? b.word[bands] : 0;
    if (of_band) pool_band(p, runs[i].n, of_band).set(p, call);
    call.way = way_of(p, call, row, m).way;
    b.word[way + i] = int64_t(call.way);
    b.workspace_bytes = std::max<uint64_t>(b.workspace_bytes, 4 * workspace_of(p, runs[i].n, call, of_band).all);
  }
  b.word[streams] = streams_outputs(4 * elements, m);
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const double bytes = bytes_moved(p);
  return overlapped(row, m, b, bytes / (copy_rate(m, bytes) * m.cycle_ns));
}

double error_bound(const full_problem& p) { return p.op == QUERN_POOL_MAX ? 0 : sum_bound(sum_length(p)); }

// pool_f32.inside, where outputs differ.
const float* count_inside(const quern_problem& p, int64_t n, float* to) {
  bool alike = true;
  float* next = to;
  for (int64_t x = 0; x < p.dst.size[4]; ++x) {
    const int64_t count = taps_inside(p, 2, x).count;
    alike &= count == p.window.filter[2];
    next = std::fill_n(next, n, float(std::max<int64_t>(1, count)));
  }
  return alike ? nullptr : to;
}

// Where the lines begin that windows of a line of outputs have on the image.
size_t lines_of(const quern_problem& p, int64_t d, int64_t h, ptrdiff_t* to) {
  const taps_inside rows(p, 1, h), slices(p, 0, d);
  size_t n = 0;
  for (int64_t i = 0; i < slices.count; ++i)
    for (int64_t r = 0; r < rows.count; ++r)
      to[n++] = (slices.first + i * p.window.dilation[0]) * p.src.stride[2] +
                (rows.first + r * p.window.dilation[1]) * p.src.stride[3];
  return n;
}

void run(const job& j, const execution& e) {
  const quern_problem& p = j.problem;
  if (empty(p)) return;
  const int64_t* word = j.blocks.word;
  const int64_t block = block_of(p.src.layout), lines = p.dst.size[2] * p.dst.size[3];
  const epilogue_f32 epilogue = epilogue_of(p, e.args);
  const float* const src = static_cast<const float*>(e.args.src);
  const float* const residual = epilogue.residual ? static_cast<const float*>(e.args.residual) : nullptr;
  float* const dst = static_cast<float*>(e.args.dst);
  pool_run runs[2];
  const int count = runs_of(p, word[side_by_side], runs);
  const int64_t parts = up(lines, word[lines_an_item]);
  for (int r = 0; r < count; ++r) {
    const pool_run& run = runs[r];
    pool_f32 of_run = call_of(p, run.n);
    of_run.way = pool_way(word[way + r]);
    of_run.out.epilogue = &epilogue, of_run.out.stream = word[streams];
    const int64_t of_band = r == 0 ? word[bands] : 0, planes = run.blocks * p.src.size[0];
    if (of_band) pool_band(p, run.n, of_band).set(p, of_run);
    const pool_workspace at = workspace_of(p, run.n, of_run, of_band);
    for_each_item(j, e, up(planes, word[planes_an_item]) * parts, [&](int64_t item, char* workspace) {
      const int64_t line = digit(item, parts) * word[lines_an_item], plane = item * word[planes_an_item];
      const int64_t line_end = std::min(lines, line + word[lines_an_item]);
      float* const floats = reinterpret_cast<float*>(workspace);
      ptrdiff_t* const offsets = reinterpret_cast<ptrdiff_t*>(floats + at.line);
      pool_f32 call = of_run;
      call.fold = floats + at.fold, call.tile = floats + at.tile, call.line = offsets;
      const pool_band band(p, run.n, line_end - line);
      float* const copied = floats + at.band;
      if (of_band) {
        band.set(p, call), band.place_taps(p, offsets);
        std::fill_n(copied, band.floats(), call.largest ? -std::numeric_limits<float>::infinity() : 0.0f);
        if (p.op == QUERN_POOL_AVG) call.inside = band.count_inside(p, line, floats + at.inside);
      } else if (p.op == QUERN_POOL_AVG && call.across()) {
        call.inside = count_inside(p, run.n, floats + at.inside);
      }
      for (int64_t i = plane; i < std::min(planes, plane + word[planes_an_item]); ++i) {
        const int64_t image = i / run.blocks, channel = run.first + i % run.blocks * run.n;
        const auto plane_of = [&](const quern_tensor& t) {
          return image * t.stride[0] + channel_offset(channel, t.stride[1], block);
        };
        const int64_t to = plane_of(p.dst), from = plane_of(p.residual);
        call.src = src + plane_of(p.src);
        call.out.channel = size_t(channel);
        const auto take = [&](int64_t d, int64_t h) {
          call.out.c = dst + to + d * p.dst.stride[2] + h * p.dst.stride[3];
          if (residual) call.out.residual = residual + from + d * p.residual.stride[2] + h * p.residual.stride[3];
          j.row.pool(call);
        };
        if (of_band) {
          band.copy(p, j.row, call.src, line, copied);
          call.src = copied;
          take(0, line);
          continue;
        }
        for (int64_t l = line; l < line_end; ++l) {
          const int64_t d = p.dst.size[2] == 1 ? 0 : l / p.dst.size[3], h = l - d * p.dst.size[3];
          call.lines = lines_of(p, d, h, offsets);
          take(d, h);
        }
      }
      if (call.out.stream) finish_streams();
    });
  }
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(pool, .about = "lines of windows, vectors of channels or of pixels", .drives = kind::pool_f32,
                .op = {QUERN_POOL_MAX, QUERN_POOL_AVG, QUERN_POOL_AVG_PADDED}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_ISA, .refuses_alike = true, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict, .error_bound = error_bound, .run = run)
