// SPDX-License-Identifier: MIT
//
// The verbs: check what comes in, then one call into the driver.
#include <stddef.h>
#include <string.h>

#include "blob.h"
#include "choose.h"
#include "cuda_device.h"
#include "driver.h"
#include "exec.h"
#include "hash.h"
#include "packing.h"
#include "problem.h"
#include "registry.h"
#include "versioned.h"
#include "weights.h"

namespace quern {
namespace {

struct plan_state {
  const struct algorithm* algorithm;
  const kernel* row;
  blocking blocks;
  // A GPU's plan: who runs it and what; NULL when the GPU was a value.
  const quern_device* device;
  loaded_kernel loaded;
};

// What quern_plan.opaque holds.
struct sealed {
  plan_state state;
  blob_header header;  // what packed weights must begin with, but for the checksum
  uint64_t seal;
};
static_assert(sizeof(sealed) <= sizeof(quern_plan::opaque));

const char* contents(const quern_plan& plan) { return reinterpret_cast<const char*>(plan.opaque); }

blob_header header_of(const quern_plan& plan) {
  blob_header h;
  memcpy(&h, contents(plan) + offsetof(sealed, header), sizeof h);
  return h;
}

// Of all that a plan says, and of where this library lies: a plan that was edited, cut short, or made by
// another process or another copy of the library is none.  Some 40 nanoseconds, so every verb looks.
uint64_t seal_of(const quern_plan& plan) {
  constexpr size_t bytes = offsetof(quern_plan, opaque) + offsetof(sealed, seal);
  static_assert(bytes % 8 == 0);
  return hash_words(&plan, bytes / 8, reinterpret_cast<uintptr_t>(&algorithm_at(0)));
}

quern_status state_of(const quern_plan* plan, plan_state& out, quern_error* error) {
  if (!plan) return fail(error, QUERN_INVALID, "plan", 0, 0, "plan is NULL, must point to a quern_plan");
  memcpy(&out, contents(*plan), sizeof out);
  if (plan->size != sizeof(quern_plan) || word_at(contents(*plan) + offsetof(sealed, seal)) != seal_of(*plan))
    return fail(error, QUERN_MISMATCH, "plan", plan->size, sizeof(quern_plan),
                "plan was not made by quern_plan_make of this library and header in this process, or it was changed");
  return QUERN_OK;
}

quern_status make_plan(quern_plan* plan, const quern_device* device, const quern_problem& problem,
                       const resolved_wish& w, quern_error* error) {
  full_problem p(problem);
  option o;
  if (const quern_status s = choose(p, w, o, error)) return s;
  loaded_kernel loaded = {};
  if (device)
    if (const quern_status s = load_kernel(*device, *o.algorithm, *o.row, w.wish.overlap, loaded, error)) return s;
  memset(plan, 0, sizeof *plan);
  plan->size = sizeof *plan;
  plan->threads = o.blocks.workers;
  plan->algorithm = o.algorithm->name, plan->kernel = o.row->name;
  plan->problem = p;
  plan->packed_bytes = o.algorithm->pack ? sizeof(blob_header) + o.blocks.packed_bytes : 0;
  plan->workspace_bytes = o.blocks.workspace_bytes * o.blocks.workers;
  plan->accuracy = accuracy_of(*o.algorithm, *o.row, p.src.type), plan->repeat = repeat_of(*o.algorithm, p);
  plan->error_bound = sums_exactly(p) ? 0 : o.algorithm->error_bound(p);
  plan->predicted_ns = o.cost.ns;
  const sealed all = {{o.algorithm, o.row, o.blocks, device, loaded},
                      blob_header_of({p, *o.row, o.blocks}, *o.algorithm, plan->packed_bytes),
                      0};
  memcpy(plan->opaque, &all, sizeof all);
  plan->opaque[offsetof(sealed, seal) / 8] = seal_of(*plan);
  return QUERN_OK;
}

// To a power of two.
bool aligned(const void* p, uint64_t bytes) { return (reinterpret_cast<uintptr_t>(p) & (bytes - 1)) == 0; }

// Whether memory at p can hold that many bytes: a problem may be larger than 32-bit addresses.
bool addressable(const void* p, uint64_t bytes) { return bytes <= UINTPTR_MAX - reinterpret_cast<uintptr_t>(p); }

quern_status check_packed(const quern_plan& plan, const plan_state& state, const void* packed, uint64_t bytes,
                          quern_error* error) {
  if (plan.packed_bytes == 0)
    return fail(error, QUERN_INVALID, "plan.packed_bytes", 0, 0,
                "plan.packed_bytes is 0: %s takes the weights as they are", state.algorithm->name);
  if (!packed)
    return fail(error, QUERN_BUFFER, "packed", 0, 0, "packed is NULL, must have %llu bytes",
                static_cast<unsigned long long>(plan.packed_bytes));
  if (!aligned(packed, QUERN_ALIGN))
    return fail(error, QUERN_BUFFER, "packed", static_cast<int64_t>(reinterpret_cast<uintptr_t>(packed) % QUERN_ALIGN),
                QUERN_ALIGN, "packed is not aligned to %d bytes", QUERN_ALIGN);
  if (bytes < plan.packed_bytes)
    return fail(error, QUERN_BUFFER, "packed_bytes", static_cast<int64_t>(bytes),
                static_cast<int64_t>(plan.packed_bytes),
                "packed_bytes is %llu, must be at least plan.packed_bytes = %llu",
                static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(plan.packed_bytes));
  if (!addressable(packed, plan.packed_bytes))
    return fail(error, QUERN_BUFFER, "packed", static_cast<int64_t>(plan.packed_bytes), 0,
                "packed cannot have %llu bytes: they pass the end of the address space",
                static_cast<unsigned long long>(plan.packed_bytes));
  return QUERN_OK;
}

quern_status check_blob(const quern_plan& plan, const void* packed, quern_error* error) {
  const blob_header& h = *static_cast<const blob_header*>(packed);
  blob_header expected = header_of(plan);
  expected.checksum = h.checksum;
  if (memcmp(&h, &expected, sizeof h) == 0) return QUERN_OK;
  if (memcmp(h.magic, expected.magic, sizeof h.magic) != 0)
    return fail(error, QUERN_MISMATCH, "packed", 0, 0,
                "packed weights have no header: they were never packed or not sealed");
  if (h.revision != expected.revision)
    return fail(error, QUERN_MISMATCH, "packed.revision", h.revision, expected.revision,
                "packed weights have layout revision %u, this library reads %u", h.revision, expected.revision);
  return fail(
      error, QUERN_MISMATCH, "packed", static_cast<int64_t>(h.total_bytes), static_cast<int64_t>(plan.packed_bytes),
      "packed weights are for %.31s with %.47s and weights %lldx%lldx%lldx%lldx%lld, the plan is %s with %s and "
      "another shape or window",
      h.algorithm, h.kernel, static_cast<long long>(h.weights_size[0]), static_cast<long long>(h.weights_size[1]),
      static_cast<long long>(h.weights_size[2]), static_cast<long long>(h.weights_size[3]),
      static_cast<long long>(h.weights_size[4]), plan.algorithm, plan.kernel);
}

struct span {
  uintptr_t begin, end;
  bool meets(const span& o) const { return begin < o.end && o.begin < end; }
};

span span_of(const void* p, uint64_t bytes) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(p);
  return {begin, begin + static_cast<uintptr_t>(bytes)};
}

quern_status check_args(const quern_plan& plan, const kernel& row, const quern_args& a, const quern_exec& e,
                        quern_error* error) {
  const quern_problem& p = plan.problem;
  const uint64_t element = static_cast<uint64_t>(type_bytes(p.src.type));  // of weights, too
  const uint64_t output = static_cast<uint64_t>(type_bytes(p.dst.type));   // of the residual, too
  const uint64_t number = static_cast<uint64_t>(type_bytes(vector_type(p)));
  const uint64_t vector = static_cast<uint64_t>(output_channels(p)) * number;
  const uint64_t weights = plan.packed_bytes ? plan.packed_bytes : bytes_of(p.weights);
  // As it lies, or copied into the workspace first.
  const uint64_t src_align = plan.workspace_bytes ? element : std::max<uint64_t>(element, row.src_align);
  struct operand {
    const char* name;
    const void* pointer;
    uint64_t bytes, align;  // no bytes: not asked for
    span where() const { return span_of(pointer, bytes); }
  };
  const operand src = {"args.src", a.src, bytes_of(p.src), src_align},
                packed = {"args.weights", a.weights, weights, plan.packed_bytes ? QUERN_ALIGN : element},
                residual = {"args.residual", a.residual, p.epilogue.residual ? bytes_of(p.residual) : 0, output},
                scale = {"args.scale", a.scale, p.epilogue.scale ? vector : 0, number},
                bias = {"args.bias", a.bias, p.epilogue.bias ? vector : 0, number},
                slope = {"args.slope", a.slope, p.epilogue.activation == QUERN_PRELU ? vector : 0, number},
                workspace = {"exec.workspace", e.workspace, plan.workspace_bytes, QUERN_ALIGN},
                dst = {"args.dst", a.dst, bytes_of(p.dst), output};
  for (const operand* asked : {&src, &packed, &residual, &scale, &bias, &slope, &workspace, &dst}) {
    const operand& o = *asked;
    if (o.bytes == 0) continue;
    if (!o.pointer)
      return fail(error, QUERN_BUFFER, o.name, 0, static_cast<int64_t>(o.bytes), "%s is NULL, must have %llu bytes",
                  o.name, static_cast<unsigned long long>(o.bytes));
    if (!aligned(o.pointer, o.align))
      return fail(error, QUERN_BUFFER, o.name, static_cast<int64_t>(reinterpret_cast<uintptr_t>(o.pointer) % o.align),
                  static_cast<int64_t>(o.align), "%s is not aligned to %llu bytes", o.name,
                  static_cast<unsigned long long>(o.align));
    if (!addressable(o.pointer, o.bytes))
      return fail(error, QUERN_BUFFER, o.name, static_cast<int64_t>(o.bytes), 0,
                  "%s cannot have %llu bytes: they pass the end of the address space", o.name,
                  static_cast<unsigned long long>(o.bytes));
    const bool in_place = &o == &residual && a.residual == a.dst &&
                          memcmp(p.residual.stride, p.dst.stride, sizeof p.dst.stride) == 0 &&
                          block_of(p.residual.layout) == block_of(p.dst.layout);
    if (&o != &dst && !in_place && o.where().meets(dst.where()))
      return fail(error, QUERN_BUFFER, o.name, 0, 0, "%s overlaps args.dst", o.name);
    if (&o != &workspace && workspace.bytes > 0 && o.where().meets(workspace.where()))
      return fail(error, QUERN_BUFFER, o.name, 0, 0, "%s overlaps exec.workspace", o.name);
  }
  if (e.workspace_bytes < plan.workspace_bytes)
    return fail(error, QUERN_BUFFER, "exec.workspace_bytes", static_cast<int64_t>(e.workspace_bytes),
                static_cast<int64_t>(plan.workspace_bytes),
                "exec.workspace_bytes is %llu, must be at least plan.workspace_bytes = %llu",
                static_cast<unsigned long long>(e.workspace_bytes),
                static_cast<unsigned long long>(plan.workspace_bytes));
  return QUERN_OK;
}

// Weights of output channels [first, first + count), from that of channel `first` on.
quern_status check_plain(const quern_plan& plan, int64_t first, int64_t count, const void* weights, const void* packed,
                         quern_error* error) {
  const quern_tensor& w = plan.problem.weights;
  const int64_t element = type_bytes(w.type);
  const bool is_aligned = aligned(weights, static_cast<uint64_t>(element));
  if (bytes_of(w) == 0) return QUERN_OK;
  if (!weights || !is_aligned || !addressable(weights, bytes_of(w)))
    return fail(error, QUERN_BUFFER, "weights", 0, element, "weights %s",
                !weights      ? "is NULL, must point to the plain weights"
                : !is_aligned ? "is not aligned to its elements"
                              : "passes the end of the address space");
  const range read = weights_read(geometry_of(plan.problem), first, count);
  const span here =
      span_of(static_cast<const char*>(weights) + read.begin * element, static_cast<uint64_t>(read.count() * element));
  if (!here.meets(span_of(packed, plan.packed_bytes))) return QUERN_OK;
  return fail(error, QUERN_BUFFER, "weights", 0, 0, "weights overlaps packed");
}

}  // namespace
}  // namespace quern

using namespace quern;

extern "C" {

uint32_t quern_version(void) noexcept { return QUERN_VERSION; }

quern_status quern_check(uint32_t header, quern_error* error) noexcept {
  const uint32_t library = QUERN_VERSION;
  // While the major version is 0 every minor one may break; the library may be newer, not older.
  const uint32_t unit = library < 10000 ? 100 : 10000;
  if (header / unit == library / unit && header <= library) return QUERN_OK;
  return fail(error, QUERN_MISMATCH, "QUERN_VERSION", header, library,
              "compiled with the header of quern %u.%u.%u, but the library loaded is quern %u.%u.%u", header / 10000,
              header / 100 % 100, header % 100, library / 10000, library / 100 % 100, library % 100);
}

quern_status quern_plan_make(quern_plan* plan, const quern_device* device, const quern_problem* problem,
                             const quern_wish* wish, quern_error* error) noexcept {
  if (!plan) return fail(error, QUERN_INVALID, "plan", 0, 0, "plan is NULL, must point to a quern_plan");
  quern_problem p;
  resolved_wish w;
  if (const quern_status s = complete(problem, p, error)) return s;
  if (const quern_status s = resolve(device, wish, w, error)) return s;
  return make_plan(plan, device, p, w, error);
}

quern_status quern_pack_part(const quern_plan* plan, int64_t first, int64_t count, const void* weights, void* packed,
                             uint64_t packed_bytes, quern_error* error) noexcept {
  plan_state state;
  if (const quern_status s = state_of(plan, state, error)) return s;
  if (const quern_status s = check_packed(*plan, state, packed, packed_bytes, error)) return s;
  const int64_t channels = output_channels(plan->problem);
  if (first < 0 || first > channels)
    return fail(error, QUERN_INVALID, "first", first, channels, "first is %lld, must be 0 to %lld",
                static_cast<long long>(first), static_cast<long long>(channels));
  if (count < 0 || count > channels - first)
    return fail(error, QUERN_INVALID, "count", count, channels - first, "count is %lld, must be 0 to %lld",
                static_cast<long long>(count), static_cast<long long>(channels - first));
  if (count == 0) return QUERN_OK;
  if (const quern_status s = check_plain(*plan, first, count, weights, packed, error)) return s;
  state.algorithm->pack({plan->problem, *state.row, state.blocks}, first, count, weights,
                        static_cast<char*>(packed) + sizeof(blob_header));
  return QUERN_OK;
}

quern_status quern_pack_seal(const quern_plan* plan, void* packed, uint64_t packed_bytes, quern_error* error) noexcept {
  plan_state state;
  if (const quern_status s = state_of(plan, state, error)) return s;
  if (const quern_status s = check_packed(*plan, state, packed, packed_bytes, error)) return s;
  blob_header h = header_of(*plan);
  h.checksum = blob_checksum(h, static_cast<const char*>(packed) + sizeof h);
  memcpy(packed, &h, sizeof h);
  return QUERN_OK;
}

quern_status quern_pack(const quern_plan* plan, const void* weights, void* packed, uint64_t packed_bytes,
                        const quern_exec* exec, quern_error* error) noexcept {
  plan_state state;
  quern_exec e;
  if (const quern_status s = state_of(plan, state, error)) return s;
  if (const quern_status s = take_exec(exec, e, error)) return s;
  if (const quern_status s = check_packed(*plan, state, packed, packed_bytes, error)) return s;
  if (const int64_t channels = output_channels(plan->problem); channels > 0) {
    if (const quern_status s = check_plain(*plan, 0, channels, weights, packed, error)) return s;
    pack_all({plan->problem, *state.row, state.blocks}, *state.algorithm, weights,
             static_cast<char*>(packed) + sizeof(blob_header), e);
  }
  return quern_pack_seal(plan, packed, packed_bytes, error);
}

quern_status quern_packed_check(const quern_plan* plan, const void* packed, uint64_t packed_bytes,
                                quern_error* error) noexcept {
  plan_state state;
  if (const quern_status s = state_of(plan, state, error)) return s;
  if (const quern_status s = check_packed(*plan, state, packed, packed_bytes, error)) return s;
  if (const quern_status s = check_blob(*plan, packed, error)) return s;
  const blob_header& h = *static_cast<const blob_header*>(packed);
  if (blob_checksum(h, static_cast<const char*>(packed) + sizeof h) == h.checksum) return QUERN_OK;
  return fail(error, QUERN_MISMATCH, "packed.checksum", static_cast<int64_t>(h.checksum), 0,
              "packed weights are damaged: the checksum does not fit");
}

quern_status quern_run(const quern_plan* plan, const quern_args* args, const quern_exec* exec,
                       quern_error* error) noexcept {
  plan_state state;
  quern_args a = {};
  quern_exec e;
  if (const quern_status s = state_of(plan, state, error)) return s;
  if (!args) return fail(error, QUERN_INVALID, "args", 0, 0, "args is NULL, must point to a quern_args");
  if (const quern_status s = take(args, a, "args", error)) return s;
  if (a.reserved)
    return fail(error, QUERN_INVALID, "args.reserved", a.reserved, 0, "args.reserved is %u, must be 0", a.reserved);
  if (state.algorithm->launch && !state.device)
    return fail(error, QUERN_UNSUPPORTED, "plan", 0, 0,
                "the plan was made for a GPU that was given as a value; to run it, make it with a device");
  if (const quern_status s = take_exec(exec, e, error, state.device)) return s;
  if (empty(plan->problem)) return QUERN_OK;
  if (const quern_status s = check_args(*plan, *state.row, a, e, error)) return s;
  const job j = {plan->problem, *state.row, state.blocks};
  const char* weights = static_cast<const char*>(a.weights) + (plan->packed_bytes ? sizeof(blob_header) : 0);
  char* workspace = static_cast<char*>(e.workspace);
  if (state.device)
    return state.algorithm->launch(j, {a, *state.device, state.loaded, e.queue, workspace, weights, error});
  if (plan->packed_bytes)
    if (const quern_status s = check_blob(*plan, a.weights, error)) return s;
  if (const uint64_t missing = state.row->isa & ~this_cpu(state.row->isa).isa)
    return fail(error, QUERN_UNSUPPORTED, "plan", static_cast<int64_t>(missing), 0,
                "the plan's kernel %s needs an instruction set that this CPU lacks", plan->kernel);
  state.algorithm->run(j, {a, &e, std::min(plan->threads, e.threads), workspace, weights});
  return QUERN_OK;
}

size_t quern_kernel_count(void) noexcept { return kernel_count(); }

quern_status quern_kernel_get(size_t index, quern_kernel_info* out, quern_error* error) noexcept {
  if (const quern_status s = check_out(out, "quern_kernel_info", error)) return s;
  if (index >= kernel_count())
    return fail(error, QUERN_INVALID, "index", static_cast<int64_t>(index), static_cast<int64_t>(kernel_count()),
                "index is %zu, must be below quern_kernel_count() = %zu", index, kernel_count());
  const kernel& k = kernel_at(index);
  quern_kernel_info info = {};
  info.backend = backend_of(index);
  info.name = k.name;
  info.kind = kind_name(k.kind);
  info.about = k.about;
  info.isa = k.isa;
  info.mr = k.mr, info.nr = k.nr;
  info.capability = k.capability;
  give(info, out, out->size);
  return QUERN_OK;
}

}  // extern "C"
