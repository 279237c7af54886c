// SPDX-License-Identifier: MIT
//
// Operators of one element, or of two, and layout conversion.
#include "cuda/elementwise.h"

#ifdef __CUDACC__

QUERN_ELEMENTWISE(elementwise_f16_sm75, quern::f16)

#else

#include "cuda/image.h"

QUERN_KERNELS(elementwise_f16_sm75, {.name = "elementwise_f16_sm75",
                                     .about = "element by element, 16 bytes a thread, or tiles turned round",
                                     .kind = kind::elementwise,
                                     .type = QUERN_F16,
                                     .image = image,
                                     .capability = 75,
                                     .threads = element_threads,
                                     .shared_bytes = element_shared<f16>})

#endif
