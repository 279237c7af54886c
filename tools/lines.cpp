// SPDX-License-Identifier: MIT
#include "lines.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

#include "stop.h"
#include "table.h"

namespace tools {
namespace {

constexpr size_t longest_line = 4096;
constexpr size_t most_complaints = 20;

std::string name_of(const std::string& line) {
  const size_t begin = line.find("n\"");
  const size_t end = begin == std::string::npos ? begin : line.find('"', begin + 2);
  if (end == std::string::npos) {
    const size_t first = line.find_first_not_of(" \t");
    return line.substr(first, line.find_last_not_of(" \t") + 1 - first);
  }
  return line.substr(begin + 2, end - begin - 2);
}

bool has_epilogue(const quern_epilogue& e) {
  return e.scale || e.bias || e.residual || e.activation || (e.alpha != 0 && e.alpha != 1);
}

// Where " # ..." at the end of a line begins, else its length; a # within a name is part of it.
size_t comment_of(const std::string& line) {
  bool quoted = false;
  for (size_t i = 1; i < line.size(); ++i) {
    if (line[i] == '"') quoted = !quoted;
    if (line[i] == '#' && !quoted && (line[i - 1] == ' ' || line[i - 1] == '\t')) return i;
  }
  return line.size();
}

// The parser's sentence without the column that it begins with.
const char* sentence_of(const quern_error& error) {
  const char* const colon = std::strncmp(error.text, "column ", 7) == 0 ? std::strstr(error.text, ": ") : nullptr;
  return colon ? colon + 2 : error.text;
}

struct reader {
  std::string epilogue;
  std::vector<layer> layers;
  std::vector<std::string> complaints;

  void complain(const std::string& where, size_t row, int64_t column, const char* sentence) {
    complaints.push_back(text("%s:%zu:%lld: %s", where.c_str(), row, static_cast<long long>(column), sentence));
  }

  void read(const std::string& where, size_t row, std::string line) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.size() > longest_line) {
      return complain(where, row, longest_line + 1, text("the line is longer than %zu bytes", longest_line).c_str());
    }
    if (const size_t zero = line.find('\0'); zero != std::string::npos) {
      return complain(where, row, static_cast<int64_t>(zero) + 1, "a zero byte: this is no text");
    }
    if (const size_t first = line.find_first_not_of(" \t");
        first != std::string::npos && line.compare(first, 2, "--") == 0) {
      return complain(where, row, static_cast<int64_t>(first) + 1, "an option of benchdnn, must be a problem line");
    }
    line.erase(comment_of(line));
    quern_problem problem = {};
    quern_error error = {};
    if (quern_problem_parse(line.c_str(), &problem, &error) != QUERN_OK) {
      return complain(where, row, error.value, sentence_of(error));
    }
    std::string full = line;
    if (!epilogue.empty() && problem.op != QUERN_REORDER && !has_epilogue(problem.epilogue)) {
      full += " " + epilogue;
      if (quern_problem_parse(full.c_str(), &problem, &error) != QUERN_OK) {
        return complain(where, row, 1, text("with --epilogue '%s': %s", epilogue.c_str(), sentence_of(error)).c_str());
      }
    }
    if (quern_problem_complete(&problem, &problem, &error) != QUERN_OK) {
      const size_t first = line.find_first_not_of(" \t");
      return complain(where, row, static_cast<int64_t>(first) + 1, error.text);
    }
    layers.push_back({name_of(line), full, problem});
  }

  void read(const std::string& where, std::istream& in) {
    std::string line;
    for (size_t row = 1; std::getline(in, line); ++row) {
      if (row == 1 && line.compare(0, 3, "\xef\xbb\xbf") == 0) line.erase(0, 3);
      const size_t first = line.find_first_not_of(" \t\r");
      if (first != std::string::npos && line[first] != '#') read(where, row, line);
      if (complaints.size() > most_complaints) return;
    }
    if (in.bad()) throw stop{failed, where + ": cannot be read: " + std::strerror(errno)};
  }

  void finish() const {
    if (complaints.empty()) return;
    std::string all;
    for (size_t i = 0; i < complaints.size() && i < most_complaints; ++i) all += complaints[i] + "\n";
    if (complaints.size() > most_complaints) all += "... and more\n";
    throw stop{bad_input, all + "nothing was run"};
  }
};

}  // namespace

std::vector<layer> read_layers(const std::vector<std::string>& arguments, const std::string& epilogue) {
  reader r;
  if (!epilogue.empty()) {
    quern_problem probe = {};
    quern_error error = {};
    if (quern_problem_parse(("ic1ih1oc1kh1 " + epilogue).c_str(), &probe, &error) != QUERN_OK) {
      throw stop{bad_input, std::string("--epilogue: ") + sentence_of(error)};
    }
    r.epilogue = epilogue;
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    struct stat status = {};
    if (argument == "-") {
      r.read("stdin", std::cin);
    } else if (stat(argument.c_str(), &status) == 0) {
      std::ifstream in(argument);
      if (S_ISDIR(status.st_mode)) throw stop{bad_input, argument + ": is a folder, must be a file of problem lines"};
      if (!in) throw stop{bad_input, argument + ": cannot be opened: " + std::strerror(errno)};
      r.read(argument, in);
    } else {
      const size_t before = r.complaints.size();
      r.read(text("argument %zu", i + 1), 1, argument);
      if (r.complaints.size() > before) r.complaints.back() += text(" (and there is no file '%s')", argument.c_str());
    }
  }
  r.finish();
  return r.layers;
}

std::vector<layer> read_layers(const std::string& where, std::istream& in, const std::string& epilogue) {
  reader r;
  r.epilogue = epilogue;
  r.read(where, in);
  r.finish();
  return r.layers;
}

layer read_layer(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  reader r;
  r.read("layer", 1, line);
  if (!r.complaints.empty()) throw stop{bad_input, r.complaints.front()};
  return r.layers.front();
}

std::string problem_text(const quern_problem& problem) {
  char line[2048];
  quern_error error = {};
  need(quern_problem_print(&problem, line, sizeof line, nullptr, &error), error, "printing the problem");
  return line;
}

std::string layouts_text(quern_layout src, quern_layout dst) {
  static const char* const names[] = {"?", "nchw", "nhwc", "nc4hw4", "nc8hw8", "nc16hw16", "any"};
  const auto name = [](quern_layout l) { return names[l >= QUERN_NCHW && l <= QUERN_ANY ? l : 0]; };
  return src == dst ? name(src) : std::string(name(src)) + ":" + name(dst);
}

}  // namespace tools
