// SPDX-License-Identifier: MIT
//
// Pooling: the largest, or the mean, of windows.
//
//   item = channels that lie side by side, some planes of them, some lines of each      one task of the parallel_for
//     line of outputs or a part of it, or short lines as a band
//       row.pool                                                  lines of src that padding does not hide
#include "axes.h"
#include "pool_band.h"
#include "pool_line.h"

namespace quern {
namespace {

enum word { side_by_side, outputs_a_call, lines_an_item, planes_an_item, streams, bands, way };  // of each run a way

constexpr int64_t short_line = 48;                         // floats
constexpr int64_t longest_band = 4096;                     // floats, beside as many of outputs
constexpr int64_t most_lines = 1 << 20;                    // of a window
constexpr int64_t item_floats = 4096, part_floats = 1024;  // of outputs, that are worth a start

// Channels that lie side by side; those of NHWC in parts.
int runs_of(const quern_problem& p, const int64_t* word, channel_run* runs) {
  return channel_runs(p, p.src.layout == QUERN_NHWC ? word[side_by_side] : block_of(p.src.layout), runs);
}

// What is walked for one run of channels.
struct pool_walk {
  channel_run channels;
  int64_t lines, planes;                  // of a plane; of all images
  int64_t band;                           // lines of one; 0: they go one by one,
  int64_t outputs, parts;                 // in parts of so many outputs
  int64_t lines_at_once, planes_at_once;  // of an item
  pool_f32 call;
  pool_workspace at;

  pool_walk() = default;
  pool_walk(const quern_problem& p, const geometry& g, const channel_run* runs, const int64_t* word, int i)
      : channels(runs[i]),
        lines(g.out[0] * g.out[1]),
        planes(channels.count / channels.block * g.n),
        band(i == 0 ? word[bands] : 0),
        outputs(word[outputs_a_call]),
        parts(up(g.out[2], outputs)),
        lines_at_once(word[lines_an_item]),
        planes_at_once(word[planes_an_item]),
        call(call_of(p, g, channels.block, outputs)) {
    call.way = pool_way(word[way + i]);
    int64_t of_band = 0;
    if (band) {
      const pool_band b(g, channels.block, band);
      b.set(p, g, call), of_band = b.floats();
    }
    at = pool_workspace(p, g, call, of_band);
  }
  int64_t items() const { return parts * up(lines, lines_at_once) * up(planes, planes_at_once); }
};

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
  // Each has its place in the workspace.
  const int64_t lines = window_lines(geometry_of(p));
  if (lines > most_lines) return {QUERN_REASON_SHAPE, "window.filter[1]", lines, most_lines};
  return {};
}

// Of pixels that do not fold in half of L1, parts do, where parts of lines would overlap.
int64_t channels_of_part(const full_problem& p, const kernel& row, const machine& m) {
  const geometry& g = geometry_of(p);
  const int64_t channels = p.src.size[1], room = std::max<int64_t>(1, int64_t(m.l1) / 8);
  pool_f32 call = call_of(p, g, channels, g.out[2]);
  call.count = size_t(std::min(g.out[2], 8 * (call.reach() / call.step + 1)));
  call.way = way_of(g, call, row, m).way;
  const int64_t floats = std::max(int64_t(call.fold_floats()), is_straight(p, call) ? 0 : channels);
  return floats > room ? up(up(channels, up(floats, room)), 64) * 64 : channels;
}

// Lines of outputs that a band has, 0: lines go one by one.  It is for lines of a few vectors, around which there is
// more than in them.
int64_t lines_of_band(const full_problem& p, int64_t n, const kernel& row, const machine& m, int64_t most) {
  const geometry& g = geometry_of(p);
  if (!pool_band::fits(g, n) || g.out[2] * n > short_line) return 0;
  int64_t lines = std::min(most, g.out[1]);
  while (lines > 1 && pool_band(g, n, lines).exceeds(longest_band)) lines = up(lines, 2);
  if (lines <= 1) return 0;
  pool_f32 call = call_of(p, g, n, g.out[2]);
  pool_band(g, n, lines).set(p, g, call);
  call.way = way_of(g, call, row, m).way;
  return call.across() ? lines : 0;
}

// Two operations a load, which wait for each other; and around a line.
double cycles_of(const geometry& g, const pool_walk& w, const kernel& row, const machine& m) {
  const double lines = double(w.planes) * double(w.lines), cost = way_of(g, w.call, row, m).cost;
  const auto cycles = [&](double floats) { return pace(row, m) * floats / row.vector; };
  if (w.band == 0)
    return lines * (cycles(double(g.out[2] * w.channels.block) * cost) + 40 * clock_cycles(m) * double(w.parts));
  const double copied = double(w.at.all - w.at.band);
  return lines * (cycles(double(w.call.count * w.call.n) * cost + 2 * copied) / double(w.band) + 15 * clock_cycles(m));
}

// How lines are taken, of which a call has so many outputs at most, or a band so many lines.
void choose_ways(const full_problem& p, const kernel& row, const machine& m, int64_t outputs, int64_t lines,
                 blocking& b) {
  const geometry& g = geometry_of(p);
  channel_run runs[2] = {};
  const int count = runs_of(p, b.word, runs);
  b.word[bands] = lines_of_band(p, runs[0].block, row, m, lines);
  b.word[outputs_a_call] = b.word[bands] ? g.out[2] : std::min(outputs, g.out[2]);
  for (int i = 0; i < count && !b.word[bands]; ++i)
    b.word[outputs_a_call] = outputs_of_part(p, g, runs[i].block, row, m, b.word[outputs_a_call]);
  b.cycles = 0;
  for (int i = 0; i < count; ++i) {
    b.word[way + i] = int64_t(way_of(g, pool_walk(p, g, runs, b.word, i).call, row, m).way);
    b.cycles += cycles_of(g, pool_walk(p, g, runs, b.word, i), row, m);
  }
}

// Items that have enough to be worth their start, and of which so many workers have some each: lines of one plane, or
// whole planes; fewer channels and parts of lines where those are few.
void choose_items(const full_problem& p, const kernel& row, const machine& m, blocking& b) {
  const geometry& g = geometry_of(p);
  const int64_t wanted = b.workers > 1 ? 4 * b.workers : 1, lines = g.out[0] * g.out[1];
  if (p.src.layout == QUERN_NHWC && lines * g.n < wanted)
    b.word[side_by_side] = std::min(b.word[side_by_side], up(up(p.src.size[1], up(wanted, lines * g.n)), 64) * 64);
  channel_run runs[2] = {};
  runs_of(p, b.word, runs);
  const int64_t n = runs[0].block, planes = runs[0].count / n * g.n, all = planes * lines;
  int64_t outputs = g.out[2];
  if (all < wanted) outputs = up(std::max(up(outputs, up(wanted, all)), up(part_floats, n)), 16) * 16;
  outputs = std::min(outputs, g.out[2]);
  const int64_t enough = std::clamp<int64_t>(all * up(g.out[2], outputs) / wanted, 1, up(item_floats, outputs * n));
  choose_ways(p, row, m, outputs, std::min(lines, enough), b);
  b.word[lines_an_item] = std::min(lines, enough), b.word[planes_an_item] = std::max<int64_t>(1, enough / lines);
  // What bands have in common is made once for an item.
  if (b.word[bands]) {
    b.word[lines_an_item] = b.word[bands];
    b.word[planes_an_item] = std::max<int64_t>(1, planes * up(lines, b.word[bands]) / wanted);
  }
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  b.workers = 1;
  b.word[side_by_side] = b.word[outputs_a_call] = b.word[lines_an_item] = b.word[planes_an_item] = 1;
  if (empty(p)) return b;
  if (p.src.layout == QUERN_NHWC) b.word[side_by_side] = channels_of_part(p, row, m);
  choose_ways(p, row, m, g.out[2], g.out[1], b);
  const double bytes = bytes_moved(p);
  b.workers = useful_workers(m, b.cycles + bytes / (copy_rate(m, bytes) * m.cycle_ns), threads);
  choose_items(p, row, m, b);
  channel_run runs[2] = {};
  int64_t items = 0;
  for (int i = runs_of(p, b.word, runs); i-- > 0;) {
    const pool_walk w(p, g, runs, b.word, i);
    items += w.items(), b.workspace_bytes = std::max<uint64_t>(b.workspace_bytes, 4 * w.at.all);
  }
  b.workers = uint32_t(std::min<int64_t>(b.workers, items));
  double written = 4;
  for (const int64_t size : p.dst.size) written *= double(size);
  b.word[streams] = streams_outputs(written, m);
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const double bytes = bytes_moved(p);
  return overlapped(row, m, b, bytes / (copy_rate(m, bytes) * m.cycle_ns));
}

double error_bound(const full_problem& p) { return p.op == QUERN_POOL_MAX ? 0 : sum_bound(sum_length(p)); }

// pool_f32.inside of outputs from x on, where outputs differ.
const float* count_inside(const axis& along, int64_t x, const pool_f32& call, float* to) {
  bool alike = true;
  float* next = to;
  for (const int64_t end = x + int64_t(call.count); x < end; ++x) {
    const int64_t count = along.taps_at(x).count();
    alike &= count == along.taps;
    next = std::fill_n(next, call.n, float(std::max<int64_t>(1, count)));
  }
  return alike ? nullptr : to;
}

// Where the lines begin that windows of a line of outputs have on the image.
size_t lines_of(const geometry& g, const axis& slices, const axis& rows, int64_t d, int64_t h, ptrdiff_t* to) {
  const range slice = slices.taps_at(d), row = rows.taps_at(h);
  size_t n = 0;
  for (int64_t i = slice.begin; i < slice.end; ++i)
    for (int64_t r = row.begin; r < row.end; ++r)
      to[n++] = (slices.in_begin + d * slices.in_step + i * slices.tap_step) * g.src[2] +
                (rows.in_begin + h * rows.in_step + r * rows.tap_step) * g.src[3];
  return n;
}

// The planes and lines of an item, and the output of those where its part begins.
struct pool_item {
  range planes, lines;
  int64_t x;

  pool_item(const pool_walk& w, int64_t number) : x(digit(number, w.parts) * w.outputs) {
    const int64_t line = digit(number, up(w.lines, w.lines_at_once)) * w.lines_at_once;
    lines = {line, std::min(w.lines, line + w.lines_at_once)};
    planes = {number * w.planes_at_once, std::min(w.planes, (number + 1) * w.planes_at_once)};
  }
};

struct pool_run {
  const job& j;
  const execution& e;
  const geometry& g;
  const epilogue_f32& epilogue;

  // Output x of the first line of a plane.
  void go_to(const pool_walk& w, int64_t plane, int64_t x, pool_f32& call) const {
    const int64_t blocks = w.channels.count / w.channels.block, image = plane / blocks;
    const int64_t channel = w.channels.first + plane % blocks * w.channels.block;
    call.src = static_cast<const float*>(e.args.src) + image * g.src[0] + g.src_channel(channel);
    call.out.c = static_cast<float*>(e.args.dst) + image * g.dst[0] + g.dst_channel(channel) + x * g.dst[4];
    if (epilogue.residual)
      call.out.residual = static_cast<const float*>(e.args.residual) + image * g.residual[0] +
                          g.residual_channel(channel) + x * g.residual[4];
    call.out.channel = size_t(channel);
  }

  void take(const pool_walk& w, const pool_item& item, char* workspace) const {
    float* const floats = reinterpret_cast<float*>(workspace);
    pool_f32 call = w.call;
    call.out.epilogue = &epilogue, call.out.stream = j.blocks.word[streams];
    call.fold = floats + w.at.fold, call.tile = floats + w.at.tile;
    if (w.band)
      take_band(w, item, call, floats);
    else
      take_lines(w, item, call, floats);
    if (call.out.stream) finish_streams();
  }

  void take_lines(const pool_walk& w, const pool_item& item, pool_f32 call, float* floats) const {
    const axis slices = g.axis_of(0, 0), rows = g.axis_of(1, 0);
    ptrdiff_t* const offsets = reinterpret_cast<ptrdiff_t*>(floats);
    call.line = offsets;
    call.count = size_t(std::min(w.outputs, g.out[2] - item.x));
    if (j.problem.op == QUERN_POOL_AVG && call.across())
      call.inside = count_inside(g.axis_of(2, 0), item.x, call, floats + w.at.inside);
    const ptrdiff_t behind = begin_at(call, item.x) * call.pixel;
    for (int64_t i = item.planes.begin; i < item.planes.end; ++i) {
      go_to(w, i, item.x, call);
      call.src += behind;
      float* const c = call.out.c;
      const float* const residual = call.out.residual;
      for (int64_t l = item.lines.begin; l < item.lines.end; ++l) {
        const int64_t d = g.out[0] == 1 ? 0 : l / g.out[1], h = l - d * g.out[1];
        call.lines = lines_of(g, slices, rows, d, h, offsets);
        call.out.c = c + d * g.dst[2] + h * g.dst[3];
        if (residual) call.out.residual = residual + d * g.residual[2] + h * g.residual[3];
        j.row.pool(call);
      }
    }
  }

  // All lines as one, of a copy of what they reach.
  void take_band(const pool_walk& w, const pool_item& item, pool_f32 call, float* floats) const {
    const int64_t first = item.lines.begin;
    const pool_band band(g, w.channels.block, item.lines.count());
    ptrdiff_t* const offsets = reinterpret_cast<ptrdiff_t*>(floats);
    float* const copied = floats + w.at.band;
    band.set(j.problem, g, call), band.place_taps(offsets);
    call.line = offsets;
    std::fill_n(copied, band.floats(), call.largest ? -std::numeric_limits<float>::infinity() : 0.0f);
    if (j.problem.op == QUERN_POOL_AVG) call.inside = band.count_inside(first, floats + w.at.inside);
    for (int64_t i = item.planes.begin; i < item.planes.end; ++i) {
      go_to(w, i, 0, call);
      band.copy(g, j.row, call.src, first, copied);
      call.src = copied, call.out.c += first * g.dst[3];
      if (call.out.residual) call.out.residual += first * g.residual[3];
      j.row.pool(call);
    }
  }
};

void run(const job& j, const execution& e) {
  if (empty(j.problem)) return;
  const geometry g = geometry_of(j.problem);
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  channel_run runs[2] = {};
  const int count = runs_of(j.problem, j.blocks.word, runs);
  pool_walk walks[2];
  int64_t items = 0;
  for (int i = 0; i < count; ++i) walks[i] = pool_walk(j.problem, g, runs, j.blocks.word, i), items += walks[i].items();
  const pool_run all = {j, e, g, epilogue};
  const int64_t first = walks[0].items();
  for_each_item(j, e, items, [&](int64_t item, char* workspace) {
    if (item < first)
      all.take(walks[0], {walks[0], item}, workspace);
    else
      all.take(walks[1], {walks[1], item - first}, workspace);
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(pool, .about = "lines of windows, vectors of channels or of pixels", .drives = kind::pool_f32,
                .op = {QUERN_POOL_MAX, QUERN_POOL_AVG, QUERN_POOL_AVG_PADDED}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_ISA, .refuses_alike = true, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict, .error_bound = error_bound, .run = run)
