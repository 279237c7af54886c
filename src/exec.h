// SPDX-License-Identifier: MIT
//
// The caller's threads and memory, as every verb reads them.
#pragma once

#include "versioned.h"

namespace quern {

// *given (NULL: this thread alone) into a whole quern_exec whose `threads` is what parallel_for brings.
inline quern_status take_exec(const quern_exec* given, quern_exec& out, quern_error* error) {
  out = {};
  if (const quern_status s = take(given, out, "exec", error)) return s;
  if (out.queue)
    return fail(error, QUERN_INVALID, "exec.queue", 1, 0, "exec.queue is not NULL, but the plan is for the CPU");
  if (!out.parallel_for || out.threads == 0) out.threads = 1;
  return QUERN_OK;
}

}  // namespace quern
