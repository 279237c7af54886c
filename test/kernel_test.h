// SPDX-License-Identifier: MIT
//
// Tests that have a row as their parameter.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kernel_rows.h"

namespace quern::test {

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
