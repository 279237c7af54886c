// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "error.h"
#include "half.h"
#include "tune_stand.h"

namespace quern {
namespace {

constexpr uint64_t staged_elements = 1 << 18, most_sets = 1024;

// Packed or plain.
uint64_t weights_bytes(const quern_problem& p, const race_size& size) {
  return std::max(arena::aligned(bytes_of(p.weights)), size.most_packed());
}
uint64_t set_bytes(const quern_problem& p, const race_size& size) {
  uint64_t all = weights_bytes(p, size) + arena::aligned(bytes_of(p.src)) + arena::aligned(bytes_of(p.dst));
  if (p.epilogue.residual) all += arena::aligned(bytes_of(p.residual));
  return std::max<uint64_t>(all, QUERN_ALIGN);
}
// So many that L2 has half of them at most when they come round again.
uint64_t sets_of(const quern_gpu& gpu, uint64_t each) {
  return std::clamp(2 * gpu.l2_bytes / each + 1, uint64_t{2}, most_sets);
}

// Uniform in [-1, 1), of s8 in [-127, 127].
template <class T>
void randomise(T* to) {
  uint64_t state = 0x9e3779b97f4a7c15;
  for (uint64_t i = 0; i < staged_elements; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const float x = float(int32_t(state >> 40) - (1 << 23)) * 0x1p-23f;
    to[i] = rounded<T>(std::is_same_v<T, s8> ? 127 * x : x);
  }
}
void randomise(void* to, quern_type type) {
  switch (type) {
    case QUERN_F16: return randomise(static_cast<f16*>(to));
    case QUERN_BF16: return randomise(static_cast<bf16*>(to));
    case QUERN_S8: return randomise(static_cast<s8*>(to));
    case QUERN_E4M3: return randomise(static_cast<e4m3*>(to));
    default: return randomise(static_cast<float*>(to));
  }
}

}  // namespace

uint64_t gpu_stand::bytes(const full_problem& p, const resolved_wish& w, const race_size& size) {
  const uint64_t each = set_bytes(p, size);
  return each * sets_of(w.machine.gpu, each) + 3 * arena::aligned(vector_bytes(p)) + arena::aligned(size.workspace());
}

gpu_stand::gpu_stand(const full_problem& p, const resolved_wish& w, const quern_exec& exec, const quern_device& device,
                     quern_error* error)
    : p_(p), w_(w), exec_(exec), device_(device), error_(error) {}

gpu_stand::~gpu_stand() {
  destroy_timer(device_, timer_);
  free(trials_);
}

trial* gpu_stand::begin(const race_size& size) {
  arena memory = {static_cast<char*>(exec_.workspace), exec_.workspace_bytes};
  set_bytes_ = set_bytes(p_, size), sets_ = sets_of(w_.machine.gpu, set_bytes_);
  packed_bytes_ = weights_bytes(p_, size), workspace_bytes_ = size.workspace();
  char* const sets = memory.take(set_bytes_ * sets_);
  char* const vectors = memory.take(3 * arena::aligned(vector_bytes(p_)));
  workspace_ = memory.take(workspace_bytes_);
  arena set = {sets, set_bytes_};
  args_.size = sizeof args_;
  args_.src = set.take(bytes_of(p_.src)), args_.weights = set.take(packed_bytes_),
  args_.dst = set.take(bytes_of(p_.dst));
  if (p_.epilogue.residual) args_.residual = set.take(bytes_of(p_.residual));
  args_.scale = vectors, args_.bias = vectors + arena::aligned(vector_bytes(p_));
  args_.slope = vectors + 2 * arena::aligned(vector_bytes(p_));

  trials_ = static_cast<trial*>(calloc(most_trials, sizeof(trial)));
  void* const staged = malloc(staged_elements * 4);
  if (!trials_ || !staged) {
    status_ = fail(error_, QUERN_MEMORY, "", 0, 0, "the memory of a race on a GPU cannot be had");
  } else {
    status_ = make_timer(device_, timer_, error_);
    // What a vector begins with is the same in all; the sets are copies of the first.
    const auto stage = [&](quern_type type, char* to, uint64_t bytes) {
      const uint64_t most = staged_elements * uint64_t(type_bytes(type));
      randomise(staged, type);
      for (uint64_t at = 0; at < bytes && !status_; at += most)
        status_ = copy_to_gpu(device_, exec_.queue, to + at, staged, std::min(most, bytes - at), error_);
    };
    stage(QUERN_F32, vectors, 3 * arena::aligned(vector_bytes(p_)));
    stage(p_.src.type, sets, set_bytes_);
    if (args_.residual) stage(p_.residual.type, set.at - arena::aligned(bytes_of(p_.residual)), bytes_of(p_.residual));
    for (uint64_t done = 1; done < sets_ && !status_; done *= 2)
      status_ = copy_on_gpu(device_, exec_.queue, sets + done * set_bytes_, sets,
                            std::min(done, sets_ - done) * set_bytes_, error_);
  }
  free(staged);
  return status_ ? nullptr : trials_;
}

bool gpu_stand::make_ready(trial& t, const trial*, int) {
  if (!t.loaded.function) status_ = load_kernel(device_, *t.o.algorithm, *t.o.row, w_.wish.overlap, t.loaded, error_);
  return !status_;
}

quern_status gpu_stand::launch(const trial& t) {
  const uint64_t at = next_ * set_bytes_;
  next_ = (next_ + 1) % sets_;
  quern_args args = args_;
  args.src = static_cast<const char*>(args.src) + at, args.dst = static_cast<char*>(args.dst) + at;
  args.weights = static_cast<const char*>(args.weights) + at;
  if (args.residual) args.residual = static_cast<const char*>(args.residual) + at;
  return t.o.algorithm->launch({p_, *t.o.row, t.o.blocks}, {args, device_, t.loaded, exec_.queue, workspace_,
                                                            static_cast<const char*>(args.weights), error_});
}

double gpu_stand::time(const trial& t, int runs) {
  struct both {
    gpu_stand& stand;
    const trial& t;
  } self = {*this, t};
  double ns = 0;
  status_ = time_runs(
      device_, exec_.queue, timer_, runs,
      [](void* to) { return static_cast<both*>(to)->stand.launch(static_cast<both*>(to)->t); }, &self, ns, error_);
  return status_ ? 0 : std::max(ns, 1.0);
}

}  // namespace quern
