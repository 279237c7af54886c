// SPDX-License-Identifier: MIT
//
// Groups of up to 16 channels, 3x3 at stride 1, on capability 9.0: the copy engine brings boxes of pixels and takes
// tiles of outputs, warps multiply small groups side by side (cuda/group_box.h).  All else is for conv_group, of 16
// bits, and conv_walk.
//
//   block: 7 or 14 x 14 outputs of 128 bytes of channels
//     warp: 8 or 16 of these channels, line by line
#include "cuda/few_drive.h"
#include "cuda/group_box.h"

namespace quern {
namespace {

// A warp's share of channels, and its weights.
struct box_jobs {
  const geometry& g;
  const kernel& row;
  int64_t depth = row.group, count = g.c * g.groups / depth, tiles = depth / 8;
  int64_t of_job = g.taps() * tiles * tiles * 32 * (row.type == QUERN_F32 ? 16 : 4);  // bytes

  int64_t bytes() const { return count * of_job; }
  // The weight that meets input `in` of a job and is for its output `out`; of f32 its high part, and its low one.
  void put(char* job, int64_t tap, int64_t in, int64_t out, uint16_t x) const {
    const int64_t lane = out % 8 * 4 + in % 8 / 2, word = (tap * 32 + lane) * tiles * tiles + out / 8 * 2 + in / 8;
    reinterpret_cast<uint16_t*>(job)[word * 2 + in % 2] = x;
  }
  void put(char* job, int64_t tap, int64_t in, int64_t out, float x) const {
    const int64_t lane = out % 8 * 4 + in % 4, four = ((tap * tiles + in / 8) * tiles + out / 8) * 32 + lane;
    float* const to = reinterpret_cast<float*>(job) + four * 4 + in % 8 / 4;
    const tf32_pair two = split_tf32(x);
    to[0] = two.high, to[2] = to_tf32(two.low);
  }
};

int64_t slabs_of(const geometry& g, const kernel& row) { return up(g.c * g.groups, 128 / type_bytes(row.type)); }
int64_t blocks_of(const geometry& g, const kernel& row) {
  return g.n * up(g.out[1], int64_t{row.mr}) * up(g.out[2], int64_t{row.nr}) * slabs_of(g, row);
}

refusal refuse(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  if (g.groups == 1) return {QUERN_REASON_SHAPE, "groups", 1, 2};
  // Depthwise in f32 is memory alone, and conv_depthwise_box has the CPU's bits.
  if (g.c == 0 || row.group % g.c != 0 || (row.group > 8 && g.c <= 8) || (row.type == QUERN_F32 && g.c == 1))
    return {QUERN_REASON_SHAPE, "src.size[1] / groups", g.c, row.group};
  if (g.k != g.c) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", g.k, g.c};
  if (const refusal r = refuse_few(p, row)) return r;
  if (const refusal r = refuse_short_sums(p)) return r;
  for (int i = 1; i < 3; ++i) {
    if (g.stride[i] != 1) return g.refuse(window_stride, i, g.stride[i], 1);
    if (g.dilation[i] != 1) return g.refuse(window_dilation, i, g.dilation[i], 1);
  }
  if (const refusal r = refuse_all_but_clamps(p)) return r;
  if (g.c * g.groups % 8 != 0) return {QUERN_REASON_SHAPE, "src.size[1] modulo 8", g.c * g.groups % 8, 0};
  // Pixels of 16 bytes lie channels last.
  const int64_t whole = 16 / type_bytes(row.type);
  if (g.src[1] != 1) return {QUERN_REASON_SHAPE, "src.stride[1]", g.src[1], 1};
  if (g.dst[1] != 1) return {QUERN_REASON_SHAPE, "dst.stride[1]", g.dst[1], 1};
  const auto lies = [&](const int64_t* stride) {
    for (const int i : {0, 3, 4})
      if (stride[i] <= 0 || stride[i] % whole != 0 || stride[i] >= int64_t{1} << 36) return false;
    return true;
  };
  if (!lies(g.src)) return {QUERN_REASON_SHAPE, "src.stride modulo 16 bytes", 1, 0};
  if (!lies(g.dst)) return {QUERN_REASON_SHAPE, "dst.stride modulo 16 bytes", 1, 0};
  return refuse_many(double(blocks_of(g, row)) * 128, "tiles");
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  b.packed_bytes = uint64_t(box_jobs{g, row}.bytes());
  b.workers = 1;
  b.word[0] = shared_of(blocks_of(g, row), fit_together(row, m), m);
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking&, const machine& m) {
  const geometry& g = geometry_of(p);
  const double blocks = double(blocks_of(g, row)), processors = std::max(1u, m.gpu.multiprocessors);
  // Clocks of a block that others do not hide, and what a block waits for (measured on an H200).
  struct {
    double each, waits;
  } clocks = {row.group == 8 ? 900.0 : 1100.0, 3000};
  if (row.type == QUERN_F32) {
    clocks = {row.group == 8 ? 4080.0 : 3660.0, 3200};
    if (row.group == 8 && row.mr == 7) clocks = {2280, 500};
  }
  const double all_clocks = clocks.waits + ceil(blocks / processors) * clocks.each;
  const double compute = 1000 * all_clocks / std::max(1u, m.gpu.clock_mhz);
  const double tile = row.mr * row.nr, lines = row.mr + 2, channels = 128 / double(type_bytes(row.type));
  // The copy engine's 20 bytes a clock, of what lies beyond the image or its channels too; and memory, where what
  // neighbours share comes from L2.
  const double box = 128 * (lines * group_box_pitch + tile);
  const double engine = 1000 * ceil(blocks / processors) * box / 20 / std::max(1u, m.gpu.clock_mhz);
  const double memory = tensor_bytes(g, row.type, row.type) / (double(m.gpu.bandwidth) * 0.84e-9);
  return {2300 + std::max({compute, engine, memory}),
          2 * blocks * lines * group_box_pitch * channels * double(row.group * g.taps())};
}

// As conv_tensor's; of f32 nine additions are to a sum from zero, of eight channels of a line of the filter.
double error_bound(const full_problem& p) {
  const geometry& g = geometry_of(p);
  const double n = (p.src.type == QUERN_F32 ? 3 * 4 + 9 * 2 + 3 * double(up(g.c, int64_t{8})) + 1
                                            : 2 * double(g.filter_size()) * 2 + 4) *
                   0x1p-24;
  return n / (1 - n);
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const box_jobs jobs = {g, j.row};
  const auto as = [&](auto element) {
    using T = decltype(element);
    pack_weights(g, first, count, static_cast<const T*>(weights), [&](const weight_run<T>& w) {
      const int64_t begin = w.group * g.c % jobs.depth, out = begin + w.k;
      char* const to = payload + w.group * g.c / jobs.depth * jobs.of_job;
      // All inputs of an output, other groups' too.
      for (int64_t in = 0; in < jobs.depth && w.begin == 0; ++in) jobs.put(to, w.tap, in, out, T{});
      for (int64_t c = w.begin; c < w.end; ++c) jobs.put(to, w.tap, begin + c, out, w[c]);
    });
  };
  j.row.type == QUERN_F32 ? as(float{}) : as(uint16_t{});
}

quern_status launch(const job& j, const launching& l) {
  const geometry& g = geometry_of(j.problem);
  const phase ph = phase_of(g, 0);
  group_box a = {};
  a.begin_h = int32_t(ph.h.in_begin), a.begin_w = int32_t(ph.w.in_begin);
  a.tiles_h = int32_t(up(g.out[1], int64_t{j.row.mr})), a.tiles_w = int32_t(up(g.out[2], int64_t{j.row.nr}));
  a.slabs = int32_t(slabs_of(g, j.row)), a.jobs = int32_t(box_jobs{g, j.row}.count);
  a.weights = reinterpret_cast<const uint32_t*>(l.packed), a.ahead = l.loaded.ahead;
  a.out = output_of(j, g, ph, l.args, 1);
  a.stores = in_chunks(a.out.dst, g.dst, 16 / type_bytes(j.row.type), j.row.type);
  const int64_t channels = g.c * g.groups, from[] = {channels, g.in[2], g.in[1], g.n},
                to[] = {channels, g.out[2], g.out[1], g.n};
  const uint32_t slab = uint32_t(128 / type_bytes(j.row.type)), lines = uint32_t(j.row.mr + j.row.taps - 1);
  const uint32_t under[] = {slab, group_box_pitch, lines, 1}, tile[] = {slab, group_box_wide, 1, 1};
  const quern_type type = j.row.type;
  if (const quern_status s = map_pixels(l, type, cuda_map_swizzle_128, l.args.src, from, g.src, under, &a.src))
    return s;
  if (a.stores)
    if (const quern_status s = map_pixels(l, type, cuda_map_swizzle_128, a.out.dst, to, g.dst, tile, &a.dst)) return s;
  return launch_kernel(l, j.row, uint32_t(blocks_of(g, j.row)), &a, uint32_t(j.blocks.word[0]));
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_group_box, .about = "groups of up to 16 channels, 3x3, boxes brought by the copy engine",
                .drives = kind::group_box, .op = {QUERN_CONV}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_BATCH, .pads = true, .splits = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .error_bound = error_bound, .pack = pack,
                .launch = launch)
