// SPDX-License-Identifier: MIT
//
// Tables of tuning results from whatever the bytes are, as they come or with keys and checksums that fit them: never a
// crash, a merge that checks, and plans that are as good as without.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "build_isas.h"
#include "hash.h"
#include "tuning.h"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

// Each line of the text as a row that is sealed.
std::string sealed(const std::string& text) {
  std::string table = quern::tuning_header;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string row = text.substr(at, end - at);
    const size_t first = row.find(" | "), second = first == std::string::npos ? first : row.find(" | ", first + 3);
    const uint64_t key = quern::hash(row.data(), std::min(second, row.size()), 0);
    char digits[40];
    std::snprintf(digits, sizeof digits, "%016llx %016llx ", static_cast<unsigned long long>(key),
                  static_cast<unsigned long long>(quern::hash(row.data(), row.size(), key)));
    table += digits + row + "\n";
    at = end + 1;
  }
  return table;
}

constexpr quern_cpu cpu = {sizeof(quern_cpu), 1, quern::lowest_isa, 32 << 10, 256 << 10, 0};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data + 1), size - 1);
  const std::string table = data[0] % 2 ? sealed(rest) : rest;
  quern_error error = {};
  size_t rows = 0, damaged = 0;
  const quern_status status = quern_tuning_check(table.data(), table.size(), &rows, &damaged, &error);
  require(status == QUERN_OK || (status == QUERN_MISMATCH && error.text[0]), "a check has an answer");

  size_t most = 0;
  if (quern_tuning_merge(table.data(), table.size(), table.data(), table.size(), nullptr, 0, &most, &error) ==
      QUERN_OK) {
    std::vector<char> out(most);
    size_t length = 0, kept = 0;
    require(quern_tuning_merge(table.data(), table.size(), table.data(), table.size(), out.data(), most, &length,
                               &error) == QUERN_OK,
            "what suffices suffices");
    require(length <= most && quern_tuning_check(out.data(), length, &kept, nullptr, nullptr) == QUERN_OK,
            "a merged table is whole");
    require(kept <= rows, "no row comes from nowhere");
  }

  quern_problem p = quern_conv2d(QUERN_F32, QUERN_NHWC, 1, 8, 6, 6, 8, 3, 3);
  quern_wish wish = {};
  wish.size = sizeof wish, wish.verbose = -1, wish.cpu = &cpu;
  wish.tuning = table.data(), wish.tuning_bytes = table.size();
  quern_plan plan;
  require(quern_plan_make(&plan, nullptr, &p, &wish, &error) == QUERN_OK, "a table rules nothing out");
  quern::resolved_wish w;
  require(quern::resolve(nullptr, &wish, w, &error) == QUERN_OK, "the wish is one");
  // Under the key that is asked for, whatever the bytes say of it.
  quern_problem_complete(&p, &p, nullptr);
  char key[quern::most_key];
  const size_t length = quern::tuning_key(p, w, false, key);
  const std::string own = sealed(std::string(key, length) + " | " + rest.substr(0, rest.find('\n')));
  wish.tuning = own.data(), wish.tuning_bytes = own.size();
  require(quern_plan_make(&plan, nullptr, &p, &wish, &error) == QUERN_OK, "whatever a row says makes a plan");
  return 0;
}
