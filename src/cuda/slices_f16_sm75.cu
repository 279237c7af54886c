// SPDX-License-Identifier: MIT
//
// Reductions, norms and softmax along any axes.
#include "cuda/slices.h"

#ifdef __CUDACC__

QUERN_SLICES(slices_f16_sm75, quern::f16)

#else

#include "cuda/image.h"

QUERN_KERNELS(slices_f16_sm75, {.name = "slices_f16_sm75",
                                .about = "reductions, norms and softmax, as many threads a slice as keep it",
                                .kind = kind::slices,
                                .type = QUERN_F16,
                                .image = image,
                                .capability = 75,
                                .threads = slice_threads,
                                .shared_bytes = slice_shared})

#endif
