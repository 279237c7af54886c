/* SPDX-License-Identifier: MIT
 *
 * quern_host: threads for programs that have none of their own.  A companion of Quern in a library of its
 * own; Quern itself never starts a thread. */
#ifndef QUERN_HOST_H
#define QUERN_HOST_H

#include <quern/quern.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A pool of sleeping threads. */
typedef struct quern_host quern_host;

/* Most threads that a pool can have. */
#define QUERN_HOST_THREADS_MAX 1024

enum {
  /* Threads poll for the next call for some milliseconds before they sleep: a call starts microseconds
   * sooner, which shows where layers are short and follow each other; costs power.  Without it they sleep
   * between calls. */
  QUERN_HOST_POLL = 1
};

/* CPUs that this process may use: its affinity mask, and the quota of its control group (version 2)
 * rounded up.  At least 1.  Reads files of /proc and /sys. */
QUERN_API uint32_t quern_host_cpus(void) QUERN_NOEXCEPT;

/* A pool that brings `threads` threads to a call, the calling one among them; 0 means quern_host_cpus().
 * `flags` is 0 or QUERN_HOST_POLL.  Allocates, and starts threads - 1 threads.  *host receives the pool,
 * NULL on failure: QUERN_INVALID for an argument out of its range, QUERN_MEMORY. */
QUERN_API quern_status quern_host_create(quern_host** host, uint32_t threads, uint32_t flags,
                                         quern_error*) QUERN_NOEXCEPT;

/* Threads of the pool, the calling one included; 1 for NULL. */
QUERN_API uint32_t quern_host_threads(const quern_host*) QUERN_NOEXCEPT;

/* Puts the pool (NULL: this thread alone) into an exec: parallel_for, self and threads, nothing else.  The
 * exec and its copies hold the pool's address: it must outlive their last use.
 *
 * Any number of threads may run on one pool at a time.  Their parallel_for calls take turns, each with all
 * threads; programs that want calls to overlap take a pool each.  A loop inside a task of the same pool, other
 * pools' loops between them or not, runs on the thread that calls it.  In the child after fork() the pool has no threads: loops run on the
 * calling thread, with the same results. */
QUERN_API void quern_host_attach(quern_host*, quern_exec*) QUERN_NOEXCEPT;

/* Ends the threads and frees the pool; NULL is fine.  No call may be running on it.  In the child after
 * fork() it frees nothing: memory and threads belong to the parent. */
QUERN_API void quern_host_destroy(quern_host*) QUERN_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
