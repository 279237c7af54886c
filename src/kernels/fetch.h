// SPDX-License-Identifier: MIT
//
// Cache lines that a later call wants, brought into L2 a few at a time: lines_ahead of kernel.h.
#pragma once

#include "kernel.h"

namespace quern {
namespace {

// Asks for what goes beside so many vectors of outputs.
template <bool WRITES>
[[gnu::always_inline]] inline void fetch(lines_ahead& ahead, size_t vectors) {
  size_t count = vectors * ahead.pace;
  if (count > ahead.count) count = ahead.count;
  ahead.count -= count;
  while (count > 0) {
    const size_t lines = count < ahead.left ? count : ahead.left;
    QUERN_ROLL for (size_t i = 0; i < lines; ++i) __builtin_prefetch(ahead.at + i * 16, WRITES, WRITES ? 3 : 2);
    ahead.pass(lines), count -= lines;
  }
}

// Of inputs and outputs.
[[gnu::always_inline]] inline void fetch(lines_ahead* ahead, size_t vectors) {
  fetch<false>(ahead[0], vectors);
  fetch<true>(ahead[1], vectors);
}

}  // namespace
}  // namespace quern
