// SPDX-License-Identifier: MIT
//
// Spectra of lines of up to 14 numbers.  A line that is followed by 14 zeros and a filter, by the distances -13 to 13
// of its taps, make a line of outputs by a circular convolution of length 28, so their spectra of 28 frequencies
// multiply.  Of these, 14 pairs of numbers are enough, of a line that is real:
//
//   pair 0       frequencies 0 and 14, which are real: re + im * t with t * t = 1 is the one where t is 1, the other
//                where t is -1, in the spectrum of outputs; in that of inputs twice as much
//   pairs 1..13  re + im * i, of one of two frequencies that are conjugates
//
// 28 = 4 * 7 has no prime in both factors, so everything is transforms of seven real numbers without factors between
// (I. J. Good, The interaction algorithm and practical Fourier analysis, 1958): of sums of two numbers at distance 7,
// of their differences, and of the two as a complex number, in an order and with signs that powers of i make.
#pragma once

#include <math.h>

#include "kernel.h"

namespace quern {
namespace {

constexpr int line_most = 14, line_pairs = 14, line_period = 28;

constexpr int line_frequency(int pair) {
  return pair <= 3 ? 4 * pair : pair <= 6 ? 14 + 4 * (pair - 3) : pair <= 10 ? 4 * pair - 7 : 61 - 4 * pair;
}

// Of k / 7 of a circle.
constexpr float seventh_cosine(int k) {
  constexpr float of[] = {1, 0.623489802f, -0.222520934f, -0.900968868f};
  return of[k % 7 < 4 ? k % 7 : 7 - k % 7];
}
constexpr float seventh_sine(int k) {
  constexpr float of[] = {0, 0.781831482f, 0.974927912f, 0.433883739f};
  return k % 7 < 4 ? of[k % 7] : -of[7 - k % 7];
}

// Of seven real numbers.
struct seventh_spectrum {
  float dc, re[3], im[3];  // frequencies 1 to 3
};

QUERN_INLINE seventh_spectrum spectrum_of(const float (&x)[7]) {
  const float even[] = {x[1] + x[6], x[2] + x[5], x[3] + x[4]}, odd[] = {x[1] - x[6], x[2] - x[5], x[3] - x[4]};
  seventh_spectrum y;
  y.dc = (x[0] + even[0]) + (even[1] + even[2]);
  QUERN_UNROLL
  for (int q = 0; q < 3; ++q) {
    y.re[q] = x[0], y.im[q] = odd[0] * -seventh_sine(q + 1);
    QUERN_UNROLL
    for (int j = 0; j < 3; ++j) {
      y.re[q] = fmaf(even[j], seventh_cosine((q + 1) * (j + 1)), y.re[q]);
      if (j > 0) y.im[q] = fmaf(odd[j], -seventh_sine((q + 1) * (j + 1)), y.im[q]);
    }
  }
  return y;
}

// Seven times as much.
QUERN_INLINE void numbers_of(const seventh_spectrum& y, float (&x)[7]) {
  x[0] = (y.dc + y.re[0]) + (y.re[1] + y.re[2]);
  QUERN_UNROLL
  for (int i = 1; i < 4; ++i) {
    float even = y.dc, odd = y.im[0] * seventh_sine(i);
    QUERN_UNROLL
    for (int q = 0; q < 3; ++q) {
      even = fmaf(y.re[q], seventh_cosine(i * (q + 1)), even);
      if (q > 0) odd = fmaf(y.im[q], seventh_sine(i * (q + 1)), odd);
    }
    x[i] = even - odd, x[7 - i] = even + odd;
  }
}

// -1 where a power of i is negative.
constexpr float turn_sign(int power) { return power % 4 < 2 ? 1 : -1; }

// put(pair, re, im).
template <class Put>
QUERN_INLINE void spectrum_of(const float (&x)[line_most], Put put) {
  float sum[7], difference[7], re[7], im[7];
  QUERN_UNROLL
  for (int j = 0; j < 7; ++j) {
    const float sign = turn_sign(j);
    sum[j] = x[j] + x[j + 7];
    difference[j] = j % 2 == 0 ? x[j] - x[j + 7] : x[j + 7] - x[j];
    re[j] = sign * x[j % 2 == 0 ? j : j + 7], im[j] = sign * (j % 2 == 0 ? -x[j + 7] : x[j]);
  }
  const seventh_spectrum a = spectrum_of(sum), b = spectrum_of(difference);
  put(0, a.dc + b.dc, a.dc - b.dc);
  QUERN_UNROLL
  for (int q = 0; q < 3; ++q) put(1 + q, a.re[q], a.im[q]), put(4 + q, b.re[q], b.im[q]);
  const seventh_spectrum r = spectrum_of(re), i = spectrum_of(im);
  put(7, r.dc, i.dc);
  QUERN_UNROLL
  for (int q = 0; q < 3; ++q) {
    put(8 + q, r.re[q] - i.im[q], i.re[q] + r.im[q]);
    put(11 + q, r.re[q] + i.im[q], i.re[q] - r.im[q]);
  }
}

// get(pair) has re and im.
template <class Get>
QUERN_INLINE void numbers_of(Get get, float (&x)[line_most]) {
  seventh_spectrum a, b, r, i;
  const auto real = get(0);
  a.dc = real.re + real.im, b.dc = real.re - real.im;
  QUERN_UNROLL
  for (int q = 0; q < 3; ++q) {
    const auto even = get(1 + q), odd = get(4 + q);
    a.re[q] = even.re, a.im[q] = even.im, b.re[q] = odd.re, b.im[q] = odd.im;
  }
  float sum[7], difference[7];
  numbers_of(a, sum), numbers_of(b, difference);
  QUERN_UNROLL
  for (int j = 0; j < 7; ++j) {
    const float turned = j % 2 == 0 ? difference[j] : -difference[j];
    x[j] = sum[j] + turned, x[j + 7] = sum[j] - turned;
  }
  const auto first = get(7);
  r.dc = first.re, i.dc = first.im;
  QUERN_UNROLL
  for (int q = 0; q < 3; ++q) {
    const auto up = get(8 + q), down = get(11 + q);
    r.re[q] = up.re + down.re, r.im[q] = up.im - down.im;
    i.re[q] = up.im + down.im, i.im[q] = down.re - up.re;
  }
  float re[7], im[7];
  numbers_of(r, re), numbers_of(i, im);
  QUERN_UNROLL
  for (int j = 0; j < 7; ++j) {
    const float sign = turn_sign(j);
    x[j] += sign * (j % 2 == 0 ? re[j] : im[j]), x[j + 7] += sign * (j % 2 == 0 ? -im[j] : re[j]);
  }
}

}  // namespace
}  // namespace quern
