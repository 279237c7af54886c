// SPDX-License-Identifier: MIT
#include "fake_rows.h"

void quern::test::run_f16(const kernel& row, unsigned blocks, void** parameters) {
  run_first_layers<first_f16_64, first_f16_32>(row, "f16", blocks, parameters);
  run_first_boxes<box_f16_64, box_f16_32>(row, "f16", blocks, parameters);
  run_of_type<f16>(row, "f16", blocks, parameters);
}
