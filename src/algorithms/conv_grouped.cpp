// SPDX-License-Identifier: MIT
//
// Grouped convolution with few channels a group, forward and transposed, for NHWC and blocked layouts: one pass
// over the image, reading it where it lies.
//
//   item = image, phase, band of lines, run of vectors of output channels    one task of the parallel_for
//     for lines that have the same rows of the filter, a few at a time
//       for strip of mr pixels
//         for vector of channels                                             of several groups, or part of one
//           row.grouped
//
// A kernel made for filters of some width takes a row of it at a time, others take a tap at a time.  Dilated
// filters of that width see every dilation-th pixel: strips of such pixels, interleaved.
#include "ahead.h"
#include "driver.h"
#include "strips.h"
#include "weights.h"

namespace quern {
namespace {

enum word { bands, block_vectors, blocks, fetches };

constexpr int64_t stack_rows = 64, stack_taps = 64;  // what is longer lies in the workspace
constexpr int64_t widest = 16;                       // vector

// Whole groups that a vector of a row holds, inputs and outputs; 0: it holds a part of one.
int64_t whole_groups(const kernel& row, int64_t c, int64_t k) {
  return row.group || row.several_groups ? row.vector / std::max<int64_t>({c, k, 1}) : 0;
}

// Output channels as vectors: of whole groups side by side, or some for each group.
struct vectors {
  int64_t width, whole, of_group, count;  // of_group 0: whole groups

  vectors(const geometry& g, const kernel& row)
      : width(row.vector),
        whole(whole_groups(row, g.c, g.k)),
        of_group(whole ? 0 : up(g.k, width)),
        count(whole ? up(g.groups, whole) : g.groups * of_group) {}
  int64_t group(int64_t i) const { return whole ? i * whole : i / of_group; }
  int64_t groups(const geometry& g, int64_t i) const { return std::min(whole, g.groups - group(i)); }
  int64_t channel(const geometry& g, int64_t i) const { return group(i) * g.k + (whole ? 0 : i % of_group * width); }
  int64_t channels(const geometry& g, int64_t i) const {
    return whole ? groups(g, i) * g.k : std::min(width, g.k - i % of_group * width);
  }
  // The vector of channel k of a group, and its lane there.
  int64_t of(int64_t group_index, int64_t k) const {
    return whole ? group_index / whole : group_index * of_group + k / width;
  }
  int64_t lane(const geometry& g, int64_t group_index, int64_t k) const {
    return whole ? group_index % whole * g.k + k : k % width;
  }
  int64_t floats(const geometry& g) const { return g.c * width; }  // of weights a tap
  // Which input of whole groups channel c of a lane's group is; lanes that are left have the last group's.
  void fill_lanes(const geometry& g, int32_t* to) const {
    for (int64_t c = 0; c < g.c; ++c, to += width) {
      int32_t* lane = to;
      for (int64_t i = 0; i < whole; ++i, lane += g.k) std::fill_n(lane, g.k, int32_t(i * g.c + c));
      std::fill(lane, to + width, int32_t((whole - 1) * g.c + c));
    }
  }
};

// Input channels of a group that lie side by side; 0: the layout cuts groups elsewhere.
int64_t run_of(const geometry& g) {
  if (g.src_block == 1 || g.src_block % std::max<int64_t>(1, g.c) == 0) return g.c;
  return g.c % g.src_block == 0 ? g.src_block : 0;
}

refusal refuse(const full_problem& p, const kernel& row) {
  // First what rules out most problems, before anything is computed of them.
  if (p.groups < 2) return {QUERN_REASON_SHAPE, "groups", p.groups, 2};
  const int64_t c = p.src.size[1] / p.groups, k = p.dst.size[1] / p.groups;
  if (row.group) {
    if (c != row.group) return {QUERN_REASON_SHAPE, "src.size[1] / groups", c, row.group};
    if (k != row.group) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", k, row.group};
  } else if (c == 1) {  // depthwise
    return {QUERN_REASON_SHAPE, "src.size[1] / groups", c, 2};
  } else if (row.several_groups) {
    const int64_t most = row.vector / 2;
    if (c < 1 || c > most) return {QUERN_REASON_SHAPE, "src.size[1] / groups", c, most};
    if (k > most) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", k, most};
  }
  const geometry& g = geometry_of(p);
  if (const refusal why = refuse_channels_apart(p)) return why;
  // Halves of a vector lie in one piece each, which none of a group's vectors crosses.
  const int64_t whole = whole_groups(row, c, k), half = row.vector / 2;
  const auto splits = [&](int64_t block) {
    if (block == 1) return false;
    const int64_t piece = std::min<int64_t>(block, row.vector);
    return piece < half || (whole ? whole * k % half != 0 : k % piece && (k == 0 || piece % k));
  };
  if (row.several_groups ? g.src_block > 1 && g.src_block % (whole * c) != 0
      : row.group        ? splits(g.src_block)
                         : c > 0 && run_of(g) == 0)
    return {QUERN_REASON_LAYOUT, "src.layout", p.src.layout, QUERN_NHWC};
  if (splits(g.dst_block)) return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, QUERN_NHWC};
  if (p.epilogue.residual && splits(g.residual_block))
    return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, QUERN_NHWC};
  if (row.taps) {
    if (g.transposed) return {QUERN_REASON_SHAPE, "op", p.op, QUERN_CONV};
    if (g.filter[2] != row.taps) return g.refuse(window_filter, 2, g.filter[2], row.taps);
    // A stride is some of the kernel's steps among the pixels that a filter sees.
    if (g.out[2] > 1 && (g.stride[2] % row.step != 0 || g.dilation[2] % (g.stride[2] / row.step) != 0))
      return g.refuse(window_stride, 2, g.stride[2], row.step);
  }
  return g.refuse_phases();
}

// Taps on the image of all outputs along an axis.  Of many phases the first stand for all.
double taps_along(const geometry& g, int i) {
  const int64_t phases = g.phases(i), some = std::min<int64_t>(phases, 4);
  double taps = 0;
  for (int64_t f = 0; f < some; ++f) {
    const axis_parts parts(g.axis_of(i, f));
    for (int j = 0; j < parts.count; ++j)
      taps += parts.part[j].parts * double(parts.part[j].outputs) * parts.part[j].taps;
  }
  return taps * double(phases) / double(some);
}

// What it takes to spread a channel of a pixel.  A core that takes vectors in halves copies lanes of fours, which of 8
// channels are copied first, as fast as it multiplies; those of a table at two thirds of that (Zen 4).
double spread_cycles(const kernel& row, const machine& m) {
  if (!in_halves(m) || pace(row, m) < 1) return 1;
  return clock_cycles(m) * (row.several_groups ? 1.5 : row.group == 8 ? 1.25 : 1);
}

// A multiply-add takes half a cycle, a little more where channels are a loop; accumulators and their memory come on
// top. Broadcasts from memory are not as good as lanes of a pixel that is loaded once.
double compute_cycles(const geometry& g, const kernel& row, const machine& m) {
  const vectors v(g, row);
  const double lines = taps_along(g, 0) * taps_along(g, 1), x = double(g.out[2]);
  const double sums = lines * taps_along(g, 2) * double(g.c);
  const double strips = double(up(g.out[2], row.mr)), width = double(g.filter[2]), taps = row.taps;
  const double spreads =
      row.taps ? lines * width / taps * (x * row.step + strips * (taps - row.step)) * double(g.c) : sums;
  const double outputs = double(g.out[0] * g.out[1]) * (3 * x + 25 * strips / row.lines);
  const double cycles = v.whole ? std::max((row.several_groups ? 0.56 : 0.52) * sums, spread_cycles(row, m) * spreads)
                                : std::max(0.66 * sums, 0.75 * spreads);
  return double(g.n) * double(v.count) * (cycles + outputs);
}

int64_t items_of(const geometry& g) { return std::max<int64_t>(1, g.n * g.phases()); }

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  const vectors v(g, row);
  const int64_t count = std::max<int64_t>(1, v.count);
  b.packed_bytes = uint64_t(g.taps() * v.count * v.floats(g)) * sizeof(float);
  if (g.filter_size() > stack_rows) {
    const int64_t bytes = g.filter_size() * int64_t(sizeof(grouped_row)) + g.filter[2] * int64_t(sizeof(uint32_t));
    b.workspace_bytes = uint64_t(up(bytes, QUERN_ALIGN) * QUERN_ALIGN);
  }
  b.cycles = pace(row, m) * compute_cycles(g, row, m);
  b.workers = useful_workers(m, b.cycles, threads);
  const int64_t lines = std::max<int64_t>(1, phase_of(g, 0).h.out_count);
  const int64_t wanted = b.workers > 1 ? 4 * b.workers : 1;
  b.word[bands] = std::min(up(lines, row.lines), up(wanted, items_of(g)));
  const int64_t parts = std::min(count, up(wanted, items_of(g) * b.word[bands]));
  b.word[block_vectors] = up(count, parts);
  // Weights that do not stay in L2 beside the image are used by all lines while they are in L1.
  if (b.packed_bytes > m.l2 / 4) {
    const int64_t fit = int64_t(m.l1 / 2 * uint64_t(count) / b.packed_bytes);
    b.word[block_vectors] = std::clamp<int64_t>(fit, 1, b.word[block_vectors]);
  }
  // Planes of blocks are read line after line, one vector after the other.
  const bool blocked = g.src_block > 1 && g.dst_block > 1;
  if (v.whole && blocked && mostly_slowly(g, m)) b.word[block_vectors] = 1;
  b.word[blocks] = up(count, b.word[block_vectors]);
  const bool plain = g.in[0] * g.phases() * g.dilation[2] == 1 && v.whole;
  if (plain && is_waited_for(g, m))
    b.word[fetches] = blocked ? fetch_lines : g.src_block == 1 && b.word[blocks] == 1 ? fetch_pixels : fetch_nothing;
  return b;
}

// [phase][vector][taps of a kernel's row][c][tap in it][output]
void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const vectors v(g, j.row);
  const int64_t taps = std::max<int64_t>(1, j.row.taps);
  float* to = reinterpret_cast<float*>(payload);
  pack_weights(g, first, count, static_cast<const float*>(weights), [&](const weight_run<float>& w) {
    const int64_t i = v.of(w.group, w.k), lane = v.lane(g, w.group, w.k);
    const int64_t end = lane + 1 == v.channels(g, i) ? v.width : lane + 1;
    float* const rows = to + (w.before * v.count + i * w.ph.taps() + w.tap / taps * taps) * v.floats(g);
    for (int64_t c = w.begin; c < w.end; ++c) put_lane(rows + (c * taps + w.tap % taps) * v.width, lane, end, w[c]);
  });
}

// Outputs of a line that a kernel sees as neighbours.
struct interleaved {
  int64_t parts, step, taps, pixel_step;  // pixel_step: inputs `step` apart, from output to output
  interleaved(const phase& ph, const kernel& row)
      : parts(row.taps && ph.w.out_count > 1 ? ph.w.tap_step * row.step / ph.w.in_step : 1),
        step(row.taps ? ph.w.tap_step : ph.w.in_step),
        taps(std::max<int64_t>(1, row.taps)),
        pixel_step(std::max<int64_t>(1, row.step)) {}
  int64_t inputs(int64_t outputs) const { return (outputs - 1) * pixel_step + taps; }
  int64_t count(const phase& ph, int64_t i) const { return i < ph.w.out_count ? up(ph.w.out_count - i, parts) : 0; }
};

// Which inputs at `first` + i * step, i < count, lie on an axis of `size`.
uint32_t inside(int64_t first, int64_t step, int64_t count, int64_t size) {
  const int64_t lo = first >= 0 ? 0 : std::min(count, up(-first, step));
  const int64_t hi = first >= size ? 0 : std::min(count, up(size - first, step));
  return lo < hi ? ((uint32_t{1} << (hi - lo)) - 1) << lo : 0;
}

void run(const job& j, const execution& e) {
  const geometry& g = geometry_of(j.problem);
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t* word = j.blocks.word;
  const vectors v(g, j.row);
  const int64_t half = v.width / 2;
  int32_t lanes[widest / 2 * widest];
  if (j.row.several_groups) v.fill_lanes(g, lanes);
  for_each_item(j, e, g.n * g.phases() * word[bands] * word[blocks], [&](int64_t item, char* workspace) {
    const int64_t block = digit(item, word[blocks]), band = digit(item, word[bands]), f = digit(item, g.phases());
    const int64_t n = item;
    const phase ph = phase_of(g, f);
    const interleaved x_axis(ph, j.row);
    const int64_t before = taps_before(g, f);
    const range all = part(ph.h.out_count, band, word[bands]);
    const int64_t last_vector = std::min(v.count, (block + 1) * word[block_vectors]);

    grouped_row rows_on_stack[stack_rows];
    uint32_t inside_on_stack[stack_taps];
    grouped_row* rows = rows_on_stack;
    uint32_t* on_image = inside_on_stack;
    if (g.filter_size() > stack_rows) {
      rows = reinterpret_cast<grouped_row*>(workspace);
      on_image = reinterpret_cast<uint32_t*>(rows + g.filter_size());
    }
    const int64_t across = ph.w.taps / x_axis.taps;  // kernel's rows in a row of the filter

    grouped_f32 call = {};
    call.row = rows;
    call.channels = size_t(g.c), call.run = size_t(v.of_group ? run_of(g) : half);
    call.lanes = lanes;
    call.src_run = g.src[1];
    call.src_pixel = x_axis.step * g.src[4];
    call.src_line = ph.h.in_step * g.src[3];
    call.out.ldc = size_t(x_axis.parts * ph.w.out_step * g.dst[4]);
    call.out.ldr = size_t(x_axis.parts * ph.w.out_step * g.residual[4]);
    call.out.epilogue = &epilogue;
    call.dst_line = ph.h.out_step * g.dst[3];
    call.residual_line = ph.h.out_step * g.residual[3];

    const float* const src = static_cast<const float*>(e.args.src) + n * g.src[0];
    const float* const dst = static_cast<const float*>(e.args.dst) + n * g.dst[0];
    // Of the only vector, in so many strips of lines y.
    const auto ask_for_lines = [&](range y, int64_t strips) {
      const int64_t i = block * word[block_vectors], input = v.group(i) * g.c, channel = v.channel(g, i);
      const int64_t planes = v.channels(g, i) > half ? 2 : 1, vectors = y.count() * ph.w.out_count;
      const range below = {y.end, std::min(all.end, y.end + y.count())};
      call.ahead[0] =
          share_of_planes(src + g.src_channel(input), g.src, planes, g.src_channel(input + half) - g.src_channel(input),
                          new_inputs_under(ph.h, below, y), strips, vectors);
      call.ahead[1] = share_of_planes(dst + g.dst_channel(channel), g.dst, planes,
                                      g.dst_channel(channel + half) - g.dst_channel(channel), below, strips, vectors);
    };
    // Of all vectors, which have so many outputs now.
    const auto ask_for_pixels = [&](range y, range x, int64_t outputs) {
      call.ahead[0] =
          share_of_pixels(src, g.src, inputs_under(ph.h, y), inputs_under(ph.w, x), v.count, outputs * v.count);
      call.ahead[1] = share_of_pixels(dst, g.dst, y, x, v.count, outputs * v.count);
    };

    const auto strip = [&](int64_t d, int64_t y, int64_t x) {  // of the first output
      const int64_t source = n * g.src[0] + (ph.w.in_begin + x * ph.w.in_step) * g.src[4];
      const auto place = [&](const int64_t* stride) {
        return n * stride[0] + (ph.d.out_begin + d * ph.d.out_step) * stride[2] +
               (ph.h.out_begin + y * ph.h.out_step) * stride[3] + (ph.w.out_begin + x * ph.w.out_step) * stride[4];
      };
      for (int64_t i = block * word[block_vectors]; i < last_vector; ++i) {
        const int64_t channel = v.channel(g, i), input = v.group(i) * g.c;
        call.n = size_t(v.channels(g, i)), call.inputs = size_t(v.groups(g, i) * g.c);
        // Where there is no second half, its place may lie beyond the tensor.
        const bool second = int64_t(call.n) > half;
        call.src = static_cast<const float*>(e.args.src) + source + g.src_channel(input);
        if (!v.of_group) call.src_run = second ? g.src_channel(input + half) - g.src_channel(input) : half;
        call.weights = reinterpret_cast<const float*>(e.packed) + (before * v.count + i * ph.taps()) * v.floats(g);
        call.out.channel = size_t(channel);
        call.out.c = static_cast<float*>(e.args.dst) + place(g.dst) + g.dst_channel(channel);
        call.dst_half = second ? g.dst_channel(channel + half) - g.dst_channel(channel) : half;
        if (epilogue.residual) {
          call.out.residual =
              static_cast<const float*>(e.args.residual) + place(g.residual) + g.residual_channel(channel);
          call.residual_half = second ? g.residual_channel(channel + half) - g.residual_channel(channel) : half;
        }
        j.row.grouped(call);
        next_share(call.ahead);
      }
    };

    for (int64_t d = 0; d < ph.d.out_count; ++d)
      for (range same = {all.begin, all.begin}; same.begin < all.end; same.begin = same.end) {
        same = ph.h.span(same.begin, all.end);
        const range td = ph.d.taps_at(d), th = ph.h.taps_at(same.begin);
        const cut lines(same.count(), j.row.lines);
        for (int64_t i = 0; i < lines.tiles; ++i) {
          const int64_t y = same.begin + lines.begin(i);
          call.lines = size_t(lines.rows(i));
          call.rows = 0;
          for (int64_t t = td.begin; t < td.end; ++t)
            for (int64_t r = th.begin; r < th.end; ++r)
              for (int64_t s = 0; s < across; ++s)
                rows[call.rows++] = {(ph.d.in_begin + d * ph.d.in_step + t * ph.d.tap_step) * g.src[2] +
                                         (ph.h.in_begin + y * ph.h.in_step + r * ph.h.tap_step) * g.src[3] +
                                         s * ph.w.tap_step * g.src[4],
                                     ((t * ph.h.taps + r) * ph.w.taps + s * x_axis.taps) * v.floats(g), on_image + s};
          for (int64_t l = 0; l < x_axis.parts; ++l) {
            const cut strips(x_axis.count(ph, l), j.row.mr);
            if (word[fetches] == fetch_lines && strips.tiles) ask_for_lines({y, y + int64_t(call.lines)}, strips.tiles);
            for (int64_t tile = 0; tile < strips.tiles; ++tile) {
              const int64_t x = l + strips.begin(tile) * x_axis.parts;
              call.m = size_t(strips.rows(tile));
              if (word[fetches] == fetch_pixels) {
                const bool more = tile + 1 < strips.tiles;
                const int64_t next = more ? strips.begin(tile + 1) : 0, below = more ? y : y + int64_t(call.lines);
                ask_for_pixels({below, std::max(below, std::min(all.end, below + int64_t(call.lines)))},
                               {next, next + strips.rows(more ? tile + 1 : 0)}, int64_t(call.m * call.lines));
              }
              for (int64_t s = 0; s < across; ++s)
                on_image[s] = inside(ph.w.in_begin + x * ph.w.in_step + s * ph.w.tap_step, x_axis.step,
                                     x_axis.inputs(int64_t(call.m)), g.in[2]);
              strip(d, y, x);
            }
          }
        }
      }
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_grouped, .about = "few channels a group, NHWC and blocked, pixels and groups in registers",
                .drives = kind::grouped_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_ISA, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict_one_pass, .least_cycles = least_by_pixels, .error_bound = chain_bound, .pack = pack,
                .run = run)
