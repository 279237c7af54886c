// SPDX-License-Identifier: MIT
#include "jobs.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "operands.h"
#include "stop.h"
#include "table.h"
#include "wishes.h"

namespace tools {
namespace {

quern_layout parse_layout(const std::string& name) {
  for (quern_layout l = QUERN_NCHW; l <= QUERN_ANY; ++l) {
    if (name == layouts_text(l, l)) return l;
  }
  throw stop{bad_input,
             "--layout is '" + name +
                 "', must be nchw, nhwc, nc4hw4, nc8hw8, nc16hw16, any, SRC:DST of these, or several with commas"};
}

quern_accuracy parse_accuracy(const std::string& name) {
  for (quern_accuracy a : {QUERN_ACCURACY_DEFAULT, QUERN_ACCURACY_EXACT, QUERN_ACCURACY_F32, QUERN_ACCURACY_F32_FAST,
                           QUERN_ACCURACY_F32_LOOSE, QUERN_ACCURACY_F16}) {
    if (name == accuracy_text(a)) return a;
  }
  throw stop{bad_input, "--accuracy is '" + name + "', must be default, exact, f32, f32_fast, f32_loose or f16"};
}

void relayout(quern_tensor& t, quern_layout layout) {
  if (t.layout == layout) return;
  t.layout = layout;
  std::memset(t.stride, 0, sizeof t.stride);
}

// Weights stay as the line has them: they are packed anyway.  Second operands are not.
quern_problem with_layout(quern_problem p, const std::string& layouts) {
  if (p.op == QUERN_GEMM) return p;  // has rows and columns only
  const size_t colon = layouts.find(':');
  const quern_layout src = parse_layout(layouts.substr(0, colon));
  const quern_layout dst = colon == std::string::npos ? src : parse_layout(layouts.substr(colon + 1));
  relayout(p.src, src);
  relayout(p.dst, dst);
  if (p.op > QUERN_UNARY && p.op <= QUERN_MIN) relayout(p.weights, src);
  if (p.epilogue.residual) relayout(p.residual, dst);
  return p;
}

// Of all operands that are f32.
quern_problem with_type(quern_problem p, const std::string& name) {
  const std::pair<const char*, quern_type> types[] = {
      {"f32", QUERN_F32}, {"f16", QUERN_F16}, {"bf16", QUERN_BF16}, {"s8", QUERN_S8}, {"e4m3", QUERN_E4M3}};
  for (const auto& [word, type] : types)
    if (name == word) {
      for (quern_tensor* t : {&p.src, &p.weights, &p.dst, &p.residual})
        if (t->type == QUERN_F32) t->type = type;
      return p;
    }
  throw stop{bad_input, "--type is '" + name + "', must be f32, f16, bf16, s8 or e4m3"};
}

}  // namespace

std::vector<job> jobs_of(const job_options& options, const quern_device* device) {
  const std::vector<layer> layers = read_layers(options.layers, options.epilogue);
  const uint64_t memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<job> jobs;
  for (const layer& l : layers) {
    if (l.name.find(options.filter) == std::string::npos && l.line.find(options.filter) == std::string::npos) continue;
    std::vector<std::string> layouts = options.layouts;
    if (layouts.empty() || l.problem.op == QUERN_GEMM || l.problem.op == QUERN_REORDER) layouts = {""};
    for (const std::string& layout : layouts) {
      quern_problem p = layout.empty() ? l.problem : with_layout(l.problem, layout);
      if (!options.accuracy.empty()) p.accuracy = parse_accuracy(options.accuracy);
      if (!options.type.empty()) p = with_type(p, options.type);
      quern_error error = {};
      need(quern_problem_complete(&p, &p, &error), error, l.name);
      if (p.src.layout == QUERN_ANY || p.dst.layout == QUERN_ANY) {
        quern_plan plan;
        need(quern_plan_make(&plan, device, &p, nullptr, &error), error, l.name);
        p = plan.problem;
      }
      if (!device && p.src.type != QUERN_F32)
        throw stop{bad_input, l.name + ": only f32 can be timed on a CPU, the reference alone has other types"};
      if (operand_bytes(p) > memory / 2) {
        throw stop{bad_input, l.name + ": its tensors take " + bytes_text(operand_bytes(p)) + ", this machine has " +
                                  bytes_text(memory)};
      }
      jobs.push_back({l, p});
    }
  }
  if (jobs.empty()) {
    throw stop{bad_input, layers.empty() ? "no layers: the input has no problem line"
                                         : "no layer's name or line contains '" + options.filter + "'"};
  }
  return jobs;
}

std::string layout_text(const quern_problem& p) {
  return p.op == QUERN_GEMM ? "rows" : layouts_text(p.src.layout, p.dst.layout);
}

progress::progress() : shown_(isatty(STDERR_FILENO) == 1) {}

void progress::show(const std::string& line) const {
  if (shown_) std::fprintf(stderr, "\r\033[K%s", line.c_str());
}

}  // namespace tools
