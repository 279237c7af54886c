// SPDX-License-Identifier: MIT
//
// Calls without plan, pack and run: for code that computes something once.  Only these allocate.
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "error.h"
#include "problem.h"

namespace quern {
namespace {

constexpr uint64_t round_up(uint64_t bytes) { return (bytes + QUERN_ALIGN - 1) / QUERN_ALIGN * QUERN_ALIGN; }

quern_wish wish_for(const quern_problem& p, const quern_exec* exec) {
  quern_wish wish = {};
  wish.size = sizeof wish;
  wish.threads = exec && exec->parallel_for ? exec->threads : 1;
  if (p.src.type == QUERN_F64) wish.algorithm = "reference";  // the only one that computes in f64
  return wish;
}

// Packed weights and workspace lie behind each other in `memory`, or in memory of their own when that is
// too small.
quern_status compute(const quern_problem& p, const quern_args& given, const quern_exec* exec, char* memory,
                     uint64_t memory_bytes, quern_error* error) {
  const quern_wish wish = wish_for(p, exec);
  quern_plan plan;
  if (const quern_status s = quern_plan_make(&plan, nullptr, &p, &wish, error)) return s;
  const uint64_t packed = round_up(plan.packed_bytes), total = packed + plan.workspace_bytes;
  char* own = nullptr;
  if (total > memory_bytes) {
    memory = own = static_cast<char*>(aligned_alloc(QUERN_ALIGN, round_up(total)));
    if (!own)
      return fail(error, QUERN_MEMORY, "", static_cast<int64_t>(total), 0,
                  "%llu bytes for packed weights and workspace cannot be had", static_cast<unsigned long long>(total));
  }
  quern_args args = given;
  quern_exec run = {};
  run.size = sizeof run;
  if (exec) run.threads = exec->threads, run.parallel_for = exec->parallel_for, run.self = exec->self;
  quern_status status = QUERN_OK;
  if (plan.packed_bytes) {
    status = quern_pack(&plan, given.weights, memory, packed, &run, error);
    args.weights = memory;
  }
  run.workspace = memory + packed, run.workspace_bytes = plan.workspace_bytes;
  if (status == QUERN_OK) status = quern_run(&plan, &args, &run, error);
  free(own);
  return status;
}

struct matrix {
  int64_t rows, columns, row_stride, column_stride;
};

quern_tensor tensor_of(const matrix& m) {
  quern_tensor t = {};
  t.type = QUERN_F32, t.layout = QUERN_NCHW;
  const int64_t size[5] = {1, 1, 1, m.rows, m.columns};
  // Strides of sizes that are 1 say nothing, and zeros everywhere would say dense.
  const int64_t row = m.rows > 1 ? m.row_stride : std::max<int64_t>(1, m.columns);
  const int64_t column = m.columns > 1 ? m.column_stride : 1;
  const int64_t whole = std::max<int64_t>(1, std::max(row * m.rows, column * m.columns));
  const int64_t stride[5] = {whole, whole, whole, row, column};
  memcpy(t.size, size, sizeof size);
  memcpy(t.stride, stride, sizeof stride);
  return t;
}

quern_problem sgemm_problem(const matrix& a, const matrix& b, const matrix& c, float alpha, float beta) {
  quern_problem p = quern_gemm(QUERN_F32, a.rows, b.columns, a.columns);
  p.src = tensor_of(a), p.weights = tensor_of(b), p.dst = tensor_of(c);
  p.epilogue.alpha = alpha;
  p.epilogue.residual = beta != 0.0f ? QUERN_RESIDUAL_BEFORE : QUERN_RESIDUAL_NONE;
  p.epilogue.beta = beta;
  p.accuracy = QUERN_ACCURACY_F32;
  return p;
}

quern_status check_strides(const char* name, const matrix& m, quern_error* error) {
  const char* const field[] = {"rs", "cs"};
  const int64_t size[] = {m.rows, m.columns}, stride[] = {m.row_stride, m.column_stride};
  for (int i = 0; i < 2; ++i)
    if (size[i] > 1 && (stride[i] < 1 || stride[i] > (INT64_C(1) << 54) / size[i]))
      return fail(error, QUERN_INVALID, name, stride[i], 1,
                  "%s%s is %lld, must be at least 1 and keep the matrix below 2^54 elements", field[i], name,
                  static_cast<long long>(stride[i]));
  return QUERN_OK;
}

}  // namespace
}  // namespace quern

using namespace quern;

extern "C" {

quern_status quern_compute(const quern_problem* problem, const quern_args* args, const quern_exec* exec,
                           quern_error* error) noexcept {
  quern_problem p;
  if (const quern_status s = complete(problem, p, error)) return s;
  if (!args) return fail(error, QUERN_INVALID, "args", 0, 0, "args is NULL, must point to a quern_args");
  if (args->size != sizeof *args)
    return fail(error, QUERN_INVALID, "args.size", args->size, sizeof *args,
                "args.size is %u, must be sizeof(quern_args), here %zu", args->size, sizeof *args);
  return compute(p, *args, exec, nullptr, 0, error);
}

quern_status quern_sgemm(int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t rsa, int64_t csa,
                         const float* b, int64_t rsb, int64_t csb, float beta, float* c, int64_t rsc, int64_t csc,
                         const quern_exec* exec, quern_error* error) noexcept {
  const char* const names[] = {"m", "n", "k"};
  const int64_t sizes[] = {m, n, k};
  for (int i = 0; i < 3; ++i)
    if (sizes[i] < 0 || sizes[i] > INT64_C(1) << 31)
      return fail(error, QUERN_INVALID, names[i], sizes[i], INT64_C(1) << 31, "%s is %lld, must be 0 to 2^31", names[i],
                  static_cast<long long>(sizes[i]));
  if (m == 0 || n == 0) return QUERN_OK;
  const matrix ma = {m, k, rsa, csa}, mb = {k, n, rsb, csb}, mc = {m, n, rsc, csc};
  if (const quern_status s = check_strides("a", ma, error)) return s;
  if (const quern_status s = check_strides("b", mb, error)) return s;
  if (const quern_status s = check_strides("c", mc, error)) return s;
  if (!c)
    return fail(error, QUERN_BUFFER, "c", 0, 0, "c is NULL, must have %lld by %lld elements", static_cast<long long>(m),
                static_cast<long long>(n));
  if (alpha == 0.0f || k == 0) {  // as in BLAS, A and B are not read
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        float& element = c[i * mc.row_stride + j * mc.column_stride];
        element = beta == 0.0f ? 0.0f : beta * element;
      }
    return QUERN_OK;
  }
  const quern_problem p = sgemm_problem(ma, mb, mc, alpha, beta);
  quern_args args = {};
  args.size = sizeof args;
  args.src = a, args.weights = b, args.dst = c, args.residual = c;
  char* memory = exec ? static_cast<char*>(exec->workspace) : nullptr;
  const bool usable = memory && reinterpret_cast<uintptr_t>(memory) % QUERN_ALIGN == 0;
  return compute(p, args, exec, memory, usable ? exec->workspace_bytes : 0, error);
}

uint64_t quern_sgemm_workspace(int64_t m, int64_t n, int64_t k, const quern_exec* exec) noexcept {
  // Strides decide whether A is read in place and which way the product lies: the most of all four.
  uint64_t most = 0;
  for (int turn = 0; turn < 4; ++turn) {
    const matrix a = turn & 1 ? matrix{m, k, 1, m} : matrix{m, k, k, 1};
    const matrix c = turn & 2 ? matrix{m, n, 1, m} : matrix{m, n, n, 1};
    const quern_problem p = sgemm_problem(a, {k, n, n, 1}, c, 1.0f, 1.0f);
    const quern_wish wish = wish_for(p, exec);
    quern_plan plan;
    if (quern_plan_make(&plan, nullptr, &p, &wish, nullptr) == QUERN_OK)
      most = std::max(most, round_up(plan.packed_bytes) + plan.workspace_bytes);
  }
  return most;
}

}  // extern "C"
