// SPDX-License-Identifier: MIT
//
// A CUDA driver that is none: contexts are numbers, a function is the row of its name, and a launch runs the
// kernel's own source on this CPU, thread by thread.  It counts what it is asked for.
#pragma once

#include <atomic>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "cuda/elementwise.h"
#include "cuda/few_channels.h"
#include "cuda/first_box.h"
#include "cuda/first_layer.h"
#include "cuda/group.h"
#include "cuda/implicit.h"
#include "cuda/pixels_last.h"
#include "cuda/pooling.h"
#include "cuda/reference.h"
#include "cuda/slices.h"
#include "cuda/tma_f32.h"
#include "cuda/tma_half.h"
#include "cuda/tma_halo.h"
#include "cuda/walk.h"
#include "cuda_device.h"
#include "registry.h"

namespace quern::test {

struct fake_gpu {
  int version = 13000, capability = 90, fails = 0;  // fails: what every call returns
  std::atomic<int> loaded{0}, unloaded{0}, launches{0}, others{0};
  void* stream = nullptr;  // of the last launch
  void* context = nullptr;
  unsigned blocks = 0, threads = 0, shared_bytes = 0;
  int ptx_version = 90;  // that all code was compiled from
  bool early = false;    // whether the last launch may start before what precedes it has ended
  bool ahead = false;    // and that of conv_tma requests its weights
};

inline fake_gpu* fake = nullptr;  // the one that the driver's functions work on
inline thread_local void* current_context = nullptr;

// A step of a warp on tensor cores: operands and sums of its lanes as the instruction 16 x 8 x 8 has them, of the
// first pixels and channels.
template <class Tile>
void multiply_step(Tile* lane, int pixels, int channels) {
  for (int k = 0; k < Tile::bk; k += 8) {
    implicit_pixels p[32];
    for (int i = 0; i < 32; ++i) lane[i].load_pixels(p[i], k);
    for (int j = 0; 8 * j < channels; ++j) {
      implicit_weights q[32];
      for (int i = 0; i < 32; ++i) lane[i].load_weights(q[i], k, j);
      for (int i = 0; i < 32; ++i)
        for (int e = 0; e < 8 && e / 4 * 16 < pixels; ++e) {
          const int row = i / 4 + e / 2 % 2 * 8, column = i % 4 * 2 + e % 2;
          float small = 0, large = 0;
          for (int s = 0; s < 8; ++s) {
            const tf32_pair x = p[row % 8 * 4 + s % 4].x[e / 4][row / 8 + s / 4 * 2],
                            w = q[column * 4 + s % 4].w[s / 4];
            small += x.low * w.high + x.high * w.low, large += x.high * w.high;
          }
          lane[i].sum[j][e] += small + large;
        }
    }
  }
}

// An element of a unit that may hold two.
template <class T, class Unit>
T element_of(Unit unit, [[maybe_unused]] int at) {
  if constexpr (sizeof(T) == sizeof(Unit)) {
    return unit;
  } else {
    return {static_cast<decltype(T::bits)>(unit >> 8 * at)};
  }
}

// The same of 16-bit elements, by the instruction 16 x 8 x 16, or pairs of 8 bits: rows of matrices are where lanes
// name them.
template <class Tile>
void multiply_halves_step(Tile* lane, int pixels, int channels) {
  using T = typename Tile::element;
  using number = std::remove_reference_t<decltype(lane->sum[0][0])>;
  for (int k = 0; k < Tile::units; k += 16)
    for (int i = 0; i < 2 && 16 * i < pixels; ++i)
      for (int j = 0; 8 * j < channels; ++j) {
        const auto x = [&](int row, int at) { return lane[row + at / 8 * 16].pixel_row(i, k)[at % 8]; };
        const auto w = [&](int at, int column) { return lane[at + j % 2 * 16].weight_row(k, j / 2 * 2)[column]; };
        for (int own = 0; own < 32; ++own)
          for (int e = 0; e < 4; ++e)
            for (int at = 0; at < 16; ++at)
              for (int part = 0; part < Tile::together; ++part)
                lane[own].sum[j][4 * i + e] +=
                    static_cast<number>(value(element_of<T>(x(own / 4 + e / 2 * 8, at), part))) *
                    static_cast<number>(value(element_of<T>(w(at, own % 4 * 2 + e % 2), part)));
      }
}

// Blocks one after the other, threads in turn between barriers, shared memory full of NaN.
template <class Tile>
void run_tiles(const implicit_conv& a, const implicit_tap* taps, unsigned blocks) {
  for (unsigned block = 0; block < blocks; ++block) {
    std::vector<four_floats> shared(Tile::shared_bytes / sizeof(four_floats) + 1);
    memset(static_cast<void*>(shared.data()), 0xff, shared.size() * sizeof shared[0]);
    std::vector<Tile> threads;
    threads.reserve(Tile::threads);
    for (int i = 0; i < Tile::threads; ++i) threads.emplace_back(a, taps, block, i, shared[0].v);
    const auto all = [&](auto f) {
      for (Tile& t : threads) f(t);
    };
    all([](Tile& t) { t.load(); });
    all([](Tile& t) { t.load(); });
    for (int32_t i = 0; i < a.steps; ++i) {
      all([](Tile& t) { t.load(); });
      for (int warp = 0; warp < Tile::warps; ++warp) {
        Tile* const lane = &threads[static_cast<size_t>(32 * warp)];
        const int pixels = a.out.pixels - lane->place().pixel - warp % (Tile::bm / 32) * 32;
        const int channels = std::min(64, a.out.k - lane->place().channel - warp / (Tile::bm / 32) * 64);
        const bool idle = pixels <= 0 || channels <= 0;
        if constexpr (Tile::tensor && Tile::halves) {
          if (!idle) multiply_halves_step(lane, pixels, channels);
        } else if constexpr (Tile::tensor) {
          if (!idle) multiply_step(lane, pixels, channels);
        } else if (!idle) {
          for (int k = 0; k < 32; ++k) lane[k].multiply();
          continue;
        }
        for (int k = 0; k < 32; ++k) lane[k].next_stage();
      }
    }
    all([](Tile& t) { t.find_places(); });
    for (int half = 0; half < 2; ++half) {
      all([=](Tile& t) { t.stage(half); });
      all([=](Tile& t) { t.finish(half); });
    }
  }
}

// The copy engine: what cuTensorMapEncodeIm2col was told, and a copy by it.
struct fake_map {
  const char* src;
  uint64_t size[4], stride[3];
  int lower[2], upper[2];
  uint32_t channels, pixels, step[2];

  template <class T>
  void copy(T* to, tma_request r) const {
    for (int32_t i = 0; i < static_cast<int32_t>(pixels); ++i) {
      const int64_t w = r.w + r.tap_w, h = r.h + r.tap_h;
      for (int32_t j = 0; j < static_cast<int32_t>(channels); ++j) {
        const bool inside = in(r.c + j, 0) && in(w, 1) && in(h, 2) && in(r.n, 3);
        const char* from =
            src + (inside ? w * int64_t(stride[0]) + h * int64_t(stride[1]) + r.n * int64_t(stride[2]) : 0);
        to[tma_swizzled<16 / sizeof(T)>(i, j)] = inside ? reinterpret_cast<const T*>(from)[r.c + j] : T{};
      }
      r.w += int32_t(step[0]);
      if (r.w < int64_t(size[1]) + upper[0]) continue;
      r.w = lower[0], r.h += int32_t(step[1]);
      if (r.h < int64_t(size[2]) + upper[1]) continue;
      r.h = lower[1], ++r.n;
    }
  }

 private:
  bool in(int64_t at, int axis) const { return at >= 0 && at < int64_t(size[axis]); }
};
static_assert(sizeof(fake_map) <= sizeof(tensor_map));

// part[16 x columns] += a warp's pixels x weights, of one stage: element by element as the instruction's operands
// are laid out.  Small integers have no low part: nothing is added then.
template <class Tile>
void multiply_stage(float* part, const typename Tile::fragments* x, bool low, const float* weights, int columns) {
  const auto has_none = [](const auto& lane) {
    for (const auto& step : lane.low)
      for (float v : step)
        if (v != 0) return false;
    return true;
  };
  if (low && std::all_of(x, x + 32, has_none)) return;
  for (int k = 0; k < Tile::bk; ++k) {
    float line[Tile::bn];
    for (int column = 0; column < columns; ++column) line[column] = weights[tma_swizzled<4>(column, k)];
    for (int row = 0; row < 16; ++row) {
      const auto& lane = x[row % 8 * 4 + k % 4];
      const int step = k / 8, element = row / 8 + k % 8 / 4 * 2;
      const float a = low ? lane.low[step][element] : lane.high[step][element];
      for (int column = 0; column < columns; ++column) part[row * Tile::bn + column] += a * line[column];
    }
  }
}

template <class Tile>
void run_tma_tile(const tma_conv& a, int32_t tile) {
  const tma_place place = tma_place_of(a, tile, Tile::bm, Tile::bn);
  const int warps = 4 * Tile::groups, used = std::min(Tile::bn, a.out.k - place.channel);
  std::vector<four_floats> memory(Tile::shared_bytes / sizeof(four_floats));
  memset(static_cast<void*>(memory.data()), 0xff, memory.size() * sizeof memory[0]);
  float* const shared = memory[0].v;
  std::vector<float> sum(static_cast<size_t>(Tile::bm * Tile::bn)), part(16 * Tile::bn);
  const float* weights = reinterpret_cast<const float*>(a.weights + place.group * a.weights_group) +
                         int64_t{place.panel} * a.blocks * Tile::weight_floats;
  fake_map map;
  memcpy(&map, &a.src, sizeof map);
  tma_walk walk(a, place);
  for (int32_t i = 0; i < a.blocks; ++i, walk.advance(Tile::bk), weights += Tile::weight_floats) {
    map.copy(shared, walk.now);
    const bool whole =
        std::all_of(weights + Tile::weight_floats / 2, weights + Tile::weight_floats, [](float v) { return v == 0; });
    for (int warp = 0; warp < warps && place.pixel + 16 * warp < a.out.pixels; ++warp) {
      typename Tile::fragments x[32];
      for (int lane = 0; lane < 32; ++lane) x[lane].load(shared, 32 * warp + lane), x[lane].split();
      std::fill(part.begin(), part.end(), 0.0f);
      multiply_stage<Tile>(part.data(), x, true, weights, used);
      if (!whole) multiply_stage<Tile>(part.data(), x, false, weights + Tile::weight_floats / 2, used);
      multiply_stage<Tile>(part.data(), x, false, weights, used);
      for (int k = 0; k < 16 * Tile::bn; ++k) sum[16 * warp * Tile::bn + k] += part[k];
    }
  }
  const auto all = [&](auto f) {
    for (int thread = 0; thread < 32 * warps; ++thread) f(Tile::output(a, shared, thread), thread);
  };
  all([&](auto out, int thread) { out.find_places(place.pixel + thread / 32 * 16); });
  for (int32_t i = 0; i < Tile::bn / 32; ++i) {
    all([&](auto out, int thread) {
      float own[16];
      for (int k = 0; k < 16; ++k) {
        const int row = thread / 128 * 64 + tma_row(thread, k / 2 % 2);
        own[k] = sum[row * Tile::bn + 32 * i + k / 4 * 8 + tma_column(thread, k % 2)];
      }
      Tile::stage_out(out, own, thread);
    });
    all([&](auto out, int) { out.finish(place.group, place.channel + 32 * i); });
  }
}

// Boxes of a tensor, fastest axis first, as cuTensorMapEncodeTiled was told of them.
struct fake_boxes {
  char* tensor;
  uint64_t size[4], stride[3];
  uint32_t box[4];

  // move(in memory, NULL where there is nothing; in shared memory) for each element of the box at `first`.
  template <class T, class Move>
  void each(T* shared, const int32_t (&first)[4], Move move) const {
    const uint32_t rows = box[1] * box[2] * box[3];
    for (uint32_t i = 0; i < rows; ++i) {
      const int64_t at[] = {first[1] + int64_t(i % box[1]), first[2] + int64_t(i / box[1] % box[2]),
                            first[3] + int64_t(i / box[1] / box[2])};
      bool inside = true;
      char* line = tensor;
      for (int k = 0; k < 3; ++k) {
        inside = inside && at[k] >= 0 && at[k] < int64_t(size[k + 1]);
        if (inside) line += at[k] * int64_t(stride[k]);
      }
      for (uint32_t j = 0; j < box[0]; ++j)
        move(inside && first[0] + j < size[0] ? reinterpret_cast<T*>(line) + first[0] + j : nullptr,
             shared[tma_swizzled<16 / sizeof(T)>(int32_t(i), int32_t(j))]);
    }
  }
  template <class T>
  void load(T* to, const int32_t (&first)[4]) const {
    each(to, first, [](const T* from, T& x) { x = from ? *from : T{}; });
  }
  template <class T>
  void store(T* from, const int32_t (&first)[4]) const {
    each(from, first, [](T* to, const T& x) {
      if (to) *to = x;
    });
  }
};
static_assert(sizeof(fake_boxes) <= sizeof(tensor_map));

// sum[channel of the tile][pixel of the tile] += the stages of a share: channels are rows, pixels columns.
template <class Tile>
void multiply_halves_share(const tma_conv& a, const tma_place& place, tma_share share,
                           sum_type<typename Tile::element>* sum) {
  using T = typename Tile::element;
  using number = sum_type<T>;
  constexpr int chunk = 16 / sizeof(T);
  const int64_t lines = a.out.pixels / a.out.size[2];
  const int pixels = static_cast<int>(std::min<int64_t>(Tile::bm, lines * a.columns - place.pixel));
  const int channels = std::min(Tile::bn, a.out.k - place.channel);
  std::vector<T> x(Tile::pixel_bytes / sizeof(T));
  std::vector<number> line(Tile::bm);
  const T* w = reinterpret_cast<const T*>(a.weights + place.group * a.weights_group) +
               (int64_t{place.panel} * a.blocks + share.first) * int64_t(Tile::weight_bytes / sizeof(T));
  fake_map map;
  memcpy(&map, &a.src, sizeof map);
  tma_walk walk(a, place);
  if (share.first < share.last) walk.skip(share.first, Tile::bk);
  for (int32_t i = share.first; i < share.last; ++i, walk.advance(Tile::bk), w += Tile::weight_bytes / sizeof(T)) {
    map.copy(x.data(), walk.now);
    for (int k = 0; k < Tile::taps * Tile::bk; ++k) {
      const int tap = k / Tile::bk, at = k % Tile::bk;
      for (int pixel = 0; pixel < pixels; ++pixel)
        line[pixel] = static_cast<number>(value(x[tma_swizzled<chunk>(pixel + tap, at)]));
      for (int channel = 0; channel < channels; ++channel) {
        const number weight =
            static_cast<number>(value(w[tap * Tile::tap_bytes / int(sizeof(T)) +
                                        tma_swizzled<chunk>(chunk == 16 ? tma_packed_row(channel) : channel, at)]));
        for (int pixel = 0; pixel < pixels; ++pixel) sum[channel * Tile::bm + pixel] += weight * line[pixel];
      }
    }
  }
}

// What a block writes out of elements of 8 bits, whose channels lie in pairs.
template <class Tile, int First = 0, class Sum>
void write_pairs_of_parts(const tma_conv& a, int from, const std::vector<Tile>& threads, const Sum& sum_at) {
  constexpr int rows = std::min(Tile::part_rows, Tile::written - First);
  const bool residual = a.out.epilogue.residual != QUERN_RESIDUAL_NONE;
  for (const Tile& t : threads)
    if (residual) t.read_residual(from + First, rows);
  for (const Tile& t : threads) {
    std::vector<sum_type<typename Tile::element>> sum(Tile::written / 2);
    for (int k = 0; k < Tile::written / 2; ++k) sum[static_cast<size_t>(k)] = sum_at(t, k);
    const channel_f32 of[] = {t.of(0), t.of(1)};
    residual ? t.template stage_pairs<true, First, rows>(sum.data(), of)
             : t.template stage_pairs<false, First, rows>(sum.data(), of);
  }
  for (const Tile& t : threads) t.write_out(from + First, rows);
  if constexpr (First + rows < Tile::written) write_pairs_of_parts<Tile, First + rows>(a, from, threads, sum_at);
}

// What a block writes out in chunks of eight channels, which are turned round in shared memory.
template <class Tile, class Sum>
void write_whole_halves(const tma_conv& a, int from, const std::vector<Tile>& threads, const Sum& sum_at) {
  using T = typename Tile::element;
  const auto all = [&](auto f) {
    for (const Tile& t : threads) f(t);
  };
  fake_boxes dst;
  memcpy(&dst, &a.dst, sizeof dst);
  const bool residual = a.out.epilogue.residual != QUERN_RESIDUAL_NONE;
  for (int first = 0; first < Tile::written; first += Tile::part_rows) {
    const int rows = std::min(Tile::part_rows, Tile::written - first);
    if (residual) all([&](const Tile& t) { t.read_residual(from + first, rows); });
    all([&](const Tile& t) {
      for (int j = 0; j < rows / 8; ++j)
        for (int i = 0; i < 2; ++i) {
          uint32_t pair = 0;
          char* at[2];
          for (int e = 0; e < 2; ++e) {
            at[e] = t.shared + Tile::staged(8 * j + tma_column(t.thread, e), tma_row(t.thread, i));
            if (residual) memcpy(reinterpret_cast<char*>(&pair) + 2 * e, at[e], 2);
          }
          const int k = 4 * (first / 8 + j) + 2 * i;
          pair = residual ? finished_pair<T, true>(a.out.epilogue, t.of(i), sum_at(t, k), sum_at(t, k + 1), pair)
                          : finished_pair<T, false>(a.out.epilogue, t.of(i), sum_at(t, k), sum_at(t, k + 1), pair);
          for (int e = 0; e < 2; ++e) memcpy(at[e], reinterpret_cast<const char*>(&pair) + 2 * e, 2);
        }
    });
    all([&](const Tile& t) {
      if (!a.stores) return t.write_out(from + first, rows);
      if (t.thread % 128 == 0)
        t.each_box(from + first, rows, [&](char* box, int32_t channel, int32_t pixel) {
          dst.store(reinterpret_cast<T*>(box), {channel, pixel, 0, 0});
        });
    });
  }
}

// What a block writes out of a tile's sums: pixels from `from` on.
template <class Tile>
void write_halves(const tma_conv& a, const tma_place& place, int from, const sum_type<typename Tile::element>* sum) {
  using T = typename Tile::element;
  std::vector<four_floats> memory(static_cast<size_t>(Tile::groups * Tile::out_bytes) / sizeof(four_floats));
  memset(static_cast<void*>(memory.data()), 0xff, memory.size() * sizeof memory[0]);
  std::vector<Tile> threads;
  for (int i = 0; i < 128 * Tile::groups; ++i)
    threads.push_back({a, place, reinterpret_cast<char*>(memory.data()) + i / 128 * Tile::out_bytes, i});
  const auto sum_at = [&](const Tile& t, int k) {
    const int channel = t.thread / 128 * 64 + Tile::channel_of_row(t.thread, k / 2 % 2);
    return sum[channel * Tile::bm + from + 8 * (k / 4) + tma_column(t.thread, k % 2)];
  };
  const auto all = [&](auto f) {
    for (const Tile& t : threads) f(t);
  };
  if (!threads[0].whole_chunks()) {
    for (int i = 0; i < Tile::written / 16; ++i) {
      all([&](const Tile& t) { t.output().find_place(t.output_of(from + 16 * i + t.thread % 16)); });
      all([&](const Tile& t) {
        sum_type<T> own[8];
        for (int k = 0; k < 8; ++k) own[k] = sum_at(t, 8 * i + k);
        t.stage_out(own);
      });
      all([&](const Tile& t) { t.finish(); });
    }
    return;
  }
  if constexpr (sizeof(T) == 2) {
    write_whole_halves<Tile>(a, from, threads, sum_at);
  } else {
    write_pairs_of_parts<Tile>(a, from, threads, sum_at);
  }
}

// A tile by the blocks of a cluster, each a share of the stages; sums of shares are added in their order.
template <class Tile>
void run_half_tile(const tma_conv& a, int32_t tile) {
  const tma_place place = tma_place_of(a, tile, Tile::bm, Tile::bn);
  std::vector<sum_type<typename Tile::element>> sum(static_cast<size_t>(Tile::bn * Tile::bm));
  for (int rank = 0; rank < Tile::cluster; ++rank) {
    std::vector<sum_type<typename Tile::element>> own(sum.size());
    multiply_halves_share<Tile>(a, place, tma_share_of(a, rank, Tile::cluster), own.data());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
  }
  for (int from = 0; from < Tile::bm; from += Tile::written) write_halves<Tile>(a, place, from, sum.data());
}

// A tile of tma_halo.h by the group of warps whose turn it is, in a stage with room for nothing else.
template <class Tile>
void run_halo_tile(const halo_conv& a, int32_t tile) {
  using T = typename Tile::element;
  const halo_place place = halo_place_of(a, tile);
  std::vector<four_floats> memory(static_cast<size_t>(Tile::stage_bytes) / sizeof(four_floats));
  memset(static_cast<void*>(memory.data()), 0xff, memory.size() * sizeof memory[0]);
  T* const x = reinterpret_cast<T*>(memory.data());
  fake_boxes src, dst;
  memcpy(&src, &a.src, sizeof src), memcpy(&dst, &a.dst, sizeof dst);
  EXPECT_EQ(src.box[1] * src.box[2], unsigned(a.pitch * a.lines));
  EXPECT_LE(a.pitch * a.lines * 128, Tile::stage_bytes);
  src.load(x, {0, place.w + a.begin[1], place.h + a.begin[0], place.n});
  std::vector<Tile> threads;
  for (int i = 0; i < 128; ++i) threads.push_back({a, place, reinterpret_cast<char*>(x), i});
  std::vector<float> sum(static_cast<size_t>(Tile::bn * Tile::bm));
  const T* w = reinterpret_cast<const T*>(a.weights);
  for (int32_t position = 0; position < Tile::bm; ++position) {
    const int32_t row = threads[0].row_of(position), column = position - row * a.pitch;
    EXPECT_EQ(row, position / a.pitch);
    if (row >= a.rows || column >= a.columns) continue;
    for (int32_t tap = 0; tap < a.taps[0] * a.taps[1]; ++tap) {
      const int32_t from = position + tap / a.taps[1] * a.step[0] * a.pitch + tap % a.taps[1] * a.step[1];
      EXPECT_LT(from, a.pitch * a.lines);
      for (int32_t channel = 0; channel < a.out.k; ++channel)
        for (int32_t c = 0; c < Tile::bk; ++c)
          sum[channel * Tile::bm + position] +=
              value(w[tap * Tile::tap_bytes / 2 + tma_swizzled<8>(channel, c)]) * value(x[tma_swizzled<8>(from, c)]);
    }
  }
  const auto sum_of = [&](const Tile& t, int k) {
    return sum[tma_row(t.thread, k / 2 % 2) * Tile::bm + 8 * (k / 4) + tma_column(t.thread, k % 2)];
  };
  const auto all = [&](auto f) {
    for (const Tile& t : threads) f(t);
  };
  if (!threads[0].whole_chunks()) {
    for (int i = 0; i < Tile::bm / 16; ++i) {
      all([&](const Tile& t) { t.output().find_place(t.output_of(16 * i + t.thread % 16)); });
      all([&](const Tile& t) {
        float own[8];
        for (int k = 0; k < 8; ++k) own[k] = sum_of(t, 8 * i + k);
        t.stage_out(own);
      });
      all([&](const Tile& t) { t.finish(); });
    }
    return;
  }
  const bool residual = a.out.epilogue.residual != QUERN_RESIDUAL_NONE;
  if (residual) all([](const Tile& t) { t.read_residual(); });
  all([&](const Tile& t) {
    for (int k = 0; k < Tile::bm / 2; k += 2) {
      uint32_t pair = 0;
      char* at[2];
      for (int e = 0; e < 2; ++e) {
        const int32_t row = t.staged_row(8 * (k / 4) + tma_column(t.thread, e));
        EXPECT_LT(row, halo_room(Tile::bm));
        at[e] = t.shared + Tile::staged(row, tma_row(t.thread, k / 2 % 2));
        if (residual) memcpy(reinterpret_cast<char*>(&pair) + 2 * e, at[e], 2);
      }
      const channel_f32 of = t.of(k / 2 % 2);
      pair = residual ? finished_pair<T, true>(a.out.epilogue, of, sum_of(t, k), sum_of(t, k + 1), pair)
                      : finished_pair<T, false>(a.out.epilogue, of, sum_of(t, k), sum_of(t, k + 1), pair);
      for (int e = 0; e < 2; ++e) memcpy(at[e], reinterpret_cast<const char*>(&pair) + 2 * e, 2);
    }
  });
  if (a.stores) return dst.store(x, {0, place.w, place.h, place.n});
  all([](const Tile& t) { t.write_out(); });
}

template <class Tile>
void run_halo(const kernel& row, const std::string& name, unsigned blocks, void** parameters) {
  if ("tma_" + name + "_sm90a" != row.name) return;
  const auto& a = *static_cast<const halo_conv*>(parameters[0]);
  fake->ahead = a.ahead;
  EXPECT_LE(int32_t(blocks), a.tiles);
  for (int32_t tile = 0; tile < a.tiles; ++tile) run_halo_tile<Tile>(a, tile);
}

template <class Tile>
void run_tma(const kernel& row, const char* name, unsigned blocks, void** parameters) {
  if (std::string("tma_") + name + "_sm90a" != row.name) return;
  const auto& a = *static_cast<const tma_conv*>(parameters[0]);
  fake->ahead = a.ahead;
  const int32_t apart = int32_t(blocks) / Tile::cluster;
  for (int32_t block = 0; block < apart; ++block)
    for (int32_t tile = block; tile < a.tiles; tile += apart)
      if constexpr (sizeof(typename Tile::element) < 4) {
        run_half_tile<Tile>(a, tile);
      } else {
        run_tma_tile<Tile>(a, tile);
      }
}

template <class T, class Problem>
void run_reference(const Problem& r, int64_t all) {
  for (int64_t thread = 0; thread < all; ++thread)
    for (int64_t i = thread; i < r.elements; i += all) reference_output<T>(r, i);
}

// Threads without barriers, and memory of a block full of NaN.
template <class Kernel>
void run_few(const few_conv& a, unsigned blocks) {
  const int32_t all = static_cast<int32_t>(blocks) * few_threads;
  EXPECT_LT(all - a.threads, few_threads);
  for (int32_t i = 0; i < a.threads; ++i) {
    std::vector<float> shared(Kernel::shared_bytes / 4, std::numeric_limits<float>::quiet_NaN());
    Kernel::run(a, i, shared.data() + i % few_threads);
  }
}

// A line of inputs, in the sums of a thread; or of a warp, whose operands and sums are those of the instruction
// 16 x 8 x 16.
template <class Element, int Group, int Taps, int Step, int Columns>
void add_line(walk_thread<Element, Group, Taps, Step, Columns>* lane, int k, int32_t number) {
  for (int i = 0; i < 32; ++i) lane[i].add(k, number);
}
template <class Element, int Depth, int Step>
void add_line(group_thread<Element, Depth, Step>* lane, int k, int32_t number) {
  using thread = group_thread<Element, Depth, Step>;
  for (int i = 0; i < 32 && k == 0; ++i) lane[i].move_up();
  for (int s = 0; s < thread::taps; ++s)
    for (int at = 0; at < Depth; ++at) {
      float x[16];
      for (int row = 0; row < 16; ++row) x[row] = value(lane[row + at % 16 / 8 * 16].row(number, s, at / 16)[at % 8]);
      for (int j = 0; j < thread::met && j * Step + k < thread::taps; ++j)
        for (int own = 0; own < 32; ++own)
          for (int e = 0; e < 8; ++e) {
            const group_weights& w =
                lane[(own % 4 * 2 + e % 2) * 4 + at % 8 / 2].w[(j * Step + k) * thread::taps + s][at / 16];
            const uint32_t pair = w.v[e / 4 * 2 + at % 16 / 8] >> at % 2 * 16;
            lane[own].sum[j][e / 4][e % 4] += x[own / 4 + e / 2 % 2 * 8] * value(Element{static_cast<uint16_t>(pair)});
          }
    }
}

// Blocks that walk down, threads in turn between barriers, shared memory full of NaN.
template <class Thread>
void run_lines(const lines_conv& a, unsigned blocks) {
  using T = typename Thread::element;
  EXPECT_LE(Thread::scratch_bytes + ring_lines * a.line_at * int(sizeof(T)), Thread::shared_bytes);
  constexpr int depth = (Thread::taps + Thread::step - 1) / Thread::step;
  for (unsigned block = 0; block < blocks; ++block) {
    std::vector<four_floats> shared(Thread::shared_bytes / sizeof(four_floats) + 1);
    memset(static_cast<void*>(shared.data()), 0xff, shared.size() * sizeof shared[0]);
    std::vector<Thread> threads;
    threads.reserve(Thread::threads);
    for (int i = 0; i < Thread::threads; ++i) threads.emplace_back(a, shared[0].v, static_cast<int32_t>(block), i);
    const int32_t count = threads[0].line_count(Thread::taps);
    const int32_t lines = (threads[0].end - threads[0].line + depth - 1) * Thread::step;
    for (Thread& t : threads) {
      for (int32_t number = 0; number < ring_lines - 1 && number < count; ++number) t.request(number);
      t.load_weights();
    }
    for (int32_t number = 0, line = 1 - depth; number < lines; ++number) {
      for (const Thread& t : threads)
        if (number + ring_lines - 1 < count) t.request(number + ring_lines - 1);
      const int k = number % Thread::step;
      for (int i = 0; i < Thread::threads; i += 32) add_line(&threads[static_cast<size_t>(i)], k, number);
      for (const Thread& t : threads)
        if (k == (Thread::taps - 1) % Thread::step) t.finish(line);
      if (k == Thread::step - 1) ++line;
    }
  }
}

// A step of a warp: operands and sums of lanes as the instructions 16 x 8 x 16 and, of f32, 16 x 8 x 8 have them.
template <class Tile>
void multiply_units(const Tile* lane, float (*sum)[Tile::tiles][8], int32_t step) {
  uint32_t x[32][2][4];
  for (int i = 0; i < 32; ++i) lane[i].load_pixels(x[i], step);
  for (int j = 0; j < Tile::fours; ++j) {
    four_words w[32];
    for (int i = 0; i < 32; ++i) w[i] = lane[i].load_weights_of(step, j);
    for (int own = 0; own < 32; ++own)
      for (int e = 0; e < (Tile::halves ? 16 : 8); ++e) {
        const int row = own / 4 + e / 2 % 2 * 8, column = own % 4 * 2 + e % 2, tile = e / 8;
        float& to = sum[own][Tile::halves ? 2 * j + tile : j][e % 8];
        for (int unit = 0; unit < first_units; ++unit) {
          const uint32_t a = x[row % 8 * 4 + unit % 4][e / 4 % 2][row / 8 + unit / 4 * 2];
          const uint32_t* const b = w[column * 4 + unit % 4].v + unit / 4;
          if constexpr (Tile::halves) {
            using T = typename Tile::element;
            for (int half = 0; half < 2; ++half)
              to += value(T{static_cast<uint16_t>(a >> 16 * half)}) *
                    value(T{static_cast<uint16_t>(b[2 * tile] >> 16 * half)});
          } else {
            const tf32_pair p = split_tf32(float_of(a));
            const float high = float_of(b[0]), low = float_of(b[2]);
            to += p.low * high + p.high * low + p.high * high;
          }
        }
      }
  }
}

template <class Tile>
void run_first(const first_conv& a, unsigned blocks) {
  EXPECT_LE(a.words * 4, Tile::shared_bytes);
  for (unsigned block = 0; block < blocks; ++block) {
    std::vector<four_words> shared(static_cast<size_t>(a.words / 4));
    memset(static_cast<void*>(shared.data()), 0xff, shared.size() * sizeof shared[0]);
    std::vector<Tile> threads;
    const int32_t first = static_cast<int32_t>(block);
    for (int i = 0; i < Tile::threads; ++i) threads.emplace_back(a, shared[0].v, first, i);
    const auto each = [&](auto f) {
      for (Tile& t : threads) f(t);
    };
    each([](const Tile& t) { t.make_tables(); });
    each([](const Tile& t) { t.load_weights(); });
    each([](const Tile& t) { t.load_channels(); });
    for (int32_t item = first; item < a.tiles * a.chunks; item += static_cast<int32_t>(blocks)) {
      EXPECT_EQ(item % a.chunks, first % a.chunks) << "a block keeps its panels";
      const auto at = threads[0].place_of(item);
      each([&](const Tile& t) { t.request(at); });
      each([&](const Tile& t) { t.arrange(at); });
      each([&](Tile& t) { t.strip = t.panel = 0; });
      for (int warp = 0; warp < Tile::warps; ++warp) {
        Tile* const lane = &threads[static_cast<size_t>(32 * warp)];
        const auto all = [&](auto f) {
          for (int i = 0; i < 32; ++i) f(lane[i], i);
        };
        for (int32_t further = warp;; further = Tile::warps) {
          bool more = false;
          all([&](Tile& t, int) { more = t.begin(further); });
          if (!more) break;
          float sum[32][Tile::tiles][8] = {};
          for (int32_t step = 0; step < a.steps; ++step) multiply_units(lane, sum, step);
          if (lane->whole_chunks()) {
            const bool residual = a.out.epilogue.residual != QUERN_RESIDUAL_NONE;
            all([&](const Tile& t, int i) {
              residual ? t.template write_chunks<true>(at, sum[i]) : t.template write_chunks<false>(at, sum[i]);
            });
            continue;
          }
          constexpr int groups = Tile::writer::groups;
          for (int i = 0; i < 4 * groups; ++i) {
            all([&](const Tile& t, int) { t.find_places(at, i / groups); });
            all([&](const Tile& t, int own) {
              t.out().stage_out(i % groups, [&](int j, int e) { return sum[own][j][2 * (i / groups) + e]; });
            });
            all([&](const Tile& t, int) { t.out().finish(i % groups); });
          }
        }
      }
    }
  }
}

// Boxes of words, as cuTensorMapEncodeTiled was told of them; outside of the tensor are zeros.
struct fake_lines {
  const char* src;
  uint64_t size[3], stride[2];
  uint32_t box[3];

  void copy(uint32_t* to, int32_t x, int32_t y, int32_t n) const {
    EXPECT_EQ(x % 4, 0) << "the engine starts at multiples of 16 bytes";
    for (int32_t i = 0; i < static_cast<int32_t>(box[1]); ++i)
      for (int32_t j = 0; j < static_cast<int32_t>(box[0]); ++j, ++to) {
        const bool inside = in(x + j, 0) && in(y + i, 1) && in(n, 2);
        *to = 0;
        if (inside) memcpy(to, src + 4 * (x + j) + (y + i) * int64_t(stride[0]) + n * int64_t(stride[1]), 4);
      }
  }

 private:
  bool in(int64_t at, int axis) const { return at >= 0 && at < int64_t(size[axis]); }
};
static_assert(sizeof(fake_lines) <= sizeof(tensor_map));

// Eight units of a warp's sixteen pixels by a panel: registers as the instruction has them, weights where it finds
// them.
template <class Tile>
void multiply_box_step(const Tile* lane, int32_t kind, int32_t step, float (*sum)[Tile::sums]) {
  uint32_t x[32][4];
  for (int i = 0; i < 32; ++i) {
    box_unit unit[2];
    lane[i].load_units(unit, kind, step), lane[i].load_pixels(x[i], unit);
  }
  const uint32_t* const weights = reinterpret_cast<const uint32_t*>(lane->shared + lane->weights_at(kind, step));
  for (int own = 0; own < 32; ++own)
    for (int i = 0; i < Tile::sums; ++i) {
      const int row = own / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + own % 4 * 2 + i % 2;
      for (int unit = 0; unit < box_units; ++unit) {
        const uint32_t a = x[row % 8 * 4 + unit % 4][row / 8 + unit / 4 * 2];
        const uint32_t* const b = weights + box_word(column, unit);
        if constexpr (Tile::halves) {
          using T = typename Tile::element;
          for (int half = 0; half < 2; ++half)
            sum[own][i] +=
                value(T{static_cast<uint16_t>(a >> 16 * half)}) * value(T{static_cast<uint16_t>(*b >> 16 * half)});
        } else {
          const tf32_pair p = split_tf32(float_of(a));
          const float high = float_of(b[0]), low = float_of(b[Tile::step_bytes / 8]);
          sum[own][i] += p.low * high + p.high * low + p.high * high;
        }
      }
    }
}

template <class Tile>
void run_boxes(const first_box& a, unsigned blocks) {
  EXPECT_LE(a.bytes, Tile::shared_bytes);
  EXPECT_EQ(static_cast<int32_t>(blocks) % a.chunks, 0);
  fake_lines map;
  memcpy(&map, &a.src, sizeof map);
  EXPECT_EQ(a.box_bytes, static_cast<int32_t>(map.box[0] * map.box[1] * 4));
  for (unsigned block = 0; block < blocks; ++block) {
    std::vector<four_words> memory(static_cast<size_t>(a.bytes / 16));
    memset(static_cast<void*>(memory.data()), 0xff, memory.size() * sizeof memory[0]);
    char* const shared = reinterpret_cast<char*>(memory.data());
    std::vector<Tile> threads;
    for (int i = 0; i < Tile::threads; ++i) threads.emplace_back(a, shared, static_cast<int32_t>(block), i);
    const Tile& speaker = threads[0];
    const int32_t panel_bytes = a.weights_bytes / a.panels;
    memcpy(shared, a.weights + int64_t{speaker.first} * panel_bytes, static_cast<size_t>(speaker.panels * panel_bytes));
    for (const Tile& t : threads) t.make_tables(), t.load_channels();
    const int32_t apart = static_cast<int32_t>(blocks) / a.chunks;
    for (int32_t item = static_cast<int32_t>(block) / a.chunks; item < speaker.items(); item += apart)
      for (int warp = item / apart % Tile::groups * 4, end = warp + 4, slot = item % box_stages; warp < end; ++warp) {
        Tile* const lane = &threads[static_cast<size_t>(32 * warp)];
        const auto all = [&](auto f) {
          for (int i = 0; i < 32; ++i) f(lane[i], i);
        };
        lane->request(item, [&](int32_t x, int32_t y, int32_t n) {
          map.copy(reinterpret_cast<uint32_t*>(shared + lane->stage(slot)), x, y, n);
        });
        const auto at = lane->place_of(item);
        for (int32_t i = 0; i < a.kinds * a.strips * a.of_part; ++i) {
          const int32_t kind = i / (a.strips * a.of_part), panel = at.part * a.of_part + i % a.of_part;
          if (panel >= lane->panels) continue;
          all([&](Tile& t, int) {
            t.panel = panel, t.strip = i / a.of_part % a.strips;
            t.find_windows(kind, slot);
          });
          float sum[32][Tile::sums] = {};
          for (int32_t step = 0; step < a.steps; ++step) multiply_box_step(lane, kind, step, sum);
          if (lane->whole_chunks()) {
            all([&](const Tile& t, int own) { t.write_chunks(at, kind, sum[own]); });
            continue;
          }
          using writer = typename Tile::writer;
          for (int k = 0; k < 2 * writer::groups; ++k) {
            all([&](const Tile& t, int) { t.find_places(at, kind, k / writer::groups); });
            all([&](const Tile& t, int own) {
              t.out().stage_out(k % writer::groups,
                                [&](int j, int e) { return sum[own][4 * j + 2 * (k / writer::groups) + e]; });
            });
            all([&](const Tile& t, int) { t.out().finish(k % writer::groups); });
          }
        }
      }
  }
}

template <class T>
void run_pooling(const pooling& a, unsigned blocks) {
  std::vector<float> shared(pooling_shared<T> / 4, std::numeric_limits<float>::quiet_NaN());
  const int32_t all = static_cast<int32_t>(blocks) * pooling_threads;
  EXPECT_LT(all - a.threads, pooling_threads);
  for (int32_t i = 0; i < all; ++i) pool_thread<T>(a, i, shared.data() + i % pooling_threads);
}

template <class T>
void run_elementwise(const elementwise& a, unsigned blocks) {
  for (int32_t block = 0; block < static_cast<int32_t>(blocks); ++block) {
    std::vector<four_floats> shared(element_shared<T> / sizeof(four_floats));
    memset(static_cast<void*>(shared.data()), 0xff, shared.size() * sizeof shared[0]);
    float* const floats = shared[0].v;
    std::vector<element_turn<T>> threads;
    for (int32_t i = 0; i < element_threads; ++i) {
      if (!a.turned) {
        combine_elements<T>(a, block * element_threads + i, floats + i);
      } else {
        threads.emplace_back(a, block, i, reinterpret_cast<T*>(floats));
      }
    }
    for (const element_turn<T>& t : threads) t.read_tile();
    for (size_t i = 0; i < threads.size(); ++i) threads[i].write_tile(floats + turn_shared<T> / 4 + i);
  }
}

// Blocks one after the other, threads in turn between barriers.
template <class T, int V>
void run_slices(const slices& a, unsigned blocks) {
  EXPECT_EQ(static_cast<int32_t>(blocks), up(a.slices, slice_threads / a.lanes));
  for (int32_t block = 0; block < static_cast<int32_t>(blocks); ++block) {
    std::vector<float> shared(slice_shared<T> / 4, std::numeric_limits<float>::quiet_NaN());
    std::vector<slice_thread<T, V>> threads;
    threads.reserve(slice_threads);
    for (int i = 0; i < slice_threads; ++i) threads.emplace_back(a, block, i, shared.data());
    const auto all = [&](auto f) {
      for (slice_thread<T, V>& t : threads) f(t);
    };
    all([](auto& t) { t.load(); });
    all([](auto& t) { t.template publish<false>(); });
    all([](auto& t) { t.template join<false>(); });
    all([](auto& t) { t.take_first(); });
    if (threads[0].has_second()) {
      all([](auto& t) { t.template publish<true>(); });
      all([](auto& t) { t.template join<true>(); });
      all([](auto& t) { t.take_second(); });
    }
    all([](auto& t) { t.finish(); });
  }
}

inline void run_tensor(const kernel& row, const std::string& name,
                       void (*run)(const implicit_conv&, const implicit_tap*, unsigned), unsigned blocks,
                       void** parameters) {
  if ("tensor_" + name == row.name) run(*static_cast<const implicit_conv*>(parameters[0]), nullptr, blocks);
}

// Elements of 8 bits, whose kernels are fewer.
template <class T>
void run_of_bytes(const kernel& row, const std::string& type, const char* least, unsigned blocks, void** parameters) {
  if (row.kind == kind::reference_cuda)
    run_reference<T>(*static_cast<const reference_cuda*>(parameters[0]), int64_t{blocks} * row.threads);
  const auto tensor = [&](const char* name, auto run) {
    run_tensor(row, type + "_" + name + least, run, blocks, parameters);
  };
  tensor("128x64", run_tiles<tensor_128x64<T>>);
  tensor("64x64_any", run_tiles<tensor_64x64_any<T>>);
  run_tma<tma_half_192x128<T>>(row, (type + "_192x128").c_str(), blocks, parameters);
  run_tma<tma_half_128x128<T>>(row, (type + "_128x128").c_str(), blocks, parameters);
  run_tma<tma_half_128x64<T>>(row, (type + "_128x64").c_str(), blocks, parameters);
}

template <class T>
void run_of_type(const kernel& row, const std::string& type, unsigned blocks, void** parameters) {
  if (row.kind == kind::reference_cuda && row.op.has(QUERN_CONV))
    run_reference<T>(*static_cast<const reference_cuda*>(parameters[0]), int64_t{blocks} * row.threads);
  if (row.kind == kind::reference_cuda && !row.op.has(QUERN_CONV))
    run_reference<T>(*static_cast<const reference_friend*>(parameters[0]), int64_t{blocks} * row.threads);
  if (row.kind == kind::elementwise) run_elementwise<T>(*static_cast<const elementwise*>(parameters[0]), blocks);
  if (row.kind == kind::slices) {
    const slices& a = *static_cast<const slices*>(parameters[0]);
    a.wide ? run_slices<T, whole<T>>(a, blocks) : run_slices<T, 1>(a, blocks);
  }
  if (row.kind == kind::pooling) run_pooling<T>(*static_cast<const pooling*>(parameters[0]), blocks);
  const auto tensor = [&](const char* name, auto run) {
    run_tensor(row, type + "_" + name + "_sm80", run, blocks, parameters);
  };
  tensor("128x128", run_tiles<tensor_128x128<T>>);
  tensor("128x64", run_tiles<tensor_128x64<T>>);
  tensor("64x64", run_tiles<tensor_64x64<T>>);
  tensor("128x64_any", run_tiles<tensor_128x64_any<T>>);
  tensor("64x64_any", run_tiles<tensor_64x64_any<T>>);
  using kernels = few_kernels<T>;
  const auto few = [&](const char* name, auto run) {
    if ("few_" + type + "_" + name + "_sm75" == row.name) run(*static_cast<const few_conv*>(parameters[0]), blocks);
  };
  few("any", run_few<typename kernels::any>);
  few("anys2", run_few<typename kernels::anys2>);
  few("any_step", run_few<typename kernels::any_step>);
  const auto lines = [&](const char* what, const char* name, auto run) {
    if (what + ("_" + type + "_") + name + "_sm80" == row.name)
      run(*static_cast<const lines_conv*>(parameters[0]), blocks);
  };
  using walks = walk_kernels<T>;
  lines("walk", "c1_3x3", run_lines<typename walks::c1_3x3>);
  lines("walk", "c1_3x3s2", run_lines<typename walks::c1_3x3s2>);
  lines("walk", "c1_5x5", run_lines<typename walks::c1_5x5>);
  lines("walk", "c1_5x5s2", run_lines<typename walks::c1_5x5s2>);
  lines("walk", "c1_7x7", run_lines<typename walks::c1_7x7>);
  lines("walk", "c1_7x7s2", run_lines<typename walks::c1_7x7s2>);
  if constexpr (sizeof(T) == 4) {
    lines("walk", "c4_3x3", run_lines<typename walks::c4_3x3>);
    lines("walk", "c4_3x3s2", run_lines<typename walks::c4_3x3s2>);
    lines("walk", "c8_3x3", run_lines<typename walks::c8_3x3>);
    lines("walk", "c8_3x3s2", run_lines<typename walks::c8_3x3s2>);
    lines("walk", "c16_3x3", run_lines<typename walks::c16_3x3>);
  }
  if constexpr (sizeof(T) == 2) {
    using groups = group_kernels<T>;
    lines("group", "d16", run_lines<typename groups::d16>);
    lines("group", "d16s2", run_lines<typename groups::d16s2>);
    lines("group", "d32", run_lines<typename groups::d32>);
    lines("group", "d32s2", run_lines<typename groups::d32s2>);
    run_tma<tma_half_256x128<T>>(row, (type + "_256x128").c_str(), blocks, parameters);
    run_tma<tma_half_208x128<T>>(row, (type + "_208x128").c_str(), blocks, parameters);
    run_tma<tma_half_192x128<T>>(row, (type + "_192x128").c_str(), blocks, parameters);
    run_tma<tma_half_128x128<T>>(row, (type + "_128x128").c_str(), blocks, parameters);
    run_tma<tma_half_96x128<T>>(row, (type + "_96x128").c_str(), blocks, parameters);
    run_tma<tma_half_256x64<T>>(row, (type + "_256x64").c_str(), blocks, parameters);
    run_tma<tma_half_128x64<T>>(row, (type + "_128x64").c_str(), blocks, parameters);
    run_tma<tma_half_64x64<T>>(row, (type + "_64x64").c_str(), blocks, parameters);
    run_tma<tma_half_256x64_w3<T>>(row, (type + "_256x64_w3").c_str(), blocks, parameters);
    run_tma<tma_half_208x64_w3<T>>(row, (type + "_208x64_w3").c_str(), blocks, parameters);
    run_tma<tma_half_176x64_w3<T>>(row, (type + "_176x64_w3").c_str(), blocks, parameters);
    run_tma<tma_half_128x64_w3<T>>(row, (type + "_128x64_w3").c_str(), blocks, parameters);
    run_tma<tma_half_96x64_w3<T>>(row, (type + "_96x64_w3").c_str(), blocks, parameters);
    run_halo<tma_half_256x64_halo<T>>(row, type + "_256x64_halo", blocks, parameters);
    run_halo<tma_half_208x64_halo<T>>(row, type + "_208x64_halo", blocks, parameters);
    run_tma<tma_half_192x128_k4<T>>(row, (type + "_192x128_k4").c_str(), blocks, parameters);
    run_tma<tma_half_128x128_k2<T>>(row, (type + "_128x128_k2").c_str(), blocks, parameters);
    run_tma<tma_half_64x64_k4<T>>(row, (type + "_64x64_k4").c_str(), blocks, parameters);
    run_tma<tma_half_64x64_k8<T>>(row, (type + "_64x64_k8").c_str(), blocks, parameters);
  }
}

inline void run_on_cpu(const kernel& row, unsigned blocks, void** parameters) {
  const auto first = [&](const char* name, auto run) {
    if (std::string("first_") + name + "_sm80" == row.name) run(*static_cast<const first_conv*>(parameters[0]), blocks);
  };
  first("f16_64", run_first<first_f16_64>);
  first("f16_32", run_first<first_f16_32>);
  first("bf16_64", run_first<first_bf16_64>);
  first("bf16_32", run_first<first_bf16_32>);
  first("f32_64", run_first<first_f32_64>);
  first("f32_32", run_first<first_f32_32>);
  const auto box = [&](const char* name, auto run) {
    if (std::string("first_box_") + name + "_sm90a" == row.name)
      run(*static_cast<const first_box*>(parameters[0]), blocks);
  };
  box("f16_64", run_boxes<box_f16_64>);
  box("f16_32", run_boxes<box_f16_32>);
  box("bf16_64", run_boxes<box_bf16_64>);
  box("bf16_32", run_boxes<box_bf16_32>);
  box("f32_64", run_boxes<box_f32_64>);
  box("f32_32", run_boxes<box_f32_32>);
  if (row.type == QUERN_F16) return run_of_type<f16>(row, "f16", blocks, parameters);
  if (row.type == QUERN_BF16) return run_of_type<bf16>(row, "bf16", blocks, parameters);
  if (row.type == QUERN_S8) return run_of_bytes<s8>(row, "s8", "_sm80", blocks, parameters);
  if (row.type == QUERN_E4M3) return run_of_bytes<e4m3>(row, "e4m3", "_sm89", blocks, parameters);
  run_of_type<float>(row, "f32", blocks, parameters);
  run_tma<tma_f32_128x128>(row, "f32_128x128", blocks, parameters);
  run_tma<tma_f32_192x64>(row, "f32_192x64", blocks, parameters);
  run_tma<tma_f32_128x64>(row, "f32_128x64", blocks, parameters);
  const auto tiles = [&](const char* name, auto run, const implicit_tap* taps = nullptr) {
    if (std::string("implicit_f32_") + name + "_sm75" == row.name)
      run(*static_cast<const implicit_conv*>(parameters[0]), taps, blocks);
  };
  tiles("128x128", run_tiles<implicit_128x128>);
  tiles("128x64", run_tiles<implicit_128x64>);
  tiles("64x64", run_tiles<implicit_64x64>);
  tiles("128x128_division", run_tiles<implicit_128x128_division>);
  tiles("128x128_table", run_tiles<implicit_128x128_table>, static_cast<const implicit_table*>(parameters[0])->tap);
  tiles("128x128_any", run_tiles<implicit_128x128_any>);
  tiles("128x64_any", run_tiles<implicit_128x64_any>);
  tiles("64x64_any", run_tiles<implicit_64x64_any>);
}

template <class T>
void run_pixels_last(const pixels_last& a, unsigned blocks) {
  for (unsigned block = 0; block < blocks; ++block) {
    if (pixels_last_whole<T>(a)) {
      for (int i = 0; i < pixels_last_threads; ++i) pixels_last_copy<T>(a, block, i);
      continue;
    }
    T shared[pixels_last_elements];
    memset(shared, 0xff, sizeof shared);
    for (int i = 0; i < pixels_last_threads; ++i) pixels_last_read(a, block, i, shared);
    for (int i = 0; i < pixels_last_threads; ++i) pixels_last_write(a, block, i, shared);
  }
}

// What stands for the kernel pixels_last of an image.
inline void* pixels_last_of(quern_type type) {
  static char entries[8];
  return &entries[type_bytes(type)];
}

inline cuda_driver fake_driver() {
  cuda_driver d = {};
  d.init = [](unsigned) { return 0; };
  d.version = [](int* version) { return *version = fake->version, 0; };
  d.error_name = [](int, const char** name) { return *name = "CUDA_ERROR_FAKE", 0; };
  d.error_text = [](int, const char** text) { return *text = "made up", 0; };
  d.current = [](void** context) { return *context = current_context, 0; };
  // One level is as deep as the library goes.
  static thread_local void* below;
  d.push = [](void* context) {
    if (fake->fails) return fake->fails;
    below = current_context, current_context = context;
    return 0;
  };
  d.pop = [](void** context) { return *context = current_context, current_context = below, 0; };
  d.device = [](int* device) { return ++fake->others, *device = 3, 0; };
  d.attribute = [](int* value, int attribute, int device) {
    ++fake->others;
    const std::map<int, int> values = {
        {cuda_clock_khz, 1980000},        {cuda_multiprocessors, 132},
        {cuda_memory_clock_khz, 3201000}, {cuda_memory_bus_bits, 6144},
        {cuda_l2_bytes, 60 << 20},        {cuda_capability_major, fake->capability / 10},
        {cuda_shared_bytes, 227 << 10},   {cuda_capability_minor, fake->capability % 10}};
    const auto found = values.find(attribute);
    *value = found == values.end() ? -1 : found->second;
    return device == 3 && found != values.end() ? 0 : 1;
  };
  d.load = [](void** module, const void* image) {
    ++fake->loaded;
    *module = const_cast<void*>(image);
    return fake->fails;
  };
  d.unload = [](void*) { return ++fake->unloaded, 0; };
  d.function = [](void** function, void* module, const char* name) {
    ++fake->others;
    for (size_t i = 0; i < kernel_count(); ++i)
      if (kernel_at(i).image == module && strcmp(kernel_at(i).name, name) == 0) {
        *function = const_cast<kernel*>(&kernel_at(i));
        return 0;
      }
    for (size_t i = 0; i < kernel_count() && strcmp(name, "pixels_last_sm90a") == 0; ++i)
      if (kernel_at(i).image == module) return *function = pixels_last_of(kernel_at(i).type), 0;
    return 500;  // CUDA_ERROR_NOT_FOUND
  };
  d.function_attribute = [](int* value, int attribute, void*) {
    ++fake->others;
    *value = attribute == cuda_function_ptx_version ? fake->ptx_version : 0;
    return 0;
  };
  d.set_function_attribute = [](void*, int, int) { return ++fake->others, 0; };
  d.encode_im2col = [](void* map, int, uint32_t rank, void* src, const uint64_t* size, const uint64_t* stride,
                       const int* lower, const int* upper, uint32_t channels, uint32_t pixels, const uint32_t* step,
                       int, int, int, int) {
    fake_map m = {static_cast<const char*>(src), {},       {},     {lower[0], lower[1]},
                  {upper[0], upper[1]},          channels, pixels, {step[1], step[2]}};
    std::copy_n(size, 4, m.size), std::copy_n(stride, 3, m.stride);
    memcpy(map, &m, sizeof m);
    // What the driver checks, too.
    bool fits = rank == 4 && reinterpret_cast<uintptr_t>(src) % 16 == 0 && channels <= 128 && pixels <= 1024;
    for (int i = 0; i < 4; ++i)
      fits = fits && size[i] > 0 && size[i] <= uint64_t{1} << 32 && step[i] > 0 && step[i] <= 8;
    for (int i = 0; i < 3; ++i) fits = fits && stride[i] > 0 && stride[i] % 16 == 0 && stride[i] < uint64_t{1} << 40;
    for (int i = 0; i < 2; ++i)
      fits = fits && lower[i] >= -128 && lower[i] <= 127 && upper[i] >= -128 && upper[i] <= 127;
    return fits ? 0 : 1;
  };
  d.encode_tiled = [](void* map, int, uint32_t rank, void* tensor, const uint64_t* size, const uint64_t* stride,
                      const uint32_t* box, const uint32_t* step, int, int swizzle, int, int) {
    // Swizzled boxes are of elements of 16 bits, the others lines of words.
    bool fits = reinterpret_cast<uintptr_t>(tensor) % 16 == 0 &&
                (swizzle ? rank >= 2 && rank <= 4 && box[0] * 2 <= 128 : rank == 3 && box[0] * 4 % 16 == 0);
    if (!fits) return 1;
    if (swizzle) {
      fake_boxes m = {static_cast<char*>(tensor), {1, 1, 1, 1}, {}, {1, 1, 1, 1}};
      std::copy_n(size, rank, m.size), std::copy_n(stride, rank - 1, m.stride), std::copy_n(box, rank, m.box);
      memcpy(map, &m, sizeof m);
    } else {
      const fake_lines m = {
          static_cast<char*>(tensor), {size[0], size[1], size[2]}, {stride[0], stride[1]}, {box[0], box[1], box[2]}};
      memcpy(map, &m, sizeof m);
    }
    for (uint32_t i = 0; i < rank; ++i)
      fits = fits && size[i] > 0 && size[i] <= uint64_t{1} << 32 && box[i] > 0 && box[i] <= 256 && step[i] == 1;
    for (uint32_t i = 0; i + 1 < rank; ++i)
      fits = fits && stride[i] > 0 && stride[i] % 16 == 0 && stride[i] < uint64_t{1} << 40;
    return fits ? 0 : 1;
  };
  d.launch = [](const cuda_launch* how, void* function, void** parameters, void** extra) {
    ++fake->launches;
    const unsigned x = how->blocks[0];
    fake->stream = how->stream, fake->context = current_context;
    fake->blocks = x, fake->threads = how->threads[0], fake->shared_bytes = how->shared_bytes;
    if (how->blocks[1] != 1 || how->blocks[2] != 1 || how->threads[1] != 1 || how->threads[2] != 1 || extra || x == 0)
      return 1;
    unsigned cluster = 1;
    fake->early = false;
    for (unsigned i = 0; i < how->attribute_count; ++i) {
      if (how->attributes[i].id == cuda_launch_cluster) cluster = how->attributes[i].value[0];
      if (how->attributes[i].id == cuda_launch_early) fake->early = how->attributes[i].value[0] != 0;
    }
    if (x % cluster != 0 || cluster > 8) return 1;
    if (fake->fails) return fake->fails;
    if (function == pixels_last_of(QUERN_F32)) {
      run_pixels_last<float>(*static_cast<const pixels_last*>(parameters[0]), x);
    } else if (function == pixels_last_of(QUERN_F16)) {
      run_pixels_last<uint16_t>(*static_cast<const pixels_last*>(parameters[0]), x);
    } else if (function == pixels_last_of(QUERN_S8)) {
      run_pixels_last<uint8_t>(*static_cast<const pixels_last*>(parameters[0]), x);
    } else {
      run_on_cpu(*static_cast<const kernel*>(function), x, parameters);
    }
    return 0;
  };
  return d;
}

}  // namespace quern::test
