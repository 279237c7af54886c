// SPDX-License-Identifier: MIT
//
// The companion quern_host: tuning results in a file.
#include <errno.h>
#include <fcntl.h>
#include <quern/host.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>

#include "error.h"
#include "versioned.h"

struct quern_host_tuning {
  char* path;
  uint32_t flags;
  bool changed;  // since it was read or saved
  char* table;
  size_t bytes;
};

namespace {

using quern::fail;

constexpr off_t longest_file = off_t{1} << 30;

struct bytes {
  char* p = nullptr;
  size_t length = 0;
  bytes() = default;
  bytes(const bytes&) = delete;
  bytes& operator=(const bytes&) = delete;
  ~bytes() { free(p); }
};

struct descriptor {
  int fd;
  explicit descriptor(int opened) : fd(opened) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() {
    if (fd >= 0) close(fd);
  }
};

quern_status fail_file(quern_error* error, const char* path, const char* what) {
  const int reason = errno;
  return fail(error, QUERN_FILE, "path", reason, 0, "%.200s cannot be %s: %.100s", path, what, strerror(reason));
}

quern_status fail_memory(quern_error* error, size_t wanted) {
  return fail(error, QUERN_MEMORY, "tuning", static_cast<int64_t>(wanted), 0, "no memory for %zu bytes", wanted);
}

// The whole file; none is as good as an empty one.
quern_status read_file(const char* path, bytes& out, quern_error* error) {
  const descriptor file(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // who opens a pipe waits for its other end
  if (file.fd < 0) return errno == ENOENT ? QUERN_OK : fail_file(error, path, "opened");
  struct stat status;
  if (fstat(file.fd, &status) != 0) return fail_file(error, path, "read");
  if (!S_ISREG(status.st_mode)) {
    errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    return fail_file(error, path, "read");
  }
  if (status.st_size > longest_file) {
    errno = EFBIG;
    return fail_file(error, path, "read");
  }
  const size_t room = static_cast<size_t>(status.st_size);
  out.p = static_cast<char*>(malloc(room ? room : 1));
  if (!out.p) return fail_memory(error, room);
  while (out.length < room) {
    const ssize_t got = read(file.fd, out.p + out.length, room - out.length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_file(error, path, "read");
    if (got == 0) break;
    out.length += static_cast<size_t>(got);
  }
  return QUERN_OK;
}

quern_status merged(const void* a, size_t a_bytes, const void* b, size_t b_bytes, bytes& out, quern_error* error) {
  size_t most = 0;
  if (const quern_status s = quern_tuning_merge(a, a_bytes, b, b_bytes, nullptr, 0, &most, error)) return s;
  out.p = static_cast<char*>(malloc(most));
  if (!out.p) return fail_memory(error, most);
  return quern_tuning_merge(a, a_bytes, b, b_bytes, out.p, most, &out.length, error);
}

void take_over(quern_host_tuning& t, bytes& table) {
  free(t.table);
  t.table = table.p, t.bytes = table.length;
  table.p = nullptr;
}

bool write_all(int fd, const char* p, size_t length) {
  while (length > 0) {
    const ssize_t done = write(fd, p, length);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    p += done, length -= static_cast<size_t>(done);
  }
  return true;
}

// A new file of this name and some number.  Not mkstemp's, which is for its owner alone: to know what any file's mode
// would be the process has to change its mask.
int open_beside(char* name, size_t room, const char* path) {
  for (unsigned i = 0; i < 1000; ++i) {
    snprintf(name, room, "%s.%u.%u", path, unsigned(getpid()), i);
    const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

// Into a file beside it, which then takes its place, with its mode.
quern_status replace_file(const char* path, const bytes& table, quern_error* error) {
  const size_t room = strlen(path) + 32;
  bytes beside;
  beside.p = static_cast<char*>(malloc(room));
  if (!beside.p) return fail_memory(error, room);
  const descriptor file(open_beside(beside.p, room, path));
  if (file.fd < 0) return fail_file(error, path, "written");
  struct stat old;
  if (write_all(file.fd, table.p, table.length) &&
      (stat(path, &old) != 0 || fchmod(file.fd, old.st_mode & 0777) == 0) && fsync(file.fd) == 0 &&
      rename(beside.p, path) == 0)
    return QUERN_OK;
  const quern_status s = fail_file(error, path, "written");
  unlink(beside.p);
  return s;
}

// The folder of a path, locked until it goes out of scope; not locked where the file system has no locks.
struct folder_lock : descriptor {
  static int open_folder(const char* path) {
    const char* const slash = strrchr(path, '/');
    const size_t length = slash == path ? 1 : slash ? static_cast<size_t>(slash - path) : 1;
    char* const folder = static_cast<char*>(malloc(length + 1));
    if (!folder) return -1;
    memcpy(folder, slash ? path : ".", length), folder[length] = 0;
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    return fd;
  }
  explicit folder_lock(const char* path) : descriptor(open_folder(path)) {
    while (fd >= 0 && flock(fd, LOCK_EX) != 0 && errno == EINTR) continue;
  }
};

struct row_taker {
  quern_host_tuning* tuning;
  const quern_budget* budget;
  quern_error* error;
  quern_status status;
  static void take(void* self, const void* table, size_t length) {
    row_taker& r = *static_cast<row_taker*>(self);
    if (r.tuning) r.status = quern_host_tuning_add(r.tuning, table, length, r.error);
    if (r.budget->row) r.budget->row(r.budget->self, table, length);
  }
  static int progress(void* self, const quern_tuned* so_far) {
    const row_taker& r = *static_cast<row_taker*>(self);
    return r.budget->progress(r.budget->self, so_far);
  }
};

}  // namespace

extern "C" {

quern_status quern_host_tuning_open(quern_host_tuning** out, const char* path, uint32_t flags,
                                    quern_error* error) noexcept {
  if (!out) return fail(error, QUERN_INVALID, "tuning", 0, 0, "tuning is NULL, must point to a pointer");
  *out = nullptr;
  if (path && !*path) return fail(error, QUERN_INVALID, "path", 0, 0, "path is empty, must name a file or be NULL");
  if (flags & ~uint32_t{QUERN_HOST_READ_ONLY})
    return fail(error, QUERN_INVALID, "flags", flags, QUERN_HOST_READ_ONLY, "flags is %u, must be 0 or %d", flags,
                QUERN_HOST_READ_ONLY);
  bytes file, table;
  if (path)
    if (const quern_status s = read_file(path, file, error)) return s;
  const quern_status read = merged(file.p, file.length, nullptr, 0, table, error);
  if (read == QUERN_MISMATCH && path)
    return fail(error, read, "path", 0, 0, "%.200s is no tuning table, or one of another version", path);
  if (read) return read;
  char* const name = path ? strdup(path) : nullptr;
  void* const memory = malloc(sizeof(quern_host_tuning));
  if ((path && !name) || !memory) {
    free(name), free(memory);
    return fail_memory(error, sizeof(quern_host_tuning));
  }
  quern_host_tuning* const t = new (memory) quern_host_tuning{name, flags, false, nullptr, 0};
  take_over(*t, table);
  *out = t;
  return QUERN_OK;
}

void quern_host_tuning_attach(const quern_host_tuning* tuning, quern_wish* wish) noexcept {
  wish->tuning = tuning ? tuning->table : nullptr;
  wish->tuning_bytes = tuning ? tuning->bytes : 0;
}

quern_status quern_host_tuning_add(quern_host_tuning* tuning, const void* table, size_t length,
                                   quern_error* error) noexcept {
  if (!tuning) return fail(error, QUERN_INVALID, "tuning", 0, 0, "tuning is NULL, must be from quern_host_tuning_open");
  bytes both;
  if (const quern_status s = merged(tuning->table, tuning->bytes, table, length, both, error)) return s;
  tuning->changed |= both.length != tuning->bytes || memcmp(both.p, tuning->table, both.length) != 0;
  take_over(*tuning, both);
  return QUERN_OK;
}

quern_status quern_host_tuning_save(quern_host_tuning* tuning, quern_error* error) noexcept {
  if (!tuning) return fail(error, QUERN_INVALID, "tuning", 0, 0, "tuning is NULL, must be from quern_host_tuning_open");
  if (!tuning->changed || !tuning->path || tuning->flags & QUERN_HOST_READ_ONLY) return QUERN_OK;
  const folder_lock lock(tuning->path);
  bytes file, both;
  if (const quern_status s = read_file(tuning->path, file, error)) return s;
  if (const quern_status s = merged(file.p, file.length, tuning->table, tuning->bytes, both, error)) return s;
  if (const quern_status s = replace_file(tuning->path, both, error)) return s;
  take_over(*tuning, both);
  tuning->changed = false;
  return QUERN_OK;
}

void quern_host_tuning_close(quern_host_tuning* tuning) noexcept {
  if (!tuning) return;
  free(tuning->path), free(tuning->table), free(tuning);
}

quern_status quern_host_tune(quern_host* host, quern_host_tuning* tuning, const quern_problem* problem,
                             const quern_wish* given, const quern_budget* given_budget, quern_tuned* out,
                             quern_error* error) noexcept {
  quern_wish wish = {};
  quern_budget budget = {};
  wish.size = sizeof wish;
  if (!given_budget) return fail(error, QUERN_INVALID, "budget", 0, 0, "budget is NULL, must point to a quern_budget");
  if (const quern_status s = quern::take(given, wish, "wish", error)) return s;
  if (const quern_status s = quern::take(given_budget, budget, "budget", error)) return s;
  if (wish.threads == 0) wish.threads = quern_host_threads(host);
  if (tuning) quern_host_tuning_attach(tuning, &wish);
  const quern_budget original = budget;
  row_taker taker = {tuning, &original, error, QUERN_OK};
  budget.row = row_taker::take, budget.self = &taker;
  if (budget.progress) budget.progress = row_taker::progress;

  uint64_t needed = 0;
  if (const quern_status s = quern_tune_workspace(nullptr, problem, &wish, &budget, &needed, error)) return s;
  quern_exec exec = {};
  exec.size = sizeof exec;
  quern_host_attach(host, &exec);
  bytes workspace;
  void* memory = nullptr;
  if (needed > SIZE_MAX / 2 || posix_memalign(&memory, QUERN_ALIGN, needed ? needed : 1) != 0)
    return fail_memory(error, needed);
  workspace.p = static_cast<char*>(memory);
  exec.workspace = memory, exec.workspace_bytes = needed;
  const quern_status s = quern_tune(nullptr, problem, &wish, &budget, &exec, out, error);
  return s ? s : taker.status;
}

}  // extern "C"
