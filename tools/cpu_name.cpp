// SPDX-License-Identifier: MIT
#include "cpu_name.h"

#include <fstream>

#if defined(QUERN_CPUINFO)
#include <cpuinfo.h>
#endif

namespace tools {

std::string cpu_name() {
#if defined(QUERN_CPUINFO)
  if (cpuinfo_initialize() && cpuinfo_get_packages_count() > 0) {
    const std::string name = cpuinfo_get_package(0)->name;
    if (!name.empty()) return name;
  }
#endif
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (colon != std::string::npos && (line.rfind("model name", 0) == 0 || line.rfind("Hardware", 0) == 0)) {
      return line.substr(colon + 2);
    }
  }
  return "unknown CPU";
}

}  // namespace tools
