// SPDX-License-Identifier: MIT
#include "cuda_driver.h"

#include <dlfcn.h>
#include <string.h>

#include "error.h"

namespace quern {
namespace {

// A driver keeps to what a name has meant since its version suffix; _v2 came with CUDA 4.
constexpr const char* names[] = {"cuInit",
                                 "cuDriverGetVersion",
                                 "cuGetErrorName",
                                 "cuGetErrorString",
                                 "cuCtxGetCurrent",
                                 "cuCtxPushCurrent_v2",
                                 "cuCtxPopCurrent_v2",
                                 "cuCtxGetDevice",
                                 "cuDeviceGetAttribute",
                                 "cuModuleLoadData",
                                 "cuModuleUnload",
                                 "cuModuleGetFunction",
                                 "cuFuncGetAttribute",
                                 "cuFuncSetAttribute",
                                 "cuLaunchKernelEx",
                                 "cuTensorMapEncodeIm2col",
                                 "cuTensorMapEncodeTiled",
                                 "cuMemcpyHtoDAsync_v2",
                                 "cuMemcpyDtoDAsync_v2",
                                 "cuStreamSynchronize",
                                 "cuStreamBeginCapture_v2",
                                 "cuStreamEndCapture",
                                 "cuGraphInstantiateWithFlags",
                                 "cuGraphLaunch",
                                 "cuGraphExecDestroy",
                                 "cuGraphDestroy",
                                 "cuEventCreate",
                                 "cuEventDestroy_v2",
                                 "cuEventRecordWithFlags",
                                 "cuEventElapsedTime"};
static_assert(sizeof names / sizeof names[0] * sizeof(void*) == sizeof(cuda_driver), "in the order of its members");

}  // namespace

quern_status load_cuda_driver(cuda_driver& out, quern_error* error) {
  // Never unloaded: drivers keep threads.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library)
    return fail(error, QUERN_UNSUPPORTED, "libcuda.so.1", 0, 0,
                "libcuda.so.1 cannot be loaded, is NVIDIA's driver installed? %.300s", dlerror());
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    void* function = dlsym(library, names[i]);
    if (!function)
      return fail(error, QUERN_UNSUPPORTED, "libcuda.so.1", 0, 0, "libcuda.so.1 has no %s: NVIDIA's driver is too old",
                  names[i]);
    memcpy(reinterpret_cast<char*>(&out) + i * sizeof function, &function, sizeof function);
  }
  const int code = out.init(0);
  if (code == 0) return QUERN_OK;
  const cuda_error e(out, code);
  return fail(error, QUERN_UNSUPPORTED, "libcuda.so.1", code, 0, "cuInit failed: %s, %s", e.name, e.text);
}

}  // namespace quern
