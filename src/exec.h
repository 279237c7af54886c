// SPDX-License-Identifier: MIT
//
// The caller's threads and memory, as every verb reads them.
#pragma once

#include "versioned.h"

namespace quern {

// *given (NULL: this thread alone) into a whole quern_exec whose `threads` is what parallel_for brings.  Work
// of a device has a queue, the CPU's has none.
inline quern_status take_exec(const quern_exec* given, quern_exec& out, quern_error* error, bool on_device = false) {
  out = {};
  if (const quern_status s = take(given, out, "exec", error)) return s;
  if (out.queue && !on_device)
    return fail(error, QUERN_INVALID, "exec.queue", 1, 0, "exec.queue is not NULL, but this is work for the CPU");
  if (!out.queue && on_device)
    return fail(error, QUERN_INVALID, "exec.queue", 0, 1,
                "exec.queue is NULL, must be a stream: the default one too is asked for by its name");
  if (!out.parallel_for || out.threads == 0) out.threads = 1;
  return QUERN_OK;
}

}  // namespace quern
