// SPDX-License-Identifier: MIT
//
// Every microkernel of the table on its full tile, operands in or near L1, as GFLOP/s and as percent of the FMA
// peak that its ISA reaches in the same moment: gemm_f32 at three depths of k, depthwise_f32 and grouped_f32 with
// square filters of the width that they are made for.  The reference rows are left out: they exist to be right, and
// nothing is gained by making them fast.
#include <benchmark/benchmark.h>
#include <time.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "peak.h"
#include "registry.h"

namespace {

using aligned = std::unique_ptr<float, void (*)(void*)>;

aligned floats(size_t count) {
  const size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
  aligned memory(static_cast<float*>(std::aligned_alloc(64, bytes)), std::free);
  if (!memory) std::abort();
  return memory;
}

// A packed row by row, B packed to the tile's width: as the drivers hand them over.
struct gemm_tile {
  gemm_tile(const quern::kernel& row, size_t k)
      : a(floats(row.mr * k)), b(floats(k * row.nr)), c(floats(static_cast<size_t>(row.mr) * row.nr)) {
    for (size_t i = 0; i < row.mr * k; ++i) a.get()[i] = static_cast<float>(i * 7 % 13) - 6;
    for (size_t i = 0; i < k * row.nr; ++i) b.get()[i] = static_cast<float>(i * 5 % 11) - 5;
    call.m = row.mr, call.n = row.nr, call.k = k;
    call.taps = 1, call.tap = &tap;
    call.a = a.get(), call.lda = k;
    call.b = b.get(), call.ldb = row.nr;
    call.out.c = c.get(), call.out.ldc = row.nr;
  }
  // Small integers: every order of summation gives the same.
  bool right() const {
    for (size_t i = 0; i < call.m; ++i)
      for (size_t j = 0; j < call.n; ++j) {
        float sum = 0;
        for (size_t p = 0; p < call.k; ++p) sum += call.a[i * call.lda + p] * call.b[p * call.ldb + j];
        if (sum != call.out.c[i * call.out.ldc + j]) return false;
      }
    return true;
  }

  aligned a, b, c;
  quern::gemm_tap tap = {0, 0};
  quern::gemm_f32 call = {};
};

// Sums are stored as they are.
constexpr quern::epilogue_f32 nothing = {.alpha = 1,
                                         .beta = 1,
                                         .clamp_only = true,
                                         .lower = -std::numeric_limits<float>::infinity(),
                                         .upper = std::numeric_limits<float>::infinity()};

// The lines of a tile away from the image's edges, of four tiles' channels where all of a pixel come first; a kernel
// for any width gets a filter of 4 by 4, stride 1.
struct depthwise_tile {
  depthwise_tile(const quern::kernel& row, size_t width) : filter(width), vector(row.vector) {
    const size_t n = row.nr * (row.channels_last ? 4 : 1), m = row.mr, step = row.step ? row.step : 1;
    const size_t lines = row.lines ? row.lines : 1, pixels = (m - 1) * step + filter,
                 high = (lines - 1) * step + filter;
    src = floats(high * pixels * n), weights = floats(filter * filter * n), dst = floats(lines * m * n);
    for (size_t i = 0; i < high * pixels * n; ++i) src.get()[i] = static_cast<float>(i * 7 % 13) - 6;
    for (size_t i = 0; i < filter * filter * n; ++i) weights.get()[i] = static_cast<float>(i * 5 % 11) - 5;
    call.x = {.count = m, .taps = filter, .step = static_cast<ptrdiff_t>(step), .begin = 0};
    call.x.end = static_cast<ptrdiff_t>(pixels), call.x.src = static_cast<ptrdiff_t>(n);
    call.y = {.count = lines, .taps = filter, .step = static_cast<ptrdiff_t>(step), .begin = 0};
    call.y.end = static_cast<ptrdiff_t>(high), call.y.src = static_cast<ptrdiff_t>(pixels * n), call.y.dst = m * n;
    call.n = n, call.planes = 1, call.plane = &plane;
    call.src = src.get(), call.src_vector = call.dst_vector = vector;
    call.weights = weights.get(), call.weights_vector = filter * filter * vector, call.multiplier = 1;
    call.out.c = dst.get(), call.out.ldc = n;
    call.out.epilogue = &nothing;
  }
  bool right() const {
    for (size_t y = 0; y < call.y.count; ++y)
      for (size_t i = 0; i < call.x.count; ++i)
        for (size_t c = 0; c < call.n; ++c) {
          float sum = 0;
          for (size_t r = 0; r < filter; ++r)
            for (size_t s = 0; s < filter; ++s) {
              const size_t line = y * static_cast<size_t>(call.y.step) + r;
              const size_t pixel = i * static_cast<size_t>(call.x.step) + s;
              sum += call.src[line * static_cast<size_t>(call.y.src) + pixel * call.n + c] *
                     call.weights[(c / vector * filter * filter + r * filter + s) * vector + c % vector];
            }
          if (sum != call.out.c[y * call.y.dst + i * call.out.ldc + c]) return false;
        }
    return true;
  }
  double flops() const { return 2.0 * static_cast<double>(call.y.count * call.x.count * call.n * filter * filter); }

  size_t filter, vector;
  quern::gemm_tap plane = {0, 0};
  aligned src = floats(0), weights = floats(0), dst = floats(0);
  quern::depthwise_f32 call = {};
};

// All lines of a call away from the image's edges, with a square filter.
struct grouped_tile {
  explicit grouped_tile(const quern::kernel& row)
      : filter(row.taps ? row.taps : 4),
        group(row.group            ? row.group
              : row.several_groups ? 4
                                   : row.vector),
        taps(row.taps ? filter : 1),
        step(row.step ? row.step : 1) {
    const size_t n = row.vector, pixels = (row.mr - 1) * step + filter, lines = row.lines + filter - 1;
    src = floats(lines * pixels * n), weights = floats(filter * filter * group * n);
    dst = floats(static_cast<size_t>(row.lines * row.mr) * n);
    for (size_t i = 0; i < lines * pixels * n; ++i) src.get()[i] = static_cast<float>(i * 7 % 13) - 6;
    for (size_t i = 0; i < filter * filter * group * n; ++i) weights.get()[i] = static_cast<float>(i * 5 % 11) - 5;
    for (size_t r = 0; r < filter; ++r)
      for (size_t s = 0; s < filter; s += taps)
        rows.push_back({static_cast<ptrdiff_t>((r * pixels + s) * n),
                        static_cast<ptrdiff_t>((r * filter + s) * group * n), &inside});
    call.m = row.mr, call.n = n, call.lines = row.lines;
    call.rows = rows.size(), call.row = rows.data();
    call.src = src.get(), call.src_pixel = static_cast<ptrdiff_t>(n);
    call.channels = group, call.run = row.group ? n / 2 : n;
    for (size_t p = 0; p < group; ++p)
      for (size_t o = 0; o < n; ++o) lanes.push_back(static_cast<int32_t>(o / group * group + p));
    call.inputs = n, call.lanes = lanes.data();
    call.src_line = static_cast<ptrdiff_t>(pixels * n), call.src_run = static_cast<ptrdiff_t>(n / 2);
    call.weights = weights.get();
    call.out.c = dst.get(), call.out.ldc = n, call.out.epilogue = &nothing;
    call.dst_line = static_cast<ptrdiff_t>(row.mr * n), call.dst_half = static_cast<ptrdiff_t>(n / 2);
  }
  bool right() const {
    const size_t n = call.n;
    for (size_t line = 0; line < call.lines; ++line)
      for (size_t i = 0; i < call.m; ++i)
        for (size_t o = 0; o < n; ++o) {
          float sum = 0;
          for (const quern::grouped_row& r : rows)
            for (size_t s = 0; s < taps; ++s)
              for (size_t p = 0; p < group; ++p)
                sum += call.src[static_cast<size_t>(r.a) + line * static_cast<size_t>(call.src_line) +
                                (i * step + s) * n + o / group * group + p] *
                       call.weights[static_cast<size_t>(r.b) + (p * taps + s) * n + o];
          if (sum != call.out.c[(line * call.m + i) * n + o]) return false;
        }
    return true;
  }
  double flops() const { return 2.0 * static_cast<double>(call.lines * call.m * call.n * filter * filter * group); }

  size_t filter, group, taps, step;
  const uint32_t inside = ~uint32_t{0};
  std::vector<quern::grouped_row> rows;
  std::vector<int32_t> lanes;
  aligned src = floats(0), weights = floats(0), dst = floats(0);
  quern::grouped_f32 call = {};
};

// 36 channels of one tap, all of it on the image.
struct planes_tile {
  explicit planes_tile(const quern::kernel& row)
      : inside(row.nr / row.vector, ~uint32_t{0}),
        src(floats(channels * row.nr)),
        weights(floats(channels * row.mr)),
        dst(floats(static_cast<size_t>(row.mr) * row.nr)) {
    for (size_t i = 0; i < channels * row.nr; ++i) src.get()[i] = static_cast<float>(i * 7 % 13) - 6;
    for (size_t i = 0; i < channels * row.mr; ++i) weights.get()[i] = static_cast<float>(i * 5 % 11) - 5;
    tap = {0, 0, inside.data()};
    call.m = row.mr, call.n = row.nr, call.taps = 1, call.channels = channels;
    call.tap = &tap;
    call.src = src.get(), call.src_plane = row.nr;
    call.weights = weights.get();
    call.out.c = dst.get(), call.out.ldc = row.nr, call.out.channels_are_rows = true, call.out.epilogue = &nothing;
  }
  bool right() const {
    for (size_t o = 0; o < call.m; ++o)
      for (size_t i = 0; i < call.n; ++i) {
        float sum = 0;
        for (size_t p = 0; p < channels; ++p) sum += call.src[p * call.n + i] * call.weights[p * call.m + o];
        if (sum != call.out.c[o * call.out.ldc + i]) return false;
      }
    return true;
  }

  static constexpr size_t channels = 36;
  std::vector<uint32_t> inside;
  aligned src, weights, dst;
  quern::grouped_row tap = {};
  quern::grouped_planes_f32 call = {};
};

// 36 channels of some lines, all of them on the image.
struct few_planes_tile {
  few_planes_tile(const quern::kernel& row, size_t filter)
      : line(row.nr + filter - 1),
        plane((row.lines + filter - 1) * line),
        src(floats(channels * plane)),
        weights(floats(channels * filter * filter * row.mr)),
        dst(floats(static_cast<size_t>(row.mr) * row.lines * row.nr)),
        sums(floats(static_cast<size_t>(row.mr) * row.lines * row.nr)) {
    for (size_t i = 0; i < channels * plane; ++i) src.get()[i] = static_cast<float>(i * 7 % 13) - 6;
    for (size_t i = 0; i < channels * filter * filter * row.mr; ++i)
      weights.get()[i] = static_cast<float>(i * 5 % 11) - 5;
    call.m = row.mr, call.n = row.nr, call.lines = row.lines, call.channels = channels;
    call.taps_x = call.taps_y = filter;
    call.src = src.get(), call.src_plane = static_cast<ptrdiff_t>(plane), call.src_line = static_cast<ptrdiff_t>(line);
    call.apart = 1;
    call.bottom = static_cast<ptrdiff_t>(row.lines + filter - 1), call.right = static_cast<ptrdiff_t>(line);
    call.weights = weights.get();
    call.sums = sums.get(), call.sums_line = row.nr, call.begins = true;
    call.out.c = dst.get(), call.out.ldc = call.lines * row.nr, call.dst_line = row.nr;
    call.out.channels_are_rows = true, call.out.epilogue = &nothing;
  }
  bool right() const {
    for (size_t o = 0; o < call.m; ++o)
      for (size_t y = 0; y < call.lines; ++y)
        for (size_t i = 0; i < call.n; ++i) {
          float sum = 0;
          for (size_t p = 0; p < channels; ++p)
            for (size_t r = 0; r < call.taps_y; ++r)
              for (size_t s = 0; s < call.taps_x; ++s)
                sum += call.src[p * plane + (y + r) * line + s + i] *
                       call.weights[((p * call.taps_x + s) * call.taps_y + r) * call.m + o];
          if (sum != call.out.c[o * call.out.ldc + y * call.dst_line + i]) return false;
        }
    return true;
  }
  double flops() const {
    return 2.0 * static_cast<double>(call.m * call.lines * call.n * channels * call.taps_x * call.taps_y);
  }

  static constexpr size_t channels = 36;
  size_t line, plane;
  aligned src, weights, dst, sums;
  quern::few_planes_f32 call = {};
};

// Of this thread: other programs on the machine do not count.
double cpu_seconds() {
  timespec t = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

template <class Tile, class Call>
void measure(benchmark::State& state, const quern::kernel& row, const Tile& tile, double flops, Call call) {
  call();
  if (!tile.right()) return state.SkipWithError("computes a wrong result");
  const int bits = row.vector * 32;
  const double before = tools::fma_peak_gflops(1, bits);
  const double begin = cpu_seconds();
  for (auto _ : state) {
    call();
    benchmark::ClobberMemory();
  }
  const double took = cpu_seconds() - begin;
  const double after = tools::fma_peak_gflops(1, bits);
  const double gflops = flops * static_cast<double>(state.iterations()) / took * 1e-9;
  state.counters["GFLOP/s"] = gflops;
  state.counters["peak%"] = 100 * gflops / ((before + after) / 2);
}

void run(benchmark::State& state, const quern::kernel& row, uint64_t isa) {
  if (row.isa & ~isa) return state.SkipWithError("this CPU lacks an instruction set that it needs");
  const size_t size = static_cast<size_t>(state.range(0));
  const double outputs = 2.0 * row.mr * row.nr;
  if (row.kind == quern::kind::gemm_f32) {
    const gemm_tile t(row, size);
    measure(state, row, t, outputs * static_cast<double>(size), [&] { row.gemm(t.call); });
  } else if (row.kind == quern::kind::grouped_f32) {
    const grouped_tile t(row);
    measure(state, row, t, t.flops(), [&] { row.grouped(t.call); });
  } else if (row.kind == quern::kind::grouped_planes_f32) {
    const planes_tile t(row);
    measure(state, row, t, outputs * planes_tile::channels, [&] { row.planes(t.call); });
  } else if (row.kind == quern::kind::few_planes_f32) {
    const few_planes_tile t(row, size);
    measure(state, row, t, t.flops(), [&] { row.few_planes(t.call); });
  } else {
    const depthwise_tile t(row, size);
    measure(state, row, t, t.flops(), [&] { row.depthwise(t.call); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  quern_cpu cpu = {};
  cpu.size = sizeof cpu;
  if (quern_cpu_get(&cpu, nullptr) != QUERN_OK) return 1;
  for (size_t i = 0; i < quern::kernel_count(); ++i) {
    const quern::kernel& row = quern::kernel_at(i);
    const bool gemm = row.kind == quern::kind::gemm_f32;
    if (row.tile || (!row.gemm && !row.grouped && !row.planes && !row.few_planes && !row.depthwise))
      continue;  // Winograd: by problems
    auto* const entry = benchmark::RegisterBenchmark(
        row.name, [&row, isa = cpu.isa](benchmark::State& state) { run(state, row, isa); });
    entry->ArgName(gemm ? "k" : "filter");
    if (gemm)
      entry->Arg(64)->Arg(128)->Arg(256);
    else
      entry->Arg(row.taps ? row.taps : 4);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
