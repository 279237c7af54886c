// SPDX-License-Identifier: MIT
//
// The companion quern_host: parallel_for on a pthreadpool.
#include <errno.h>
#include <pthreadpool.h>
#include <quern/host.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "quota.h"

// ThreadSanitizer does not see how pthreadpool, which is not built with it, hands work over and back.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define HAND_OVER(object) __tsan_release(object)
#define TAKE_OVER(object) __tsan_acquire(object)
#else
#define HAND_OVER(object)
#define TAKE_OVER(object)
#endif

struct quern_host {
  pthreadpool_t pool;  // NULL: one thread
  uint32_t threads;
  uint32_t flags;  // pthreadpool's
  pid_t owner;     // threads do not survive fork
};

namespace {

using quern::fail;

struct loop {
  const quern_host* host;
  void (*task)(void*, size_t);
  void* arg;
  const loop* outer;  // whose task began this one, perhaps on another thread
};

// The loop whose task this thread is in.
thread_local const loop* innermost = nullptr;

// A pool that waits for this thread's task, however far out, would wait for itself.
bool waits(const quern_host* host) {
  for (const loop* l = innermost; l; l = l->outer)
    if (l->host == host) return true;
  return false;
}

void run_task(void* self, size_t i) {
  TAKE_OVER(self);
  const loop* const before = innermost;
  innermost = static_cast<const loop*>(self);
  innermost->task(innermost->arg, i);
  innermost = before;
  HAND_OVER(self);
}

void parallel_for(void* self, size_t count, void (*task)(void*, size_t), void* arg) {
  const quern_host* host = static_cast<const quern_host*>(self);
  if (count < 2 || !host->pool || waits(host) || host->owner != getpid()) {
    for (size_t i = 0; i < count; ++i) task(arg, i);
    return;
  }
  loop l = {host, task, arg, innermost};
  HAND_OVER(&l);
  pthreadpool_parallelize_1d(host->pool, run_task, &l, count, host->flags);
  TAKE_OVER(&l);
}

// 0 when the system does not say.
uint32_t cpus_of_affinity() {
  for (size_t cpus = CPU_SETSIZE; cpus <= size_t{1} << 20; cpus *= 2) {  // the kernel may know more than libc
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (!set) return 0;
    const int status = sched_getaffinity(0, CPU_ALLOC_SIZE(cpus), set);
    const int count = status == 0 ? CPU_COUNT_S(CPU_ALLOC_SIZE(cpus), set) : 0;
    CPU_FREE(set);
    if (status == 0) return static_cast<uint32_t>(count);
    if (errno != EINVAL) return 0;
  }
  return 0;
}

}  // namespace

extern "C" {

uint32_t quern_host_cpus(void) noexcept {
  const uint32_t affinity = cpus_of_affinity();
  const uint32_t quota = quern::cpus_of_quota("/proc/self/cgroup", "/sys/fs/cgroup");
  const uint32_t cpus = quota && (quota < affinity || !affinity) ? quota : affinity;
  return cpus ? cpus : 1;
}

quern_status quern_host_create(quern_host** out, uint32_t threads, uint32_t flags, quern_error* error) noexcept {
  if (!out) return fail(error, QUERN_INVALID, "host", 0, 0, "host is NULL, must point to a pointer");
  *out = nullptr;
  if (flags & ~uint32_t{QUERN_HOST_POLL})
    return fail(error, QUERN_INVALID, "flags", flags, QUERN_HOST_POLL, "flags is %u, must be 0 or %d", flags,
                QUERN_HOST_POLL);
  if (threads > QUERN_HOST_THREADS_MAX)
    return fail(error, QUERN_INVALID, "threads", threads, QUERN_HOST_THREADS_MAX, "threads is %u, must be at most %d",
                threads, QUERN_HOST_THREADS_MAX);
  if (!threads) threads = quern_host_cpus();
  if (threads > QUERN_HOST_THREADS_MAX) threads = QUERN_HOST_THREADS_MAX;

  quern_host* host = static_cast<quern_host*>(malloc(sizeof *host));
  pthreadpool_t pool = host && threads > 1 ? pthreadpool_create(threads) : nullptr;
  if (!host || (threads > 1 && !pool)) {
    free(host);
    return fail(error, QUERN_MEMORY, "threads", threads, threads, "no memory for a pool of %u threads", threads);
  }
  *host = {pool, threads, flags & QUERN_HOST_POLL ? 0u : PTHREADPOOL_FLAG_YIELD_WORKERS, getpid()};
  *out = host;
  return QUERN_OK;
}

uint32_t quern_host_threads(const quern_host* host) noexcept { return host ? host->threads : 1; }

void quern_host_attach(quern_host* host, quern_exec* exec) noexcept {
  exec->parallel_for = host ? parallel_for : nullptr;
  exec->self = host;
  exec->threads = quern_host_threads(host);
}

void quern_host_destroy(quern_host* host) noexcept {
  if (!host || host->owner != getpid()) return;
  if (host->pool) pthreadpool_destroy(host->pool);
  free(host);
}

}  // extern "C"
