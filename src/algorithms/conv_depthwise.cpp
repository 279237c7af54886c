// SPDX-License-Identifier: MIT
//
// Depthwise convolution, forward and transposed, any number of outputs a channel, where channels lie side by side:
// NHWC, and blocks of channels that are whole vectors.  Operands of other layouts are turned on their way.
//
//   item = image, column of pixels, band of lines, block of channels   one task of the parallel_for
//     row.copy                                                           of src and residual what does not lie so
//     for phase, class of lines, class of pixels
//       for output plane
//         row.depthwise                                                  vector by vector, each over all lines
//     row.copy                                                           dst, likewise
//
// conv_depthwise_cost.cpp says which order of lines and pixels is taken, and why.
#include "conv_depthwise.h"

#include "ahead.h"
#include "depthwise_classes.h"
#include "strips.h"
#include "turned.h"
#include "weights.h"

namespace quern {
namespace {

using namespace depthwise_driver;

refusal refuse_turned(const full_problem& p, const turned& t) {
  const geometry& g = geometry_of(p);
  if (t.dst && g.dst_block == 1 && g.dst[4] != 1) return {QUERN_REASON_LAYOUT, "dst.stride[4]", g.dst[4], 1};
  constexpr int64_t most = int64_t{1} << 26;
  const int64_t lines = lines_together(g);
  const double size = t.size(g, lines_under(g, lines), lines);
  if (size <= double(most)) return {};
  return {QUERN_REASON_SHAPE, "(filter rows * row of src + row of dst) * 16", int64_t(std::min(size, 1e18)), most};
}

// A row's step along an axis, after dilation has made classes.
refusal refuse_step(const geometry& g, const kernel& row, int axis) {
  const int64_t step = g.stride[axis] / std::gcd(g.stride[axis], g.dilation[axis]);
  return step == row.step ? refusal{} : g.refuse(window_stride, axis, g.stride[axis], row.step * g.stride[axis] / step);
}

// Of rows that take whole vectors of channels side by side.
refusal refuse_channels(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  for (int axis : {0, 1})
    if (const int64_t taps = axis ? row.taps : 1; g.filter[axis] != taps)
      return g.refuse(window_filter, axis, g.filter[axis], taps);
  if (const refusal r = refuse_step(g, row, 1)) return r;
  if (g.k > 1) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", g.k, 1};
  if (g.groups % row.vector) return {QUERN_REASON_SHAPE, "groups", g.groups, up(g.groups, row.vector) * row.vector};
  if (g.src_block > 1) return {QUERN_REASON_LAYOUT, "src.layout", p.src.layout, QUERN_NHWC};
  if (g.dst_block > 1) return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, QUERN_NHWC};
  if (g.src[1] != 1) return {QUERN_REASON_LAYOUT, "src.stride[1]", g.src[1], 1};
  if (g.dst[1] != 1) return {QUERN_REASON_LAYOUT, "dst.stride[1]", g.dst[1], 1};
  if (!p.epilogue.residual) return {};
  if (g.residual_block > 1) return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, QUERN_NHWC};
  if (g.residual[1] != 1) return {QUERN_REASON_LAYOUT, "residual.stride[1]", g.residual[1], 1};
  return {};
}

refusal refuse(const full_problem& p, const kernel& row) {
  if (const int64_t c = p.src.size[1] / p.groups; c != 1) return {QUERN_REASON_SHAPE, "src.size[1] / groups", c, 1};
  const geometry& g = geometry_of(p);
  if (g.filter[0] > most_planes) return g.refuse(window_filter, 0, g.filter[0], most_planes);
  if (row.taps) {
    if (g.filter[2] != row.taps) return g.refuse(window_filter, 2, g.filter[2], row.taps);
    if (g.transposed && g.stride[2] != 1) return {QUERN_REASON_SHAPE, "op", p.op, QUERN_CONV};
    if (const refusal r = refuse_step(g, row, 2)) return r;
  }
  if (row.channels_last)
    if (const refusal r = refuse_channels(p, row)) return r;
  const turned t = turned_of(p, g, row);
  if (const refusal r = g.refuse_phases(); r || !t.any()) return r;
  return refuse_turned(p, t);
}

// [phase][vector][tap][channel of the vector], the last one filled up with zeros.
void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const int64_t vector = j.row.vector, channels = g.groups * g.k, whole = up(channels, vector) * vector;
  float* to = reinterpret_cast<float*>(payload);
  pack_weights(g, first, count, static_cast<const float*>(weights), [&](const weight_run<float>& w) {
    const int64_t channel = w.group * g.k + w.k, lane = channel % vector;
    float* const row = to + w.before * whole + (channel / vector * w.ph.taps() + w.tap) * vector;
    put_lane(row, lane, channel == channels - 1 ? vector : lane + 1, w[0]);
  });
}

// All channels of so many pixels at a time.
void run_parts(const kernel& row, const depthwise_f32& call, int64_t width) {
  const int64_t step = call.x.step, pixels = call.x.count, parts = parts_of(pixels, width);
  if (parts == 1) return row.depthwise(call);
  depthwise_f32 one = call;
  for (int64_t i = 0; i < parts; ++i) {
    one.x.count = part_of(pixels, width, i).count();
    row.depthwise(one);
    one.x.begin -= width * step, one.x.end -= width * step;
    one.origin += width * step * one.x.src;
    one.out.c += width * one.out.ldc;
    if (one.out.residual) one.out.residual += width * one.out.ldr;
    next_share(one.ahead);
  }
}

// With each part goes its share of what the next band, of the lines `next`, reads beyond this one, and of what it
// writes.
void set_ahead(const kernel& row, depthwise_f32& call, range next, int64_t width) {
  const int64_t parts = parts_of(call.x.count, width), lines = call.y.count, pixels = call.x.count;
  const int64_t vectors = up(int64_t(call.n), row.vector) * pixels * lines;
  const int64_t seen = (lines - 1) * call.y.step + int64_t(call.y.taps);
  const int64_t first = std::max<int64_t>(0, call.x.begin);
  const int64_t last = std::min<int64_t>((pixels - 1) * call.x.step + int64_t(call.x.taps), call.x.end);
  call.ahead[0] = share_of(call.src + (call.origin + seen * call.y.src + first * call.x.src),
                           std::min<int64_t>(next.count() * call.y.step, call.y.end - seen),
                           (last - first) * call.x.src, call.y.src, parts, vectors);
  if (!call.out.stream)
    call.ahead[1] = share_of(call.out.c + lines * int64_t(call.y.dst), next.count(), pixels * int64_t(call.out.ldc),
                             int64_t(call.y.dst), parts, vectors);
}

// The lines of outputs that a band has, those that they read, and those of a class of a phase.
range lines_of_band(const geometry& g, int64_t band, int64_t bands) {
  const int64_t together = lines_together(g);
  const range groups = part(up(g.out[1], together), band, bands);
  return {groups.begin * together, std::min(g.out[1], groups.end * together)};
}
range lines_read(const geometry& g, range lines) {
  const int64_t reach = (g.filter[1] - 1) * g.dilation[1], last = lines.end - 1;
  range all = {lines.begin * g.stride[1] - g.pad[1], last * g.stride[1] - g.pad[1] + reach + 1};
  if (g.transposed)
    all = {up(std::max<int64_t>(0, lines.begin + g.pad[1] - reach), g.stride[1]), (last + g.pad[1]) / g.stride[1] + 1};
  all = {std::clamp<int64_t>(all.begin, 0, g.in[1]), std::clamp<int64_t>(all.end, 0, g.in[1])};
  return lines.count() > 0 && all.count() > 0 ? all : range{0, 0};
}
range lines_of_class(const axis& h, const axis_class& y, range lines) {
  const auto before = [&](int64_t line) {
    const int64_t of_phase = std::min(h.out_count, up(std::max<int64_t>(0, line - h.out_begin), h.out_step));
    return up(std::max<int64_t>(0, of_phase - y.first), y.classes);
  };
  return {before(lines.begin), before(lines.end)};
}

// Calls visit(f, phase f, class of its lines, class of its pixels) for all of them.
template <class Visit>
void each_class(const geometry& g, const Visit& visit) {
  for (int64_t f = 0; f < g.phases(); ++f) {
    const phase ph = phase_of(g, f);
    const int64_t high = axis_class::count_of(ph.h), wide = axis_class::count_of(ph.w);
    for (int64_t y = 0; y < high; ++y)
      for (int64_t x = 0; x < wide; ++x) visit(f, ph, axis_class(ph.h, y, high), axis_class(ph.w, x, wide));
  }
}

void run(const job& j, const execution& e) {
  const geometry& real = geometry_of(j.problem);
  const bool by_crowds = j.blocks.word[flags] & crowded;
  const turned t = by_crowds ? turned{true, false, false, crowd} : turned_of(j.problem, real, j.row);
  geometry g = real;
  if (t.src) set_turned(g.src, g.src_block, g.in, j.blocks.word[src_lines], t.together);
  if (t.dst) set_turned(g.dst, g.dst_block, g.out, j.blocks.word[dst_lines]);
  if (t.residual) set_turned(g.residual, g.residual_block, g.out, j.blocks.word[dst_lines]);
  const epilogue_f32 epilogue = epilogue_of(j.problem, e.args);
  const int64_t* word = j.blocks.word;
  const int64_t vector = j.row.vector, channels = g.groups * g.k, whole = up(channels, vector) * vector;
  const int64_t columns = parts_of(g.out[2], word[column]), items = g.n * columns * word[bands] * word[blocks];
  // Blocks of several vectors are taken one by one: their vectors are not evenly apart.
  const int64_t block = side_by_side(g, vector), most = block ? block : by_crowds ? crowd : channels;
  for_each_item(j, e, items, [&](int64_t item, char* workspace) {
    const int64_t part_of_channels = digit(item, word[blocks]), band = digit(item, word[bands]),
                  part_of_lines = digit(item, columns), n = item;
    const int64_t first = part_of_channels * word[block_channels];
    const int64_t last = std::min(channels, first + word[block_channels]);
    // Tensors, or a band of them from these elements on.
    const float *src = static_cast<const float*>(e.args.src), *residual = static_cast<const float*>(e.args.residual);
    float* dst = static_cast<float*>(e.args.dst);
    int64_t src_begin = 0, dst_begin = 0, residual_begin = 0;
    const range out_lines = lines_of_band(g, band, word[bands]);
    float* turned_src = nullptr;
    const auto turn_src = [&](range of) {
      const range in_lines = lines_read(g, out_lines);
      turn_in(j.row, {real.src, real.src_block, g.in, t.together},
              static_cast<const float*>(e.args.src) + n * real.src[0], of, g.k, in_lines, word[src_lines], turned_src);
      src = turned_src, src_begin = of.begin + in_lines.begin * g.src[3];
    };
    if (t.any()) {
      float* free = reinterpret_cast<float*>(workspace);
      const auto take = [&](int64_t lines, const int64_t(&size)[3], int64_t together = turned_channels) {
        return std::exchange(free, free + int64_t(turned_size(size, lines, together)));
      };
      if (t.src) turned_src = take(word[src_lines], g.in, t.together);
      if (t.src && !by_crowds) turn_src({first, last});
      if (t.residual) {
        float* const to = take(word[dst_lines], g.out);
        turn_in(j.row, {real.residual, real.residual_block, g.out}, residual + n * real.residual[0], {first, last}, 1,
                out_lines, word[dst_lines], to);
        residual = to, residual_begin = first + out_lines.begin * g.residual[3];
      }
      if (t.dst) dst = take(word[dst_lines], g.out), dst_begin = first + out_lines.begin * g.dst[3];
    }
    gemm_tap planes[most_planes];
    depthwise_f32 call = {};
    call.plane = planes;
    call.src_vector = g.src_block == 1 || g.src_block > vector ? vector : g.src[1];
    call.dst_vector = g.dst_block == 1 || g.dst_block > vector ? vector : g.dst[1];
    call.residual_vector = g.residual_block == 1 || g.residual_block > vector ? vector : g.residual[1];
    call.multiplier = t.src ? 1 : g.k;
    call.out.epilogue = &epilogue, call.out.stream = word[flags] & streams, call.fetches = word[flags] & line_ahead;
    call.bounded_below = epilogue.lower > -std::numeric_limits<float>::infinity();
    call.bounded_above = epilogue.upper < std::numeric_limits<float>::infinity();
    each_class(g, [&](int64_t f, const phase& ph, const axis_class& y, const axis_class& x) {
      const range within = lines_of_class(ph.h, y, out_lines);
      const range across = part_of(x.count, word[column], part_of_lines);
      const float* weights = reinterpret_cast<const float*>(e.packed) + taps_before(g, f) * whole;
      call.weights_vector = ph.taps() * vector;
      call.x.taps = ph.w.taps, call.y.taps = ph.h.taps;
      call.x.count = across.count(), call.x.step = x.step;
      call.x.src = x.apart * g.src[4], call.y.src = y.apart * g.src[3];
      call.y.step = y.step;
      call.out.ldc = ph.w.out_step * x.classes * g.dst[4];
      call.out.ldr = ph.w.out_step * x.classes * g.residual[4];
      call.y.dst = ph.h.out_step * y.classes * g.dst[3];
      call.y.residual = ph.h.out_step * y.classes * g.residual[3];
      const int64_t line = within.begin * y.step, pixel = across.begin * x.step;
      call.y.count = within.count();
      call.y.begin = y.begin - line, call.y.end = y.end - line;
      call.x.begin = x.begin - pixel, call.x.end = x.end - pixel;
      call.origin = (y.base + line * y.apart) * g.src[3] + (x.base + pixel * x.apart) * g.src[4];
      for (int64_t d = 0; d < ph.d.out_count; ++d) {
        call.planes = planes_of(g, ph, d, planes);
        const auto place = [&](const int64_t* stride) {
          return n * stride[0] + (ph.d.out_begin + d * ph.d.out_step) * stride[2] +
                 (ph.h.out_begin + (y.first + within.begin * y.classes) * ph.h.out_step) * stride[3] +
                 (ph.w.out_begin + (x.first + across.begin * x.classes) * ph.w.out_step) * stride[4];
        };
        for (int64_t channel = first; channel < last; channel += most) {
          call.n = std::min(most, last - channel);
          if (by_crowds && (channel - first) % crowd == 0) turn_src({channel, std::min(last, channel + crowd)});
          call.weights = weights + channel / vector * ph.taps() * vector;
          call.input = call.multiplier > 1 ? 0 : channel;
          call.src = src + (n * g.src[0] + g.src_channel(call.input) - src_begin);
          call.out.c = dst + (place(g.dst) + g.dst_channel(channel) - dst_begin);
          call.out.channel = channel;
          if (epilogue.residual)
            call.out.residual = residual + (place(g.residual) + g.residual_channel(channel) - residual_begin);
          if ((word[flags] & bands_ahead) && band + 1 < word[bands])
            set_ahead(j.row, call, part(y.count, band + 1, word[bands]), word[width]);
          run_parts(j.row, call, word[width]);
        }
      }
    });
    if (t.dst)
      turn_out(j.row, {real.dst, real.dst_block, g.out}, static_cast<float*>(e.args.dst) + n * real.dst[0],
               {first, last}, out_lines, word[dst_lines], dst);
    if (word[flags] & streams) finish_streams();
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_depthwise,
                .about = "one filter a channel, channels across the vector; NHWC and blocks, others turned",
                .drives = kind::depthwise_f32, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED},
                .accuracy = QUERN_ACCURACY_F32, .repeat = QUERN_REPEAT_ISA, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .least_cycles = least_by_pixels,
                .error_bound = chain_bound, .pack = pack, .run = run)
