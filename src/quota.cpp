// SPDX-License-Identifier: MIT
//
// How much CPU time a container leaves us: cpu.max of control groups, version 2.
#include "quota.h"

#include <stdio.h>
#include <string.h>

namespace quern {
namespace {

// The group's path, from the line "0::/path"; false when there is none.
bool find_group(const char* membership, char* path, size_t capacity) {
  FILE* file = fopen(membership, "re");
  if (!file) return false;
  char line[4096];
  bool found = false;
  while (!found && fgets(line, sizeof line, file)) {
    if (strncmp(line, "0::/", 4) != 0) continue;
    line[strcspn(line, "\n")] = 0;
    const size_t length = strlen(line + 3);
    found = length < capacity;
    if (found) memcpy(path, line + 3, length + 1);
  }
  fclose(file);
  return found;
}

// "200000 100000" is two CPUs, "max 100000" no limit.
uint32_t read_quota(const char* name) {
  FILE* file = fopen(name, "re");
  if (!file) return 0;
  unsigned long long quota = 0, period = 0;
  const int read = fscanf(file, "%19llu %19llu", &quota, &period);
  fclose(file);
  if (read != 2 || quota == 0 || period == 0) return 0;
  const unsigned long long cpus = (quota - 1) / period + 1;
  return cpus < UINT32_MAX ? static_cast<uint32_t>(cpus) : 0;
}

}  // namespace

uint32_t cpus_of_quota(const char* membership, const char* root) {
  char group[4096];
  if (!find_group(membership, group, sizeof group)) return 0;
  uint32_t least = 0;
  for (;;) {
    char name[8192];
    const int length = snprintf(name, sizeof name, "%s%s/cpu.max", root, group);
    const uint32_t cpus = length > 0 && static_cast<size_t>(length) < sizeof name ? read_quota(name) : 0;
    if (cpus && (!least || cpus < least)) least = cpus;
    char* last = strrchr(group, '/');
    if (!last) return least;
    *last = 0;
  }
}

}  // namespace quern
