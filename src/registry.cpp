// SPDX-License-Identifier: MIT
#include "registry.h"

namespace quern {

#define QUERN_FILE(stem, folder) \
  namespace rows {               \
  extern const kernel_list stem; \
  }
#include "kernels.inc"
#undef QUERN_FILE
#define QUERN_ALGORITHM_FILE(stem) \
  namespace algorithms {           \
  extern const algorithm stem;     \
  }
#include "algorithms.inc"
#undef QUERN_ALGORITHM_FILE

namespace {

constexpr quern_backend ref = QUERN_BACKEND_REF;
[[maybe_unused]] constexpr quern_backend x86 = QUERN_BACKEND_X86, arm = QUERN_BACKEND_ARM, cuda = QUERN_BACKEND_CUDA;

constexpr kernel_file files[] = {
#define QUERN_FILE(stem, folder) {&rows::stem, folder},
#include "kernels.inc"
#undef QUERN_FILE
};

static_assert(sizeof files / sizeof files[0] <= most_files);

constexpr const algorithm* algorithms_[] = {
#define QUERN_ALGORITHM_FILE(stem) &algorithms::stem,
#include "algorithms.inc"
#undef QUERN_ALGORITHM_FILE
};

}  // namespace

const kernel_file* kernel_files(size_t& count) {
  count = sizeof files / sizeof files[0];
  return files;
}

size_t kernel_count() {
  size_t count = 0;
  for (const kernel_file& f : files) count += f.list->count;
  return count;
}

const kernel& kernel_at(size_t index) {
  const kernel_file* f = files;
  for (; index >= f->list->count; ++f) index -= f->list->count;
  return f->list->rows[index];
}

quern_backend backend_of(size_t index) {
  const kernel_file* f = files;
  for (; index >= f->list->count; ++f) index -= f->list->count;
  return f->backend;
}

const char* kind_name(kind k) {
  switch (k) {
    case kind::reference: return "reference";
    case kind::gemm_f32: return "gemm_f32";
    case kind::depthwise_f32: return "depthwise_f32";
    case kind::depthwise_planar_f32: return "depthwise_planar_f32";
    case kind::grouped_f32: return "grouped_f32";
    case kind::reorder_f32: return "reorder_f32";
    case kind::winograd_f32: return "winograd_f32";
    case kind::winograd_line_f32: return "winograd_line_f32";
    case kind::grouped_planes_f32: return "grouped_planes_f32";
    case kind::few_planes_f32: return "few_planes_f32";
    case kind::grouped_winograd_f32: return "grouped_winograd_f32";
    case kind::grouped_planes_winograd_f32: return "grouped_planes_winograd_f32";
    case kind::split_f32: return "split_f32";
    case kind::dot_f32: return "dot_f32";
    case kind::pool_f32: return "pool_f32";
    case kind::slices_f32: return "slices_f32";
    case kind::elementwise_f32: return "elementwise_f32";
    case kind::reference_cuda: return "reference_cuda";
    case kind::implicit_f32: return "implicit_f32";
    case kind::tensor: return "tensor";
    case kind::tma: return "tma";
    case kind::tma_f16x3: return "tma_f16x3";
    case kind::few_channels: return "few_channels";
    case kind::first_layer: return "first_layer";
    case kind::first_box: return "first_box";
    case kind::pooling: return "pooling";
    case kind::slices: return "slices";
    case kind::elementwise: return "elementwise";
    case kind::quads: return "quads";
    case kind::walk: return "walk";
    case kind::group: return "group";
    case kind::group_box: return "group_box";
    case kind::depthwise_box: return "depthwise_box";
    case kind::depthwise_image: return "depthwise_image";
    case kind::toeplitz: return "toeplitz";
  }
  return "unknown";
}

size_t algorithm_count() { return sizeof algorithms_ / sizeof algorithms_[0]; }
const algorithm& algorithm_at(size_t index) { return *algorithms_[index]; }

bool solves(const algorithm& a, quern_op op) { return a.op.bits == 0 || a.op.has(op); }

}  // namespace quern
