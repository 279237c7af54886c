// SPDX-License-Identifier: MIT
#include "gpu.h"

#include <dlfcn.h>

#include <type_traits>

#include "stop.h"

namespace tools {

void gpu::require(int code, const char* what) const {
  if (code == 0) return;
  const char* text = nullptr;
  cuda_.error_text(code, &text);
  throw stop{failed,
             std::string("--device cuda: ") + what + ": " + (text ? text : "CUDA error " + std::to_string(code))};
}

gpu::gpu() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) throw stop{failed, "--device cuda: libcuda.so.1 cannot be loaded, is NVIDIA's driver installed?"};
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function) throw stop{failed, std::string("--device cuda: this libcuda.so.1 has no ") + name};
  };
  find(cuda_.error_text, "cuGetErrorString");
  find(cuda_.init, "cuInit");
  find(cuda_.get, "cuDeviceGet");
  find(cuda_.get_name, "cuDeviceGetName");
  find(cuda_.retain, "cuDevicePrimaryCtxRetain");
  find(cuda_.drop, "cuDevicePrimaryCtxRelease_v2");
  find(cuda_.set_current, "cuCtxSetCurrent");
  find(cuda_.allocate, "cuMemAlloc_v2");
  find(cuda_.free, "cuMemFree_v2");
  find(cuda_.to_gpu, "cuMemcpyHtoD_v2");
  find(cuda_.from_gpu, "cuMemcpyDtoH_v2");
  find(cuda_.make_stream, "cuStreamCreate");
  find(cuda_.end_stream, "cuStreamDestroy_v2");
  find(cuda_.wait, "cuStreamSynchronize");
  require(cuda_.init(0), "cuInit");
  require(cuda_.get(&number_, 0), "cuDeviceGet");
  char name[256] = {};
  require(cuda_.get_name(name, sizeof name, number_), "cuDeviceGetName");
  name_ = name;

  void* context = nullptr;
  require(cuda_.retain(&context, number_), "cuDevicePrimaryCtxRetain");
  require(cuda_.set_current(context), "cuCtxSetCurrent");
  quern_error error{};
  need(quern_cuda_open(&device_, nullptr, &error), error, "--device cuda");
  // One that the default stream does not wait for.
  require(cuda_.make_stream(&stream_, 1), "cuStreamCreate");
}

gpu::~gpu() {
  quern_device_close(device_);
  cuda_.end_stream(stream_);
  cuda_.drop(number_);
}

gpu::memory gpu::allocate(uint64_t bytes) const {
  address at = 0;
  if (bytes > 0) require(cuda_.allocate(&at, bytes), "cuMemAlloc");
  return {reinterpret_cast<char*>(static_cast<uintptr_t>(at)), {cuda_.free}};
}

gpu::memory gpu::copy_of(const void* host, uint64_t bytes) const {
  memory there = allocate(bytes);
  copy_there(there.get(), host, bytes);
  return there;
}

void gpu::copy_there(void* there, const void* host, uint64_t bytes) const {
  wait();
  require(cuda_.to_gpu(reinterpret_cast<uintptr_t>(there), host, bytes), "cuMemcpyHtoD");
  // It returns when the bytes have left `host`, and this stream does not wait for the one that carries them.
  require(cuda_.wait(nullptr), "cuStreamSynchronize");
}

void gpu::copy_back(void* host, const void* there, uint64_t bytes) const {
  wait();
  require(cuda_.from_gpu(host, reinterpret_cast<uintptr_t>(there), bytes), "cuMemcpyDtoH");
}

void gpu::wait() const { require(cuda_.wait(stream_), "cuStreamSynchronize"); }

std::unique_ptr<gpu> gpu_of(const std::string& device) { return device == "cuda" ? std::make_unique<gpu>() : nullptr; }

}  // namespace tools
