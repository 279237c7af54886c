// SPDX-License-Identifier: MIT
#include "cuda_device.h"

#include <stdlib.h>

#include "error.h"
#include "registry.h"
#include "versioned.h"

namespace quern {
namespace {

constexpr char mark = 0;

// The CUDA version that the kernels were compiled with, 1000 * major + 10 * minor; 0: they were left out.
#ifdef QUERN_CUDA_TOOLKIT
constexpr int toolkit = QUERN_CUDA_TOOLKIT;
#else
constexpr int toolkit = 0;
#endif
constexpr uint32_t least_capability = 75;

quern_status driver_fails(const cuda_driver& driver, int code, const char* call, quern_error* error) {
  const cuda_error e(driver, code);
  return fail(error, QUERN_DRIVER, call, code, 0, "%s failed: %s, %s", call, e.name, e.text);
}

// Makes the device's context current, and the one before it when it goes.
class in_context {
 public:
  in_context(const cuda_driver& driver, void* context) : driver_(driver), code_(driver.push(context)) {}
  ~in_context() {
    void* popped;
    if (code_ == 0) driver_.pop(&popped);
  }
  in_context(const in_context&) = delete;
  in_context& operator=(const in_context&) = delete;
  int code() const { return code_; }

 private:
  const cuda_driver& driver_;
  const int code_;
};

// Of the context that is current.
int describe(const cuda_driver& driver, quern_gpu& gpu) {
  int device = 0, major = 0, minor = 0, value[6] = {};
  constexpr int asked[6] = {cuda_multiprocessors, cuda_clock_khz,        cuda_l2_bytes,
                            cuda_shared_bytes,    cuda_memory_clock_khz, cuda_memory_bus_bits};
  int code = driver.device(&device);
  if (!code) code = driver.attribute(&major, cuda_capability_major, device);
  if (!code) code = driver.attribute(&minor, cuda_capability_minor, device);
  // What a driver does not tell stays 0, unknown.
  for (int i = 0; i < 6 && !code; ++i)
    if (driver.attribute(&value[i], asked[i], device) != 0 || value[i] < 0) value[i] = 0;
  gpu = {};
  gpu.size = sizeof gpu;
  gpu.capability = static_cast<uint32_t>(10 * major + minor);
  gpu.multiprocessors = static_cast<uint32_t>(value[0]);
  gpu.clock_mhz = static_cast<uint32_t>(value[1] / 1000);
  gpu.l2_bytes = static_cast<uint64_t>(value[2]);
  gpu.shared_bytes = static_cast<uint64_t>(value[3]);
  gpu.bandwidth = uint64_t{2000} * static_cast<uint64_t>(value[4]) * static_cast<uint64_t>(value[5]) / 8;
  return code;
}

size_t first_row_of(const unsigned char* image) {
  size_t i = 0;
  while (kernel_at(i).image != image) ++i;
  return i;
}

}  // namespace

quern_status open_cuda(const cuda_driver& driver, void* context, quern_device*& out, quern_error* error) {
  int version = 0;
  if (const int code = driver.version(&version)) return driver_fails(driver, code, "cuDriverGetVersion", error);
  if (version / 1000 < toolkit / 1000)
    return fail(
        error, QUERN_UNSUPPORTED, "libcuda.so.1", version, toolkit,
        "the driver is of CUDA %d.%d, the kernels were built with CUDA %d.%d: a driver of CUDA %d.0 or later is "
        "needed",
        version / 1000, version / 10 % 100, toolkit / 1000, toolkit / 10 % 100, toolkit / 1000);
  if (!context)
    if (const int code = driver.current(&context)) return driver_fails(driver, code, "cuCtxGetCurrent", error);
  if (!context)
    return fail(
        error, QUERN_INVALID, "context", 0, 0,
        "context is NULL and none is current on this thread: make one first, with cuCtxCreate or cudaSetDevice");
  quern_gpu gpu;
  {
    const in_context inside(driver, context);
    if (inside.code()) return driver_fails(driver, inside.code(), "cuCtxPushCurrent", error);
    if (const int code = describe(driver, gpu)) return driver_fails(driver, code, "cuDeviceGetAttribute", error);
    gpu.driver = static_cast<uint32_t>(version);
  }
  if (gpu.capability < least_capability)
    return fail(error, QUERN_UNSUPPORTED, "gpu.capability", gpu.capability, least_capability,
                "the GPU has compute capability %u.%u, must be at least %u.%u", gpu.capability / 10,
                gpu.capability % 10, least_capability / 10, least_capability % 10);
  const size_t rows = kernel_count();
  quern_device* device = static_cast<quern_device*>(calloc(1, sizeof *device));
  std::atomic<void*>* modules = static_cast<std::atomic<void*>*>(calloc(rows, sizeof *modules));
  if (!device || !modules) {
    free(device), free(modules);
    return fail(error, QUERN_MEMORY, "", 0, 0, "the memory of a device object cannot be had");
  }
  *device = {&mark, driver, context, gpu, modules};
  out = device;
  return QUERN_OK;
}

quern_status check_device(const quern_device* device, quern_error* error) {
  if (device && device->mark == &mark) return QUERN_OK;
  return fail(error, QUERN_INVALID, "device", 0, 0, "device is %s",
              device ? "no open quern_device" : "NULL, must point to an open quern_device");
}

namespace {

quern_status load_function(const cuda_driver& driver, void* module, const char* name, uint32_t shared_bytes,
                           void*& function, quern_error* error) {
  if (const int code = driver.function(&function, module, name))
    return driver_fails(driver, code, "cuModuleGetFunction", error);
  if (const int code = driver.set_function_attribute(function, cuda_function_shared_bytes, int(shared_bytes)))
    return driver_fails(driver, code, "cuFuncSetAttribute", error);
  // A driver that loads lazily does it when first asked about the function; at the launch it would be too late
  // for a capture.
  int local = 0;
  if (const int code = driver.function_attribute(&local, cuda_function_local_bytes, function))
    return driver_fails(driver, code, "cuFuncGetAttribute", error);
  return QUERN_OK;
}

quern_status launch_function(const launching& l, void* function, const cuda_launch& how, const void* parameters) {
  const cuda_driver& driver = l.device.driver;
  const in_context inside(driver, l.device.context);
  if (inside.code()) return driver_fails(driver, inside.code(), "cuCtxPushCurrent", l.error);
  void* list[] = {const_cast<void*>(parameters)};
  const int code = driver.launch(&how, function, list, nullptr);
  return code ? driver_fails(driver, code, "cuLaunchKernelEx", l.error) : QUERN_OK;
}

}  // namespace

quern_status load_kernel(const quern_device& device, const algorithm& a, const kernel& row, int32_t overlap,
                         loaded_kernel& loaded, quern_error* error) {
  const cuda_driver& driver = device.driver;
  const in_context inside(driver, device.context);
  if (inside.code()) return driver_fails(driver, inside.code(), "cuCtxPushCurrent", error);
  std::atomic<void*>& slot = device.modules[first_row_of(row.image)];
  void* module = slot.load(std::memory_order_acquire);
  if (!module) {
    void* mine = nullptr;
    if (const int code = driver.load(&mine, row.image)) return driver_fails(driver, code, "cuModuleLoadData", error);
    // Whoever comes second keeps the first one's: no lock.
    if (slot.compare_exchange_strong(module, mine, std::memory_order_acq_rel)) {
      module = mine;
    } else {
      driver.unload(mine);
    }
  }
  if (a.prepare)
    if (const quern_status s = load_function(driver, module, a.prepare, 0, loaded.prepare, error)) return s;
  const uint32_t most = row.early ? uint32_t(device.gpu.shared_bytes) : row.shared_bytes;
  if (const quern_status s = load_function(driver, module, row.name, most, loaded.function, error)) return s;
  // Code for less has no instruction to wait for what precedes it.
  int version = 0;
  if (row.early && overlap != QUERN_OVERLAP_NONE)
    if (const int code = driver.function_attribute(&version, cuda_function_ptx_version, loaded.function))
      return driver_fails(driver, code, "cuFuncGetAttribute", error);
  loaded.early = version >= 90;
  loaded.ahead = loaded.early && overlap == QUERN_OVERLAP_WEIGHTS;
  return QUERN_OK;
}

quern_status encode_im2col(const launching& l, void* map, const im2col_map& m) {
  const cuda_driver& driver = l.device.driver;
  const int code = driver.encode_im2col(map, m.type, 4, const_cast<void*>(m.src), m.size, m.stride, m.lower, m.upper,
                                        m.channels, m.pixels, m.step, 0, cuda_map_swizzle_128, cuda_map_promote_256, 0);
  return code ? driver_fails(driver, code, "cuTensorMapEncodeIm2col", l.error) : QUERN_OK;
}

quern_status encode_tiled(const launching& l, void* map, const tiled_map& m) {
  const cuda_driver& driver = l.device.driver;
  static constexpr uint32_t step[] = {1, 1, 1, 1, 1};
  const int code = driver.encode_tiled(map, m.type, m.rank, const_cast<void*>(m.tensor), m.size, m.stride, m.box, step,
                                       0, m.swizzle, cuda_map_promote_256, 0);
  return code ? driver_fails(driver, code, "cuTensorMapEncodeTiled", l.error) : QUERN_OK;
}

quern_status launch_kernel(const launching& l, const kernel& row, uint32_t blocks, const void* parameters,
                           uint32_t shared_bytes) {
  cuda_launch_attribute attributes[2] = {};
  unsigned count = 0;
  if (l.loaded.early) attributes[count++] = {cuda_launch_early, {1}};
  if (row.cluster > 1) attributes[count++] = {cuda_launch_cluster, {row.cluster, 1, 1}};
  return launch_function(l, l.loaded.function,
                         {{blocks, 1, 1},
                          {row.threads, 1, 1},
                          std::max(row.shared_bytes, shared_bytes),
                          l.stream,
                          count ? attributes : nullptr,
                          count},
                         parameters);
}

quern_status launch_prepare(const launching& l, uint32_t blocks, uint32_t threads, const void* parameters) {
  cuda_launch_attribute early = {cuda_launch_early, {1}};
  return launch_function(l, l.loaded.prepare,
                         {{blocks, 1, 1}, {threads, 1, 1}, 0, l.stream, &early, l.loaded.early ? 1u : 0u}, parameters);
}

namespace {

// A driver's call in the device's context.
template <class Call>
quern_status in_its_context(const quern_device& device, const char* name, quern_error* error, Call call) {
  const in_context inside(device.driver, device.context);
  if (inside.code()) return driver_fails(device.driver, inside.code(), "cuCtxPushCurrent", error);
  const int code = call(device.driver);
  return code ? driver_fails(device.driver, code, name, error) : QUERN_OK;
}

uint64_t address_of(const void* p) { return reinterpret_cast<uintptr_t>(p); }

}  // namespace

quern_status copy_to_gpu(const quern_device& device, void* stream, void* to, const void* from, uint64_t bytes,
                         quern_error* error) {
  return in_its_context(device, "cuMemcpyHtoDAsync", error, [&](const cuda_driver& driver) {
    const int code = driver.copy_to_gpu(address_of(to), from, bytes, stream);
    return code ? code : driver.wait(stream);
  });
}

quern_status copy_on_gpu(const quern_device& device, void* stream, void* to, const void* from, uint64_t bytes,
                         quern_error* error) {
  return in_its_context(device, "cuMemcpyDtoDAsync", error, [&](const cuda_driver& driver) {
    return driver.copy_on_gpu(address_of(to), address_of(from), bytes, stream);
  });
}

quern_status make_timer(const quern_device& device, gpu_timer& timer, quern_error* error) {
  return in_its_context(device, "cuEventCreate", error, [&](const cuda_driver& driver) {
    const int code = driver.make_event(&timer.begin, 0);
    return code ? code : driver.make_event(&timer.end, 0);
  });
}

void destroy_timer(const quern_device& device, const gpu_timer& timer) {
  const in_context inside(device.driver, device.context);
  for (void* const event : {timer.begin, timer.end})
    if (event && inside.code() == 0) device.driver.destroy_event(event);
}

quern_status time_runs(const quern_device& device, void* stream, const gpu_timer& timer, int runs,
                       quern_status (*launch)(void* self), void* self, double& ns, quern_error* error) {
  const cuda_driver& driver = device.driver;
  const in_context inside(driver, device.context);
  if (inside.code()) return driver_fails(driver, inside.code(), "cuCtxPushCurrent", error);
  if (const int code = driver.begin_capture(stream, cuda_capture_of_thread))
    return driver_fails(driver, code, "cuStreamBeginCapture", error);
  quern_status status = launch(self);
  int code = driver.record(timer.begin, stream, cuda_record_in_graph);
  for (int i = 0; i < runs && !status; ++i) status = launch(self);
  if (!code) code = driver.record(timer.end, stream, cuda_record_in_graph);
  const char* call = "cuEventRecord";
  void *graph = nullptr, *ready = nullptr;
  if (const int ended = driver.end_capture(stream, &graph); !code) code = ended, call = "cuStreamEndCapture";
  const auto next = [&](const char* name, const auto& ask) {
    if (!status && !code) code = ask(), call = name;
  };
  float ms = 0;
  next("cuGraphInstantiate", [&] { return driver.instantiate(&ready, graph, 0); });
  next("cuGraphLaunch", [&] { return driver.launch_graph(ready, stream); });
  next("cuStreamSynchronize", [&] { return driver.wait(stream); });
  next("cuEventElapsedTime", [&] { return driver.elapsed(&ms, timer.begin, timer.end); });
  if (ready) driver.destroy_ready(ready);
  if (graph) driver.destroy_graph(graph);
  ns = 1e6 * double(ms) / runs;
  return status ? status : code ? driver_fails(driver, code, call, error) : QUERN_OK;
}

}  // namespace quern

using namespace quern;

extern "C" quern_status quern_cuda_open(quern_device** out, void* context, quern_error* error) noexcept {
  if (!out) return fail(error, QUERN_INVALID, "out", 0, 0, "out is NULL, must point to a quern_device*");
  *out = nullptr;
  if (toolkit == 0)
    return fail(error, QUERN_UNSUPPORTED, "device", 0, 0,
                "this build has no CUDA kernels: nvcc was not there when it was built, or QUERN_CUDA was off");
  cuda_driver driver;
  if (const quern_status s = load_cuda_driver(driver, error)) return s;
  return open_cuda(driver, context, *out, error);
}

extern "C" void quern_device_close(quern_device* device) noexcept {
  if (check_device(device, nullptr)) return;
  {
    const in_context inside(device->driver, device->context);
    for (size_t i = 0; i < kernel_count() && inside.code() == 0; ++i)
      if (void* module = device->modules[i].load(std::memory_order_relaxed)) device->driver.unload(module);
  }
  device->mark = nullptr;
  free(device->modules);
  free(device);
}

extern "C" quern_status quern_gpu_get(const quern_device* device, quern_gpu* out, quern_error* error) noexcept {
  if (const quern_status s = check_device(device, error)) return s;
  if (const quern_status s = check_out(out, "quern_gpu", error)) return s;
  give(device->gpu, out, out->size);
  return QUERN_OK;
}
