// SPDX-License-Identifier: MIT
#include "blob.h"

#include <stdio.h>
#include <string.h>

#include "hash.h"

namespace quern {
namespace {

constexpr char magic[8] = {'Q', 'U', 'E', 'R', 'N', 'P', 'K', '\n'};
constexpr uint32_t revision = 1;

}  // namespace

blob_header blob_header_of(const job& j, const algorithm& a, uint64_t total_bytes) {
  const quern_problem& p = j.problem;
  blob_header h = {};
  memcpy(h.magic, magic, sizeof magic);
  h.revision = revision;
  h.header_bytes = sizeof h;
  h.total_bytes = total_bytes;
  snprintf(h.algorithm, sizeof h.algorithm, "%s", a.name);
  snprintf(h.kernel, sizeof h.kernel, "%s", j.row.name);
  h.op = p.op, h.type = p.weights.type;
  memcpy(h.weights_size, p.weights.size, sizeof h.weights_size);
  h.groups = p.groups;
  h.isa = j.row.isa;
  h.order = j.blocks.order;
  // A transposed convolution's phases, and with them the order of taps, follow its window and where dst ends.
  const bool transposed = p.op == QUERN_CONV_TRANSPOSED;
  int64_t window[9] = {};
  for (int i = 0; transposed && i < 3; ++i) {
    const int64_t stride = p.window.stride[i];
    window[i] = stride;
    window[3 + i] = p.window.dilation[i];
    window[6 + i] = p.window.pad_begin[i] % stride * stride + (p.dst.size[2 + i] < stride ? p.dst.size[2 + i] : stride);
  }
  h.fingerprint = hash(window, sizeof window, hash(&h, sizeof h, 0));
  return h;
}

uint64_t blob_checksum(const blob_header& header, const char* payload) {
  blob_header h = header;
  h.checksum = 0;
  return hash(payload, h.total_bytes - sizeof h, hash(&h, sizeof h, 0));
}

}  // namespace quern
