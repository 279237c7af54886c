// SPDX-License-Identifier: MIT
#include "report.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "cpu_name.h"
#include "stop.h"
#include "table.h"
#include "wishes.h"

namespace tools {
namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char out[32];
  std::strftime(out, sizeof out, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return out;
}

// RFC 4180.
std::string quoted(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string out = "\"";
  for (char c : field) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

bool write_all(const std::string& name, const std::string& contents) {
  std::FILE* const out = name == "-" ? stdout : std::fopen(name.c_str(), "w");
  if (!out) return false;
  bool good = std::fwrite(contents.data(), 1, contents.size(), out) == contents.size();
  good = std::fflush(out) == 0 && good;
  const int reason = errno;
  if (out != stdout) good = std::fclose(out) == 0 && good;
  if (!good && reason) errno = reason;
  return good;
}

}  // namespace

output_file::output_file(const char* option, std::string name) : name_(std::move(name)), direct_(name_ == "-") {
  if (direct_) return;
  struct stat status = {};
  const bool exists = stat(name_.c_str(), &status) == 0;
  direct_ = exists && !S_ISREG(status.st_mode);
  const size_t slash = name_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : name_.substr(0, slash);
  if (exists && S_ISDIR(status.st_mode))
    errno = EISDIR;
  else if (access(direct_ ? name_.c_str() : folder.c_str(), W_OK) == 0)
    return;
  throw stop{bad_input, std::string(option) + " " + name_ + ": cannot be written: " + std::strerror(errno)};
}

void output_file::write(const std::string& contents) const {
  errno = 0;
  if (direct_) {
    if (write_all(name_, contents)) return;
  } else {
    const std::string beside = name_ + text(".%d.part", static_cast<int>(getpid()));
    if (write_all(beside, contents) && std::rename(beside.c_str(), name_.c_str()) == 0) return;
    const int reason = errno;
    std::remove(beside.c_str());
    errno = reason;
  }
  throw stop{failed, name_ + ": cannot be written: " + std::strerror(errno)};
}

std::string json_text(const std::vector<measurement>& rows, const quern_cpu& cpu) {
  nlohmann::ordered_json j;
  j["date"] = utc_now();
  j["cpu"] = cpu_name();
  j["caches"] = {{"l1_bytes", cpu.l1_bytes}, {"l2_bytes", cpu.l2_bytes}, {"l3_bytes", cpu.l3_bytes}};
  j["version"] = version_text(quern_version());
  j["rows"] = nlohmann::ordered_json::array();
  for (const measurement& m : rows) {
    nlohmann::ordered_json row;
    row["layer"] = m.layer;
    row["problem"] = m.problem;
    row["kernel"] = m.kernel;
    row["algorithm"] = m.algorithm;
    row["layout"] = m.layout;
    row["threads"] = m.threads;
    row["chosen"] = m.chosen;
    row["tuning"] = m.tuning;
    row["tuning_ms"] = m.tuning_ms;
    row["ms_median"] = m.ms_median;
    row["ms_min"] = m.ms_min;
    row["samples"] = m.samples;
    row["over_best"] = m.over_best;
    row["gflops"] = m.gflops;
    row["percent_of_peak"] = m.percent_of_peak;
    row["percent_of_copy"] = m.percent_of_copy;
    row["rel_l2_error"] = m.rel_l2_error;
    row["workspace_bytes"] = m.workspace_bytes;
    row["packed_bytes"] = m.packed_bytes;
    j["rows"].push_back(row);
  }
  return j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string csv_text(const std::vector<measurement>& rows) {
  std::string out =
      "layer,problem,kernel,algorithm,layout,threads,chosen,tuning,tuning_ms,ms_median,ms_min,samples,over_best,"
      "gflops,percent_of_peak,percent_of_copy,rel_l2_error,workspace_bytes,packed_bytes\n";
  for (const measurement& m : rows) {
    out += quoted(m.layer) + "," + quoted(m.problem) + "," + m.kernel + "," + m.algorithm + "," + m.layout;
    out += text(",%u,%s,%s,%.6g,%.6g,%.6g,%d,%.4f,%.6g,%.4g,%.4g,%.3g,%llu,%llu\n", m.threads,
                m.chosen ? "true" : "false", m.tuning.c_str(), m.tuning_ms, m.ms_median, m.ms_min, m.samples,
                m.over_best, m.gflops, m.percent_of_peak, m.percent_of_copy, m.rel_l2_error,
                static_cast<unsigned long long>(m.workspace_bytes), static_cast<unsigned long long>(m.packed_bytes));
  }
  return out;
}

}  // namespace tools
