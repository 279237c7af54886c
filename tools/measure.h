// SPDX-License-Identifier: MIT
//
// Plans made ready to run, and their times.
#pragma once

#include <quern/host.h>
#include <quern/quern.h>

#include <memory>
#include <string>
#include <vector>

#include "operands.h"

namespace tools {

// Threads for the length of a command; none of its own for one thread.
class pool {
 public:
  explicit pool(uint32_t threads);
  quern_exec exec(const buffer& workspace) const;
  quern_host* host() const { return host_.get(); }  // NULL: this thread alone

 private:
  std::unique_ptr<quern_host, void (*)(quern_host*)> host_;
};

// A candidate with its weights packed and its workspace at hand.
class ready {
 public:
  ready(const quern_problem&, quern_wish, const quern_candidate&, const operands&, const pool&);
  void run(const operands&) const;
  void move(const operands&);  // to other memory
  const quern_plan& plan() const { return plan_; }
  bool same_plan(const ready&) const;  // the same work, block sizes included

 private:
  std::string name() const;

  quern_plan plan_;
  const pool& threads_;
  buffer packed_, workspace_;
  quern_exec exec_;
};

// Of a sample at least, between neighbours by their distance; share 0.5: the median.
double quantile(std::vector<double>, double share);

struct timing {
  double median_ms = 0, min_ms = 0;
  int samples = 0;
  double over_best = 1;  // its time over that of the fastest, of all that were timed with it
};

// Times the candidates of one layer side by side: rounds in which each of them gives one sample, in turn,
// so that a slow second of the machine hits all alike.  A sample is as many runs back to back as take
// 50 us.  `budget_ms` is for each candidate; at least 24 rounds.  Who is slower than the best by more than 1 / n
// after n rounds takes no part in the next, unless stays[i]: those near the best get the time.
// over_best compares samples of the same round: the memory's speed changes from one to the next.  After some rounds
// each one's weights and workspace move, as which pages they got is worth up to 5 %.  Half of the places say who is the
// fastest, the other half by how much, and the other way round: the least of many noisy times is too small a time in
// the rounds that made it the least.  *peak_gflops receives the median of FMA peaks measured before, between and after
// the rounds.
std::vector<timing> time_together(std::vector<ready>&, const std::vector<bool>& stays, const operands&,
                                  double budget_ms, int threads, int bits, double* peak_gflops);

}  // namespace tools
