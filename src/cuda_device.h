// SPDX-License-Identifier: MIT
//
// A GPU under a CUDA context of the caller's: what it has, the kernels loaded into it, and launching them.
#pragma once

#include <atomic>

#include "algorithm.h"
#include "cuda_driver.h"

struct quern_device {
  const void* mark;  // of what quern_cuda_open made and nobody closed
  quern::cuda_driver driver;
  void* context;
  quern_gpu gpu;
  // One a row of the kernel table, used at the first row of each fat binary.
  std::atomic<void*>* modules;
};

namespace quern {

// Opens `context`, or the current one, with this driver.
quern_status open_cuda(const cuda_driver&, void* context, quern_device*& out, quern_error*);

// QUERN_INVALID for what is no open device.
quern_status check_device(const quern_device*, quern_error*);

// The functions of an algorithm with this row, and whether they start early, by QUERN_OVERLAP_*; loads its fat binary
// when it isn't yet.
quern_status load_kernel(const quern_device&, const algorithm&, const kernel& row, int32_t overlap, loaded_kernel&,
                         quern_error*);

// A window over an image n h w c: where the first pixels of windows begin and end beside it, and their distance.
struct im2col_map {
  int type;
  const void* src;
  const uint64_t* size;    // c w h n
  const uint64_t* stride;  // bytes: w h n
  const int *lower, *upper;
  uint32_t channels, pixels;  // of one copy
  const uint32_t* step;
};
quern_status encode_im2col(const launching&, void* map, const im2col_map&);

// Boxes of a tensor, as they lie in shared memory: swizzled, rows are 128 bytes at most.
struct tiled_map {
  int type, swizzle;  // before what would be taken for it
  uint32_t rank;
  const void* tensor;
  const uint64_t* size;    // fastest first
  const uint64_t* stride;  // bytes, from the second on
  const uint32_t* box;
};
quern_status encode_tiled(const launching&, void* map, const tiled_map&);

// Puts one kernel on the stream, which gets `parameters` by value.
// shared_bytes: more than the row's, for fewer blocks that share a multiprocessor; of rows that start early.
quern_status launch_kernel(const launching&, const kernel& row, uint32_t blocks, const void* parameters,
                           uint32_t shared_bytes = 0);
// And what comes before it.
quern_status launch_prepare(const launching&, uint32_t blocks, uint32_t threads, const void* parameters);

// Copies on the stream: of this computer's memory, which is free again when it returns; of the GPU's own.
quern_status copy_to_gpu(const quern_device&, void* stream, void* to, const void* from, uint64_t bytes, quern_error*);
quern_status copy_on_gpu(const quern_device&, void* stream, void* to, const void* from, uint64_t bytes, quern_error*);

// Between two events a GPU tells the time.
struct gpu_timer {
  void *begin, *end;
};
quern_status make_timer(const quern_device&, gpu_timer&, quern_error*);
void destroy_timer(const quern_device&, const gpu_timer&);
// What each of `runs` launches takes that follow each other and one that is not timed, all in one graph; waits for the
// stream.
quern_status time_runs(const quern_device&, void* stream, const gpu_timer&, int runs,
                       quern_status (*launch)(void* self), void* self, double& ns, quern_error*);

}  // namespace quern
