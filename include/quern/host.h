/* SPDX-License-Identifier: MIT
 *
 * quern_host: threads for programs that have none of their own, and files for what tuning found.  A companion of
 * Quern in a library of its own; Quern itself never starts a thread and opens no file. */
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

/* ---- Tuning results in a file ----------------------------------------------------------------- */

/* A file of tuning rows, as it was read, with what has been added since.  One thread at a time. */
typedef struct quern_host_tuning quern_host_tuning;

enum {
  QUERN_HOST_READ_ONLY = 1 /* nothing will be written: quern_host_tuning_save does nothing          */
};

/* Reads the table at `path`, which is copied; a file that is not there is a table without rows, NULL one in memory
 * alone.  Lines that are damaged are left out.  Allocates.  *tuning receives the object, NULL on failure: QUERN_FILE when the file is there and cannot
 * be read, QUERN_MISMATCH when it is no tuning table, or one of another version: it stays as it is. */
QUERN_API quern_status quern_host_tuning_open(quern_host_tuning** tuning, const char* path, uint32_t flags,
                                              quern_error*) QUERN_NOEXCEPT;

/* Puts the table into a wish; NULL takes it out.  Adding rows moves the table: attach again, and drop the wish's copies. */
QUERN_API void quern_host_tuning_attach(const quern_host_tuning*, quern_wish*) QUERN_NOEXCEPT;

/* Merges a table into this one, in memory.  Allocates. */
QUERN_API quern_status quern_host_tuning_add(quern_host_tuning*, const void* table, size_t bytes,
                                             quern_error*) QUERN_NOEXCEPT;

/* Merges into the file what was added: what other processes wrote since is kept, and taken over.  They take turns by a
 * lock on the folder (where its file system has none, of two at the same moment the later one's rows stay).  The file
 * is replaced as a whole, by renaming one beside it: a reader sees the old or the new one, a full disk or a crash leaves
 * the old one.  On failure (QUERN_FILE, QUERN_MEMORY, and QUERN_MISMATCH where the file is no table) the rows are still
 * here.  Allocates. */
QUERN_API quern_status quern_host_tuning_save(quern_host_tuning*, quern_error*) QUERN_NOEXCEPT;

/* Frees the object without saving; NULL is fine. */
QUERN_API void quern_host_tuning_close(quern_host_tuning*) QUERN_NOEXCEPT;

/* quern_tune with the pool's threads (NULL: this one alone) and memory of its own, which it allocates and frees; at most
 * as many threads as wish.threads, 0 meaning all of the pool's.  The row is added to `tuning`, which takes the place of
 * the wish's table; then to budget->row, where there is one. */
QUERN_API quern_status quern_host_tune(quern_host*, quern_host_tuning* tuning, const quern_problem*, const quern_wish*,
                                       const quern_budget*, quern_tuned* out, quern_error*) QUERN_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
