// SPDX-License-Identifier: MIT
//
// The header in front of packed weights.  With it a blob can be saved, mapped and shared: it says which
// plans may read it, and whether it is whole.
#pragma once

#include "algorithm.h"

namespace quern {

// On disk as in memory: little-endian, 256 bytes, the payload right behind it.
struct blob_header {
  char magic[8];
  uint32_t revision;  // of this header and of the orders in weights.h
  uint32_t header_bytes;
  uint64_t total_bytes;  // header included
  uint64_t checksum;     // of everything else
  uint64_t fingerprint;  // of the fields below
  char algorithm[32], kernel[48];
  int32_t op, type;
  int64_t weights_size[5];
  int64_t groups;
  uint64_t isa;
  uint32_t order;  // blocks.order
  uint32_t reserved[17];
};
static_assert(sizeof(blob_header) == 256);

// What a blob for this job has in its header; only the checksum is still missing.
blob_header blob_header_of(const job&, const algorithm&, uint64_t total_bytes);

// Checksum of a sealed or unsealed blob: everything but the checksum itself.
uint64_t blob_checksum(const blob_header&, const char* payload);

}  // namespace quern
