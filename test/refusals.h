// SPDX-License-Identifier: MIT
//
// What a refusal must look like, and a problem with everything that can be refused.
#pragma once

#include "prepared.h"

namespace quern {

inline void expect(quern_status got, const quern_error& error, quern_status status, const char* field) {
  EXPECT_EQ(got, status) << error.text;
  EXPECT_EQ(error.status, status);
  EXPECT_STREQ(error.field, field) << error.text;
  EXPECT_GT(strlen(error.text), 10u);
  // The sentence begins with the field or says it: `args.size` for a field args and a member size.
  const std::string last = std::string(field).substr(std::string(field).rfind('.') + 1);
  EXPECT_NE(std::string(error.text).find(last), std::string::npos) << error.text << " does not say " << field;
}

inline quern_problem everything() {  // every operand that args has
  quern_problem p = conv(QUERN_NCHW, 1, 8, 12, 24);
  p.epilogue.scale = p.epilogue.bias = 1;
  p.epilogue.residual = QUERN_RESIDUAL_BEFORE;
  p.epilogue.activation = QUERN_PRELU;
  return p;
}

template <class T>
T* shifted(const void* p, ptrdiff_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(bytes));
}

class on_a_kernel : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_run(lowest_isa)) GTEST_SKIP() << "no kernel but the reference runs here";
  }
};

}  // namespace quern
