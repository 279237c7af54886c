// SPDX-License-Identifier: MIT
//
// What a bench run found, as JSON and CSV.
#pragma once

#include <quern/quern.h>

#include <string>
#include <vector>

namespace tools {

struct measurement {
  std::string layer, problem, kernel, algorithm, layout;
  uint32_t threads;  // that the plan uses
  bool chosen;
  std::string tuning;  // the level that chose it, else empty
  double tuning_ms;    // that this took
  int samples;
  double over_best;  // timing::over_best
  double ms_median, ms_min, gflops, percent_of_peak, percent_of_copy, rel_l2_error;
  uint64_t workspace_bytes, packed_bytes;
};

// A file that appears when it is whole: written beside its place, then renamed.  "-" is standard output;
// devices and pipes are written directly.  Throws a stop when the place cannot be written to, before any
// work is done.
class output_file {
 public:
  output_file(const char* option, std::string name);
  void write(const std::string& contents) const;

 private:
  std::string name_;
  bool direct_;
};

std::string json_text(const std::vector<measurement>&, const quern_cpu&);
std::string csv_text(const std::vector<measurement>&);

}  // namespace tools
