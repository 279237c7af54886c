// SPDX-License-Identifier: MIT
//
// Grouped convolution with few channels a group, forward and transposed, for NHWC and blocked layouts: one pass
// over the image, reading it where it lies.
//
//   item = image, phase, band of lines, run of vectors of output channels    one task of the parallel_for
//     for lines that have the same rows of the filter, a few at a time
//       for strip of mr pixels
//         for vector of channels                                             of several groups
//           row.grouped
//
// A kernel made for filters of some width takes a row of it at a time, others take a tap at a time.  Dilated
// filters of that width see every dilation-th pixel: strips of such pixels, interleaved.
#include "driver.h"
#include "weights.h"

namespace quern {
namespace {

enum word { bands, block_vectors, blocks };

constexpr int64_t stack_rows = 64, stack_taps = 64;  // what is longer lies in the workspace

int64_t vectors_of(const geometry& g, const kernel& row) { return up(g.groups * g.c, row.vector); }

refusal refuse(const quern_problem& p, const kernel& row) {
  if (p.src.type != QUERN_F32) return {QUERN_REASON_TYPE, "src.type", p.src.type, QUERN_F32};
  // First what rules out most problems, before anything is computed of them.
  if (p.groups < 2) return {QUERN_REASON_SHAPE, "groups", p.groups, 2};
  if (const int64_t c = p.src.size[1] / p.groups; c != row.group)
    return {QUERN_REASON_SHAPE, "src.size[1] / groups", c, row.group};
  if (const int64_t k = p.dst.size[1] / p.groups; k != row.group)
    return {QUERN_REASON_SHAPE, "dst.size[1] / groups", k, row.group};
  const geometry g = geometry_of(p);
  if (g.src_block == 1 && g.src[1] != 1) return {QUERN_REASON_LAYOUT, "src.stride[1]", g.src[1], 1};
  if (g.dst_block == 1 && g.dst[1] != 1) return {QUERN_REASON_LAYOUT, "dst.stride[1]", g.dst[1], 1};
  if (p.epilogue.residual && g.residual_block == 1 && g.residual[1] != 1)
    return {QUERN_REASON_LAYOUT, "residual.stride[1]", g.residual[1], 1};
  // Halves of a vector lie in one piece each.
  const auto splits = [&](int64_t block) { return block != 1 && block < row.vector / 2; };
  if (splits(g.src_block)) return {QUERN_REASON_LAYOUT, "src.layout", p.src.layout, QUERN_NHWC};
  if (splits(g.dst_block)) return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, QUERN_NHWC};
  if (p.epilogue.residual && splits(g.residual_block))
    return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, QUERN_NHWC};
  if (row.taps) {
    if (g.transposed) return {QUERN_REASON_SHAPE, "op", p.op, QUERN_CONV};
    if (g.filter[2] != row.taps) return {QUERN_REASON_SHAPE, "window.filter[2]", g.filter[2], row.taps};
    // Strides that divide the dilation are steps of one among the pixels that a filter sees.
    if (g.out[2] > 1 && g.dilation[2] % g.stride[2] != 0)
      return {QUERN_REASON_SHAPE, "window.stride[2]", g.stride[2], row.step};
  }
  return g.refuse_phases();
}

// A tap of m pixels on some lines takes half a cycle a multiply-add or one to spread a channel; accumulators and
// their memory come on top.
double compute_cycles(const geometry& g, const kernel& row) {
  const double lines = double(g.out[0] * g.out[1]), pixels = double(up(std::max<int64_t>(g.out[2], 1), row.mr));
  const double m = double(g.out[2]) / pixels;
  const double rows = double(g.filter_size()) / double(g.transposed ? g.stride[0] * g.stride[1] * g.stride[2] : 1);
  const double spread = row.taps ? rows / row.taps * (m + row.taps - 1) : rows * m;
  const double cycles = std::max(rows * m * 0.58, spread) * double(g.c) + 3 * m + 25.0 / row.lines;
  return double(g.n) * lines * pixels * double(vectors_of(g, row)) * cycles;
}

int64_t items_of(const geometry& g) { return std::max<int64_t>(1, g.n * g.phases()); }

blocking choose_blocks(const quern_problem& p, const kernel& row, const machine&, uint32_t threads) {
  const geometry g = geometry_of(p);
  blocking b = {};
  const int64_t count = std::max<int64_t>(1, vectors_of(g, row));
  b.packed_bytes = uint64_t(g.taps() * vectors_of(g, row) * g.c * row.vector) * sizeof(float);
  if (g.filter_size() > stack_rows) {
    const int64_t bytes = g.filter_size() * int64_t(sizeof(grouped_row)) + g.filter[2] * int64_t(sizeof(uint32_t));
    b.workspace_bytes = uint64_t(up(bytes, QUERN_ALIGN) * QUERN_ALIGN);
  }
  b.cycles = compute_cycles(g, row);
  b.workers = useful_workers(b.cycles / clock_ghz, threads);
  const int64_t lines = std::max<int64_t>(1, phase_of(g, 0).h.out_count);
  const int64_t wanted = b.workers > 1 ? 4 * b.workers : 1;
  b.word[bands] = std::min(up(lines, row.lines), up(wanted, items_of(g)));
  const int64_t parts = std::min(count, up(wanted, items_of(g) * b.word[bands]));
  b.word[block_vectors] = up(count, parts);
  b.word[blocks] = up(count, b.word[block_vectors]);
  return b;
}

cost predict(const quern_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry g = geometry_of(p);
  const double bytes =
      4.0 * double(g.n * g.groups * g.c) * double(g.in[0] * g.in[1] * g.in[2] + g.out[0] * g.out[1] * g.out[2]);
  return overlapped(row, b, bytes / (bytes > double(m.l2) ? 12 : 32));
}

// [phase][vector][taps of a kernel's row][c / 4][tap in it][c % 4][output]
void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry g = geometry_of(j.problem);
  const int64_t width = j.row.vector, taps = std::max<int64_t>(1, j.row.taps), vectors = vectors_of(g, j.row);
  float* to = reinterpret_cast<float*>(payload);
  pack_weights(
      g, first, count, static_cast<const float*>(weights),
      [&](int64_t group, int64_t k, int64_t, const phase& ph, int64_t before, int64_t tap, int64_t c, float w) {
        const int64_t channel = group * g.k + k, vector = channel / width, lane = channel % width;
        float* at = to + (before * vectors + vector * ph.taps() + tap / taps * taps) * g.c * width +
                    ((c / 4 * taps + tap % taps) * 4 + c % 4) * width;
        at[lane] = w;
        if (channel + 1 == g.groups * g.k) std::fill(at + lane + 1, at + width, 0.0f);
      });
}

// Outputs of a line that a kernel sees as neighbours.
struct interleaved {
  int64_t parts, step, taps;
  interleaved(const phase& ph, const kernel& row)
      : parts(row.taps && ph.w.out_count > 1 ? ph.w.tap_step / ph.w.in_step : 1),
        step(row.taps ? ph.w.tap_step : ph.w.in_step),
        taps(std::max<int64_t>(1, row.taps)) {}
  int64_t count(const phase& ph, int64_t i) const { return i < ph.w.out_count ? up(ph.w.out_count - i, parts) : 0; }
};

// Which inputs at `first` + i * step, i < count, lie on an axis of `size`.
uint32_t inside(int64_t first, int64_t step, int64_t count, int64_t size) {
  const int64_t lo = first >= 0 ? 0 : std::min(count, up(-first, step));
  const int64_t hi = first >= size ? 0 : std::min(count, up(size - first, step));
  return lo < hi ? ((uint32_t{1} << (hi - lo)) - 1) << lo : 0;
}

void run(const job& j, const execution& e) {
  const geometry g = geometry_of(j.problem);
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t* word = j.blocks.word;
  const int64_t vectors = vectors_of(g, j.row), width = j.row.vector, half = width / 2;
  for_each_item(j, e, g.n * g.phases() * word[bands] * word[blocks], [&](int64_t item, char* workspace) {
    const int64_t block = item % word[blocks], band = item / word[blocks] % word[bands];
    const int64_t f = item / word[blocks] / word[bands] % g.phases(),
                  n = item / word[blocks] / word[bands] / g.phases();
    const phase ph = phase_of(g, f);
    const interleaved x_axis(ph, j.row);
    const int64_t before = taps_before(g, f);
    const range all = part(ph.h.out_count, band, word[bands]);
    const int64_t last_vector = std::min(vectors, (block + 1) * word[block_vectors]);

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
    call.src_pixel = x_axis.step * g.src[4];
    call.src_line = ph.h.in_step * g.src[3];
    call.out.ldc = size_t(x_axis.parts * ph.w.out_step * g.dst[4]);
    call.out.ldr = size_t(x_axis.parts * ph.w.out_step * g.residual[4]);
    call.out.epilogue = &epilogue;
    call.dst_line = ph.h.out_step * g.dst[3];
    call.residual_line = ph.h.out_step * g.residual[3];

    const auto strip = [&](int64_t d, int64_t y, int64_t x) {  // of the first output
      const int64_t source = n * g.src[0] + (ph.w.in_begin + x * ph.w.in_step) * g.src[4];
      const auto place = [&](const int64_t* stride) {
        return n * stride[0] + (ph.d.out_begin + d * ph.d.out_step) * stride[2] +
               (ph.h.out_begin + y * ph.h.out_step) * stride[3] + (ph.w.out_begin + x * ph.w.out_step) * stride[4];
      };
      for (int64_t i = block * word[block_vectors]; i < last_vector; ++i) {
        const int64_t channel = i * width;
        call.n = size_t(std::min(width, g.groups * g.c - channel));
        // Where there is no second half, its place may lie beyond the tensor.
        const bool second = int64_t(call.n) > half;
        call.src = static_cast<const float*>(e.args.src) + source + g.src_channel(channel);
        call.src_half = second ? g.src_channel(channel + half) - g.src_channel(channel) : half;
        call.weights = reinterpret_cast<const float*>(e.packed) + (before * vectors + i * ph.taps()) * g.c * width;
        call.out.channel = size_t(channel);
        call.out.c = static_cast<float*>(e.args.dst) + place(g.dst) + g.dst_channel(channel);
        call.dst_half = second ? g.dst_channel(channel + half) - g.dst_channel(channel) : half;
        if (epilogue.residual) {
          call.out.residual =
              static_cast<const float*>(e.args.residual) + place(g.residual) + g.residual_channel(channel);
          call.residual_half = second ? g.residual_channel(channel + half) - g.residual_channel(channel) : half;
        }
        j.row.grouped(call);
      }
    };

    for (int64_t d = 0; d < ph.d.out_count; ++d)
      for (range same = {all.begin, all.begin}; same.begin < all.end; same.begin = same.end) {
        same = ph.h.span(same.begin, all.end);
        const range td = ph.d.taps_at(d), th = ph.h.taps_at(same.begin);
        for (int64_t y = same.begin; y < same.end; y += int64_t(call.lines)) {
          call.lines = size_t(std::min<int64_t>(j.row.lines, same.end - y));
          call.rows = 0;
          for (int64_t t = td.begin; t < td.end; ++t)
            for (int64_t r = th.begin; r < th.end; ++r)
              for (int64_t s = 0; s < across; ++s)
                rows[call.rows++] = {(ph.d.in_begin + d * ph.d.in_step + t * ph.d.tap_step) * g.src[2] +
                                         (ph.h.in_begin + y * ph.h.in_step + r * ph.h.tap_step) * g.src[3] +
                                         s * ph.w.tap_step * g.src[4],
                                     ((t * ph.h.taps + r) * ph.w.taps + s * x_axis.taps) * g.c * width, on_image + s};
          for (int64_t i = 0; i < x_axis.parts; ++i) {
            const cut strips(x_axis.count(ph, i), j.row.mr);
            for (int64_t tile = 0; tile < strips.tiles; ++tile) {
              const int64_t x = i + strips.begin(tile) * x_axis.parts;
              call.m = size_t(strips.rows(tile));
              for (int64_t s = 0; s < across; ++s)
                on_image[s] = inside(ph.w.in_begin + x * ph.w.in_step + s * ph.w.tap_step, x_axis.step,
                                     int64_t(call.m) + x_axis.taps - 1, g.in[2]);
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
                .repeat = QUERN_REPEAT_ISA, .refuse = refuse, .choose_blocks = choose_blocks, .predict = predict,
                .error_bound = chain_bound, .pack = pack, .run = run)
