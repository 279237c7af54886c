// SPDX-License-Identifier: MIT
//
// The row of a kernel of tma.h.
#pragma once

#include "cuda/image.h"
#include "cuda/tma.h"

namespace quern {
namespace {

template <class Tile, enum kind Kind = kind::tma>
constexpr kernel tma_row(const char* name, const char* about) {
  return {.name = name,
          .about = about,
          .kind = Kind,
          .type = type_of<typename Tile::element>,
          .accuracy = sums_of<typename Tile::element>,
          .mr = Tile::bm,
          .nr = Tile::bn,
          .vector = 16 / sizeof(typename Tile::element),
          .taps = Tile::taps > 1 ? Tile::taps : 0,
          .lines = Tile::lines,
          .image = image,
          .capability = 90,
          .capability_alone = true,
          .src_align = 16,
          .threads = Tile::threads,
          .shared_bytes = Tile::shared_bytes,
          .cluster = Tile::cluster,
          .early = Tile::early};
}

}  // namespace
}  // namespace quern
