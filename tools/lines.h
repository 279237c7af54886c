// SPDX-License-Identifier: MIT
//
// Layers: problem lines from files, from standard input, or from the command line itself.
#pragma once

#include <quern/quern.h>

#include <iosfwd>
#include <string>
#include <vector>

namespace tools {

struct layer {
  std::string name;  // of n"...", else the line itself
  std::string line;
  quern_problem problem;  // complete
};

// Each argument is a file of problem lines, "-" for standard input, or one problem line.  In files, empty
// lines are skipped, and what follows a # at the beginning or after a space.  Lines without an epilogue of their own
// get `epilogue`. A line that is no problem: throws a stop that names all of them as file:line:column, and how many.
std::vector<layer> read_layers(const std::vector<std::string>& arguments, const std::string& epilogue);

// The same from one stream, which the complaints call `where`; an epilogue that is none is each line's
// complaint.
std::vector<layer> read_layers(const std::string& where, std::istream&, const std::string& epilogue);

// One line from the command line, given in one or several words.
layer read_layer(const std::vector<std::string>& words);

// The text form of a problem.
std::string problem_text(const quern_problem&);

// "nhwc", or "nhwc:nc8hw8" where they differ.
std::string layouts_text(quern_layout src, quern_layout dst);

}  // namespace tools
