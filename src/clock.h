// SPDX-License-Identifier: MIT
//
// What measuring goes by.
#pragma once

#include <time.h>

namespace quern {

inline double now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) * 1e9 + double(t.tv_nsec);
}

}  // namespace quern
