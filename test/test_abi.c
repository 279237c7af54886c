/* SPDX-License-Identifier: MIT
 *
 * The header as the oldest language it is written for, and what no compatible version may change in it: the place of
 * every field, and the size of every struct, but that those may grow of which quern.h says so.  test_abi.cpp is the
 * same as C++. */
#include <quern/host.h>
#include <quern/quern.h>
#include <stdio.h>
#include <string.h>

/* A static assertion in C99. */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define SAME(a, b) typedef char JOIN(same_, __LINE__)[(a) == (b) ? 1 : -1]
#define SIZE(type, bytes) SAME(sizeof(type), bytes)
#define AT(type, field, bytes) SAME(offsetof(type, field), bytes)

/* clang-format off */
#if UINTPTR_MAX == UINT64_MAX
SIZE(quern_error, 520);
AT(quern_error, status, 0);
AT(quern_error, reserved, 4);
AT(quern_error, field, 8);
AT(quern_error, value, 72);
AT(quern_error, limit, 80);
AT(quern_error, text, 88);
SIZE(quern_tensor, 88);
AT(quern_tensor, type, 0);
AT(quern_tensor, layout, 4);
AT(quern_tensor, size, 8);
AT(quern_tensor, stride, 48);
SIZE(quern_window, 144);
AT(quern_window, filter, 0);
AT(quern_window, stride, 24);
AT(quern_window, dilation, 48);
AT(quern_window, pad_begin, 72);
AT(quern_window, pad_end, 96);
AT(quern_window, output_padding, 120);
SIZE(quern_epilogue, 96);
AT(quern_epilogue, scale, 0);
AT(quern_epilogue, bias, 4);
AT(quern_epilogue, residual, 8);
AT(quern_epilogue, activation, 12);
AT(quern_epilogue, activation_alpha, 16);
AT(quern_epilogue, activation_beta, 20);
AT(quern_epilogue, alpha, 24);
AT(quern_epilogue, beta, 28);
AT(quern_epilogue, reserved, 32);
SIZE(quern_problem, 624);
AT(quern_problem, size, 0);
AT(quern_problem, op, 4);
AT(quern_problem, src, 8);
AT(quern_problem, weights, 96);
AT(quern_problem, dst, 184);
AT(quern_problem, residual, 272);
AT(quern_problem, window, 360);
AT(quern_problem, groups, 504);
AT(quern_problem, epilogue, 512);
AT(quern_problem, accuracy, 608);
AT(quern_problem, axes, 612);
AT(quern_problem, epsilon, 616);
AT(quern_problem, reserved, 620);
SIZE(quern_cpu, 112);
AT(quern_cpu, size, 0);
AT(quern_cpu, cores, 4);
AT(quern_cpu, isa, 8);
AT(quern_cpu, l1_bytes, 16);
AT(quern_cpu, l2_bytes, 24);
AT(quern_cpu, l3_bytes, 32);
AT(quern_cpu, vector_bits, 40);
AT(quern_cpu, model, 48);
AT(quern_cpu, flops, 56);
AT(quern_cpu, l1_rate, 64);
AT(quern_cpu, l2_rate, 72);
AT(quern_cpu, l3_rate, 80);
AT(quern_cpu, memory_rate, 88);
AT(quern_cpu, fork_ns, 96);
AT(quern_cpu, withheld_isa, 104);
SIZE(quern_gpu, 48);
AT(quern_gpu, size, 0);
AT(quern_gpu, capability, 4);
AT(quern_gpu, multiprocessors, 8);
AT(quern_gpu, clock_mhz, 12);
AT(quern_gpu, l2_bytes, 16);
AT(quern_gpu, shared_bytes, 24);
AT(quern_gpu, bandwidth, 32);
AT(quern_gpu, driver, 40);
SIZE(quern_wish, 112);
AT(quern_wish, size, 0);
AT(quern_wish, threads, 4);
AT(quern_wish, algorithm, 8);
AT(quern_wish, kernel, 16);
AT(quern_wish, deny, 24);
AT(quern_wish, cpu, 32);
AT(quern_wish, workspace_limit, 40);
AT(quern_wish, repeat, 48);
AT(quern_wish, verbose, 52);
AT(quern_wish, log, 56);
AT(quern_wish, log_self, 64);
AT(quern_wish, gpu, 72);
AT(quern_wish, tuning, 80);
AT(quern_wish, tuning_bytes, 88);
AT(quern_wish, allow, 96);
AT(quern_wish, overlap, 104);
AT(quern_wish, src_limit, 108);
SIZE(quern_candidate, 160);
AT(quern_candidate, size, 0);
AT(quern_candidate, verdict, 4);
AT(quern_candidate, algorithm, 8);
AT(quern_candidate, kernel, 16);
AT(quern_candidate, backend, 24);
AT(quern_candidate, reason, 28);
AT(quern_candidate, field, 32);
AT(quern_candidate, value, 40);
AT(quern_candidate, limit, 48);
AT(quern_candidate, workspace_bytes, 56);
AT(quern_candidate, packed_bytes, 64);
AT(quern_candidate, predicted_ns, 72);
AT(quern_candidate, predictor, 80);
AT(quern_candidate, measured_ns, 88);
AT(quern_candidate, measured_by, 96);
AT(quern_candidate, accuracy, 104);
AT(quern_candidate, repeat, 108);
AT(quern_candidate, error_bound, 112);
AT(quern_candidate, flops, 120);
AT(quern_candidate, bytes, 128);
AT(quern_candidate, floor_percent, 136);
AT(quern_candidate, threads, 144);
AT(quern_candidate, reserved, 148);
AT(quern_candidate, src_layout, 152);
AT(quern_candidate, dst_layout, 156);
SIZE(quern_plan, 1200);
AT(quern_plan, size, 0);
AT(quern_plan, threads, 4);
AT(quern_plan, algorithm, 8);
AT(quern_plan, kernel, 16);
AT(quern_plan, problem, 24);
AT(quern_plan, packed_bytes, 648);
AT(quern_plan, workspace_bytes, 656);
AT(quern_plan, accuracy, 664);
AT(quern_plan, repeat, 668);
AT(quern_plan, error_bound, 672);
AT(quern_plan, predicted_ns, 680);
AT(quern_plan, opaque, 688);
SIZE(quern_exec, 48);
AT(quern_exec, size, 0);
AT(quern_exec, threads, 4);
AT(quern_exec, parallel_for, 8);
AT(quern_exec, self, 16);
AT(quern_exec, queue, 24);
AT(quern_exec, workspace, 32);
AT(quern_exec, workspace_bytes, 40);
SIZE(quern_args, 64);
AT(quern_args, size, 0);
AT(quern_args, reserved, 4);
AT(quern_args, src, 8);
AT(quern_args, weights, 16);
AT(quern_args, dst, 24);
AT(quern_args, residual, 32);
AT(quern_args, scale, 40);
AT(quern_args, bias, 48);
AT(quern_args, slope, 56);
SIZE(quern_tuned, 56);
AT(quern_tuned, size, 0);
AT(quern_tuned, candidates, 4);
AT(quern_tuned, launches, 8);
AT(quern_tuned, elapsed_ns, 16);
AT(quern_tuned, algorithm, 24);
AT(quern_tuned, kernel, 32);
AT(quern_tuned, measured_ns, 40);
AT(quern_tuned, default_ns, 48);
SIZE(quern_budget, 40);
AT(quern_budget, size, 0);
AT(quern_budget, level, 4);
AT(quern_budget, milliseconds, 8);
AT(quern_budget, launches, 12);
AT(quern_budget, row, 16);
AT(quern_budget, progress, 24);
AT(quern_budget, self, 32);
SIZE(quern_kernel_info, 56);
AT(quern_kernel_info, size, 0);
AT(quern_kernel_info, backend, 4);
AT(quern_kernel_info, name, 8);
AT(quern_kernel_info, kind, 16);
AT(quern_kernel_info, about, 24);
AT(quern_kernel_info, isa, 32);
AT(quern_kernel_info, mr, 40);
AT(quern_kernel_info, nr, 44);
AT(quern_kernel_info, capability, 48);
AT(quern_kernel_info, reserved, 52);
#endif
SAME(QUERN_VERSION, 100);
/* clang-format on */

static int failures = 0;

static void check(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "does not hold: %s\n", what);
  ++failures;
}
#define CHECK(condition) check(condition, #condition)

int main(void) {
  quern_error error;
  quern_problem problem = quern_conv2d(QUERN_F32, QUERN_NCHW, 1, 1, 2, 2, 1, 2, 2);
  const float src[4] = {1, 2, 3, 4}, weights[4] = {5, 6, 7, 8};
  float dst = 0;
  quern_args args;

  CHECK(quern_version() == QUERN_VERSION);
  CHECK(quern_check(QUERN_VERSION, &error) == QUERN_OK);
  CHECK(quern_check(10000 + QUERN_VERSION, &error) == QUERN_MISMATCH);
  CHECK(error.status == QUERN_MISMATCH);
  CHECK(strstr(error.text, "0.1.0") != NULL);
  CHECK(strstr(error.text, "1.1.0") != NULL);
  CHECK(strcmp(quern_status_name(QUERN_OK), "ok") == 0);

  CHECK(problem.size == sizeof problem);
  memset(&args, 0, sizeof args);
  args.size = sizeof args;
  args.src = src;
  args.weights = weights;
  args.dst = &dst;
  if (quern_compute(&problem, &args, NULL, &error) != QUERN_OK) fprintf(stderr, "%s\n", error.text);
  CHECK(dst == 70);
  return failures != 0;
}
