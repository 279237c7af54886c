// SPDX-License-Identifier: MIT
//
// A table of tuning results.
#pragma once

#include <quern/host.h>

#include <memory>
#include <string>

#include "stop.h"

namespace tools {

// Rows in memory and, with a name, in a file; throws a stop where that cannot be read.
class tuning_file {
 public:
  tuning_file(const std::string& name, bool read_only) : table_(nullptr, quern_host_tuning_close) {
    quern_host_tuning* opened = nullptr;
    quern_error error = {};
    need(quern_host_tuning_open(&opened, name.empty() ? nullptr : name.c_str(), read_only ? QUERN_HOST_READ_ONLY : 0,
                                &error),
         error, "--file");
    table_.reset(opened);
  }
  quern_host_tuning* get() const { return table_.get(); }
  void save() const {
    quern_error error = {};
    need(quern_host_tuning_save(table_.get(), &error), error, "--file");
  }

 private:
  std::unique_ptr<quern_host_tuning, void (*)(quern_host_tuning*)> table_;
};

}  // namespace tools
