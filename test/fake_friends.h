// SPDX-License-Identifier: MIT
//
// Threads and blocks of operators without products, and of the reference, on this CPU.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "cuda/elementwise.h"
#include "cuda/pooling.h"
#include "cuda/reference.h"
#include "cuda/slices.h"
#include "geometry.h"

namespace quern::test {

template <class T, class Problem>
void run_reference(const Problem& r, int64_t all) {
  for (int64_t thread = 0; thread < all; ++thread)
    for (int64_t i = thread; i < r.elements; i += all) reference_output<T>(r, i);
}

template <class T>
void run_pooling(const pooling& a, unsigned blocks) {
  std::vector<float> shared(pooling_shared<T> / 4, std::numeric_limits<float>::quiet_NaN());
  const int32_t all = static_cast<int32_t>(blocks) * pooling_threads;
  EXPECT_LT(all - a.threads, pooling_threads);
  for (int32_t i = 0; i < all; ++i) pool_thread<T>(a, i, shared.data() + i % pooling_threads);
}

template <class T>
void run_elementwise(const elementwise& a, unsigned blocks) {
  for (int32_t block = 0; block < static_cast<int32_t>(blocks); ++block) {
    std::vector<four_floats> shared(element_shared<T> / sizeof(four_floats));
    memset(static_cast<void*>(shared.data()), 0xff, shared.size() * sizeof shared[0]);
    float* const floats = shared[0].v;
    std::vector<element_turn<T>> threads;
    for (int32_t i = 0; i < element_threads; ++i) {
      if (!a.turned) {
        combine_elements<T>(a, block * element_threads + i, floats + i);
      } else {
        threads.emplace_back(a, block, i, reinterpret_cast<T*>(floats));
      }
    }
    for (const element_turn<T>& t : threads) t.read_tile();
    for (size_t i = 0; i < threads.size(); ++i) threads[i].write_tile(floats + turn_shared<T> / 4 + i);
  }
}

// Blocks one after the other, threads in turn between barriers.
template <class T, int V>
void run_slices(const slices& a, unsigned blocks) {
  EXPECT_EQ(static_cast<int32_t>(blocks), up(a.slices, slice_threads / a.lanes));
  for (int32_t block = 0; block < static_cast<int32_t>(blocks); ++block) {
    std::vector<float> shared(slice_shared / 4, std::numeric_limits<float>::quiet_NaN());
    std::vector<slice_thread<T, V>> threads;
    threads.reserve(slice_threads);
    for (int i = 0; i < slice_threads; ++i) threads.emplace_back(a, block, i, shared.data());
    const auto all = [&](auto f) {
      for (slice_thread<T, V>& t : threads) f(t);
    };
    for (int32_t pass = 0;; ++pass) {
      all([=](auto& t) { t.visit(pass); });
      if (threads[0].is_last(pass)) break;
      all([=](auto& t) { t.join(pass); });
      all([=](auto& t) { t.take(pass); });
      if (!is_reduction(a.op)) continue;
      all([](auto& t) { t.write_first(); });
      break;
    }
  }
}

}  // namespace quern::test
