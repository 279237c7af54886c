// SPDX-License-Identifier: MIT
//
// Errors on their way out; inline, as the companion is a library of its own.
#pragma once

#include <quern/quern.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

namespace quern {

// Fills *error (when there is one) with the sentence and returns `status`, so that a check is one line:
//   return fail(error, QUERN_INVALID, "groups", groups, c, "groups is %lld, must divide src.size[1] = %lld", ...);
[[gnu::format(printf, 6, 7)]] inline quern_status fail(quern_error* error, quern_status status, const char* field,
                                                       int64_t value, int64_t limit, const char* format, ...) {
  if (!error) return status;
  memset(error, 0, sizeof *error);
  error->status = status;
  error->value = value;
  error->limit = limit;
  snprintf(error->field, sizeof error->field, "%s", field);
  va_list list;
  va_start(list, format);
  vsnprintf(error->text, sizeof error->text, format, list);
  va_end(list);
  return status;
}

}  // namespace quern
