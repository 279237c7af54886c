// SPDX-License-Identifier: MIT
//
// Comparisons of techniques: two or more ways of doing the same, built from the library's own parts, timed side
// by side in one process on random data.  `scripts/compare` makes tables and plots of what they find.
#pragma once

#include <quern/quern.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "measure.h"
#include "operands.h"

namespace compare {

// One way of doing what its rivals do.
struct arm {
  std::string name;
  uint64_t workspace_bytes = 0;         // beside operands and packed weights
  std::function<void()> run;            // empty: only the workspace is of interest
  std::function<double()> error;        // after a run, of the largest against float64; empty: nothing to be wrong
  double tuning_ms = 0;                 // that finding it took
  bool single = false;                  // a sample is one run: how they differ is of interest
  std::function<void()> prepare = {};   // before each sample instead of a run that is not timed
  std::function<double()> sample = {};  // in place of run: ms of one, where another clock than this CPU's tells them
};

struct row {
  std::string comparison, of, arm;
  int number;
  uint64_t workspace_bytes;
  size_t samples;  // 0: not run
  double ms_min, ms_median, ms_p95, ms_p99, variation, gflops, percent_of_peak, max_error, tuning_ms;
  std::string gpu;  // empty: this CPU
};

// Times the arms of one case after another: rounds in which each gives one sample, in turn.
class ring {
 public:
  explicit ring(int rounds) : rounds_(rounds) {}
  void begin(const char* comparison, int number) { comparison_ = comparison, number_ = number, gpu_.clear(); }
  void on(const std::string& gpu) { gpu_ = gpu; }  // the cases that follow
  // `flops` 0: bandwidth, latency or memory is compared, not arithmetic.
  void play(const std::string& of, double flops, const std::vector<arm>&);
  const std::vector<row>& rows() const { return rows_; }

 private:
  int rounds_, number_ = 0;
  const char* comparison_ = "";
  std::string gpu_;
  std::vector<row> rows_;
};

// A problem with its operands, and the float64 result of its first and last output channel.
class task {
 public:
  explicit task(const std::string& line);  // as `quern bench` takes it
  explicit task(const quern_problem&);     // complete
  const quern_problem& problem() const { return problem_; }
  const tools::operands& data() const { return data_; }
  double flops() const;
  double max_error() const;  // of dst as it stands, over the largest magnitude of the result

 private:
  quern_problem problem_;
  tools::operands data_;
  std::vector<double> first_, last_;
};

// The library's own way; NULL: its choice.
arm planned(const std::shared_ptr<task>&, const std::string& name, const char* algorithm, const char* kernel = nullptr);

// By a wish, with the threads of a pool; NULL: this one alone.
arm planned(const std::shared_ptr<task>&, const std::string& name, const quern_wish&,
            const std::shared_ptr<tools::pool>& = nullptr);

// The comparisons, by number of docs/performance.md.
void im2col_workspace(ring&);
void im2col_blocked(ring&);
void fused_packing(ring&);
void winograd_tiled(ring&);
void winograd_reduction(ring&);
void layouts(ring&);
void aligned_reads(ring&);
void sliding_window(ring&);
void few_outputs(ring&);
void stored_outputs(ring&);
void profiled(ring&);
void networks(ring&);
void threads(ring&);
void variance(ring&);
void gpu_indices(ring&);
void gpu_reduction(ring&);

}  // namespace compare
