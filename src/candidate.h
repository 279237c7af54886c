// SPDX-License-Identifier: MIT
//
// What callers are told of an option: a quern_candidate, and its reason in words.
#pragma once

#include "choose.h"

namespace quern {

// What candidates of a problem have in common.
struct work {
  double flops, bytes;
  explicit work(const full_problem&);
};

quern_candidate candidate_of(const full_problem&, const work&, const option&, const resolved_wish&);

// The reason as a sentence without its subject.  Returns its length, as snprintf does.
int explain(const quern_candidate&, char* out, size_t size);

}  // namespace quern
