// SPDX-License-Identifier: MIT
//
// What the command line asks of the choice: a quern_wish, and a CPU that may be another than this one.
#pragma once

#include <quern/quern.h>

#include <string>
#include <vector>

namespace tools {

struct wish_options {
  std::string isa, l1, l2, l3;  // of the CPU to choose for; empty: this one's
  std::string workspace;        // limit
  std::string algorithm, kernel, deny, allow;
  int32_t repeat = 0;
  float src_limit = 0;
  uint32_t threads = 1;
};

// Holds what the wish points to: keep it where it is while the wish is in use.
struct wishes {
  explicit wishes(wish_options);
  wishes(const wishes&) = delete;
  wishes& operator=(const wishes&) = delete;

  wish_options options;
  quern_cpu cpu;
  quern_wish wish;
};

// "48K", "2M", "512": bytes; `option` names it in the error.
uint64_t parse_bytes(const std::string& option, const std::string& value);

// "avx2 avx512"; "none" without any.
std::string isa_text(uint64_t isa);

quern_cpu this_cpu();

// All candidates for a complete problem on this device, NULL: a CPU, or as `query` the front alone; in the library's
// order.  Throws when the wish makes no sense.
std::vector<quern_candidate> candidates(const quern_problem&, const quern_wish&, const quern_device* = nullptr,
                                        decltype(&quern_candidates) query = quern_candidates);

// QUERN_TUNE_* of its name.
int32_t parse_level(const std::string& name);

const char* accuracy_text(quern_accuracy);
const char* repeat_text(int32_t);
std::string version_text(uint32_t version);

}  // namespace tools
