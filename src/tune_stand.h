// SPDX-License-Identifier: MIT
//
// Where the candidates of a race are made ready, run and timed: what quern_tune needs of a CPU, and of a GPU.
#pragma once

#include "choose.h"
#include "cuda_device.h"
#include "problem.h"

namespace quern {

inline constexpr int most_samples = 48, most_trials = 160;

// One that is measured.
struct trial {
  option o;
  variation as;
  char* packed;          // CPU: its weights, payload alone; NULL: not packed yet, or taken as they are
  loaded_kernel loaded;  // GPU: without a function not loaded yet
  double sample[most_samples];
  int samples, runs;  // runs of a sample
  int left;           // the stage and round after which it left: who stays longer is the better
  double median, least;
};

// The caller's memory, cut up from the front; a GPU's is nothing but addresses here.
struct arena {
  char* at;
  uint64_t left;

  static uint64_t aligned(uint64_t bytes) { return (bytes + QUERN_ALIGN - 1) / QUERN_ALIGN * QUERN_ALIGN; }
  char* take(uint64_t bytes) {
    bytes = aligned(bytes);
    if (bytes > left) return nullptr;
    char* const here = at;
    at += bytes, left -= bytes;
    return here;
  }
};

// Of scale, bias or slope.
inline uint64_t vector_bytes(const quern_problem& p) {
  return uint64_t(output_channels(p) * type_bytes(vector_type(p)));
}
inline uint64_t workspace_of(const option& o) { return o.blocks.workspace_bytes * o.blocks.workers; }
inline uint64_t packed_of(const option& o) { return o.algorithm->pack ? arena::aligned(o.blocks.packed_bytes) : 0; }

// What the race of some options needs: other block sizes are tried too, with so many times the workspace.
struct race_size {
  const option* options;
  int count;
  bool again;
  uint64_t workspaces;

  uint64_t workspace() const;
  uint64_t most_packed() const;
};

// The CPU at hand, by the caller's threads: operands stay where they are from run to run, each trial has its own
// weights.
class cpu_stand {
 public:
  static uint64_t bytes(const full_problem&, const resolved_wish&, const race_size&);

  cpu_stand(const full_problem& p, const resolved_wish&, const quern_exec& exec) : p_(p), exec_(exec) {}
  // Memory for most_trials, and operands; NULL: none, status() says why.
  trial* begin(const race_size&);
  bool can_run(const trial&) const;
  // Packs, or loads; false: it cannot be had.
  bool make_ready(trial&, const trial* all, int count);
  // Weights that L2 does not keep come from memory first, and an L3 takes them in little by little: the fifth run is at
  // full speed, the first takes twice as long (Granite Rapids, 37 MB).
  static int untimed_runs(const trial& t) { return t.o.blocks.packed_bytes > uint64_t{1} << 20 ? 5 : 1; }
  // ns of each of `runs` runs, after those: what another left in the caches is no merit or fault of this one.
  double time(const trial&, int runs);
  quern_status status() const { return QUERN_OK; }

 private:
  void launch(const trial&);

  const full_problem& p_;
  const quern_exec& exec_;
  arena memory_ = {static_cast<char*>(exec_.workspace), exec_.workspace_bytes};
  quern_args args_ = {};
  const char* weights_ = nullptr;
  char* workspace_ = nullptr;
  uint64_t workspace_bytes_ = 0;
};

// A GPU: runs are captured in a graph on the caller's stream, so that no launch is waited for, and timed by events.
// They go round through as many sets of operands as L2 does not hold: each finds its own in memory, as in a network.
// Weights are as random as the rest, in whatever order a kernel takes them.
class gpu_stand {
 public:
  static uint64_t bytes(const full_problem&, const resolved_wish&, const race_size&);

  gpu_stand(const full_problem&, const resolved_wish&, const quern_exec&, const quern_device&, quern_error*);
  ~gpu_stand();
  gpu_stand(const gpu_stand&) = delete;
  gpu_stand& operator=(const gpu_stand&) = delete;
  trial* begin(const race_size&);
  bool can_run(const trial& t) const {
    return workspace_of(t.o) <= workspace_bytes_ && packed_of(t.o) <= packed_bytes_;
  }
  bool make_ready(trial&, const trial* all, int count);
  static int untimed_runs(const trial&) { return 1; }
  double time(const trial&, int runs);
  quern_status status() const { return status_; }

 private:
  quern_status launch(const trial&);

  const full_problem& p_;
  const resolved_wish& w_;
  const quern_exec& exec_;
  const quern_device& device_;
  quern_error* const error_;
  quern_status status_ = QUERN_OK;
  trial* trials_ = nullptr;
  gpu_timer timer_ = {};
  quern_args args_ = {};  // of the first set
  uint64_t set_bytes_ = 0, sets_ = 0, next_ = 0;
  char* workspace_ = nullptr;
  uint64_t workspace_bytes_ = 0, packed_bytes_ = 0;
};

}  // namespace quern
