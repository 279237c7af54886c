// SPDX-License-Identifier: MIT
//
// Layout conversion, index by index: dst[n c d h w] = src[n c d h w], bit for bit.
#include "epilogue_ref.h"

namespace quern {
namespace {

template <class T>
void reorder(const quern_problem& p, const quern_args& args, int64_t first, int64_t last) {
  const T* const src = static_cast<const T*>(args.src);
  T* const dst = static_cast<T*>(args.dst);
  for (int64_t element = first; element < last; ++element) {
    int64_t at[5];
    for (int64_t axis = 4, rest = element; axis >= 0; --axis) {
      at[axis] = rest % p.dst.size[axis];
      rest /= p.dst.size[axis];
    }
    dst[offset_of(p.dst, at)] = src[offset_of(p.src, at)];
  }
}

}  // namespace
}  // namespace quern

QUERN_KERNELS(reorder_ref, {.name = "reorder_ref",
                            .about = "layout conversion, element by element",
                            .kind = kind::reference,
                            .op = QUERN_REORDER,
                            .type = 0,
                            .reference = by_type<reorder<float>, reorder<double>, reorder<f16>, reorder<bf16>>})
