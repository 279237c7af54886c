// SPDX-License-Identifier: MIT
//
// A CUDA driver that is none: contexts are numbers, a function is the row of its name, and a launch runs the
// kernel's own source on this CPU, thread by thread.  It counts what it is asked for.
#include <map>
#include <string>
#include <vector>

#include "fake_first.h"
#include "fake_gpu.h"
#include "fake_tma.h"
#include "registry.h"

namespace quern::test {
namespace {

void run_on_cpu(const kernel& row, unsigned blocks, void** parameters) {
  switch (row.type) {
    case QUERN_F16: return run_f16(row, blocks, parameters);
    case QUERN_BF16: return run_bf16(row, blocks, parameters);
    case QUERN_S8:
    case QUERN_E4M3: return run_bytes(row, blocks, parameters);
    default: return run_f32(row, blocks, parameters);
  }
}

// What stands for the kernel beside those of conv_tma's rows.
char pixels_last_entry;

// Of each thread: of fake_driver() itself it would be begun only by those who call that.
thread_local std::vector<void*> contexts_below;

}  // namespace

cuda_driver fake_driver() {
  cuda_driver d = {};
  d.init = [](unsigned) { return 0; };
  d.version = [](int* version) { return *version = fake->version, 0; };
  d.error_name = [](int, const char** name) { return *name = "CUDA_ERROR_FAKE", 0; };
  d.error_text = [](int, const char** text) { return *text = "made up", 0; };
  d.current = [](void** context) { return *context = current_context, 0; };
  d.push = [](void* context) {
    if (fake->fails) return fake->fails;
    contexts_below.push_back(current_context), current_context = context;
    return 0;
  };
  d.pop = [](void** context) {
    *context = current_context, current_context = contexts_below.back();
    contexts_below.pop_back();
    return 0;
  };
  d.device = [](int* device) { return ++fake->others, *device = 3, 0; };
  d.attribute = [](int* value, int attribute, int device) {
    ++fake->others;
    const std::map<int, int> values = {
        {cuda_clock_khz, 1980000},        {cuda_multiprocessors, 132},
        {cuda_memory_clock_khz, 3201000}, {cuda_memory_bus_bits, 6144},
        {cuda_l2_bytes, 60 << 20},        {cuda_capability_major, fake->capability / 10},
        {cuda_shared_bytes, 227 << 10},   {cuda_capability_minor, fake->capability % 10}};
    const auto found = values.find(attribute);
    *value = found == values.end() ? -1 : found->second;
    return device == 3 && found != values.end() ? 0 : 1;
  };
  d.load = [](void** module, const void* image) {
    ++fake->loaded;
    *module = const_cast<void*>(image);
    return fake->fails;
  };
  d.unload = [](void*) { return ++fake->unloaded, 0; };
  d.function = [](void** function, void* module, const char* name) {
    ++fake->others;
    for (size_t i = 0; i < kernel_count(); ++i)
      if (kernel_at(i).image == module && strcmp(kernel_at(i).name, name) == 0) {
        *function = const_cast<kernel*>(&kernel_at(i));
        return 0;
      }
    if (strcmp(name, "pixels_last_sm90a") == 0) return *function = &pixels_last_entry, 0;
    return 500;  // CUDA_ERROR_NOT_FOUND
  };
  d.function_attribute = [](int* value, int attribute, void*) {
    ++fake->others;
    *value = attribute == cuda_function_ptx_version ? fake->ptx_version : 0;
    return 0;
  };
  d.set_function_attribute = [](void*, int, int) { return ++fake->others, 0; };
  d.encode_im2col = [](void* map, int, uint32_t rank, void* src, const uint64_t* size, const uint64_t* stride,
                       const int* lower, const int* upper, uint32_t channels, uint32_t pixels, const uint32_t* step,
                       int, int, int, int) {
    fake_map m = {static_cast<const char*>(src), {},       {},     {lower[0], lower[1]},
                  {upper[0], upper[1]},          channels, pixels, {step[1], step[2]}};
    std::copy_n(size, 4, m.size), std::copy_n(stride, 3, m.stride);
    memcpy(map, &m, sizeof m);
    // What the driver checks, too.
    bool fits = rank == 4 && reinterpret_cast<uintptr_t>(src) % 16 == 0 && channels <= 128 && pixels <= 1024;
    for (int i = 0; i < 4; ++i)
      fits = fits && size[i] > 0 && size[i] <= uint64_t{1} << 32 && step[i] > 0 && step[i] <= 8;
    for (int i = 0; i < 3; ++i) fits = fits && stride[i] > 0 && stride[i] % 16 == 0 && stride[i] < uint64_t{1} << 40;
    for (int i = 0; i < 2; ++i)
      fits = fits && lower[i] >= -128 && lower[i] <= 127 && upper[i] >= -128 && upper[i] <= 127;
    return fits ? 0 : 1;
  };
  d.encode_tiled = [](void* map, int, uint32_t rank, void* tensor, const uint64_t* size, const uint64_t* stride,
                      const uint32_t* box, const uint32_t* step, int, int swizzle, int, int) {
    // Swizzled boxes are of elements of 16 bits, others of three axes lines of words.
    bool fits = reinterpret_cast<uintptr_t>(tensor) % 16 == 0 && (swizzle ? rank >= 2 && rank <= 4 && box[0] * 2 <= 128
                                                                  : rank == 3 ? box[0] * 4 % 16 == 0
                                                                              : rank == 4);
    if (!fits) return 1;
    if (rank != 3 || swizzle) {
      fake_boxes m = {static_cast<char*>(tensor), {1, 1, 1, 1}, {}, {1, 1, 1, 1}, swizzle != 0};
      std::copy_n(size, rank, m.size), std::copy_n(stride, rank - 1, m.stride), std::copy_n(box, rank, m.box);
      memcpy(map, &m, sizeof m);
    } else {
      const fake_lines m = {
          static_cast<char*>(tensor), {size[0], size[1], size[2]}, {stride[0], stride[1]}, {box[0], box[1], box[2]}};
      memcpy(map, &m, sizeof m);
    }
    for (uint32_t i = 0; i < rank; ++i)
      fits = fits && size[i] > 0 && size[i] <= uint64_t{1} << 32 && box[i] > 0 && box[i] <= 256 && step[i] == 1;
    for (uint32_t i = 0; i + 1 < rank; ++i)
      fits = fits && stride[i] > 0 && stride[i] % 16 == 0 && stride[i] < uint64_t{1} << 40;
    return fits ? 0 : 1;
  };
  d.launch = [](const cuda_launch* how, void* function, void** parameters, void** extra) {
    ++fake->launches;
    const unsigned x = how->blocks[0];
    fake->stream = how->stream, fake->context = current_context;
    fake->blocks = x, fake->threads = how->threads[0], fake->shared_bytes = how->shared_bytes;
    if (how->blocks[1] != 1 || how->blocks[2] != 1 || how->threads[1] != 1 || how->threads[2] != 1 || extra || x == 0)
      return 1;
    unsigned cluster = 1;
    fake->early = false;
    for (unsigned i = 0; i < how->attribute_count; ++i) {
      if (how->attributes[i].id == cuda_launch_cluster) cluster = how->attributes[i].value[0];
      if (how->attributes[i].id == cuda_launch_early) fake->early = how->attributes[i].value[0] != 0;
    }
    fake->early_launches += fake->early;
    if (x % cluster != 0 || cluster > 8) return 1;
    if (fake->fails) return fake->fails;
    fake->clock_ns +=
        fake->ns && function != &pixels_last_entry ? fake->ns(*static_cast<const kernel*>(function)) : 1000;
    if (fake->idle) return 0;
    if (function == &pixels_last_entry) {
      run_pixels_last(*static_cast<const pixels_last*>(parameters[0]), x);
    } else {
      run_on_cpu(*static_cast<const kernel*>(function), x, parameters);
    }
    return 0;
  };
  // Work is done when it is asked for, also while a graph captures it: a graph that runs once.
  d.copy_to_gpu = [](uint64_t to, const void* from, size_t bytes, void*) {
    return memcpy(reinterpret_cast<void*>(to), from, bytes), 0;
  };
  d.copy_on_gpu = [](uint64_t to, uint64_t from, size_t bytes, void*) {
    return memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes), 0;
  };
  d.wait = [](void*) { return fake->fails; };
  d.begin_capture = [](void*, int) {
    EXPECT_FALSE(fake->capturing);
    fake->capturing = fake->fails == 0;
    return fake->fails;
  };
  d.end_capture = [](void*, void** graph) {
    EXPECT_TRUE(fake->capturing);
    ++fake->graphs, fake->capturing = false, *graph = fake;
    return fake->fails;
  };
  d.instantiate = [](void** ready, void*, unsigned long long) { return ++fake->graphs, *ready = fake, 0; };
  d.launch_graph = [](void*, void*) { return fake->fails; };
  d.destroy_ready = d.destroy_graph = [](void*) { return --fake->graphs, 0; };
  d.make_event = [](void** event, unsigned) { return ++fake->events, *event = &fake->recorded.emplace_back(0), 0; };
  d.destroy_event = [](void*) { return --fake->events, 0; };
  d.record = [](void* event, void*, unsigned) {
    EXPECT_TRUE(fake->capturing);
    return *static_cast<double*>(event) = fake->clock_ns, 0;
  };
  d.elapsed = [](float* ms, void* begin, void* end) {
    *ms = static_cast<float>((*static_cast<double*>(end) - *static_cast<double*>(begin)) * 1e-6);
    return 0;
  };
  return d;
}

}  // namespace quern::test
