// SPDX-License-Identifier: MIT
//
// Blocks of tma.h and what they ask of the copy engine, on this CPU.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cuda/pixels_last.h"
#include "cuda/tma_f16x3.h"
#include "cuda/tma_half.h"
#include "cuda/tma_halo.h"
#include "fake_gpu.h"

namespace quern::test {

// Where an element of a row of 64 or 128 bytes lies, of so many bytes each: chunks of 16 change places by the number of
// the 128 bytes that they are in.
inline int32_t swizzled_at(int32_t row, int32_t column, int32_t row_bytes, int32_t bytes) {
  const int32_t at = row * row_bytes + column * bytes;
  return (at ^ (at / 128 % (row_bytes / 16)) * 16) / bytes;
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

// Operands as the instructions have them: a warp's pixel `row` at column k of a chunk, and a channel's weight there.
inline float pixel_of(const float (&part)[4][4], int row, int k) { return part[k / 8][row / 8 + k % 8 / 4 * 2]; }
inline float pixel_of(const uint32_t (&part)[2][4], int row, int k) {
  const uint32_t pair = part[k / 16][row / 8 + k % 16 / 8 * 2];
  return value(f16{static_cast<uint16_t>(pair >> k % 2 * 16)});
}
template <class Parts>
int lane_of(int row, int k) {
  return row % 8 * 4 + (Parts::matrices == 2 ? k % 4 : k % 8 / 2);
}
template <class Tile>
float weight_of(const float* weights, bool low, int channel, int k) {
  if constexpr (Tile::parts::matrices == 2) return weights[low * Tile::bn * Tile::bk + tma_swizzled<4>(channel, k)];
  return value(reinterpret_cast<const f16*>(weights)[tma_swizzled<8>(channel, low * Tile::bk + k)]);
}

// part[16 x columns] += a warp's pixels x weights, of one chunk, element by element.  Small integers have no low part:
// nothing is added then.
template <class Tile>
void multiply_chunk(float* part, const typename Tile::fragments* x, bool low, const float* weights, bool low_weights,
                    int columns) {
  const auto has_none = [](const auto& lane) {
    for (const auto& step : lane.low)
      for (auto v : step)
        if (v != 0) return false;
    return true;
  };
  if (low && std::all_of(x, x + 32, has_none)) return;
  for (int k = 0; k < Tile::bk; ++k) {
    float line[Tile::bn];
    for (int column = 0; column < columns; ++column) line[column] = weight_of<Tile>(weights, low_weights, column, k);
    for (int row = 0; row < 16; ++row) {
      const auto& lane = x[lane_of<typename Tile::parts>(row, k)];
      const float a = pixel_of(low ? lane.low : lane.high, row, k);
      for (int column = 0; column < columns; ++column) part[row * Tile::bn + column] += a * line[column];
    }
  }
}

template <class Tile>
void run_tma_tile(const typename Tile::parameters& a, int32_t tile) {
  const typename Tile::parts parts(a);
  const tma_place place = tma_place_of(a, tile, Tile::bm, Tile::bn);
  const int warps = 4 * Tile::groups, used = std::min(Tile::bn, a.out.k - place.channel);
  const int64_t pixels = int64_t{a.out.pixels} / a.out.size[2] * a.columns.by;
  std::vector<four_floats> memory(Tile::shared_bytes / sizeof(four_floats));
  memset(static_cast<void*>(memory.data()), 0xff, memory.size() * sizeof memory[0]);
  float* const shared = memory[0].v;
  std::vector<float> sum(static_cast<size_t>(Tile::bm * Tile::bn)), part(sum.size());
  const float* weights = reinterpret_cast<const float*>(a.weights + place.group * a.weights_group) +
                         int64_t{place.panel} * a.blocks * Tile::weight_floats;
  fake_map map;
  memcpy(&map, &a.src, sizeof map);
  tma_walk walk(a, place);
  const auto add_part = [&] {
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += part[k];
    std::fill(part.begin(), part.end(), 0.0f);
  };
  for (int32_t i = 0; i < a.blocks; ++i, walk.advance(Tile::bk), weights += Tile::weight_floats) {
    if (i % Tile::chunks == 0) add_part();
    map.copy(shared, walk.now);
    for (int tap = 0; tap < Tile::taps; ++tap) {
      const float* const there = weights + tap * Tile::tap_floats;
      bool whole = true;
      for (int k = 0; k < Tile::bk * used; ++k)
        whole = whole && weight_of<Tile>(there, true, k / Tile::bk, k % Tile::bk) == 0;
      for (int warp = 0; warp < warps && place.pixel + 16 * warp < pixels; ++warp) {
        typename Tile::fragments x[32];
        for (int lane = 0; lane < 32; ++lane) x[lane].load(shared, 32 * warp + lane, tap), x[lane].split(parts);
        float* const own = part.data() + 16 * warp * Tile::bn;
        multiply_chunk<Tile>(own, x, true, there, false, used);
        if (!whole) multiply_chunk<Tile>(own, x, false, there, true, used);
        multiply_chunk<Tile>(own, x, false, there, false, used);
      }
    }
  }
  add_part();
  struct sums {
    float v[Tile::bn / 2];
  };
  std::vector<sums> own(static_cast<size_t>(32 * warps));
  for (int thread = 0; thread < 32 * warps; ++thread) {
    auto& mine = own[static_cast<size_t>(thread)].v;
    for (int k = 0; k < Tile::bn / 2; ++k) {
      const int row = thread / 128 * 64 + tma_row(thread, k / 2 % 2);
      mine[k] = sum[row * Tile::bn + k / 4 * 8 + tma_column(thread, k % 2)];
    }
    parts.finish(a, place, mine, thread);
  }
  const auto all = [&](auto f) {
    for (int thread = 0; thread < 32 * warps; ++thread)
      f(Tile::output(a, shared, thread), own[static_cast<size_t>(thread)].v, thread);
  };
  if (Tile::writes_planes(a.out))
    return all([&](auto, const float* mine, int thread) { Tile::write_planes(a, place, mine, thread); });
  all([&](auto out, const float*, int thread) { Tile::find_places(out, a, place, thread); });
  for (int32_t i = 0; i < Tile::bn / 32; ++i) {
    all([&](auto out, const float* mine, int thread) { Tile::stage_out(out, mine + 16 * i, thread); });
    all([&](auto out, const float*, int) { out.finish(place.group, place.channel + 32 * i); });
  }
}

// Boxes of a tensor, fastest axis first, as cuTensorMapEncodeTiled was told of them.
struct fake_boxes {
  char* tensor;
  uint64_t size[4], stride[3];
  uint32_t box[4];
  bool swizzled;

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
             shared[swizzled ? swizzled_at(int32_t(i), int32_t(j), int32_t(box[0] * sizeof(T)), int32_t(sizeof(T)))
                             : int32_t(i * box[0] + j)]);
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
  const int pixels = static_cast<int>(std::min<int64_t>(Tile::bm, lines * a.columns.by - place.pixel));
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

// What a block writes out in chunks of 16 bytes, which are turned round in shared memory: words of two pixels of a
// channel, or of two of both of a thread's channels.
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
      for (int j = 0; j < rows; j += 16) {
        sum_type<T> sum[8];
        for (int k = 0; k < 8; ++k) sum[k] = sum_at(t, (first + j) / 2 + k);
        const bool easily = ends_easily(a.out.epilogue);
        const auto channel = [&](int i) { return easily ? easy_channel<T>(t.of(i)) : t.of(i); };
        const channel_f32 of[] = {channel(0), channel(1)};
        for (int k = 0; k < Tile::words; ++k) {
          // Element e of the word: pixel and channel.
          T y[4 / sizeof(T)];
          const auto place = [&](int e) {
            const int pixel = Tile::narrow ? 8 * k + tma_column(t.thread, e / 2) : k / 2 * 8 + tma_column(t.thread, e);
            return t.shared + Tile::staged(j + pixel, Tile::channel_of_row(t.thread, Tile::narrow ? e % 2 : k % 2));
          };
          const auto each = [&](auto move) {
            for (int e = 0; e < int(4 / sizeof(T)); ++e) move(&y[e], place(e));
          };
          uint32_t word = 0;
          if (residual) each([](T* own, const char* there) { memcpy(own, there, sizeof *own); }), memcpy(&word, y, 4);
          word = residual ? t.template finished_word<true, false>(sum, k, of, word)
                 : easily ? t.template finished_word<false, true>(sum, k, of, word)
                          : t.template finished_word<false, false>(sum, k, of, word);
          memcpy(y, &word, 4), each([](const T* own, char* there) { memcpy(there, own, sizeof *own); });
        }
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

// The same where channels lie first.
template <class Tile, class Sum>
void write_half_planes(int from, const std::vector<Tile>& threads, const Sum& sum_at) {
  for (int first = 0; first < Tile::written; first += Tile::plane_rows) {
    const int rows = std::min(Tile::plane_rows, Tile::written - first);
    for (const Tile& t : threads)
      for (int j = 0; j < rows; j += 16) {
        sum_type<typename Tile::element> sum[8];
        for (int k = 0; k < 8; ++k) sum[k] = sum_at(t, (first + j) / 2 + k);
        t.stage_planes(sum, j, {t.of(0), t.of(1)});
      }
    for (const Tile& t : threads) t.write_planes(from + first, rows);
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
  if (threads[0].whole_chunks()) return write_whole_halves<Tile>(a, from, threads, sum_at);
  if (threads[0].whole_planes()) return write_half_planes<Tile>(from, threads, sum_at);
  for (int i = 0; i < Tile::written / 16; ++i) {
    all([&](const Tile& t) { t.output().find_place(t.output_of(from + 16 * i + t.thread % 16)); });
    all([&](const Tile& t) {
      sum_type<T> own[8];
      for (int k = 0; k < 8; ++k) own[k] = sum_at(t, 8 * i + k);
      t.stage_out(own);
    });
    all([&](const Tile& t) { t.finish(); });
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
      const channel_f32 of = Tile::of(t.a, t.thread, k / 2 % 2);
      pair = residual ? finished_pair<T, true>(a.out.epilogue, of, sum_of(t, k), sum_of(t, k + 1), pair)
             : ends_easily(a.out.epilogue)
                 ? finished_pair<T, false, true>(a.out.epilogue, of, sum_of(t, k), sum_of(t, k + 1), pair)
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
  const auto& a = *static_cast<const typename Tile::parameters*>(parameters[0]);
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

template <class T>
void run_pixels_last(const pixels_last& a, unsigned blocks) {
  for (int block = 0; block < int(blocks); ++block) {
    if (pixels_last_whole<T>(a)) {
      for (int i = 0; i < pixels_last_threads; ++i) pixels_last_copy<T>(a, block, i);
      continue;
    }
    uint32_t shared[pixels_last_tile * pixels_last_pitch];
    memset(shared, 0xff, sizeof shared);
    for (int i = 0; i < pixels_last_threads; ++i) pixels_last_read<T>(a, block, i, shared, [] {});
    for (int i = 0; i < pixels_last_threads; ++i) pixels_last_write<T>(a, block, i, shared);
  }
}
inline void run_pixels_last(const pixels_last& a, unsigned blocks) {
  if (a.element == 1) return run_pixels_last<uint8_t>(a, blocks);
  if (a.element == 2) return run_pixels_last<uint16_t>(a, blocks);
  run_pixels_last<uint32_t>(a, blocks);
}

}  // namespace quern::test
