/* SPDX-License-Identifier: MIT
 *
 * Both copies are there, each with its own kernels: the renamed one was built with fewer. */
#include <acme/acme.h>
#include <quern/quern.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  const float src[2] = {3, 4}, weights[2] = {5, 6};
  float ours = 0, theirs = 0;
  quern_error quern_why = {0};
  acme_error acme_why = {0};
  quern_args quern_a = {0};
  acme_args acme_a = {0};
  quern_problem quern_p = quern_conv2d(QUERN_F32, QUERN_NCHW, 1, 2, 1, 1, 1, 1, 1);
  acme_problem acme_p = acme_conv2d(ACME_F32, ACME_NCHW, 1, 2, 1, 1, 1, 1, 1);
  quern_a.size = sizeof quern_a;
  quern_a.src = src;
  quern_a.weights = weights;
  quern_a.dst = &ours;
  acme_a.size = sizeof acme_a;
  acme_a.src = src;
  acme_a.weights = weights;
  acme_a.dst = &theirs;
  if (quern_compute(&quern_p, &quern_a, NULL, &quern_why) != QUERN_OK) fprintf(stderr, "%s\n", quern_why.text);
  if (acme_compute(&acme_p, &acme_a, NULL, &acme_why) != ACME_OK) fprintf(stderr, "%s\n", acme_why.text);
  printf("quern: %g with %zu kernels, acme: %g with %zu\n", ours, quern_kernel_count(), theirs, acme_kernel_count());
  return !(ours == 39 && theirs == 39 && acme_kernel_count() < quern_kernel_count());
}
