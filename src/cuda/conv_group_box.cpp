// SPDX-License-Identifier: MIT
//
// Groups of up to 16 channels, 3x3 at stride 1, in 16 bits on capability 9.0: the copy engine brings boxes of pixels
// and takes tiles of outputs, warps multiply small groups side by side (cuda/group_box.h).  All else is conv_group's.
//
//   block: 7 x 14 outputs of 64 channels
//     warp: 8 or 16 of these channels, line by line
#include "cuda/few_drive.h"
#include "cuda/group_box.h"

namespace quern {
namespace {

// A warp's share of channels, and its weights.
struct box_jobs {
  const geometry& g;
  const kernel& row;
  int64_t depth = row.group, count = g.c * g.groups / depth;
  int64_t of_tap = depth / 8 * depth / 8, halves = g.taps() * of_tap * 64;

  int64_t bytes() const { return count * halves * 2; }
  // The element that meets input `in` of a job and is for its output `out`.
  int64_t at(int64_t tap, int64_t in, int64_t out) const {
    const int64_t lane = out % 8 * 4 + in % 8 / 2;
    return ((tap * 32 + lane) * of_tap + (out / 8 * 2 + in / 8)) * 2 + in % 2;
  }
};

int64_t blocks_of(const geometry& g) {
  return g.n * up(g.out[1], group_box_high) * up(g.out[2], group_box_wide) *
         up(g.c * g.groups, int64_t{group_box_channels});
}

refusal refuse(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  if (g.groups == 1) return {QUERN_REASON_SHAPE, "groups", 1, 2};
  if (g.c == 0 || row.group % g.c != 0 || (row.group > 8 && g.c <= 8))
    return {QUERN_REASON_SHAPE, "src.size[1] / groups", g.c, row.group};
  if (g.k != g.c) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", g.k, g.c};
  if (const refusal r = refuse_few(p, row)) return r;
  for (int i = 1; i < 3; ++i) {
    if (g.stride[i] != 1) return g.refuse(window_stride, i, g.stride[i], 1);
    if (g.dilation[i] != 1) return g.refuse(window_dilation, i, g.dilation[i], 1);
  }
  if (p.epilogue.residual) return {QUERN_REASON_EPILOGUE, "epilogue.residual", p.epilogue.residual, 0};
  if (!only_clamps(epilogue_f32{.activation = p.epilogue.activation}))
    return {QUERN_REASON_EPILOGUE, "epilogue.activation", p.epilogue.activation, QUERN_RELU};
  // Pixels of 16 bytes lie channels last.
  constexpr int64_t whole = 8;
  if (g.c * g.groups % whole != 0)
    return {QUERN_REASON_SHAPE, "src.size[1] modulo 16 bytes", g.c * g.groups % whole, 0};
  if (g.src[1] != 1) return {QUERN_REASON_SHAPE, "src.stride[1]", g.src[1], 1};
  if (g.dst[1] != 1) return {QUERN_REASON_SHAPE, "dst.stride[1]", g.dst[1], 1};
  const auto lies = [&](const int64_t* stride) {
    for (const int i : {0, 3, 4})
      if (stride[i] <= 0 || stride[i] % whole != 0 || stride[i] >= int64_t{1} << 36) return false;
    return true;
  };
  if (!lies(g.src)) return {QUERN_REASON_SHAPE, "src.stride modulo 16 bytes", 1, 0};
  if (!lies(g.dst)) return {QUERN_REASON_SHAPE, "dst.stride modulo 16 bytes", 1, 0};
  return refuse_many(double(blocks_of(g)) * group_box_channels, "tiles");
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  b.packed_bytes = uint64_t(box_jobs{g, row}.bytes());
  b.workers = 1;
  b.word[0] = shared_of(blocks_of(g), fit_together(row, m), m);
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking&, const machine& m) {
  const geometry& g = geometry_of(p);
  const double blocks = double(blocks_of(g)), processors = std::max(1u, m.gpu.multiprocessors);
  // Clocks of a block that others do not hide, and what a block waits for (measured on an H200).
  const double clocks = row.group == 8 ? 900 : 1100, waits = 3000;
  const double compute = 1000 * (waits + ceil(blocks / processors) * clocks) / std::max(1u, m.gpu.clock_mhz);
  const double tile = group_box_high * group_box_wide, lines = group_box_high + 2;
  const double outputs = double(g.n * g.groups * g.k) * double(g.out[1] * g.out[2]), all = blocks * 64 * tile;
  // Tiles beyond the image cost as others do; what neighbours share comes from L2.
  const double bytes = tensor_bytes(g, row.type, row.type) * (0.5 + 0.5 * std::max(1.0, all / outputs));
  const double memory = bytes / (double(m.gpu.bandwidth) * 0.82e-9);
  return {2300 + std::max(compute, memory), 2 * blocks * lines * group_box_pitch * 64 * double(row.group * g.taps())};
}

// As conv_tensor's of 16 bits.
double error_bound(const full_problem& p) {
  const double n = (2 * double(geometry_of(p).filter_size()) * 2 + 4) * 0x1p-24;
  return n / (1 - n);
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const box_jobs jobs = {g, j.row};
  pack_weights(g, first, count, static_cast<const uint16_t*>(weights),
               [&](int64_t group, int64_t k, int64_t, const phase&, int64_t, int64_t tap, int64_t c, uint16_t x) {
                 const int64_t begin = group * g.c % jobs.depth, out = begin + k;
                 uint16_t* const to = reinterpret_cast<uint16_t*>(payload) + group * g.c / jobs.depth * jobs.halves;
                 // All inputs of an output, other groups' too.
                 for (int64_t in = 0; in < jobs.depth && c == 0; ++in) to[jobs.at(tap, in, out)] = 0;
                 to[jobs.at(tap, begin + c, out)] = x;
               });
}

// A tensor as boxes of so many lines are cut from it.
quern_status map_boxes(const launching& l, quern_type type, const void* memory, const int64_t (&size)[4],
                       const int64_t* stride, uint32_t pixels, uint32_t lines, tensor_map& map) {
  const auto bytes = [&](int64_t count, int64_t apart) { return uint64_t(count > 1 ? apart * 2 : 16); };
  const uint64_t sizes[] = {uint64_t(size[0]), uint64_t(size[1]), uint64_t(size[2]), uint64_t(size[3])};
  const uint64_t apart[] = {bytes(size[1], stride[4]), bytes(size[2], stride[3]), bytes(size[3], stride[0])};
  const uint32_t box[] = {group_box_channels, pixels, lines, 1};
  return encode_tiled(l, &map, {map_type(type), cuda_map_swizzle_128, 4, memory, sizes, apart, box});
}

quern_status launch(const job& j, const launching& l) {
  const geometry& g = geometry_of(j.problem);
  const phase ph = phase_of(g, 0);
  group_box a = {};
  a.begin_h = int32_t(ph.h.in_begin), a.begin_w = int32_t(ph.w.in_begin);
  a.tiles_h = int32_t(up(g.out[1], group_box_high)), a.tiles_w = int32_t(up(g.out[2], group_box_wide));
  a.chunks = int32_t(up(g.c * g.groups, int64_t{group_box_channels})), a.jobs = int32_t(box_jobs{g, j.row}.count);
  a.weights = reinterpret_cast<const uint32_t*>(l.packed), a.ahead = l.loaded.ahead;
  a.out = output_of(j, g, ph, l.args, 1);
  a.stores = in_chunks(a.out.dst, g.dst, 8, j.row.type);
  const int64_t channels = g.c * g.groups, from[] = {channels, g.in[2], g.in[1], g.n},
                to[] = {channels, g.out[2], g.out[1], g.n};
  constexpr uint32_t lines = group_tiles<f16>::c8::lines;
  if (const quern_status s = map_boxes(l, j.row.type, l.args.src, from, g.src, group_box_pitch, lines, a.src)) return s;
  if (a.stores)
    if (const quern_status s = map_boxes(l, j.row.type, a.out.dst, to, g.dst, group_box_wide, 1, a.dst)) return s;
  return launch_kernel(l, j.row, uint32_t(blocks_of(g)), &a, uint32_t(j.blocks.word[0]));
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_group_box, .about = "groups of up to 16 channels, 3x3, boxes brought by the copy engine",
                .drives = kind::group_box, .op = {QUERN_CONV}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_BATCH, .pads = true, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict, .error_bound = error_bound, .pack = pack, .launch = launch)
