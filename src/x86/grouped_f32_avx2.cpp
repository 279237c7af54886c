// SPDX-License-Identifier: MIT
//
// f32 grouped convolution for AVX2 and FMA; the contract is grouped_f32 in kernel.h, the loop grouped_f32.h.
//
// Two FMA units of latency 4 or 5 want 8 to 10 sums at a time, and those of a row of 3 taps are 3 for each line: 4
// lines of 3 pixels leave registers for 3 weights and a channel.  A group of 8 is a vector, and a channel of it costs
// less to broadcast than to copy from lane to lane.  Groups of 4, taps one by one: 2 lines of 5 pixels.  Any few: 3
// lines of 3 pixels, as each line's pixel and the table of lanes want registers too.
#include "group_lanes_avx2.h"
#include "grouped_f32.h"

namespace quern {
namespace {

template <int GROUP>
using groups_of = groups_in_lanes<vec, lanes, GROUP>;

}  // namespace
}  // namespace quern

QUERN_KERNELS(grouped_f32_avx2,
              {.name = "grouped_f32_c4_taps3_avx2",
               .about = "4 channels a group, filters 3 wide",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX2,
               .mr = 3,
               .nr = 8,
               .vector = 8,
               .taps = 3,
               .step = 1,
               .group = 4,
               .lines = 4,
               .grouped = run_grouped<vec, groups_of<4>, 4, 3, 3, 1>},
              {.name = "grouped_f32_c4_avx2",
               .about = "4 channels a group, any filter and stride",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX2,
               .mr = 5,
               .nr = 8,
               .vector = 8,
               .group = 4,
               .lines = 2,
               .grouped = run_grouped<vec, groups_of<4>, 2, 5, 1, 1>},
              {.name = "grouped_f32_few_taps3_avx2",
               .about = "any few channels a group, filters 3 wide",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX2,
               .mr = 3,
               .nr = 8,
               .vector = 8,
               .taps = 3,
               .step = 1,
               .several_groups = true,
               .lines = 3,
               .grouped = run_grouped<vec, few_in_lanes<vec>, 3, 3, 3, 1>},
              {.name = "grouped_f32_few_avx2",
               .about = "any few channels a group, any filter and stride",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX2,
               .mr = 3,
               .nr = 8,
               .vector = 8,
               .several_groups = true,
               .lines = 3,
               .grouped = run_grouped<vec, few_in_lanes<vec>, 3, 3, 1, 1>},
              {.name = "grouped_f32_taps3_avx2",
               .about = "any number of channels a group, filters 3 wide",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX2,
               .mr = 3,
               .nr = 8,
               .vector = 8,
               .taps = 3,
               .step = 1,
               .lines = 4,
               .grouped = run_grouped<vec, group_of_any<vec>, 4, 3, 3, 1>},
              {.name = "grouped_f32_avx2",
               .about = "any number of channels a group, any filter and stride",
               .kind = kind::grouped_f32,
               .isa = QUERN_ISA_AVX2,
               .mr = 3,
               .nr = 8,
               .vector = 8,
               .lines = 4,
               .grouped = run_grouped<vec, group_of_any<vec>, 4, 3, 1, 1>})
