// SPDX-License-Identifier: MIT
//
// Groups of up to 32 channels in 16 bits on a GPU's tensor cores: blocks walk down the image, with its lines in a ring
// in shared memory, and warps multiply small groups side by side (cuda/group.h).
#include "cuda/group.h"
#include "cuda/lines_drive.h"

namespace quern {
namespace {

// Groups that share a warp's instructions, and the jobs of 16 outputs that they have.
struct group_jobs {
  const geometry& g;
  int64_t depth;
  int64_t groups = depth / g.c, outputs = groups * g.k, parts = up(outputs, 16);
  int64_t count = up(g.groups, groups) * parts;
  int64_t steps = depth / 16, words = g.taps() * steps * 32 * 4;  // of a job's weights

  int64_t bytes() const { return count * words * 4; }
  // The element of a job's weights, of 16 bits, that meets input `in` of its groups and is for its output `out`.
  int64_t at(int64_t tap, int64_t in, int64_t out) const {
    const int64_t column = out / 4 * 2 + out % 2, instruction = out % 4 / 2, lane = column * 4 + in % 8 / 2;
    return (((tap * steps + in / 16) * 32 + lane) * 4 + instruction * 2 + in % 16 / 8) * 2 + in % 2;
  }
};

lines_work work_of(const geometry& g, const kernel& row) {
  const group_jobs jobs = {g, row.group};
  const double multiplied = 18.0 * double(jobs.steps) / row.step;
  return {jobs.parts,
          row.group,
          jobs.count,
          group_kernels<f16>::d16::scratch_bytes,
          8,
          false,
          2 * (multiplied + 60 + 70.0 / row.step),
          3000 + 200.0 * double(jobs.steps),
          1130};  // measured on an H200
}

refusal refuse(const full_problem& p, const kernel& row) {
  const geometry& g = geometry_of(p);
  if (g.groups == 1) return {QUERN_REASON_SHAPE, "groups", 1, 2};
  if (g.c == 0 || g.c > row.group || row.group % g.c != 0 || (row.group > 16 && g.c <= 16))
    return {QUERN_REASON_SHAPE, "src.size[1] / groups", g.c, row.group};
  if (g.phases() != 1) return {QUERN_REASON_SHAPE, "product of window.stride", g.phases(), 1};
  if (const refusal r = refuse_few(p, row)) return r;
  return refuse_lines(g, row, work_of(g, row));
}

blocking choose_blocks(const full_problem& p, const kernel& row, const machine& m, uint32_t) {
  const geometry& g = geometry_of(p);
  blocking b = {};
  b.packed_bytes = uint64_t(group_jobs{g, row.group}.bytes());
  b.workers = 1;
  choose_lines(g, row, work_of(g, row), m, b.word);
  return b;
}

cost predict(const full_problem& p, const kernel& row, const blocking& b, const machine& m) {
  const geometry& g = geometry_of(p);
  const group_jobs jobs = {g, row.group};
  const double strips = double(up(g.out[2], 16)) * double(g.out[1] * g.n);
  return {lines_ns(g, row, work_of(g, row), m, b.word), 2 * strips * 256 * double(jobs.count * row.group * 9)};
}

// As conv_tensor's of 16 bits.
double error_bound(const full_problem& p) {
  const double n = (2 * double(geometry_of(p).filter_size()) * 2 + 4) * 0x1p-24;
  return n / (1 - n);
}

void pack(const job& j, int64_t first, int64_t count, const void* weights, char* payload) {
  const geometry& g = geometry_of(j.problem);
  const group_jobs jobs = {g, j.row.group};
  pack_weights(g, first, count, static_cast<const uint16_t*>(weights),
               [&](int64_t group, int64_t k, int64_t, const phase&, int64_t, int64_t tap, int64_t c, uint16_t x) {
                 const int64_t in = group % jobs.groups * g.c + c, out = group % jobs.groups * g.k + k;
                 const int64_t set = group / jobs.groups, number = set * jobs.parts + out / 16;
                 const auto of_job = [&](int64_t index) {
                   return reinterpret_cast<uint16_t*>(payload) + index * jobs.words * 2;
                 };
                 // All inputs of an output, other groups' too; and outputs that do not exist.
                 const bool last = group == g.groups - 1 && k == g.k - 1;
                 const int64_t end = last ? jobs.parts * 16 : out + 1;
                 for (int64_t i = out; i < end && c == 0; ++i)
                   for (int64_t other = 0; other < jobs.depth; ++other)
                     of_job(set * jobs.parts + i / 16)[jobs.at(tap, other, i % 16)] = 0;
                 if (out == jobs.outputs - 1 && c == 0)
                   for (int64_t i = jobs.outputs; i < jobs.parts * 16; ++i)
                     for (int64_t other = 0; other < jobs.depth; ++other)
                       of_job(set * jobs.parts + i / 16)[jobs.at(tap, other, i % 16)] = 0;
                 of_job(number)[jobs.at(tap, in, out % 16)] = x;
               });
}

quern_status launch(const job& j, const launching& l) {
  const geometry& g = geometry_of(j.problem);
  const group_jobs jobs = {g, j.row.group};
  const phase ph = phase_of(g, 0);
  lines_conv a = lines_tiling(g, j.row, work_of(g, j.row), ph, j.blocks.word, l.args.src);
  take_pixels(a, j, g, ph, l.args, 4);
  a.set_outputs = int32_t(jobs.outputs), a.all_outputs = int32_t(outputs_of(g));
  const auto chunks = [&](const void* p, const int64_t* stride) { return in_chunks(p, stride, 4, j.row.type); };
  a.out.vector = chunks(a.out.dst, a.out.dst_stride) && jobs.outputs % 4 == 0 && outputs_of(g) % 4 == 0 &&
                 (!a.out.residual || chunks(a.out.residual, a.out.residual_stride));
  a.weights = l.packed;
  return launch_kernel(l, j.row, lines_blocks(g, a), &a);
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(conv_group, .about = "groups of up to 32 channels on tensor cores, several side by side",
                .drives = kind::group, .op = {QUERN_CONV, QUERN_CONV_TRANSPOSED}, .accuracy = QUERN_ACCURACY_F32,
                .repeat = QUERN_REPEAT_BATCH, .pads = true, .refuse = refuse, .choose_blocks = choose_blocks,
                .predict = predict, .error_bound = error_bound, .pack = pack, .launch = launch)
