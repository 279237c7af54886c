// SPDX-License-Identifier: MIT
//
// Operators of one element, or of two, and layout conversion on a GPU: a thread has 16 bytes that lie side by side and
// aligned in every tensor, else an element.  Where src and dst are densest along different axes, a block turns a tile
// round in shared memory, between two barriers, so that both are passed through as they lie.
#pragma once

#include "cuda/dims.h"
#include "cuda/several.h"

namespace quern {
namespace {

constexpr int element_threads = 256, element_tile = 32, element_rows = element_threads / element_tile;

// By value in the kernel's parameters.
struct elementwise {
  int32_t chunks;    // elements, or as many as 16 bytes have
  int32_t channels;  // elements of channels from here on do not exist
  quern_op op;
  bool whole;   // chunks are of 16 bytes
  bool turned;  // by tiles of axis[0], along which dst is densest, and axis[1], along which src is
  int32_t tiles[2];
  const void *src, *weights, *residual;
  void* dst;
  dims axes;
  epilogue_f32 epilogue;
};
// Results of threads, or those of one element behind a tile.
template <class T>
inline constexpr int turn_shared = (element_tile * (element_tile + 1) * int(sizeof(T)) + 15) / 16 * 16;
template <class T>
inline constexpr int element_shared = 2 * whole<T>* element_threads * 4 > turn_shared<T> + 2 * element_threads * 4
                                          ? 2 * whole<T>* element_threads * 4
                                          : turn_shared<T> + 2 * element_threads * 4;

QUERN_INLINE float combined(quern_op op, float x, float y) {
  switch (op) {
    case QUERN_ADD: return x + y;
    case QUERN_SUB: return x - y;
    case QUERN_MUL: return x * y;
    case QUERN_DIV: return x / y;
    case QUERN_MAX: return x > y || x != x ? x : y;
    case QUERN_MIN: return x < y || x != x ? x : y;
    default: return x;
  }
}

// dst of a chunk, of which src is read.
template <class T, int V>
QUERN_INLINE void combine(const elementwise& a, const several<T, V>& x, const dim_place& at, float* shared) {
  T* const dst = static_cast<T*>(a.dst) + at.dst;
  if (at.channel >= a.channels) return;
  if (a.op == QUERN_REORDER) {
    *reinterpret_cast<several<T, V>*>(dst) = x;
    return;
  }
  float y[V];
  if (a.op == QUERN_UNARY) {
    QUERN_UNROLL
    for (int v = 0; v < V; ++v) y[v] = x.at(v);
  } else {
    const T* const weights = static_cast<const T*>(a.weights) + at.weights;
    // The same one for the whole chunk, where its sizes say so.
    const bool spread = V > 1 && a.axes.axis[0].weights == 0;
    const several<T, V> w = spread ? several<T, V>{} : read<V>(weights);
    const float one = spread ? value(*weights) : 0.0f;
    QUERN_UNROLL
    for (int v = 0; v < V; ++v) y[v] = combined(a.op, x.at(v), spread ? one : w.at(v));
  }
  const several_output<T> to = {
      at.channel, a.axes.axis[0].channel, static_cast<const T*>(a.residual) + at.residual, dst, at_once, at_once};
  write(a.epilogue, to, y, shared, element_threads);
}

template <class T, int V>
QUERN_INLINE void combine_chunk(const elementwise& a, int32_t index, float* shared) {
  if (index >= a.chunks) return;
  const dim_place at = a.axes.at(index, V);
  if (at.channel >= a.channels) return;
  combine(a, read<V>(static_cast<const T*>(a.src) + at.src), at, shared);
}

// A thread without tiles; `shared` is its own.
template <class T>
QUERN_INLINE void combine_elements(const elementwise& a, int32_t index, float* shared) {
  if (a.whole) return combine_chunk<T, whole<T>>(a, index, shared);
  combine_chunk<T, 1>(a, index, shared);
}

// ---- Tiles ----------------------------------------------------------------------------------------------------------

template <class T>
struct element_turn {
  const elementwise& a;
  T* tile;  // of element_tile + 1 columns
  int32_t lane, row, x, y;
  dim_place place;  // of element 0, 0 of the tile's plane

  QUERN_INLINE element_turn(const elementwise& args, int32_t block, int32_t thread, T* shared)
      : a(args), tile(shared), lane(thread % element_tile), row(thread / element_tile) {
    const int32_t plane = block / a.tiles[0] / a.tiles[1];
    x = block % a.tiles[0] * element_tile, y = block / a.tiles[0] % a.tiles[1] * element_tile;
    place = a.axes.at<2>(plane, 1);
  }
  QUERN_INLINE dim_place at(int32_t i, int32_t j) const {
    const dim &u = a.axes.axis[0], &v = a.axes.axis[1];
    dim_place p = place;
    p.src += i * u.src + j * v.src, p.dst += i * u.dst + j * v.dst;
    p.residual += i * u.residual + j * v.residual, p.weights += i * u.weights + j * v.weights;
    p.channel += i * u.channel + j * v.channel;
    return p;
  }
  QUERN_INLINE bool has(int32_t i, int32_t j) const { return i < a.axes.axis[0].count && j < a.axes.axis[1].count; }

  // Lanes along src.
  QUERN_INLINE void read_tile() const {
    QUERN_UNROLL
    for (int k = 0; k < element_tile; k += element_rows) {
      const int32_t i = x + row + k, j = y + lane;
      if (!has(i, j)) continue;
      const dim_place p = at(i, j);
      if (p.channel < a.channels) tile[(row + k) * (element_tile + 1) + lane] = static_cast<const T*>(a.src)[p.src];
    }
  }
  // Lanes along dst; the thread's results pass through `shared`, behind the tile.
  QUERN_INLINE void write_tile(float* shared) const {
    QUERN_ROLL
    for (int k = 0; k < element_tile; k += element_rows)
      if (const int32_t i = x + lane, j = y + row + k; has(i, j))
        combine<T, 1>(a, {tile[lane * (element_tile + 1) + row + k]}, at(i, j), shared);
  }
};

}  // namespace
}  // namespace quern

// The kernels for elements of a type: of chunks, and of tiles.
#define QUERN_ELEMENTWISE(name, type)                                                                                 \
  extern "C" __global__ void __launch_bounds__(quern::element_threads, 4)                                             \
      name(const __grid_constant__ quern::elementwise a) {                                                            \
    extern __shared__ __align__(16) float shared[];                                                                   \
    if (!a.turned)                                                                                                    \
      return quern::combine_elements<type>(a, int32_t(blockIdx.x) * quern::element_threads + int32_t(threadIdx.x),    \
                                           shared + threadIdx.x);                                                     \
    const quern::element_turn<type> t(a, int32_t(blockIdx.x), int32_t(threadIdx.x), reinterpret_cast<type*>(shared)); \
    t.read_tile();                                                                                                    \
    __syncthreads();                                                                                                  \
    t.write_tile(shared + quern::turn_shared<type> / 4 + threadIdx.x);                                                \
  }
