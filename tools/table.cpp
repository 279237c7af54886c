// SPDX-License-Identifier: MIT
#include "table.h"

#include <algorithm>
#include <cstdarg>

namespace tools {

void table::add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

void table::header(FILE* out) {
  std::vector<std::string> titles;
  for (column& c : columns_) {
    c.width = std::max(c.width, c.title.size());
    titles.push_back(c.title);
  }
  row(out, titles);
}

void table::row(FILE* out, const std::vector<std::string>& cells) const {
  std::string line;
  for (size_t i = 0; i < columns_.size() && i < cells.size(); ++i) {
    const std::string gap(columns_[i].width - std::min(columns_[i].width, cells[i].size()), ' ');
    if (i) line += "  ";
    line += columns_[i].right ? gap + cells[i] : cells[i] + gap;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  std::fprintf(out, "%s\n", line.c_str());
}

void table::print(FILE* out) {
  for (const auto& cells : rows_) {
    for (size_t i = 0; i < columns_.size() && i < cells.size(); ++i) {
      columns_[i].width = std::max(columns_[i].width, cells[i].size());
    }
  }
  header(out);
  for (const auto& cells : rows_) row(out, cells);
}

std::string text(const char* format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  std::string out(static_cast<size_t>(std::max(std::vsnprintf(nullptr, 0, format, args), 0)), '\0');
  std::vsnprintf(out.data(), out.size() + 1, format, again);
  va_end(again);
  va_end(args);
  return out;
}

std::string bytes_text(uint64_t bytes) {
  if (bytes == 0) return "-";
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  return text(unit == 0 || value >= 100 || value == static_cast<int>(value) ? "%.0f %s" : "%.1f %s", value,
              units[unit]);
}

std::string time_text(double nanoseconds) {
  if (!(nanoseconds > 0)) return "-";
  const char* const units[] = {"ns", "us", "ms", "s"};
  size_t unit = 0;
  while (nanoseconds >= 1000 && unit < 3) nanoseconds /= 1000, ++unit;
  return text(nanoseconds < 10 ? "%.2f %s" : nanoseconds < 100 ? "%.1f %s" : "%.0f %s", nanoseconds, units[unit]);
}

}  // namespace tools
