// SPDX-License-Identifier: MIT
//
// A GPU that is none: what it is, what it was asked for, and its driver.
#pragma once

#include <atomic>
#include <list>

#include "cuda_device.h"

namespace quern::test {

struct fake_gpu {
  int version = 13000, capability = 90, fails = 0;  // fails: what every call returns
  std::atomic<int> loaded{0}, unloaded{0}, launches{0}, others{0};
  void* stream = nullptr;  // of the last launch
  void* context = nullptr;
  unsigned blocks = 0, threads = 0, shared_bytes = 0;
  int ptx_version = 90;  // that all code was compiled from
  bool early = false;    // whether the last launch may start before what precedes it has ended
  int early_launches = 0;
  bool ahead = false;  // and that of conv_tma requests its weights
  // Time goes on by launches: by so many ns each, 1000 where nothing says it; `idle`: which compute nothing.
  double clock_ns = 0;
  double (*ns)(const kernel&) = nullptr;
  bool idle = false, capturing = false;
  int events = 0, graphs = 0;  // that nobody has destroyed
  std::list<double> recorded;  // what events tell
};

inline fake_gpu* fake = nullptr;  // the one that the driver's functions work on
inline thread_local void* current_context = nullptr;

// Contexts are numbers, a function is the row of its name, and a launch runs the kernel's own source on this CPU,
// thread by thread.
cuda_driver fake_driver();

// Its launches, by the row's type.
void run_f32(const kernel& row, unsigned blocks, void** parameters);
void run_f16(const kernel& row, unsigned blocks, void** parameters);
void run_bf16(const kernel& row, unsigned blocks, void** parameters);
void run_bytes(const kernel& row, unsigned blocks, void** parameters);  // elements of 8 bits

}  // namespace quern::test
