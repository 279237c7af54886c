// SPDX-License-Identifier: MIT
//
// The reference: every operator as the mathematics reads, summed in float64.  The yardstick of every test,
// and never chosen unless a wish names it.
#include "driver.h"
#include "geometry.h"
#include "problem.h"

namespace quern {
namespace {

constexpr int64_t item_elements = 1024;

refusal refuse(const full_problem&, const kernel&) { return {}; }

int64_t elements(const quern_problem& p) {
  int64_t count = 1;
  for (int64_t size : p.dst.size) count *= size;
  return count;
}

blocking choose_blocks(const full_problem& p, const kernel&, const machine&, uint32_t threads) {
  blocking b = {};
  b.workers = static_cast<uint32_t>(std::clamp<int64_t>(up(elements(p), item_elements), 1, std::max(threads, 1u)));
  return b;
}

cost predict(const full_problem& p, const kernel&, const blocking& b, const machine&) {
  const double flops = direct_flops(p);
  if (p.op == QUERN_REORDER) return {static_cast<double>(elements(p)) * 20 / b.workers, 0};
  return {flops / b.workers, flops};  // about one multiply-add in two nanoseconds
}

double error_bound(const full_problem& p) {
  if (p.op == QUERN_REORDER) return 0;
  const double k = static_cast<double>(sum_length(p)) + 1;
  return roundoff(p.dst.type) + k * 0x1p-53;
}

void run(const job& j, const execution& e) {
  const int64_t count = elements(j.problem);
  quern_args args = e.args;
  args.weights = e.packed;
  for_each_item(j, e, up(count, item_elements), [&](int64_t item, char*) {
    j.row.reference(j.problem, args, item * item_elements, std::min(count, (item + 1) * item_elements));
  });
}

}  // namespace
}  // namespace quern

QUERN_ALGORITHM(reference, .about = "the operator's formula in float64", .drives = kind::reference,
                .accuracy = QUERN_ACCURACY_F32, .repeat = QUERN_REPEAT_REF, .on_request = true, .refuse = refuse,
                .choose_blocks = choose_blocks, .predict = predict, .error_bound = error_bound, .run = run)
