/* SPDX-License-Identifier: MIT
 *
 * A convolution with bias and ReLU: problem, plan, pack, run. */
#include <quern/quern.h>
#include <stdio.h>
#include <stdlib.h>

static float* random_floats(size_t count) {
  float* x = malloc(count * sizeof *x);
  for (size_t i = 0; x && i < count; i++) x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
  return x;
}

static char* align(char* p) { return p + (QUERN_ALIGN - (uintptr_t)p % QUERN_ALIGN) % QUERN_ALIGN; }

int main(void) {
  /* 64 channels of 56 x 56 pixels to 128 channels, 3 x 3 filter, one pixel of zeros around the image. */
  quern_problem problem = quern_conv2d(QUERN_F32, QUERN_NHWC, 1, 64, 56, 56, 128, 3, 3);
  problem.window.pad_begin[1] = problem.window.pad_begin[2] = 1;
  problem.window.pad_end[1] = problem.window.pad_end[2] = 1;
  problem.epilogue.bias = 1;
  problem.epilogue.activation = QUERN_RELU;

  quern_plan plan;
  quern_error error;
  if (quern_plan_make(&plan, NULL, &problem, NULL, &error)) return fprintf(stderr, "%s\n", error.text), 1;
  printf("%s %s, %.2f ms predicted\n", plan.algorithm, plan.kernel, plan.predicted_ns * 1e-6);

  const int64_t* dst = plan.problem.dst.size; /* n k o p q: the plan knows what the problem left open */
  float* output = malloc((size_t)(dst[1] * dst[3] * dst[4]) * sizeof *output);
  float *input = random_floats(56 * 56 * 64), *weights = random_floats(128 * 3 * 3 * 64), *bias = random_floats(128);
  char* block = malloc((size_t)(plan.packed_bytes + plan.workspace_bytes) + 2 * QUERN_ALIGN);
  if (!output || !input || !weights || !bias || !block) return fputs("out of memory\n", stderr), 1;
  char *packed = align(block), *workspace = align(packed + plan.packed_bytes);

  if (quern_pack(&plan, weights, packed, plan.packed_bytes, NULL, &error))
    return fprintf(stderr, "%s\n", error.text), 1;

  quern_args args = {.size = sizeof args, .src = input, .weights = packed, .dst = output, .bias = bias};
  quern_exec exec = {.size = sizeof exec, .workspace = workspace, .workspace_bytes = plan.workspace_bytes};
  if (quern_run(&plan, &args, &exec, &error)) return fprintf(stderr, "%s\n", error.text), 1;

  printf("pixel 0, channels 0 to 7:");
  for (int k = 0; k < 8; k++) printf(" %g", output[k]);
  printf("\n");
  free(block), free(bias), free(weights), free(input), free(output);
  return 0;
}
