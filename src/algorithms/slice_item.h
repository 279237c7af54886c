// SPDX-License-Identifier: MIT
//
// An item of slices at work: statistics of pieces merged in double, and what becomes of the slices.
//
// What is merged decides the order of sums: pieces are of a size that the problem alone fixes.  Means and variances of
// pieces are those of Chan, Golub and LeVeque (Updating formulae, 1979), about the mean of a few elements, which costs
// at most the ratio of all to those in digits (the same, Algorithms for computing the sample variance, 1983): memory is
// read once.  Slices of a softmax that are too long to keep have the largest and the sum in one reading (Milakov and
// Gimelshein, Online normalizer calculation for softmax, 2018).
#pragma once

#include "slice_walk.h"

namespace quern {

inline constexpr int64_t most_results = 256, padding = 16;        // slices of an item
inline constexpr int64_t kept_along = 16384, kept_across = 1024;  // elements of a slice whose exponentials are kept
inline constexpr int64_t sample_elements = 64, sample_rows = 8;

inline bool keeps_exponentials(const quern_problem& p, const slice_family& f, const slice_walk& w) {
  return is_softmax(p.op) && w.elements <= (f.along ? kept_along : kept_across);
}

// What is known of the slices of an item after some pieces: a sum, product, largest, mean or peak, and of a norm the
// squares about the mean, of a softmax the sum of exponentials.
struct slice_statistics {
  double x[most_results], y[most_results];
};

struct slice_memory {
  alignas(64) float to[most_results + padding], also[most_results + padding], from[most_results + padding],
      a[most_results + padding], b[most_results + padding], c[most_results + padding];
  slice_statistics of;
};

struct slice_item {
  const job& j;
  const execution& e;
  const slice_walk& w;
  const slice_family& f;
  element_axis at;  // of its first slice
  int64_t results;  // slices
  int64_t copies;   // of columns
  float* keep;      // room for exponentials, or NULL
  bool streams;     // outputs past the caches
  slice_memory& memory;

  const quern_problem& p() const { return j.problem; }
  double count() const { return double(w.elements); }

  template <class Body>
  void each_piece(const Body& body) const {
    f.each_piece(results, copies, body);
  }
  slices_fold_f32 fold_of_piece(const slice_piece& piece, fold_of what) const {
    slices_fold_f32 call = {};
    call.what = what, call.down = !f.along;
    call.count = f.along ? size_t(results) : 1, call.m = piece.m, call.n = piece.n;
    call.src = static_cast<const float*>(e.args.src) + at.src + piece.at.src;
    call.step = f.along ? f.side().src : 0, call.row = piece.row.src;
    call.from = memory.from, call.to = memory.to, call.also = memory.also;
    return call;
  }
  // merge(slice, number of the result) for all results of a piece.
  template <class Merge>
  void merge_piece(const slice_piece& piece, const Merge& merge) const {
    for (size_t t = 0; t < piece.copies; ++t)
      for (int64_t r = 0; r < results; ++r) merge(r, int64_t(t) * results + r);
  }
  // What slices have, once for each column.
  void spread(float* x) const {
    for (int64_t i = results; i < results * copies; ++i) x[i] = x[i - results];
  }

  void fold_all(fold_of what) const { fold_all(what, memory.of.x); }
  void fold_all(fold_of what, double* x) const {
    const double nothing = what == fold_of::largest ? -HUGE_VAL : what == fold_of::smallest ? HUGE_VAL : 0;
    for (int64_t r = 0; r < results; ++r) x[r] = nothing;
    const auto all = [&](const auto& join) {
      each_piece([&](const slice_piece& piece) {
        j.row.slices->fold(fold_of_piece(piece, what));
        merge_piece(piece, [&](int64_t r, int64_t i) { x[r] = join(x[r], double(memory.to[i])); });
      });
    };
    switch (what) {
      case fold_of::largest: return all([](double a, double b) { return a > b || a != a ? a : b; });
      case fold_of::smallest: return all([](double a, double b) { return a < b || a != a ? a : b; });
      default: all([](double a, double b) { return a + b; });
    }
  }

  // One after the other in double, as the reference does, or four, of which doubles hold any product: f32 holds few,
  // and parts in another order may leave what doubles hold.
  void multiply() const {
    double* const x = memory.of.x;
    for (int64_t r = 0; r < results; ++r) x[r] = 1;
    each_piece([&](const slice_piece& piece) {
      const slices_fold_f32 call = fold_of_piece(piece, fold_of::sum);
      const float* row = call.src;
      for (size_t i = 0; i < call.m; ++i, row += call.row) {
        if (!f.along) {
          merge_piece(piece, [&](int64_t r, int64_t k) { x[r] *= double(row[k]); });
          continue;
        }
        const float* v = row;
        for (int64_t r = 0; r < results; ++r, v += call.step) {
          size_t k = 0;
          for (; k + 4 <= call.n; k += 4)
            x[r] *= (double(v[k]) * double(v[k + 1])) * (double(v[k + 2]) * double(v[k + 3]));
          for (; k < call.n; ++k) x[r] *= double(v[k]);
        }
      }
    });
  }

  void mean_and_squares() const {
    double *const x = memory.of.x, *const y = memory.of.y;
    for (int64_t r = 0; r < results; ++r) x[r] = y[r] = 0;
    double before = 0;
    each_piece([&](const slice_piece& piece) {
      slices_fold_f32 call = fold_of_piece(piece, fold_of::deviations), sample = fold_of_piece(piece, fold_of::sample);
      sample.n = f.along ? std::min<size_t>(call.n, sample_elements) : call.n;
      sample.m = std::min<size_t>(call.m, f.along ? std::max<size_t>(1, sample_elements / sample.n) : sample_rows);
      sample.to = memory.from;
      j.row.slices->fold(sample);
      // In few bits, of as many as what is typical has: numbers of few bits have exact differences to it.
      const float some = 1.0f / float(f.along ? sample.m * sample.n : sample.m);
      for (int64_t i = 0; i < results * int64_t(piece.copies); ++i) {
        const float coarse = memory.also[i] * some * 4096;
        memory.from[i] = memory.from[i] * some + coarse - coarse;
      }
      j.row.slices->fold(call);
      const double here = double(f.along ? call.m * call.n : call.m);
      for (size_t t = 0; t < piece.copies; ++t, before += here) {
        const double all = before + here, share = here / all, between = before * share;
        for (int64_t r = 0; r < results; ++r) {
          const int64_t i = int64_t(t) * results + r;
          const double sum = double(memory.to[i]), off = sum / here, mean = double(memory.from[i]) + off,
                       apart = mean - x[r];
          x[r] += apart * share;
          y[r] += double(memory.also[i]) - sum * off + apart * apart * between;
        }
      }
    });
  }

  // What sums in f32 lose of numbers near its end.
  void mend_sums() const {
    double* const x = memory.of.x;
    for (int64_t r = 0; r < results; ++r) {
      if (std::abs(x[r]) <= std::numeric_limits<double>::max()) continue;
      x[r] = 0;
      each_element(r, [&](double v) { x[r] += p().op == QUERN_REDUCE_L1 ? std::abs(v) : v; });
    }
  }

  // What squares in f32 lose, of numbers from 1e19 on or below 1e-13, is found in double, element by element; so is
  // that a slice has what is no number.
  void mend_squares(bool centers, double least) const {
    double *const x = memory.of.x, *const y = memory.of.y;
    const auto few = [&](int64_t r) { return (centers ? y : x)[r] < least; };
    bool any = false;
    for (int64_t r = 0; r < results; ++r) any |= few(r);
    if (any && !centers) fold_all(fold_of::magnitudes, y);  // of zeros alone there is nothing to find
    for (int64_t r = 0; r < results; ++r) {
      if (few(r) ? !centers && y[r] == 0 : (centers ? y : x)[r] <= std::numeric_limits<double>::max()) continue;
      double sum = 0, squares = 0, n = 0;
      if (centers) each_element(r, [&](double v) { sum += v, ++n; });
      const double mean = centers ? sum / n : 0;
      each_element(r, [&](double v) { squares += (v - mean) * (v - mean); });
      (centers ? y : x)[r] = squares;
      if (centers) x[r] = mean;
    }
  }
  template <class Visit>
  void each_element(int64_t r, const Visit& visit) const {
    each_piece([&](const slice_piece& piece) {
      const slices_fold_f32 call = fold_of_piece(piece, fold_of::sum);
      const float* const from = call.src + (f.along ? r * call.step : r);
      const size_t n = f.along ? piece.n : piece.copies;
      for (size_t i = 0; i < piece.m; ++i)
        for (size_t k = 0; k < n; ++k)
          visit(double(from[ptrdiff_t(i) * call.row + ptrdiff_t(k) * (f.along ? 1 : results)]));
    });
  }

  // Of columns to those of their slice, which all of its columns get.
  void join_columns(bool centers) const {
    double *const x = memory.of.x, *const y = memory.of.y;
    const int64_t n = f.columns_of_slice;
    for (int64_t first = 0; first < results; first += n) {
      double sum = 0, squares = 0;
      for (int64_t r = first; r < first + n; ++r) sum += x[r];
      if (centers) {
        sum /= double(n);
        for (int64_t r = first; r < first + n; ++r)
          squares += y[r] + (x[r] - sum) * (x[r] - sum) * (count() / double(n));
      }
      for (int64_t r = first; r < first + n; ++r) x[r] = sum, y[r] = squares;
    }
  }

  // The largest and the sum of exponentials, of slices that are read twice.
  void peaks_then_sums() const {
    double *const x = memory.of.x, *const y = memory.of.y;
    for (int64_t r = 0; r < results; ++r) memory.c[r] = -std::numeric_limits<float>::max(), y[r] = 0;
    each_piece([&](const slice_piece& piece) {
      j.row.slices->fold(fold_of_piece(piece, fold_of::peak));
      merge_piece(piece, [&](int64_t r, int64_t i) { memory.c[r] = std::max(memory.c[r], memory.to[i]); });
    });
    for (int64_t r = 0; r < results; ++r) memory.from[r] = memory.c[r], x[r] = double(memory.c[r]);
    spread(memory.from);
    float* to = keep;
    each_piece([&](const slice_piece& piece) {
      slices_fold_f32 call = fold_of_piece(piece, fold_of::exponentials);
      call.keep = to, call.keep_step = ptrdiff_t(w.elements);
      j.row.slices->fold(call);
      if (to) to += piece.m * piece.n;
      merge_piece(piece, [&](int64_t r, int64_t i) { y[r] += double(memory.to[i]); });
    });
  }

  void peaks_and_sums() const {
    double *const x = memory.of.x, *const y = memory.of.y;
    for (int64_t r = 0; r < results; ++r) x[r] = -double(std::numeric_limits<float>::max()), y[r] = 0;
    each_piece([&](const slice_piece& piece) {
      slices_fold_f32 call = fold_of_piece(piece, fold_of::peak);
      call.to = memory.from;
      j.row.slices->fold(call);
      j.row.slices->fold(fold_of_piece(piece, fold_of::exponentials));
      merge_piece(piece, [&](int64_t r, int64_t i) {
        const double peak = double(memory.from[i]), sum = double(memory.to[i]);
        if (peak > x[r])
          y[r] = y[r] * std::exp(x[r] - peak) + sum, x[r] = peak;
        else
          y[r] += sum * std::exp(peak - x[r]);
      });
    });
  }

  epilogue_f32 epilogue() const { return epilogue_of(p(), e.args); }
  const float* residual() const {
    return p().epilogue.residual ? static_cast<const float*>(e.args.residual) + at.residual : nullptr;
  }

  // One output a slice.
  void finish() const {
    const element_axis side = f.side();
    const epilogue_f32 ending = epilogue();
    float* const dst = static_cast<float*>(e.args.dst) + at.dst;
    const bool scatters = results > 1 && side.dst != 1, gathers = residual() && results > 1 && side.residual != 1;
    for (int64_t r = 0; r < results; ++r) memory.a[r] = float(memory.of.x[r]);
    output_f32 out = {};
    out.c = scatters ? memory.b : dst, out.epilogue = &ending;
    out.channels_are_rows = side.channel == 0, out.channel = size_t(at.channel);
    out.residual = residual();
    if (gathers) {
      for (int64_t r = 0; r < results; ++r) memory.c[r] = residual()[r * side.residual];
      out.residual = memory.c;
    }
    // Channels of blocks that lie on each other are some apart.
    const int64_t together = side.channel > 1 ? 1 : results;
    for (int64_t r = 0; r < results; r += together, out.c += together, out.channel += size_t(side.channel)) {
      j.row.slices->finish(out, 1, size_t(together), memory.a + r, most_results);
      if (out.residual) out.residual += together;
    }
    if (scatters)
      for (int64_t r = 0; r < results; ++r) dst[r * side.dst] = memory.b[r];
  }

  // An ending whose vectors have n channels, from one on, so many times.
  struct repeated_channels {
    epilogue_f32 ending;
    alignas(64) float vectors[3][slice_family::wide + padding];

    void set(const epilogue_f32& once, int64_t channel, int64_t n, int64_t times) {
      ending = once;
      const float** const of_channels[] = {&ending.scale, &ending.bias, &ending.slope};
      for (int v = 0; v < 3; ++v) {
        if (!*of_channels[v]) continue;
        for (int64_t i = 0; i < times; ++i) std::copy_n(*of_channels[v] + channel, n, vectors[v] + i * n);
        *of_channels[v] = vectors[v];
      }
    }
  };

  // Slices one by one, whose short rows are one and have its channels in each.
  void apply_repeated(const slice_piece& piece, slices_apply_f32 call) const {
    const epilogue_f32& once = *call.out.epilogue;
    const int64_t first = int64_t(call.out.channel), n = int64_t(piece.n / piece.repeats);
    repeated_channels repeated;
    call.count = 1, call.out.channel = 0, call.out.epilogue = &repeated.ending;
    for (int64_t r = 0; r < results; ++r) {
      repeated.set(once, first + r * call.channel_step, n, int64_t(piece.repeats));
      j.row.slices->apply(call);
      call.src += call.step, call.out.c += call.dst_step, ++call.a, ++call.b, ++call.c;
      if (call.out.residual) call.out.residual += call.residual_step;
    }
  }

  // As many outputs as elements.
  void apply(apply_of what, const float* kept) const {
    for (float* x : {memory.a, memory.b, memory.c}) spread(x);
    const epilogue_f32 once = epilogue();
    const bool again = copies > 1 && f.side().channel != 0;
    repeated_channels repeated;
    if (again) repeated.set(once, at.channel, results, copies);
    each_piece([&](const slice_piece& piece) {
      const element_axis side = f.along ? f.side() : single_step;
      slices_apply_f32 call = {};
      call.what = what, call.down = !f.along;
      call.count = f.along ? size_t(results) : 1, call.m = piece.m, call.n = piece.n;
      call.src = static_cast<const float*>(e.args.src) + at.src + piece.at.src;
      call.step = side.src, call.row = piece.row.src;
      if (kept) {
        call.src = kept, call.step = ptrdiff_t(w.elements), call.row = ptrdiff_t(piece.n);
        kept += piece.m * piece.n;
      }
      call.a = memory.a, call.b = memory.b, call.c = memory.c;
      call.out.c = static_cast<float*>(e.args.dst) + at.dst + piece.at.dst;
      call.out.ldc = piece.m > 1 ? size_t(piece.row.dst) : 0;
      call.out.stream = streams;
      call.out.epilogue = again ? &repeated.ending : &once;
      call.out.channels_are_rows = !piece.channels_along;
      call.out.channel = again ? 0 : size_t(at.channel + piece.at.channel);
      call.out.residual = residual() ? residual() + piece.at.residual : nullptr;
      call.out.ldr = size_t(piece.row.residual);
      call.dst_step = side.dst, call.residual_step = side.residual, call.channel_step = side.channel;
      call.channel_row = piece.row.channel;
      if (piece.repeats > 1 && piece.channels_along)
        apply_repeated(piece, call);
      else
        j.row.slices->apply(call);
    });
    if (streams) finish_streams();
  }

  void reduce() const {
    double* const x = memory.of.x;
    switch (p().op) {
      case QUERN_POOL_MAX:
      case QUERN_REDUCE_MAX: fold_all(fold_of::largest); break;
      case QUERN_REDUCE_MIN: fold_all(fold_of::smallest); break;
      case QUERN_REDUCE_PROD: multiply(); break;
      case QUERN_REDUCE_L1:
        fold_all(fold_of::magnitudes);
        mend_sums();
        break;
      case QUERN_REDUCE_L2:
      case QUERN_REDUCE_SUM_SQUARE:
        fold_all(fold_of::squares);
        mend_squares(false, 0x1p-90 * count());
        break;
      default: fold_all(fold_of::sum); mend_sums();
    }
    const bool means = is_pooling(p().op) ? p().op != QUERN_POOL_MAX : p().op == QUERN_REDUCE_MEAN;
    const double n = std::max(1.0, count());
    for (int64_t r = 0; means && r < results; ++r) x[r] /= n;
    for (int64_t r = 0; p().op == QUERN_REDUCE_L2 && r < results; ++r) x[r] = std::sqrt(x[r]);
    finish();
  }

  void normalize() const {
    double *const x = memory.of.x, *const y = memory.of.y;
    const bool centers = p().op == QUERN_NORM;
    if (centers)
      mean_and_squares();
    else
      fold_all(fold_of::squares);
    for (int64_t r = 0; centers && r < results; ++r) y[r] = y[r] < 0 ? 0 : y[r];  // of equal numbers
    const double enough = 0x1p-90 * count() / double(f.columns_of_slice);
    mend_squares(centers, double(p().epsilon) < 0x1p-80 ? enough : 0);
    if (f.columns_of_slice > 1) join_columns(centers);
    const double share = 1 / count();
    for (int64_t r = 0; r < results; ++r) {
      const double mean = centers ? x[r] : 0, variance = (centers ? y[r] : x[r]) * share,
                   factor = 1 / std::sqrt(variance + double(p().epsilon));
      // Beside the spread and the mean, what is below 2^-40 of them comes from doubles: the mean was zero, or a float.
      memory.a[r] = mean * mean < 0x1p-80 * variance ? 0 : float(mean), memory.b[r] = float(factor);
      const double rest = (double(memory.a[r]) - mean) * factor;
      memory.c[r] = std::abs(rest) < 0x1p-40 ? 0 : float(rest);
    }
    apply(apply_of::scaled, nullptr);
  }

  void softmax() const {
    const double *const x = memory.of.x, *const y = memory.of.y;
    const bool twice = keeps_exponentials(p(), f, w);
    if (twice)
      peaks_then_sums();
    else
      peaks_and_sums();
    const bool logarithm = p().op == QUERN_LOG_SOFTMAX, kept = twice && !logarithm;
    for (int64_t r = 0; r < results; ++r) {
      memory.a[r] = kept ? 0 : float(x[r]);
      memory.b[r] = float(logarithm ? std::log(y[r]) : 1 / y[r]);
      memory.c[r] = 0;
    }
    apply(logarithm ? apply_of::shifted : kept ? apply_of::scaled : apply_of::exponential, kept ? keep : nullptr);
  }

  void run() const {
    if (w.reduces)
      reduce();
    else if (is_norm(p().op))
      normalize();
    else
      softmax();
  }
};

}  // namespace quern
