// SPDX-License-Identifier: MIT
//
// The CPU or the GPU as the choice and the cost models see it.
#pragma once

#include <quern/quern.h>

namespace quern {

struct machine {
  uint64_t isa;
  uint64_t l1, l2, l3;  // bytes, never zero: what is unknown is assumed small
  uint32_t cores;
  uint64_t vector_bits;  // that are multiplied at once
  uint64_t model;        // as quern_cpu has it
  // Of one core; never zero: measured, or of the table of known CPUs.
  double flops;                                   // a nanosecond, f32 multiply-adds counted as two
  double l1_rate, l2_rate, l3_rate, memory_rate;  // bytes a nanosecond, copied: read plus written
  double fork_ns;                                 // an empty parallel_for over all cores
  double cycle_ns;                                // two multiply-adds of the widest vectors: what predictions count in
  quern_gpu gpu;                                  // capability 0: none, the CPU
  uint64_t workspace = INT64_MAX;                 // bytes that the caller lends
};

// The beginnings of vendors' names, as quern_cpu.model has them.
constexpr uint64_t amd = uint64_t{0x68747541} << 32, intel = uint64_t{0x756e6547} << 32;
inline bool is_model_of(uint64_t model, uint64_t vendor) { return model >> 32 == vendor >> 32; }

// What this CPU has, of the instruction sets that are wanted; found once and lock-free, not capped by the environment.
// The system is asked for those of them that it gives to who asks.
quern_cpu this_cpu(uint64_t wanted = ~uint64_t{0});
machine machine_of(const quern_cpu&);
machine machine_of(const quern_gpu&);
inline bool is_gpu(const machine& m) { return m.gpu.capability != 0; }

// f32 multiply-adds of all multiprocessors, counted as two: the peak, per nanosecond.
double gpu_flops_a_ns(const quern_gpu&);
// TF32 multiply-adds of a multiprocessor in a clock, by instructions of one warp.
double gpu_tf32_lanes(const quern_gpu&);

}  // namespace quern
