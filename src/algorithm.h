// SPDX-License-Identifier: MIT
//
// An algorithm is a driver: the portable loop nest that solves an operator with kernels of one kind.
// One source file is one algorithm; its last line is QUERN_ALGORITHM, which puts it into the table.
// A candidate of the choice is an algorithm with a kernel of the kind it drives.
#pragma once

#include "full_problem.h"
#include "kernel.h"
#include "refusal.h"

namespace quern {

struct machine;

// What an algorithm needs to know between plan, pack and run, beside the problem.  Lives in quern_plan.
struct blocking {
  uint64_t packed_bytes;     // of the payload, without the blob's header
  uint64_t workspace_bytes;  // of one worker
  uint32_t workers;          // worth using, at most what the wish has
  uint32_t order;            // of the packed weights, where the algorithm has several
  float src_limit;           // of the wish
  double cycles;             // of a core, for one run's arithmetic alone
  int64_t word[8];           // block sizes: each driver names its own
};

struct cost {
  double ns;     // predicted time of one run on `blocks.workers` threads
  double flops;  // done, padding and tails included
};

// Everything a driver is handed to run or pack.
struct job {
  const quern_problem& problem;  // complete
  const kernel& row;
  const blocking& blocks;
};

struct execution {
  const quern_args& args;
  const quern_exec* exec;  // may be NULL
  uint32_t workers;        // at most blocks.workers
  char* workspace;         // workers * blocks.workspace_bytes, QUERN_ALIGNed
  const char* packed;      // payload, or plain weights
};

// Functions in a GPU's context: the row's, and algorithm.prepare.
struct loaded_kernel {
  void *function, *prepare;
  bool early;  // of the row, where its code is for capability 9.0 and the wish lets it
  bool ahead;  // of that, packed weights too
};

struct launching {
  const quern_args& args;  // the GPU's addresses
  const quern_device& device;
  loaded_kernel loaded;
  void* stream;
  char* workspace;     // blocks.workspace_bytes, QUERN_ALIGNed
  const char* packed;  // payload, or plain weights
  quern_error* error;
};

struct algorithm {
  const char* name;  // public and final, as a kernel's name
  const char* about;
  enum kind drives;
  op_set op;  // that it solves; none: whatever its rows do
  quern_accuracy accuracy;
  int32_t repeat;      // QUERN_REPEAT_*
  bool on_request;     // only when the wish names it (the reference)
  bool transforms;     // drives rows that bring Winograd's transforms
  bool pads;           // multiplies the zeros of padding instead of leaving them out, as all that transform do
  bool splits;         // multiplies parts of each f32, with rows of that type
  bool bounded;        // takes src within wish.src_limit alone
  bool refuses_alike;  // a problem that one row is refused, all are

  // What of the problem, of the row's type, this algorithm and row do not take.
  refusal (*refuse)(const full_problem&, const kernel&);
  // Block sizes and memory, for this machine and number of threads.
  blocking (*choose_blocks)(const full_problem&, const kernel&, const machine&, uint32_t threads);
  cost (*predict)(const full_problem&, const kernel&, const blocking&, const machine&);
  // Cycles that predict stays above; NULL: nothing that is known beforehand.
  double (*least_cycles)(const full_problem&, const kernel&, const machine&);
  double (*error_bound)(const full_problem&);
  // Output channels [first, first + count) of the weights into the payload; NULL: they are used as they are.
  void (*pack)(const job&, int64_t first, int64_t count, const void* weights, char* payload);
  void (*run)(const job&, const execution&);
  // Instead of run: puts the work on a GPU's stream.
  quern_status (*launch)(const job&, const launching&);
  const char* prepare;  // an entry of its rows' images beside theirs, which it may launch first
};

// The error class of the pair's sums.
inline quern_accuracy accuracy_of(const algorithm& a, const kernel& row, quern_type src) {
  return src == QUERN_S8 ? QUERN_ACCURACY_EXACT : row.accuracy ? row.accuracy : a.accuracy;
}

// How far results repeat: integers may be added in any order, and all end in the same multiply-adds of f32; but
// exponentials are everyone's own.
inline int32_t repeat_of(const algorithm& a, const quern_problem& p) {
  if (!sums_exactly(p)) return a.repeat;
  return p.epilogue.activation <= QUERN_PRELU ? QUERN_REPEAT_REF : std::max<int32_t>(a.repeat, QUERN_REPEAT_ISA);
}

}  // namespace quern

#define QUERN_ALGORITHM(name_, ...)                          \
  namespace quern::algorithms {                              \
  extern const algorithm name_;                              \
  constexpr algorithm name_ = {.name = #name_, __VA_ARGS__}; \
  }
