// SPDX-License-Identifier: MIT
//
// A CUDA driver that is none: contexts are numbers, a function is the row of its name, and a launch runs the
// kernel's own source on this CPU, thread by thread.  It counts what it is asked for.
#pragma once

#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "cuda/implicit_f32.h"
#include "cuda/reference.h"
#include "cuda_device.h"
#include "registry.h"

namespace quern::test {

struct fake_gpu {
  int version = 13000, capability = 90, fails = 0;  // fails: what every call returns
  std::atomic<int> loaded{0}, unloaded{0}, launches{0}, others{0};
  void* stream = nullptr;  // of the last launch
  void* context = nullptr;
  unsigned blocks = 0, threads = 0, shared_bytes = 0;
};

inline fake_gpu* fake = nullptr;  // the one that the driver's functions work on
inline thread_local void* current_context = nullptr;

// Blocks one after the other, threads in turn between barriers, shared memory full of NaN.
template <class Tile>
void run_tiles(const implicit_f32& a, const implicit_tap* taps, unsigned blocks) {
  for (unsigned block = 0; block < blocks; ++block) {
    std::vector<four_floats> shared(Tile::shared_bytes / sizeof(four_floats) + 1);
    memset(static_cast<void*>(shared.data()), 0xff, shared.size() * sizeof shared[0]);
    std::vector<Tile> threads;
    threads.reserve(Tile::threads);
    for (int i = 0; i < Tile::threads; ++i) threads.emplace_back(a, taps, block, i, shared[0].v);
    const auto all = [&](auto f) {
      for (Tile& t : threads) f(t);
    };
    all([](Tile& t) { t.load(); });
    all([](Tile& t) { t.load(); });
    for (int32_t i = 0; i < a.steps; ++i) {
      all([](Tile& t) { t.load(); });
      all([](Tile& t) { t.multiply(); });
    }
    all([](Tile& t) { t.find_places(); });
    for (int half = 0; half < 2; ++half) {
      all([=](Tile& t) { t.stage(half); });
      all([=](Tile& t) { t.finish(half); });
    }
  }
}

inline void run_on_cpu(const kernel& row, unsigned blocks, void** parameters) {
  if (row.kind == kind::reference_cuda) {
    const auto& r = *static_cast<const reference_cuda*>(parameters[0]);
    const int64_t all = int64_t{blocks} * row.threads;
    for (int64_t thread = 0; thread < all; ++thread)
      for (int64_t i = thread; i < r.elements; i += all) reference_output(r, i);
    return;
  }
  const auto tiles = [&](const char* name, auto run, const implicit_tap* taps = nullptr) {
    if (std::string("implicit_f32_") + name + "_sm75" == row.name)
      run(*static_cast<const implicit_f32*>(parameters[0]), taps, blocks);
  };
  tiles("128x128", run_tiles<implicit_128x128>);
  tiles("128x64", run_tiles<implicit_128x64>);
  tiles("64x64", run_tiles<implicit_64x64>);
  tiles("128x128_division", run_tiles<implicit_128x128_division>);
  tiles("128x128_table", run_tiles<implicit_128x128_table>, static_cast<const implicit_f32_table*>(parameters[0])->tap);
  tiles("128x128_any", run_tiles<implicit_128x128_any>);
  tiles("128x64_any", run_tiles<implicit_128x64_any>);
  tiles("64x64_any", run_tiles<implicit_64x64_any>);
}

inline cuda_driver fake_driver() {
  cuda_driver d = {};
  d.init = [](unsigned) { return 0; };
  d.version = [](int* version) { return *version = fake->version, 0; };
  d.error_name = [](int, const char** name) { return *name = "CUDA_ERROR_FAKE", 0; };
  d.error_text = [](int, const char** text) { return *text = "made up", 0; };
  d.current = [](void** context) { return *context = current_context, 0; };
  // One level is as deep as the library goes.
  static thread_local void* below;
  d.push = [](void* context) {
    if (fake->fails) return fake->fails;
    below = current_context, current_context = context;
    return 0;
  };
  d.pop = [](void** context) { return *context = current_context, current_context = below, 0; };
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
    return 500;  // CUDA_ERROR_NOT_FOUND
  };
  d.function_attribute = [](int* value, int, void*) { return ++fake->others, *value = 0, 0; };
  d.set_function_attribute = [](void*, int, int) { return ++fake->others, 0; };
  d.launch = [](void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                unsigned threads_z, unsigned shared_bytes, void* stream, void** parameters, void** extra) {
    const kernel& row = *static_cast<const kernel*>(function);
    ++fake->launches;
    fake->stream = stream, fake->context = current_context;
    fake->blocks = x, fake->threads = threads, fake->shared_bytes = shared_bytes;
    if (y != 1 || z != 1 || threads_y != 1 || threads_z != 1 || extra || x == 0) return 1;
    if (fake->fails == 0) run_on_cpu(row, x, parameters);
    return fake->fails;
  };
  return d;
}

}  // namespace quern::test
