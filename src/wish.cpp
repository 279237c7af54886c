// SPDX-License-Identifier: MIT
#include "wish.h"

#include <float.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "candidate.h"
#include "cuda_device.h"
#include "registry.h"
#include "versioned.h"

namespace quern {
namespace {

bool is_word(const char* word, const char* name, size_t length) {
  return strlen(word) == length && memcmp(word, name, length) == 0;
}

bool is_algorithm(const char* name, size_t length) {
  for (size_t i = 0; i < algorithm_count(); ++i)
    if (is_word(algorithm_at(i).name, name, length)) return true;
  return false;
}

bool is_kernel(const char* name, size_t length) {
  size_t files;
  const kernel_file* const file = kernel_files(files);
  for (size_t i = 0; i < files; ++i)
    for (size_t k = 0; k < file[i].list->count; ++k)
      if (is_word(file[i].list->rows[k].name, name, length)) return true;
  return false;
}

// Calls visit(name, length) for every name of a comma-separated list until it returns false.
template <class Visit>
bool names(const char* list, Visit visit) {
  while (list && *list) {
    list += strspn(list, " ,");
    const size_t length = strcspn(list, " ,");
    if (length && !visit(list, length)) return false;
    list += length;
  }
  return true;
}

// What candidates can be allowed or denied by, beside their names.
struct property {
  const char* name;
  bool (*holds)(const algorithm&, const kernel&);
};
template <quern_accuracy Class>
bool has_class(const algorithm& a, const kernel& row) {
  return accuracy_of(a, row, row.type) == Class;
}
constexpr property properties[] = {
    {"exact", has_class<QUERN_ACCURACY_EXACT>},
    {"f32", has_class<QUERN_ACCURACY_F32>},
    {"f32_fast", has_class<QUERN_ACCURACY_F32_FAST>},
    {"f32_loose", has_class<QUERN_ACCURACY_F32_LOOSE>},
    {"f16", has_class<QUERN_ACCURACY_F16>},
    {"packs", [](const algorithm& a, const kernel&) { return a.pack != nullptr; }},
    {"pads", [](const algorithm& a, const kernel&) { return a.pads || a.transforms; }},
    {"splits", [](const algorithm& a, const kernel& row) { return a.splits && row.type == QUERN_F32; }}};

// The ISA of that name, else 0.
uint64_t isa_of(const char* name, size_t length) {
  for (int bit = 0; bit < 64; ++bit)
    if (const char* isa = quern_isa_name(uint64_t{1} << bit); isa && is_word(isa, name, length))
      return uint64_t{1} << bit;
  return 0;
}

bool is_property(const char* name, size_t length) {
  for (const property& p : properties)
    if (is_word(p.name, name, length)) return true;
  return isa_of(name, length) != 0;
}

quern_status within(quern_error* error, const char* field, int32_t value, int32_t low, int32_t high) {
  if (value >= low && value <= high) return QUERN_OK;
  return fail(error, QUERN_INVALID, field, value, value < low ? low : high, "%s is %d, must be %d to %d", field, value,
              low, high);
}

// Whether a word of the list is a name or property of the pair.
bool listed(const char* list, const algorithm& a, const kernel& row) {
  return !names(list, [&](const char* n, size_t l) {
    if (is_word(a.name, n, l) || is_word(row.name, n, l) || (row.isa & isa_of(n, l))) return false;
    for (const property& p : properties)
      if (is_word(p.name, n, l)) return !p.holds(a, row);
    return true;
  });
}

}  // namespace

refusal ruled_out(const algorithm& a, const kernel& row, const quern_wish& w) {
  if (w.algorithm ? strcmp(w.algorithm, a.name) != 0 : a.on_request) return {QUERN_REASON_WISH, "wish.algorithm", 0, 0};
  if (w.kernel && strcmp(w.kernel, row.name) != 0) return {QUERN_REASON_WISH, "wish.kernel", 0, 0};
  if (listed(w.deny, a, row)) return {QUERN_REASON_WISH, "wish.deny", 0, 0};
  if (w.allow && !listed(w.allow, a, row)) return {QUERN_REASON_WISH, "wish.allow", 0, 0};
  return {};
}

quern_status resolve(const quern_device* device, const quern_wish* given, resolved_wish& out, quern_error* error) {
  out = {};
  if (device)
    if (const quern_status s = check_device(device, error)) return s;
  if (const quern_status s = take(given, out.wish, "wish", error)) return s;
  quern_wish& w = out.wish;
  if (w.algorithm && !is_algorithm(w.algorithm, strlen(w.algorithm)))
    return fail(error, QUERN_INVALID, "wish.algorithm", 0, 0,
                "wish.algorithm is '%.60s', no algorithm of this build has that name", w.algorithm);
  if (w.kernel && !is_kernel(w.kernel, strlen(w.kernel)))
    return fail(error, QUERN_INVALID, "wish.kernel", 0, 0,
                "wish.kernel is '%.60s', no kernel of this build has that name", w.kernel);
  const struct { const char *field, *list; } lists[] = {{"wish.deny", w.deny}, {"wish.allow", w.allow}};
  for (const auto& l : lists) {
    const char* stranger = nullptr;
    size_t length = 0;
    if (!names(l.list, [&](const char* n, size_t bytes) {
          return is_algorithm(n, bytes) || is_kernel(n, bytes) || is_property(n, bytes) ||
                 (stranger = n, length = bytes, false);
        }))
      return fail(error, QUERN_INVALID, l.field, 0, 0,
                  "%s has '%.*s', no algorithm, kernel or property of this build has that name", l.field,
                  static_cast<int>(std::min<size_t>(length, 60)), stranger);
  }
  if (const quern_status s = within(error, "wish.repeat", w.repeat, QUERN_REPEAT_RUN, QUERN_REPEAT_REF)) return s;
  if (const quern_status s = within(error, "wish.overlap", w.overlap, QUERN_OVERLAP_START, QUERN_OVERLAP_NONE))
    return s;
  if (const quern_status s = within(error, "wish.verbose", w.verbose, -1, 2)) return s;
  if (!(w.src_limit >= 0 && w.src_limit <= FLT_MAX))
    return fail(error, QUERN_INVALID, "wish.src_limit", 0, 0, "wish.src_limit is %g, must be finite and at least 0",
                static_cast<double>(w.src_limit));
  if (!w.tuning && w.tuning_bytes)
    return fail(error, QUERN_INVALID, "wish.tuning", 0, static_cast<int64_t>(w.tuning_bytes),
                "wish.tuning is NULL, must have wish.tuning_bytes = %zu bytes", w.tuning_bytes);
  if (w.cpu && (w.gpu || device))
    return fail(error, QUERN_INVALID, "wish.cpu", 1, 0, "wish.cpu must be NULL: the choice is for a GPU");
  if (w.gpu || device) {
    quern_gpu gpu = device ? device->gpu : quern_gpu{};
    if (const quern_status s = take(w.gpu, gpu, "wish.gpu", error)) return s;
    if (gpu.reserved)
      return fail(error, QUERN_INVALID, "wish.gpu.reserved", gpu.reserved, 0, "wish.gpu.reserved is %u, must be 0",
                  gpu.reserved);
    if (gpu.capability < 10 || (device && gpu.capability > device->gpu.capability))
      return fail(error, QUERN_INVALID, "wish.gpu.capability", gpu.capability,
                  gpu.capability < 10 ? 10 : device->gpu.capability, "wish.gpu.capability is %u, must be at least 10%s",
                  gpu.capability, device ? " and at most the device's" : "");
    out.machine = machine_of(gpu);
  } else {
    quern_cpu cpu = {};
    cpu.size = sizeof cpu;
    if (w.cpu) {
      if (const quern_status s = take(w.cpu, cpu, "wish.cpu", error)) return s;
    } else if (const quern_status s = quern_cpu_get(&cpu, error)) {
      return s;
    }
    out.machine = machine_of(cpu);
    out.runs_isa = cpu.isa, out.withheld_isa = cpu.withheld_isa;
  }
  if (w.workspace_limit) out.machine.workspace = w.workspace_limit;
  out.verbose = w.verbose;
  if (w.verbose == 0)
    if (const char* level = getenv("QUERN_VERBOSE"))
      out.verbose = *level >= '0' && *level <= '9' ? std::min(*level - '0', 2) : 0;
  return QUERN_OK;
}

}  // namespace quern
