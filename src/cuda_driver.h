// SPDX-License-Identifier: MIT
//
// What the library needs of CUDA's driver API, declared here: building needs no header of CUDA's, running no
// library but the one that dlopen finds.  Handles are void*, as they are pointers to things without a
// definition there too.
#pragma once

#include <quern/quern.h>

namespace quern {

// CUlaunchAttribute and CUlaunchConfig.
struct cuda_launch_attribute {
  int id;
  alignas(8) unsigned value[16];
};
struct cuda_launch {
  unsigned blocks[3], threads[3], shared_bytes;
  void* stream;
  cuda_launch_attribute* attributes;
  unsigned attribute_count;
};

struct cuda_driver {
  int (*init)(unsigned flags);
  int (*version)(int* version);
  int (*error_name)(int code, const char** name);
  int (*error_text)(int code, const char** text);
  int (*current)(void** context);
  int (*push)(void* context);
  int (*pop)(void** context);
  int (*device)(int* device);
  int (*attribute)(int* value, int attribute, int device);
  int (*load)(void** module, const void* image);
  int (*unload)(void* module);
  int (*function)(void** function, void* module, const char* name);
  int (*function_attribute)(int* value, int attribute, void* function);
  int (*set_function_attribute)(void* function, int attribute, int value);
  int (*launch)(const cuda_launch* how, void* function, void** parameters, void** extra);
  // A map by which the copy engine of capability 9.0 finds pixels of a window, n of them by some channels.
  int (*encode_im2col)(void* map, int type, uint32_t rank, void* address, const uint64_t* size, const uint64_t* stride,
                       const int* lower, const int* upper, uint32_t channels, uint32_t pixels, const uint32_t* step,
                       int interleave, int swizzle, int promotion, int fill);
  // One by which it finds boxes of a tensor.
  int (*encode_tiled)(void* map, int type, uint32_t rank, void* address, const uint64_t* size, const uint64_t* stride,
                      const uint32_t* box, const uint32_t* step, int interleave, int swizzle, int promotion, int fill);
  // What tuning measures with.
  int (*copy_to_gpu)(uint64_t to, const void* from, size_t bytes, void* stream);
  int (*copy_on_gpu)(uint64_t to, uint64_t from, size_t bytes, void* stream);
  int (*wait)(void* stream);
  int (*begin_capture)(void* stream, int mode);
  int (*end_capture)(void* stream, void** graph);
  int (*instantiate)(void** ready, void* graph, unsigned long long flags);
  int (*launch_graph)(void* ready, void* stream);
  int (*destroy_ready)(void* ready);
  int (*destroy_graph)(void* graph);
  int (*make_event)(void** event, unsigned flags);
  int (*destroy_event)(void* event);
  int (*record)(void* event, void* stream, unsigned flags);
  int (*elapsed)(float* ms, void* begin, void* end);
};

// CUdevice_attribute and CUfunction_attribute.
enum {
  cuda_clock_khz = 13,
  cuda_multiprocessors = 16,
  cuda_memory_clock_khz = 36,
  cuda_memory_bus_bits = 37,
  cuda_l2_bytes = 38,
  cuda_capability_major = 75,
  cuda_capability_minor = 76,
  cuda_shared_bytes = 97,          // that a block can ask for
  cuda_function_local_bytes = 3,   // of a thread
  cuda_function_ptx_version = 5,   // the capability that it was compiled for, 10 * major + minor
  cuda_function_shared_bytes = 8,  // dynamic ones that it may be launched with
};
// CUlaunchAttributeID.
enum {
  cuda_launch_cluster = 4,
  cuda_launch_early = 6,  // programmatic stream serialization
};
// CUtensorMapDataType, CUtensorMapSwizzle and CUtensorMapL2promotion.
enum {
  cuda_map_bytes = 0,
  cuda_map_f16 = 6,
  cuda_map_f32 = 7,
  cuda_map_bf16 = 9,
  cuda_map_swizzle_none = 0,
  cuda_map_swizzle_64 = 2,
  cuda_map_swizzle_128 = 3,
  cuda_map_promote_256 = 3,
};

// CUstreamCaptureMode and CUevent_record_flags.
enum {
  cuda_capture_of_thread = 1,  // forbids nothing to other threads
  cuda_record_in_graph = 1,    // an event that the graph records, whenever it runs
};

// What the driver calls an error.
struct cuda_error {
  const char* name = nullptr;
  const char* text = nullptr;
  cuda_error(const cuda_driver& driver, int code) {
    driver.error_name(code, &name), driver.error_text(code, &text);
    if (!name) name = "unknown error";
    if (!text) text = "which this driver has no text for";
  }
};

// From the system's libcuda.so.1, and initialised.
quern_status load_cuda_driver(cuda_driver& out, quern_error*);

}  // namespace quern
