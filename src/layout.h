// SPDX-License-Identifier: MIT
//
// Where the channels of a tensor lie.
#pragma once

#include <quern/quern.h>

namespace quern {

// Channels that lie side by side in a blocked layout; 1 in the others.
constexpr int64_t block_of(quern_layout layout) {
  return layout == QUERN_NC4HW4 ? 4 : layout == QUERN_NC8HW8 ? 8 : layout == QUERN_NC16HW16 ? 16 : 1;
}

// Elements from channel 0 to channel c; `stride` is stride[1].
constexpr int64_t channel_offset(int64_t c, int64_t stride, int64_t block) {
  return block == 1 ? c * stride : c / block * stride + c % block;
}

// Elements from the first element of a tensor to that at n c d h w.
constexpr int64_t offset_of(const quern_tensor& t, const int64_t at[5]) {
  return at[0] * t.stride[0] + channel_offset(at[1], t.stride[1], block_of(t.layout)) + at[2] * t.stride[2] +
         at[3] * t.stride[3] + at[4] * t.stride[4];
}

}  // namespace quern
