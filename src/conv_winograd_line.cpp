// SPDX-License-Identifier: MIT
//
// Convolution of few channels, first layers above all, with Winograd's F(m, r) along x and sums along y: what is
// multiplied never leaves the registers.
//
//   item = image, band of output lines, block of strips                     one task of the parallel_for
//     for output line
//       for input line that is new: V = transformed pixels                  a ring of as many lines as the filter has
//       for strip of mr outputs: for panel of nr channels                   or panels outermost, where they fill L1
//         row.winograd_strip
//
// At stride 2 an NHWC line is half as many pixels of twice the channels; 7 taps are F(m, 4) of two interleaved images.
#include "conv_winograd.h"
#include "driver.h"
#include "epilogue.h"
#include "pixels.h"

namespace quern {
namespace {

enum word { bands, blocks, block_strips, written, panels_outermost };

constexpr int64_t most_terms = 32;

const winograd_driver::form* form_of(int64_t taps) {
  using winograd_driver::of;
  static constexpr const winograd_driver::form* forms[] = {&of<4, 3>::f, &of<4, 4>::f, &of<4, 5>::f};
  for (const auto* f : forms)
    if (f->r == taps) return f;
  return nullptr;
}

// Where things lie for a block of `strips`, in floats.
struct line_sizes {
  bool dense;            // channels of neighbouring pixels follow each other: a line is one plane
  int64_t stride, a, m;  // along x
  int64_t terms, planes, pixel, positions, matrix, line, source, lines;

  line_sizes(const geometry& g, const kernel& row, int64_t strips)
      : dense(g.src_block == 1 && (g.c == 1 || g.src[1] == 1) && g.src[4] == g.c),
        stride(g.stride[2]),
        a(row.tile + row.taps - 1),
        m(row.tile),
        terms(g.c * stride),
        planes(dense ? 1 : g.c),
        pixel(dense ? g.c : 1),
        positions(((strips * row.mr / m - 1) * m + 1) * stride * pixel),
        matrix(up(positions, 16) * 16 + 16),
        line(planes * a * matrix),
        source(up(matrix + (a - 1) * stride * pixel, 16) * 16),
        lines(g.filter[1]) {}
  int64_t bytes() const { return (lines * line + planes * source) * 4 + terms * 4 + lines * int64_t(sizeof(float*)); }
};

bool takes_channels(const int64_t* stride, int64_t block, int64_t channels, const kernel& row) {
  return channels <= 1 || (block == 1 ? stride[1] == 1 : block % row.vector == 0);
}

refusal refuse(const full_problem& p, const kernel& row) {
  const geometry& w = geometry_of(p);
  if (p.groups != 1) return {QUERN_REASON_SHAPE, "groups", p.groups, 1};
  if (w.filter[0] != 1) return {QUERN_REASON_SHAPE, "window.filter[0]", w.filter[0], 1};
  if (w.stride[2] > 2) return {QUERN_REASON_SHAPE, "window.stride[2]", w.stride[2], 2};
  if (up(w.filter[2], w.stride[2]) != row.taps)
    return {QUERN_REASON_SHAPE, "window.filter[2]", w.filter[2], w.stride[2] * row.taps};
  if (w.filter[1] > 16) return {QUERN_REASON_SHAPE, "window.filter[1]", w.filter[1], 16};
  if (w.dilation[1] != 1) return {QUERN_REASON_SHAPE, "window.dilation[1]", w.dilation[1], 1};
  if (w.dilation[2] != 1) return {QUERN_REASON_SHAPE, "window.dilation[2]", w.dilation[2], 1};
  // Eight points and fewer sums: more than four times the error of a chain of multiply-adds.
  const int64_t c = p.src.size[1], least = row.taps == 5 ? up(4, std::max<int64_t>(1, w.filter[1])) : 0;
  if (c < least) return {QUERN_REASON_SHAPE, "src.size[1]", c, least};
  if (c * w.stride[2] > most_terms) return {QUERN_REASON_SHAPE, "src.size[1]", c, most_terms / w.stride[2]};
  const geometry& g = geometry_of(p);
  if (!takes_channels(g.dst, g.dst_block, g.k, row))
    return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, QUERN_NHWC};
  if (p.epilogue.residual && !takes_channels(g.residual, g.residual_block, g.k, row))
    return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, QUERN_NHWC};
  return {};
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t threads) {
  const geometry& g = geometry_of(p);
  const int64_t strips = std::max<int64_t>(1, up(g.out[2], row.mr)), panels = up(g.k, row.nr);
  const int64_t most = std::max<int64_t>(1, int64_t(m.l2) / 2 / line_sizes(g, row, 1).bytes());
  blocking b = {};
  b.word[blocks] = up(strips, most);
  b.word[block_strips] = up(strips, b.word[blocks]);
  const line_sizes s(g, row, b.word[block_strips]);
  b.packed_bytes = uint64_t(panels * s.lines * s.terms * s.a * row.nr) * sizeof(float);
  b.workspace_bytes = uint64_t(up(s.bytes(), QUERN_ALIGN) * QUERN_ALIGN);
  b.word[panels_outermost] = b.packed_bytes > m.l1 * 3 / 4;
  const double out_lines = double(g.n * g.out[0] * g.out[1]), tiles = row.mr / row.tile;
  b.word[written] = writes_of(g, m);
  // A term of a point takes a load and half a cycle a tile; back again, half a cycle an operation and one a store.
  // Weights and transformed pixels come from L2 where L1 has no room for both, or a part of them where it nearly has,
  // mostly while others are multiplied.
  const double points = double(s.lines * s.a), terms = points * double(s.terms);
  const double touched = 4 * (terms * row.nr + points * double(row.mr * s.stride * s.pixel * s.planes));
  const double misses = std::clamp(touched / (0.75 * double(m.l1)) - 1, 0.0, 1.0);
  const double multiply = terms * (tiles + 0.5) / 2, refill = misses * touched / (m.l2_rate * m.cycle_ns);
  const double strip = multiply + double(row.mr) * 3.3 + std::max(0.0, refill - 0.6 * multiply);
  const double line = double(s.planes * s.matrix) / row.vector * 3.0 * double(s.a);
  b.cycles =
      pace(row, m) * out_lines *
      (double(strips * panels) * strip + double(std::min<int64_t>(g.stride[1], s.lines) * b.word[blocks]) * line);
  b.workers = useful_workers(m, b.cycles, threads);
  const int64_t images = std::max<int64_t>(1, g.n * g.out[0] * b.word[blocks]);
  b.word[bands] = b.workers > 1 ? std::clamp<int64_t>(up(2 * b.workers, images), 1, std::max<int64_t>(1, g.out[1])) : 1;
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const operand_bytes o(geometry_of(p), b.packed_bytes);
  return overlapped(row, m, b, o.cycles(m, o.weights + o.image, b.word[written] == streamed_writes));
}

double error_bound(const full_problem& p) {
  const geometry& g = geometry_of(p);
  const winograd_driver::form* f = form_of(up(g.filter[2], g.stride[2]));
  const double n = (double(g.c) * double(g.stride[2] * g.filter[1]) + 16) * 0x1p-24;
  return f && n < 0.5 ? f->growth * n / (1 - n) : std::numeric_limits<double>::infinity();
}

// [panel][line of the filter][term: channel, interleaved image][point][nr]
void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const line_sizes s(g, j.row, 1);
  const winograd_driver::form& f = *form_of(j.row.taps);
  const float* from = static_cast<const float*>(weights);
  const int64_t nr = j.row.nr;
  for (int64_t k = first; k < first + count; ++k) {
    float* to = reinterpret_cast<float*>(payload) + k / nr * s.lines * s.terms * s.a * nr;
    for (int64_t r = 0; r < s.lines; ++r)
      for (int64_t c = 0; c < g.c; ++c)
        for (int64_t part = 0; part < s.stride; ++part) {
          const float* w = from + (k - first) * g.weights[0] + c * g.weights[1] + r * g.weights[3];
          for (int64_t i = 0; i < s.a; ++i, to += nr) {
            double sum = 0;
            for (int64_t u = 0; u * s.stride + part < g.filter[2]; ++u)
              sum += f.matrices.g[i][u] * double(w[(u * s.stride + part) * g.weights[4]]);
            to[k % nr] = float(sum);
            if (k == g.k - 1) std::fill(to + k % nr + 1, to + nr, 0.0f);
          }
        }
  }
}

void run(const job& j, const execution& e) {
  const geometry& g = geometry_of(j.problem);
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const kernel& row = j.row;
  const int64_t* word = j.blocks.word;
  const line_sizes s(g, row, word[block_strips]);
  const phase ph = phase_of(g, 0);
  const int64_t panels = up(g.k, row.nr), panel = s.lines * s.terms * s.a * row.nr;
  const float* const src = static_cast<const float*>(e.args.src);
  for_each_item(j, e, g.n * g.out[0] * word[bands] * word[blocks], [&](int64_t item, char* workspace) {
    const int64_t block = item % word[blocks], band = item / word[blocks] % word[bands],
                  d = item / word[blocks] / word[bands] % g.out[0], n = item / word[blocks] / word[bands] / g.out[0];
    const range rows = part(g.out[1], band, word[bands]);
    const int64_t first = block * word[block_strips] * row.mr,
                  last = std::min(g.out[2], first + word[block_strips] * row.mr);
    float* const ring = reinterpret_cast<float*>(workspace);
    float* const source = ring + s.lines * s.line;
    const float** const lines = reinterpret_cast<const float**>(source + s.planes * s.source);
    int32_t* const terms = reinterpret_cast<int32_t*>(lines + s.lines);
    for (int64_t q = 0; q < s.terms; ++q)
      terms[q] = int32_t(s.dense ? q % s.stride * g.c + q / s.stride : q / s.stride * s.a * s.matrix + q % s.stride);

    // The block's pixels on the image; around them zeros, which no line overwrites.
    const int64_t x0 = ph.w.in_begin + first * ph.w.in_step, wide = s.source / s.pixel;
    const range on = {std::clamp<int64_t>(x0, 0, g.in[2]), std::clamp<int64_t>(x0 + wide, 0, g.in[2])};
    const int64_t z = ph.d.in_begin + d * ph.d.in_step;
    const bool inside = z >= 0 && z < g.in[0];
    std::fill(source, source + s.planes * s.source, 0.0f);
    const auto transform = [&](int64_t y) {
      const float* from = src + n * g.src[0] + z * g.src[2] + y * g.src[3] + on.begin * g.src[4];
      float* to = source + (on.begin - x0) * s.pixel;
      if (s.dense)
        std::copy(from, from + on.count() * g.c, to);
      else
        gather(row,
               {.at = from, .count = on.count(), .pixel = g.src[4], .channel_stride = g.src[1], .block = g.src_block},
               {0, g.c}, to, 1, s.source);
      for (int64_t plane = 0; plane < s.planes; ++plane)
        row.winograd_line({size_t(s.positions), source + plane * s.source, size_t(s.stride * s.pixel),
                           ring + y % s.lines * s.line + plane * s.a * s.matrix, size_t(s.matrix)});
    };

    winograd_strip_f32 call = {};
    call.terms = size_t(s.terms), call.term = terms;
    call.line = lines, call.matrix = size_t(s.matrix), call.tile = size_t(s.m * s.stride * s.pixel);
    call.out.epilogue = &epilogue;
    call.out.ldc = size_t(g.dst[4]), call.out.ldr = size_t(g.residual[4]);
    call.out.stream = word[written] == streamed_writes;
    int64_t next = 0;  // line to transform
    for (int64_t y = rows.begin; y < rows.end; ++y) {
      const range taps = inside ? ph.h.taps_at(y) : range{0, 0};
      const int64_t top = ph.h.in_begin + y * ph.h.in_step;
      for (next = std::max(next, top + taps.begin); on.count() > 0 && next < top + taps.end; ++next) transform(next);
      call.lines = on.count() > 0 ? size_t(taps.count()) : 0;
      for (int64_t r = taps.begin; r < taps.end; ++r) lines[r - taps.begin] = ring + (top + r) % s.lines * s.line;
      const auto strip = [&](int64_t x, int64_t k) {
        const auto place = [&](const int64_t* stride, int64_t channel) {
          return n * stride[0] + channel + d * stride[2] + y * stride[3] + x * stride[4];
        };
        call.first = size_t((x - first) * s.stride * s.pixel);
        call.pixels = size_t(std::min<int64_t>(row.mr, last - x));
        call.n = size_t(std::min<int64_t>(row.nr, g.k - k * row.nr));
        call.weights = reinterpret_cast<const float*>(e.packed) + k * panel + taps.begin * s.terms * s.a * row.nr;
        call.out.channel = size_t(k * row.nr);
        call.out.c = static_cast<float*>(e.args.dst) + place(g.dst, g.dst_channel(k * row.nr));
        if (epilogue.residual)
          call.out.residual =
              static_cast<const float*>(e.args.residual) + place(g.residual, g.residual_channel(k * row.nr));
        if (word[written] == claimed_writes) claim(call.out.c, call.pixels, call.out.ldc);
        row.winograd_strip(call);
      };
      if (word[panels_outermost])
        for (int64_t k = 0; k < panels; ++k)
          for (int64_t x = first; x < last; x += row.mr) strip(x, k);
      else
        for (int64_t x = first; x < last; x += row.mr)
          for (int64_t k = 0; k < panels; ++k) strip(x, k);
    }
    if (word[written] == streamed_writes) finish_streams();
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_winograd_line, .about = "few channels: Winograd along x, summed along y in registers",
                .drives = kind::winograd_line_f32, .op = {QUERN_CONV}, .accuracy = QUERN_ACCURACY_F32_FAST,
                .repeat = QUERN_REPEAT_ISA, .pads = true, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict, .error_bound = error_bound, .pack = pack, .run = run)
