// SPDX-License-Identifier: MIT
//
// What is chosen for some two hundred problems, and what is said of the other candidates, as `quern explain` said it
// when scripts/golden ran; asked for again through the C ABI.  A cost model may be refined without touching the file:
// what was chosen must still be nearly the best, times about what they were, and every reason still be given.
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "candidates.h"
#include "wishes.h"

namespace quern {
namespace {

using nlohmann::json;

constexpr double nearly_best = 1.25, about = 2;

// The words after a problem, as the command takes them.
tools::wish_options options_of(const json& expected, const json& cpu) {
  tools::wish_options w;
  for (const std::string both : expected.value("wish", json::array())) {
    const size_t space = both.find(' ');
    const std::string name = both.substr(2, space - 2), value = both.substr(space + 1);
    if (name == "workspace") w.workspace = value;
    if (name == "deny") w.deny = value;
    if (name == "allow") w.allow = value;
    if (name == "algorithm") w.algorithm = value;
    if (name == "repeat") w.repeat = std::stoi(value);
  }
  w.isa = cpu["isa"], w.l1 = cpu["l1"], w.l2 = cpu["l2"], w.l3 = cpu["l3"];
  w.threads = expected["threads"];
  return w;
}

std::string name_of(const quern_candidate& c) { return std::string(c.algorithm) + " " + c.kernel; }

// What differs from the file, empty: nothing that matters.
std::string difference(const json& expected, const json& sentences, const std::vector<quern_candidate>& all) {
  std::map<std::string, int> refused;
  int unavailable = 0;
  for (const quern_candidate& c : all) {
    if (c.reason == QUERN_REASON_ISA)
      ++unavailable;
    else if (c.verdict > QUERN_USABLE)
      ++refused[std::string(c.algorithm) + ": " + explained(c)];
  }
  if (unavailable < expected["unavailable"]) return "fewer candidates lack an instruction set";
  for (const json& r : expected["refused"]) {
    const std::string sentence = sentences[r[0].get<size_t>()];
    if (refused[sentence] < r[1]) return "refused " + std::to_string(refused[sentence]) + " times: " + sentence;
  }
  for (const json& row : expected["usable"]) {
    const std::string name = row[0];
    const auto now = std::find_if(all.begin(), all.end(), [&](const quern_candidate& c) { return name_of(c) == name; });
    if (now == all.end() || now->verdict > QUERN_USABLE) return name + " is not usable any more";
    const double ns = row[1];
    if (now->predicted_ns > about * ns || about * now->predicted_ns < ns)
      return name + " was to take " + std::to_string(ns) + " ns, now " + std::to_string(now->predicted_ns);
    if (row == expected["usable"][0] && now->predicted_ns > nearly_best * all[0].predicted_ns)
      return name + " was chosen; now it is " + name_of(all[0]) + ", in " +
             std::to_string(all[0].predicted_ns / now->predicted_ns) + " of its time";
  }
  if (expected["usable"].empty() && !all.empty() && all[0].verdict <= QUERN_USABLE)
    return name_of(all[0]) + " solves it";
  return {};
}

TEST(Golden, ChoicesAndReasonsAreThoseOfTheFile) {
  if (lowest_isa != QUERN_ISA_AVX2) GTEST_SKIP() << "the file is about x86";
  std::ifstream in(std::string(QUERN_SOURCE_DIR) + "/test/golden.json");
  ASSERT_TRUE(in) << "test/golden.json is not there: scripts/golden writes it";
  const json golden = json::parse(in);
  ASSERT_GE(golden["cases"].size(), 200u);
  int moved = 0;
  for (const json& expected : golden["cases"]) {
    const tools::wishes w(options_of(expected, golden["cpus"][expected["cpu"].get<std::string>()]));
    const std::string line = expected["problem"];
    SCOPED_TRACE(line + ", " + expected["cpu"].get<std::string>());
    quern_problem p;
    quern_error error = {};
    ASSERT_EQ(quern_problem_parse(line.c_str(), &p, &error), QUERN_OK) << error.text;
    const std::vector<quern_candidate> all = candidates(p, w.wish);
    if (const std::string what = difference(expected, golden["sentences"], all); !what.empty() && ++moved <= 20)
      ADD_FAILURE() << what;
    // The plan takes what the list says.
    quern_plan plan = {};
    const bool solved = !all.empty() && all[0].verdict == QUERN_CHOSEN;
    ASSERT_EQ(quern_plan_make(&plan, nullptr, &p, &w.wish, &error) == QUERN_OK, solved) << error.text;
    if (!solved) continue;
    EXPECT_EQ(std::string(plan.algorithm) + " " + plan.kernel, name_of(all[0]));
    EXPECT_EQ(plan.predicted_ns, all[0].predicted_ns);
  }
  EXPECT_EQ(moved, 0) << "of " << golden["cases"].size()
                      << " answers moved.  If they should, run scripts/golden and read the diff of test/golden.json";
}

}  // namespace
}  // namespace quern
