// SPDX-License-Identifier: MIT
//
// Structs that begin with `size` and grow at their end, on their way in and out.
#pragma once

#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "error.h"

namespace quern {

// What can be the size of some version of T: no version ends inside of a pointer.
template <class T>
bool is_size(uint32_t size) {
  constexpr uint32_t longest = 1 << 16;
  return size >= alignof(T) && size <= longest && size % alignof(T) == 0;
}

// *given (NULL: `defaults` stays) into a whole struct of this library.
template <class T>
quern_status take(const T* given, T& out, const char* name, quern_error* error) {
  if (!given) return QUERN_OK;
  const uint32_t size = given->size;
  if (size == sizeof(T)) {
    out = *given;
    return QUERN_OK;
  }
  char field[32];
  if (!is_size<T>(size)) {
    snprintf(field, sizeof field, "%s.size", name);
    return fail(error, QUERN_INVALID, field, size, sizeof(T), "%s is %u, must be sizeof the struct, here %zu", field,
                size, sizeof(T));
  }
  const char* bytes = reinterpret_cast<const char*>(given);
  for (uint32_t i = sizeof(T); i < size; ++i)
    if (bytes[i] != 0) {
      snprintf(field, sizeof field, "%s.size", name);
      return fail(error, QUERN_MISMATCH, field, size, sizeof(T),
                  "%s is %u and byte %u is set, but this library knows %zu bytes: the header is newer", field, size, i,
                  sizeof(T));
    }
  memset(static_cast<void*>(&out), 0, sizeof out);
  memcpy(static_cast<void*>(&out), given, std::min<size_t>(size, sizeof out));
  out.size = sizeof(T);
  return QUERN_OK;
}

// Whether *out can be given a T, here called `type`.
template <class T>
quern_status check_out(const T* out, const char* type, quern_error* error) {
  if (out && is_size<T>(out->size)) return QUERN_OK;
  return fail(error, QUERN_INVALID, "out", out ? out->size : 0, sizeof(T),
              "out is NULL or out->size is not sizeof(%s), here %zu", type, sizeof(T));
}

// `value` into *out, as much of it as the caller's struct of `size` bytes holds; the rest of that is zero.
template <class T>
void give(const T& value, T* out, uint32_t size) {
  memset(static_cast<void*>(out), 0, size);
  memcpy(static_cast<void*>(out), &value, std::min<size_t>(size, sizeof value));
  out->size = size;
}

}  // namespace quern
