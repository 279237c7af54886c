// SPDX-License-Identifier: MIT
//
// f32 by products of bf16 in the tile registers of AMX; the contract is split_f32 in kernel.h, the algebra split_f32.h.
// A product of 16 x 32 by 32 x 16 takes 16 cycles, 9 for 7 rows and fewer (Sapphire Rapids); a sum may be added to by
// every one, so that 2 x 2 tiles are for the loads alone.
//
// The configuration is this thread's from begin to end, then the unit is as it is in a new thread.  By the psABI no
// caller may expect more: tiles and their configuration are kept by nobody across a call.
#include "split_f32.h"

namespace quern {
namespace {

// Instructions by their text: GCC's intrinsics take register numbers as tokens alone, and its loadconfig (12) says that
// it reads 8 of the 64 bytes.
struct tiles {
  static void configure(size_t rows, int count) {
    struct {
      uint8_t palette, start, reserved[14];
      uint16_t row_bytes[16];
      uint8_t rows[16];
    } c = {.palette = 1};
    for (int i = 0; i < 8; ++i) c.row_bytes[i] = 64, c.rows[i] = i < count ? static_cast<uint8_t>(rows) : 16;
    __asm__ volatile("ldtilecfg %0" ::"m"(c));
  }
  static void release() { __asm__ volatile("tilerelease"); }
  template <int C>
  [[gnu::always_inline]] static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(C));
  }
  template <int T>
  [[gnu::always_inline]] static void load(const char* from, ptrdiff_t row) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row), "i"(T));
  }
  template <int T>
  [[gnu::always_inline]] static void load_once(const char* from, ptrdiff_t row) {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row), "i"(T));
  }
  template <int C>
  [[gnu::always_inline]] static void store(float* to, ptrdiff_t row) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row), "i"(C) : "memory");
  }
  template <int C, int A, int B>
  [[gnu::always_inline]] static void multiply() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
  }
  // The vector units go to sleep when no sum or product of 512 bits comes by for some 3000 cycles, and the next store
  // of a tile waits some 900 for them (Granite Rapids): integers, loads and stores do not keep them awake.  Zeros, as
  // bits that are left in a register may be a denormal number, and sums of those trap into microcode.
  [[gnu::always_inline]] static void stay_awake() {
    __asm__ volatile("vpxord %%zmm31, %%zmm31, %%zmm31\n\tvaddps %%zmm31, %%zmm31, %%zmm31" ::: "xmm31");
  }
};

}  // namespace
}  // namespace quern

QUERN_KERNELS(split_f32_amx, split_kernel<tiles>("split_f32_32x32_amx", "2 x 2 tiles of 16 x 16, f32 as parts of bf16",
                                                 QUERN_ISA_AVX512 | QUERN_ISA_AMX))
