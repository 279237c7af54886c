// SPDX-License-Identifier: MIT
//
// What a convolution's or pooling's descriptor leaves unsaid, and how benchdnn understands it.
#include <algorithm>

#include "problem_text.h"

namespace quern {
namespace {

// A number of a descriptor is at most 2^56.  What is made of it stops far beyond, and is refused as far too large.
struct wide {
  int64_t v;
  wide(int64_t x) : v(std::clamp(x, -most, most)) {}
  friend wide operator+(wide a, wide b) { return a.v + b.v; }
  friend wide operator-(wide a, wide b) { return a.v - b.v; }
  friend wide operator*(wide a, wide b) {
    int64_t product;
    if (__builtin_mul_overflow(a.v, b.v, &product)) product = (a.v < 0) == (b.v < 0) ? most : -most;
    return product;
  }
  friend wide operator/(wide a, wide b) { return a.v / b.v; }
  friend wide operator%(wide a, wide b) { return a.v % b.v; }
  friend auto operator<=>(const wide&, const wide&) = default;

 private:
  static constexpr int64_t most = int64_t{1} << 61;
};

wide reach_of(const text_axis& s) { return wide{s.filter - 1} * s.dilation + 1; }

int64_t narrow(wide x) { return x.v; }

// What the transposed operator makes of the image before padding is cut off.
wide spread_of(const text_axis& s) { return wide{s.in - 1} * s.stride + reach_of(s); }

}  // namespace

int64_t out_size(quern_op op, const text_axis& s, const text_ends& e) {
  if (op == QUERN_CONV_TRANSPOSED) return narrow(spread_of(s) - s.pad - e.pad + e.output_padding);
  const wide room = wide{s.in} + s.pad + e.pad - reach_of(s);
  return narrow(room / s.stride - (room % s.stride < 0 ? 1 : 0) + 1);
}

int64_t implied_pad(quern_op op, const text_axis& s) {
  const wide twice =
      op == QUERN_CONV_TRANSPOSED ? spread_of(s) - s.out : wide{s.out - 1} * s.stride - s.in + reach_of(s);
  return narrow(std::max<wide>(twice / 2, 0));
}

text_ends implied_ends(quern_op op, const text_axis& s) {
  const int64_t usual = out_size(op, s, {s.pad, 0});
  if (s.out == usual) return {s.pad, 0};
  if (op == QUERN_CONV_TRANSPOSED) {
    const wide more = wide{s.out} - usual;
    if (more > 0 && more < s.stride) return {s.pad, narrow(more)};
    return {narrow(std::max<wide>(s.pad - more, 0)), 0};
  }
  // Padding longer than the image and the filter is rather a mistake in `out`.
  const wide need = wide{s.out - 1} * s.stride + reach_of(s) - s.in - s.pad;
  return {narrow(std::clamp<wide>(need, 0, s.in + reach_of(s))), 0};
}

bool descriptor::any(int axis) const {
  return at[I + axis] || at[O + axis] || at[K + axis] || at[S + axis] || at[P + axis] || at[D + axis];
}

text_axis descriptor::axis(int i) const {
  return {value[I + i], value[O + i], value[K + i], value[S + i], value[D + i] + 1, value[P + i]};
}

void descriptor::copy_all(int to, int from) {
  for (key k : {I, O, K, S, P, D}) copy(k, to, from);
}

int descriptor::settle(quern_op op) {
  for (key k : {IC, OC}) {
    if (!at[k] && (k == IC || is_conv(op))) return k;
  }
  const bool has[3] = {any(0), any(1), any(2)};
  // h may be left out where d is all there is (a cube) or w is (one dimension).
  if (!has[1] && has[0] == has[2]) return I + 1;
  if (has[0] && !has[1]) copy_all(1, 0);
  if (!has[2]) copy_all(2, 1);
  // With image and filter of its own, w stands alone as in benchdnn; otherwise what it lacks is as in h.
  const bool image = at[I + 2], mixed = has[1] && has[2] && !(image && at[K + 2]);
  for (int i = 0; i < 3; ++i) {
    if (i == 2 && mixed) {
      for (key k : {I, K, S, D}) {
        if (!at[k + 2]) copy(k, 2, 1);
      }
      if (!image && !at[O + 2]) copy(O, 2, 1);
      if (!at[P + 2] && (at[P + 1] || !at[O + 2])) {
        copy(P, 2, 1);
        continue;
      }
    } else if (any(i)) {
      if (!at[I + i]) return I + i;
      if (!at[K + i]) return K + i;
    }
    if (!at[P + i] && at[O + i]) value[P + i] = implied_pad(op, axis(i));
  }
  return KEYS;
}

}  // namespace quern
