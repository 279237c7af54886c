// SPDX-License-Identifier: MIT
#include "candidate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "blob.h"
#include "driver.h"
#include "problem.h"
#include "problem_text.h"
#include "versioned.h"

namespace quern {
namespace {

constexpr const char* predictor_name = "cycles-2";
constexpr const char* gpu_predictor_name = "waves-1";
constexpr const char* measured_by_tuning = "tuning";

double flops_a_cycle(const struct machine& m) {
  if (m.isa & QUERN_ISA_AMX) return 1024 / 6.0;  // products of bf16, six for one of f32
  return m.isa & QUERN_ISA_AVX512 ? 64 : m.isa & QUERN_ISA_AVX2 ? 32 : m.isa & QUERN_ISA_NEON ? 16 : 4;
}

// The least time this machine could take: multiply-adds at its peak, or the tensors once from where they stay.
double floor_ns(double flops, double bytes, const struct machine& m, uint32_t workers) {
  if (is_gpu(m)) return std::max(flops / gpu_flops_a_ns(m.gpu), bytes / (double(m.gpu.bandwidth) * 1e-9));
  const double tiles = m.isa & QUERN_ISA_AMX ? flops_a_cycle(m) / 64 : 1;  // flops is of FMA
  return std::max(flops / (m.flops * tiles) / workers, bytes / copy_rate(m, bytes));
}

}  // namespace

work::work(const full_problem& p) : flops(2 * p.products), bytes(bytes_moved(p)) {}

quern_candidate candidate_of(const full_problem& p, const work& work, const option& o, const resolved_wish& w) {
  quern_candidate c = {};
  c.verdict = o.verdict;
  c.algorithm = o.algorithm->name, c.kernel = o.row->name;
  c.backend = o.backend;
  c.reason = o.why.reason, c.field = o.why.field, c.value = o.why.value, c.limit = o.why.limit;
  c.predictor = is_gpu(w.machine) ? gpu_predictor_name : predictor_name;
  c.accuracy = accuracy_of(*o.algorithm, *o.row, p.src.type), c.repeat = repeat_of(*o.algorithm, p);
  c.error_bound = sums_exactly(p) ? 0 : o.algorithm->error_bound(p);
  c.bytes = work.bytes;
  c.src_layout = o.src_layout, c.dst_layout = o.dst_layout;
  if (o.verdict == QUERN_USABLE) {
    c.workspace_bytes = o.blocks.workspace_bytes * o.blocks.workers;
    c.packed_bytes = o.algorithm->pack ? sizeof(blob_header) + o.blocks.packed_bytes : 0;
    c.threads = o.blocks.workers;
    c.flops = o.cost.flops;
    c.predicted_ns = o.cost.ns;
    if (o.measured_ns > 0) c.measured_ns = o.measured_ns, c.measured_by = measured_by_tuning;
    c.floor_percent =
        o.cost.ns > 0 ? 100 * floor_ns(work.flops, work.bytes, w.machine, o.blocks.workers) / o.cost.ns : 100;
  }
  return c;
}

int explain(const quern_candidate& c, char* out, size_t size) {
  const char* field = c.field ? c.field : "";
  switch (c.reason) {
    case QUERN_REASON_NONE:
      return snprintf(out, size,
                      c.verdict != QUERN_CHOSEN ? "usable"
                      : c.measured_ns > 0       ? "chosen: the lowest measured time, within 3 %%"
                                                : "chosen: the lowest predicted time");
    case QUERN_REASON_ISA: {
      if (strcmp(field, "gpu.shared_bytes") == 0)
        return snprintf(out, size, "needs %" PRId64 " bytes of shared memory, a block of this GPU has %" PRId64,
                        c.limit, c.value);
      if (c.backend == QUERN_BACKEND_CUDA)
        return snprintf(out, size, "needs compute capability %d.%d, this GPU has %d.%d", int(c.limit / 10),
                        int(c.limit % 10), int(c.value / 10), int(c.value % 10));
      const char* isa = quern_isa_name(static_cast<uint64_t>(c.limit));
      return snprintf(out, size, "needs %s, which this CPU %s", isa ? isa : "another instruction set",
                      strcmp(field, "cpu.isa") ? "has and its system withholds" : "lacks");
    }
    case QUERN_REASON_TYPE:
      return snprintf(out, size, "%s is %s, it computes %s", field, name_of(type_words, int32_t(c.value)),
                      name_of(type_words, int32_t(c.limit)));
    case QUERN_REASON_LAYOUT: {
      // A layout by name where that is the reason, else the stride that says more.
      const char* name = strstr(field, ".layout") ? name_of(layout_words, static_cast<int32_t>(c.value)) : "";
      if (*name == 0) return snprintf(out, size, "%s is %" PRId64 ", it takes %" PRId64, field, c.value, c.limit);
      if (c.limit == 0) return snprintf(out, size, "%s is %s, it takes nchw and nhwc", field, name);
      return snprintf(out, size, "%s is %s, it takes %s", field, name,
                      name_of(layout_words, static_cast<int32_t>(c.limit)));
    }
    case QUERN_REASON_ACCURACY:
      return snprintf(out, size, "its error class is %" PRId64 ", the problem accepts %" PRId64 " at most", c.limit,
                      c.value);
    case QUERN_REASON_REPEAT:
      return snprintf(out, size, "repeats to level %" PRId64 ", the wish demands %" PRId64, c.limit, c.value);
    case QUERN_REASON_WORKSPACE:
      return snprintf(out, size, "needs %" PRId64 " bytes of workspace, the wish allows %" PRId64, c.limit, c.value);
    case QUERN_REASON_WISH:
      return snprintf(out, size,
                      strcmp(field, "wish.deny") == 0        ? "wish.deny has it"
                      : strcmp(field, "wish.allow") == 0     ? "wish.allow does not have it"
                      : strcmp(field, "wish.kernel") == 0    ? "wish.kernel names another kernel"
                      : strcmp(field, "wish.src_limit") == 0 ? "needs wish.src_limit, the largest magnitude in src"
                      : strncmp(c.algorithm, "reference", 9) ? "wish.algorithm names another algorithm"
                                                             : "runs only when wish.algorithm names it");
    default: return snprintf(out, size, "%s is %" PRId64 ", it takes %" PRId64, field, c.value, c.limit);
  }
}

// At a clock that none has, every operand from L1, and with the fewest multiplications that any algorithm makes do
// with (F(6,3) saves a factor of five).
double least_ns(const quern_problem& p, const machine& m, uint32_t threads) {
  if (is_gpu(m)) {
    // Of a multiprocessor: twice what tensor cores of 10.0 do in 8 bits, and what shared memory brings.
    constexpr double flops_a_clock = 65536, bytes_a_clock = 256;
    const double clocks = std::max(direct_flops(p) / flops_a_clock, bytes_moved(p) / bytes_a_clock);
    return 1000 * clocks / (double(m.gpu.multiprocessors) * m.gpu.clock_mhz);
  }
  constexpr double highest_ghz = 7, saved = 6, bytes_a_cycle = 256;
  const double cycles = std::max(direct_flops(p) / saved / flops_a_cycle(m), bytes_moved(p) / bytes_a_cycle);
  return cycles / highest_ghz / std::max(1u, threads);
}

}  // namespace quern

using namespace quern;

extern "C" quern_status quern_candidate_explain(const quern_candidate* candidate, char* out, size_t capacity,
                                                size_t* length, quern_error* error) noexcept {
  quern_candidate c = {};
  if (!candidate)
    return fail(error, QUERN_INVALID, "candidate", 0, 0, "candidate is NULL, must point to a quern_candidate");
  if (const quern_status s = take(candidate, c, "candidate", error)) return s;
  if (!c.algorithm || (capacity && !out))
    return fail(error, QUERN_INVALID, "candidate", 0, 0,
                "candidate was not filled in by quern_candidates, or out is NULL");
  const int written = explain(c, out, capacity);
  if (length) *length = static_cast<size_t>(written);
  if (static_cast<size_t>(written) >= capacity)
    return fail(error, QUERN_BUFFER, "capacity", static_cast<int64_t>(capacity), written + 1,
                "capacity is %zu, must be at least %d", capacity, written + 1);
  return QUERN_OK;
}
