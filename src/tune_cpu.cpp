// SPDX-License-Identifier: MIT
#include "clock.h"
#include "packing.h"
#include "tune_stand.h"

namespace quern {
namespace {

// Uniform in [-1, 1), in multiples of 2^-23: no denormals among them.
struct random_floats {
  uint64_t state = 0x9e3779b97f4a7c15;
  char* fill(char* to, uint64_t bytes) {
    float* const f = reinterpret_cast<float*>(to);
    for (uint64_t i = 0; i < bytes / 4; ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      f[i] = float(int32_t(state >> 40) - (1 << 23)) * 0x1p-23f;
    }
    return to;
  }
};

}  // namespace

uint64_t race_size::workspace() const {
  uint64_t most = 0;
  for (int i = 0; i < count; ++i) most = std::max(most, workspace_of(options[i]));
  return most * workspaces;
}
uint64_t race_size::most_packed() const {
  uint64_t most = 0;
  for (int i = 0; i < count; ++i) most = std::max(most, packed_of(options[i]));
  return most;
}

uint64_t cpu_stand::bytes(const full_problem& p, const resolved_wish&, const race_size& size) {
  uint64_t all = arena::aligned(sizeof(trial) * most_trials) + arena::aligned(size.workspace());
  for (const quern_tensor* t : {&p.src, &p.dst, &p.weights}) all += arena::aligned(bytes_of(*t));
  if (p.epilogue.residual) all += arena::aligned(bytes_of(p.residual));
  all += 3 * arena::aligned(vector_bytes(p));
  for (int i = 0; i < size.count; ++i) all += packed_of(size.options[i]);
  return size.again ? all + size.most_packed() : all;
}

trial* cpu_stand::begin(const race_size& size) {
  trial* const trials = reinterpret_cast<trial*>(memory_.take(sizeof(trial) * most_trials));
  random_floats random;
  const auto operand = [&](uint64_t bytes) { return random.fill(memory_.take(bytes), bytes); };
  args_.size = sizeof args_;
  args_.src = operand(bytes_of(p_.src)), args_.dst = operand(bytes_of(p_.dst)),
  weights_ = operand(bytes_of(p_.weights));
  if (p_.epilogue.residual) args_.residual = operand(bytes_of(p_.residual));
  for (const void** const vector : {&args_.scale, &args_.bias, &args_.slope}) *vector = operand(vector_bytes(p_));
  workspace_bytes_ = size.workspace();
  workspace_ = memory_.take(workspace_bytes_);
  return trials;
}

bool cpu_stand::can_run(const trial& t) const {
  return workspace_of(t.o) <= workspace_bytes_ && (t.packed || packed_of(t.o) <= memory_.left);
}

bool cpu_stand::make_ready(trial& t, const trial* all, int count) {
  if (!t.o.algorithm->pack || t.packed) return true;
  // The same weights in the same order are there already.
  for (int i = 0; i < count && !t.packed; ++i) {
    const option& o = all[i].o;
    if (all[i].packed && o.algorithm == t.o.algorithm && o.row == t.o.row && o.blocks.order == t.o.blocks.order &&
        o.blocks.packed_bytes == t.o.blocks.packed_bytes)
      t.packed = all[i].packed;
  }
  if (t.packed) return true;
  t.packed = memory_.take(t.o.blocks.packed_bytes);
  if (t.packed) pack_all({p_, *t.o.row, t.o.blocks}, *t.o.algorithm, weights_, t.packed, exec_);
  return t.packed;
}

void cpu_stand::launch(const trial& t) {
  const char* const weights = t.o.algorithm->pack ? t.packed : weights_;
  quern_args args = args_;
  args.weights = weights;
  t.o.algorithm->run({p_, *t.o.row, t.o.blocks},
                     {args, &exec_, std::min(t.o.blocks.workers, exec_.threads), workspace_, weights});
}

double cpu_stand::time(const trial& t, int runs) {
  for (int i = untimed_runs(t); i > 0; --i) launch(t);
  const double begin = now_ns();
  for (int i = 0; i < runs; ++i) launch(t);
  return std::max(now_ns() - begin, 1.0) / runs;
}

}  // namespace quern
