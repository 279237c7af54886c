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

template <int J>
struct lane_factor {
  vec::factors v;
  [[gnu::always_inline]] vec operator()(vec w, vec sum) const { return vec::fma_lane<J>(v, w, sum); }
};

// One group in all lanes, its channels by fours where a run has them.
struct group_of_any {
  static constexpr int channels = 0;
  size_t count, run;
  ptrdiff_t next;

  explicit group_of_any(const grouped_f32& g) : count(g.channels), run(g.run), next(g.src_run) {}
  template <int NS, class Meet>
  [[gnu::always_inline]] void each(const float* p, ptrdiff_t line, const Meet& meet) const {
    for (size_t c = 0; c < count; p += next) {
      const float *at = p, *const end = p + run;
      QUERN_ROLL for (; end - at >= 4; at += 4, c += 4) {
        vec::factors four[NS];
        QUERN_UNROLL for (int h = 0; h < NS; ++h) four[h] = vec::load_factors(at + h * line);
        const auto lane = [&]<int J>() __attribute__((always_inline)) {
          meet(
              c + J, [&](int h) __attribute__((always_inline)) { return lane_factor<J>{four[h]}; });
        };
        lane.template operator()<0>();
        lane.template operator()<1>();
        lane.template operator()<2>();
        lane.template operator()<3>();
      }
      QUERN_ROLL for (; at != end; ++at) meet(
          c++, [&](int h) __attribute__((always_inline)) { return factor<vec>{vec::set1(at[h * line])}; });
    }
  }
};

#else

constexpr int lines = 2, pixels = 4;
using group_of_any = group_by_broadcast<vec>;

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
                                 .grouped = run_grouped<vec, group_of_any, lines, pixels, 3, 1>})
