// SPDX-License-Identifier: MIT
//
// All weights of a problem into the payload of a blob, with the caller's threads.
#pragma once

#include "driver.h"
#include "problem.h"
#include "weights.h"

namespace quern {

// `weights`: the first element of the plain ones, which are at least one channel.
inline void pack_all(const job& j, const algorithm& a, const void* weights, char* payload, const quern_exec& exec) {
  const geometry& g = geometry_of(j.problem);
  const int64_t channels = g.k * g.groups, parts = up(channels, 16);
  // Sixteen channels an item: no two threads write one cache line, but for the edges of panels.
  const quern_args none = {};
  blocking no_workspace = j.blocks;
  no_workspace.workspace_bytes = 0;
  for_each_item({j.problem, j.row, no_workspace}, {none, &exec, exec.threads, nullptr, nullptr}, parts,
                [&](int64_t part, char*) {
                  const int64_t first = part * 16, count = std::min<int64_t>(16, channels - first);
                  const char* from =
                      static_cast<const char*>(weights) + weight_offset(g, first) * type_bytes(j.problem.weights.type);
                  a.pack(j, first, count, from, payload);
                });
}

}  // namespace quern
