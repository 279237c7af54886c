// SPDX-License-Identifier: MIT
//
// The first GPU of NVIDIA's: a context, a stream and memory, through libcuda.so.1, which is opened when this is made;
// and the device that Quern makes of the context.
#pragma once

#include <quern/quern.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tools {

class gpu {
 public:
  gpu();  // throws a stop where there is none, or no driver for it
  ~gpu();
  gpu(const gpu&) = delete;
  gpu& operator=(const gpu&) = delete;

  struct release {
    int (*free)(unsigned long long);
    void operator()(char* memory) const { free(reinterpret_cast<uintptr_t>(memory)); }
  };
  using memory = std::unique_ptr<char, release>;
  memory allocate(uint64_t bytes) const;
  // What `host` holds; `bytes` bytes of it.
  memory copy_of(const void* host, uint64_t bytes) const;
  // Behind all that was put on the stream, and done when they return.
  void copy_there(void* there, const void* host, uint64_t bytes) const;
  void copy_back(void* host, const void* there, uint64_t bytes) const;
  void wait() const;

  const quern_device* device() const { return device_; }
  void* stream() const { return stream_; }
  const std::string& name() const { return name_; }

 private:
  using address = unsigned long long;  // CUdeviceptr
  struct {
    int (*init)(unsigned);
    int (*get)(int*, int);
    int (*get_name)(char*, int, int);
    int (*retain)(void**, int);  // the device's primary context
    int (*drop)(int);
    int (*set_current)(void*);
    int (*allocate)(address*, size_t);
    int (*free)(address);
    int (*to_gpu)(address, const void*, size_t);
    int (*from_gpu)(void*, address, size_t);
    int (*make_stream)(void**, unsigned);
    int (*end_stream)(void*);
    int (*wait)(void*);
    int (*error_text)(int, const char**);
  } cuda_{};
  void require(int code, const char* what) const;

  int number_ = 0;
  void* stream_ = nullptr;
  quern_device* device_ = nullptr;
  std::string name_;
};

// For "cuda"; none for "cpu".
std::unique_ptr<gpu> gpu_of(const std::string& device);

}  // namespace tools
