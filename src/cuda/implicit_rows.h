// SPDX-License-Identifier: MIT
//
// The row of a kernel of implicit.h.
#pragma once

#include "cuda/image.h"
#include "cuda/implicit.h"

namespace quern {
namespace {

template <class Tile>
constexpr kernel implicit_row(enum kind kind, uint32_t capability, const char* name, const char* about) {
  return {.name = name,
          .about = about,
          .kind = kind,
          .type = type_of<typename Tile::element>,
          .accuracy = sums_of<typename Tile::element>,
          .mr = Tile::bm,
          .nr = Tile::bn,
          .vector = Tile::vector,
          .image = image,
          .capability = capability,
          .threads = Tile::threads,
          .shared_bytes = Tile::shared_bytes,
          .index = Tile::scheme};
}

}  // namespace
}  // namespace quern
