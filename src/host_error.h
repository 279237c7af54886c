// SPDX-License-Identifier: MIT
//
// As error.h, for the companion: what is hidden in the library is not there for it.
#pragma once

#include <quern/quern.h>
#include <stdarg.h>
#include <stdio.h>

namespace {

[[gnu::format(printf, 6, 7)]] quern_status fail(quern_error* error, quern_status status, const char* field,
                                                int64_t value, int64_t limit, const char* format, ...) {
  if (!error) return status;
  *error = {};
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

}  // namespace
