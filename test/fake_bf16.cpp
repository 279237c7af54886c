// SPDX-License-Identifier: MIT
#include "fake_rows.h"

void quern::test::run_bf16(const kernel& row, unsigned blocks, void** parameters) {
  run_first_layers<first_bf16_64, first_bf16_32>(row, "bf16", blocks, parameters);
  run_first_boxes<box_bf16_64, box_bf16_32>(row, "bf16", blocks, parameters);
  run_of_type<bf16>(row, "bf16", blocks, parameters);
}
