// SPDX-License-Identifier: MIT
//
// The verbs of the quern command.  Each returns the exit status, or throws a stop.
#pragma once

#include <string>
#include <vector>

#include "jobs.h"
#include "wishes.h"

namespace tools {

int run_info();

int run_kernels();

struct explain_options {
  std::vector<std::string> words;  // of one layer
  std::string file;                // of tuning, to choose by
  std::string device = "cpu";      // or "cuda"
  bool json = false, all = false, front = false;
  wish_options wishes;
};
int run_explain(const explain_options&);

struct bench_options : job_options {
  std::string json, csv;          // file names, "-" standard output
  std::vector<std::string> tune;  // levels
  bool all = false;
  double budget_ms = 100;
  wish_options wishes;
};
int run_bench(const bench_options&);

struct tune_options : job_options {
  std::string file;
  std::string level = "normal";
  uint32_t ms = 0, launches = 0;
  bool merge = false, read_only = false;
  wish_options wishes;
};
int run_tune(const tune_options&);

struct selftest_options {
  std::vector<std::string> layers;  // instead of the fixed ones
  uint32_t threads = 0;
};
int run_selftest(const selftest_options&);

}  // namespace tools
