// SPDX-License-Identifier: MIT
#include "weights.h"

namespace quern {

void walk_weights(const geometry& g, int64_t panel, int64_t first, int64_t count,
                  void (*visit)(void* visitor, const weight_place&), void* visitor) {
  // Eight output channels together: rows of as many bytes as lines of L1 are apart would share its ways.
  constexpr int64_t outputs = 16, together = 8, elements = 256;
  const int64_t base = weight_offset(g, first), end = first + count;
  for (int64_t some = first; some < end; some += outputs) {
    const int64_t some_end = std::min(some + outputs, end);
    int64_t before = 0;
    for (int64_t f = 0; f < g.phases(); ++f) {
      const phase ph = phase_of(g, f);
      const int64_t inputs = std::max(outputs, elements / std::max<int64_t>(1, ph.taps()));
      for (int64_t c = 0; c < g.c && ph.taps(); c += inputs)
        for (int64_t channel = some, n; channel < some_end; channel += n) {
          const int64_t k = channel % g.k, tap_zero = weight_offset(g, channel) - base + c * g.weights[1];
          n = std::min({together, some_end - channel, g.k - k, panel - k % panel});
          weight_place at = {.group = channel / g.k,
                             .k = k,
                             .count = n,
                             .f = f,
                             .ph = ph,
                             .before = before,
                             .tap = 0,
                             .begin = c,
                             .end = std::min(g.c, c + inputs),
                             .at = 0,
                             .next_output = g.weights[0],
                             .next_input = g.weights[1]};
          for (int64_t t = 0; t < ph.d.taps; ++t)
            for (int64_t r = 0; r < ph.h.taps; ++r)
              for (int64_t s = 0; s < ph.w.taps; ++s, ++at.tap) {
                at.at = tap_zero + (ph.d.filter_begin + t * ph.d.filter_step) * g.weights[2] +
                        (ph.h.filter_begin + r * ph.h.filter_step) * g.weights[3] +
                        (ph.w.filter_begin + s * ph.w.filter_step) * g.weights[4];
                visit(visitor, at);
              }
        }
      before += ph.taps();
    }
  }
}

}  // namespace quern
