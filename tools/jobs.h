// SPDX-License-Identifier: MIT
//
// Layers in the layouts in which a command is to run them.
#pragma once

#include <string>
#include <vector>

#include "lines.h"

namespace tools {

struct job_options {
  std::vector<std::string> layers;
  std::vector<std::string> layouts;  // empty: each line's own
  std::string accuracy, filter, type;
  std::string device = "cpu";              // or "cuda"
  std::string epilogue = "bias act=relu";  // of lines without one
};

struct job {
  layer from;
  quern_problem problem;  // complete, without QUERN_ANY
};

// At least one, for this device, NULL: the CPU; throws a stop that says what is wrong.
std::vector<job> jobs_of(const job_options&, const quern_device* = nullptr);

// "nhwc", "nchw:nhwc"; "rows" for a GEMM.
std::string layout_text(const quern_problem&);

// Wipes the line that it last wrote; silent unless stderr is a terminal.
class progress {
 public:
  progress();
  void show(const std::string& line) const;

 private:
  bool shown_;
};

}  // namespace tools
