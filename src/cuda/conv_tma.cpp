// SPDX-License-Identifier: MIT
//
// Convolution, forward and transposed, and matrix product as implicit GEMM on capability 9.0: the copy engine finds
// the pixels of a window itself, tensor cores multiply; one launch a phase (geometry.h).  An image that the engine
// cannot read, channels first or strided, is first copied into the workspace, channels last.
//
//   multiprocessor: tile of pixels by channels, and the next one
//     for taps r s, for 128 bytes of input channels
//       engine: pixels and weights into shared memory, stages ahead
//       row's kernel                                               sums in registers, then the epilogue
#include "cuda/conv_tma.h"

#include <math.h>

#include "cuda/drive.h"
#include "cuda/pixels_last.h"
#include "cuda/tma_f16x3.h"
#include "cuda/tma_halo.h"
#include "problem.h"

namespace quern::tma_driver {
namespace {

constexpr int64_t most_launches = 64;

// The engine's limits (cuTensorMapEncodeIm2col): where windows begin and end beside the image, as far as a tap
// reaches, and the distance of windows.
constexpr int64_t most_beside = 127, most_reach = 255, most_step = 8;

refusal refuse_axis(const geometry& g, int i, const axis& a) {
  static constexpr const char* behind[] = {"inputs before or behind the last window along d",
                                           "inputs before or behind the last window along h",
                                           "inputs before or behind the last window along w"};
  static constexpr const char* reach[] = {"reach of the filter along d", "reach of the filter along h",
                                          "reach of the filter along w"};
  const int64_t first = a.in_begin, last = first + (a.out_count - 1) * a.in_step - (a.in_size - 1);
  if (first < -most_beside) return g.refuse(window_pad_begin, i, -first, most_beside);
  if (first > most_beside) return g.refuse(window_pad_begin, i, first, most_beside);
  if (last < -most_beside || last > most_beside) return g.refuse(behind, i, last, most_beside);
  if (a.in_step > most_step) return g.refuse(window_stride, i, a.in_step, most_step);
  if ((a.taps - 1) * a.tap_step > most_reach) return g.refuse(reach, i, (a.taps - 1) * a.tap_step, most_reach);
  return {};
}

// Along w: the first pixels of windows; where taps share a stage, those up to the end of the last window too.
axis line_of(const phase& ph, const kernel& row) {
  axis w = ph.w;
  if (row.taps) w.out_count += row.taps - 1;
  return w;
}

// How the outputs of an image are cut into tiles of a kernel of tma_halo.h.
struct halo_cut {
  int64_t rows, columns, lines, pitch;  // as of halo_conv; no rows: nothing fits
  int64_t down, across;                 // tiles
};

// Boxes have 256 pixels a side at most.  As few waves of tiles as there can be, and of those the fewest tiles.
halo_cut cut_of(const phase& ph, const kernel& row, int64_t images, int64_t multiprocessors) {
  const int64_t more_h = (ph.h.taps - 1) * ph.h.tap_step, more_w = (ph.w.taps - 1) * ph.w.tap_step;
  const int64_t h = ph.h.out_count, w = ph.w.out_count;
  halo_cut best = {};
  int64_t least = INT64_MAX, least_waves = INT64_MAX;
  for (int64_t columns = std::min<int64_t>(w, row.mr); columns > 0; --columns) {
    halo_cut c = {};
    c.across = up(w, columns), c.columns = columns = up(w, c.across), c.pitch = columns + more_w;
    c.rows = std::min({(row.mr - columns) / c.pitch + 1, halo_room(row.mr) / c.pitch - more_h, 256 - more_h, h});
    if (c.pitch > 256 || c.rows <= 0) continue;
    c.down = up(h, c.rows), c.rows = up(h, c.down), c.lines = c.rows + more_h;
    const int64_t tiles = images * c.down * c.across, waves = up(tiles, multiprocessors);
    if (waves < least_waves || (waves == least_waves && tiles < least)) best = c, least = tiles, least_waves = waves;
  }
  return best;
}

// Whether the engine can read src where it lies.
bool readable(const geometry& g, quern_type type) {
  const auto in_rows = [&](int64_t size, int64_t stride) {
    return size == 1 || (stride % aligned_of(type) == 0 && stride > 0 && stride < int64_t{1} << 38);
  };
  return g.src_block == 1 && g.c * g.groups % aligned_of(type) == 0 && g.src[1] == 1 && in_rows(g.n, g.src[0]) &&
         in_rows(g.in[1], g.src[3]) && in_rows(g.in[2], g.src[4]);
}

}  // namespace

view view_of(const geometry& image, quern_type type) {
  const int64_t align = aligned_of(type);
  view v = {};
  geometry& g = v.g;
  g = image;
  v.copied = !readable(g, type);
  v.pixel = up(g.c * g.groups, align) * align, v.columns = g.in[2];
  if (g.transposed || g.groups != 1 || g.c == 0 || g.c > align || g.filter[2] == 1 || g.filter[2] > 64 ||
      g.dilation[2] != 1 || g.pad[2] > most_beside || g.out[2] == 0)
    return v;
  v.copied = true;
  v.folded = g.filter[2], v.before = g.pad[2];
  const int64_t first_pixels = (g.out[2] - 1) * g.stride[2] + 1;
  v.columns = first_pixels + g.filter[2] - 1;
  g.in[2] = first_pixels, g.pad[2] = 0, g.c = g.filter[2] * align, g.filter[2] = 1;
  return v;
}

refusal refuse(const full_problem& p, const kernel& row) {
  if (const refusal r = refuse_short_sums(p)) return r;
  const view v = view_of(geometry_of(p), row.type);
  const geometry& g = v.g;
  if (g.dst_block != 1) return {QUERN_REASON_LAYOUT, "dst.layout", p.dst.layout, 0};
  if (p.epilogue.residual && g.residual_block != 1)
    return {QUERN_REASON_LAYOUT, "residual.layout", p.residual.layout, 0};
  if (extent(p.src) == 0 || g.k == 0) return {QUERN_REASON_SHAPE, "elements of src or dst", 0, 1};
  const int64_t chunk = chunk_of(row.type);
  // A chunk must not reach into the next group.
  if (g.groups > 1 && g.c % chunk != 0)
    return {QUERN_REASON_SHAPE,
            chunk == 128  ? "src.size[1] / groups modulo 128"
            : chunk == 64 ? "src.size[1] / groups modulo 64"
                          : "src.size[1] / groups modulo 32",
            g.c % chunk, 0};
  if (row.lines) {
    if (g.groups != 1) return {QUERN_REASON_SHAPE, "groups", g.groups, 1};
    if (g.k > row.nr) return {QUERN_REASON_SHAPE, "dst.size[1]", g.k, row.nr};
    if (g.c > chunk) return {QUERN_REASON_SHAPE, "src.size[1]", g.c, chunk};
  }
  if (g.phases() > most_launches) return {QUERN_REASON_SHAPE, "product of window.stride", g.phases(), most_launches};
  if (const refusal r = g.refuse_phases()) return r;
  for (int64_t f = 0; f < g.phases(); ++f) {
    const phase ph = phase_of(g, f);
    // Of phases without outputs too: their weights are packed.
    if (row.taps && ph.taps() > 0) {
      if (ph.w.taps != row.taps) return g.refuse(window_filter, 2, ph.w.taps, row.taps);
      if (ph.w.tap_step != 1) return g.refuse(window_dilation, 2, ph.w.tap_step, 1);
      if (ph.w.in_step != 1) return g.refuse(window_stride, 2, ph.w.in_step, 1);
    }
    if (row.lines && ph.taps() > row.lines) return {QUERN_REASON_SHAPE, "taps", ph.taps(), row.lines};
    if (ph.outputs() == 0 || ph.taps() == 0) {
      if (row.lines && ph.outputs() > 0) return {QUERN_REASON_SHAPE, "taps", 0, 1};
      continue;
    }
    if (g.in[0] != 1 || ph.d.out_count != 1 || ph.d.taps != 1 || ph.d.in_begin != 0)
      return {QUERN_REASON_SHAPE, "src.size[2] or window along d", std::max(g.in[0], g.filter[0]), 1};
    if (row.lines) {
      if (ph.h.in_step != 1) return g.refuse(window_stride, 1, ph.h.in_step, 1);
      if (ph.w.in_step != 1) return g.refuse(window_stride, 2, ph.w.in_step, 1);
      const int64_t reach = std::max((ph.h.taps - 1) * ph.h.tap_step, (ph.w.taps - 1) * ph.w.tap_step);
      if (cut_of(ph, row, 1, 1).rows == 0)
        return {QUERN_REASON_SHAPE, "reach of the filter", reach, halo_room(row.mr) - row.mr};
      continue;
    }
    if (const refusal r = refuse_axis(g, 1, ph.h)) return r;
    if (const refusal r = refuse_axis(g, 2, line_of(ph, row))) return r;
  }
  const double pixels = double(g.n) * double(g.out[0]) * double(g.out[1]) * double(g.out[2] + row.taps);
  const double blocks = double(g.taps()) * (double(g.c) / chunk + 1);
  const double tiles =
      (pixels / row.mr + double(g.phases())) * double(g.groups) * (double(g.k) / row.nr + 1) * row.cluster;
  return refuse_many(
      std::max({pixels, blocks, tiles, double(g.groups) * double(std::max(g.k, g.c)), double(v.pixels())}),
      "pixels, taps or tiles");
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine&, uint32_t) {
  const view v = view_of(geometry_of(p), row.type);
  blocking b = {};
  const tma_panels panels = {v.g, row};
  b.packed_bytes = uint64_t(panels.payload_bytes());
  b.workspace_bytes = uint64_t(up(v.bytes(row.type), QUERN_ALIGN) * QUERN_ALIGN);
  b.workers = 1;
  return b;
}

namespace {

// Clocks of a multiprocessor (fitted on an H200).
struct tile_clocks {
  double stage, rest;  // for 128 bytes of channels; for what comes before and after them
  double start, start_ns = 1200;
};

// Of TF32 twelve instructions a group or the bytes from L2, whichever is more, and what waits for them; what is around
// them three groups hide better than two (fitted to dense layers and 1x1 on an H200, within 7 %).  Of F16 what
// passes shared memory, 128 bytes at once: rows of pixels are written and read again, weights are read by each of six
// instructions a group.
tile_clocks clocks_f32(const kernel& row) {
  const double pixels = row.mr, channels = row.nr, groups = pixels / 64;
  if (row.kind == kind::tma_f16x3) {
    const double passes = pixels / std::max<double>(row.taps, 1) + pixels + (1 + 1.5 * groups) * channels;
    return {passes * (row.taps ? 1.43 : 1.24), 0.63 * pixels * channels, 4500};
  }
  const double waits = groups == 3 ? 1.23 : channels == 64 ? 1.21 : 1.125, rest = groups == 3 ? 0.435 : 0.54;
  return {std::max(6 * groups * channels, 128 * (pixels + 2 * channels) / 40) * waits, rest * pixels * channels, 4500};
}

// Four instructions a group, which draw so much power that the clock falls, or the bytes from L2, a few of which tiles
// beside each other share.  Sets of groups hide half of what is not multiplying, and more where stages have several
// taps; a cluster passes sums around.  Elements of 8 bits take half the instructions, and of e4m3 sums are added up.
tile_clocks clocks_half(const kernel& row, double pixel_tiles, double panels) {
  const double pixels = row.mr, taps = std::max<double>(row.taps, 1), blocks = row.cluster;
  const bool narrow = type_bytes(row.type) == 1;
  const double slower = row.type == QUERN_S8 ? 1.22 : narrow ? 1.43 : 1.38;
  const double products = 4.0 * (row.nr / 64) * std::max(pixels / 2, 16 + pixels / 4) * slower;
  const double weights = row.nr / (pixel_tiles > 1 ? 1.2 : 1);
  const double rows = pixels / (panels > 1 ? 1.4 : 1) / taps + weights;
  const double rest = narrow ? 530 + 15 * pixels / blocks : 390 + 19 * pixels / blocks;
  return {std::max(products, 76 / taps + 128 * rows / (narrow ? 45 : 49)),
          blocks > 1     ? rest + 1000 + 0.25 * pixels * row.nr * (1 - 1 / blocks)
          : row.taps > 0 ? 390 + (narrow ? 10 : 7) * pixels
          : row.nr == 64 ? (narrow ? 0.46 : 0.56) * rest
                         : rest,
          2900, 400};
}

// Pixels of a channel that can be moved at once: those of 16 bytes, or of 4, where so many lie side by side, aligned,
// throughout; else one.
int32_t together_of(const void* p, quern_type type, const int64_t* stride, int64_t h, int64_t w) {
  const int64_t side = h == 1 || stride[3] == w ? h * w : w;
  for (const int64_t bytes : {16, 4}) {
    const int64_t v = bytes / type_bytes(type);
    if (reinterpret_cast<uintptr_t>(p) % uintptr_t(bytes) == 0 && stride[4] == 1 && side % v == 0 &&
        stride[0] % v == 0 && stride[1] % v == 0 && (side == h * w || stride[3] % v == 0))
      return int32_t(v);
  }
  return 1;
}

// An output's, beside those of a tile that leaves in chunks of channels: by planes, pixel by pixel where not in wholes;
// by kernels that have no planes.  What leaves one by one from every kernel makes no difference.
double clocks_leaving(const quern_problem& p, const geometry& g, const kernel& row) {
  if (row.type == QUERN_F32 || p.dst.type != row.type || g.dst[1] == 1 || !only_clamps(epilogue_of(p, {})) ||
      p.epilogue.residual)
    return 0;
  if (row.lines || row.taps) return 3;
  const bool wholes = g.phases() == 1 && together_of(nullptr, row.type, g.dst, g.out[1], g.out[2]) > 1;
  return wholes ? 0 : 0.8;
}

// Of a tile: its products, or what its group does to write it out while another multiplies, whichever is more.
double clocks_halo(const kernel& row, double taps) {
  const double products = taps * 4 * (row.mr / 2) * 1.4, box = 128 * double(halo_room(row.mr)) / 40;
  return std::max({products, box, (products + 15.0 * row.mr + 700) / 2}) + 100;
}

}  // namespace

cost predict(const full_problem& p, const kernel& row, const blocking&, const machine& m) {
  const view v = view_of(geometry_of(p), row.type);
  const geometry& g = v.g;
  const int64_t chunk = chunk_of(row.type), panels = up(g.k, row.nr);
  const double leaving = clocks_leaving(p, g, row) * row.mr * row.nr / row.cluster;
  // Large clusters do not fill all that is there.
  const double multiprocessors = row.cluster > 2 ? m.gpu.multiprocessors * 10 / 11 : m.gpu.multiprocessors;
  // A copy writes and reads what is hardly larger than src.
  const double copying =
      (row.early ? 2000 : 3000) + 2 * double(v.bytes(row.type)) / (double(m.gpu.bandwidth) * 0.85e-9);
  double ns = v.copied ? copying : 0, flops = 0;
  for (int64_t f = 0; f < g.phases(); ++f) {
    const phase ph = phase_of(g, f);
    if (row.lines) {
      const halo_cut cut = ph.outputs() ? cut_of(ph, row, g.n, m.gpu.multiprocessors) : halo_cut{};
      const double tiles = double(g.n * cut.down * cut.across), taps = double(ph.taps());
      const double clocks =
          ceil(tiles / m.gpu.multiprocessors) * (clocks_halo(row, taps) + leaving) + 2900 + 19 * row.mr;
      ns += 400 + 1000 * clocks / m.gpu.clock_mhz;
      flops += 2 * tiles * row.mr * row.nr * taps * chunk;
      continue;
    }
    const int64_t pixel_tiles = up(g.n * ph.d.out_count * ph.h.out_count * line_of(ph, row).out_count, row.mr);
    const tile_clocks tile =
        row.type == QUERN_F32 ? clocks_f32(row) : clocks_half(row, double(pixel_tiles), double(panels));
    const double tiles = double(pixel_tiles * panels * g.groups);
    const double blocks = double(ph.taps() * up(g.c, chunk));
    const double waves = ceil(tiles * row.cluster / multiprocessors);
    const double clocks = waves * (ceil(blocks / row.cluster) * tile.stage + tile.rest + leaving) + tile.start;
    ns += tile.start_ns + 1000 * clocks / m.gpu.clock_mhz;
    flops += 2 * tiles * row.mr * row.nr * blocks * chunk;
  }
  return {
      std::max(ns, 2000 + tensor_bytes(geometry_of(p), p.src.type, p.dst.type) / (double(m.gpu.bandwidth) * 0.8e-9)),
      flops};
}

namespace {

tma_axis axis_of(const axis& a) {
  return {int32_t(a.in_begin), int32_t(a.in_step), int32_t(a.taps), int32_t(a.tap_step)};
}

// The image that the engine walks over, as its maps are told of it.
struct mapped_image {
  const void* src;
  uint64_t size[4], stride[3];  // c w h n; bytes
};

mapped_image image_of(const launching& l, quern_type type, const view& v) {
  const geometry& g = v.g;
  const int64_t element = type_bytes(type);
  const auto bytes = [&](int64_t count, int64_t apart) { return uint64_t(count > 1 ? element * apart : 16); };
  const int64_t line = v.columns * v.pixel, image = g.in[1] * line;
  const bool there = !v.copied;
  return {there ? l.args.src : l.workspace,
          {uint64_t(g.c * g.groups), uint64_t(g.in[2]), uint64_t(g.in[1]), uint64_t(g.n)},
          {bytes(g.in[2], there ? g.src[4] : v.pixel), bytes(g.in[1], there ? g.src[3] : line),
           bytes(g.n, there ? g.src[0] : image)}};
}

// A box as wide and high as the first pixels of all windows: the engine turns to the next row where it ends.
quern_status map_pixels(const launching& l, const kernel& row, const view& v, const phase& ph, tensor_map& map) {
  const mapped_image from = image_of(l, row.type, v);
  const int rows = row.mr + (row.taps ? 8 : 0);
  const auto last = [](const axis& a) { return int(a.in_begin + (a.out_count - 1) * a.in_step - (a.in_size - 1)); };
  const int lower[] = {int(ph.w.in_begin), int(ph.h.in_begin)}, upper[] = {last(line_of(ph, row)), last(ph.h)};
  const uint32_t step[] = {1, uint32_t(ph.w.in_step), uint32_t(ph.h.in_step), 1};
  const uint32_t channels = uint32_t(chunk_of(row.type));
  return encode_im2col(
      l, &map, {map_type(row.type), from.src, from.size, from.stride, lower, upper, channels, uint32_t(rows), step});
}

// Whether boxes of dst can be stored, 64 channels wide: pixels at the same distance, channels of a group in whole
// boxes.
bool storable(const kernel& row, const geometry& g, const gpu_output& out) {
  return type_bytes(row.type) < 4 && out.type == row.type && !row.taps && out.even && out.vector &&
         out.dst_stride[4] > 0 && out.dst_stride[4] < int64_t{1} << 38 && (g.groups == 1 || g.k % 64 == 0);
}

// Outputs of a channel of an image, where lines follow each other; else none.
int32_t plane_of(const gpu_output& out) {
  const bool follow = out.size[1] == 1 || out.dst_stride[3] == out.size[2] * out.dst_stride[4];
  return out.size[0] == 1 && follow ? out.size[1] * out.size[2] : 0;
}

quern_status map_output(const launching& l, const kernel& row, const geometry& g, const gpu_output& out,
                        tensor_map& map) {
  const int64_t element = type_bytes(row.type);
  const uint64_t size[] = {uint64_t(g.k * g.groups), uint64_t(out.pixels)};
  const uint64_t stride[] = {uint64_t(out.dst_stride[4] * element)};
  const uint32_t box[] = {64, uint32_t(tma_box(tma_written(row.mr, int(row.cluster)), int(element)))};
  const int swizzle = element == 1 ? cuda_map_swizzle_64 : cuda_map_swizzle_128;
  return encode_tiled(l, &map, {map_type(row.type), swizzle, 2, out.dst, size, stride, box});
}

quern_status copy_pixels(const launching& l, const geometry& g, quern_type type, const view& v) {
  const int64_t channels = g.c * g.groups;
  // Lines that follow each other are one.
  const bool joined = v.before == 0 && v.columns == g.in[2] && g.src[3] == g.in[2] * g.src[4];
  const int64_t lines = joined ? 1 : g.in[1];
  pixels_last c = {{int32_t(lines), int32_t(g.in[1] / lines * g.in[2])},
                   int32_t(v.before),
                   int32_t(g.in[1] / lines * v.columns),
                   int32_t(v.pixels()),
                   int32_t(channels),
                   int32_t(v.pixel),
                   int32_t(up(channels, pixels_last_channels(type_bytes(type)))),
                   {},
                   int32_t(g.src_block),
                   int32_t(type_bytes(type)),
                   together_of(l.args.src, type, g.src, g.in[1], g.in[2]) > 1,
                   l.args.src,
                   l.workspace};
  std::copy_n(g.src, 5, c.stride);
  const int64_t blocks = v.pixel == aligned_of(type) ? up(c.pixels, pixels_last_threads)
                                                     : up(c.pixels, pixels_last_tile) * c.channel_tiles;
  return launch_prepare(l, uint32_t(blocks), pixels_last_threads, &c);
}

// One phase by a kernel of tma_halo.h.
quern_status launch_halo(const job& j, const launching& l, const view& v, const phase& ph, const char* weights) {
  const kernel& row = j.row;
  const geometry& g = v.g;
  const int64_t multiprocessors = std::max<int64_t>(l.device.gpu.multiprocessors, 1);
  const halo_cut cut = cut_of(ph, row, g.n, multiprocessors);
  halo_conv a = {};
  a.begin[0] = int32_t(ph.h.in_begin), a.begin[1] = int32_t(ph.w.in_begin);
  a.taps[0] = int32_t(ph.h.taps), a.taps[1] = int32_t(ph.w.taps);
  a.step[0] = int32_t(ph.h.tap_step), a.step[1] = int32_t(ph.w.tap_step);
  a.rows = int32_t(cut.rows), a.columns = int32_t(cut.columns), a.lines = int32_t(cut.lines);
  a.pitch = int32_t(cut.pitch), a.line_of = halo_line_of(a.pitch);
  a.of_image = divisor_of(cut.down * cut.across), a.across = divisor_of(cut.across);
  a.tiles = int32_t(g.n) * a.of_image.by;
  a.weights = weights, a.ahead = l.loaded.ahead;
  a.out = output_of(j, g, ph, l.args, 8);
  const mapped_image from = image_of(l, row.type, v);
  const uint32_t pixels[] = {64, uint32_t(cut.pitch), uint32_t(cut.lines), 1};
  if (const quern_status s = encode_tiled(
          l, &a.src, {map_type(row.type), cuda_map_swizzle_128, 4, from.src, from.size, from.stride, pixels}))
    return s;
  const int64_t* const stride = a.out.dst_stride;
  const uint64_t size[] = {uint64_t(g.k), uint64_t(ph.w.out_count), uint64_t(ph.h.out_count), uint64_t(g.n)};
  uint64_t apart[3];
  a.stores = a.out.vector;
  for (int i = 0; i < 3; ++i) {
    const int64_t step = size[i + 1] > 1 ? stride[i == 2 ? 0 : 4 - i] : 8;
    a.stores = a.stores && step > 0 && step < int64_t{1} << 38;
    apart[i] = uint64_t(step * type_bytes(row.type));
  }
  const uint32_t outputs[] = {64, uint32_t(cut.columns), uint32_t(cut.rows), 1};
  if (a.stores)
    if (const quern_status s =
            encode_tiled(l, &a.dst, {map_type(row.type), cuda_map_swizzle_128, 4, a.out.dst, size, apart, outputs}))
      return s;
  return launch_kernel(l, row, uint32_t(std::min<int64_t>(a.tiles, multiprocessors)), &a);
}

}  // namespace

quern_status launch(const job& j, const launching& l) {
  const kernel& row = j.row;
  const geometry& whole = geometry_of(j.problem);
  const view v = view_of(whole, row.type);
  const geometry& g = v.g;
  if (v.copied)
    if (const quern_status s = copy_pixels(l, whole, row.type, v)) return s;
  const tma_panels t = {g, row};
  tma_scaled_conv a = {};
  a.exponent = f16x3_exponent(j.blocks.src_limit);
  a.exponents = reinterpret_cast<const int32_t*>(l.packed + t.weights_bytes());
  a.ahead = l.loaded.ahead;
  a.c = int32_t(g.c), a.chunks = int32_t(t.chunks);
  a.channel_tiles = divisor_of(t.panels);
  a.weights_group = t.bytes(t.phase(1, 0));
  int64_t before = 0;
  for (int64_t f = 0; f < g.phases(); before += phase_of(g, f).taps(), ++f) {
    const phase ph = phase_of(g, f);
    if (ph.outputs() == 0) continue;
    const char* const weights = l.packed + t.bytes(t.phase(0, before));
    if (row.lines) {
      if (const quern_status s = launch_halo(j, l, v, ph, weights)) return s;
      continue;
    }
    a.h = axis_of(ph.h), a.w = axis_of(ph.w);
    a.columns = divisor_of(line_of(ph, row).out_count);
    if (row.taps) a.w.taps = 1;
    a.blocks = int32_t(ph.taps() / std::max<int64_t>(row.taps, 1) * t.chunks);
    a.weights = weights;
    a.out = output_of(j, g, ph, l.args, row.type == QUERN_F32 ? 4 : 16 / type_bytes(j.problem.dst.type));
    a.of_image = divisor_of(int64_t{a.out.size[1]} * a.columns.by);
    a.of_group = divisor_of(up(int64_t{a.out.pixels} / ph.w.out_count * a.columns.by, row.mr) * t.panels);
    a.tiles = a.of_group.by * int32_t(g.groups);
    if (a.blocks > 0)
      if (const quern_status s = map_pixels(l, row, v, ph, a.src)) return s;
    a.stores = storable(row, g, a.out);
    a.together =
        a.out.size[0] == 1 ? together_of(a.out.dst, row.type, a.out.dst_stride, a.out.size[1], a.out.size[2]) : 1;
    a.plane = divisor_of(plane_of(a.out));
    if (a.stores)
      if (const quern_status s = map_output(l, row, g, a.out, a.dst)) return s;
    const uint32_t multiprocessors = l.device.gpu.multiprocessors;
    // A block walks over tiles, a cluster has one.
    const uint32_t tiles = uint32_t(a.tiles), most = multiprocessors && row.cluster == 1 ? multiprocessors : UINT32_MAX;
    const uint32_t blocks = std::min(tiles * row.cluster, most);
    if (const quern_status s = launch_kernel(l, row, blocks, &a)) return s;
  }
  return QUERN_OK;
}

}  // namespace quern::tma_driver

namespace quern {
namespace {

// Of e4m3 an instruction brings 32 products and what it has to the largest's exponent, and keeps 13 bits behind the
// point; four of them are a stage, and stages are added in f32.  Products of 16-bit elements are exact, and each
// addition of sixteen truncates by 2^-23.  Of f32 a product leaves out 2^-22 at most and its parts are rounded by as
// much; each of the unit's twelve additions to a part of a sum truncates it by 2^-23, and parts are added in f32.
double error_bound(const full_problem& p) {
  const geometry g = tma_driver::view_of(geometry_of(p), p.src.type).g;
  const double taps = double(g.filter_size());
  if (p.src.type == QUERN_E4M3) return 4 * 33 * 0x1p-13 + (taps * double(up(g.c, 128)) + 1) * 0x1p-24;
  const double n = (p.src.type != QUERN_F32 ? 2 * taps * double(up(g.c, 64)) * 4 + 4
                                            : 3 * 4 + 12 * 2 + taps * double(up(g.c, 32)) + 1) *
                   0x1p-24;
  return n < 0.5 ? n / (1 - n) : std::numeric_limits<double>::infinity();
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_tma, .about = "implicit GEMM on tensor cores, fed by the copy engine", .drives = kind::tma,
                .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED, QUERN_GEMM}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_BATCH, .pads = true, .splits = true, .refuse = tma_driver::refuse,
                .choose_blocks = tma_driver::choose_blocks, .predict = tma_driver::predict, .error_bound = error_bound,
                .pack = tma_driver::pack, .launch = tma_driver::launch, .prepare = "pixels_last_sm90a")
