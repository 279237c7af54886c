// SPDX-License-Identifier: MIT
//
// f32 grouped convolution for NEON; the contract is grouped_f32 in kernel.h, the loop grouped_f32.h.
//
// 64-bit: 3 lines of 7 pixels are 21 of 32 registers and leave some for a weight of each tap and four channels of a
// pixel of each line, by whose lanes it is multiplied.  32-bit: 2 lines of 4 pixels are 8 of 16; nothing multiplies by
// a lane and fuses, so channels are loaded into all lanes.
#include "grouped_f32.h"
#include "vec_neon.h"

namespace quern {
namespace {

#if defined(__aarch64__)
constexpr int lines = 3, pixels = 7;
#else
constexpr int lines = 2, pixels = 4;
#endif

}  // namespace
}  // namespace quern

QUERN_KERNELS(grouped_f32_neon, {.name = "grouped_f32_taps3_neon",
                                 .about = "any number of channels a group, filters 3 wide",
                                 .kind = kind::grouped_f32,
                                 .isa = QUERN_ISA_NEON,
                                 .mr = pixels,
                                 .nr = 4,
                                 .vector = 4,
                                 .taps = 3,
                                 .step = 1,
                                 .lines = lines,
                                 .grouped = run_grouped<vec, group_of_any<vec>, lines, pixels, 3, 1>})
