// SPDX-License-Identifier: MIT
//
// What pooling on a CPU takes beside its results: memory, threads, and the time that is predicted; and problems that
// random ones rarely are.
#include <gtest/gtest.h>

#include <string>

#include "compare.h"
#include "fuzz.h"

namespace quern::test {
namespace {

quern_problem parsed(const std::string& line) {
  quern_problem p = {};
  quern_error error = {};
  EXPECT_EQ(quern_problem_parse(line.c_str(), &p, &error), QUERN_OK) << line << ": " << error.text;
  return completed(p);
}

// Every row of the driver.
void expect_agreement(const std::string& line, const way& how = {}) {
  dice d(1);
  const quern_problem p = parsed(line);
  const operands in = small_integers(p, how.side, d);
  const solution want = solve(p, in, "reference", nullptr, {.side = how.side});
  for (const quern_candidate& c : usable_candidates(p))
    EXPECT_TRUE(agree_as_friends(p, want, solve(p, in, c.algorithm, c.kernel, how))) << line;
}

// A slice before the first is nothing.
TEST(pooling, leaves_out_slices_of_padding) {
  for (const char* op : {"pool_max", "pool_avg", "pool_avg_padded"})
    for (const char* window : {"od1oh8ow8kd1kh3kw3sd2sh1sw1pd1", "od3oh8ow8kd1kh3kw3sd1sh1sw1pd1"})
      expect_agreement(std::string(op) + " nchw mb1ic1id1ih8iw8" + window + "ph1pw1");
}

double predicted(const std::string& line) {
  for (const quern_candidate& c : usable_candidates(parsed(line)))
    if (std::string(c.algorithm) == "pool") return c.predicted_ns;
  ADD_FAILURE() << line << ": pool does not take it";
  return 0;
}

// Some channels of tensors that have many more.
TEST(pooling, counts_elements_and_not_what_lies_between_them) {
  const double dense = predicted("pool_max nhwc mb2ic16ih28kh3ph1"),
               slice = predicted("pool_max nhwc mb2ic16ih28kh3ph1 src_stride=12544000x1x12544000x448000x16000 "
                                 "dst_stride=12544000x1x12544000x448000x16000");
  EXPECT_LT(slice, 1.01 * dense);
}

}  // namespace
}  // namespace quern::test
