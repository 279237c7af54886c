// SPDX-License-Identifier: MIT
//
// What the machine is called.
#pragma once

#include <string>

namespace tools {

// The CPU's name from cpuinfo where the build found it, else from /proc/cpuinfo; "unknown CPU" when
// neither tells.
std::string cpu_name();

}  // namespace tools
