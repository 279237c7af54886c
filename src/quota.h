// SPDX-License-Identifier: MIT
#pragma once

#include <stdint.h>

namespace quern {

// CPUs that a control group (version 2) and those above it grant, rounded up; 0: no limit, or no such group.
// `membership` is a file like /proc/self/cgroup, `root` where the groups are mounted.
uint32_t cpus_of_quota(const char* membership, const char* root);

}  // namespace quern
