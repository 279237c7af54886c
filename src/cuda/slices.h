// SPDX-License-Identifier: MIT
//
// Reductions, norms and softmax on a GPU: operators over slices, the elements along some axes.
//
// A slice has so many lanes of a block, and a thread every so manieth chunk of it: 16 bytes where they lie side by side
// and aligned, else an element.  Up to 16 words of registers keep what was read, so that memory is read once where the
// slice fits; else once for each statistic, and to write.  Lanes meet in shared memory, in two steps of a fixed order:
// the same bits on any GPU and in any batch.  Variances are of differences from the mean, exponentials of those from
// the largest element: no cancellation that the mathematics does not have.
#pragma once

#include "cuda/dims.h"
#include "cuda/several.h"
#include "operators.h"

namespace quern {
namespace {

constexpr int slice_threads = 256;

// By value in the kernel's parameters.
struct slices {
  int32_t slices, chunks;  // of a slice
  int32_t lanes, parts;    // of a slice: threads, and of those that add up a share of all
  bool across;             // neighbouring threads have neighbouring slices; else neighbouring chunks
  bool wide;               // chunks are of 16 bytes
  bool held;               // in registers
  // Of chunks that are no 16 bytes in memory, or not aligned: the sums are the same.
  int64_t src_step, dst_step, residual_step;
  quern_op op;
  float count, epsilon;
  const void *src, *residual;
  void* dst;
  dims outer, inner;
  epilogue_f32 epilogue;
};
template <class T>
inline constexpr int slice_shared = (2 + 2 * whole<T>)*slice_threads * 4;

// e^x for x <= 0, and NaN.
QUERN_INLINE float exponential(float x) {
  const power<vec> p = power_of_e(vec::max(vec::set1(-110.0f), vec::set1(x)));
  return scale(vec::set1(1.0f) + p.t, p.n).v;
}

QUERN_INLINE float larger_of(float a, float b) { return a > b || a != a ? a : b; }

// A thread; what it does stands between barriers.
template <class T, int V>
struct slice_thread {
  static constexpr int most_held = V == 1 ? 16 : 4;

  const slices& a;
  float* shared;
  int32_t thread, lane, base, apart;  // lane i of the slice is thread base + i * apart
  bool idle;                          // its slice is behind the last one
  dim_place place;
  const T* src;
  several<T, V> held[most_held];
  float first, second;  // statistics of the slice

  QUERN_INLINE slice_thread(const slices& args, int32_t block, int32_t index, float* memory)
      : a(args), shared(memory), thread(index) {
    const int32_t together = slice_threads / a.lanes;
    const int32_t own = a.across ? thread % together : thread / a.lanes;
    lane = a.across ? thread / together : thread % a.lanes;
    base = a.across ? own : own * a.lanes, apart = a.across ? together : 1;
    const int32_t slice = block * together + own;
    idle = slice >= a.slices;
    place = a.outer.at(idle ? 0 : slice, 1);
    src = static_cast<const T*>(a.src) + place.src;
    first = second = 0;
  }

  QUERN_INLINE several<T, V> chunk(int32_t i, int64_t step) const { return read<V>(src + a.inner.at(i, V).src, step); }

  QUERN_INLINE void load() {
    if (!a.held) return;
    QUERN_UNROLL
    for (int k = 0; k < most_held; ++k)
      if (const int32_t i = lane + k * a.lanes; i < a.chunks) held[k] = chunk(i, at_once);
  }

  // visit(chunk, its number) for all that are the thread's.
  template <class Visit>
  QUERN_INLINE void each_chunk(const Visit& visit) const {
    if (!a.held) return each_in_memory<(V == 1 ? 4 : 2)>(visit);
    QUERN_UNROLL
    for (int k = 0; k < most_held; ++k)
      if (const int32_t i = lane + k * a.lanes; i < a.chunks) visit(held[k], i);
  }
  // The same of what is read again, some chunks at a time, so that none is waited for alone.
  template <int Ahead, class Visit>
  QUERN_INLINE void each_in_memory(const Visit& visit) const {
    QUERN_ROLL
    for (int32_t i = lane; i < a.chunks; i += Ahead * a.lanes) {
      several<T, V> next[Ahead] = {};
      QUERN_UNROLL
      for (int k = 0; k < Ahead; ++k)
        if (i + k * a.lanes < a.chunks) next[k] = chunk(i + k * a.lanes, a.src_step);
      QUERN_UNROLL
      for (int k = 0; k < Ahead; ++k)
        if (i + k * a.lanes < a.chunks) visit(next[k], i + k * a.lanes);
    }
  }

  template <class Add>
  QUERN_INLINE float fold(float x, const Add& add) const {
    each_chunk([&](const several<T, V>& c, int32_t) {
      QUERN_UNROLL
      for (int v = 0; v < V; ++v) x = add(x, c.at(v));
    });
    return x;
  }

  // ---- The first statistic: what is reduced, the mean, the root, the largest ------------------------------------

  QUERN_INLINE float share() const {
    switch (a.op) {
      case QUERN_SOFTMAX:
      case QUERN_LOG_SOFTMAX:
      case QUERN_REDUCE_MAX:
      case QUERN_REDUCE_MIN: {
        const float sign = a.op == QUERN_REDUCE_MIN ? -1.0f : 1.0f;  // the smallest is the largest, turned round
        return fold(-INFINITY, [=](float x, float v) { return larger_of(x, sign * v); });
      }
      case QUERN_REDUCE_PROD: {
        float x = 1;
        each_in_memory<1>([&](const several<T, V>& c, int32_t) {
          QUERN_UNROLL
          for (int v = 0; v < V; ++v) x *= c.at(v);
        });
        return x;
      }
      case QUERN_REDUCE_L2:
      case QUERN_REDUCE_SUM_SQUARE:
      case QUERN_RMS_NORM: return fold(0.0f, [](float x, float v) { return fmaf(v, v, x); });
      default: {
        const bool magnitudes = a.op == QUERN_REDUCE_L1;
        return fold(0.0f, [=](float x, float v) { return x + (magnitudes ? fabsf(v) : v); });
      }
    }
  }
  // Values of lanes from `at` on, every so manieth, in their order; some are asked for before one is added.
  QUERN_INLINE float joined(const float* at, int32_t step, int32_t count, bool adds) const {
    constexpr int ahead = 5;
    const bool multiplies = a.op == QUERN_REDUCE_PROD;
    float y = at[0];
    QUERN_ROLL
    for (int32_t i = 1; i < count; i += ahead) {
      float x[ahead];
      QUERN_UNROLL
      for (int k = 0; k < ahead; ++k) x[k] = i + k < count ? at[(i + k) * step] : 0.0f;
      QUERN_UNROLL
      for (int k = 0; k < ahead; ++k)
        if (i + k < count) y = adds ? y + x[k] : multiplies ? y * x[k] : larger_of(y, x[k]);
    }
    return y;
  }
  // Whether the first statistic is a sum.
  QUERN_INLINE bool first_adds() const {
    return !(a.op == QUERN_SOFTMAX || a.op == QUERN_LOG_SOFTMAX || a.op == QUERN_REDUCE_MAX ||
             a.op == QUERN_REDUCE_MIN || a.op == QUERN_REDUCE_PROD);
  }

  // ---- The second: the variance, the sum of exponentials --------------------------------------------------------

  QUERN_INLINE bool has_second() const {
    return a.op == QUERN_NORM || a.op == QUERN_SOFTMAX || a.op == QUERN_LOG_SOFTMAX;
  }
  QUERN_INLINE float second_share() const {
    const float from = first;
    if (a.op == QUERN_NORM) return fold(0.0f, [=](float x, float v) { return fmaf(v - from, v - from, x); });
    return fold(0.0f, [=](float x, float v) { return x + exponential(v - from); });
  }

  // ---- Lanes meet: a barrier after each --------------------------------------------------------------------------

  template <bool Second>
  QUERN_INLINE void publish() const {
    shared[thread] = Second ? second_share() : share();
  }
  template <bool Second>
  QUERN_INLINE void join() const {
    if (lane < a.parts)
      shared[slice_threads + base + lane * apart] =
          joined(shared + base + lane * apart, a.parts * apart, a.lanes / a.parts, Second || first_adds());
  }
  template <bool Second>
  QUERN_INLINE float whole_of() const {
    return joined(shared + slice_threads + base, apart, a.parts, Second || first_adds());
  }
  QUERN_INLINE void take_first() {
    first = whole_of<false>();
    switch (a.op) {
      case QUERN_REDUCE_MIN: first = -first; break;
      case QUERN_REDUCE_L2: first = sqrtf(first); break;
      case QUERN_REDUCE_MEAN: first = a.count > 0 ? first / a.count : 0.0f; break;
      case QUERN_NORM: first = first / a.count; break;
      case QUERN_RMS_NORM: second = 1.0f / sqrtf(first / a.count + a.epsilon), first = 0; break;
      default: break;
    }
  }
  QUERN_INLINE void take_second() {
    const float x = whole_of<true>();
    second = a.op == QUERN_NORM ? 1.0f / sqrtf(x / a.count + a.epsilon) : a.op == QUERN_SOFTMAX ? 1.0f / x : logf(x);
  }

  // ---- And what comes of it ----------------------------------------------------------------------------------------

  QUERN_INLINE void finish() const {
    if (idle) return;
    float* const scratch = shared + 2 * slice_threads + thread;
    T* const dst = static_cast<T*>(a.dst) + place.dst;
    const T* const residual = static_cast<const T*>(a.residual) + place.residual;
    if (is_reduction(a.op)) {
      float y[1] = {first};
      const several_output<T> to = {place.channel, 0, residual, dst, at_once, at_once};
      if (lane == 0) write(a.epilogue, to, y, scratch, slice_threads);
      return;
    }
    const bool log = a.op == QUERN_LOG_SOFTMAX, softmax = a.op == QUERN_SOFTMAX;
    const auto each = [&](const several<T, V>& c, int32_t i, const auto& store) {
      float y[V];
      QUERN_UNROLL
      for (int v = 0; v < V; ++v) {
        const float x = c.at(v) - first;
        y[v] = log ? x - second : (softmax ? exponential(x) : x) * second;
      }
      const dim_place at = a.inner.at(i, V);
      store(several_output<T>{place.channel + at.channel, a.inner.axis[0].channel, residual + at.residual, dst + at.dst,
                              a.residual_step, a.dst_step},
            y);
    };
    if (a.held && a.dst_step == at_once && a.residual_step == at_once && only_clamps(a.epilogue)) {
      each_chunk([&](const several<T, V>& c, int32_t i) {
        each(c, i, [&](several_output<T> to, float(&y)[V]) {
          to.residual_step = to.dst_step = at_once;
          write_clamped(a.epilogue, to, y);
        });
      });
      return;
    }
    each_in_memory<1>([&](const several<T, V>& c, int32_t i) {
      each(c, i, [&](const several_output<T>& to, float(&y)[V]) { write(a.epilogue, to, y, scratch, slice_threads); });
    });
  }
};

#ifdef __CUDACC__

template <class T, int V>
__device__ __forceinline__ void over_slices(const slices& a, float* shared) {
  slice_thread<T, V> t(a, int32_t(blockIdx.x), int32_t(threadIdx.x), shared);
  t.load();
  t.template publish<false>();
  __syncthreads();
  t.template join<false>();
  __syncthreads();
  t.take_first();
  if (t.has_second()) {
    t.template publish<true>();
    __syncthreads();
    t.template join<true>();
    __syncthreads();
    t.take_second();
  }
  t.finish();
}

// The kernel for elements of a type.
#define QUERN_SLICES(name, type)                                                \
  extern "C" __global__ void __launch_bounds__(quern::slice_threads, 3)         \
      name(const __grid_constant__ quern::slices a) {                           \
    extern __shared__ float shared[];                                           \
    if (a.wide) return quern::over_slices<type, quern::whole<type>>(a, shared); \
    quern::over_slices<type, 1>(a, shared);                                     \
  }

#endif

}  // namespace
}  // namespace quern
