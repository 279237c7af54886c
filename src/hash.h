// SPDX-License-Identifier: MIT
//
// Hashes of memory in four chains side by side, so that no step waits for another.  Every step can be undone: damage to
// a single word never goes unseen.
#pragma once

#include <stdint.h>
#include <string.h>

namespace quern {

struct hash_chains {
  static constexpr int chains = 4;
  static constexpr uint64_t prime = 0x100000001b3;
  uint64_t lane[chains];
  explicit hash_chains(uint64_t seed) {
    for (int i = 0; i < chains; ++i) lane[i] = seed + uint64_t(i);
    lane[0] = seed ^ 0xcbf29ce484222325;
  }
  // step(lane, word) of as many words as make rounds of all chains; the rest begins where it returns.
  template <class Step>
  const char* rounds(const char* p, uint64_t bytes, Step step) {
    for (uint64_t left = bytes / (8 * chains); left > 0; --left, p += 8 * chains) some(p, chains, step);
    return p;
  }
  template <class Step>
  void some(const char* p, int words, Step step) {
    for (int i = 0; i < words; ++i) {
      uint64_t w;
      memcpy(&w, p + 8 * i, sizeof w);
      lane[i] = step(lane[i], w);
    }
  }
  uint64_t end() const {
    uint64_t all = lane[0];
    for (int i = 1; i < chains; ++i) all = (all ^ lane[i]) * prime, all ^= all >> 31;
    return all;
  }
};

// FNV-1a (Fowler, Noll, Vo) over words.  On disk, too: the values stay.
inline uint64_t hash(const void* data, uint64_t bytes, uint64_t seed) {
  hash_chains c(seed);
  const char* p = c.rounds(static_cast<const char*>(data), bytes, [](uint64_t lane, uint64_t w) {
    lane = (lane ^ w) * hash_chains::prime;
    return lane ^ lane >> 29;
  });
  for (bytes %= 32; bytes > 0; --bytes, ++p) c.lane[0] = (c.lane[0] ^ static_cast<unsigned char>(*p)) * c.prime;
  return c.end();
}

// Of whole words, of this process alone, in two thirds of the time: a polynomial of each chain's words.  They are
// turned first, for products carry nothing down from the highest bit: it would be that of signs.
inline uint64_t hash_words(const void* data, uint64_t words, uint64_t seed) {
  hash_chains c(seed);
  const auto step = [](uint64_t lane, uint64_t w) { return (lane + (w << 16 | w >> 48)) * 0x9e3779b97f4a7c15; };
  const char* const rest = c.rounds(static_cast<const char*>(data), 8 * words, step);
  c.some(rest, int(words % hash_chains::chains), step);
  return c.end();
}

}  // namespace quern
