// SPDX-License-Identifier: MIT
//
// The rows of a kind, and tests that have one as their parameter.
#pragma once

#include <gtest/gtest.h>
#include <quern/quern.h>

#include <string>
#include <vector>

#include "registry.h"

namespace quern::test {

inline std::vector<const kernel*> rows_of(kind k) {
  std::vector<const kernel*> rows;
  for (size_t i = 0; i < kernel_count(); ++i)
    if (kernel_at(i).kind == k) rows.push_back(&kernel_at(i));
  return rows;
}

// The instruction sets that a row needs and this CPU lacks.
inline uint64_t missing_here(const kernel& row) {
  quern_cpu cpu = {};
  cpu.size = sizeof cpu;
  EXPECT_EQ(quern_cpu_get(&cpu, nullptr), QUERN_OK);
  return row.isa & ~cpu.isa;
}

class kernel_test : public testing::TestWithParam<const kernel*> {
 protected:
  void SetUp() override {
    if (const uint64_t missing = missing_here(row()))
      GTEST_SKIP() << row().name << " needs " << quern_isa_name(missing & -missing);
  }
  const kernel& row() const { return *GetParam(); }
};

inline std::string name_of_row(const testing::TestParamInfo<const kernel*>& i) { return i.param->name; }

}  // namespace quern::test
