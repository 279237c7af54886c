// SPDX-License-Identifier: MIT
//
// Text tables and numbers for people.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace tools {

struct column {
  std::string title;
  bool right;        // numbers stand right
  size_t width = 0;  // at least
};

// Rows are kept until print(), which makes every column as wide as its widest cell; row() prints one at
// once, for tables that grow while one watches.
class table {
 public:
  explicit table(std::vector<column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells);
  void print(FILE*);
  void header(FILE*);
  void row(FILE*, const std::vector<std::string>& cells) const;

 private:
  std::vector<column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// As printf, into a string.
[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...);

// "1.5 MiB"; "-" for 0.
std::string bytes_text(uint64_t bytes);

// 3.25 ms, 41.2 us: three digits and a unit; "-" for 0.
std::string time_text(double nanoseconds);

}  // namespace tools
