// SPDX-License-Identifier: MIT
//
// A row whose tiles are none: what AMX does, by the manual (Intel SDM, TDPBF16PS), so that the kernel's own source runs
// where there is no AMX.  Not in the library.
#include "x86/split_f32.h"

namespace quern {
namespace {

struct unit {
  bool configured = false;
  size_t rows = 0;
  int count = 0;
  alignas(64) unsigned char tile[8][16][64] = {};
};
constinit thread_local unit amx;  // else each use asks first whether it is begun

// What no program may do, and what the unit answers with a fault.
void demand(bool allowed) {
  if (!allowed) __builtin_trap();
}

struct emulated {
  static size_t rows_of(int t) { return t < amx.count ? amx.rows : 16; }

  static void configure(size_t rows, int count) {
    demand(rows >= 1 && rows <= 16);
    amx.configured = true, amx.rows = rows, amx.count = count;
    __builtin_memset(amx.tile, 0, sizeof amx.tile);
  }
  static void release() { amx.configured = false; }
  static void stay_awake() {}

  template <int C>
  static void zero() {
    demand(amx.configured);
    __builtin_memset(amx.tile[C], 0, sizeof amx.tile[C]);
  }
  template <int T>
  static void load(const char* from, ptrdiff_t row) {
    demand(amx.configured);
    for (size_t i = 0; i < rows_of(T); ++i) __builtin_memcpy(amx.tile[T][i], from + ptrdiff_t(i) * row, 64);
  }
  template <int T>
  static void load_once(const char* from, ptrdiff_t row) {
    load<T>(from, row);
  }
  template <int C>
  static void store(float* to, ptrdiff_t row) {
    demand(amx.configured);
    for (size_t i = 0; i < rows_of(C); ++i)
      __builtin_memcpy(reinterpret_cast<char*>(to) + ptrdiff_t(i) * row, amx.tile[C][i], 64);
  }

  // Of a row the even numbers and the odd ones are chains of multiply-adds from zero; their sum is added to C.  To
  // nearest, denormals are zeros on the way in and out, whatever MXCSR says.
  template <int C, int A, int B>
  static void multiply() {
    demand(amx.configured && rows_of(A) == rows_of(C) && rows_of(B) == 16);
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(0x9fc0);
    __asm__ volatile("" ::: "memory");  // the compiler knows nothing of the mode
    const __m512i high = _mm512_set1_epi32(int(0xffff0000));
    for (size_t m = 0; m < rows_of(C); ++m) {
      __m512 even = _mm512_setzero_ps(), odd = even;
      for (size_t k = 0; k < 16; ++k) {
        int pair;
        __builtin_memcpy(&pair, amx.tile[A][m] + 4 * k, sizeof pair);
        const __m512i a = _mm512_set1_epi32(pair), b = _mm512_load_si512(amx.tile[B][k]);
        even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)),
                               _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)), even);
        odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(a, high)),
                              _mm512_castsi512_ps(_mm512_and_si512(b, high)), odd);
      }
      const __m512 c = _mm512_load_ps(amx.tile[C][m]);
      _mm512_store_ps(amx.tile[C][m], _mm512_add_ps(c, _mm512_add_ps(even, odd)));
    }
    __asm__ volatile("" ::: "memory");
    _mm_setcsr(mode);
  }
};

}  // namespace
}  // namespace quern

QUERN_KERNELS(split_emulated_avx512,
              split_kernel<emulated>("split_f32_32x32_emulated", "tiles in memory", QUERN_ISA_AVX512))
