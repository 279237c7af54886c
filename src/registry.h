// SPDX-License-Identifier: MIT
//
// The two tables that the build writes: kernels and algorithms.
#pragma once

#include "algorithm.h"

namespace quern {

// The rows of one file, all of one kind; all files are every row once.
struct kernel_file {
  const kernel_list* list;
  quern_backend backend;
};
const kernel_file* kernel_files(size_t& count);
constexpr size_t most_files = 127;

size_t kernel_count();
const kernel& kernel_at(size_t index);
quern_backend backend_of(size_t index);  // of that kernel: its folder
const char* kind_name(kind);

size_t algorithm_count();
const algorithm& algorithm_at(size_t index);

bool solves(const algorithm&, quern_op op);

// Whether a row of the kind that `algorithm` drives serves it for the operator.
inline bool serves(const kernel& row, const algorithm& a, quern_op op) {
  return (row.op.bits == 0 || row.op.has(op)) && (!a.transforms || row.winograd);
}

// The files of each kind, found in one pass for all algorithms: chains through the table, 0 at their ends.
class files_of_kind {
 public:
  enum order { of_table, wide_first };  // files of a backend stand in the table by their instruction sets

  explicit files_of_kind(order in) : file_(kernel_files(files_)) {
    uint8_t last[kinds] = {};
    for (size_t i = 0; i < files_; ++i) {
      const size_t at = in == wide_first ? files_ - i : i + 1, kind = size_t(file_[at - 1].list->rows->kind);
      (last[kind] ? next_[last[kind]] : first_[kind]) = uint8_t(at);
      last[kind] = uint8_t(at), next_[at] = 0;
    }
  }
  // Calls visit(row, backend) for every row that the algorithm drives for the operator, if it is one for GPUs or CPUs.
  template <class Visit>
  void for_each_row(const algorithm& a, bool gpu, quern_op op, Visit visit) const {
    if (gpu != (a.launch != nullptr) || !solves(a, op)) return;
    for (size_t at = first_[size_t(a.drives)]; at; at = next_[at]) {
      const kernel_file& f = file_[at - 1];
      for (size_t k = 0; k < f.list->count; ++k)
        if (serves(f.list->rows[k], a, op)) visit(f.list->rows[k], f.backend);
    }
  }

 private:
  size_t files_;
  const kernel_file* file_;
  uint8_t first_[kinds] = {}, next_[most_files + 1];
};

// Calls visit(algorithm, row, backend) for every pair that belongs to the operator on GPUs or CPUs, in table order.
template <class Visit>
void for_each_pair(bool gpu, quern_op op, Visit visit) {
  const files_of_kind files(files_of_kind::of_table);
  for (size_t i = 0; i < algorithm_count(); ++i) {
    const algorithm& a = algorithm_at(i);
    files.for_each_row(a, gpu, op, [&](const kernel& row, quern_backend backend) { visit(a, row, backend); });
  }
}

}  // namespace quern
