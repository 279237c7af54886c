// SPDX-License-Identifier: MIT
#include "wishes.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "stop.h"
#include "table.h"

namespace tools {
namespace {

// An ISA's name means it and all below it of its family, as in QUERN_ISA; "ref" means none.
uint64_t parse_isa(const std::string& name) {
  uint64_t isa = 0;
  std::string known = "ref";
  if (name == "ref") return isa;
  for (int bit = 0; bit < 64; ++bit) {
    const char* const row = quern_isa_name(uint64_t{1} << bit);
    if (!row) continue;
    if (isa >> (bit / 16 * 16) == 0) isa = 0;  // 16 bits a family
    isa |= uint64_t{1} << bit;
    if (name == row) return isa;
    known += std::string(", ") + row;
  }
  throw stop{bad_input, "--isa is '" + name + "', must be one of " + known};
}

}  // namespace

uint64_t parse_bytes(const std::string& option, const std::string& value) {
  const stop wrong = {bad_input, option + " is '" + value + "', must be bytes such as 49152, 48K or 2M"};
  if (value.empty() || value[0] < '0' || value[0] > '9') throw wrong;
  char* end = nullptr;
  errno = 0;
  const unsigned long long number = std::strtoull(value.c_str(), &end, 10);
  const char* const units = "KMG";
  int shift = 0;
  if (*end) {
    const char* const unit = std::strchr(units, *end);
    if (!unit || end[1]) throw wrong;
    shift = 10 * static_cast<int>(unit - units + 1);
  }
  if (errno == ERANGE || number > UINT64_MAX >> (shift + 1)) throw wrong;
  return static_cast<uint64_t>(number) << shift;
}

std::string isa_text(uint64_t isa) {
  std::string names;
  for (int bit = 0; bit < 64; ++bit) {
    const char* const name = (isa >> bit & 1) ? quern_isa_name(uint64_t{1} << bit) : nullptr;
    if (name) names += (names.empty() ? "" : " ") + std::string(name);
  }
  return names.empty() ? "none" : names;
}

quern_cpu this_cpu() {
  quern_cpu cpu = {};
  cpu.size = sizeof cpu;
  quern_error error = {};
  need(quern_cpu_get(&cpu, &error), error, "this CPU");
  return cpu;
}

wishes::wishes(wish_options given) : options(std::move(given)), cpu(this_cpu()), wish() {
  // What is known of this CPU says nothing of another, so that the answer is the same on every machine.
  if (!options.isa.empty() || !options.l1.empty() || !options.l2.empty() || !options.l3.empty())
    cpu.model = cpu.vector_bits = 0, cpu.cores = options.threads;
  if (!options.isa.empty()) cpu.isa = parse_isa(options.isa);
  if (!options.l1.empty()) cpu.l1_bytes = parse_bytes("--l1", options.l1);
  if (!options.l2.empty()) cpu.l2_bytes = parse_bytes("--l2", options.l2);
  if (!options.l3.empty()) cpu.l3_bytes = parse_bytes("--l3", options.l3);
  wish.size = sizeof wish;
  wish.threads = options.threads;
  wish.algorithm = options.algorithm.empty() ? nullptr : options.algorithm.c_str();
  wish.kernel = options.kernel.empty() ? nullptr : options.kernel.c_str();
  wish.deny = options.deny.empty() ? nullptr : options.deny.c_str();
  wish.allow = options.allow.empty() ? nullptr : options.allow.c_str();
  wish.repeat = options.repeat;
  wish.src_limit = options.src_limit;
  wish.cpu = &cpu;
  if (!options.workspace.empty()) {
    const uint64_t limit = parse_bytes("--workspace", options.workspace);
    wish.workspace_limit = limit ? limit : 1;  // 0 would mean no limit
  }
}

std::vector<quern_candidate> candidates(const quern_problem& problem, const quern_wish& wish,
                                        const quern_device* device, decltype(&quern_candidates) query) {
  quern_error error = {};
  size_t count = 0;
  need(query(device, &problem, &wish, nullptr, 0, &count, &error), error, "the choice");
  std::vector<quern_candidate> all(count + 1);
  all[0].size = sizeof(quern_candidate);
  need(query(device, &problem, &wish, all.data(), all.size(), &count, &error), error, "the choice");
  all.resize(count);
  return all;
}

int32_t parse_level(const std::string& name) {
  const char* const names[] = {"none", "fast", "normal", "wide", "heavy"};
  for (int32_t level = QUERN_TUNE_NONE; level <= QUERN_TUNE_HEAVY; ++level)
    if (name == names[level]) return level;
  throw stop{bad_input, "the level of tuning is '" + name + "', must be none, fast, normal, wide or heavy"};
}

const char* accuracy_text(quern_accuracy accuracy) {
  switch (accuracy) {
    case QUERN_ACCURACY_DEFAULT: return "default";
    case QUERN_ACCURACY_EXACT: return "exact";
    case QUERN_ACCURACY_F32: return "f32";
    case QUERN_ACCURACY_F32_FAST: return "f32_fast";
    case QUERN_ACCURACY_F32_LOOSE: return "f32_loose";
    case QUERN_ACCURACY_F16: return "f16";
    default: return "?";
  }
}

const char* repeat_text(int32_t repeat) {
  switch (repeat) {
    case QUERN_REPEAT_RUN: return "run";
    case QUERN_REPEAT_THREADS: return "threads";
    case QUERN_REPEAT_BATCH: return "batch";
    case QUERN_REPEAT_ISA: return "isa";
    case QUERN_REPEAT_REF: return "ref";
    default: return "?";
  }
}

std::string version_text(uint32_t version) {
  return text("%u.%u.%u", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace tools
