// SPDX-License-Identifier: MIT
//
// The fat binary that nvcc made of this file, embedded by the assembler.  Only the host's half includes it.
#pragma once

#include "kernel.h"

__asm__(
    ".pushsection .rodata.quern_cuda_image,\"a\",@progbits\n"
    ".balign 64\n"
    "quern_cuda_image:\n"
    ".incbin \"" QUERN_IMAGE_FILE
    "\"\n"
    ".balign 64\n"
    ".popsection\n");

namespace quern {
// A label of this object file alone, whatever the others call theirs.
[[gnu::visibility("hidden")]] extern const unsigned char image[] __asm__("quern_cuda_image");
}  // namespace quern
