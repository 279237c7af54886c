// SPDX-License-Identifier: MIT
//
// How often this thread has asked for memory, by malloc and its kin or by new.
#pragma once

#include <stdint.h>

namespace quern {

// False under sanitizers, which have an allocator of their own: then the count stays zero.
extern const bool allocations_counted;
uint64_t allocations();

}  // namespace quern
