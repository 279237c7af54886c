// SPDX-License-Identifier: MIT
#pragma once

#include <quern/quern.h>

namespace quern {

// Why a candidate can't run, as data: costs nothing until somebody asks for the sentence.
struct refusal {
  quern_reason reason = QUERN_REASON_NONE;
  const char* field = nullptr;
  int64_t value = 0, limit = 0;
  explicit operator bool() const { return reason != QUERN_REASON_NONE; }
};

}  // namespace quern
