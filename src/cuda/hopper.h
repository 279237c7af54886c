// SPDX-License-Identifier: MIT
//
// The instructions of capability 9.0 (sm_90a) that have no other name in CUDA C++.  nvcc alone reads this.
#pragma once

#include "cuda/tma.h"

namespace quern {
namespace {

// ---- Barriers that count arrivals and bytes -------------------------------------------------------------------

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void init_barrier(uint32_t bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void arrive_expecting(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait(uint32_t bar, uint32_t parity) {
  uint32_t done = 0;
  while (!done)
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}\n"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
}

// ---- The copy engine --------------------------------------------------------------------------------------------

__device__ __forceinline__ void prefetch(const tensor_map& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
__device__ __forceinline__ void copy_pixels(uint32_t to, const tensor_map& map, uint32_t bar, const tma_request& r) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], "
      "[%2], {%7,%8};" ::"r"(to),
      "l"(&map), "r"(bar), "r"(r.c), "r"(r.w), "r"(r.h), "r"(r.n), "h"(r.tap_w), "h"(r.tap_h)
      : "memory");
}
__device__ __forceinline__ void copy_box(uint32_t to, const tensor_map& map, uint32_t bar, int32_t x, int32_t y,
                                         int32_t n) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5}], "
      "[%2];" ::"r"(to),
      "l"(&map), "r"(bar), "r"(x), "r"(y), "r"(n)
      : "memory");
}
__device__ __forceinline__ void copy_box(uint32_t to, const tensor_map& map, uint32_t bar, int32_t c, int32_t w,
                                         int32_t h, int32_t n) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], "
      "[%2];" ::"r"(to),
      "l"(&map), "r"(bar), "r"(c), "r"(w), "r"(h), "r"(n)
      : "memory");
}
__device__ __forceinline__ void copy_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(bar)
               : "memory");
}

// What lies in shared memory as boxes do, to its place; who reuses the memory waits until all but so many have been
// read.
__device__ __forceinline__ void publish_to_engine() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void store_box(const tensor_map& map, uint32_t from, int32_t c, int32_t pixel) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2,%3}], [%1];" ::"l"(&map), "r"(from),
               "r"(c), "r"(pixel)
               : "memory");
}
__device__ __forceinline__ void store_box(const tensor_map& map, uint32_t from, int32_t w, int32_t h, int32_t n) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2,%3,%4,%5}], [%1];" ::"l"(&map),
               "r"(from), "r"(0), "r"(w), "r"(h), "r"(n)
               : "memory");
}
__device__ __forceinline__ void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int Left>
__device__ __forceinline__ void store_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Left) : "memory");
}

// ---- Kernels of a stream, blocks of a cluster -------------------------------------------------------------------

// The next kernel may start where it finds room; what precedes this one has ended, and its writes are seen.
__device__ __forceinline__ void let_next_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// For all threads of all blocks; what they wrote before it is seen behind it.
__device__ __forceinline__ void cluster_meet() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// The same for who has nothing to show: without a fence.
__device__ __forceinline__ void cluster_leave() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, const float* x) {
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(address), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
}
__device__ __forceinline__ four_floats load_of_block(uint32_t rank, uint32_t address) {
  four_floats x;
  asm volatile(
      "{\n.reg .b32 at;\nmapa.shared::cluster.u32 at, %4, %5;\nld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [at];\n}"
      : "=f"(x.v[0]), "=f"(x.v[1]), "=f"(x.v[2]), "=f"(x.v[3])
      : "r"(address), "r"(rank)
      : "memory");
  return x;
}

// ---- Groups of four warps that take turns -----------------------------------------------------------------------

// Who waits and who was before him meet at the barrier of his number; barriers below 3 are others'.
__device__ __forceinline__ void wait_turn(int who) { asm volatile("bar.sync %0, 256;" ::"r"(3 + who) : "memory"); }
__device__ __forceinline__ void give_turn(int who) { asm volatile("bar.arrive %0, 256;" ::"r"(3 + who) : "memory"); }

// ---- Matrix instructions of four warps --------------------------------------------------------------------------

__device__ __forceinline__ void matrix_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void matrix_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// For all that was committed but the last so many.
template <int Left>
__device__ __forceinline__ void matrix_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}
// The compiler keeps accesses to d on their side of this.
template <int N>
__device__ __forceinline__ void keep(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int N>
__device__ __forceinline__ void keep(uint32_t (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(d[i])::"memory");
}
template <int N>
__device__ __forceinline__ void keep(int32_t (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(d[i])::"memory");
}
// Of swizzled rows of 128 bytes, whose address is a multiple of 1024; 32 bytes further along the rows is + 2.
__device__ __forceinline__ uint64_t matrix_in_shared(uint32_t address) {
  return uint64_t{(address & 0x3ffff) >> 4} | uint64_t{1} << 16 | uint64_t{64} << 32 | uint64_t{1} << 62;
}
// The same of rows of 32 bytes, whose address is a multiple of 256.
__device__ __forceinline__ uint64_t narrow_matrix_in_shared(uint32_t address) {
  return uint64_t{(address & 0x3ffff) >> 4} | uint64_t{1} << 16 | uint64_t{16} << 32 | uint64_t{3} << 62;
}

// So many 16 bytes behind another.
__device__ __forceinline__ uint64_t further(uint64_t matrix, uint32_t by) {
  return (matrix & 0xffffffff00000000) | uint32_t(uint32_t(matrix) + by);
}

#define QUERN_COMMA ,
// Sums, in registers of floats or of integers.
#define QUERN_D8(r, d, i) \
  r(d[i]), r(d[i + 1]), r(d[i + 2]), r(d[i + 3]), r(d[i + 4]), r(d[i + 5]), r(d[i + 6]), r(d[i + 7])
#define QUERN_D16(r, d, i) QUERN_D8(r, d, i), QUERN_D8(r, d, i + 8)
#define QUERN_D32(r, d, i) QUERN_D16(r, d, i), QUERN_D16(r, d, i + 16)
#define QUERN_D64(r, d, i) QUERN_D32(r, d, i), QUERN_D32(r, d, i + 32)
#define QUERN_OPERANDS_0A "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define QUERN_OPERANDS_0 \
  QUERN_OPERANDS_0A      \
  ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define QUERN_OPERANDS_32A "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define QUERN_OPERANDS_32 QUERN_OPERANDS_32A ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define QUERN_OPERANDS_64A "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define QUERN_OPERANDS_64 QUERN_OPERANDS_64A ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define QUERN_OPERANDS_96                                                   \
  "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110," \
  "%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

// d[64 x N] += a[64 x K] * b[N x K], or = where not `add`: a has four registers of a thread, K = 8 of TF32, 16 of 16
// bits or 32 of 8, b lies in shared memory.
template <class Element, int N>
struct matrix_by_registers;
__device__ __forceinline__ uint32_t in_register(uint32_t x) { return x; }
__device__ __forceinline__ uint32_t in_register(float x) { return __float_as_uint(x); }
#define QUERN_MATRIX_BY_REGISTERS(type, number, n, shape, sums, operands, outputs, a_at, b_at, add_at, rest)         \
  template <>                                                                                                        \
  struct matrix_by_registers<type, n> {                                                                              \
    template <class Register>                                                                                        \
    __device__ __forceinline__ static void run(number (&d)[sums], const Register (&a)[4], uint64_t b, bool add) {    \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_at ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n shape     \
                   " {" operands "}, {" a_at "}, " b_at ", p" rest ";\n}\n"                                          \
                   : outputs                                                                                         \
                   : "r"(in_register(a[0])), "r"(in_register(a[1])), "r"(in_register(a[2])), "r"(in_register(a[3])), \
                     "l"(b), "r"(int{add}));                                                                         \
    }                                                                                                                \
  };
#define QUERN_MATRICES_BY_REGISTERS(type, number, r, shape, rest)                                                  \
  QUERN_MATRIX_BY_REGISTERS(type, number, 32, shape, 16, QUERN_OPERANDS_0A, QUERN_D16(r, d, 0), "%16,%17,%18,%19", \
                            "%20", "%21", rest)                                                                    \
  QUERN_MATRIX_BY_REGISTERS(type, number, 64, shape, 32, QUERN_OPERANDS_0, QUERN_D32(r, d, 0), "%32,%33,%34,%35",  \
                            "%36", "%37", rest)
QUERN_MATRICES_BY_REGISTERS(f16, float, "+f", "k16.f32.f16.f16", ", 1, 1, 0")
QUERN_MATRICES_BY_REGISTERS(bf16, float, "+f", "k16.f32.bf16.bf16", ", 1, 1, 0")
QUERN_MATRICES_BY_REGISTERS(float, float, "+f", "k8.f32.tf32.tf32", ", 1, 1")
QUERN_MATRICES_BY_REGISTERS(s8, int32_t, "+r", "k32.s32.s8.s8", "")
QUERN_MATRICES_BY_REGISTERS(e4m3, float, "+f", "k32.f32.e4m3.e4m3", ", 1, 1")
// Of 128 columns.
#define QUERN_WIDE_MATRIX_BY_REGISTERS(type, shape, rest)                                        \
  QUERN_MATRIX_BY_REGISTERS(type, float, 128, shape, 64, QUERN_OPERANDS_0 "," QUERN_OPERANDS_32, \
                            QUERN_D64("+f", d, 0), "%64,%65,%66,%67", "%68", "%69", rest)
QUERN_WIDE_MATRIX_BY_REGISTERS(f16, "k16.f32.f16.f16", ", 1, 1, 0")
QUERN_WIDE_MATRIX_BY_REGISTERS(float, "k8.f32.tf32.tf32", ", 1, 1")

// d[64 x n] += a[64 x 32 bytes] * b[n x 32 bytes], or = where not `add`, of elements of 16 or 8 bits in shared memory.
template <class Element, int N>
struct matrix_half;
#define QUERN_MATRIX_HALF(type, number, n, sums, what, operands, outputs, a_at, b_at, add_at, rest)             \
  template <>                                                                                                   \
  struct matrix_half<type, n> {                                                                                 \
    __device__ __forceinline__ static void run(number (&d)[sums], uint64_t a, uint64_t b, bool add) {           \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_at ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n what \
                   " {" operands "}, " a_at ", " b_at ", p" rest ";\n}\n"                                       \
                   : outputs                                                                                    \
                   : "l"(a), "l"(b), "r"(int{add}));                                                            \
    }                                                                                                           \
  };
#define QUERN_MATRICES(type, number, r, what, rest)                                                                    \
  QUERN_MATRIX_HALF(type, number, 64, 32, what, QUERN_OPERANDS_0, QUERN_D32(r, d, 0), "%32", "%33", "%34", rest)       \
  QUERN_MATRIX_HALF(type, number, 128, 64, what, QUERN_OPERANDS_0 "," QUERN_OPERANDS_32, QUERN_D64(r, d, 0), "%64",    \
                    "%65", "%66", rest)                                                                                \
  QUERN_MATRIX_HALF(type, number, 192, 96, what, QUERN_OPERANDS_0 "," QUERN_OPERANDS_32 "," QUERN_OPERANDS_64,         \
                    QUERN_D64(r, d, 0) QUERN_COMMA QUERN_D32(r, d, 64), "%96", "%97", "%98", rest)                     \
  QUERN_MATRIX_HALF(                                                                                                   \
      type, number, 208, 104, what,                                                                                    \
      QUERN_OPERANDS_0 "," QUERN_OPERANDS_32 "," QUERN_OPERANDS_64 ",%96,%97,%98,%99,%100,%101,%102,%103",             \
      QUERN_D64(r, d, 0) QUERN_COMMA QUERN_D32(r, d, 64) QUERN_COMMA QUERN_D8(r, d, 96), "%104", "%105", "%106", rest) \
  QUERN_MATRIX_HALF(type, number, 256, 128, what,                                                                      \
                    QUERN_OPERANDS_0 "," QUERN_OPERANDS_32 "," QUERN_OPERANDS_64 "," QUERN_OPERANDS_96,                \
                    QUERN_D64(r, d, 0) QUERN_COMMA QUERN_D64(r, d, 64), "%128", "%129", "%130", rest)
#define QUERN_MATRICES_HALF(type)                                                                                      \
  QUERN_MATRICES(type, float, "+f", "k16.f32." #type "." #type, ", 1, 1, 0, 0")                                        \
  QUERN_MATRIX_HALF(type, float, 96, 48, "k16.f32." #type "." #type, QUERN_OPERANDS_0 "," QUERN_OPERANDS_32A,          \
                    QUERN_D32("+f", d, 0) QUERN_COMMA QUERN_D16("+f", d, 32), "%48", "%49", "%50", ", 1, 1, 0, 0")     \
  QUERN_MATRIX_HALF(type, float, 176, 88, "k16.f32." #type "." #type,                                                  \
                    QUERN_OPERANDS_0 "," QUERN_OPERANDS_32 "," QUERN_OPERANDS_64A ",%80,%81,%82,%83,%84,%85,%86,%87",  \
                    QUERN_D64("+f", d, 0) QUERN_COMMA QUERN_D16("+f", d, 64) QUERN_COMMA QUERN_D8("+f", d, 80), "%88", \
                    "%89", "%90", ", 1, 1, 0, 0")
QUERN_MATRICES_HALF(f16)
QUERN_MATRICES_HALF(bf16)
QUERN_MATRICES(s8, int32_t, "+r", "k32.s32.s8.s8", "")
QUERN_MATRICES(e4m3, float, "+f", "k32.f32.e4m3.e4m3", ", 1, 1")

// Four matrices of 8 x 8 elements of 16 bits between registers and shared memory, transposed; each lane names a row.
__device__ __forceinline__ void load_matrices_turned(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void store_matrices_turned(void* row, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// Two of them, which lanes 0 to 15 name.
__device__ __forceinline__ void load_matrices_turned(uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void store_matrices_turned(void* row, const uint32_t (&r)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(shared_address(row)), "r"(r[0]),
               "r"(r[1])
               : "memory");
}

template <int N>
__device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

}  // namespace
}  // namespace quern
