// SPDX-License-Identifier: MIT
//
// Operators of one element, or of two, and layout conversion.
#include "cuda/elementwise.h"

#ifdef __CUDACC__

QUERN_ELEMENTWISE(elementwise_f32_sm75, float)

#else

#include "cuda/image.h"

QUERN_KERNELS(elementwise_f32_sm75, {.name = "elementwise_f32_sm75",
                                     .about = "element by element, 16 bytes a thread, or tiles turned round",
                                     .kind = kind::elementwise,
                                     .type = QUERN_F32,
                                     .image = image,
                                     .capability = 75,
                                     .threads = element_threads,
                                     .shared_bytes = element_shared<float>})

#endif
