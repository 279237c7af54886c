// SPDX-License-Identifier: MIT
//
// The row of a kernel of lines.h, as many blocks of which share a multiprocessor, at least.
#pragma once

#include "cuda/image.h"
#include "cuda/lines.h"

namespace quern {
namespace {

template <class Kernel>
constexpr kernel lines_row(enum kind kind, const char* name, int16_t blocks, const char* about) {
  return {.name = name,
          .about = about,
          .kind = kind,
          .type = type_of<typename Kernel::element>,
          .mr = Kernel::job_outputs,
          .nr = Kernel::columns_of_strip,
          .taps = Kernel::taps,
          .step = Kernel::step,
          .group = Kernel::group,
          .tile = blocks,
          .image = image,
          .capability = 80,
          .src_align = sizeof(typename Kernel::element),
          .threads = Kernel::threads,
          .shared_bytes = Kernel::shared_bytes,
          .early = true};
}

}  // namespace
}  // namespace quern
