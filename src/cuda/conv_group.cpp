// SPDX-License-Identifier: MIT
//
// Groups of up to 32 channels in 16 bits on a GPU's tensor cores: blocks walk down the image, with its lines in a ring
// in shared memory, and warps multiply small groups side by side (cuda/group.h).
#include "cuda/group.h"
#include "cuda/lines_drive.h"

namespace quern {
namespace {

// Groups that share a warp's instructions, and the jobs of outputs that they have.
struct group_jobs {
  const geometry& g;
  const kernel& row;
  int64_t depth = row.group, groups = depth / g.c, outputs = groups * g.k, parts = up(outputs, row.mr);
  int64_t count = up(g.groups, groups) * parts;
  int64_t of_tap = row.mr * depth / 64, words = g.taps() * of_tap * 32;  // of a lane, and of a job's weights

  int64_t bytes() const { return count * words * 4; }
  // The element of a job's weights, of 16 bits, that meets input `in` of its groups and is for its output `out`.
  int64_t at(int64_t tap, int64_t in, int64_t out) const {
    if (depth == 8) return (tap * 32 + out * 4 + in / 2) * 2 + in % 2;
    const int64_t column = out / 4 * 2 + out % 2, instruction = out % 4 / 2, lane = column * 4 + in % 8 / 2;
    return (((tap * of_tap / 4 + in / 16) * 32 + lane) * 4 + instruction * 2 + in % 16 / 8) * 2 + in % 2;
  }
};

lines_work work_of(const geometry& g, const kernel& row) {
  const group_jobs jobs = {g, row};
  const double steps = row.group / 16.0, multiplied = row.mr / 8 * row.taps * row.taps * steps / row.step;
  const double line_bytes = double((15 * row.step + row.taps) * 4 * row.group * 2);  // of four jobs
  return {jobs.parts,
          jobs.depth,
          jobs.count,
          256 * row.mr,
          8,
          false,
          40 + 60.0 / row.step + 2.1 * multiplied + 0.054 * line_bytes,  // measured on an H200, as what follows
          3000 + 200.0 * steps,
          270.0 + 130 * row.taps};
}

refusal refuse(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  if (g.groups == 1) return {QUERN_REASON_SHAPE, "groups", 1, 2};
  if (g.c == 0 || g.c > row.group || row.group % g.c != 0 || (row.group > 16 && g.c <= 16))
    return {QUERN_REASON_SHAPE, "src.size[1] / groups", g.c, row.group};
  if (row.group == 8 && g.k != g.c) return {QUERN_REASON_SHAPE, "dst.size[1] / groups", g.k, g.c};
  if (g.phases() != 1) return {QUERN_REASON_SHAPE, "product of window.stride", g.phases(), 1};
  if (const refusal r = refuse_few(p, row)) return r;
  return refuse_lines(g, row, work_of(g, row));
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  b.packed_bytes = uint64_t(group_jobs{g, row}.bytes());
  b.workers = 1;
  choose_lines(g, row, work_of(g, row), m, b.word);
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry& g = geometry_of(p);
  const group_jobs jobs = {g, row};
  const double strips = double(up(g.out[2], 16)) * double(g.out[1] * g.n);
  return {lines_ns(g, row, work_of(g, row), m, b.word),
          2 * strips * 16 * double(jobs.count * row.mr * row.group * g.taps())};
}

// As conv_tensor's of 16 bits.
double error_bound(const full_problem& p) {
  const double n = (2 * double(geometry_of(p).filter_size()) * 2 + 4) * 0x1p-24;
  return n / (1 - n);
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const group_jobs jobs = {g, j.row};
  const int64_t mr = j.row.mr;
  pack_weights(g, first, count, static_cast<const uint16_t*>(weights), [&](const weight_run<uint16_t>& w) {
    const int64_t in = w.group % jobs.groups * g.c, out = w.group % jobs.groups * g.k + w.k;
    const int64_t set = w.group / jobs.groups;
    const auto of_job = [&](int64_t i) {
      return reinterpret_cast<uint16_t*>(payload) + (set * jobs.parts + i / mr) * jobs.words * 2;
    };
    // All inputs of an output, other groups' too; and outputs that do not exist.
    const bool last = w.group == g.groups - 1 && w.k == g.k - 1;
    const int64_t end = last ? jobs.parts * mr : out + 1;
    const auto clear = [&](int64_t i) {
      for (int64_t other = 0; other < jobs.depth; ++other) of_job(i)[jobs.at(w.tap, other, i % mr)] = 0;
    };
    for (int64_t i = out; i < end && w.begin == 0; ++i) clear(i);
    if (out == jobs.outputs - 1 && w.begin == 0)
      for (int64_t i = jobs.outputs; i < jobs.parts * mr; ++i) clear(i);
    for (int64_t c = w.begin; c < w.end; ++c) of_job(out)[jobs.at(w.tap, in + c, out % mr)] = w[c];
  });
}

quern_status launch(const job& j, const launching& l) {
  const geometry& g = geometry_of(j.problem);
  const group_jobs jobs = {g, j.row};
  const phase ph = phase_of(g, 0);
  lines_conv a = lines_tiling(g, j.row, work_of(g, j.row), ph, j.blocks.word, l.args.src);
  a.ahead = l.loaded.ahead;
  take_pixels(a, j, g, ph, l.args, 4);
  a.set_outputs = int32_t(jobs.outputs), a.all_outputs = int32_t(outputs_of(g));
  const auto chunks = [&](const void* p, const int64_t* stride) { return in_chunks(p, stride, 4, j.row.type); };
  a.out.vector = chunks(a.out.dst, a.out.dst_stride) && jobs.outputs % 4 == 0 && outputs_of(g) % 4 == 0 &&
                 (!a.out.residual || chunks(a.out.residual, a.out.residual_stride));
  a.weights = l.packed;
  return launch_kernel(l, j.row, lines_blocks(g, a), &a, uint32_t(j.blocks.word[4]));
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_group, .about = "groups of up to 32 channels on tensor cores, several side by side",
                .drives = kind::group, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_BATCH, .pads = true, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict, .error_bound = error_bound, .pack = pack, .launch = launch)
