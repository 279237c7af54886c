// SPDX-License-Identifier: MIT
//
// How the command ends early: a sentence for stderr and the exit status.
#pragma once

#include <quern/quern.h>

#include <string>

namespace tools {

struct stop {
  int status;
  std::string text;
};

constexpr int failed = 1;     // the work was done, or tried, and went wrong
constexpr int bad_input = 2;  // the request makes no sense

// Throws when `status` says that the call failed; `what` goes before the library's own sentence.
inline void need(quern_status status, const quern_error& error, const std::string& what) {
  if (status == QUERN_OK) return;
  throw stop{status == QUERN_INVALID || status == QUERN_UNSUPPORTED ? bad_input : failed, what + ": " + error.text};
}

}  // namespace tools
