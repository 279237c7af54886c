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
  uint64_t end() const {
    uint64_t all = lane[0];
    for (int i = 1; i < chains; ++i) all = (all ^ lane[i]) * prime, all ^= all >> 31;
    return all;
  }
};

inline uint64_t word_at(const char* p) {
  uint64_t w;
  memcpy(&w, p, sizeof w);
  return w;
}

// FNV-1a (Fowler, Noll, Vo) over words.  On disk, too: the values stay.
inline uint64_t hash(const void* data, uint64_t bytes, uint64_t seed) {
  hash_chains c(seed);
  const char* p = static_cast<const char*>(data);
  for (uint64_t left = bytes / 32; left > 0; --left, p += 32)
    for (int i = 0; i < c.chains; ++i) {
      const uint64_t mixed = (c.lane[i] ^ word_at(p + 8 * i)) * c.prime;
      c.lane[i] = mixed ^ mixed >> 29;
    }
  for (bytes %= 32; bytes > 0; --bytes, ++p) c.lane[0] = (c.lane[0] ^ static_cast<unsigned char>(*p)) * c.prime;
  return c.end();
}

// Of whole words, of this process alone, in half of the time: a polynomial of each chain's pairs of words.  They are
// turned first, each by its own angle: a product carries nothing down from its highest bit, and whoever edits
// neighbours may change both alike.
inline uint64_t hash_words(const void* data, uint64_t words, uint64_t seed) {
  hash_chains c(seed);
  const char* p = static_cast<const char*>(data);
  const auto step = [](uint64_t lane, uint64_t a, uint64_t b) {
    return (lane + ((a << 1 | a >> 63) ^ (b << 23 | b >> 41))) * 0x9e3779b97f4a7c15;
  };
  for (; words >= 8; words -= 8, p += 64)
    for (int i = 0; i < c.chains; ++i) c.lane[i] = step(c.lane[i], word_at(p + 16 * i), word_at(p + 16 * i + 8));
  for (; words > 0; --words, p += 8) c.lane[0] = step(c.lane[0], word_at(p), 0);
  return c.end();
}

}  // namespace quern
