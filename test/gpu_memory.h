// SPDX-License-Identifier: MIT
//
// Contexts, memory, streams and graphs of the GPU at hand, through libcuda alone.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace quern::test {

using address = unsigned long long;  // CUdeviceptr

struct gpu_driver {
  int (*init)(unsigned);
  int (*get)(int*, int);
  int (*make_context)(void**, int);  // the primary one
  int (*set_context)(void*);
  int (*allocate)(address*, size_t);
  int (*release)(address);
  int (*to_gpu)(address, const void*, size_t);
  int (*from_gpu)(void*, address, size_t);
  int (*make_stream)(void**, unsigned);
  int (*wait)(void*);
  int (*begin_capture)(void*, int);
  int (*end_capture)(void*, void**);
  int (*instantiate)(void**, void*, unsigned long long);
  int (*launch_graph)(void*, void*);

  static const gpu_driver* get_one() {
    static gpu_driver d = {};
    static const bool there = d.find();
    return there ? &d : nullptr;
  }

 private:
  bool find() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    const auto take = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(library ? dlsym(library, name) : nullptr);
      return function != nullptr;
    };
    int device = 0;
    return take(init, "cuInit") && take(get, "cuDeviceGet") && take(make_context, "cuDevicePrimaryCtxRetain") &&
           take(set_context, "cuCtxSetCurrent") && take(allocate, "cuMemAlloc_v2") && take(release, "cuMemFree_v2") &&
           take(to_gpu, "cuMemcpyHtoD_v2") && take(from_gpu, "cuMemcpyDtoH_v2") &&
           take(make_stream, "cuStreamCreate") && take(wait, "cuStreamSynchronize") &&
           take(begin_capture, "cuStreamBeginCapture_v2") && take(end_capture, "cuStreamEndCapture") &&
           take(instantiate, "cuGraphInstantiateWithFlags") && take(launch_graph, "cuGraphLaunch") && init(0) == 0 &&
           get(&device, 0) == 0;
  }
};

// Memory of exactly this size, a copy of the host's.
class gpu_memory {
 public:
  gpu_memory(const gpu_driver& driver, const void* from, size_t bytes) : driver_(driver), bytes_(bytes) {
    if (bytes == 0) return;
    EXPECT_EQ(driver.allocate(&at_, bytes), 0);
    EXPECT_EQ(driver.to_gpu(at_, from, bytes), 0);
    // It returns when the bytes have left `from`; streams that do not wait for the default one would meet them
    // arriving.
    EXPECT_EQ(driver.wait(nullptr), 0);
  }
  ~gpu_memory() {
    if (at_) driver_.release(at_);
  }
  gpu_memory(const gpu_memory&) = delete;
  gpu_memory& operator=(const gpu_memory&) = delete;
  void* get() const { return reinterpret_cast<void*>(static_cast<uintptr_t>(at_)); }
  void copy_to(void* to) const { EXPECT_EQ(bytes_ ? driver_.from_gpu(to, at_, bytes_) : 0, 0); }

 private:
  const gpu_driver& driver_;
  address at_ = 0;
  size_t bytes_;
};

}  // namespace quern::test
