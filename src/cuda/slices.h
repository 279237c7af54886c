// SPDX-License-Identifier: MIT
//
// Reductions, norms and softmax on a GPU: operators over slices, the elements along some axes.
//
// A slice has so many lanes of a block, and a thread every so manieth chunk of it: 16 bytes where they lie side by side
// and aligned, else an element.  Up to 16 words of shared memory, which no other thread sees, keep what was read, so
// that memory is read once where the slice fits; else once for each statistic, and to write.  Every pass over the slice
// is the same loop, and which it is a matter of the run: memory is the limit, and a loop for each operator and pass, in
// registers, was four times the code.  Lanes meet in shared memory, in two steps of a fixed order: the same bits on any
// GPU and in any batch.  Variances are of differences from the mean, exponentials of those from the largest element: no
// cancellation that the mathematics does not have.
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
  bool held;               // in shared memory, from the first pass on
  // Of chunks that are no 16 bytes in memory, or not aligned: the sums are the same.
  int64_t src_step, dst_step, residual_step;
  quern_op op;
  float count, epsilon;
  const void *src, *residual;
  void* dst;
  dims outer, inner;
  epilogue_f32 epilogue;
};
// What lanes publish and what parts come to; then 16 words a thread: its chunks, or at last what activations work on.
inline constexpr int slice_shared = (2 + 16) * slice_threads * 4;

// e^x for x <= 0, and NaN.
QUERN_INLINE float exponential(float x) {
  const power<vec> p = power_of_e(vec::max(vec::set1(-110.0f), vec::set1(x)));
  return scale(vec::set1(1.0f) + p.t, p.n).v;
}

QUERN_INLINE float larger_of(float a, float b) { return a > b || a != a ? a : b; }

// What a pass over the slice sums up, multiplies or compares; or the last one, of normalisations alone: it writes.
enum class slice_pass { sum, magnitudes, squares, product, largest, exponentials, results };

// A thread; what it does stands between barriers.
template <class T, int V>
struct slice_thread {
  static_assert((V == 1 ? 16 : 4) * sizeof(several<T, V>) <= 64 && 2 * V * 4 <= 64);

  const slices& a;
  float* shared;
  int32_t thread, lane, base, apart;  // lane i of the slice is thread base + i * apart
  bool idle;                          // its slice is behind the last one
  dim_place place;
  const T* src;
  float first = 0, second = 0;  // statistics of the slice

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
  }

  QUERN_INLINE slice_pass pass_of(int32_t number) const {
    switch (a.op) {
      case QUERN_SOFTMAX:
      case QUERN_LOG_SOFTMAX:
        return number == 0 ? slice_pass::largest : number == 1 ? slice_pass::exponentials : slice_pass::results;
      case QUERN_NORM: return number == 0 ? slice_pass::sum : number == 1 ? slice_pass::squares : slice_pass::results;
      case QUERN_RMS_NORM: return number == 0 ? slice_pass::squares : slice_pass::results;
      case QUERN_REDUCE_MAX:
      case QUERN_REDUCE_MIN: return slice_pass::largest;
      case QUERN_REDUCE_PROD: return slice_pass::product;
      case QUERN_REDUCE_L1: return slice_pass::magnitudes;
      case QUERN_REDUCE_L2:
      case QUERN_REDUCE_SUM_SQUARE: return slice_pass::squares;
      default: return slice_pass::sum;
    }
  }
  QUERN_INLINE bool is_last(int32_t number) const { return pass_of(number) == slice_pass::results; }

  // Pass number `number`: a statistic's share for the lanes to meet, or results.
  QUERN_INLINE void visit(int32_t number) const {
    const slice_pass pass = pass_of(number);
    if (pass == slice_pass::exponentials) {
      shared[thread] = exponentials();
    } else if (pass != slice_pass::results) {
      shared[thread] = share(pass, number > 0);
    } else if (!idle) {
      write_results();
    }
  }

  // ---- Lanes meet: a barrier after each --------------------------------------------------------------------------

  QUERN_INLINE void join(int32_t number) const {
    if (lane < a.parts)
      shared[slice_threads + base + lane * apart] =
          joined(number, shared + base + lane * apart, a.parts * apart, a.lanes / a.parts);
  }
  QUERN_INLINE void take(int32_t number) {
    const float x = joined(number, shared + slice_threads + base, apart, a.parts);
    if (number == 1) {
      second = a.op == QUERN_NORM ? 1.0f / sqrtf(x / a.count + a.epsilon) : a.op == QUERN_SOFTMAX ? 1.0f / x : logf(x);
      return;
    }
    switch (a.op) {
      case QUERN_REDUCE_MIN: first = -x; break;
      case QUERN_REDUCE_L2: first = sqrtf(x); break;
      case QUERN_REDUCE_MEAN: first = a.count > 0 ? x / a.count : 0.0f; break;
      case QUERN_NORM: first = x / a.count; break;
      case QUERN_RMS_NORM: second = 1.0f / sqrtf(x / a.count + a.epsilon); break;
      default: first = x; break;
    }
  }

  // What a reduction comes to.
  QUERN_INLINE void write_first() const {
    float y[1] = {first};
    const several_output<T> to = {
        place.channel, 0,      static_cast<const T*>(a.residual) + place.residual, static_cast<T*>(a.dst) + place.dst,
        at_once,       at_once};
    if (lane == 0 && !idle) write(a.epilogue, to, y, words(), slice_threads);
  }

 private:
  QUERN_INLINE float* words() const { return shared + 2 * slice_threads + thread; }
  QUERN_INLINE several<T, V>& slot(int32_t k) const {
    return reinterpret_cast<several<T, V>*>(shared + 2 * slice_threads)[k * slice_threads + thread];
  }
  // Sixteen elements are asked for before one is waited for, where they are at the same distance.
  QUERN_INLINE float share(slice_pass pass, bool again) const {
    if constexpr (V == 1)
      if (a.inner.used == 1) return statistic<16, true>(pass, again);
    return statistic<4, false>(pass, again);
  }
  template <bool Even = false>
  QUERN_INLINE several<T, V> chunk(int32_t i) const {
    return read<V>(src + (Even ? int64_t{i} * a.inner.axis[0].src : a.inner.at(i, V).src), a.src_step);
  }
  QUERN_INLINE several<T, V> chunk(int32_t i, int32_t k, bool kept) const { return kept ? slot(k) : chunk(i); }

  // A share of any but exponentials, of so many chunks at a time: from memory, or kept since the first pass.
  template <int Count, bool Even>
  QUERN_INLINE float statistic(slice_pass pass, bool again) const {
    float x = pass == slice_pass::largest ? -INFINITY : pass == slice_pass::product ? 1.0f : 0.0f;
    QUERN_ROLL
    for (int32_t from = lane, first_slot = 0; from < a.chunks; from += Count * a.lanes, first_slot += Count) {
      several<T, V> c[Count] = {};
      QUERN_UNROLL
      for (int k = 0; k < Count; ++k)
        if (const int32_t i = from + k * a.lanes; i < a.chunks)
          c[k] = a.held && again ? slot(first_slot + k) : chunk<Even>(i);
      if (a.held && !again && !is_reduction(a.op)) {
        QUERN_UNROLL
        for (int k = 0; k < Count; ++k) slot(first_slot + k) = c[k];
      }
      x = added(pass, x, c, from);
    }
    return x;
  }
  template <int Count>
  QUERN_INLINE float added(slice_pass pass, float x, const several<T, V> (&c)[Count], int32_t from) const {
    const auto fold = [&](auto add) {
      QUERN_UNROLL
      for (int k = 0; k < Count; ++k) {
        if (from + k * a.lanes >= a.chunks) break;
        QUERN_UNROLL
        for (int v = 0; v < V; ++v) x = add(x, c[k].at(v));
      }
      return x;
    };
    switch (pass) {
      case slice_pass::largest: {
        const float sign = a.op == QUERN_REDUCE_MIN ? -1.0f : 1.0f;  // the smallest is the largest, turned round
        return fold([=](float to, float v) { return larger_of(to, sign * v); });
      }
      case slice_pass::product: return fold([](float to, float v) { return to * v; });
      case slice_pass::squares: return fold([from = first](float to, float v) { return fmaf(v - from, v - from, to); });
      case slice_pass::magnitudes: return fold([](float to, float v) { return to + fabsf(v); });
      default: return fold([](float to, float v) { return to + v; });
    }
  }

  // One chunk after the other, as much is to be done for each.
  QUERN_INLINE float exponentials() const {
    float x = 0;
    QUERN_ROLL
    for (int32_t i = lane, k = 0; i < a.chunks; i += a.lanes, ++k) {
      const several<T, V> c = chunk(i, k, a.held);
      QUERN_UNROLL
      for (int v = 0; v < V; ++v) x += exponential(c.at(v) - first);
    }
    return x;
  }
  QUERN_INLINE void write_results() const {
    const bool kept = a.held && only_clamps(a.epilogue);  // else the words are for activations
    several<T, V> next = {};
    QUERN_ROLL
    for (int32_t i = lane - a.lanes, k = 0; i < a.chunks; i += a.lanes, ++k) {
      const several<T, V> c = next;
      if (i + a.lanes < a.chunks) next = chunk(i + a.lanes, k, kept);  // on its way while this one is written
      if (i < 0) continue;
      float y[V];
      QUERN_UNROLL
      for (int v = 0; v < V; ++v) y[v] = c.at(v) - first;
      if (a.op == QUERN_SOFTMAX) {
        QUERN_UNROLL
        for (int v = 0; v < V; ++v) y[v] = exponential(y[v]);
      }
      QUERN_UNROLL
      for (int v = 0; v < V; ++v) y[v] = a.op == QUERN_LOG_SOFTMAX ? y[v] - second : y[v] * second;
      const dim_place at = a.inner.at(i, V);
      const several_output<T> to = {place.channel + at.channel,
                                    a.inner.axis[0].channel,
                                    static_cast<const T*>(a.residual) + place.residual + at.residual,
                                    static_cast<T*>(a.dst) + place.dst + at.dst,
                                    a.residual_step,
                                    a.dst_step};
      write<true>(a.epilogue, to, y, words(), slice_threads);
    }
  }

  // Values of lanes from `at` on, every so manieth, in their order; some are asked for before one is added.
  QUERN_INLINE float joined(int32_t number, const float* at, int32_t step, int32_t count) const {
    constexpr int ahead = 5;
    const slice_pass pass = pass_of(number);
    float y = at[0];
    QUERN_ROLL
    for (int32_t i = 1; i < count; i += ahead) {
      float x[ahead];
      QUERN_UNROLL
      for (int k = 0; k < ahead; ++k) x[k] = i + k < count ? at[(i + k) * step] : 0.0f;
      QUERN_UNROLL
      for (int k = 0; k < ahead; ++k) {
        if (i + k >= count) break;
        y = pass == slice_pass::product ? y * x[k] : pass == slice_pass::largest ? larger_of(y, x[k]) : y + x[k];
      }
    }
    return y;
  }
};

#ifdef __CUDACC__

template <class T, int V>
__device__ __forceinline__ void over_slices(const slices& a, float* shared) {
  slice_thread<T, V> t(a, int32_t(blockIdx.x), int32_t(threadIdx.x), shared);
#pragma unroll 1
  for (int32_t pass = 0;; ++pass) {
    t.visit(pass);
    if (t.is_last(pass)) return;
    __syncthreads();
    t.join(pass);
    __syncthreads();
    t.take(pass);
    if (is_reduction(a.op)) return t.write_first();
  }
}

// The kernel for elements of a type.
#define QUERN_SLICES(name, type)                                                \
  extern "C" __global__ void __launch_bounds__(quern::slice_threads, 4)         \
      name(const __grid_constant__ quern::slices a) {                           \
    extern __shared__ float shared[];                                           \
    if (a.wide) return quern::over_slices<type, quern::whole<type>>(a, shared); \
    quern::over_slices<type, 1>(a, shared);                                     \
  }

#endif

}  // namespace
}  // namespace quern
