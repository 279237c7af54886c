// SPDX-License-Identifier: MIT
#pragma once

#include <quern/quern.h>

namespace quern {

// Fills *error (when there is one) with the sentence and returns `status`, so that a check is one line:
//   return fail(error, QUERN_INVALID, "groups", groups, c, "groups is %lld, must divide src.size[1] = %lld", ...);
[[gnu::format(printf, 6, 7)]] quern_status fail(quern_error* error, quern_status status, const char* field,
                                                int64_t value, int64_t limit, const char* format, ...);

}  // namespace quern
