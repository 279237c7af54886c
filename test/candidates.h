// SPDX-License-Identifier: MIT
//
// CPUs as values, problems of every kind, and their candidates.
#pragma once

#include "prepared.h"

namespace quern {

inline constexpr uint64_t avx2 = QUERN_ISA_AVX2, avx512 = QUERN_ISA_AVX2 | QUERN_ISA_AVX512, amx = QUERN_ISA_AMX,
                          neon = QUERN_ISA_NEON;

inline quern_cpu cpu_of(uint64_t isa, uint64_t l1, uint64_t l2, uint64_t l3) {
  return {sizeof(quern_cpu), 1, isa, l1 << 10, l2 << 10, l3 << 10, 0};
}
inline quern_cpu cpu_of(uint64_t isa) { return cpu_of(isa, 32, 1024, 32 << 10); }

inline std::vector<quern_candidate> candidates(const quern_problem& p, const quern_wish& wish) {
  size_t count = 0;
  quern_error error = {};
  EXPECT_EQ(quern_candidates(nullptr, &p, &wish, nullptr, 0, &count, &error), QUERN_OK) << error.text;
  std::vector<quern_candidate> all(count);
  if (count) all[0].size = sizeof(quern_candidate);
  EXPECT_EQ(quern_candidates(nullptr, &p, &wish, all.data(), count, &count, &error), QUERN_OK) << error.text;
  EXPECT_EQ(count, all.size());
  return all;
}

inline std::string explained(const quern_candidate& c) {
  char text[300] = "";
  quern_error error = {};
  EXPECT_EQ(quern_candidate_explain(&c, text, sizeof text, nullptr, &error), QUERN_OK) << error.text;
  return text;
}

inline const quern_candidate* find(const std::vector<quern_candidate>& all, const char* algorithm, const char* kernel) {
  for (const quern_candidate& c : all)
    if (strcmp(c.algorithm, algorithm) == 0 && strcmp(c.kernel, kernel) == 0) return &c;
  return nullptr;
}

inline std::vector<quern_problem> problems() {
  std::vector<quern_problem> list;
  for (const quern_layout layout : {QUERN_NCHW, QUERN_NHWC}) {
    list.push_back(conv(layout, 1, 64, 56, 64));
    list.push_back(conv(layout, 1, 3, 224, 64, 7));
    list.push_back(conv(layout, 2, 512, 7, 512, 1));
    list.push_back(conv(layout, 1, 1, 1, 1, 1));
    list.push_back(conv(layout, 0, 16, 8, 16));
    quern_problem p = quern_conv2d_transposed(QUERN_F32, layout, 1, 32, 20, 20, 8, 4, 4);
    p.window.stride[1] = p.window.stride[2] = 2;
    list.push_back(p);
  }
  list.push_back(quern_gemm(QUERN_F32, 100, 200, 300));
  return list;
}

}  // namespace quern
