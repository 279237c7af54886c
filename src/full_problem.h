// SPDX-License-Identifier: MIT
//
// A complete problem with what a query looks up once, for all that it asks about it.
#pragma once

#include "geometry.h"
#include "problem.h"

namespace quern {

struct full_problem : quern_problem {
  geometry g = {};
  double products = 0;  // half of direct_flops()

  explicit full_problem(const quern_problem& p) : quern_problem(p) {
    if (multiplies(op) || is_pooling(op)) g = geometry_of(p);
    products = direct_flops(p) / 2;
  }
};
inline const geometry& geometry_of(const full_problem& p) { return p.g; }

}  // namespace quern
