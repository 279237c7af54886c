/* SPDX-License-Identifier: MIT
 *
 * The smallest program that uses Quern: one convolution through plan, pack and run.  Every consumer
 * project builds it. */
#include <quern/quern.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef WITH_HOST
#include <quern/host.h>
#endif

/* Memory aligned to QUERN_ALIGN, from malloc alone; never freed. */
static void* aligned(uint64_t bytes) {
  char* memory = malloc((size_t)bytes + QUERN_ALIGN);
  return memory ? memory + (QUERN_ALIGN - (uintptr_t)memory % QUERN_ALIGN) : NULL;
}

int main(void) {
  const float src[4 * 4] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  const float weights[3 * 3] = {0, 0, 0, 1, 2, 1, 0, 0, 0};
  float dst[2 * 2] = {0};
  quern_error error = {0};
  quern_problem problem = quern_conv2d(QUERN_F32, QUERN_NCHW, 1, 1, 4, 4, 1, 3, 3);
  quern_plan plan;
  quern_args args = {0};
  quern_exec exec = {0};
  void* packed;
#ifdef WITH_HOST
  quern_host* host = NULL;
#endif

  args.size = sizeof args;
  exec.size = sizeof exec;
  if (quern_check(QUERN_VERSION, &error) != QUERN_OK) goto failed;
  if (quern_plan_make(&plan, NULL, &problem, NULL, &error) != QUERN_OK) goto failed;
  packed = aligned(plan.packed_bytes);
  exec.workspace = aligned(plan.workspace_bytes);
  exec.workspace_bytes = plan.workspace_bytes;
#ifdef WITH_HOST
  if (quern_host_create(&host, 2, 0, &error) != QUERN_OK) goto failed;
  quern_host_attach(host, &exec);
#endif
  if (plan.packed_bytes && quern_pack(&plan, weights, packed, plan.packed_bytes, &exec, &error) != QUERN_OK)
    goto failed;
  args.src = src;
  args.weights = plan.packed_bytes ? packed : weights;
  args.dst = dst;
  if (quern_run(&plan, &args, &exec, &error) != QUERN_OK) goto failed;
#ifdef WITH_HOST
  quern_host_destroy(host);
#endif
  printf("%s %s: %g %g %g %g\n", plan.algorithm, plan.kernel, dst[0], dst[1], dst[2], dst[3]);
  return !(dst[0] == 24 && dst[1] == 28 && dst[2] == 40 && dst[3] == 44);

failed:
  fprintf(stderr, "%s\n", error.text);
  return 1;
}
