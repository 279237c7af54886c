// SPDX-License-Identifier: MIT
//
// FNV-1a over words, in four chains side by side so that none waits for another (Fowler, Noll, Vo); more would not stay
// in registers.  Every step can be undone: damage to a single word never goes unseen.
#pragma once

#include <stdint.h>
#include <string.h>

namespace quern {

class hash_chains {
 public:
  explicit hash_chains(uint64_t seed) {
    for (int i = 0; i < chains; ++i) lane_[i] = seed + uint64_t(i);
    lane_[0] = seed ^ 0xcbf29ce484222325;
  }
  // As many words as make rounds of all chains; the rest begins where it returns.
  const char* rounds(const char* p, uint64_t bytes) {
    for (uint64_t left = bytes / (8 * chains); left > 0; --left, p += 8 * chains)
      for (int i = 0; i < chains; ++i) word(i, p + 8 * i);
    return p;
  }
  void words(const void* data, uint64_t bytes) {
    const char* const rest = rounds(static_cast<const char*>(data), bytes);
    for (int i = 0; i < int(bytes / 8 % chains); ++i) word(i, rest + 8 * i);
  }
  void byte(unsigned char b) { lane_[0] = (lane_[0] ^ b) * prime; }
  uint64_t end() const {
    uint64_t all = lane_[0];
    for (int i = 1; i < chains; ++i) all = (all ^ lane_[i]) * prime, all ^= all >> 31;
    return all;
  }

 private:
  static constexpr int chains = 4;
  static constexpr uint64_t prime = 0x100000001b3;
  void word(int i, const char* at) {
    uint64_t w;
    memcpy(&w, at, sizeof w);
    lane_[i] = (lane_[i] ^ w) * prime, lane_[i] ^= lane_[i] >> 29;
  }
  uint64_t lane_[chains];
};

// Of memory as it is; on disk, too: the values stay.
inline uint64_t hash(const void* data, uint64_t bytes, uint64_t seed) {
  hash_chains c(seed);
  const char* p = c.rounds(static_cast<const char*>(data), bytes);
  for (bytes %= 32; bytes > 0; --bytes, ++p) c.byte(static_cast<unsigned char>(*p));
  return c.end();
}

}  // namespace quern
