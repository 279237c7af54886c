// SPDX-License-Identifier: MIT
//
// The points of Winograd's forms F(m, r), and the matrices that follow from them.
//
// m outputs of a filter of r taps take a = m + r - 1 products (Winograd 1980; Toom and Cook):
//
//   y = A^T ((G g) . (B^T d))      B^T  row i: coefficients of M(x) / (x - p_i), with M(x) = product of x - p_j
//                                  G    row i: powers 0 to r - 1 of p_i, over product of p_i - p_j, j not i
//                                  A^T  column i: powers 0 to m - 1 of p_i
//
// One of the points may be infinity, whose rows are M(x), and 0 ... 0 1.  B^T depends on the points alone: forms
// with as many points share it.  Six points are 0, +-sqrt(1/2), +-sqrt(2) and infinity, which halves the error of
// the usual 0, +-1, +-2 (the products stay near 1); eight are 0, +-1, +-2, +-1/2 and infinity.  The rows of B^T
// have magnitudes within a factor of two of each other, so that no scaling by powers of two is left to gain.
// An odd number of points is the next even one without infinity.
//
// A tile with fewer outputs than m takes as many points fewer: infinity, which the last output alone takes, then point
// 0, or pairs.  Matrices and weights are the same for all tiles.  With M'(x) the product of x - p_i over n points that
// are left, inputs d from the n-th on that obey the recurrence M', sum over k of M'[k] d[s + k] = 0, make the products
// of the finite others vanish; and outputs that there are do not read those inputs.
#pragma once

// Inlined everywhere: kernel files may share no symbol.
namespace quern {

inline constexpr double root2 = 1.4142135623730950488, half_root2 = root2 / 2;

// The positive one of pair i of a points.
[[gnu::always_inline]] constexpr double point_of(int a, int i) {
  if (a <= 4) return 1;
  if (a <= 6) return i == 0 ? half_root2 : root2;
  return i == 0 ? 1 : i == 1 ? 2 : 0.5;
}

[[gnu::always_inline]] constexpr double point_power(int a, int i, int power) {
  double value = 1;
  const double p = point_of(a, i);
  // Pairs of factors first: squares of the points are exact.
  const double square = a == 5 || a == 6 ? (i == 0 ? 0.5 : 2) : p * p;
  for (; power >= 2; power -= 2) value *= square;
  return power ? value * p : value;
}

inline constexpr int most_points = 8, most_taps = 7;

// How many of a points a tile takes whose outputs read so many inputs: seldom one more.  Without point 0, seven and
// eight have errors larger by a fifth.
[[gnu::always_inline]] constexpr int points_for(int a, int inputs) {
  return inputs >= a ? a : a >= 7 ? inputs | 1 : inputs;
}
// Whether point i is one of those n.
[[gnu::always_inline]] constexpr bool is_kept(int a, int n, int i) {
  return n == a || (i == 0 ? n % 2 == 1 : i <= n / 2 * 2);
}
// M' of n points, which are fewer than a: at[k] belongs to x^k.
struct monic {
  double at[most_points + 2] = {};
};
[[gnu::always_inline]] constexpr monic recurrence(int a, int n) {
  monic p;
  int degree = n % 2;
  p.at[degree] = 1;
  for (int i = 0; i < n / 2; ++i, degree += 2)
    for (int k = degree; k >= 0; --k) p.at[k + 2] += p.at[k], p.at[k] *= -point_power(a, i, 2);
  return p;
}

// The matrices of a form, for packing weights and for the error bound.
struct winograd_matrices {
  int m, r, a;
  double g[most_points][most_taps] = {};
  double at[most_points][most_points] = {};
  double bt[most_points][most_points] = {};

  constexpr winograd_matrices(int m_, int r_) : m(m_), r(r_), a(m_ + r_ - 1) {
    const int finite = a - (a % 2 == 0);
    double point[most_points] = {};
    for (int i = 1; i < finite; ++i) point[i] = (i % 2 ? 1 : -1) * point_of(a, (i - 1) / 2);
    for (int i = 0; i < a; ++i) {
      // The product of x - p_j over all finite points but i.
      double poly[most_points] = {1}, scale = 1;
      int degree = 0;
      for (int j = 0; j < finite; ++j) {
        if (j == i) continue;
        for (int k = ++degree; k >= 0; --k) poly[k] = (k ? poly[k - 1] : 0) - point[j] * poly[k];
        if (i < finite) scale *= point[i] - point[j];
      }
      // Point 0 has its sign in G, so that G begins with 1 0 0.
      const double sign = i == 0 && scale < 0 ? -1 : 1;
      for (int k = 0; k < a; ++k) bt[i][k] = sign * poly[k];
      double power = 1;
      for (int k = 0; k < r; ++k, power *= point[i]) g[i][k] = i < finite ? sign * power / scale : k == r - 1;
      power = 1;
      for (int k = 0; k < m; ++k, power *= point[i]) at[k][i] = i < finite ? power : k == m - 1;
    }
  }
};

}  // namespace quern
