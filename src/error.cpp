// SPDX-License-Identifier: MIT
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

namespace quern {

quern_status fail(quern_error* error, quern_status status, const char* field, int64_t value, int64_t limit,
                  const char* format, ...) {
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

extern "C" const char* quern_status_name(quern_status status) noexcept {
  switch (status) {
    case QUERN_OK: return "ok";
    case QUERN_INVALID: return "invalid";
    case QUERN_UNSUPPORTED: return "unsupported";
    case QUERN_BUFFER: return "buffer";
    case QUERN_MISMATCH: return "mismatch";
    case QUERN_MEMORY: return "memory";
    case QUERN_DRIVER: return "driver";
    case QUERN_CANCELLED: return "cancelled";
    case QUERN_FILE: return "file";
    default: return "unknown status";
  }
}
