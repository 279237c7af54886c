// SPDX-License-Identifier: MIT
#include <quern/quern.h>

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
