// SPDX-License-Identifier: MIT
//
// quern explain: every candidate of one layer, and why.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "gpu.h"
#include "lines.h"
#include "stop.h"
#include "table.h"
#include "tuning_file.h"

namespace tools {
namespace {

const char* verdict_text(int32_t verdict) {
  switch (verdict) {
    case QUERN_CHOSEN: return "chosen";
    case QUERN_USABLE: return "usable";
    case QUERN_REFUSED: return "refused";
    case QUERN_UNAVAILABLE: return "unavailable";
    default: return "?";
  }
}

const char* reason_text(quern_reason reason) {
  const char* const names[] = {"none",     "isa",      "type",   "layout",    "shape",
                               "epilogue", "accuracy", "repeat", "workspace", "wish"};
  return reason >= 0 && reason < static_cast<int>(sizeof names / sizeof *names) ? names[reason] : "?";
}

std::string why(const quern_candidate& c) {
  char sentence[512];
  quern_error error = {};
  need(quern_candidate_explain(&c, sentence, sizeof sentence, nullptr, &error), error, "explain");
  return sentence;
}

// What has the same reason against several kernels of an algorithm is said once.
struct refusal_line {
  const quern_candidate* first;
  std::string why;
  int kernels;
};

// `layouts`: each in its own.
void print_table(const std::vector<quern_candidate>& all, bool every, bool layouts) {
  table t({{"verdict", false},
           {"algorithm", false},
           {"kernel", false},
           {"predicted", true},
           {"measured", true},
           {"floor %", true},
           {"threads", true},
           {"workspace", true},
           {"packed", true},
           {"accuracy", false},
           {"bound", true},
           {"why", false}});
  std::vector<refusal_line> refused;
  for (const quern_candidate& c : all) {
    if (c.verdict == QUERN_CHOSEN || c.verdict == QUERN_USABLE) {
      t.add({verdict_text(c.verdict), c.algorithm, c.kernel, time_text(c.predicted_ns), time_text(c.measured_ns),
             text("%.0f", c.floor_percent), text("%u", c.threads), bytes_text(c.workspace_bytes),
             bytes_text(c.packed_bytes), accuracy_text(c.accuracy), text("%.0e", c.error_bound),
             (layouts ? layouts_text(c.src_layout, c.dst_layout) + ", " : "") + why(c)});
      continue;
    }
    const std::string sentence = why(c);
    const auto same = std::find_if(refused.begin(), refused.end(), [&](const refusal_line& l) {
      return l.first->verdict == c.verdict && !std::strcmp(l.first->algorithm, c.algorithm) && l.why == sentence;
    });
    if (every || same == refused.end())
      refused.push_back({&c, sentence, 1});
    else
      ++same->kernels;
  }
  for (const refusal_line& l : refused)
    t.add({verdict_text(l.first->verdict), l.first->algorithm,
           l.kernels == 1 ? l.first->kernel : text("%d kernels", l.kernels), "-", "-", "-", "-", "-", "-",
           accuracy_text(l.first->accuracy), "-", l.why});
  t.print(stdout);
}

nlohmann::ordered_json row(const quern_candidate& c) {
  nlohmann::ordered_json j;
  j["verdict"] = verdict_text(c.verdict);
  j["algorithm"] = c.algorithm;
  j["kernel"] = c.kernel;
  j["reason"] = reason_text(c.reason);
  j["why"] = why(c);
  if (c.field) {
    j["field"] = c.field;
    j["value"] = c.value;
    j["limit"] = c.limit;
  }
  j["predicted_ns"] = c.predicted_ns;
  j["predictor"] = c.predictor ? nlohmann::ordered_json(c.predictor) : nullptr;
  j["measured_ns"] = c.measured_ns;
  j["measured_by"] = c.measured_by ? nlohmann::ordered_json(c.measured_by) : nullptr;
  j["floor_percent"] = c.floor_percent;
  j["flops"] = c.flops;
  j["bytes"] = c.bytes;
  j["threads"] = c.threads;
  j["workspace_bytes"] = c.workspace_bytes;
  j["packed_bytes"] = c.packed_bytes;
  j["accuracy"] = accuracy_text(c.accuracy);
  j["error_bound"] = c.error_bound;
  j["repeat"] = repeat_text(c.repeat);
  j["layout"] = layouts_text(c.src_layout, c.dst_layout);
  return j;
}

}  // namespace

int run_explain(const explain_options& options) {
  const layer l = read_layer(options.words);
  wishes w(options.wishes);
  const std::unique_ptr<gpu> there = gpu_of(options.device);
  if (there) w.wish.cpu = nullptr;
  std::optional<tuning_file> file;
  if (!options.file.empty()) {
    if (!std::ifstream(options.file)) throw stop{bad_input, "--file: " + options.file + ": " + std::strerror(errno)};
    file.emplace(options.file, true);
    quern_host_tuning_attach(file->get(), &w.wish);
  }
  const std::vector<quern_candidate> all =
      candidates(l.problem, w.wish, there ? there->device() : nullptr, options.front ? quern_front : quern_candidates);
  const bool solved = !all.empty() && all[0].verdict == QUERN_CHOSEN;
  if (options.json) {
    nlohmann::ordered_json j;
    j["layer"] = l.name;
    j["problem"] = problem_text(l.problem);
    j["version"] = version_text(quern_version());
    if (there)
      j["gpu"] = there->name();
    else
      j["cpu"] = {{"isa", isa_text(w.cpu.isa)}, {"l1_bytes", w.cpu.l1_bytes},       {"l2_bytes", w.cpu.l2_bytes},
                  {"l3_bytes", w.cpu.l3_bytes}, {"vector_bits", w.cpu.vector_bits}, {"cores", w.cpu.cores}};
    j["threads"] = w.wish.threads;
    j["candidates"] = nlohmann::ordered_json::array();
    for (const quern_candidate& c : all) j["candidates"].push_back(row(c));
    std::printf("%s\n", j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else {
    std::printf("%s\n", problem_text(l.problem).c_str());
    if (there)
      std::printf("for %s\n\n", there->name().c_str());
    else
      std::printf("for %s, L1 %s, L2 %s, L3 %s, threads %u\n\n", isa_text(w.cpu.isa).c_str(),
                  bytes_text(w.cpu.l1_bytes).c_str(), bytes_text(w.cpu.l2_bytes).c_str(),
                  bytes_text(w.cpu.l3_bytes).c_str(), w.wish.threads);
    print_table(all, options.all, l.problem.src.layout == QUERN_ANY || l.problem.dst.layout == QUERN_ANY);
  }
  if (solved) return 0;
  std::fprintf(stderr, "quern explain: no kernel solves this problem under these wishes\n");
  return failed;
}

}  // namespace tools
