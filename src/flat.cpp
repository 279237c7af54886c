// SPDX-License-Identifier: MIT
//
// Calls without plan, pack and run: for code that computes something once.
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "exec.h"
#include "problem.h"

namespace quern {
namespace {

constexpr uint64_t round_up(uint64_t bytes) { return (bytes + QUERN_ALIGN - 1) / QUERN_ALIGN * QUERN_ALIGN; }

quern_wish wish_for(const quern_exec& exec) {
  quern_wish wish = {};
  wish.size = sizeof wish;
  wish.threads = exec.threads;
  return wish;
}

// Who calls BLAS expects infinities to be infinities, and B, split for one product, costs what it gains.
quern_wish sgemm_wish(const quern_exec& exec) {
  quern_wish wish = wish_for(exec);
  wish.deny = "splits";
  return wish;
}

struct operand {
  const char* name;
  const void* pointer;
  uint64_t bytes;
  uint64_t begin() const { return reinterpret_cast<uintptr_t>(pointer); }
  bool meets(const operand& o) const {
    // Differences: the end of what is as long as a number can say is none.
    return bytes && o.bytes && (begin() < o.begin() ? o.begin() - begin() < bytes : begin() - o.begin() < o.bytes);
  }
};

// An input must be there, aligned, and apart from the output.
quern_status check_input(const operand& in, const operand& out, int64_t alignment, quern_error* error) {
  const int64_t bytes = static_cast<int64_t>(in.bytes);
  if (bytes == 0) return QUERN_OK;
  if (!in.pointer)
    return fail(error, QUERN_BUFFER, in.name, 0, bytes, "%s is NULL, must have %lld bytes", in.name,
                static_cast<long long>(bytes));
  if (const uint64_t off = in.begin() % static_cast<uint64_t>(alignment))
    return fail(error, QUERN_BUFFER, in.name, static_cast<int64_t>(off), alignment, "%s is not aligned to %lld bytes",
                in.name, static_cast<long long>(alignment));
  if (&in != &out && in.meets(out))
    return fail(error, QUERN_BUFFER, in.name, 0, 0, "%s overlaps %s", in.name, out.name);
  return QUERN_OK;
}

// Packed weights and workspace lie behind each other in `memory`, or in memory of their own when that is
// too small.
quern_status compute(const quern_problem& p, const quern_wish& wish, const quern_args& given, const quern_exec& exec,
                     char* memory, uint64_t memory_bytes, quern_error* error) {
  quern_plan plan;
  if (const quern_status s = quern_plan_make(&plan, nullptr, &p, &wish, error)) return s;
  if (empty(plan.problem)) return QUERN_OK;
  const uint64_t packed = round_up(plan.packed_bytes), total = packed + plan.workspace_bytes;
  char* own = nullptr;
  if (total > memory_bytes) {
    if (round_up(total) <= SIZE_MAX)
      memory = own = static_cast<char*>(aligned_alloc(QUERN_ALIGN, static_cast<size_t>(round_up(total))));
    if (!own)
      return fail(error, QUERN_MEMORY, "", static_cast<int64_t>(total), 0,
                  "%llu bytes for packed weights and workspace cannot be had", static_cast<unsigned long long>(total));
  }
  quern_args args = given;
  quern_exec run = {};
  run.size = sizeof run;
  run.threads = exec.threads, run.parallel_for = exec.parallel_for, run.self = exec.self;
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
  if (beta != 0.0f) p.residual = p.dst;
  p.accuracy = QUERN_ACCURACY_F32;
  return p;
}

quern_status check_strides(const char* row_name, const char* column_name, const matrix& m, quern_error* error) {
  const char* const name[] = {row_name, column_name};
  const int64_t size[] = {m.rows, m.columns}, stride[] = {m.row_stride, m.column_stride};
  for (int i = 0; i < 2; ++i)
    if (const int64_t most = size[i] > 1 ? (INT64_C(1) << 53) / size[i] : INT64_MAX;
        size[i] > 1 && (stride[i] < 1 || stride[i] > most))
      return fail(error, QUERN_INVALID, name[i], stride[i], stride[i] < 1 ? 1 : most,
                  "%s is %lld, must be at least 1 and keep the matrix below 2^53 elements", name[i],
                  static_cast<long long>(stride[i]));
  return QUERN_OK;
}

// No two elements meet when the sparser axis steps over all that the denser one spans: the rule of every dst, with the
// names of this call.
quern_status check_distinct(const char* row_name, const char* column_name, const matrix& m, quern_error* error) {
  if (m.rows < 2 || m.columns < 2) return QUERN_OK;
  const bool by_rows = m.row_stride >= m.column_stride;
  const char* name = by_rows ? row_name : column_name;
  const int64_t step = by_rows ? m.row_stride : m.column_stride;
  const int64_t span = 1 + (by_rows ? (m.columns - 1) * m.column_stride : (m.rows - 1) * m.row_stride);
  if (step >= span) return QUERN_OK;
  return fail(error, QUERN_INVALID, name, step, span, "%s is %lld, must be at least %lld, or elements of c overlap",
              name, static_cast<long long>(step), static_cast<long long>(span));
}

operand operand_of(const char* name, const matrix& m, const float* p) { return {name, p, bytes_of(tensor_of(m))}; }

}  // namespace
}  // namespace quern

using namespace quern;

extern "C" {

quern_status quern_compute(const quern_problem* problem, const quern_args* args, const quern_exec* exec,
                           quern_error* error) noexcept {
  quern_problem p;
  if (const quern_status s = complete(problem, p, error)) return s;
  if (has_any(p)) {
    const char* field = p.src.layout == QUERN_ANY ? "src.layout" : "dst.layout";
    return fail(error, QUERN_INVALID, field, QUERN_ANY, QUERN_NC16HW16,
                "%s is QUERN_ANY, must be a layout: only a plan can choose one, before the tensors are there", field);
  }
  if (!args) return fail(error, QUERN_INVALID, "args", 0, 0, "args is NULL, must point to a quern_args");
  quern_args a;
  quern_exec e;
  if (const quern_status s = take(args, a, "args", error)) return s;
  if (const quern_status s = take_exec(exec, e, error)) return s;
  // quern_run sees packed weights only.
  if (!empty(p)) {
    const operand weights = {"args.weights", a.weights, bytes_of(p.weights)},
                  dst = {"args.dst", a.dst, bytes_of(p.dst)};
    if (const quern_status s = check_input(weights, dst, type_bytes(p.weights.type), error)) return s;
  }
  quern_wish wish = wish_for(e);
  if (p.src.type == QUERN_F64) wish.algorithm = "reference";  // the only one that computes in f64
  return compute(p, wish, a, e, nullptr, 0, error);
}

quern_status quern_sgemm(int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t rsa, int64_t csa,
                         const float* b, int64_t rsb, int64_t csb, float beta, float* c, int64_t rsc, int64_t csc,
                         const quern_exec* exec, quern_error* error) noexcept {
  const char* const names[] = {"m", "n", "k"};
  const int64_t sizes[] = {m, n, k};
  for (int i = 0; i < 3; ++i)
    if (sizes[i] < 0 || sizes[i] > INT64_C(1) << 31)
      return fail(error, QUERN_INVALID, names[i], sizes[i], sizes[i] < 0 ? 0 : INT64_C(1) << 31,
                  "%s is %lld, must be 0 to 2^31", names[i], static_cast<long long>(sizes[i]));
  quern_exec e;
  if (const quern_status s = take_exec(exec, e, error)) return s;
  if (m == 0 || n == 0) return QUERN_OK;
  if (const char* const nan = alpha != alpha ? "alpha" : beta != beta ? "beta" : nullptr)
    return fail(error, QUERN_INVALID, nan, 0, 0, "%s is NaN, must be a number", nan);
  const matrix ma = {m, k, rsa, csa}, mb = {k, n, rsb, csb}, mc = {m, n, rsc, csc};
  if (const quern_status s = check_strides("rsa", "csa", ma, error)) return s;
  if (const quern_status s = check_strides("rsb", "csb", mb, error)) return s;
  if (const quern_status s = check_strides("rsc", "csc", mc, error)) return s;
  if (const quern_status s = check_distinct("rsc", "csc", mc, error)) return s;
  const operand oc = operand_of("c", mc, c);
  if (const quern_status s = check_input(oc, oc, sizeof(float), error)) return s;
  if (alpha == 0.0f || k == 0) {  // as in BLAS, A and B are not read
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        float& element = c[i * mc.row_stride + j * mc.column_stride];
        element = beta == 0.0f ? 0.0f : beta * element;
      }
    return QUERN_OK;
  }
  const operand oa = operand_of("a", ma, a), ob = operand_of("b", mb, b);
  if (const quern_status s = check_input(oa, oc, sizeof(float), error)) return s;
  if (const quern_status s = check_input(ob, oc, sizeof(float), error)) return s;
  // B is packed into the workspace before quern_run looks.
  const operand workspace = {"exec.workspace", e.workspace, e.workspace ? e.workspace_bytes : 0};
  for (const operand& o : {oa, ob, oc})
    if (const quern_status s = check_input(workspace, o, QUERN_ALIGN, error)) return s;
  const quern_problem p = sgemm_problem(ma, mb, mc, alpha, beta);
  quern_args args = {};
  args.size = sizeof args;
  args.src = a, args.weights = b, args.dst = c, args.residual = c;
  return compute(p, sgemm_wish(e), args, e, static_cast<char*>(e.workspace), workspace.bytes, error);
}

uint64_t quern_sgemm_workspace(int64_t m, int64_t n, int64_t k, const quern_exec* exec) noexcept {
  quern_exec e;
  if (take_exec(exec, e, nullptr)) return 0;
  constexpr int64_t largest = INT64_C(1) << 31;
  if (m < 0 || n < 0 || k < 0 || m > largest || n > largest || k > largest) return 0;
  // Strides decide whether A is read in place, and which way the product lies or that it must be scattered;
  // beta decides how k is cut: the most of all of them.
  uint64_t most = 0;
  for (int turn = 0; turn < 18; ++turn) {
    const auto lying = [&](int how, int64_t rows, int64_t columns) {
      return how == 0   ? matrix{rows, columns, columns, 1}
             : how == 1 ? matrix{rows, columns, 1, rows}
                        : matrix{rows, columns, 2 * columns, 2};
    };
    const quern_problem p =
        sgemm_problem(lying(turn % 3, m, k), {k, n, n, 1}, lying(turn / 3 % 3, m, n), 1.0f, turn < 9 ? 0.0f : 1.0f);
    const quern_wish wish = sgemm_wish(e);
    quern_plan plan;
    if (quern_plan_make(&plan, nullptr, &p, &wish, nullptr) == QUERN_OK)
      most = std::max(most, round_up(plan.packed_bytes) + plan.workspace_bytes);
  }
  return most;
}

}  // extern "C"
